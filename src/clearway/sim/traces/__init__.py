"""Readers of real traces. One call, `read_workload`, reads any of them; `detect_format` says which it is.

A line that cannot be used is counted and reported with its number in `Workload.skipped`, never silently dropped; a file
of which nothing can be used is an `InputError`. Files may be gzipped. Each format has a module of its own whose
docstring says how its records become jobs.
"""

from clearway.sim.traces.describe import describe_workload
from clearway.sim.traces.formats import FORMATS, TraceFormat, detect_format, read_workload
from clearway.sim.traces.inventories import is_inventory, read_cluster
from clearway.sim.traces.swf_writing import write_swf

__all__ = [
    "FORMATS",
    "TraceFormat",
    "describe_workload",
    "detect_format",
    "is_inventory",
    "read_cluster",
    "read_workload",
    "write_swf",
]
