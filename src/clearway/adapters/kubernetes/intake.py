"""Between the book and a control plane: whole groups of pods become jobs there, and its reasons go to the pods.

Everything here runs in the backend's thread, except the answers of the control plane, which come in its own. Namespaces
are tenants: one that is new is made known before the first job of it is submitted. The key of a submission names the
group and its first pod, so that a group is accepted once, whatever is repeated after a crash.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from clearway.adapters.kubernetes.backend import KubernetesBackend
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.guard import BROKEN
from clearway.adapters.kubernetes.placement import summarize_mismatches
from clearway.adapters.kubernetes.runs import Arrival
from clearway.model.cluster import TenantSpec
from clearway.model.errors import ClearwayError, InputError
from clearway.model.ids import JobId, TenantName
from clearway.model.plan import Explanation, ReasonCode
from clearway.ports.control import Control, Submission

log = logging.getLogger(__name__)

ACTOR: Final = "kubernetes"
"""In whose name jobs are submitted: who may create pods is the API server's business, and was decided there."""

EXPLAIN_S: Final = 2.0
"""Pause between two rounds of reasons."""

EXPLAINED_MAX: Final = 50
"""Jobs that are explained in one round, those that were not for the longest time first."""

PODS_TOLD_MAX: Final = 100
"""Pods of one gang that are told why it waits; the rest wait for the same reason."""

AGAIN_NS: Final = 10 * 10**9
"""A pod is told again no sooner: reasons name counts that change with each binding, and each word is two writes."""

NODES_AT_ONCE: Final = 250
"""Nodes that are judged without a pause: some milliseconds, in which neither bindings nor decisions go on."""

RETRY_S: Final = 1.0
"""Pause before what the control plane could not take is offered again."""

BEHIND: Final = (ReasonCode.PRIORITY, ReasonCode.RESERVED)
"""Reasons of a job that others come before."""


class Intake:
    """Serves one backend and one control plane from `begin` on. Waiting jobs of before are restored first."""

    def __init__(self, backend: KubernetesBackend, control: Control, tenants: Iterable[str]) -> None:
        self._backend = backend
        self._control = control
        self._tenants = set(tenants)
        self._early: dict[TenantName, list[Arrival]] = {}
        self._explained: dict[JobId, None] = {}
        self._judged: dict[PodFacts, str] = {}

    def begin(self) -> None:
        """Take what comes from now on; to be called once the control plane is ready."""
        self._backend.serve(self._take, self._explain_forever)

    # --- arrivals -------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Submit the groups that became whole, those of a new tenant once it is known."""
        with self._backend.lock:
            arrivals = self._backend.book.take_arrivals()
        for arrival in arrivals:
            tenant = arrival.job.tenant
            if tenant in self._tenants:
                self._submit(arrival)
            elif tenant in self._early:
                self._early[tenant].append(arrival)
            else:
                self._early[tenant] = [arrival]
                self._make_tenant(tenant)

    def _submit(self, arrival: Arrival) -> None:
        submission = Submission(jobs=(arrival.job,), runs=(arrival.run,), actor=ACTOR, key=arrival.key, is_patient=True)
        self._control.submit(submission).add_done_callback(lambda done: self._on_answer(arrival, done))

    def _make_tenant(self, name: TenantName) -> None:
        future = self._control.set_site((), (TenantSpec(name=name),), actor=ACTOR)
        future.add_done_callback(lambda done: self._backend.call_later(0.0, lambda: self._on_tenant(name, done)))

    def _on_tenant(self, name: TenantName, done: "Future[None]") -> None:
        """The tenant is known, or could not be made: its groups go on, or are offered again."""
        early = self._early.pop(name)
        if done.exception() is None:
            self._tenants.add(name)
            for arrival in early:
                self._submit(arrival)
        else:
            for arrival in early:
                self._backend.call_later(RETRY_S, lambda arrival=arrival: self._offer_again(arrival))  # type: ignore[misc]

    def _on_answer(self, arrival: Arrival, done: "Future[tuple[JobId, ...]]") -> None:
        """The control plane accepted a job, refused it, or takes nothing now."""
        error = done.exception()
        with self._backend.lock:
            if error is None:
                (job,) = done.result()
                self._backend.book.accept(self._backend.now_ms, arrival, job)
            elif isinstance(error, InputError):
                self._backend.book.reject(arrival, str(error))
        if error is not None and not isinstance(error, InputError):
            self._backend.call_later(RETRY_S, lambda: self._offer_again(arrival))
        self._backend.poke()

    def _offer_again(self, arrival: Arrival) -> None:
        with self._backend.lock:
            self._backend.book.retry(arrival)
        self._take()

    # --- reasons --------------------------------------------------------------------------------------------------

    async def _explain_forever(self) -> None:
        while True:
            await asyncio.sleep(EXPLAIN_S)
            try:
                await self._explain_round()
            except ClearwayError as error:
                log.info("reasons were not written: %s", error)

    async def _explain_round(self) -> None:
        self._judged.clear()
        for job in self._choose():
            try:
                explanation = await asyncio.wrap_future(self._control.explain(job))
            except InputError:
                continue
            with self._backend.lock:
                bundle = self._backend.book.jobs.get(job)
                pods = [] if bundle is None else self._backend.book.waiting(bundle)[:PODS_TOLD_MAX]
            if pods and explanation.reasons:
                try:
                    about_nodes = await self._judge_nodes(pods[0])
                except Exception:  # about these pods alone
                    self._backend.book.guard.note(("judged", pods[0].uid), pods[0], f"pod {pods[0].name}")
                    about_nodes = BROKEN
                with self._backend.lock:
                    rank = self._backend.book.describe_rank(pods)
                message = compose_message(about_nodes, explanation, rank)
                await self._tell(pods, message)

    async def _tell(self, pods: Sequence[PodFacts], message: str) -> None:
        """What keeps one job's pods from being told is no reason to say nothing to others."""
        tell = self._backend.reasons.tell
        calls = (tell(pod, message, is_first=pod is pods[0], again_ns=AGAIN_NS) for pod in pods)
        failures = [one for one in await asyncio.gather(*calls, return_exceptions=True) if one is not None]
        for error in failures[:1]:
            if not isinstance(error, ClearwayError):
                raise error
            log.info("pods of %s/%s were not told why they wait: %s", pods[0].namespace, pods[0].name, error)

    def _choose(self) -> list[JobId]:
        """Waiting jobs, those first that were not explained or not for long."""
        with self._backend.lock:
            waiting = [job for job, bundle in self._backend.book.jobs.items() if bundle.run is None]
        rank = {job: place for place, job in enumerate(self._explained)}
        chosen = sorted(waiting, key=lambda job: (rank.get(job, -1), job))[:EXPLAINED_MAX]
        there = set(waiting)
        kept = [job for job in self._explained if job in there and job not in chosen]
        self._explained = dict.fromkeys([*kept, *chosen])
        return chosen

    async def _judge_nodes(self, pod: PodFacts) -> str:
        """What each node has against the pod, counted. Pods that ask the same are judged once in a round, and never so
        many nodes at once that bindings would wait."""
        kind = replace(pod, uid="", name="", created="", index=-1, owner=None)
        if kind in self._judged:
            return self._judged[kind]
        nodes, words = self._backend.book.nodes, list[str]()
        with self._backend.lock:
            names = list(nodes.entries)
        for begin in range(0, len(names), NODES_AT_ONCE):
            with self._backend.lock:
                entries = [
                    nodes.entries[name] for name in names[begin : begin + NODES_AT_ONCE] if name in nodes.entries
                ]
                words += [nodes.judge(pod, entry) for entry in entries if not entry.is_gone]
            await asyncio.sleep(0)
        self._judged[kind] = summarize_mismatches(words)
        return self._judged[kind]


def compose_message(about_nodes: str, explanation: Explanation, rank: str) -> str:
    """What kubectl's users read: nodes first, as they are used to, then Clearway's own reasons and remedy. rank: the
    pod's own priority, which is said where others come first."""
    parts = [about_nodes, *(reason.message for reason in explanation.reasons)]
    if rank and any(reason.code in BEHIND for reason in explanation.reasons):
        parts.append(f"It has {rank}")
    if explanation.fix:
        parts.append(f"What would help: {explanation.fix}")
    return " ".join(part if part.endswith(".") else part + "." for part in parts)
