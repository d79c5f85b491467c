"""A warm runner: an interpreter that has imported already, and forks a task each time it is asked.

Run as a script of its own by the interpreter of the tasks, as their user, with a socket for stdin; it imports nothing
of Clearway. Arguments: modules to import beforehand; those that cannot be are left to the task. A request is one JSON
object with one descriptor, a socket for the task. The task is forked twice, so that its parent becomes the keeper; it
tells `pid N`, waits for a byte while the keeper puts it into its control group, and closes the socket when it begins.
What it tells after its pid is why it cannot.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading

REQUEST_BYTES_MAX = 1 << 20

OPEN_WAIT_S = 10
"""As of a cold start: so long a task's files may take to be opened, as for the other end of a pipe."""

TOGETHER_MAX = 16
"""Requests that wait share the process between: in a burst a task costs one fork, not two."""


def serve() -> "dict[str, object] | None":
    """Answer requests until the keeper hangs up; returns in each task, with what it is to run, and at the end None."""
    control = socket.socket(fileno=os.dup(0))
    for name in sys.argv[1:]:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    runpy.run_path(os.devnull)  # which imports what running a script needs, or each task would
    gc.freeze()  # or the first collection in each task would touch, and so copy, all that was imported
    while requests := receive(control):
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            os.close(writer)
            task = fork_each(requests, reader)
            control.close()
            return task
        os.close(reader)
        os.waitpid(between, 0)
        with contextlib.suppress(OSError):  # they may have ended
            os.write(writer, b"." * len(requests))
        os.close(writer)
        for _, link in requests:
            os.close(link)
    return None


def receive(control: socket.socket) -> "list[tuple[bytes, int]]":
    """The next request, and those that wait behind it; [] = the keeper has hung up."""
    requests: list[tuple[bytes, int]] = []
    while len(requests) < TOGETHER_MAX:
        try:
            control.setblocking(not requests)  # `recv_fds` does not pass flags on
            data, links, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 1)
        except BlockingIOError:
            break
        if not data:
            break  # it is said again when it is asked for again
        requests.append((data, links[0]))
    return requests


def fork_each(requests: "list[tuple[bytes, int]]", reader: int) -> "dict[str, object]":
    """In the process between: fork a task for each request, and end. Returns in each task, with what it is to run,
    once it is the keeper's child, as `reader` tells: the keeper takes no other."""
    for place, (data, link) in enumerate(requests):
        if os.fork() == 0:
            for _, other in requests[place + 1 :]:
                os.close(other)
            is_orphan = os.read(reader, 1)
            os.close(reader)
            if not is_orphan:  # the runner is lost
                os._exit(127)
            return {**json.loads(data), "link": link}
        os.close(link)
    os._exit(0)


def become(task: "dict[str, object]") -> None:
    """Take on the task's session, files, directory and environment, once the keeper lets go."""
    link = int(str(task["link"]))
    step = "warm runner"
    try:
        os.setsid()
        os.write(link, f"pid {os.getpid()}\n".encode())
        if not os.read(link, 1):
            os._exit(127)
        step = f"working directory {task['workdir']}"
        os.chdir(str(task["workdir"]))
        os.umask(0o022)
        signal.signal(signal.SIGALRM, give_up)
        signal.alarm(OPEN_WAIT_S)
        for number, (path, flags) in enumerate(task["files"]):  # type: ignore[arg-type,var-annotated]
            step = f"open {path}"
            descriptor = os.open(path or os.devnull, flags, 0o666)
            os.dup2(descriptor, number)
            os.close(descriptor)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os.environ.clear()  # noqa: TID251 - it is the task's from here on
        os.environ.update(task["environment"])  # type: ignore[call-overload]  # noqa: TID251 - as above
        signal.signal(signal.SIGINT, signal.default_int_handler)
    except OSError as error:
        with contextlib.suppress(OSError):  # the keeper listens no more
            os.write(link, f"{step}: {error if isinstance(error, TimeoutError) else error.errno or 0}".encode())
        os._exit(127)
    os.close(link)


def give_up(_number: int, _frame: object) -> None:
    """As a cold start does."""
    raise TimeoutError(f"nobody opened its other end within {OPEN_WAIT_S} s")


def differ() -> None:
    """From task to task: modules that draw random numbers would give all tasks of a runner the same ones."""
    for name, module in (("numpy", "random"), ("torch", "")):
        loaded = sys.modules.get(name)
        if loaded is not None:
            (getattr(loaded, module) if module else loaded).seed()


def run(argv: "list[str]") -> None:
    """As `python argv...`: a script, or `-m` and a module."""
    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
        runpy.run_path(argv[0], run_name="__main__")


def finish(argv: "list[str]") -> int:
    """Run, and end as an interpreter does: wait for threads, call what was registered for the exit, flush. Only the
    taking apart of every module is left out: in a fork it would copy all the memory that is shared with the runner.
    Returns the exit code."""
    code = 0
    try:
        run(argv)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException as error:  # as the interpreter does with what nobody caught
        sys.excepthook(*sys.exc_info())
        code = 130 if isinstance(error, KeyboardInterrupt) else 1  # what a shell makes of SIGINT
    for end_all in (getattr(threading, "_shutdown", None), getattr(atexit, "_run_exitfuncs", None)):
        if end_all is not None:
            with contextlib.suppress(Exception):
                end_all()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    return code & 0xFF


if __name__ == "__main__":
    found = serve()
    if found is not None:
        become(found)
        differ()
        os._exit(finish([str(word) for word in found["argv"]]))  # type: ignore[attr-defined]
