"""What would help a job that waits, in words. The control plane says it by names of events, for programs."""

import re
from collections.abc import Iterator
from typing import Final

from clearway.cli.session import Session
from clearway.model.plan import Explanation, ReasonCode, Rejection
from clearway.model.units import MILLI

LIMITS: Final = (ReasonCode.QUOTA, ReasonCode.QUEUE_LIMIT)
"""Reasons that tell by how many devices a limit is passed."""

AHEAD: Final = (ReasonCode.PRIORITY, ReasonCode.RESERVED)
"""Reasons whose jobs in the way wait themselves, so that it is others that give devices back."""

WORDS: Final = (
    (("JobFinished", "JobStopped", "JobSuspended", "JobResized"), "{job} ends or gives devices back"),
    (("JobFinished",), "{job} ends"),
    (("JobStarted", "JobCancelled"), "{job} starts or is cancelled"),
    (("JobStarted",), "{job} starts"),
    (("NodeUp", "DeviceUp", "NodeAdded"), "a node or a device comes back or is added"),
    (("NodeAdded",), "a node is added"),
    (("NodeChanged",), "a node offers something else"),
    (("NodeOpened",), "a node is no longer kept from its user"),
    (("JobReleased",), "it is released"),
    (("QueueSet",), "the limit of its queue is raised"),
    (("TenantSet",), "the quota of its tenant is raised"),
    (("PowerBudgetSet",), "the power budget is raised"),
    (("BudgetsChanged",), "a disruption budget lets more leave"),
    (("DemandForecast",), "fewer tasks and services are expected"),
    (("TimerFired",), "time passes"),
)
"""What is said of events that are named together: the first line whose events are all there speaks for them; for one
that is left over, the first line that has it."""
RUNNING: Final = "a running job"
ANOTHER: Final = "another job"
IN_THE_WAY: Final = "a job in its way"
NAMED: Final = "job {number}"
SEVERAL: Final = "jobs in its way give {job} device(s) back"
"""Where one that ends may be too little."""
JOBS: Final = (RUNNING, ANOTHER, IN_THE_WAY, NAMED)


HELD: Final = "its user holds it"
RELEASE: Final = "release job {number}"
ENGINES: Final = (HELD, RELEASE)
"""What the control plane says in English and people read often."""

_RELEASE: Final = re.compile(r"release job ([0-9]+)")


def render_reason(session: Session, reason: Rejection) -> str:
    """`JobHeldUser: its user holds it`: the token, which programs know, stays."""
    token, colon, text = reason.message.partition(": ")
    return f"{token}{colon}{session.translate(text)}"


def render_fix(session: Session, fix: str) -> str:
    """The cheapest change."""
    match = _RELEASE.fullmatch(fix)
    return fix if match is None else session.say(RELEASE, number=match[1])


def render_help(session: Session, explanation: Explanation) -> str:
    """What would help the job, the most important first: `job 7 ends or gives devices back; a node is added`."""
    said: dict[str, list[str]] = {}
    for reason in explanation.reasons:
        for text, job in _help_of(session, reason):
            said.setdefault(text, []).append(job)
    running = session.translate(RUNNING)
    parts: list[str] = []
    for text, jobs in said.items():
        named = [job for job in dict.fromkeys(jobs) if job != running] or [running]
        parts.extend(session.say(text, job=job) for job in named)
    return "; ".join(dict.fromkeys(parts))


def _help_of(session: Session, reason: Rejection) -> Iterator[tuple[str, str]]:
    """Texts and the job that each is about. Events of a newer control plane are told by their names."""
    left = list(dict.fromkeys(reason.helped_by))
    for events, text in WORDS:
        if all(event in left for event in events):
            left = [event for event in left if event not in events]
            lacking = reason.needed_milli - reason.available_milli
            if text == WORDS[0][1] and reason.code in LIMITS and len(reason.blockers) > 1 and lacking > 0:
                yield SEVERAL, f"{lacking / MILLI:g}"
                continue
            yield text, _job_of(session, reason, gives_back="JobFinished" in events)
    for event in left:
        text = next((text for events, text in WORDS if event in events), event)
        yield text, _job_of(session, reason, gives_back=text == WORDS[0][1])


def _job_of(session: Session, reason: Rejection, *, gives_back: bool) -> str:
    if not reason.blockers or (gives_back and reason.code in AHEAD):
        return session.translate(RUNNING if gives_back else ANOTHER)
    if len(reason.blockers) > 1:
        return session.translate(IN_THE_WAY)
    return session.say(NAMED, number=reason.blockers[0])
