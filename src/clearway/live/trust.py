"""Which nodes may be given starts: one that fails every start takes `node_jobs_max` jobs at most, then it is drained.

Pure, and made of the journal's records alone, so that a control plane that was killed goes on where it was.

A node is *proven* by a start that went well, or of which the setup step runs, until one fails on it; on others, what
failed there and what is under way are counted, and no more jobs than a node may fail are let go. The rest waits, its
jobs holding their devices.

Who is to blame cannot be known before something went well, so the last of these places is for a user who is in doubt
nowhere else: one user's broken jobs then have one node drained at most. A user is in doubt where a start of his failed,
unless that job has started elsewhere since. Nodes on which only the last place is left are closed to users who may not
have it (`NodeClosed`): their jobs are planned elsewhere, and whoever comes next decides. Where nobody does, one job of
such a user may, after `TRIAL_MS`; not if another node was drained for him alone. Where others failed there, too, it may
be the node, and he could be locked out of good nodes for ever by one whose jobs fail on each of them: so he may once.
One whose jobs are broken has two nodes drained at most, and one if nobody else's are.

A start that has not been answered for `LATE_MS` counts as failed. A node that was drained is used again when all jobs
for which it was are to blame: another node on which each failed has started a job since.

A gang whose start failed tells of one node when all others of its nodes are proven: at once, or as soon as they are.
Until then it is kept as *unclear* and counts for none; nodes that were all proven are not any more. A gang over several
nodes that are not proven would tell of none either: only as many are let go together as one node may fail but for the
last, then one at a time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from clearway.model.events import Event, NodeClosed, NodeDrained, NodeOpened, NodeUp
from clearway.model.ids import JobId, NodeName
from clearway.model.units import FOREVER_MS, MINUTE_MS

FAILED_STARTS_OF: Final = "the starts of"
"""First words of the reason with which a node is drained."""

TRIAL_MS: Final = 5 * MINUTE_MS
"""After so long without a failure, one more job may show whether the node or its user is to blame: most troubles of a
machine that pass by themselves have passed then."""
LATE_MS: Final = 10 * MINUTE_MS
"""A start takes milliseconds, and one that fetches an image minutes. Setup steps do not count."""
UNCLEAR_MAX: Final = 100
"""Failed gangs that are remembered until it shows of which node they tell: more than enough for any node of them."""

GIVEN: Final = ("_most", "_paces", "_looked_ms")
"""What a trust is told when it is made, or only remembers for itself."""

Failure = tuple[str, bool, bool, int]
"""A user; whether the job has started elsewhere since; whether it had the last place; when it failed."""
Flight = tuple[str, bool, int]
"""A user; whether it has the last place; since when a start is under way."""
Nodes = tuple[NodeName, ...]
Unclear = tuple[str, Nodes, bool, int]
"""Of a gang: a user; on which of its nodes it failed, two at least; whether it has started elsewhere since; when."""


class Trust:
    """node_jobs_max: see the module. paces: whether starts may have to wait, which is not where one takes minutes."""

    def __init__(self, node_jobs_max: int, *, paces: bool) -> None:
        self._most = node_jobs_max
        self._paces = paces
        self._looked_ms = 0
        self._proven: set[NodeName] = set()
        self._failed: dict[NodeName, dict[JobId, Failure]] = {}  # since the last good start
        self._flying: dict[NodeName, dict[JobId, Flight]] = {}
        self._queued: dict[NodeName, dict[JobId, str]] = {}
        self._node_of: dict[JobId, NodeName] = {}  # of those that fly or are queued
        self._unclear: dict[tuple[JobId, Nodes], Unclear] = {}
        self._gangs_flying: dict[JobId, tuple[Nodes, int]] = {}  # those that tell of no node; since when
        self._gangs_queued: dict[JobId, tuple[str, Nodes]] = {}
        self._drained: set[NodeName] = set()
        self._down: set[NodeName] = set()
        self._convicted: dict[NodeName, set[JobId]] = {}  # nodes drained by us, and for which jobs
        self._closed: dict[NodeName, set[str]] = {}
        self._trials: dict[str, NodeName] = {}  # where a user may have the last place though he is in doubt elsewhere
        self._tried: set[str] = set()  # users who had that, and failed; until one of their starts goes well

    def kept(self) -> dict[str, Any]:
        """What `restore` takes."""
        return {name: value for name, value in vars(self).items() if name not in GIVEN}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Know what another knew."""
        vars(self).update(kept)

    # --- what happens ---------------------------------------------------------------------------------------------

    def note_planned(self, at_ms: int, job: JobId, user: str, nodes: Nodes) -> None:
        """A job is to start there."""
        self._land(job)
        doubtful = [node for node in nodes if node not in self._proven]
        if len(nodes) > 1 and len(doubtful) != 1:
            if not self._paces:
                return
            self._gangs_queued[job] = (user, nodes)
            self._let_gangs_go(at_ms)
            return
        (node,) = doubtful or nodes
        self._queued.setdefault(node, {})[job] = user
        self._node_of[job] = node
        self._let_go(node, at_ms)

    def note_begun(self, at_ms: int, job: JobId, nodes: Nodes, *, has_started: bool) -> None:
        """A start went well; or, as far as only the nodes are concerned, its setup step runs."""
        flight = self._flying.get(self._node_of.get(job, NodeName("")), {}).get(job)
        if flight is not None and has_started:
            self._tried.discard(flight[0])
        self._land(job)
        for other, jobs in self._failed.items() if has_started else ():
            if job in jobs and other not in nodes:
                user, _, had_last, failed_ms = jobs[job]
                jobs[job] = (user, True, had_last, failed_ms)
        for key, (user, doubtful, _, failed_ms) in list(self._unclear.items()) if has_started else ():
            if key[0] == job:
                self._unclear[key] = (user, doubtful, True, failed_ms)
        for node in nodes:
            self._prove(node, job)
            self._let_go(node, at_ms)
        self._let_gangs_go(at_ms)
        for node in [node for node in self._queued if node in self._failed]:  # some user may be in doubt no more
            self._let_go(node, at_ms)

    def _prove(self, node: NodeName, job: JobId) -> None:
        self._proven.add(node)
        if node in self._convicted:
            self._convicted[node] = set()
        for other in self._failed.pop(node, {}):
            if other != job:
                self.blame(other)
        self._end_trials(node)
        for key, (user, doubtful, is_innocent, failed_ms) in list(self._unclear.items()):
            left = tuple(other for other in doubtful if other != node)
            if len(left) > 1:
                self._unclear[key] = (user, left, is_innocent, failed_ms)
            else:
                del self._unclear[key]
                self._failed.setdefault(left[0], {}).setdefault(key[0], (user, is_innocent, False, failed_ms))

    def blame(self, job: JobId) -> None:
        """It is the job, not the nodes that failed it."""
        for key in [key for key, (*_, is_innocent, _) in self._unclear.items() if key[0] == job and not is_innocent]:
            del self._unclear[key]
        for node, jobs in self._convicted.items():
            failure = self._failed.get(node, {}).get(job)
            if failure is None or not failure[1]:
                jobs.discard(job)

    def note_failed(self, at_ms: int, job: JobId, user: str, nodes: Nodes) -> None:
        """A start failed, and the job is not known to be to blame."""
        had_last = self._land(job)
        doubtful = tuple(node for node in nodes if node not in self._proven) or nodes
        self._proven.difference_update(doubtful)
        if len(doubtful) > 1:
            self._unclear[job, nodes] = (user, doubtful, False, at_ms)
            if len(self._unclear) > UNCLEAR_MAX:
                del self._unclear[next(iter(self._unclear))]
        else:
            self._count(at_ms, job, user, doubtful[0], had_last=had_last)
        self._let_gangs_go(at_ms)

    def _count(self, at_ms: int, job: JobId, user: str, node: NodeName, *, had_last: bool) -> None:
        here = self._failed.setdefault(node, {})
        _, is_innocent, had_last_before, _ = here.get(job, ("", False, False, 0))
        here[job] = (user, is_innocent, had_last or had_last_before, at_ms)
        if self._trials.get(user) == node:
            del self._trials[user]
            self._tried.add(user)
        self._let_go(node, at_ms)

    def note_left(self, at_ms: int, job: JobId) -> None:
        """A start is over without having said anything of its node."""
        node = self._node_of.get(job)
        self._land(job)
        if node is not None:
            self._let_go(node, at_ms)
        self._let_gangs_go(at_ms)

    def note_up(self, at_ms: int, node: NodeName) -> None:
        """The node is said to be well: what failed there says nothing any more."""
        self._down.discard(node)
        self._drained.discard(node)
        self._convicted.pop(node, None)
        self._failed.pop(node, None)
        self._proven.discard(node)
        for key in [key for key, (_, doubtful, *_) in self._unclear.items() if node in doubtful]:
            del self._unclear[key]
        self._end_trials(node)
        self._let_go(node, at_ms)
        self._let_gangs_go(at_ms)

    def note_down(self, node: NodeName) -> None:
        """The node may not be used."""
        self._down.add(node)

    def note_drained(self, node: NodeName, reason: str) -> None:
        """Likewise; by us, or by an operator."""
        self._drained.add(node)
        self._convicted.pop(node, None)
        jobs = {*self._failed.get(node, ()), *self._flying.get(node, ())}
        if jobs and reason.startswith(FAILED_STARTS_OF):
            self._convicted[node] = jobs

    def note_closed(self, node: NodeName, user: str) -> None:
        """The node is kept from a user."""
        self._closed.setdefault(node, set()).add(user)

    def note_opened(self, at_ms: int, node: NodeName, user: str) -> None:
        """It no longer is: for one more job, where he is in doubt elsewhere."""
        users = self._closed.get(node, set())
        users.discard(user)
        if not users:
            self._closed.pop(node, None)
        if node in self._failed and not self._is_clean(user, node, self._doubts(user)):
            self._trials[user] = node
        self._let_go(node, at_ms)

    def _end_trials(self, node: NodeName) -> None:
        for user in [user for user, where in self._trials.items() if where == node]:
            del self._trials[user]

    def _land(self, job: JobId) -> bool:
        """It waits no more, nor is it under way; whether it had the last place."""
        self._gangs_flying.pop(job, None)
        self._gangs_queued.pop(job, None)
        node = self._node_of.pop(job, None)
        if node is None:
            return False
        flight = self._flying.get(node, {}).pop(job, None)
        self._queued.get(node, {}).pop(job, None)
        for table in (self._queued, self._flying):
            if node in table and not table[node]:
                del table[node]
        return flight is not None and flight[1]

    # --- who may start --------------------------------------------------------------------------------------------

    def is_queued(self, job: JobId) -> bool:
        """Whether the start of this job must wait."""
        node = self._node_of.get(job)
        is_waiting = job in self._gangs_queued or (node is not None and job in self._queued.get(node, ()))
        return self._paces and is_waiting

    def is_closed(self, node: NodeName, user: str) -> bool:
        """Whether the node is kept from a user."""
        return user in self._closed.get(node, ())

    def _let_go(self, node: NodeName, at_ms: int) -> None:
        """Starts for which there is room, in order; those behind one for which there is none, too."""
        queue = self._queued.get(node)
        if queue is None or node in self._drained or node in self._down:
            return
        for job, user in list(queue.items()):
            has_room, is_last = self._look_for_room(node, job, user)
            if has_room:
                del queue[job]
                self._flying.setdefault(node, {})[job] = (user, is_last, at_ms)
        if not queue:
            del self._queued[node]

    def _let_gangs_go(self, at_ms: int) -> None:
        """Likewise, of gangs that tell of no node; and those that have come to tell of one wait like others."""
        if not self._gangs_queued:
            return
        flying = Counter(
            node for nodes, since_ms in self._gangs_flying.values() if since_ms + LATE_MS > at_ms for node in nodes
        )
        failed = Counter(node for _, nodes, *_ in self._unclear.values() for node in nodes)
        for job, (user, nodes) in list(self._gangs_queued.items()):
            doubtful = [node for node in nodes if node not in self._proven]
            if len(doubtful) == 1:
                self.note_planned(at_ms, job, user, nodes)
            elif all(not flying[node] or flying[node] + failed[node] < self._most - 1 for node in doubtful):
                if not self._drained.isdisjoint(nodes) or not self._down.isdisjoint(nodes):
                    continue
                del self._gangs_queued[job]
                self._gangs_flying[job] = (nodes, at_ms)
                flying.update(nodes)

    def _look_for_room(self, node: NodeName, job: JobId, user: str) -> tuple[bool, bool]:
        """Whether the start may be let go, and whether it then has the last place."""
        failed, flying = self._failed.get(node, {}), self._flying.get(node, {})
        if node in self._proven or job in failed:  # one that failed there takes no further place
            return True, False
        taken = len({*failed, *flying})
        if taken < self._most - 1:
            return True, False
        if taken >= self._most and (flying or self._is_to_blame(node, self._taken(node, -1))):
            return False, False  # the last one is under way, or has failed
        # Else more than there are places were under way together, on a node that was proven, and failed.
        is_free = self._is_clean(user, node, self._doubts(user, with_flights=True))
        return is_free, is_free

    def _doubts(self, user: str, *, with_flights: bool = False, late_ms: int = -1) -> Iterator[NodeName]:
        """Nodes on which a user is in doubt: by failures, and by starts that began by `late_ms`, or by all of them."""
        for node, flights in self._flying.items():
            if node not in self._proven:
                for other, _, since_ms in flights.values():
                    if other == user and (with_flights or since_ms <= late_ms):
                        yield node
        for node, failures in self._failed.items():
            for other, is_innocent, _, _ in failures.values():
                if other == user and not is_innocent:
                    yield node

    def _is_clean(self, user: str, node: NodeName, doubts: Iterator[NodeName]) -> bool:
        return self._trials.get(user) == node or all(where == node for where in doubts)

    # --- what follows ---------------------------------------------------------------------------------------------

    def answers(self, now_ms: int) -> Iterator[Event]:
        """What must follow by now."""
        self._looked_ms = max(self._looked_ms, now_ms)
        late_ms = now_ms - LATE_MS if self._paces else -1
        nodes = [node for node in {**self._failed, **self._flying} if node not in self._proven | self._drained]
        drained = {}
        for node in nodes:
            jobs = self._taken(node, late_ms)
            if len(jobs) >= self._most and self._is_to_blame(node, jobs):
                drained[node] = f"{FAILED_STARTS_OF} {len(jobs)} jobs in a row failed on it: {_listed(jobs)}"
                yield NodeDrained(now_ms, node, drained[node])
        for node, convicted in self._convicted.items():
            if not convicted and node not in self._down:
                yield NodeUp(now_ms, node)
        yield from self._closings(now_ms, [node for node in nodes if node not in drained], late_ms)

    def _taken(self, node: NodeName, late_ms: int) -> dict[JobId, str]:
        """Jobs that failed there, or are late, with their users."""
        late = {job: user for job, (user, _, since_ms) in self._flying.get(node, {}).items() if since_ms <= late_ms}
        return {job: failure[0] for job, failure in self._failed.get(node, {}).items()} | late

    def _is_to_blame(self, node: NodeName, jobs: Mapping[JobId, str]) -> bool:
        """Whether one of the jobs tells more of the node than of its user."""
        failed, flying = self._failed.get(node, {}), self._flying.get(node, {})
        if any(is_innocent or had_last for _, is_innocent, had_last, _ in failed.values()):
            return True
        users = dict.fromkeys(jobs.values())
        is_late = any(job in jobs and has_last for job, (_, has_last, _) in flying.items())
        return is_late or any(self._is_clean(user, node, self._doubts(user)) for user in users)

    def _closings(self, now_ms: int, nodes: Sequence[NodeName], late_ms: int) -> Iterator[Event]:
        """Who must be kept from which of these nodes, and from which others no more."""
        trials = self._due_trials(now_ms)
        users = dict.fromkeys(user for node in nodes for user in self._taken(node, late_ms).values())
        users |= dict.fromkeys(user for failures in self._failed.values() for user, *_ in failures.values())
        wanted = {
            (node, user): f"{FAILED_STARTS_OF} {_listed(taken)} failed on it, and none has gone well since; "
            f"starts of {user} failed elsewhere too, so that another's must show whether it is well"
            for node in nodes
            if len(taken := self._taken(node, late_ms)) >= self._most - 1
            for user in users
            if trials.get(user) != node and not self._is_clean(user, node, self._doubts(user, late_ms=late_ms))
        }
        for node, closed in self._closed.items():
            yield from (NodeOpened(now_ms, node, user) for user in sorted(closed) if (node, user) not in wanted)
        for (node, user), reason in wanted.items():
            if not self.is_closed(node, user):
                yield NodeClosed(now_ms, node, user, reason)

    def _due_trials(self, now_ms: int) -> dict[str, NodeName]:
        """Where a user gets one by now."""
        return {user: node for user, (due_ms, node) in self._next_trials().items() if due_ms <= now_ms}

    def _next_trials(self) -> dict[str, tuple[int, NodeName]]:
        """By user, when he may next have the last place somewhere though he is in doubt, and where: on the node that
        failed longest ago of those that are kept from him."""
        found: dict[str, tuple[int, NodeName]] = {}
        for user in sorted({user for users in self._closed.values() for user in users}):
            if user in self._trials or any(self._is_drained_for(user, where) for where in self._doubts(user)):
                continue
            own_ms = [
                at_ms for failures in self._failed.values() for other, *_, at_ms in failures.values() if other == user
            ]
            last_ms = {
                node: max(at_ms for *_, at_ms in self._failed[node].values())
                for node, users in self._closed.items()
                if user in users and node in self._failed
            }
            if own_ms and last_ms:
                found[user] = (max(own_ms) + TRIAL_MS, min(last_ms, key=lambda node: (last_ms[node], node)))
        return found

    def _is_drained_for(self, user: str, node: NodeName) -> bool:
        """Whether a node was drained by us for the jobs of a user alone, or of one who failed elsewhere since."""
        users = {other for other, *_ in self._failed.get(node, {}).values()}
        return node in self._convicted and (len(users) <= 1 or user in self._tried)

    def next_ms(self) -> int:
        """When `answers` may have something to say though nothing happens; FOREVER_MS = never."""
        times = [due_ms for due_ms, _ in self._next_trials().values()] if self._closed else []
        for node, flights in self._flying.items() if self._paces else ():
            if node not in self._proven and node not in self._drained:
                times += [since_ms + LATE_MS for *_, since_ms in flights.values()]
        return min((at_ms for at_ms in times if at_ms > self._looked_ms), default=FOREVER_MS)


def _listed(jobs: "Sequence[JobId] | Mapping[JobId, str]") -> str:
    return ", ".join(map(str, jobs))
