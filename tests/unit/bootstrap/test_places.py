"""Where a control plane keeps its things, and in whose name."""

import os
import pwd
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from clearway.bootstrap.live import take_lock
from clearway.bootstrap.places import Places, Running, current_user, is_running, write_running
from clearway.cli.app import app

NAMELESS = 3_999_999_999
"""A user id that no machine gives a name."""


def test_a_user_without_a_name_goes_by_its_number(monkeypatch):
    assert current_user() == pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: NAMELESS)
    assert current_user() == str(NAMELESS)


def test_whether_a_control_plane_runs_is_told_by_its_lock(tmp_path):
    places = Places(tmp_path)
    assert not is_running(places)
    lock = take_lock(places)
    assert is_running(places)
    os.close(lock)
    assert not is_running(places)


@pytest.fixture
def stranger():
    """A process that has the number of a control plane that was killed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_what_a_killed_control_plane_left_behind_has_no_stranger_stopped(tmp_path, stranger):
    write_running(Places(tmp_path), Running(url="http://127.0.0.1:1", pid=stranger.pid))
    ended = CliRunner().invoke(app, ["down", "--state-dir", str(tmp_path)])
    assert ended.exit_code == 0
    assert "No control plane runs here" in ended.output
    assert stranger.poll() is None
