"""What would help a job that waits is told in words, not by names of events."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

import clearway.engine
from clearway.cli.help_words import HELD, RELEASE, WORDS, render_fix, render_help, render_reason
from clearway.cli.messages import Language
from clearway.cli.session import Session
from clearway.engine.explain_room import DEVICES_COME_UP, DEVICES_GIVEN_BACK
from clearway.model.ids import JobId
from clearway.model.plan import Explanation, ReasonCode, Rejection


def help_for(*reasons, language=Language.ENGLISH):
    screen = Console(file=io.StringIO())
    session = Session(language=language, screen=screen, notes=screen)
    made = tuple(
        Rejection(code, f"{code.value}: so", blockers=tuple(map(JobId, blockers)), helped_by=helped_by)
        for code, blockers, helped_by in reasons
    )
    return render_help(session, Explanation(job=JobId(9), reasons=made))


AHEAD = ("JobStarted", "JobCancelled", *DEVICES_GIVEN_BACK)


@pytest.mark.parametrize(
    ("code", "blockers", "helped_by", "words"),
    [
        (ReasonCode.RESOURCES, (7,), DEVICES_GIVEN_BACK, "job 7 ends or gives devices back"),
        (ReasonCode.RESOURCES, (7, 8), DEVICES_GIVEN_BACK, "a job in its way ends or gives devices back"),
        (ReasonCode.QUOTA, (), DEVICES_GIVEN_BACK, "a running job ends or gives devices back"),
        (ReasonCode.DEPENDENCY, (7,), ("JobFinished",), "job 7 ends"),
        (ReasonCode.DEPENDENCY, (7,), ("JobStarted",), "job 7 starts"),
        (ReasonCode.NODES_DOWN, (), DEVICES_COME_UP, "a node or a device comes back or is added"),
        (ReasonCode.NEIGHBOURS, (), ("JobStarted",), "another job starts"),
        (ReasonCode.NEVER_FITS, (), ("NodeAdded",), "a node is added"),
        (ReasonCode.NEVER_FITS, (), ("SomethingNewer",), "SomethingNewer"),
    ],
)
def test_what_would_help_is_told_in_words(code, blockers, helped_by, words):
    assert help_for((code, blockers, helped_by)) == words


def test_where_one_job_that_ends_is_too_little_it_says_how_many_devices_must_come_back():
    screen = Console(file=io.StringIO())
    reasons = [
        Rejection(code, "so", needed_milli=1_500, available_milli=available, blockers=blockers, helped_by=helped_by)
        for code, available, blockers, helped_by in (
            (ReasonCode.QUOTA, -5_000, (JobId(1), JobId(2)), (*DEVICES_GIVEN_BACK, "TenantSet")),
            (ReasonCode.QUEUE_LIMIT, 9_000, (JobId(1), JobId(2)), DEVICES_GIVEN_BACK),
            (ReasonCode.QUOTA, 0, (JobId(4),), DEVICES_GIVEN_BACK),
        )
    ]
    said = [
        render_help(Session(language=language, screen=screen, notes=screen), Explanation(job=JobId(9), reasons=(one,)))
        for language in Language
        for one in reasons
    ]
    assert said[:3] == [
        "jobs in its way give 6.5 device(s) back; the quota of its tenant is raised",
        "a job in its way ends or gives devices back",
        "job 4 ends or gives devices back",
    ]
    assert said[3] == "阻挡它的作业共归还 6.5 个设备; 提高其租户的配额"


def test_jobs_ahead_start_and_jobs_that_run_give_devices_back():
    assert help_for((ReasonCode.PRIORITY, (7,), AHEAD)) == (
        "a running job ends or gives devices back; job 7 starts or is cancelled"
    )


def test_several_reasons_are_helped_once_by_the_same_and_a_named_job_says_more_than_any():
    room = (ReasonCode.RESOURCES, (5,), DEVICES_GIVEN_BACK)
    assert help_for(room, room, (ReasonCode.PRIORITY, (7,), AHEAD)) == (
        "job 5 ends or gives devices back; job 7 starts or is cancelled"
    )


def test_what_would_help_is_told_in_chinese():
    assert help_for((ReasonCode.RESOURCES, (7,), DEVICES_GIVEN_BACK), language=Language.CHINESE) == (
        "作业 7 结束或归还设备"
    )


def test_there_are_words_for_every_event_by_which_the_engine_says_that_a_job_is_helped():
    sources = Path(clearway.engine.__file__).parent.glob("explain*.py")
    named = {name for source in sources for name in re.findall(r"\b([A-Z]\w+)\.__name__", source.read_text("utf-8"))}
    assert {"JobFinished", "TimerFired"} <= named
    assert not [name for name in sorted(named) if not help_for((ReasonCode.RESOURCES, (), (name,))).islower()]
    assert named <= {event for events, _ in WORDS for event in events}


def test_a_hold_and_what_ends_it_are_told_in_the_language_of_the_session():
    screen = Console(file=io.StringIO())
    chinese = Session(language=Language.CHINESE, screen=screen, notes=screen)
    reason = Rejection(ReasonCode.HELD, f"JobHeldUser: {HELD}")
    assert render_reason(chinese, reason) == "JobHeldUser: 其用户将它搁置"
    assert render_fix(chinese, "release job 102") == "释放作业 102"
    assert render_fix(chinese, "ask for at most 2 devices") == "ask for at most 2 devices"


def test_the_engine_says_of_a_hold_what_is_translated():
    source = (Path(clearway.engine.__file__).parent / "explain_limits.py").read_text()
    assert f'"{HELD}"' in source
    assert RELEASE.replace("{number}", "{spec.id}") in source
