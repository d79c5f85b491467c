"""A short task: say which one it is, and how long after its start NumPy was there."""

import os
import time

BEGAN = time.perf_counter_ns()

import numpy as np  # noqa: E402 - the import is what is measured

took_ms = (time.perf_counter_ns() - BEGAN) / 1e6
task = os.environ.get("SLURM_ARRAY_TASK_ID", "0")  # noqa: TID251 - the environment is how a task is told its number
value = float(np.linalg.norm(np.arange(10.0) * int(task)))
print(f"task {task}: norm {value:.3f}, NumPy imported in {took_ms:.1f} ms", flush=True)
