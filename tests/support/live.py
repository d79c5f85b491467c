"""A control plane over a fake backend, a store in memory and a clock that is set by hand."""

from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.live.controller import Controller
from clearway.model.jobs import JobSpec, Request
from clearway.model.runs import RunSpec
from clearway.model.units import FOREVER_MS
from clearway.policies.named import named_policy
from clearway.ports.control import PROVISIONAL_ID, Submission
from support.fake_backend import FakeBackend
from support.manual_clock import ManualClock
from support.memory_store import MemoryStore
from support.worlds import make_cluster

TURNS_MAX = 100_000


def make_submission(*jobs, scripts=(), actor="ada", key=""):
    """A submission of these jobs, which `make_spec` made; each script says how its job runs."""
    texts = [*scripts, *[""] * (len(jobs) - len(scripts))]
    return Submission(jobs=jobs, runs=tuple(RunSpec(script=text) for text in texts), actor=actor, key=key)


def make_spec(place=0, *, devices=1, **spec):
    """A job with the provisional number of this place."""
    return JobSpec(**({"id": PROVISIONAL_ID + place, "request": Request(devices=devices), "user": "ada"} | spec))


class Plane:
    """One control plane after the other over the same machines and the same store. `start` makes the next one."""

    def __init__(self, *, nodes=1, devices=1, policy="easy", backend=None, store=None, **options):
        self.policy = named_policy(policy) if isinstance(policy, str) else policy
        self.backend = backend or FakeBackend(make_cluster(nodes, devices).nodes)
        self.store = store or MemoryStore()
        self.clock = ManualClock()
        self.options = options
        self.control = None

    def start(self):
        """A new control plane takes over; the one before is gone without a word."""
        kernel = Kernel(self.policy, RuntimeHistory())
        self.control = Controller(kernel, self.backend, self.store, self.clock, **self.options)
        self.control.start()
        return self

    def turn(self):
        """Turns at this moment until nothing more happens in it."""
        self.control.turn(self.clock.now_ms())
        for _ in range(TURNS_MAX):
            if self.next_ms() > self.clock.now_ms():
                return
            self.control.turn(self.clock.now_ms())
        raise AssertionError("time stands still")

    def next_ms(self):
        """When something will happen by itself; FOREVER_MS = never."""
        return min(self.backend.next_ms(), self.control.next_due_ms())

    def run(self, until_ms=FOREVER_MS):
        """Let time pass, until nothing happens any more or up to and including `until_ms`."""
        self.turn()
        while (at_ms := self.next_ms()) <= until_ms and at_ms != FOREVER_MS:
            self.clock.set(max(at_ms, self.clock.now_ms()))
            self.turn()
        if until_ms != FOREVER_MS:
            self.clock.set(until_ms)
            self.turn()

    def submit(self, *jobs, scripts=(), **options):
        """Submit and turn; the numbers of the jobs. Raises what the control plane answers."""
        future = self.control.submit(make_submission(*jobs, scripts=scripts, **options))
        self.turn()
        return future.result(timeout=0)

    def do(self, future):
        """Turn, and the answer."""
        self.turn()
        return future.result(timeout=0)

    def state(self, job):
        return self.control.job(job).state
