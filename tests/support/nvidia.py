"""GPUs for machines without: NVIDIA's binding `pynvml`, and a stand-in for the driver's library that a test steers."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.control_plane import ControlPlane

SOURCE = Path(__file__).with_name("nvidia_driver.c")
LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True)
class Driver:
    """The library in `folder`, and the file that says what it tells; see the head of its source."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "gpus"

    def tell(self, *lines: str) -> None:
        """These GPUs, from now on. Whoever reads meanwhile sees the ones or the others."""
        beside = self.folder / "gpus.new"
        beside.write_text("".join(f"{line}\n" for line in lines))
        beside.rename(self.file)

    def environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.folder), "CLEARWAY_TEST_GPUS": str(self.file)}


def build_driver(folder: Path) -> Driver:
    """Compile it; skips the test where there is no C compiler, or a real driver, which would be found too."""
    compiler = shutil.which("cc") or pytest.skip(
        "the stand-in for the GPU driver needs a C compiler: install gcc, libc6-dev"
    )
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("a real GPU driver is here")
    words = ("-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(folder / LIBRARY), str(SOURCE))
    subprocess.run([compiler, *words], check=True)
    return Driver(folder)


class GpuPlane(ControlPlane):
    """A control plane that finds the GPUs of its machine."""

    def __init__(self, folder: Path, driver: Driver) -> None:
        super().__init__(folder, devices="")
        self.driver = driver

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.driver.environment()}


def h100(number: int, *lines: str) -> Iterator[str]:
    """Lines of one H100, and what else is so of it."""
    yield f"gpu GPU-{number} {number} {80 << 30} 700000 18 NVIDIA H100 80GB HBM3"
    yield from lines


def h100s(count: int, more: dict[int, Sequence[str]] | None = None) -> list[str]:
    """Lines of so many. more: by number, what else is so of one."""
    return [line for number in range(count) for line in h100(number, *(more or {}).get(number, ()))]


def mig(number: int, *instances: str) -> list[str]:
    """Lines of an H100 in MIG mode with these instances of a seventh each."""
    lines = [f"instance {uuid} {10 << 30} NVIDIA H100 80GB HBM3 MIG 1g.10gb" for uuid in instances]
    return list(h100(number, "mig", *lines))
