"""`clearway up` and `clearway down`: start a control plane on this machine, and stop it."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from clearway.cli.connection import connect, environment, places_of
from clearway.cli.options import JsonOption, StateDirOption
from clearway.cli.outputs import is_json_only, write_json
from clearway.cli.session import Session, session_of
from clearway.model.errors import InputError

if TYPE_CHECKING:
    from clearway.bootstrap.demo import Demonstration
    from clearway.bootstrap.live import ControlPlane, UpRequest
    from clearway.bootstrap.places import Places, Running
    from clearway.client import Client

READY_S: Final = 1_800.0
"""Longest wait for a start in the background: the first one compiles the engine, a minute or two on an idle machine."""
TELL_S: Final = 30.0
"""How often who waits for it is told that it has not ended."""
STOP_S: Final = 60.0
POLL_S: Final = 0.1
EXIT_DEMO_FAILED: Final = 1
EXIT_NOT_STOPPED: Final = 69
EXIT_NOT_STARTED: Final = 69
EXIT_INTERRUPTED: Final = 130
LINES_SHOWN: Final = 3
"""Of what happened last, below the picture of the demonstration."""
DEMO_IS_OVER: Final = "The demonstration is over; Ctrl-C ends the control plane and says what was seen"
LINES_TOLD: Final = 12
"""Last lines of the log of a control plane that did not start."""

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML or TOML; else CLEARWAY_CONFIG, or the default place."),
]


def up(
    context: typer.Context,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Instead of the configured one.")] = "",
    devices: Annotated[
        str, typer.Option("--devices", metavar="SPEC", help="Virtual devices: 4, V100:4, or nodes such as 2x4:V100.")
    ] = "",
    backend: Annotated[
        str, typer.Option("--backend", metavar="NAME", help="What runs jobs: local (this machine) or kubernetes.")
    ] = "local",
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help="Of the cluster; else as kubectl finds it.")
    ] = None,
    kube_context: Annotated[str, typer.Option("--context", metavar="NAME", help="One of the kubeconfig.")] = "",
    background: Annotated[bool, typer.Option("--background", help="Return when it is ready; it goes on.")] = False,
    demo: Annotated[bool, typer.Option("--demo", help="Submit the mixed demonstration, and watch it.")] = False,
    exit_when_done: Annotated[bool, typer.Option("--exit-when-done", help="With --demo: end when it has.")] = False,
    json_target: JsonOption = None,
) -> None:
    """Run until Ctrl-C or SIGTERM; SIGHUP reads the configuration again."""
    from clearway.bootstrap.configuration import find_config_file

    session = session_of(context)
    if demo and is_json_only(json_target):
        raise InputError("expected --json FILE with --demo, found -: its story is told on standard output")
    if exit_when_done and not demo:
        raise InputError("expected --demo with --exit-when-done, found none; a control plane is never done by itself")
    config_file = find_config_file(environment(), config)
    from clearway.bootstrap.live import UpRequest

    request = UpRequest(
        config_file=config_file,
        state_dir=state_dir,
        listen=listen,
        devices=devices,
        backend=backend,
        kubeconfig=kubeconfig,
        kube_context=kube_context,
        is_demo=demo,
        environment=environment(),
    )
    if background:
        if demo:
            raise InputError("expected either --background or --demo, found both; the demonstration is watched")
        write_ready(session, _start_in_background(session, request), json_target)
        return
    raise typer.Exit(_run_here(session, request, json_target, demo=demo, exit_when_done=exit_when_done))


def write_ready(session: Session, places: "Places", json_target: str | None) -> None:
    """Where the control plane is, as JSON, where it was asked for; its token only by its file."""
    from clearway.bootstrap.places import read_running

    running = read_running(places)
    if json_target is None or running is None:
        return
    found = {
        "url": running.url,
        "pid": running.pid,
        "version": running.version,
        "state_dir": str(places.folder),
        "token_file": str(places.token),
        "config": running.config or None,
        "ca_file": running.ca_file or None,
    }
    write_json(session, found, json_target)
    session.screen.file.flush()


class _Interrupted(Exception):  # noqa: N818  (no error: somebody has seen enough)
    """Ctrl-C or SIGTERM before the control plane was ready."""


def _run_here(
    session: Session, request: "UpRequest", json_target: str | None, *, demo: bool, exit_when_done: bool
) -> int:
    ended = threading.Event()
    _catch_signals(ended)
    try:
        plane = _start_here(session, request, ended)
    except _Interrupted:
        session.note("Stopped before it was ready")
        return EXIT_INTERRUPTED
    try:
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=_reload, args=(session, plane)).start())
        say_ready(session, plane)
        write_ready(session, plane.places, json_target)
        if demo:
            return _run_demo(session, plane, ended, exit_when_done=exit_when_done)
        while not ended.wait(1.0):
            plane.check()
        return 0
    finally:
        is_left = "Stopping; jobs that run go on, and are taken over by the next `clearway up`"
        session.note("Stopping; the demonstration's jobs have ended" if demo else is_left)
        plane.stop()


def _start_here(session: Session, request: "UpRequest", ended: threading.Event) -> "ControlPlane":
    """A control plane that is ready: its engine is compiled, too."""
    from clearway.bootstrap.live import start_control_plane
    from clearway.cli.machine_code import is_machine_code_kept

    _say_starting(session, is_compiled=is_machine_code_kept())
    with session.progress("Compiling") as show:

        def tell(done: int, total: int) -> None:
            if ended.is_set():
                raise _Interrupted
            show(done, total)

        return start_control_plane(request, tell)


def _say_starting(session: Session, *, is_compiled: bool) -> None:
    text = "Starting; the first start compiles the engine, which takes a minute or two"
    session.note("Starting" if is_compiled else text)


def _catch_signals(ended: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())


def _reload(session: Session, plane: "ControlPlane") -> None:
    from clearway.model.errors import ClearwayError

    try:
        for note in plane.reload("operator"):
            session.notes.print(note, markup=False, soft_wrap=True)
    except ClearwayError as error:
        session.note("The configuration was not taken over; what was in force stays")
        session.notes.print(str(error), markup=False, soft_wrap=True)


def say_ready(session: Session, plane: "ControlPlane") -> None:
    """Where it is, what this machine cannot do, and what to type next."""
    if plane.is_first_start:
        session.note("Made the operator's token: {path} (readable by you alone)", path=plane.places.token)
    session.note("Ready at {url} with {devices} devices on {nodes} node(s), policy {policy}", **plane.summary())
    for note in plane.notes:
        session.notes.print(note, markup=False, soft_wrap=True)
    _say_where(session, plane.places.folder)
    session.note("In another terminal: clearway submit --gpus 1 -- COMMAND; clearway queue; clearway top")
    session.note('From elsewhere: eval "$(clearway token --export)" sets CLEARWAY_URL and CLEARWAY_TOKEN')


def _say_where(session: Session, folder: Path) -> None:
    """What other terminals need where the state directory is not the one in which commands look by themselves."""
    from clearway.bootstrap.places import STATE_DIR_VARIABLE, find_state_dir

    usual = find_state_dir({name: value for name, value in environment().items() if name != STATE_DIR_VARIABLE})
    if folder != usual:
        words = f"{STATE_DIR_VARIABLE}={shlex.quote(str(folder))}"
        session.note("In other terminals, so that commands find it: export {words}", words=words)


def _run_demo(session: Session, plane: "ControlPlane", ended: threading.Event, *, exit_when_done: bool) -> int:
    """Submit in a thread of its own, draw here."""
    from clearway.bootstrap.demo import Demonstration

    workdir = plane.places.folder / "demo"
    workdir.mkdir(mode=0o700, exist_ok=True)
    with plane.client() as client:
        story = Demonstration(client, ended, workdir)
        narrator = threading.Thread(target=story.run, name="clearway-demo", daemon=True)
        narrator.start()
        if session.screen.is_terminal and not exit_when_done:
            _watch(session, plane, story, ended)
        else:
            _narrate(session, story, ended, exit_when_done=exit_when_done)
        ended.set()
        narrator.join(timeout=STOP_S)
        story.tidy()
    for line in story.findings():
        session.screen.print(line, markup=False, soft_wrap=True)
    return 0 if story.is_good or not exit_when_done else EXIT_DEMO_FAILED


def _watch(session: Session, plane: "ControlPlane", story: "Demonstration", ended: threading.Event) -> None:
    """The picture of `clearway top`, and below it what happened last, until Ctrl-C."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from clearway.cli.live_top import fetch_scene
    from clearway.cli.show_top import draw_scene

    with plane.client() as client, Live(console=session.screen, screen=True, auto_refresh=False) as live:
        while not ended.wait(0.5):
            last = Text("".join(f"  {line}\n" for line in story.lines[-LINES_SHOWN:]), style="dim")
            if story.is_over:
                last.append(f"  {session.translate(DEMO_IS_OVER)}", style="bold not dim")
            live.update(Group(draw_scene(session, fetch_scene(client)), last), refresh=True)


def _narrate(session: Session, story: "Demonstration", ended: threading.Event, *, exit_when_done: bool) -> None:
    """Print what happens, a line each, until it is over or interrupted."""
    shown = 0
    while not ended.is_set():
        is_over = story.is_over
        lines = story.lines[shown:]
        for line in lines:
            session.screen.print(line, markup=False, soft_wrap=True)
        shown += len(lines)
        if is_over and exit_when_done:
            return
        ended.wait(POLL_S)


def _start_in_background(session: Session, request: "UpRequest") -> "Places":
    from clearway.bootstrap.places import FOLDER_MODE

    places = places_of(request.state_dir)
    places.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    words = [sys.executable, "-m", "clearway.cli", "up", "--state-dir", str(places.folder)]
    words += ["--backend", request.backend]
    words += ["--config", str(request.config_file)] if request.config_file else []
    words += ["--listen", request.listen] if request.listen else []
    words += ["--devices", request.devices] if request.devices else []
    words += ["--kubeconfig", str(request.kubeconfig)] if request.kubeconfig else []
    words += ["--context", request.kube_context] if request.kube_context else []
    with open(places.log, "ab", opener=_open_private) as log:
        begin = log.tell()
        started = subprocess.Popen(  # noqa: S603 - our own program and the words just made
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    _await_ready(session, started, places, begin)
    return places


def _await_ready(session: Session, started: "subprocess.Popen[bytes]", places: "Places", begin: int) -> None:
    """Until it is ready or has ended. begin: where in its log it began to write."""
    from clearway.bootstrap.places import read_running
    from clearway.cli.machine_code import is_machine_code_kept

    if not is_machine_code_kept():
        _say_starting(session, is_compiled=False)
    now = begun = told = time.monotonic_ns()
    while now - begun < READY_S * 1e9:
        now = time.monotonic_ns()
        if now - told > TELL_S * 1e9:
            told = now
            session.note(
                "Not ready yet, after {seconds} s; it writes to {log}", seconds=(now - begun) // 10**9, log=places.log
            )
        running = read_running(places)
        if running is not None and running.pid == started.pid:
            session.note(
                "Ready at {url}, process {pid}; it writes to {log}", url=running.url, pid=running.pid, log=places.log
            )
            _say_where(session, places.folder)
            return
        if started.poll() is not None:
            _tell_end(session, places.log, begin)
            raise typer.Exit(started.returncode if started.returncode > 0 else EXIT_NOT_STARTED)
        time.sleep(POLL_S)
    started.terminate()
    raise InputError(f"expected a control plane within {READY_S:.0f} s, found none; see {places.log}")


def _tell_end(session: Session, log: Path, begin: int) -> None:
    """What a control plane wrote that ended at its start. begin: where in its log, which has those before it too."""
    said = log.read_bytes()[begin:].decode(errors="replace")
    session.note("Expected a control plane that starts, found one that ended:")
    session.notes.print("\n".join(said.splitlines()[-LINES_TOLD:]), markup=False, soft_wrap=True)


def _open_private(path: str, flags: int) -> int:
    """Readable by its owner alone from its first moment on."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def down(
    context: typer.Context,
    state_dir: StateDirOption = None,
    stop_jobs: Annotated[bool, typer.Option("--stop-jobs", help="Cancel all jobs first, and wait for them.")] = False,
    json_target: JsonOption = None,
) -> None:
    """Stop what `server.json` names."""
    from clearway.bootstrap.places import is_running, read_running

    session, places = session_of(context), places_of(state_dir)
    running = read_running(places)
    if running is None or not is_running(places):
        session.note("No control plane runs here")
        _write_stopped(session, json_target, None, 0)
        return
    cancelled = 0
    if stop_jobs:
        with connect(state_dir) as client:
            cancelled = _cancel_all(client)
        session.note("Cancelled {count} job(s)", count=cancelled)
    _stop(session, running)
    _write_stopped(session, json_target, running, cancelled)
    session.note(
        "Stopped" if stop_jobs else "Stopped; jobs that run go on, and are taken over by the next `clearway up`"
    )


def _write_stopped(session: Session, json_target: str | None, running: "Running | None", cancelled: int) -> None:
    if json_target is not None:
        pid = None if running is None else running.pid
        write_json(session, {"stopped": running is not None, "pid": pid, "cancelled": cancelled}, json_target)


def _cancel_all(client: "Client") -> int:
    from clearway.ports.views import JobQuery, JobState

    active = tuple(state for state in JobState if not state.is_final)
    numbers = [job.id for job in client.all_jobs(JobQuery(states=active))]
    if numbers:
        client.cancel(numbers)
        client.wait(numbers, poll_s=POLL_S)
    return len(numbers)


def _stop(session: Session, running: "Running") -> None:
    os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic_ns() + int(STOP_S * 1e9)
    while _is_alive(running.pid):
        if time.monotonic_ns() > deadline:
            session.note("Process {pid} has not stopped within {seconds} s", pid=running.pid, seconds=f"{STOP_S:.0f}")
            raise typer.Exit(EXIT_NOT_STOPPED)
        time.sleep(POLL_S)


def _is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not yet waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ("Z", "X")
