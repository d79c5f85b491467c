"""Keeps the processes of a control group from opening device files: on version 2 by a program at the group, on version
1 by its controller `devices`.

Denied is to read and to write. To make such a file stays allowed: runtimes of containers want that for the groups that
they make below, and it opens nothing. Both ways need root.
"""

import contextlib
import ctypes
import errno
import os
import resource
import struct
from collections.abc import Sequence
from typing import Final

DeviceFile = tuple[int, int]
"""Major and minor number of a character device."""

_BPF: Final = {"x86_64": 321, "aarch64": 280}
"""Number of the system call `bpf`, by architecture."""
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH = 5, 8, 9
_KIND: Final = 15
_HOOK: Final = 6
"""BPF_PROG_TYPE_CGROUP_DEVICE and BPF_CGROUP_DEVICE, since Linux 4.15."""
_ALLOW_MULTI: Final = 2
"""Groups below may have programs too, as those of containers do; what any of them denies is denied."""

_LOAD, _COPY, _SET, _AND, _SHIFT = 0x61, 0xBF, 0xB7, 0x57, 0x77
_SKIP_IF, _SKIP_UNLESS, _EXIT = 0x15, 0x55, 0x95
"""Instructions of eBPF: of 32 bits from memory; between registers; all others with a constant."""
_INSTRUCTION: Final = struct.Struct("=BBhi")
_CHARACTER: Final = 2
_READ_OR_WRITE: Final = 2 | 4
_C: Final = ctypes.CDLL(None, use_errno=True)


def make_program(files: Sequence[DeviceFile]) -> bytes:
    """Instructions that deny to open these, and allow all else. They are given struct bpf_cgroup_dev_ctx of
    include/uapi/linux/bpf.h: kind of file (low half) and of access (high half), major, minor, 32 bits each."""
    allow, deny = ((_SET, 0, 0, 0, 1), (_EXIT, 0, 0, 0, 0)), ((_SET, 0, 0, 0, 0), (_EXIT, 0, 0, 0, 0))
    tests = [
        step
        for major, minor in files
        for step in ((_SKIP_UNLESS, 4, 0, 3, major), (_SKIP_UNLESS, 5, 0, 2, minor), *deny)
    ]
    steps = (
        (_LOAD, 2, 1, 0, 0),
        (_LOAD, 4, 1, 4, 0),
        (_LOAD, 5, 1, 8, 0),
        (_COPY, 3, 2, 0, 0),
        (_AND, 3, 0, 0, 0xFFFF),
        (_SHIFT, 2, 0, 0, 16),
        (_AND, 2, 0, 0, _READ_OR_WRITE),
        (_SKIP_UNLESS, 3, 0, len(tests) + 1, _CHARACTER),
        (_SKIP_IF, 2, 0, len(tests), 0),
        *tests,
        *allow,
    )
    return b"".join(_INSTRUCTION.pack(name, to | by << 4, number, value) for name, to, by, number, value in steps)


def deny_by_program(group: str, files: Sequence[DeviceFile]) -> None:
    """For what is in a group of version 2 or below it, as long as the group lives. Without files, only try. Raises
    OSError."""
    directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        program = _load(make_program(files))
        try:
            _call(_PROG_ATTACH, struct.pack("=4I", directory, program, _HOOK, _ALLOW_MULTI))
            if not files:
                _call(_PROG_DETACH, struct.pack("=3I", directory, program, _HOOK))
        finally:
            os.close(program)
    finally:
        os.close(directory)


def _load(program: bytes) -> int:
    """A descriptor of it. Before Linux 5.11 programs count as locked memory, of which root may have little."""
    instructions, license_text = (ctypes.create_string_buffer(text, len(text)) for text in (program, b"Apache-2.0\0"))
    places = (ctypes.addressof(instructions), ctypes.addressof(license_text))
    count = len(program) // _INSTRUCTION.size
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        return _call(_PROG_LOAD, struct.pack("=IIQQ", _KIND, count, *places))
    finally:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, before)


def _call(command: int, attributes: bytes) -> int:
    number = _BPF.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    text = ctypes.create_string_buffer(attributes, len(attributes))
    arguments = (ctypes.c_long(command), text, ctypes.c_long(len(attributes)))
    result: int = _C.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def deny_by_controller(group: str, files: Sequence[DeviceFile]) -> None:
    """For what is in a group of version 1 or below it. Raises OSError, also where the group has a list of what is
    allowed, from which the kernel takes single files without a word and without effect."""
    for major, minor in files:
        with open(f"{group}/devices.deny", "wb", buffering=0) as file:
            file.write(f"c {major}:{minor} rw".encode())
    with open(f"{group}/devices.list", encoding="ascii") as file:
        allowed = [line.split() for line in file if not line.startswith("a ")]  # which is said of all but some
    for kind, numbers, access in allowed:
        named = [number for number in files if kind == "c" and _is_among(numbers, number)]
        if named and access != "m":
            raise OSError(errno.EPERM, f"{group} may open {numbers} by a list of what is allowed")


def _is_among(numbers: str, file: DeviceFile) -> bool:
    """Whether `195:*` or the like means it."""
    return all(number in ("*", str(own)) for number, own in zip(numbers.split(":"), file, strict=True))
