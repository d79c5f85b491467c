"""The case study on the screen: both sides against the published result."""

from collections.abc import Callable
from typing import Final

from clearway.bootstrap.casestudy import CaseStudyRun, SideFigures, training_run_change, training_time_change
from clearway.cli.figures import (
    render_change,
    render_count,
    render_duration,
    render_number,
    render_quantity,
    render_ratio,
)
from clearway.cli.session import Session
from clearway.cli.tables import add_row, make_table, show_table
from clearway.model.units import SECOND_MS
from clearway.sim.casestudy import DAYS, PUBLISHED, TASK_MEAN_MS

Figure = Callable[[SideFigures], str]

ROWS: Final[tuple[tuple[str, Figure], ...]] = (
    ("Use (devices held)", lambda side: render_ratio(side.use_ratio)),
    ("Effective use (work kept)", lambda side: render_ratio(side.effective_use_ratio)),
    ("Inference wait p50", lambda side: render_duration(side.tasks.p50_s)),
    ("Inference wait p99", lambda side: render_duration(side.tasks.p99_s)),
    ("  outside the burst, p50", lambda side: render_duration(side.steady.p50_s)),
    ("  outside the burst, p99", lambda side: render_duration(side.steady.p99_s)),
    ("  within the burst, mean", lambda side: render_duration(side.burst.mean_s)),
    ("  within the burst, longest", lambda side: render_duration(side.burst.max_s)),
    ("Tasks started within 100 ms", lambda side: render_ratio(side.tasks.promised_ratio)),
    ("  outside the burst", lambda side: render_ratio(side.steady.promised_ratio)),
    ("Training completion time, mean", lambda side: render_duration(side.training_jct_mean_s)),
    ("Training completion time, p50", lambda side: render_duration(side.training_jct_p50_s)),
    ("Training run time, mean", lambda side: render_duration(side.training_run_mean_s)),
    ("Training wait, mean", lambda side: render_duration(side.training_wait_mean_s)),
    ("Preemptions", lambda side: render_count(side.preemptions)),
    ("Lost", lambda side: render_quantity(side.lost_device_s, "device-s")),
)


PUBLISHED_FIGURES: Final = {
    "Use (devices held)": (render_ratio(PUBLISHED.use_static), render_ratio(PUBLISHED.use_dynamic)),
    "Inference wait p99": (
        render_duration(PUBLISHED.wait_static_ms / SECOND_MS),
        render_duration(PUBLISHED.wait_dynamic_ms / SECOND_MS),
    ),
}
"""By label. The publication does not say which statistic its wait is, so it stands beside the strictest."""

TRAINING_CHANGE: Final = "Training completion time, change"


def show_case_study(session: Session, run: CaseStudyRun) -> None:
    """What was run, both sides, and what they are to be read against."""
    centre = run.study.dynamic
    title = session.say(
        "A centre of {devices} devices over {days} days, seed {seed}",
        devices=centre.cluster.device_count,
        days=DAYS,
        seed=centre.seed,
    )
    table = make_table(session, ("Figure", "Static", "Clearway", "Published, static", "Published, dynamic"))
    for label, figure in ROWS:
        sides = (figure(run.static_figures), figure(run.dynamic_figures))
        add_row(table, (session.say(label), *sides, *PUBLISHED_FIGURES.get(label, ("", ""))))
    change = render_change(training_time_change(run))
    add_row(table, (session.say(TRAINING_CHANGE), "", change, "", render_change(PUBLISHED.training_time_ratio)))
    show_table(session, title, table)
    _explain(session, run)


def _explain(session: Session, run: CaseStudyRun) -> None:
    """What the figures rest on; the docstring of `clearway.sim.casestudy` has all of it."""
    training, inference = (setup.cluster.device_count for setup in run.study.static)
    for line in (
        session.say(
            "Offered load: training {training} and inference {inference} devices on average.",
            training=render_number(run.offered_training),
            inference=render_number(run.offered_inference),
        ),
        session.say(
            "Static: {training} devices for training, {inference} for inference, first come first served in each; "
            "--training-nodes tries another split.",
            training=training,
            inference=inference,
        ),
        session.say(
            "Tasks take {mean} on average, one whole device each: of 1,000 at once, no schedule on {devices} devices "
            "brings the mean wait below {floor}.",
            mean=render_duration(TASK_MEAN_MS / SECOND_MS),
            devices=training + inference,
            floor=render_duration(run.burst_floor_s),
        ),
        session.say(
            "The static training part is offered {offered} devices of work and has {training}, so its queue grows as "
            "long as jobs come: most of the change of completion time is waiting, and depends on how long one looks. "
            "Run time alone changed by {change}.",
            offered=render_number(run.offered_training),
            training=training,
            change=render_change(training_run_change(run)),
        ),
        session.say(
            "Each training job lies in the published ranges, at their lower end: the middle of all three would ask for "
            "405 devices of 128."
        ),
        session.say("Jobs, failures and checkpoints are the same on both sides."),
    ):
        session.screen.print(f"  {line}", markup=False, soft_wrap=True)
