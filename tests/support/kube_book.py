"""A book of pods and jobs with the API server's side, and the control plane's, played by hand."""

from clearway.adapters.kubernetes.book import Book
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.gangs import gang_size, said_by
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.adapters.kubernetes.runs import Bind, Evict, Refuse
from support.kubernetes import JOB, make_job_object, make_node, make_pod

CONFIG = KubernetesConfig()


class World:
    """A book with the API server's side played by hand. Times pass by one each settle."""

    def __init__(self, **nodes):
        self.book = Book(CONFIG)
        self.now_ms = 0
        self.next_job = 1
        self.pods = {}
        for name, gpus in nodes.items():
            self.put_node(name, gpus=gpus)
        self.settle()

    def put_node(self, name, **more):
        self.book.nodes.put(parse_node(make_node(name, **more), CONFIG))

    def put(self, name, **more):
        self.pods[name] = make_pod(name, **more)
        self.book.put_pod(parse_pod(self.pods[name], CONFIG))

    def change(self, name, *, phase=None, node=None, leaving=False):
        pod = self.pods[name]
        if phase:
            pod["status"]["phase"] = phase
        if node:
            pod["spec"]["nodeName"] = node
        if leaving:
            pod["metadata"]["deletionTimestamp"] = "2026-07-01T11:00:00Z"
        self.book.put_pod(parse_pod(pod, CONFIG))

    def delete(self, name):
        self.book.drop_pod(f"uid-{name}")

    def settle(self):
        self.now_ms += 1
        return self.book.settle(self.now_ms)

    def answer_sizes(self, data):
        for source in self.book.take_wanted():
            if data is None:
                self.book.put_size(source, None)
            else:
                self.book.put_size(source, gang_size(data), said=said_by(data))

    def accept(self):
        """Settle, and have all that arrives accepted; returns the jobs."""
        self.settle()
        jobs = []
        for arrival in self.book.take_arrivals():
            self.book.accept(self.now_ms, arrival, self.next_job)
            jobs.append(arrival.job)
            self.next_job += 1
        return jobs

    def start(self, job, *places, generation=1):
        origin = self.book.jobs[job].key
        self.book.start(self.now_ms, job, generation, places, origin)

    def calls(self):
        return [show(action) for action in self.book.take_actions()]


def show(action):
    match action:
        case Bind(pod, node):
            return f"bind {pod.name} {node}"
        case Evict(pod):
            return f"evict {pod.name}"
        case Refuse(pod, _):
            return f"refuse {pod.name}"


def make_gang(world, size=2, gpus=8):
    """An indexed Job of `size` pods, accepted as job 1."""
    for index in range(size):
        world.put(f"w{index}", owner=JOB, index=index, gpus=gpus)
    world.answer_sizes(make_job_object(size))
    return world.accept()


def run_gang(world, *places):
    """The gang started on these places, all its pods running."""
    make_gang(world, len(places))
    world.start(1, *places)
    for index, (node, _) in enumerate(places):
        world.change(f"w{index}", node=node, phase="Running")
    world.calls()
    return world.settle()


ALL = tuple(range(8))
