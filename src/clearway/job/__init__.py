"""For programs that run under Clearway: say how far the work is, what is saved, and learn when to leave.

    import clearway.job

    job = clearway.job.current()
    for step in range(first, steps):
        train(step)
        job.report(step=step, progress=step / steps)
        if job.should_stop or step % 100 == 0:
            with job.saving(step=step):
                save(job.directory / "checkpoint.npz")
            if job.should_stop:
                job.leave()

Outside of Clearway the same program runs as it is: nobody asks it to stop, and reports go nowhere. Needs nothing but
the standard library. Programs in other languages read and write the same files: docs/checkpoint-contract.md.
"""

from clearway.job.contract import Job, Request, current, write_atomically

__all__ = ["Job", "Request", "current", "write_atomically"]
