"""Clearway as the scheduler of a test cluster: the control plane of `clearway.live` over the Kubernetes backend."""

import threading

from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.storage import open_store
from clearway.bootstrap.kubernetes import Pods
from clearway.engine.policy import Backfill, Placement, Policy, Preemption, PreemptMode
from clearway.live.clock import SystemClock
from clearway.live.controller import Controller
from clearway.live.settings import ControlSettings
from clearway.policies.orders import Fifo

POLICY = Policy(
    name="test",
    order=Fifo(),
    placement=Placement(pack=1.0),
    backfill=Backfill(reservation_depth=1),
    preemption=Preemption(mode=PreemptMode.PRIORITY, protection_ms=0),
)


class Scheduling:
    """Begins at once; `stop` ends it in good order."""

    def __init__(self, kubeconfig, database, *, policy=POLICY, queues=(), tenants=()):
        self.store = open_store(f"sqlite:///{database}")
        self.pods = Pods(KubernetesConfig(kubeconfig=str(kubeconfig)), queues)
        kernel = self.pods.make_kernel(policy)
        settings = ControlSettings(paces_starts=False)  # as `clearway up --backend kubernetes`
        known = {"queues": queues, "tenants": tenants, "settings": settings}
        self.control = Controller(kernel, self.pods.backend, self.store, SystemClock(), **known)
        self.failure = None
        self.control.start()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.pods.begin_intake(self.control, self.store)

    def _run(self):
        try:
            self.control.run()
        except BaseException as error:
            self.failure = error
            raise

    def stop(self):
        self.control.close()
        self._thread.join(30)
        self.store.close()
        assert self.failure is None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
