"""Schedulers that live until they are killed: `python -m support.kube_lives KUBECONFIG DATABASE`.

It imports and compiles once; each line on its input forks a child that schedules with the journal of those before, and
whose number it prints, and again with its end. So a life costs what a scheduler does, not what an interpreter does.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

TESTS = Path(__file__).parents[1]
LOOK_S = 0.5


class Lives:
    """Begins and kills them."""

    def __init__(self, kubeconfig, folder):
        self._log = (folder / "lives.log").open("a+")
        words = [sys.executable, "-m", "support.kube_lives", str(kubeconfig), str(folder / "lives.db")]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=TESTS, text=True
        )
        self._pid = 0

    def begin(self):
        """Another life."""
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()
        self._pid = int(self._process.stdout.readline() or 0)

    def kill(self):
        """End it as a machine would, and wait until it is gone. Fails where it ended by itself."""
        os.kill(self._pid, signal.SIGKILL)
        ended = self._process.stdout.readline().split()
        if ended != [str(self._pid), str(int(signal.SIGKILL))]:
            self._log.seek(0)
            raise AssertionError(f"expected a life that is killed, found {ended}: {self._log.read()[-3000:]}")
        self._pid = 0

    def close(self):
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        self._log.close()


def live(kubeconfig, database):
    """One life: until it is killed, or fails."""
    from support.kube_scheduling import Scheduling

    scheduling = Scheduling(kubeconfig, database)
    never = threading.Event()
    while scheduling.failure is None:
        never.wait(LOOK_S)


def rehearse():
    """Have compiled, or taken from the cache, what a life needs: nodes, a job that starts and one that waits."""
    from clearway.kernel import Kernel
    from clearway.model.cluster import DeviceGroup, NodeSpec
    from clearway.model.events import Batch, JobStarted, JobSubmitted, NodeAdded
    from clearway.model.jobs import JobSpec, Request
    from support.kube_scheduling import POLICY

    kernel = Kernel(POLICY)
    nodes = [NodeSpec(name=name, groups=(DeviceGroup(model="gpu", count=2),)) for name in ("n1", "n2")]
    kernel.handle(Batch(0, tuple(NodeAdded(0, node) for node in nodes)))
    jobs = [JobSpec(id=1, request=Request(devices=1), replicas=3), JobSpec(id=2, request=Request(devices=2))]
    kernel.handle(Batch(1, tuple(JobSubmitted(1, job) for job in jobs)))
    kernel.handle(JobStarted(2, 1, 1))


def main():
    kubeconfig, database = sys.argv[1:]
    rehearse()
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                live(kubeconfig, database)
            finally:
                os._exit(1)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(pid, os.waitstatus_to_exitcode(status) * -1, flush=True)


if __name__ == "__main__":
    main()
