"""How Slurm refuses a submission: its own words and exit codes first, as sbatch 22.05 gave them, then ours, which say
what was expected and found. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from clearway.cli.slurm.arguments import EXIT_OPTION, EXIT_USAGE, UsageError, refuse_option

_OPTION: Final = re.compile(r".*?: --(?P<name>[a-z-]+): expected .*?, found '?(?P<found>.*?)'?(?:; .*)?")
_UNKNOWN: Final = re.compile(r".*: expected an option of sbatch, found '(?P<found>.*?)'(?:; .*)?")
_PARTITION: Final = re.compile(r".*expected a queue .*, found '(?P<found>.*?)'(?:; .*)?")

_FAILED: Final = "Batch job submission failed: "
_GRES: Final = "Invalid generic resource (gres) specification"
_BY_CONTROLLER: Final[Mapping[str, str]] = {
    "array": f"{_FAILED}Invalid job array specification",
    "dependency": f"{_FAILED}Job dependency problem",
    "gpus": _GRES,
    "gpus-per-node": _GRES,
    "gpus-per-task": _GRES,
    "gres": _GRES,
}
"""Options that sbatch hands on, and slurmctld refuses."""
_COUNTS: Final = frozenset({"cpus-per-gpu", "cpus-per-task", "ntasks", "ntasks-per-node"})
_MEMORY: Final = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})


def check_script(text: str) -> None:
    """Raise UsageError for what sbatch does not take for a batch script."""
    if not text.strip("\n"):
        raise UsageError("Batch script is empty!")
    if not text.startswith("#!"):
        raise UsageError(
            "This does not look like a batch script.  The first\n"
            "line must start with #! followed by the path to an interpreter.\n"
            "For instance: #!/bin/sh"
        )
    if "\0" in text:
        raise UsageError("The Slurm controller does not allow scripts that\ncontain a NULL character '\\0'.")
    if "\r\n" in text:
        raise UsageError("Batch script contains DOS line breaks (\\r\\n)\ninstead of expected UNIX line breaks (\\n).")


def refuse_submission(command: str, detail: str) -> UsageError:
    """What `command` ends with when the server refused a script with these lines."""
    first = detail.partition("\n")[0]
    unknown = _UNKNOWN.fullmatch(first)
    if unknown is not None:
        return refuse_option(command, f"unrecognized option '{unknown['found']}'", EXIT_OPTION)
    partition = _PARTITION.fullmatch(first)
    if partition is not None:
        words = f"invalid partition specified: {partition['found']}\n{_FAILED}Invalid partition name specified"
        return UsageError(f"{words}\n{detail}")
    option = _OPTION.fullmatch(first)
    if option is None:
        is_dependency = "found a dependency on" in first
        return UsageError(f"{_BY_CONTROLLER['dependency']}\n{detail}" if is_dependency else detail)
    if option["name"] in _MEMORY and " and --" in option["found"]:
        text = "fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."
        return UsageError(f"{command}: {text}", is_bare=True)
    words, code = _refuse_value(option["name"], option["found"])
    return UsageError(f"{words}\n{detail}", code=code)


def _refuse_value(name: str, found: str) -> tuple[str, int]:
    """(Slurm's words, its exit code)."""
    if name in _BY_CONTROLLER:
        return _BY_CONTROLLER[name], EXIT_USAGE
    if name in _COUNTS:
        return f'Invalid numeric value "{found}" for --{name}.', EXIT_USAGE
    if name == "nodes" and found == "0":
        return f"{_FAILED}Node count specification invalid", EXIT_USAGE
    if name == "nodes":
        return f'"{found}" is not a valid node count', EXIT_OPTION
    return f"Invalid --{name} specification", EXIT_OPTION
