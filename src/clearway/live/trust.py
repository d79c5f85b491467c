"""Which nodes may be given starts: one that fails every start takes `node_jobs_max` jobs at most, then it is drained.

Pure, and made of the journal's records alone, so that a control plane that was killed goes on where it was.

A node is *proven* by a start that went well, or of which the setup step runs, until one fails on it; on others, what
failed there and what is under way are counted, and no more jobs than a node may fail are let go. The rest waits, its
jobs holding their devices.

Who is to blame cannot be known before something went well, so the last of these places is for a user who is in doubt
nowhere else: one user's broken jobs then have one node drained at most. A user is in doubt where a start of his failed,
unless that job has started elsewhere since. Nodes on which only the last place is left are closed to users who may not
have it (`NodeClosed`): their jobs are planned elsewhere, and whoever comes next decides. Where nobody does, one job of
such a user may, after `TRIAL_MS`, and longer after each that fails; not if another node was drained for him alone.
Where others failed there, too, it may be the node, and he could be locked out of good nodes for ever by one whose jobs
fail on each of them: so he may once. One whose jobs are broken has two nodes drained at most, and one if nobody else's
are.

A start that has not been answered for `LATE_MS` counts as failed. A node that was drained is used again when all jobs
for which it was are to blame: another node on which each failed has started a job since.

A gang takes a place on each of its nodes that are not proven, and tells of one when all its others are: at once, or as
soon as they are. Until then its failure counts on all of them. What shows more goes first: a gang has the last place on
several nodes only where its user is in doubt nowhere, and a trial is for one node; but one that nothing of the user
used, as his gangs need more nodes, is for all that are kept from him, so that a sole user goes on when a trouble has
passed. Mostly one of the gangs that failed there is tried again, which takes no place. When one that has the last place
on several nodes fails, too, at least one of the nodes is bad, and all of them are drained. Where starts do not wait,
such failures count for no node until they tell of one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from clearway.model.events import Event, NodeClosed, NodeDrained, NodeOpened, NodeUp
from clearway.model.ids import JobId, NodeName
from clearway.model.units import FOREVER_MS, MINUTE_MS

FAILED_STARTS_OF: Final = "the starts of"
"""First words of the reason with which a node is drained."""
OWN_DRAIN: Final = re.compile(rf"{FAILED_STARTS_OF} \d+ jobs in a row failed on it: \d")
"""How such a reason goes on: an operator's own may begin alike."""

TRIAL_MS: Final = 5 * MINUTE_MS
"""After so long without a failure, one more job may show whether the node or its user is to blame: most troubles of a
machine that pass by themselves have passed then. Twice as long after each trial that failed, up to `TRIAL_MAX_MS`."""
TRIAL_MAX_MS: Final = 60 * MINUTE_MS
LATE_MS: Final = 10 * MINUTE_MS
"""A start takes milliseconds, and one that fetches an image minutes. Setup steps do not count."""
FAILURES_MAX: Final = 100
"""Failed starts that are remembered of a node: far more than are needed to tell of it."""

GIVEN: Final = ("_most", "_paces", "_looked_ms")
"""What a trust is told when it is made, or only remembers for itself."""

Nodes = tuple[NodeName, ...]
Failure = tuple[str, Nodes, bool, bool, int]
"""A user; which nodes may have failed it; whether it has started elsewhere since; whether it had the last place; at."""
Flight = tuple[str, bool, int]
"""A user; whether it has the last place; since when a start is under way."""
Trial = tuple[Nodes, int]
"""Nodes on which a user has one; since when, or since when the next may be: no start of his uses it before."""


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
        self._nodes_of: dict[JobId, Nodes] = {}  # of those that fly or are queued: where they count
        self._drained: set[NodeName] = set()
        self._down: set[NodeName] = set()
        self._convicted: dict[NodeName, set[JobId]] = {}  # nodes drained by us, and for which jobs
        self._closed: dict[NodeName, set[str]] = {}
        self._trials: dict[str, Trial] = {}  # where a user may have the last place though he is in doubt elsewhere
        self._tried: dict[str, int] = {}  # how often users had that, and failed; until one of their starts goes well

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
        if not self._paces:
            doubtful = tuple(node for node in nodes if node not in self._proven)
            if len(nodes) > 1 and len(doubtful) != 1:
                return
            nodes = doubtful or nodes
        self._nodes_of[job] = nodes
        for node in nodes:
            self._queued.setdefault(node, {})[job] = user
        self._try(at_ms, job, user)

    def note_begun(self, at_ms: int, job: JobId, nodes: Nodes, *, has_started: bool) -> None:
        """A start went well; or, as far as only the nodes are concerned, its setup step runs."""
        where = self._nodes_of.get(job, nodes)
        flights = [self._flying[node][job] for node in where if job in self._flying.get(node, {})]
        if flights and has_started:
            self._tried.pop(flights[0][0], None)
        self._land(job)
        for node, failures in self._failed.items() if has_started else ():
            if job in failures and node not in nodes:
                user, doubtful, _, had_last, failed_ms = failures[job]
                failures[job] = (user, doubtful, True, had_last, failed_ms)
        for node in nodes:
            self._prove(node, job)
        self._let_go(at_ms, (*where, *nodes))

    def _prove(self, node: NodeName, job: JobId) -> None:
        if node in self._convicted:
            self._convicted[node] = set()
        if node in self._proven:
            return
        self._proven.add(node)
        self._end_trials(node)
        for other, (_, doubtful, *_) in self._failed.pop(node, {}).items():
            if other != job and len(doubtful) == 1:
                self.blame(other)
        for failures in self._failed.values():
            for other, (user, doubtful, is_innocent, had_last, failed_ms) in failures.items():
                if node in doubtful:
                    left = tuple(name for name in doubtful if name != node)
                    failures[other] = (user, left, is_innocent, had_last, failed_ms)

    def blame(self, job: JobId) -> None:
        """It is the job, not the nodes that failed it."""
        for node, jobs in self._convicted.items():
            failure = self._failed.get(node, {}).get(job)
            if failure is None or not failure[2]:
                jobs.discard(job)

    def note_failed(self, at_ms: int, job: JobId, user: str, nodes: Nodes) -> None:
        """A start failed, and the job is not known to be to blame."""
        where = self._nodes_of.get(job, ())
        had_last = self._land(job)
        doubtful = tuple(node for node in nodes if node not in self._proven) or nodes
        self._proven.difference_update(doubtful)
        for node in doubtful:
            failures = self._failed.setdefault(node, {})
            _, told, is_innocent, had_last_before, _ = failures.pop(job, ("", doubtful, False, False, 0))
            told = min(doubtful, told, key=len)
            failures[job] = (user, told, is_innocent, node in had_last or had_last_before, at_ms)
            if len(failures) > FAILURES_MAX:
                del failures[next(iter(failures))]
        if any(self._is_tried(user, node) and job in self._counted(node) for node in doubtful):
            del self._trials[user]
            self._tried[user] = self._tried.get(user, 0) + 1
        self._let_go(at_ms, (*where, *doubtful))

    def note_left(self, at_ms: int, job: JobId) -> None:
        """A start is over without having said anything of its nodes."""
        where = self._nodes_of.get(job, ())
        self._land(job)
        self._let_go(at_ms, where)

    def note_up(self, at_ms: int, node: NodeName) -> None:
        """The node is said to be well: what failed there says nothing any more."""
        self._down.discard(node)
        self._drained.discard(node)
        self._convicted.pop(node, None)
        self._failed.pop(node, None)
        self._proven.discard(node)
        self._end_trials(node)
        self._let_go(at_ms, (node,))

    def note_down(self, node: NodeName) -> None:
        """The node may not be used."""
        self._down.add(node)
        self._end_trials(node)

    def note_drained(self, node: NodeName, reason: str) -> None:
        """Likewise; by us, or by an operator."""
        self._drained.add(node)
        self._end_trials(node)
        self._convicted.pop(node, None)
        jobs = {*self._counted(node), *self._flying.get(node, ())}
        if jobs and OWN_DRAIN.match(reason):
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
        late_ms = self._late_ms(at_ms)
        is_shut = len(self._taken(node, late_ms)) >= self._most - 1 and self._is_usable(node)
        if is_shut and not self._is_clean(user, node, self._doubts(user, late_ms=late_ms)):
            self._trials[user] = (tuple(dict.fromkeys((*self._trials.get(user, ((), 0))[0], node))), at_ms)
        self._let_go(at_ms, (node,))

    def _end_trials(self, node: NodeName) -> None:
        for user, (nodes, since_ms) in list(self._trials.items()):
            left = tuple(other for other in nodes if other != node)
            if left:
                self._trials[user] = (left, since_ms)
            else:
                del self._trials[user]

    def _is_tried(self, user: str, node: NodeName) -> bool:
        """Whether one more job of a user may show something there."""
        return user in self._trials and node in self._trials[user][0]

    def _land(self, job: JobId) -> Nodes:
        """It waits no more, nor is it under way; where it had the last place."""
        had_last = []
        for node in self._nodes_of.pop(job, ()):
            flight = self._flying.get(node, {}).pop(job, None)
            self._queued.get(node, {}).pop(job, None)
            for table in (self._queued, self._flying):
                if node in table and not table[node]:
                    del table[node]
            if flight is not None and flight[1]:
                had_last.append(node)
        return tuple(had_last)

    # --- who may start --------------------------------------------------------------------------------------------

    def is_queued(self, job: JobId) -> bool:
        """Whether the start of this job must wait."""
        nodes = self._nodes_of.get(job, ())
        return self._paces and bool(nodes) and job in self._queued.get(nodes[0], ())

    def is_closed(self, node: NodeName, user: str) -> bool:
        """Whether the node is kept from a user."""
        return user in self._closed.get(node, ())

    def _let_go(self, at_ms: int, nodes: Iterable[NodeName]) -> None:
        """Starts for which there is room, in order; those behind one for which there is none, too. nodes: of which
        something is new; on those with failures it may be that some user is in doubt no more."""
        for node in dict.fromkeys((*nodes, *self._failed)):
            for job, user in list(self._queued.get(node, {}).items()):
                self._try(at_ms, job, user)

    def _try(self, at_ms: int, job: JobId, user: str) -> None:
        nodes = self._nodes_of[job]
        if not all(map(self._is_usable, nodes)):
            return
        last = self._find_room(job, user, nodes)
        if last is None:
            return
        used = tuple(node for node in nodes if self._is_tried(user, node))
        if used:
            self._trials[user] = (used, at_ms + LATE_MS)  # it is for this one alone
        for node in nodes:
            del self._queued[node][job]
            if not self._queued[node]:
                del self._queued[node]
            self._flying.setdefault(node, {})[job] = (user, node in last, at_ms)

    def _is_usable(self, node: NodeName) -> bool:
        return node not in self._drained and node not in self._down

    def _find_room(self, job: JobId, user: str, nodes: Nodes) -> Nodes | None:
        """Where the start has the last place if it is let go; None = it may not be."""
        last = []
        for node in nodes:
            failed, flying = self._counted(node), self._flying.get(node, {})
            if node in self._proven or job in failed:  # one that failed there takes no further place
                continue
            taken = len({*failed, *flying})
            if taken < self._most - 1:
                continue
            if taken >= self._most and (flying or self._is_to_blame(node, self._taken(node, -1))):
                return None  # the last one is under way, or has failed
            # Else more than there are places were under way together, on a node that was proven, and failed.
            if not self._is_clean(user, node, self._doubts(user, with_flights=True)):
                return None
            last.append(node)
        return tuple(last)

    def _late_ms(self, now_ms: int) -> int:
        """Starts that began by then, and are still under way, count as failed."""
        return now_ms - LATE_MS if self._paces else -1

    def _counted(self, node: NodeName) -> Mapping[JobId, Failure]:
        """Failures that count for the node."""
        failures = self._failed.get(node, {})
        if self._paces:
            return failures
        return {job: failure for job, failure in failures.items() if len(failure[1]) == 1}

    def _failures(self, late_ms: int) -> Iterator[tuple[NodeName, str, int]]:
        """Nodes, users and times of all that counts as failed, on nodes that are not used, too."""
        for node in self._failed:
            for user, *_, at_ms in self._counted(node).values():
                yield node, user, at_ms
        for node, flights in self._flying.items():
            if node not in self._proven:
                yield from (
                    (node, user, since_ms + LATE_MS) for user, _, since_ms in flights.values() if since_ms <= late_ms
                )

    def _doubts(self, user: str, *, with_flights: bool = False, late_ms: int = -1) -> Iterator[NodeName]:
        """Nodes on which a user is in doubt: by failures, and by starts that began by `late_ms`, or by all of them."""
        for node, flights in self._flying.items():
            if node not in self._proven:
                for other, _, since_ms in flights.values():
                    if other == user and (with_flights or since_ms <= late_ms):
                        yield node
        for node in self._failed:
            for other, _, is_innocent, *_ in self._counted(node).values():
                if other == user and not is_innocent:
                    yield node

    def _is_clean(self, user: str, node: NodeName, doubts: Iterator[NodeName]) -> bool:
        return self._is_tried(user, node) or all(where == node for where in doubts)

    # --- what follows ---------------------------------------------------------------------------------------------

    def answers(self, now_ms: int) -> Iterator[Event]:
        """What must follow by now."""
        self._looked_ms = max(self._looked_ms, now_ms)
        late_ms = self._late_ms(now_ms)
        nodes = [node for node in {**self._failed, **self._flying} if node not in self._proven | self._drained]
        drained = {}
        for node in nodes:
            jobs = self._taken(node, late_ms)
            if len(jobs) >= self._most and self._is_to_blame(node, jobs):
                drained[node] = f"{FAILED_STARTS_OF} {len(jobs)} jobs in a row failed on it: {_listed(jobs)}"
                yield NodeDrained(now_ms, node, drained[node] + self._tell_gangs(node, jobs))
        for node, convicted in self._convicted.items():
            if not convicted and node not in self._down:
                yield NodeUp(now_ms, node)
        yield from self._closings(now_ms, [node for node in nodes if node not in drained], late_ms)

    def _tell_gangs(self, node: NodeName, jobs: Mapping[JobId, str]) -> str:
        """Which of the jobs may have been failed by other nodes."""
        failures = self._counted(node)
        doubtful = {
            job: failures[job][1] if job in failures else [n for n in self._nodes_of[job] if n not in self._proven]
            for job in jobs
        }
        gangs = [job for job, nodes in doubtful.items() if len(nodes) > 1]
        nodes = sorted({name for job in gangs for name in doubtful[job]})
        return f"; gangs ({_listed(gangs)}) failed on {_listed(nodes)}: at least one of these is bad" if gangs else ""

    def _taken(self, node: NodeName, late_ms: int) -> dict[JobId, str]:
        """Jobs that failed there, or are late, with their users."""
        late = {job: user for job, (user, _, since_ms) in self._flying.get(node, {}).items() if since_ms <= late_ms}
        return {job: failure[0] for job, failure in self._counted(node).items()} | late

    def _is_to_blame(self, node: NodeName, jobs: Mapping[JobId, str]) -> bool:
        """Whether one of the jobs tells more of the node than of its user."""
        failed, flying = self._counted(node), self._flying.get(node, {})
        if any(is_innocent or had_last for _, _, is_innocent, had_last, _ in failed.values()):
            return True
        users = dict.fromkeys(jobs.values())
        is_late = any(job in jobs and has_last for job, (_, has_last, _) in flying.items())
        return is_late or any(all(where == node for where in self._doubts(user)) for user in users)

    def _closings(self, now_ms: int, nodes: Sequence[NodeName], late_ms: int) -> Iterator[Event]:
        """Who must be kept from which of these nodes, and from which others no more."""
        trials = self._due_trials(now_ms)
        users = dict.fromkeys(user for node in nodes for user in self._taken(node, late_ms).values())
        users |= dict.fromkeys(user for _, user, _ in self._failures(late_ms))
        wanted = {
            (node, user): f"{FAILED_STARTS_OF} {_listed(taken)} failed on it, and none has gone well since; "
            f"starts of {user} failed elsewhere too, so that another's must show whether it is well"
            for node in nodes
            if len(taken := self._taken(node, late_ms)) >= self._most - 1
            for user in users
            if node not in trials.get(user, ()) and not self._is_clean(user, node, self._doubts(user, late_ms=late_ms))
        }
        for node, closed in self._closed.items():
            yield from (NodeOpened(now_ms, node, user) for user in sorted(closed) if (node, user) not in wanted)
        for (node, user), reason in wanted.items():
            if not self.is_closed(node, user):
                yield NodeClosed(now_ms, node, user, reason)

    def _due_trials(self, now_ms: int) -> dict[str, Nodes]:
        """Where a user gets one by now."""
        return {user: nodes for user, (due_ms, nodes) in self._next_trials().items() if due_ms <= now_ms}

    def _next_trials(self) -> dict[str, tuple[int, Nodes]]:
        """By user, when he may next have the last place somewhere though he is in doubt, and where: on the node that
        failed longest ago of those that are kept from him. If nothing of his used that, as no job of his has room on
        one node, on all of them: still for one job, which may be a gang that failed there, and takes no place."""
        found: dict[str, tuple[int, Nodes]] = {}
        failures = list(self._failures(self._late_ms(self._looked_ms))) if self._closed else []
        for user in sorted({user for users in self._closed.values() for user in users}):
            if any(self._is_drained_for(user, where) for where in self._doubts(user)):
                continue
            own_ms = [at_ms for _, other, at_ms in failures if other == user]
            last_ms: dict[NodeName, int] = {}
            for node, _, at_ms in failures:
                if self.is_closed(node, user) and self._is_usable(node):
                    last_ms[node] = max(at_ms, last_ms.get(node, 0))
            if user in self._trials and last_ms:
                found[user] = (self._trials[user][1] + TRIAL_MS, tuple(last_ms))
            elif own_ms and last_ms:
                wait_ms = min(TRIAL_MS << min(self._tried.get(user, 0), 10), TRIAL_MAX_MS)
                found[user] = (max(own_ms) + wait_ms, (min(last_ms, key=lambda node: (last_ms[node], node)),))
        return found

    def _is_drained_for(self, user: str, node: NodeName) -> bool:
        """Whether a node was drained by us for the jobs of a user alone, or of one who failed elsewhere since."""
        users = {other for other, *_ in self._counted(node).values()}
        return node in self._convicted and (len(users) <= 1 or user in self._tried)

    def next_ms(self) -> int:
        """When `answers` may have something to say though nothing happens; FOREVER_MS = never."""
        times = [due_ms for due_ms, _ in self._next_trials().values()] if self._closed else []
        for node, flights in self._flying.items() if self._paces else ():
            if node not in self._proven:
                times += [since_ms + LATE_MS for *_, since_ms in flights.values()]
        return min((at_ms for at_ms in times if at_ms > self._looked_ms), default=FOREVER_MS)


def _listed(names: Iterable[JobId | NodeName]) -> str:
    return ", ".join(map(str, names))
