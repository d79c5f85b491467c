"""The keeper: a small process that owns the running jobs of one state directory, and outlives every controller.

One thread, the standard library alone, and nothing of Clearway but this package: it forks jobs, so it must start fast,
stay small and never hold a lock in another thread. It is started with `python -I -S`, has a session and, where it can,
a cgroup of its own, and speaks JSON lines over a Unix socket with whichever controller connected last.
"""
