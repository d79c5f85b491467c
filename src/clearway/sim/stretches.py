"""Stretches of the twin: where nothing but plain jobs comes and ends, the kernel handles many moments in one call.

The twin knows how long each job will run, and a plain one runs for just so long from its start. So it hands the kernel
an agenda, and learns from its log what was decided. When in doubt there is none: each moment is then an event.
"""

from typing import Final

import numpy as np

from clearway.engine.agenda import ENDED_AT_MS, ENDED_PLACE, START_AT_MS, START_PLACE
from clearway.engine.settle import Agenda, is_plain, is_plain_policy
from clearway.kernel import Kernel
from clearway.kernel.decisions import DecisionDigest
from clearway.sim.backend import SimulatedBackend
from clearway.sim.recorder import Recorder
from clearway.sim.workload import TraceJob

WORTH_IT: Final = 4
"""Jobs to come within a stretch from which on it is worth being prepared."""


class Stretches:
    """The stretches of one run."""

    def __init__(self, kernel: Kernel, backend: SimulatedBackend, recorder: Recorder, digest: DecisionDigest) -> None:
        self._kernel = kernel
        self._backend = backend
        self._recorder = recorder
        self._digest = digest
        self._jobs = backend.jobs
        self._least = WORTH_IT
        self.agenda = Agenda(self._jobs, np.frombuffer(backend.spans_ms, dtype=np.int64))
        backend.keep_endings(self.agenda)

    def run(self, position: int, until_ms: int) -> bool:
        """Handle what comes before `until_ms`, as far as it may be; the next job to come is at `position`. False: there
        was nothing, or it may not be."""
        if not self._is_worth_it(position, until_ms):
            return False
        kernel, agenda, backend = self._kernel, self.agenda, self._backend
        if not backend.is_between_moments or not kernel.may_stretch:
            return False
        agenda.next = position
        kernel.handle_stretch(agenda, until_ms, backend.outcomes, backend.untold)
        if not agenda.moments:
            return False
        recorder = self._recorder
        starts, ended = agenda.starts, agenda.ended
        recorder.submitted_together(position, agenda.next)
        recorder.began_together(starts[START_PLACE], starts[START_AT_MS])
        recorder.ended_together(ended[ENDED_PLACE], ended[ENDED_AT_MS], backend.outcomes)
        backend.settle(agenda)
        self._digest.add_words(agenda.log)
        return True

    def _is_worth_it(self, position: int, until_ms: int) -> bool:
        """Whether a stretch will take in a few moments."""
        ahead = position + self._least
        if ahead < len(self._jobs):
            return self._jobs[ahead].submit_ms < until_ms
        return self.agenda.endings.count >= self._least


def make_stretches(
    kernel: object, backend: SimulatedBackend, recorder: Recorder, digest: DecisionDigest
) -> Stretches | None:
    """Stretches for a run, where its policy, its cluster and all of its jobs allow them; else None."""
    if not isinstance(kernel, Kernel) or not is_plain_policy(kernel.policy) or not backend.has_only_simple:
        return None
    if not backend.jobs or not all(map(_is_plain, backend.jobs)):
        return None
    return Stretches(kernel, backend, recorder, digest)


def _is_plain(job: TraceJob) -> bool:
    return is_plain(job.spec)
