"""A local backend on declared devices, in a directory of its own: for tests with real processes."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clearway.adapters.local.backend import LocalBackend
from clearway.adapters.local.config import LocalConfig
from clearway.adapters.local.devices import DEVICES_DOWN, DeclaredDevices
from clearway.adapters.local.keeper.host import Settings
from clearway.adapters.local.keeper.warden import NAME
from clearway.model.cluster import NodeSpec
from clearway.model.ids import JobId
from clearway.ports.backend import LastingBackend
from support.benches import Behaviour, Bench, make_nodes, wait_until

SOURCE = Path(__file__).parents[2] / "src"
QUICK = Settings(kill_wait_ms=400, leftover_wait_ms=100, quarantine_ms=300, idle_exit_ms=0)
SAVES = f"""#!{sys.executable} -IS
import sys, time
sys.path.insert(0, {str(SOURCE)!r})
import clearway.job
job = clearway.job.current()
while not job.should_stop:
    time.sleep(0.005)
with job.saving():
    pass
"""


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def let_others_pass(folder: Path) -> None:
    """Let other users reach what lies in `folder`: pytest keeps the folders that it makes to itself."""
    for one in (folder, *folder.parents):
        one.chmod(one.stat().st_mode | 0o011)
        if one.name.startswith("pytest-of-"):
            return


class LocalBench(Bench):
    """A bench whose backend is the local one, in a directory of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Settings = QUICK,
        nodes: Sequence[NodeSpec] | None = None,
        source: type[DeclaredDevices] = DeclaredDevices,
        **config: object,
    ) -> None:
        self.source = source
        nodes = make_nodes() if nodes is None else nodes
        self.folder = folder
        self.state = folder / "state"
        self.workdir = folder / "work"
        self.workdir.mkdir()
        self.config = LocalConfig(state=self.state, settings=settings, **config)  # type: ignore[arg-type]
        super().__init__(self._make, nodes)

    def _make(self) -> LastingBackend:
        return LocalBackend(self.config, self.source(self.nodes, self.state / DEVICES_DOWN))

    def add(self, job: int, script: str, *, run: dict[str, object] | None = None, **spec: object) -> JobId:
        return super().add(job, script, run={"workdir": str(self.workdir), **(run or {})}, **spec)

    def behave(self, job: int, behaviour: Behaviour, **spec: object) -> JobId:
        scripts = {
            Behaviour.ENDS_WELL: "true",
            Behaviour.FAILS: "exit 1",
            Behaviour.RUNS_ON: "exec sleep 600",
            Behaviour.SAVES: SAVES,
            Behaviour.CANNOT_START: "#!/no/such/program\n",
        }
        return self.add(job, scripts[behaviour], **spec)

    def fail(self, *nodes: str, devices: dict[str, list[int]] | None = None) -> None:
        beside = self.state / "devices-down.new"
        beside.write_text(json.dumps({"nodes": nodes, "devices": devices or {}}))
        beside.rename(self.state / DEVICES_DOWN)

    def output(self, job: int) -> str:
        return (self.workdir / f"slurm-{job}.out").read_text()

    def keeper_pid(self) -> int:
        pid = self.find_keeper()
        assert pid is not None, "no keeper runs"
        return pid

    def find_keeper(self) -> int | None:
        return next((pid for pid, is_warden in self._find_family() if not is_warden), None)

    def find_wardens(self) -> list[int]:
        return [pid for pid, is_warden in self._find_family() if is_warden]

    def _find_family(self) -> Iterator[tuple[int, bool]]:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    name = (entry / "comm").read_text().strip()
                except OSError:
                    continue
                if str(self.state.resolve()).encode() in words:
                    yield int(entry.name), name == NAME

    def end(self) -> None:
        """End every job and the keeper."""
        self.backend.close()
        self.backend = self.make()
        self.connect()
        wait_until(self._is_over, "the keeper's end")
        self.backend.close()

    def _is_over(self) -> bool:
        client = self.backend._client  # type: ignore[attr-defined]
        client.send({"op": "shutdown"})
        return any(message["op"] == "lost" for message in client.take())


@contextmanager
def local_bench(folder: Path, **options: object) -> Iterator[LocalBench]:
    bench = LocalBench(folder, **options)  # type: ignore[arg-type]
    bench.connect()
    try:
        yield bench
    finally:
        bench.end()
