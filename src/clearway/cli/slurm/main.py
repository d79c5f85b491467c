"""Which command was meant: by the name of the program (`squeue`), or the first word after `clearway`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Final

from clearway import __version__
from clearway.cli.slurm.arguments import EXIT_USAGE, UsageError
from clearway.cli.streams import describe, forget_output, ready_output
from clearway.model.errors import ClearwayError

COMMANDS: Final[Mapping[str, str]] = {
    "sbatch": "Submit a batch script, as Slurm's sbatch does.",
    "squeue": "List jobs that wait or run, as Slurm's squeue does.",
    "sinfo": "List partitions and nodes, as Slurm's sinfo does.",
    "scancel": "Cancel jobs, as Slurm's scancel does.",
    "sacct": "List jobs of the past, as Slurm's sacct does.",
    "scontrol": "Show and change jobs and nodes, as Slurm's scontrol does.",
    "srun": "Run a command on devices and show its output, as Slurm's srun does.",
    "salloc": "Not offered; says what to use instead.",
}
"""Name → one line of help."""

EXIT_INTERRUPTED: Final = 130

HELP: Final = """\
Usage: {name} [OPTIONS]

{summary} Options and texts are Slurm's; see the manual page {name}(1) of Slurm, and docs/guides/slurm-user.md for
what differs. An option that is not offered is refused by name.
"""


def run_slurm_command(name: str, arguments: Sequence[str]) -> int:
    """Run it; the exit code. Errors go to standard error as `name: error: ...`."""
    ready_output()
    try:
        code = _run(name, arguments)
        sys.stdout.flush()
        return code
    except (UsageError, ClearwayError) as error:
        is_bare = isinstance(error, UsageError) and error.is_bare
        for line in str(error).splitlines():
            sys.stderr.write(f"{line}\n" if is_bare else f"{name}: error: {line}\n")
        return error.code if isinstance(error, UsageError) else EXIT_USAGE
    except BrokenPipeError:
        forget_output()
        return EXIT_USAGE
    except OSError as error:
        sys.stderr.write(f"{name}: error: {describe(error)}\n")
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(name: str, arguments: Sequence[str]) -> int:
    if _asks_for_help(name, arguments):
        sys.stdout.write(HELP.format(name=name, summary=COMMANDS[name]))
        return 0
    if arguments[:1] in (["--version"], ["-V"]):
        sys.stdout.write(f"clearway {__version__}\n")
        return 0
    module = import_module(f"clearway.cli.slurm.{name}")
    run: Callable[[Sequence[str]], int] = module.run
    return run(arguments)


def _asks_for_help(name: str, arguments: Sequence[str]) -> bool:
    """`--help`; `-h` too where it does not mean "no header", and only before the script or command."""
    first = arguments[:1]
    return first in (["--help"], ["--usage"]) or (first == ["-h"] and name in ("sbatch", "srun", "scancel", "scontrol"))
