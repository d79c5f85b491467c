"""Fork one process of a job: enter the group, become the user, open its files with the user's rights, execute.

Between fork and execute only this module's code runs. A failure is told through a pipe that a successful execute
closes, as `step: errno`; the child then exits without touching anything of its parent.
"""

import ctypes
import errno
import fcntl
import os
import resource
import signal
from dataclasses import dataclass
from typing import Final, NoReturn

SCRIPT_FD: Final = 3
"""Where the script is open in a job's processes; the first number after the standard ones."""
SCRIPT_PATH: Final = f"/proc/self/fd/{SCRIPT_FD}"
SCRIPT_WORD: Final = "{script}"
SHELLS: Final = ("/bin/bash", "/bin/sh")
"""What runs a setup step."""
BUNDLE_WORD: Final = "{bundle}"
START_WORD: Final = "{start}"
"""Path of what a container's shell reads first."""
CONTAINER_WORD: Final = "{container}"
GROUP_WORD: Final = "{group}"
"""Name of a container, and the control group that it is to lie below."""
PLACE_WORD: Final = "{place}"
"""In the text of a container's start: what its line of /proc/self/cgroup must look like."""
UMASK: Final = 0o022
"""The usual one; the keeper's own is stricter."""
HANDLED: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals with a disposition of the keeper's own."""
_CHANGED: Final = (*HANDLED, signal.SIGALRM, signal.SIGPIPE, signal.SIGXFSZ)
"""Those, and what Python ignores."""
_ABOVE: Final = 10
"""Own descriptors go here first, out of the way of those that the job gets."""
OPEN_WAIT_S: Final = 10
"""So long a job's files may take to be opened where the wait can be broken off, as for the other end of a pipe."""
START: Final = "start"
_FAILED: Final = 127
_CLONE3: Final = 435
"""Number of the system call, on every architecture."""
_CLONE_INTO_CGROUP: Final = 1 << 33


class _CloneArguments(ctypes.Structure):
    _names = ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls", "set_tid")
    _fields_ = [(name, ctypes.c_uint64) for name in (*_names, "set_tid_size", "cgroup")]


_C: Final = ctypes.PyDLL(None)  # which keeps the interpreter's lock: the child must have it


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """What to execute, as whom, and where. Paths: "" = /dev/null.

    script: descriptor of a file, -1 = none. job_dir: must be within the user's reach. bundle: config.json of a
    container, for `{bundle}` in argv; or the text of its start, for `{start}`, where a daemon makes it, whose client
    this is: then `container` is its name, `parent` the control group that it is to lie below, `mounts` folders that the
    user must be able to reach, and what is executed is root. truncates: output files begin empty; processes that share
    one append to it, and the first of them opens it before the others: gate is a pipe that ends when it has (-1 = do
    not wait). group: directory of a cgroup v2 to be born in, "" = none. entry_files: control files to which `0` is
    written to enter the group; where there is a `group`, the first of them is its own. files_max: soft limit of open
    files. control: descriptor to have for stdin instead, -1 = none.
    """

    argv: tuple[str, ...]
    environment: dict[str, str]
    script: int
    workdir: str
    job_dir: str
    bundle: str = ""
    stdin: str
    stdout: str
    stderr: str
    control: int = -1
    truncates: bool
    gate: int
    uid: int | None
    gid: int | None
    groups: tuple[int, ...]
    group: str = ""
    entry_files: tuple[str, ...]
    files_max: int
    container: str = ""
    parent: str = ""
    mounts: tuple[str, ...] = ()


OWN_STEPS: Final = (b"working directory ", b"folder ", b"standard files: ", b"open ", b"execute ")
"""How steps of a start begin that fail by what the job asks for."""


def make_script(text: str) -> int:
    """A descriptor from which a job's interpreter reads `text`; sealed, and no file anywhere."""
    descriptor = os.memfd_create("script", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(text.encode())
    while view:
        view = view[os.write(descriptor, view) :]
    os.fchmod(descriptor, 0o555)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return descriptor


def spawn(child: Child) -> tuple[int, int]:
    """Start it. Returns its pid and a descriptor that ends without a byte once it was executed. Raises OSError."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    try:
        pid, is_inside = _fork_into(child.group)
        if pid == 0:
            _run_child(child, writer, child.entry_files[1:] if is_inside else child.entry_files)
    except OSError:
        os.close(reader)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writer)
    return pid, reader


def is_own_failure(told: bytes) -> bool:
    """Whether what a child wrote into its pipe says something of the job, and not of the machine."""
    return told.startswith(OWN_STEPS)


def _fork_into(group: str) -> tuple[int, bool]:
    """As `os.fork`, with the child in that group from the beginning; whether it is there. Entering one later makes the
    kernel wait until every processor has been elsewhere, some 10 ms; being born there does not."""
    pid = -1
    if group:
        directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            pid = _clone_into(directory)
        finally:
            os.close(directory)
    return (os.fork(), False) if pid < 0 else (pid, True)


def _clone_into(directory: int) -> int:
    """-1 = this kernel, or what confines us, does not do it. The C library hears nothing of it: only a process of one
    thread may do this, and its child must do no more than execute something."""
    arguments = _CloneArguments(flags=_CLONE_INTO_CGROUP, exit_signal=signal.SIGCHLD, cgroup=directory)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = _C.syscall(_CLONE3, ctypes.byref(arguments), ctypes.c_size_t(ctypes.sizeof(arguments)))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


def explain_failure(told: bytes) -> str:
    """The reason that a child wrote into its pipe, for people."""
    step, _, number = told.decode(errors="replace").rpartition(": ")
    return f"{step}: {os.strerror(int(number))}" if number.isdigit() else told.decode(errors="replace")


def _run_child(child: Child, writer: int, entry_files: tuple[str, ...]) -> NoReturn:
    step = "new session"
    try:
        writer = fcntl.fcntl(writer, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
        os.setsid()
        for path in entry_files:
            step = f"enter control group {path}"
            _enter(path)
        step = f"become user {child.uid}"
        _become(child)
        step = f"job directory {child.job_dir}, as user {os.geteuid()}"
        os.stat(child.job_dir)
        step = f"working directory {child.workdir}"
        for path in (*child.mounts, child.workdir):
            step = f"folder {path}" if path in child.mounts else step
            os.chdir(path)
        step = "standard files"
        _open_files(child)
        _reset_signals(child.files_max)
        bundle = _write_bundle(child)
        words = {SCRIPT_WORD: SCRIPT_PATH, BUNDLE_WORD: bundle}
        if child.container:
            words = {START_WORD: f"{bundle}/{START}", CONTAINER_WORD: child.container, GROUP_WORD: child.parent}
            _become_root_again()
        argv = [words.get(word, word) for word in child.argv]
        step = f"execute {argv[0]}"
        os.execve(argv[0], argv, child.environment)  # noqa: S606 - it is what this is for
    except OSError as error:
        os.write(writer, f"{step}: {error.errno or 0}".encode(errors="replace"))
    except BaseException as error:  # whatever it is, the parent's code must not go on in this process
        os.write(writer, f"{step}: {error!r}".encode(errors="replace"))
    finally:
        os._exit(_FAILED)


def _write_bundle(child: Child) -> str:
    """The folder for a container tool, made with the user's rights."""
    folder = f"{child.job_dir}/.bundle.{os.getpid()}"
    if child.bundle:
        os.mkdir(folder, 0o700)
        _write(f"{folder}/{START if child.container else 'config.json'}", child.bundle.encode())
    if child.container:
        _write(f"{folder}/script", os.pread(child.script, os.fstat(child.script).st_size, 0))
        os.chmod(f"{folder}/script", 0o700)
    return folder


def _write(path: str, text: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    while text:
        text = text[os.write(descriptor, text) :]
    os.close(descriptor)


def _enter(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, b"0")
    os.close(descriptor)


def _become(child: Child) -> None:
    if child.uid is None or child.gid is None:
        return
    os.setgroups(child.groups)
    if child.container:  # for its files alone
        os.setegid(child.gid)
        os.seteuid(child.uid)
        return
    os.setresgid(child.gid, child.gid, child.gid)
    os.setresuid(child.uid, child.uid, child.uid)


def _become_root_again() -> None:
    """For a client whose daemon takes root's word alone."""
    os.seteuid(0)
    os.setegid(0)
    os.setgroups(())
    os.chdir("/")


def _open_files(child: Child) -> None:
    """Descriptors 0 to 3. Raises FileError."""
    os.umask(UMASK)
    if child.gate >= 0:
        os.read(child.gate, 1)
    script = fcntl.fcntl(child.script, fcntl.F_DUPFD_CLOEXEC, _ABOVE) if child.script >= 0 else -1
    writing = os.O_WRONLY | os.O_CREAT | os.O_NOCTTY | os.O_CLOEXEC | os.O_APPEND
    if child.truncates:
        writing |= os.O_TRUNC
    signal.set_wakeup_fd(-1)  # that of the parent
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(OPEN_WAIT_S)
    stdin = _open(child.stdin, os.O_RDONLY | os.O_CLOEXEC)
    if child.control >= 0:
        os.dup2(child.control, stdin, inheritable=False)
    stdout = _open(child.stdout, writing)
    stderr = stdout if child.stderr == child.stdout else _open(child.stderr, writing)
    signal.alarm(0)
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
    if script >= 0:
        os.dup2(script, SCRIPT_FD)


def _give_up(_number: int, _frame: object) -> NoReturn:
    raise TimeoutError(errno.ETIMEDOUT, f"nobody opened its other end within {OPEN_WAIT_S} s")


def _open(path: str, flags: int) -> int:
    try:
        descriptor = os.open(path or os.devnull, flags, 0o666)
    except OSError as error:
        raise FileError(path, error) from error
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE)


class FileError(Exception):
    """A file of the job could not be opened; says which."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"open {path}: {error.strerror}")

    def __repr__(self) -> str:
        return str(self)


def _reset_signals(files_max: int) -> None:
    """As a login shell has it: nothing ignored, nothing blocked."""
    for number in _CHANGED:
        signal.signal(number, signal.SIG_DFL)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, hard))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
