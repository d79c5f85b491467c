"""What `scontrol show` prints."""

import datetime
from collections.abc import Sequence
from typing import Final

from clearway.cli.slurm.sacct_text import tres_of
from clearway.cli.slurm.sinfo_text import features_of, gres_of, gres_used_of
from clearway.cli.slurm.values import (
    cpu_count_of,
    ends_ms,
    error_of,
    gpu_text_of,
    is_waiting,
    node_count_of,
    output_of,
    priority_of,
    qos_of,
    ran_ms,
    render_elapsed,
    render_exit,
    render_host_list,
    render_memory,
    render_moment,
)
from clearway.model.ids import DEFAULT_QUEUE
from clearway.model.units import MIB, MILLI, MINUTE_MS
from clearway.ports.views import DeviceState, JobView, NodeState, NodeView, QueueView

_NODE_WORDS: Final = {
    NodeState.IDLE: "IDLE",
    NodeState.MIXED: "MIXED",
    NodeState.ALLOCATED: "ALLOCATED",
    NodeState.DRAINING: "MIXED+DRAIN",
    NodeState.DRAINED: "IDLE+DRAIN",
    NodeState.DOWN: "DOWN",
}

UID_UNKNOWN: Final = 4_294_967_294
"""What Slurm writes where there is no such user (NO_VAL)."""


def render_job(
    job: JobView, *, now_ms: int, zone: datetime.tzinfo | None = None, script: str = "", uid: int = UID_UNKNOWN
) -> str:
    """The block about one job, and an empty line. uid: of its user on this machine."""
    array = f" ArrayJobId={job.array} ArrayTaskId={job.array_index}" if job.array is not None else ""
    limit = "UNLIMITED" if job.limit_ms is None else render_elapsed(-(-job.limit_ms // MINUTE_MS) * MINUTE_MS)
    start_ms = job.start_planned_ms if is_waiting(job) else job.start_ms
    nodes = "" if is_waiting(job) else render_host_list(job.nodes)
    lines = [
        f"UserId={job.user}({uid}) GroupId=(null) MCS_label=N/A",
        f"Priority={priority_of(job)} Nice=0 Account={job.tenant} QOS={qos_of(job)}",
        f"JobState={job.state.value} Reason={job.reason} Dependency=(null)",
        f"Requeue={int(job.requeue)} Restarts={job.restarts} BatchFlag=1 Reboot=0 ExitCode={render_exit(job)}",
        f"RunTime={render_elapsed(ran_ms(job, now_ms))} TimeLimit={limit} TimeMin=N/A",
        f"SubmitTime={render_moment(job.submit_ms, zone)} EligibleTime={render_moment(job.submit_ms, zone)}",
        f"StartTime={render_moment(start_ms, zone, 'Unknown')} EndTime={render_moment(ends_ms(job), zone, 'Unknown')} "
        "Deadline=N/A",
        f"PreemptEligibleTime=N/A PreemptTime=None Preemptions={job.preemptions}",
        f"Partition={job.queue} AllocNode:Sid=N/A",
        "ReqNodeList=(null) ExcNodeList=(null)",
        f"NodeList={nodes}",
        *([f"BatchHost={job.nodes[0]}"] if nodes else []),
        f"NumNodes={node_count_of(job)} NumCPUs={cpu_count_of(job)} NumTasks={job.replicas * job.tasks_per_replica} "
        "CPUs/Task=N/A",
        f"TRES={tres_of(job)}",
        f"MinMemoryNode={render_memory(job.memory_bytes // job.replicas)}",
        *_describe_devices(job),
        *([f"Command={script}"] if script else []),
        f"WorkDir={job.workdir}",
        f"StdErr={error_of(job)}",
        "StdIn=/dev/null",
        f"StdOut={output_of(job)}",
        *([f"TresPerNode=gres/gpu:{gpu_text_of(job)}"] if job.device_milli else []),
        *([f"Comment={job.message}"] if job.message else []),
    ]
    return f"JobId={job.id}{array} JobName={job.name}\n" + "".join(f"   {line}\n" for line in lines) + "\n"


def _describe_devices(job: JobView) -> list[str]:
    """`Nodes=a CPU_IDs=... GRES=gpu(IDX:0-1)`, as `scontrol show job -d` says which devices it holds."""
    if is_waiting(job) or job.state.is_final:
        return []
    return [f"  Nodes={node} GRES=gpu(IDX:{','.join(map(str, indices))})" for node, indices in job.devices if indices]


def render_node(node: NodeView) -> str:
    """The block about one node, and an empty line."""
    cpus, free = (node.cpu_milli or 0) // MILLI, (node.cpu_free_milli or 0) // MILLI
    memory, memory_free = (node.memory_bytes or 0) // MIB, (node.memory_free_bytes or 0) // MIB
    down = [f"{device.index}:{device.reason}" for device in node.devices if device.state is DeviceState.DOWN]
    lines = [
        f"CPUAlloc={cpus - free} CPUEfctv={cpus} CPUTot={cpus} CPULoad=N/A",
        f"AvailableFeatures={features_of(node)}",
        f"ActiveFeatures={features_of(node)}",
        f"Gres={gres_of(node)}",
        f"GresUsed={gres_used_of(node)}",
        f"NodeAddr={node.name} NodeHostName={node.name}",
        f"RealMemory={memory} AllocMem={memory - memory_free} FreeMem=N/A",
        f"State={_NODE_WORDS[node.state]}",
        *([f"Reason={node.reason}"] if node.reason else []),
        *([f"DevicesDown={'; '.join(down)}"] if down else []),
    ]
    return f"NodeName={node.name}\n" + "".join(f"   {line}\n" for line in lines) + "\n"


def render_partition(queue: QueueView, nodes: Sequence[NodeView]) -> str:
    """The block about one queue, and an empty line."""
    is_default = "YES" if queue.name == DEFAULT_QUEUE else "NO"
    longest = "UNLIMITED" if queue.limit_max_ms is None else render_elapsed(queue.limit_max_ms)
    assumed = "NONE" if queue.limit_default_ms is None else render_elapsed(queue.limit_default_ms)
    cpus = sum((node.cpu_milli or 0) // MILLI for node in nodes)
    lines = [
        "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
        f"Default={is_default} DefaultTime={assumed} MaxTime={longest}",
        f"Nodes={render_host_list(node.name for node in nodes)}",
        f"PriorityTier={queue.priority} State=UP TotalCPUs={cpus} TotalNodes={len(nodes)}",
    ]
    return f"PartitionName={queue.name}\n" + "".join(f"   {line}\n" for line in lines) + "\n"
