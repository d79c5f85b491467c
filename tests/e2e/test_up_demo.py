"""The mixed demonstration, as `make up` runs it, but without a terminal."""

import signal

import pytest

from support.control_plane import ControlPlane, wait_until


@pytest.fixture
def plane(tmp_path):
    plane = ControlPlane(tmp_path)
    yield plane
    plane.tidy()


@pytest.mark.slow
def test_the_demonstration_shows_preemption_resuming_and_resizing_with_real_processes(plane):
    shown = plane.run("up", "--listen", "0", "--demo", "--exit-when-done", limit_s=600)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    findings = [line for line in shown.stdout.splitlines() if line[:1] in "✓✗"]
    assert len(findings) >= 5
    assert all(line.startswith("✓") for line in findings), shown.stdout
    assert "was preempted" in shown.stdout
    assert "goes on" in shown.stdout


@pytest.mark.slow
def test_an_interrupt_ends_the_demonstration_and_its_jobs(plane):
    plane.start("--demo")
    with plane.client() as client:
        wait_until(lambda: client.cluster().running > 0, "jobs that run")
    assert plane.end(signal.SIGINT) == 0
    plane.start()
    assert plane.say("squeue", "-h") == ""
