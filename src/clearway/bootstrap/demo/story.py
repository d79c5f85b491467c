"""Submits the demonstration's jobs, watches what becomes of them, and says whether all of it was seen.

What it says comes from the control plane's own rows and the jobs' own output, never from what was meant to happen.
"""

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import yaml

from clearway.client import ApiError, Client
from clearway.model.ids import JobId
from clearway.ports.views import JobQuery, JobState, JobView
from clearway.wire.api import SubmittedFile

FOLDER: Final = Path(__file__).parent
POLL_S: Final = 0.25
PATIENCE_POLLS: Final = 2_400
"""Looks at the cluster after which the demonstration has failed: ten minutes."""

DEMO_CONFIG: Final = """\
policy:
  like: clearway
  name: clearway-demo
  preemption: {protection_ms: 2000}
  elasticity: {interval_ms: 4000}
cluster: 1x4:V100
"""
"""In the demonstration nobody waits ten minutes for the protection of what has just started to end, nor five until an
elastic job may grow again."""


class Demonstration:
    """lines: what happened, for people; is_over: nothing more will; is_good: all that should be seen was seen."""

    def __init__(self, client: Client, ended: threading.Event, workdir: Path) -> None:
        self._client = client
        self._ended = ended
        self._workdir = workdir
        self._seen: dict[JobId, JobView] = {}
        self._before: JobId | None = None  # jobs up to this number are not ours
        self._ours: set[JobId] = set()  # whoever watches may submit some of his own
        self._findings: list[tuple[bool, str]] = []
        self.lines: list[str] = []
        self.is_over = False

    @property
    def is_good(self) -> bool:
        """Whether each finding is as it should be, and there are any."""
        return bool(self._findings) and all(is_good for is_good, _ in self._findings)

    def run(self) -> None:
        """Submit and watch, until all has ended or the user has seen enough."""
        try:
            self._play()
        except ApiError as error:
            if not self._ended.is_set():
                self._findings.append((False, str(error)))
        finally:
            self.is_over = True

    def findings(self) -> list[str]:
        """What was seen and what was not, a line each."""
        return [f"{'✓' if is_good else '✗'} {text}" for is_good, text in self._findings]

    def tidy(self) -> None:
        """Cancel what has not ended, and wait for it."""
        active = [job.id for job in self._seen.values() if not self._client.job(job.id).state.is_final]
        if active:
            self._client.cancel(active)
            self._client.wait(active, poll_s=POLL_S)

    # --- the play -----------------------------------------------------------------------------------------------------

    def _play(self) -> None:
        acts = yaml.safe_load((FOLDER / "jobs.yaml").read_text(encoding="utf-8"))
        train, gang = self._submit(acts["first"], "a training job, and a gang of two")
        self._await(lambda: self._has_started(train) and self._has_started(gang))
        (elastic,) = self._submit(acts["then"], "an elastic job of 1 to 2 replicas")
        self._await(lambda: self._has_started(elastic) and self._has_saved(train) and self._has_saved(gang))
        (urgent,) = self._submit(acts["urgent"], "an urgent job of three replicas")
        self._await(lambda: self._seen[urgent].state.is_final and self._seen[gang].state.is_final)
        # The burst would take the second device back before the elastic job's program has begun on it.
        self._await(lambda: len(set(self._sizes_of(elastic))) > 1 or self._seen[elastic].state.is_final)
        tasks = self._submit(acts["burst"], f"a burst of 24 tasks that ask the network of job {train}", trained=train)
        everything = [elastic, train, gang, *tasks, urgent]
        self._await_end(tasks, "the burst of tasks has ended")
        self._await_end(everything, "all jobs have ended")
        if not self._ended.is_set():
            self._judge(elastic, train, gang, tasks, urgent)

    def _submit(self, jobs: list[dict[str, Any]], what: str, trained: JobId | None = None) -> tuple[JobId, ...]:
        words = {"PYTHON": sys.executable, "TRAIN": str(FOLDER / "train.py"), "TRAINED": str(trained)}
        filled = [
            {**job, "command": [words.get(word, word) for word in job["command"]]} if "command" in job else job
            for job in jobs
        ]
        file = SubmittedFile(text=json.dumps({"jobs": filled}), source="demonstration")
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        answer = self._client.submit([file], cwd=str(self._workdir), environment={"PATH": path})
        if self._before is None:
            self._before = JobId(answer.jobs[0] - 1)
        self._ours.update(answer.jobs)
        self.lines.append(f"submitted {what}: {_describe_numbers(answer.firsts or answer.jobs)}")
        self._look()
        return answer.jobs

    def _await(self, is_so: Any) -> None:
        """Look until it is so, the user has seen enough, or patience is at an end."""
        for _ in range(PATIENCE_POLLS):
            self._look()
            if is_so() or self._ended.wait(POLL_S):
                return
            bad = [job for job in self._seen.values() if job.state.is_final and job.state is not JobState.COMPLETED]
            if bad:
                self._give_up(f"{bad[0].name} ({bad[0].id}) ended: {bad[0].state.value}; see {bad[0].workdir}")
                return
        self._give_up("the demonstration did not come to its end")

    def _await_end(self, jobs: Sequence[JobId], what: str) -> None:
        """Look until all of them have ended, and say so."""
        self._await(lambda: all(self._seen[job].state.is_final for job in jobs))
        ended = [self._seen[job] for job in jobs if self._seen[job].state.is_final]
        if len(ended) == len(jobs):
            good = sum(job.state is JobState.COMPLETED for job in ended)
            self.lines.append(f"{what}: {good} of {len(jobs)} completed")

    def _give_up(self, reason: str) -> None:
        self._find(False, reason)
        self._ended.set()

    def _look(self) -> None:
        for job in self._client.all_jobs(JobQuery(after=self._before)):
            if job.id not in self._ours:
                continue
            before = self._seen.get(job.id)
            self._seen[job.id] = job
            if job.array is None:
                self.lines.extend(_describe_change(before, job))

    def _has_started(self, job: JobId) -> bool:
        return self._seen[job].state is not JobState.PENDING

    def _has_saved(self, job: JobId) -> bool:
        """Late enough that there is something to lose."""
        return self._seen[job].saved_ms > 0

    # --- what was seen ------------------------------------------------------------------------------------------------

    def _judge(self, elastic: JobId, train: JobId, gang: JobId, tasks: tuple[JobId, ...], urgent: JobId) -> None:
        everything = [self._seen[job] for job in (elastic, train, gang, *tasks, urgent)]
        bad = [f"{job.name} {job.id}: {job.state.value}" for job in everything if job.state is not JobState.COMPLETED]
        self._find(not bad, f"{len(everything)} jobs ran to their end" + (f", but not {', '.join(bad)}" if bad else ""))
        waited_ms = (self._seen[urgent].start_ms or 0) - self._seen[urgent].submit_ms
        victims = [job for job in everything if job.preemptions]
        named = ", ".join(f"{job.name} {job.id}" for job in victims)
        self._find(bool(victims), f"the urgent job started {waited_ms / 1_000:.1f} s after it came; preempted: {named}")
        for job in victims:
            steps = [int(line.rpartition(" ")[2]) for line in self._starts_of(job.id)]
            resumed = len(steps) > 1 and steps[-1] > 0
            self._find(resumed, f"{job.name} {job.id} went on from its checkpoint: starts at steps {steps}")
        sizes = [size for size, _ in groupby(self._sizes_of(elastic))]
        self._find(len(set(sizes)) > 1, f"the elastic job ran with {', then '.join(sizes)} replica(s)")
        starts_ms = sorted((self._seen[task].start_ms or 0) - self._seen[task].submit_ms for task in tasks)
        first, half = starts_ms[0], starts_ms[len(tasks) // 2]
        self._find(True, f"{len(tasks)} tasks: the first started {first} ms after it came, half within {half} ms")
        said = [self._client.log(task).data.decode(errors="replace").strip() for task in tasks]
        has_answers = all(" points are right" in line for line in said)
        self._find(has_answers, f"the tasks asked the network of job {train}: {said[-1]}")

    def _find(self, is_good: bool, text: str) -> None:
        self._findings.append((is_good, text))

    def _sizes_of(self, job: JobId) -> list[str]:
        """The number of replicas at each of its starts."""
        return [line.partition(": ")[2].partition(" ")[0] for line in self._starts_of(job)]

    def _starts_of(self, job: JobId) -> list[str]:
        """Lines that the training program prints at its start: `generation 2: 1 replica(s), from step 400`."""
        text = self._client.log(job).data.decode(errors="replace")
        return [line for line in text.splitlines() if line.startswith("generation ")]


def _describe_numbers(numbers: tuple[JobId, ...]) -> str:
    return "job " + ", ".join(map(str, numbers))


def _describe_change(before: JobView | None, job: JobView) -> Iterator[str]:
    """What happened to a job between two looks."""
    name = f"{job.name} ({job.id})"
    places = " ".join(f"{node}:{','.join(map(str, indices))}" for node, indices in job.devices)
    if before is None:
        return
    if job.preemptions > before.preemptions:
        yield f"{name} was preempted; {job.saved_ms / 1_000:.1f} s of its work are saved"
    if job.state is not before.state and job.state is JobState.RUNNING:
        yield f"{name} {'goes on' if job.restarts or job.preemptions else 'runs'} on {places}"
    elif job.state is JobState.RUNNING and job.devices != before.devices:
        yield f"{name} now runs on {places}"
    if job.state is not before.state and job.state.is_final:
        yield f"{name} ended: {job.state.value}"
