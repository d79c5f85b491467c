"""What the end of a run means, and how it is told. Pure."""

from dataclasses import dataclass
from typing import Final

from clearway.adapters.local.keeper.contract import Progress
from clearway.adapters.local.keeper.host import Purpose, split_status
from clearway.adapters.local.keeper.messages import Report

FAILED_STARTS: Final = ("start_failed", "unstartable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What is known of a run that has ended. purpose: why it was ended; None = it ended by itself. is_alive: some main
    process could not be ended. bad_status: of its first process that did not end well, 0 = none. has_unknown_end: how
    one of them ended was not seen. was_signalled: it was told to end. has_answered: it saved when it was asked to."""

    purpose: Purpose | None
    is_alive: bool
    bad_status: int
    has_unknown_end: bool
    was_signalled: bool
    has_answered: bool
    is_out_of_memory: bool


def judge(traces: Traces, said: Progress) -> Purpose:
    """A job that was told to leave and had ended well by itself is finished."""
    purpose = traces.purpose
    ended_well = not traces.is_alive and not traces.bad_status and not traces.has_unknown_end
    if purpose is not None and (purpose.end not in ("stopped", "moved") or purpose.value in FAILED_STARTS):
        return purpose
    if purpose is not None:
        is_complete = said.is_done or (not traces.was_signalled and not traces.has_answered)
        return Purpose("finished", "COMPLETED") if ended_well and is_complete else purpose
    if traces.has_unknown_end and not traces.bad_status:
        if said.is_done:
            return Purpose("finished", "COMPLETED")
        return Purpose("stopped", "node_failed", "how it ended was not seen: neither its keeper nor the warden lived")
    if ended_well:
        return Purpose("finished", "COMPLETED")
    return Purpose("finished", "OUT_OF_MEMORY" if traces.is_out_of_memory else "FAILED")


def tell_end(report: Report, purpose: Purpose, bad_status: int) -> None:
    """Put into `report` what became of its run. bad_status: see Traces."""
    report.phase, report.end, report.reason = "ended", purpose.end, purpose.reason
    if purpose.end == "finished":
        report.outcome = purpose.value
        report.exit_code, report.signal = split_status(bad_status)
    else:
        report.cause = purpose.value


def tell_stuck(report: Report, devices: tuple[tuple[str, int], ...], names: list[str], *, is_docker: bool) -> None:
    """Put into `report` that its run does not leave its devices. names: of the processes that do not end."""
    if names:
        reason = f"held by {', '.join(names)} of job {report.job}, which SIGKILL did not end"
    elif is_docker:
        reason = f"Docker does not say that the containers of job {report.job} are gone"
    else:
        reason = f"the control group of job {report.job} does not become empty, though no process can be seen in it"
    report.stuck = [(node, index, reason) for node, index in devices]
