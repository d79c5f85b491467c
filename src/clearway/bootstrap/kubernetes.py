"""The composition of a control plane that schedules a Kubernetes cluster: what differs from one of this machine.

The store is the same, and needed: the API server knows where pods lie, the journal what was decided about them.
"""

import logging
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from clearway.adapters.kubernetes.backend import KubernetesBackend
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.intake import Intake
from clearway.adapters.kubernetes.lease import Lease
from clearway.bootstrap.policies import fit_to_pods
from clearway.engine.policy import Policy, RunTimes
from clearway.kernel import Kernel
from clearway.model.cluster import QueueSpec
from clearway.model.ids import DEFAULT_QUEUE, JobId
from clearway.ports.control import Control, Notice
from clearway.ports.storage import JOBS_PER_PAGE_MAX, JobQuery, Store
from clearway.ports.views import JobState, JobView
from clearway.server.standby import Standby

_LOG = logging.getLogger(__name__)

WAITING: Final = (JobState.PENDING, JobState.REQUEUE_HOLD)

ACCOUNT_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
"""Where a pod finds the token of its service account."""


def find_kubeconfig(environment: Mapping[str, str], asked: Path | None) -> str:
    """The file that was asked for, or that kubectl would take; "" = the service account of the pod that we run in."""
    if asked is not None:
        return str(asked.expanduser())
    if named := environment.get("KUBECONFIG", "").split(":")[0]:
        return named
    return "" if ACCOUNT_TOKEN.exists() else str(Path.home() / ".kube" / "config")


class Pods:
    """The backend of a cluster, and what its control plane needs beside it. Pods may name the `queues`."""

    def __init__(self, config: KubernetesConfig, queues: Sequence[QueueSpec]) -> None:
        self.backend = KubernetesBackend(config)
        self.log_folder = config.log_folder
        self._config = config
        self._lease: Lease | None = None
        self.set_queues(queues)

    def lead(self, address: tuple[str, int], look: Callable[[], None]) -> bool:
        """Return when it is this control plane's turn to decide; until then requests to `address` are told who leads.
        Whether it holds a Lease, so that whoever else writes must not.

        look: called now and then; what it raises ends the waiting. Raises InputError.
        """
        if not self._config.lease:
            return False
        self._lease = Lease(self._config, f"{socket.gethostname()}_{secrets.token_hex(4)}")
        self.backend.may_write, self.backend.guard_thread = self._lease.is_valid, self._lease.guard_thread
        standby: list[Standby] = []

        def wait_for(holder: str) -> None:
            if not standby:
                standby.append(Standby(*address))
                standby[0].start()
            standby[0].leader = holder
            _LOG.info("%s leads; this control plane waits", holder)

        try:
            self._lease.acquire(wait_for, look)
        finally:
            for server in standby:
                server.stop()
        _LOG.info("this control plane leads, as %s", self._lease.holder)
        return True

    def check(self) -> None:
        """Raise what ended the lead, if anything has."""
        if self._lease is not None and self._lease.failure is not None:
            raise self._lease.failure

    def release(self) -> None:
        """Let another one lead, once nothing is decided here any more."""
        if self._lease is not None:
            self._lease.release()

    def set_queues(self, queues: Sequence[QueueSpec]) -> None:
        """From now on pods may name these."""
        names = tuple(queue.name for queue in queues)
        default = names[0] if names and DEFAULT_QUEUE not in names else DEFAULT_QUEUE
        with self.backend.lock:
            self.backend.book.set_queues(names, default)

    def make_kernel(self, policy: Policy, run_times: RunTimes | None = None) -> Kernel:
        """The kernel that decides for the cluster; what it knows of nodes by a journal, the backend knows too."""
        kernel = Kernel(fit_to_pods(policy), run_times)
        self.backend.known_nodes = lambda: kernel.state.inventory.specs
        self.backend.known_models = lambda: kernel.state.inventory.models.names
        return kernel

    def begin_intake(self, control: Control, store: Store) -> None:
        """Give waiting jobs of before their pods back, and take what comes from now on. The control plane is ready."""
        book = self.backend.book
        tenants = {tenant.name for tenant in control.cluster().tenants}
        views = list(_find_waiting(store))
        runs = store.read_runs([view.id for view in views])
        for view in views:
            if not runs[view.id].origin:
                self.backend.restore_own(view.id, runs[view.id], view.message)
        with self.backend.lock:
            for view in views:
                origin = runs[view.id].origin
                if origin and view.id not in book.jobs:
                    book.restore(self.backend.now_ms, view.id, origin, view.replicas, view.message)
        control.subscribe(self._take_notice)
        Intake(self.backend, control, tenants).begin()

    def _take_notice(self, notice: Notice) -> None:
        """A submitted job that ends while it waits leaves a Job that waits with it."""
        if notice.kind == "job" and JobState(str(notice.data["state"])).is_final:
            self.backend.forget_own([JobId(int(str(notice.data["id"])))])


def _find_waiting(store: Store) -> Iterator[JobView]:
    """Every job that waits, page by page."""
    query = JobQuery(states=WAITING, limit=JOBS_PER_PAGE_MAX)
    while page := store.reader.find_jobs(query):
        yield from page
        query = replace(query, after=page[-1].id)
