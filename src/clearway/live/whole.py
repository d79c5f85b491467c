"""The cluster and its jobs at one moment, as a twin needs them to go on from there."""

from clearway.live.memory import Memory
from clearway.model.ids import JobId
from clearway.ports.snapshot import ClusterSnapshot, SnapshotJob

QUANTILE = 0.5
"""Of the run times of a job's like: as many end sooner as later."""


def take_snapshot(memory: Memory, now_ms: int) -> ClusterSnapshot:
    """All of it, by nodes in their order and jobs by number."""
    state = memory.kernel.state
    inventory = state.inventory
    usable = [bool(inventory.is_up[place] and not inventory.is_drained[place]) for place in range(len(inventory.specs))]
    return ClusterSnapshot(
        at_ms=now_ms,
        nodes=tuple(spec for spec, is_usable in zip(inventory.specs, usable, strict=True) if is_usable),
        links=tuple(state.link_speeds.items()),
        nodes_away=tuple(spec.name for spec, is_usable in zip(inventory.specs, usable, strict=True) if not is_usable),
        queues=tuple(spec for _, spec in state.accounts.current_queues()),
        tenants=tuple(spec for _, spec in state.accounts.current_tenants()),
        jobs=tuple(_show(memory, job) for job in sorted(state.jobs)),
    )


def _show(memory: Memory, job: JobId) -> SnapshotJob:
    record, view = memory.kernel.state.jobs[job], memory.books.jobs[job].view
    run_times = memory.kernel.state.run_times
    return SnapshotJob(
        spec=record.spec,
        submit_ms=view.submit_ms,
        start_ms=view.start_ms if record.allocation is not None else None,
        saved_ms=view.saved_ms,
        expected_ms=None if run_times is None else run_times.predict_ms(record.spec, QUANTILE),
        is_held=record.held,
    )
