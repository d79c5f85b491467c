"""Jobs, nodes, queues and tenants of a running control plane on the screen."""

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.text import Text

from clearway.cli.help_words import render_fix, render_help, render_reason
from clearway.cli.session import Session
from clearway.cli.slurm.sinfo_text import gres_of
from clearway.cli.slurm.squeue_text import fold_arrays
from clearway.cli.slurm.values import (
    ends_ms,
    error_of,
    gpu_text_of,
    is_waiting,
    job_name_of,
    output_of,
    ran_ms,
    render_elapsed,
    render_host_list,
    render_memory,
    render_moment,
    render_time_limit,
    render_time_used,
)
from clearway.cli.tables import add_row, make_table, show_pairs, show_table
from clearway.model.units import MILLI
from clearway.ports.views import DeviceState, JobState, JobView, NodeState, NodeView, QueueView, TenantView

if TYPE_CHECKING:
    from clearway.model.plan import Explanation
    from clearway.wire.api import AuditRow

NONE: Final = "–"

STATE_STYLES: Final = {
    JobState.RUNNING: "green",
    JobState.PENDING: "yellow",
    JobState.SUSPENDED: "magenta",
    JobState.REQUEUE_HOLD: "magenta",
    JobState.COMPLETING: "cyan",
    JobState.CONFIGURING: "cyan",
    JobState.FAILED: "red",
    JobState.TIMEOUT: "red",
    JobState.NODE_FAIL: "red",
    JobState.OUT_OF_MEMORY: "red",
}

NODE_STYLES: Final = {
    NodeState.DOWN: "red",
    NodeState.DRAINED: "magenta",
    NodeState.DRAINING: "magenta",
    NodeState.MIXED: "green",
    NodeState.ALLOCATED: "green",
}


def show_job_table(session: Session, jobs: Sequence[JobView], now_ms: int) -> None:
    """One line per job; waiting members of an array that wait for the same reason are one."""
    table = make_table(
        session, ("Job", "Name", "User", "Queue", "State", "Devices", "Time", "Limit", "Where, or why not")
    )
    for place in (1, 2, 3, 4, 8):
        table.columns[place].justify = "left"
    for line in fold_arrays(jobs):
        job = line.job
        cells = (line.name, job.name, job.user, job.queue)
        figures = (render_devices(job), render_time_used(ran_ms(job, now_ms)), render_time_limit(job.limit_ms, NONE))
        state = Text(job.state.value, style=STATE_STYLES.get(job.state, ""))
        table.add_row(*map(Text, cells), state, *map(Text, figures), Text(render_place(job)))
    session.screen.print(table)
    if not jobs:
        session.note("No jobs")


def render_devices(job: JobView) -> str:
    """`8`, `2×4` replicas by devices, `0.5`."""
    each = gpu_text_of(job)
    return each if job.replicas == 1 else f"{job.replicas}×{each}"


def render_place(job: JobView) -> str:
    """The nodes and devices that a job holds; else why it has none."""
    if is_waiting(job) or (job.state.is_final and job.reason not in ("None", "")):
        return job.reason if not job.message else f"{job.reason}: {job.message}"
    if job.devices and any(indices for _, indices in job.devices):
        return " ".join(f"{node}:{','.join(map(str, indices))}" for node, indices in job.devices)
    return render_host_list(job.nodes)


def show_job(session: Session, job: JobView, now_ms: int) -> None:
    """Everything about one job, a line each."""
    ran = ran_ms(job, now_ms)
    planned = job.start_planned_ms if is_waiting(job) else job.start_ms
    rows = [
        ("Job", job_name_of(job)),
        ("Name", job.name),
        ("User", job.user),
        ("Tenant", job.tenant),
        ("Queue", job.queue),
        ("Kind", job.kind.value),
        ("State", job.state.value),
        ("Reason", "" if job.reason == "None" else f"{job.reason} {job.message}".strip()),
        ("Replicas", str(job.replicas)),
        ("Devices each", gpu_text_of(job)),
        ("CPUs each", f"{job.cpu_milli / MILLI / job.replicas:g}" if job.cpu_milli else ""),
        ("Memory each", render_memory(job.memory_bytes // job.replicas) if job.memory_bytes else ""),
        ("Holds", "" if is_waiting(job) or job.state.is_final else render_place(job)),
        ("Submitted", render_moment(job.submit_ms, None)),
        ("Starts" if is_waiting(job) else "Started", render_moment(planned, None, "")),
        ("Ended" if job.state.is_final else "Ends at the latest", render_moment(ends_ms(job), None, "")),
        ("Ran for", render_elapsed(ran) if ran else ""),
        ("Ran before", render_elapsed(job.ran_before_ms) if job.ran_before_ms else ""),
        ("Done again", render_elapsed(job.lost_ms) if job.lost_ms else ""),
        ("Time limit", render_time_limit(job.limit_ms, NONE)),
        ("Progress", "" if job.progress is None or job.state is JobState.COMPLETED else f"{job.progress:.0%}"),
        ("Saved up to", render_elapsed(job.saved_ms) if job.saved_ms else ""),
        ("Restarts", str(job.restarts) if job.restarts else ""),
        ("Preemptions", str(job.preemptions) if job.preemptions else ""),
        ("Exit code", f"{job.exit_code}:{job.signal}" if job.state.is_final else ""),
        ("Work folder", job.workdir),
        ("Output", output_of(job)),
        ("Errors", error_of(job) if job.error else ""),
    ]
    show_pairs(session, ("Field", "Value"), [(session.translate(label), value) for label, value in rows if value])


def show_explanation(session: Session, job: JobView, explanation: "Explanation | None", now_ms: int) -> None:
    """Why a job waits, or that it does not."""
    if explanation is None or not explanation.reasons:
        text = "Job {job} does not wait: it is {state}"
        session.screen.print(session.say(text, job=job_name_of(job), state=job.state.value), markup=False)
        if job.progress is not None and not job.state.is_final:  # what an ended job said last is not where it came to
            done = f"{job.progress:.0%}"
            show_pairs(session, ("", ""), [(f"  {session.translate('Progress')}", done)])
        return
    session.screen.print(
        session.say("Job {job} waits:", job=job_name_of(job)), markup=False, style="bold", highlight=False
    )
    for reason in explanation.reasons:
        session.screen.print(f"  {render_reason(session, reason)}", markup=False, soft_wrap=True)
    rows = [
        ("In the way", ", ".join(map(str, explanation.blockers[:10]))),
        ("Would help", render_help(session, explanation)),
        ("Cheapest change", render_fix(session, explanation.fix)),
        ("Planned start", _in_words(explanation.start_ms, now_ms)),
    ]
    show_pairs(session, ("", ""), [(f"  {session.translate(label)}", value) for label, value in rows if value])


def _in_words(moment_ms: int | None, now_ms: int) -> str:
    if moment_ms is None:
        return ""
    return f"{render_moment(moment_ms, None)} (+{render_time_used(max(0, moment_ms - now_ms))})"


def show_nodes(session: Session, nodes: Sequence[NodeView]) -> None:
    """One line per node."""
    table = make_table(session, ("Node", "State", "Devices", "Map", "CPUs", "Memory", "Remark"))
    for place in (1, 2, 3, 6):
        table.columns[place].justify = "left"
    for node in nodes:
        state = Text(node.state.value, style=NODE_STYLES.get(node.state, ""))
        if node.is_degraded:
            state.append(f" ({session.translate('degraded')})", style="red")
        figures = (_free_of(node.cpu_free_milli, node.cpu_milli, MILLI), _memory_of(node))
        table.add_row(
            Text(node.name), state, Text(gres_of(node)), map_devices(node), *map(Text, figures), Text(_remark(node))
        )
    session.screen.print(table)
    useful = [device for node in nodes if node.takes_jobs for device in node.devices]
    free = sum(device.state is DeviceState.FREE for device in useful)
    total = sum(len(node.devices) for node in nodes)
    session.screen.print(session.say("{free} of {total} devices are free", free=free, total=total), markup=False)
    for note in dict.fromkeys(note for node in nodes for note in node.notes):
        session.screen.print(note, markup=False, soft_wrap=True)


_BLOCKS: Final = {
    DeviceState.FREE: ("·", "dim"),
    DeviceState.USED: ("■", "green"),
    DeviceState.SHARED: ("▣", "cyan"),
    DeviceState.DOWN: ("✗", "red"),
}


def map_devices(node: NodeView) -> Text:
    """One sign per device: free, used, shared, down."""
    return Text.assemble(*(_BLOCKS[device.state] for device in node.devices))


def _free_of(free: int | None, total: int | None, unit: int) -> str:
    return NONE if total is None else f"{(free or 0) / unit:g}/{total / unit:g}"


def _memory_of(node: NodeView) -> str:
    if node.memory_bytes is None:
        return NONE
    return f"{render_memory(node.memory_free_bytes or 0)}/{render_memory(node.memory_bytes)}"


def _remark(node: NodeView) -> str:
    down = [f"{device.index}: {device.reason}" for device in node.devices if device.state is DeviceState.DOWN]
    return "; ".join([*([node.reason] if node.reason else []), *down])


def show_queues(session: Session, queues: Sequence[QueueView]) -> None:
    """One line per queue."""
    headers = ("Queue", "Priority", "Waiting", "Running", "Devices held", "Devices at most", "Time limit")
    table = make_table(session, headers)
    for queue in queues:
        most = NONE if queue.devices_max_milli is None else f"{queue.devices_max_milli / MILLI:g}"
        counts = (str(queue.priority), str(queue.pending), str(queue.running), f"{queue.used_milli / MILLI:g}")
        add_row(table, (queue.name, *counts, most, render_time_limit(queue.limit_max_ms, NONE)))
    session.screen.print(table)


def show_tenants(session: Session, tenants: Sequence[TenantView]) -> None:
    """One line per tenant, with what it holds and may hold."""
    headers = ("Tenant", "Parent", "Weight", "Waiting", "Running", "Devices held", "Guaranteed", "Borrows", "Share")
    table = make_table(session, headers)
    table.columns[1].justify = "left"
    for tenant in tenants:
        held = f"{tenant.used_milli / MILLI:g}"
        quota = (_quota(tenant.guaranteed_milli), _quota(tenant.borrow_max_milli))
        counts = (f"{tenant.weight:g}", str(tenant.pending), str(tenant.running), held)
        add_row(table, (tenant.name, tenant.parent or NONE, *counts, *quota, f"{tenant.share:.0%}"))
    session.screen.print(table)
    for tenant in tenants:
        for bound in tenant.bounds:
            session.screen.print(f"{tenant.name}: {bound}", markup=False, highlight=False)


def _quota(milli: int | None) -> str:
    return NONE if milli is None else f"{milli / MILLI:g}"


def show_audit(session: Session, rows: "Sequence[AuditRow]", zone: datetime.tzinfo | None = None) -> None:
    """Who did what, a line each."""
    table = make_table(session, ("Number", "Time", "User", "Action", "Target", "Allowed", "Detail"))
    for place in range(1, 7):
        table.columns[place].justify = "left"
    for row in rows:
        allowed = session.translate("yes" if row.is_allowed else "no")
        moment = render_moment(row.at_ms, zone)
        add_row(table, (str(row.number), moment, row.actor, row.action, row.target, allowed, row.detail))
    show_table(session, session.translate("Audit log"), table)
