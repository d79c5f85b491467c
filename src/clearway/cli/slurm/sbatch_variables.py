"""Input variables of sbatch(1): they go before the script's options and behind those of the command line. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clearway.wire.slurm_options import OPTIONS, Takes

PREFIX: Final = "SBATCH_"

SAME_NAMES: Final = """account acctg-freq batch clusters constraint container container-id core-spec cpus-per-gpu
    delay-boot distribution error exclusive export get-user-env gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket
    gpus-per-task gres gres-flags hint ignore-pbs input job-name mem-bind mem-per-cpu mem-per-gpu network no-kill
    no-requeue open-mode output overcommit partition profile qos requeue reservation signal spread-job
    thread-spec threads-per-core tres-bind tres-per-task use-min-nodes wait wait-all-nodes wckey"""
"""Options whose variable is called like them: `SBATCH_MEM_PER_CPU` stands for `--mem-per-cpu`."""

VARIABLES: Final[Mapping[str, str]] = {
    **{PREFIX + name.upper().replace("-", "_"): name for name in SAME_NAMES.split()},
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_CPU_FREQ_REQ": "cpu-freq",
    "SBATCH_DEBUG": "verbose",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_REQ_SWITCH": "switches",
    "SBATCH_SEGMENT_SIZE": "segment",
    "SBATCH_TIMELIMIT": "time",
    "SLURM_CLUSTERS": "clusters",
    "SLURM_HINT": "hint",
}
"""Variable → long name of the option."""
SWITCH_WAIT: Final = "SBATCH_WAIT4SWITCH"
"""Comes behind SBATCH_REQ_SWITCH, as `@time`."""

_YES: Final = ("", "set", "yes", "true", "1", "exclusive")
_NO: Final = ("no", "false", "0")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the environment asks for: options as words, names of those that the command itself obeys, and notes."""

    words: tuple[str, ...]
    own: tuple[str, ...]
    notes: tuple[str, ...]


def read_variables(variables: Mapping[str, str], words: Sequence[str], own_names: Collection[str]) -> Asked:
    """words: of the command line, which go before. own_names: options that the command itself obeys."""
    set_here = [name for name in (*VARIABLES, SWITCH_WAIT) if name in variables]
    unknown = sorted(name for name in variables if name.startswith(PREFIX) and name not in (*VARIABLES, SWITCH_WAIT))
    notes = tuple(f"{name} is not known here, and changes nothing" for name in unknown)
    if not set_here:
        return Asked((), (), notes)
    taken = _taken_by({word[2:].partition("=")[0] for word in words})
    asked = [word for name in set_here if VARIABLES.get(name) not in taken for word in _word_of(name, variables)]
    own = tuple(word[2:] for word in asked if word[2:].partition("=")[0] in own_names)
    return Asked(tuple(word for word in asked if word[2:] not in own), own, notes)


def _taken_by(given: set[str]) -> set[str]:
    """Options that those of the command line leave no room for."""
    from clearway.wire.sbatch import EXCLUSIVE_GROUPS

    return given.union(*(group for group in EXCLUSIVE_GROUPS if given.intersection(group)))


def _word_of(name: str, variables: Mapping[str, str]) -> Iterator[str]:
    """The option, where the variable asks for it."""
    option, value = VARIABLES.get(name), variables[name].strip()
    if option is None:  # SWITCH_WAIT, which is told by what it comes behind
        return
    takes = OPTIONS[option].takes
    if takes is Takes.VALUE:
        if value and option == "switches" and variables.get(SWITCH_WAIT):
            value = f"{value}@{variables[SWITCH_WAIT]}"
        if value:
            yield f"--{option}={value}"
    elif value.lower() not in _NO:
        yield f"--{option}" if takes is Takes.NOTHING or value.lower() in _YES else f"--{option}={value}"
