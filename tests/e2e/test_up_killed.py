"""SIGKILL of a real control plane under load, again and again: nothing that was acknowledged is lost or done twice."""

import random
import threading
from pathlib import Path

import pytest

from clearway.client import ApiError
from clearway.ports.views import JobQuery, JobState
from clearway.wire.api import SubmittedFile
from support.control_plane import WAIT_S, ControlPlane, wait_until

DEVICES = 4
JOBS = 3
"""Of each submission."""
STARTING_S = 4.0
"""About as long as a start takes."""

JOB = """
device=$CUDA_VISIBLE_DEVICES
exec 9>>"{folder}/device-$device"
flock -n 9 || echo "$SLURM_JOB_ID on $device" >>"{folder}/twice"
echo $SLURM_JOB_ID >>"{folder}/began"
sleep 0.{tenths}
echo $SLURM_JOB_ID >>"{folder}/ended"
"""
"""Each job holds a lock that belongs to its device: two at once on one device leave a line in `twice`."""


class Load(threading.Thread):
    """Submits jobs one by one, and knows which were acknowledged; a job that was not is asked for again by its key."""

    def __init__(self, plane: ControlPlane, seed: int) -> None:
        super().__init__(name="load", daemon=True)
        self.plane = plane
        self.chance = random.Random(seed)
        self.acknowledged: list[int] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.is_over.is_set():
            script = JOB.format(folder=self.plane.work, tenths=self.chance.randrange(1, 6))
            file = SubmittedFile(
                job={
                    "name": "load",
                    "run": script,
                    "resources": {"gpus": 1},
                    "array": f"1-{JOBS}",
                    "output": "/dev/null",
                }
            )
            if not self._submit(file, f"load-{number}"):
                return
            number += 1
            self.is_over.wait(self.chance.uniform(0.02, 0.1))

    def _submit(self, file: SubmittedFile, key: str) -> bool:
        """Until it is acknowledged; False when it is over before."""
        while not self.is_over.is_set():
            try:
                with self.plane.client() as client:
                    answer = client.submit(
                        [file], cwd=str(self.plane.work), environment={"PATH": "/usr/bin:/bin"}, key=key
                    )
            except (ApiError, AssertionError, OSError):
                self.is_over.wait(0.05)
                continue
            self.acknowledged.extend(answer.jobs)
            return True
        return False


def numbers_in(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.mark.slow
def test_a_control_plane_that_is_killed_again_and_again_loses_nothing(tmp_path, request):
    kills = request.config.getoption("--kills")
    plane = ControlPlane(tmp_path, devices=f"1x{DEVICES}")
    chance = random.Random(kills)
    load = Load(plane, seed=kills)
    try:
        plane.start()
        load.start()
        for number in range(kills):
            load.is_over.wait(chance.uniform(0.0, 1.0))
            assert plane.end(9) == -9
            if number % 4 == 3:  # while it starts, too
                plane.spawn()
                load.is_over.wait(chance.uniform(0.0, STARTING_S))
                assert plane.end(9) == -9
            plane.start()
        load.is_over.set()
        load.join()
        with plane.client() as client:
            rows = client.wait(sorted(load.acknowledged), poll_s=0.2)
            wait_until(lambda: not list(client.all_jobs(JobQuery(states=(JobState.RUNNING,)))), "jobs of lost answers")
            everything = [row.id for row in client.all_jobs(JobQuery())]
        began, ended = numbers_in(plane.work / "began"), numbers_in(plane.work / "ended")
        assert len(load.acknowledged) >= JOBS * kills, "there was no load"
        assert len(set(load.acknowledged)) == len(load.acknowledged), "a number was given twice"
        assert {row.state for row in rows} == {JobState.COMPLETED}
        assert sorted(began) == sorted(set(began)), "a job ran twice"
        assert set(load.acknowledged) <= set(ended), "a job that was acknowledged did not run"
        assert set(began) <= set(everything), "a job ran that is not known"
        assert not (plane.work / "twice").exists(), "a device was given twice"
        assert "whole" in plane.say("journal", "verify")
        assert "all decided again as they were" in plane.say("journal", "replay", limit_s=WAIT_S + 5 * kills)
    finally:
        load.is_over.set()
        plane.tidy()
