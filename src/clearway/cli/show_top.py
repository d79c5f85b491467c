"""The picture of `clearway top`: every device, what runs, what waits. Rows in, renderables out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from clearway.cli.session import Session
from clearway.cli.show_live import NONE, STATE_STYLES, render_devices, render_place
from clearway.cli.slurm.squeue_text import fold_arrays
from clearway.cli.slurm.values import ran_ms, render_time_limit, render_time_used
from clearway.model.ids import JobId
from clearway.ports.views import ClusterView, DeviceState, JobState, JobView, NodeView

COLORS: Final = ("green", "cyan", "yellow", "magenta", "blue", "bright_red", "bright_green", "bright_cyan")
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
NODES_SHOWN_MAX: Final = 32
JOBS_SHOWN_MAX: Final = 14
BAR_CELLS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What one picture is made of. ended: the last jobs that ended, the newest first."""

    cluster: ClusterView
    running: Sequence[JobView]
    waiting: Sequence[JobView]
    ended: Sequence[JobView] = ()
    now_ms: int


def draw_scene(session: Session, scene: Scene) -> RenderableType:
    """Head, map of devices, running, waiting, ended."""
    marks = _marks_of(scene.running)
    parts: list[RenderableType] = [_draw_head(session, scene), _draw_map(session, scene.cluster.nodes, marks)]
    parts.append(_draw_jobs(session, "Running", scene.running, scene, marks))
    if scene.waiting:
        parts.append(_draw_jobs(session, "Waiting", scene.waiting, scene, {}))
    if scene.ended:
        parts.append(_draw_jobs(session, "Ended", scene.ended, scene, {}))
    return Group(*parts)


def _marks_of(running: Sequence[JobView]) -> Mapping[JobId, tuple[str, str]]:
    """A letter and a colour for each running job, by its number: they stay while it runs."""
    return {job.id: (LETTERS[job.id % len(LETTERS)], COLORS[job.id % len(COLORS)]) for job in running}


def count_devices(nodes: Sequence[NodeView]) -> tuple[int, int, int]:
    """(in use, down, all)."""
    states = [device.state for node in nodes for device in node.devices]
    used = sum(state in (DeviceState.USED, DeviceState.SHARED) for state in states)
    return used, sum(state is DeviceState.DOWN for state in states), len(states)


def _draw_head(session: Session, scene: Scene) -> RenderableType:
    cluster = scene.cluster
    used, down, total = count_devices(cluster.nodes)
    filled = round(BAR_CELLS * used / total) if total else 0
    text = Text.assemble(
        ("clearway", "bold"),
        f"  {cluster.policy}   ",
        ("█" * filled, "green"),
        ("░" * (BAR_CELLS - filled), "dim"),
        session.say("  {used}/{total} devices in use", used=used, total=total),
        (session.say(", {down} down", down=down) if down else "", "red"),
        session.say("   {running} running, {pending} waiting", running=cluster.running, pending=cluster.pending),
        (session.say("   decided in {p50} ms", p50=f"{cluster.cycle_ms_p50:.1f}"), "dim"),
    )
    if cluster.storage_error:
        text.append(f"\n{cluster.storage_error}", "bold red")
    return text


def _draw_map(session: Session, nodes: Sequence[NodeView], marks: Mapping[JobId, tuple[str, str]]) -> RenderableType:
    lines = []
    width = max((len(node.name) for node in nodes), default=0)
    for node in nodes[:NODES_SHOWN_MAX]:
        line = Text(f"{node.name:<{width}}  ")
        for device in node.devices:
            line.append_text(_draw_device(device.state, [job for job, _ in device.owners], marks))
        state = f"  {node.state.value}{': ' + node.reason if node.reason else ''}"
        line.append(state, "dim")
        lines.append(line)
    if len(nodes) > NODES_SHOWN_MAX:
        lines.append(Text(session.say("and {count} more nodes", count=len(nodes) - NODES_SHOWN_MAX), style="dim"))
    return Panel(Group(*lines), title=session.translate("Devices"), title_align="left", border_style="dim")


def _draw_device(state: DeviceState, owners: Sequence[JobId], marks: Mapping[JobId, tuple[str, str]]) -> Text:
    if state is DeviceState.DOWN:
        return Text("✗ ", style="bold red")
    if not owners:
        return Text("· ", style="dim")
    letter, color = marks.get(owners[0], ("?", "white"))
    return Text("▣ " if len(owners) > 1 else f"{letter} ", style=f"bold {color}")


def _draw_jobs(
    session: Session,
    title: str,
    jobs: Sequence[JobView],
    scene: Scene,
    marks: Mapping[JobId, tuple[str, str]],
) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False, title=None)
    for header, justify in (("", "left"), ("Job", "left"), ("Name", "left"), ("User", "left"), ("Queue", "left")):
        table.add_column(session.translate(header), justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column(session.translate("State"), no_wrap=True)
    for header in ("Devices", "Time", "Limit", "Progress"):
        table.add_column(session.translate(header), justify="right", no_wrap=True)
    table.add_column(session.translate("Where, or why not"), ratio=1, no_wrap=True, overflow="ellipsis")
    lines = fold_arrays(jobs)
    for line in lines[:JOBS_SHOWN_MAX]:
        job = line.job
        letter, color = marks.get(job.id, ("", ""))
        cells = (line.name, job.name, job.user, job.queue)
        times = (
            render_time_used(ran_ms(job, scene.now_ms)),
            render_time_limit(job.limit_ms, NONE),
            _draw_progress(job),
        )
        table.add_row(
            Text(letter, style=f"bold {color}"),
            *map(Text, cells),
            Text(_state_of(job), style=STATE_STYLES.get(job.state, "")),
            Text(render_devices(job)),
            *map(Text, times),
            Text(render_place(job)),
        )
    more = len(lines) - JOBS_SHOWN_MAX
    shown = f"{session.translate(title)} ({len(jobs)})" if more > 0 else session.translate(title)
    return Panel(table, title=shown, title_align="left", border_style="dim")


def _draw_progress(job: JobView) -> str:
    return NONE if job.progress is None else f"{job.progress:.0%}"


def _state_of(job: JobView) -> str:
    """With what happened to it before, which a state does not say."""
    if job.preemptions and not job.state.is_final and job.state is not JobState.PENDING:
        return f"{job.state.value} ↻{job.preemptions}"
    return (
        f"{job.state.value} ⏏{job.preemptions}"
        if job.preemptions and job.state is JobState.PENDING
        else job.state.value
    )
