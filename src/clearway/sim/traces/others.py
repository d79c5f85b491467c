"""Files that people take for workloads and that are none: what each is, and what it is good for.

Told by the first lines, as formats are. Where nothing here fits, nobody can say what the file is.
"""

import re
from typing import Final

HEAD_CHARACTERS: Final = 20_000
"""Looked at: more than the licence that stands before the XML of some vendors."""

_OVER_TIME: Final = "it holds counts or measurements over time and no jobs"
_OF_CLUSTERS: Final = (
    "it holds statistics of whole clusters and no jobs: hold a workload's `trace describe` against them"
)
_SPEEDS: Final = "it holds speeds: the traces of its source find them by themselves"
_SLURM: Final = (
    "it is what Slurm says of the present, without jobs that have ended: export these by `sacct --parsable2`"
)
_SLURM_SITE: Final = (
    "it is what Slurm says of its configuration and no jobs: write nodes and queues into a cluster and a site file"
)
_SPOT: Final = "it says over time how many machines could be had and holds no jobs"

_KINDS: Final[tuple[tuple[str, str], ...]] = (
    # failures
    (r"System,machine type|SN,location,insert,remove|# event_id component_id", "it is a failure log: see --faults"),
    (r'\[\s*\{\s*"node_id": "[^"]*",\s*"event_time"', "it is a failure log: see --faults"),
    (r"# node_id platform_id node_name", "it is the list of nodes of a failure log: give the log to --faults"),
    (r"\s*\d+\s+0x[0-9a-f]+\s+c\d+-\S+\s", "it is the list of nodes of a failure log: give the log to --faults"),
    (r"README for failure data", "it describes a failure log: give the log to --faults"),
    (r'\{\s*"[A-Z][a-z]+ Failure": \{', "it counts faults by kind and has no times; failure logs go to --faults"),
    # speeds
    (r"placement,|local_bsz,|num_nodes,num_replicas,|progress,iteration,metric", _SPEEDS),
    (r'\{\s*"[a-z0-9]+": \{\s*"\(\'', _SPEEDS),
    (r"global_batch_size,", "it holds speeds by number of GPUs and no jobs: write them as `speedup` of elastic jobs"),
    (r"dataset,network,batch_size|[^\n]*,time_stats\.", "it holds measurements of single programs and no jobs"),
    # counts and measurements
    (r"(time,total_job_num|time,active,total|date,|timestamp_anon,value|value,)", _OVER_TIME),
    (r"(day|hour|minute),(requests|mean_requests_per_hour|tokens_per_second)", _OVER_TIME),
    (r"id,(gpu_num,)?job_num,", _OF_CLUSTERS),
    (
        r'\{\s*"\d+": \{\s*"input_tokens"',
        "it holds how long the requests of a ServeGen client are, not when they come: its *_client_rates.csv is the "
        "workload, and finds this file by itself",
    ),
    # machines
    (
        r"(<!--.*?-->\s*)?<system version=",
        "it is NCCL's topology of one machine and no jobs: see `nvlink_size` of cluster files",
    ),
    (r"#+\s+# nvidia_gpu_exporter GPU capture", "it is what nvidia-smi said of one machine, and no jobs"),
    # availability
    (r"\d{4}-\d\d-\d\d, \d\d:\d\d:\d\d, \d+$|\d+,(add|remove),\S+$", _SPOT),
    (r'\{"metadata": \{"gap_seconds": \d+', _SPOT),
    # Slurm
    (r"AVAIL\||N/A\|#|\S+\|#\d+\|#|\{\"s\": \"|\{\"a\": \"", _SLURM),
    (r'\{\s*"(meta|statistics)": \{', _SLURM),
    (r'\{\s*"pid": \d+,\s*"cpus"', "it is what a process of a job measured of itself, and no list of jobs"),
    (r"Name\|Priority\||PartitionName=|Configuration data as of |\|root\|", _SLURM_SITE),
    (r"\S+ {40,}.*\b(idle|mixed|allocated|down|drained|alloc|mix)\b", _SLURM),
)
"""Beginnings of files, and what is to be said of them; the first that fits."""

_PATTERNS: Final = tuple((re.compile(pattern, re.DOTALL | re.MULTILINE), use) for pattern, use in _KINDS)


def say_what_it_is(head: tuple[str, ...]) -> str:
    """What a file that is no workload is, by its first lines; "" = that is not certain."""
    text = "\n".join(head)[:HEAD_CHARACTERS].lstrip("\ufeff")
    return next((use for pattern, use in _PATTERNS if pattern.match(text)), "")
