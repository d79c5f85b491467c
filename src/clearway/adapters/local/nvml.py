"""What NVML says about the GPUs and MIG instances of this machine: raw calls, turned into `Reading`s.

NVML: docs.nvidia.com/deploy/nvml-api. What a model or a driver cannot say is left out, and takes no GPU away. The one
thing that is written to a GPU is its power limit, where the site has a budget.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

ValueT = TypeVar("ValueT")

NVLINKS_MAX: Final = 18
"""Links of one GPU; Hopper has 18."""
XIDS_MAX: Final = 1_000
"""Told at a time by one GPU: one that fails may report without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One GPU, or one MIG instance of it. index: of the GPU, in the order of the PCI bus. gpu: UUID of the GPU. watts:
    its power limit. instances: numbers of the GPU instance and of the compute instance in it; () = no MIG, or not told.

    pids: of processes that compute on it. error: why it cannot be read, "" = it can.
    """

    index: int
    uuid: str
    gpu: str = ""
    model: str = ""
    memory_bytes: int = 0
    watts: int = 0
    is_mig: bool = False
    instances: tuple[int, ...] = ()
    has_nvlink: bool = False
    pids: tuple[int, ...] = ()
    error: str = ""


class Reader(Protocol):
    """What NvmlDevices asks for."""

    def read(self) -> tuple[Reading, ...]:
        """All devices now, in order of the PCI bus, instances in theirs. Does not raise."""
        ...

    def minors(self) -> Mapping[str, int]:
        """Of the device files of all GPUs, by UUID, as they were last read."""
        ...

    def take_xids(self) -> tuple[tuple[str, int], ...]:
        """(UUID of the GPU, Xid) of the errors since the last call. Does not raise."""
        ...

    def limit_power(self, index: int, watts: int, /) -> str:
        """Limit the GPU at that place of the bus, within what it takes. Returns "", or why that cannot be."""
        ...


class NvmlReader:
    """Raw calls. nvml: the module `pynvml`, initialised."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._gone = (nvml.NVMLError_GpuIsLost, nvml.NVMLError_ResetRequired)
        self._events: dict[str, Any] = {}
        self._known: dict[int, tuple[Reading, ...]] = {}
        self._minors: dict[str, int] = {}

    def minors(self) -> Mapping[str, int]:
        """See `Reader.minors`."""
        return dict(self._minors)

    def read(self) -> tuple[Reading, ...]:
        """See `Reader.read`."""
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            return tuple(_lost(reading, error) for readings in self._known.values() for reading in readings)
        return tuple(reading for index in range(count) for reading in self._read_gpu(index))

    def _read_gpu(self, index: int) -> tuple[Reading, ...]:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
            name = _text(nvml.nvmlDeviceGetName(handle))
            self._watch(handle, uuid)
            self._note_minor(handle, uuid)
            if self._has_mig(handle):
                readings = self._read_instances(handle, index, uuid, name)
            else:
                readings = (self._read_whole(handle, index, uuid, name),)
        except nvml.NVMLError as error:
            return tuple(_lost(reading, error) for reading in self._known.get(index, ()))
        self._known[index] = readings
        return readings

    def _note_minor(self, handle: Any, uuid: str) -> None:
        """Where there are no device files, as under Windows' Linux, nothing is said of them."""
        minor = self._optional(lambda: int(self._nvml.nvmlDeviceGetMinorNumber(handle)), -1)
        if minor >= 0:
            self._minors[uuid] = minor

    def _read_whole(self, handle: Any, index: int, uuid: str, name: str) -> Reading:
        return Reading(
            index=index,
            uuid=uuid,
            gpu=uuid,
            model=shorten_model(name),
            memory_bytes=self._memory(handle),
            watts=self._optional(lambda: int(self._nvml.nvmlDeviceGetPowerManagementLimit(handle)) // 1000, 0),
            has_nvlink=any(
                self._optional(lambda link=link: int(self._nvml.nvmlDeviceGetNvLinkState(handle, link)), 0)  # type: ignore[misc]
                for link in range(NVLINKS_MAX)
            ),
            pids=self._pids(handle),
        )

    def _has_mig(self, handle: Any) -> bool:
        return self._optional(lambda: int(self._nvml.nvmlDeviceGetMigMode(handle)[0]), 0) == 1

    def _read_instances(self, gpu: Any, index: int, uuid: str, name: str) -> tuple[Reading, ...]:
        nvml = self._nvml
        found = []
        for instance in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, instance)
            except nvml.NVMLError_NotFound:
                continue
            profile = _text(nvml.nvmlDeviceGetName(handle)).rpartition("MIG ")[2]
            found.append(
                Reading(
                    index=index,
                    uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
                    gpu=uuid,
                    model=f"{shorten_model(name)}-{profile}",
                    memory_bytes=self._memory(handle),
                    is_mig=True,
                    instances=self._instances(handle),
                    pids=self._pids(handle),
                )
            )
        return tuple(found)

    def _instances(self, handle: Any) -> tuple[int, ...]:
        calls = self._nvml.nvmlDeviceGetGpuInstanceId, self._nvml.nvmlDeviceGetComputeInstanceId
        return self._optional(lambda: tuple(int(call(handle)) for call in calls), ())

    def _memory(self, handle: Any) -> int:
        """Its own, or the machine's, which a GPU on the same chip (GB10, Jetson) shares; 0 = it fails to say."""
        shared = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return self._optional(lambda: self._own_memory(handle, shared), 0)

    def _own_memory(self, handle: Any, otherwise: int) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total)
        except self._nvml.NVMLError_NotSupported:
            return otherwise

    def _pids(self, handle: Any) -> tuple[int, ...]:
        nvml = self._nvml
        try:
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except nvml.NVMLError_FunctionNotFound:  # drivers before 510
            processes = self._optional(lambda: nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle), ())
        except self._gone:
            raise
        except nvml.NVMLError:
            processes = ()
        return tuple(int(process.pid) for process in processes)

    def _optional(self, call: Callable[[], ValueT], otherwise: ValueT) -> ValueT:
        """What not every model, driver or user can be told, and what a GPU in use may fail to tell once."""
        try:
            return call()
        except self._gone:
            raise
        except self._nvml.NVMLError:
            return otherwise

    def _watch(self, handle: Any, uuid: str) -> None:
        """Have the GPU's Xids told. Some drivers and models cannot; then only its absence is seen. Each GPU has a set
        of its own: a set of which one is lost tells nothing of the others."""
        if uuid in self._events:
            return
        self._events[uuid] = None
        with contextlib.suppress(self._nvml.NVMLError):
            events = self._nvml.nvmlEventSetCreate()
            self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, events)
            self._events[uuid] = events

    def take_xids(self) -> tuple[tuple[str, int], ...]:
        """See `Reader.take_xids`."""
        found: list[tuple[str, int]] = []
        for uuid, events in self._events.items():
            if events is not None:
                found += [(uuid, xid) for xid in islice(self._wait_for_xids(events), XIDS_MAX)]
        return tuple(found)

    def _wait_for_xids(self, events: Any) -> Iterator[int]:
        """Those that one GPU has reported."""
        with contextlib.suppress(self._nvml.NVMLError):  # a timeout: there are no more
            while True:
                yield int(self._nvml.nvmlEventSetWait_v2(events, 0).eventData)

    def limit_power(self, index: int, watts: int, /) -> str:
        """See `Reader.limit_power`."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            least, most = nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
            wanted = min(max(watts * 1000, int(least)), int(most))
            if int(nvml.nvmlDeviceGetPowerManagementLimit(handle)) != wanted:
                nvml.nvmlDeviceSetPowerManagementLimit(handle, wanted)
        except nvml.NVMLError_NoPermission:
            return "only root may set the power limit of a GPU"
        except nvml.NVMLError as error:
            return f"GPU {index}: {error}"
        return ""


def open_nvml() -> NvmlReader | None:
    """A reader of this machine's GPUs; None = it has none, or no driver, or `nvidia-ml-py` is not installed."""
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        reader = NvmlReader(pynvml)
        return reader if reader.read() else None
    except pynvml.NVMLError:
        return None


class LostReader:
    """Of a machine that had GPUs and finds none: looks again each time. find: returns a reader once there is one."""

    def __init__(self, find: Callable[[], Reader | None]) -> None:
        self._find = find
        self._reader: Reader | None = None

    def read(self) -> tuple[Reading, ...]:
        """See `Reader.read`."""
        self._reader = self._reader or self._find()
        return () if self._reader is None else self._reader.read()

    def minors(self) -> Mapping[str, int]:
        """See `Reader.minors`."""
        return {} if self._reader is None else self._reader.minors()

    def take_xids(self) -> tuple[tuple[str, int], ...]:
        """See `Reader.take_xids`."""
        return () if self._reader is None else self._reader.take_xids()

    def limit_power(self, index: int, watts: int, /) -> str:
        """See `Reader.limit_power`."""
        return "" if self._reader is None else self._reader.limit_power(index, watts)


def shorten_model(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` → `A100`, as job files name models; `NVIDIA GeForce RTX 4090` → `RTX4090`."""
    consumer = re.search(r"\b([RG]TX) ?(A?\d{3,4}(?: (?:Ti|SUPER))?)", name)
    if consumer:
        return "".join(consumer.groups()).replace(" ", "")
    match = re.search(r"\b([A-Z]{1,2}\d{1,4}[A-Z]?)\b", name.replace("NVIDIA", ""))
    return match.group(1) if match else name.removeprefix("NVIDIA ").replace(" ", "-") or "GPU"


def _lost(reading: Reading, error: Exception) -> Reading:
    return replace(reading, pids=(), error=str(error))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
