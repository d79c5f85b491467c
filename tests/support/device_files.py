"""Files like those of GPUs, with no driver behind them: to open one fails with ENXIO, or EPERM where it is denied."""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from clearway.adapters.local.devices import Confinement, DeclaredDevices
from clearway.model.ids import NodeName

MAJOR = 195
DENIED = "Operation not permitted"
ALLOWED = "No such device or address"
CANNOT = "device files cannot be denied"


def make_device_files(folder: Path, *minors: int) -> None:
    """`nvidia0` and so on, for everybody to open."""
    for minor in minors:
        path = folder / f"nvidia{minor}"
        os.mknod(path, stat.S_IFCHR, os.makedev(MAJOR, minor))
        path.chmod(0o666)


def try_open(path: str | Path, flags: int = os.O_RDWR) -> str:
    """`opened`, or the name of the error."""
    try:
        os.close(os.open(path, flags))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "opened"


def try_all(folder: Path, *minors: int) -> list[str]:
    return [try_open(folder / f"nvidia{minor}") for minor in minors]


def run_in(entry_files: Sequence[str], act: Callable[[], object]) -> str:
    """What `act` returns, as Python writes it, in a process that has entered a group as the keeper's children do."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for path in entry_files:
                Path(path).write_text("0")
            os.write(writer, repr(act()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as told:
        said = told.read()
    os.waitpid(pid, 0)
    return said.decode()


class DevicesWithFiles(DeclaredDevices):
    """As if the devices of the first node were GPUs, with the minor numbers 0, 1 and so on."""

    is_virtual = False

    def confine(self, held: Iterable[tuple[NodeName, int]], /) -> Confinement:
        node = self.nodes()[0]
        own = {index for name, index in held if name == node.name}
        return Confinement(
            tuple((MAJOR, minor) for minor in range(node.device_count)),
            tuple((MAJOR, minor) for minor in sorted(own)),
        )

    def note_obstacle(self, obstacle: str, /) -> tuple[str, ...]:
        return (f"{CANNOT}: {obstacle}",) if obstacle else ()


def find_obstacle(notes: Iterable[str]) -> str:
    """Why device files are not denied on this machine, of the notes of a backend; "" = they are."""
    return next((note for note in notes if note.startswith(CANNOT)), "")
