"""The command `clearway`. Declares commands and shows results; every decision about what to run lies in `bootstrap`.

Modules here import nothing heavy at the top: NumPy, Numba and pydantic take half a second, and `clearway --help` must
not. So command functions import what they run from `clearway.bootstrap` when they are called. The Slurm-named commands
do without the framework of the others too: they run in loops.
"""

import gc
import sys
from pathlib import PurePath

__all__ = ["main", "slurm_main"]


def main() -> None:
    """Run the command line of this process; ends it with an exit code."""
    from clearway.cli.slurm.main import COMMANDS, run_slurm_command

    if len(sys.argv) > 1 and sys.argv[1] in COMMANDS:
        sys.exit(run_slurm_command(sys.argv[1], sys.argv[2:]))
    from clearway.cli.app import main as run_app
    from clearway.cli.machine_code import keep_machine_code

    keep_machine_code()
    try:
        run_app()
    finally:
        gc.freeze()  # the memory goes back whole: looking for garbage in what the compiler made would take seconds


def slurm_main() -> None:
    """Run the Slurm-named command by which this program was called, through a link of that name."""
    from clearway.cli.slurm.main import COMMANDS, run_slurm_command

    name = PurePath(sys.argv[0]).name
    if name not in COMMANDS:
        sys.exit(f"{name}: expected to be called as one of {', '.join(COMMANDS)}; see `clearway slurm install --help`")
    sys.exit(run_slurm_command(name, sys.argv[1:]))
