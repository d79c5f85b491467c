"""A store in memory that keeps the port's promises, and can be made to fail."""

from collections import Counter

from clearway.ports.storage import JobQuery, JournalError, StorageError, TooLongError
from clearway.wire.codec import decode_event, dump_json, encode_event


class MemoryStore:
    """`clearway.ports.storage.Store`. Outlives its controller: hand it to the next one.

    error: raised by `append` while it is set. jobs_max: rows that it takes at once. record_characters_max: of one
    record; None = any. appends: calls of `append` that
    were kept. encodes: records are kept as JSON values, as a real store keeps them, not as they are.
    """

    def __init__(self, *, encodes=False):
        self.events = []
        self.runs = {}
        self.rows = {}
        self.audit = []
        self.error = None
        self.jobs_max = 1_000_000
        self.record_characters_max = None
        self.appends = 0
        self._encodes = encodes

    # --- the writer's door ----------------------------------------------------------------------------------------

    def append(self, changes):
        if self.error is not None:
            raise StorageError(self.error)
        if len(changes.jobs) > self.jobs_max:
            raise TooLongError(f"expected at most {self.jobs_max} jobs, found {len(changes.jobs)}")
        if self.record_characters_max is not None:
            longest = max((len(dump_json(encode_event(event))) for event in changes.events), default=0)
            if longest > self.record_characters_max:
                raise TooLongError(f"expected {self.record_characters_max} characters at most, found {longest}")
        self.events += [encode_event(event) if self._encodes else event for event in changes.events]
        self.runs.update(changes.runs)
        self.rows.update((row.id, row) for row in changes.jobs)
        self.audit += changes.audit
        self.appends += 1
        return len(self.events)

    def read_journal(self, after=0):
        for number, event in enumerate(self.events[after:], start=after + 1):
            yield number, decode_event(event) if self._encodes else event

    def read_runs(self, jobs):
        missing = [job for job in jobs if job not in self.runs]
        if missing:
            raise JournalError(f"expected how to run jobs {missing}, found nothing")
        return {job: self.runs[job] for job in jobs}

    def last_job_id(self):
        return max(self.rows, default=0)

    @property
    def reader(self):
        return self

    def close(self):
        """Nothing to let go of."""

    # --- readers --------------------------------------------------------------------------------------------------

    def find_jobs(self, query):
        found = [row for job, row in sorted(self.rows.items()) if _matches(row, query)]
        if query.after is not None:
            found = [row for row in found if (row.id < query.after if query.newest_first else row.id > query.after)]
        return tuple(found[::-1] if query.newest_first else found)[: query.limit]

    def count_jobs(self, query):
        return Counter(row.state for row in self.rows.values() if _matches(row, query))

    def read_run(self, job):
        return self.runs.get(job)

    def read_audit(self, after=0, limit=1_000):
        return tuple(enumerate(self.audit, start=1))[after : after + limit]


def _matches(row, query: JobQuery):
    wanted = (
        (query.ids, row.id),
        (query.states, row.state),
        (query.users, row.user),
        (query.tenants, row.tenant),
        (query.queues, row.queue),
        (query.names, row.name),
    )
    return (
        all(not some or found in some for some, found in wanted)
        and (query.array is None or row.array == query.array)
        and (query.submitted_from_ms is None or row.submit_ms >= query.submitted_from_ms)
        and (query.submitted_to_ms is None or row.submit_ms <= query.submitted_to_ms)
    )
