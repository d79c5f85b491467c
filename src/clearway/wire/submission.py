"""What a submitted file became: jobs for the kernel, and for each what a backend needs to run it."""

from dataclasses import dataclass

from clearway.model.ids import JobId
from clearway.model.jobs import JobSpec
from clearway.model.runs import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedSubmission:
    """jobs: arrays expanded, ids rising. runs: one for each of `jobs`; members of an array share one object.

    notes: sentences for the submitter: how units were understood, and what was not acted upon.
    in_root: jobs that name the root tenant; others that are in it name none.
    """

    jobs: tuple[JobSpec, ...]
    runs: tuple[RunSpec, ...]
    notes: tuple[str, ...] = ()
    in_root: frozenset[JobId] = frozenset()

    def __post_init__(self) -> None:
        assert len(self.jobs) == len(self.runs)

    @property
    def run(self) -> RunSpec:
        """How to run the first job: that of the whole file where it holds one job or array."""
        return self.runs[0]
