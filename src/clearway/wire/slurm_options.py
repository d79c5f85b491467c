"""The options of sbatch(1): their names, whether they take a value, and what becomes of them here."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Takes(Enum):
    """Whether an option has a value. OPTIONAL: only in the form `--option=value`."""

    NOTHING = "nothing"
    OPTIONAL = "optional"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Option:
    """name: long name without dashes. refusal: why the option cannot be kept though leaving it out would change what
    the job gets; empty = it can. is_acted: whether it changes the job; if not, it only yields a note.
    """

    name: str
    takes: Takes
    is_acted: bool = False
    refusal: str = ""


SHORT_NAMES: Final[Mapping[str, str]] = {
    "A": "account",
    "a": "array",
    "B": "extra-node-info",
    "b": "begin",
    "C": "constraint",
    "c": "cpus-per-task",
    "D": "chdir",
    "d": "dependency",
    "e": "error",
    "F": "nodefile",
    "G": "gpus",
    "H": "hold",
    "h": "help",
    "I": "immediate",
    "i": "input",
    "J": "job-name",
    "k": "no-kill",
    "L": "licenses",
    "M": "clusters",
    "m": "distribution",
    "N": "nodes",
    "n": "ntasks",
    "O": "overcommit",
    "o": "output",
    "p": "partition",
    "Q": "quiet",
    "q": "qos",
    "S": "core-spec",
    "s": "oversubscribe",
    "t": "time",
    "V": "version",
    "v": "verbose",
    "W": "wait",
    "w": "nodelist",
    "x": "exclude",
}

_ACTED = """account array begin chdir constraint cpus-per-gpu cpus-per-task deadline dependency error exclude export
    gpus
    gpus-per-node gpus-per-task gres input job-name mem mem-per-cpu mem-per-gpu nodelist nodes ntasks ntasks-per-node
    open-mode output partition qos segment signal switches time time-min"""
_ACTED_FLAGS = "hold no-requeue requeue"
_ACTED_OPTIONAL = "exclusive nice"
_NOTED = """acctg-freq batch bb bbf clusters comment container container-id core-spec cores-per-socket cpu-freq
    delay-boot distribution export-file extra extra-node-info gid gpu-bind gpu-freq gres-flags hint licenses mail-type
    mail-user mcs-label mem-bind network ntasks-per-core ntasks-per-socket priority prefer profile
    reservation sockets-per-node thread-spec threads-per-core tmp tres-bind uid wait-all-nodes wckey wrap
    kill-on-invalid-dep cluster-constraint mincpus"""
_NOTED_FLAGS = """contiguous help ignore-pbs immediate overcommit parsable quiet reboot spread-job stepmgr test-only
    usage
    use-min-nodes verbose version wait consolidate-segments oom-kill-step"""
_NOTED_OPTIONAL = "get-user-env no-kill oversubscribe propagate resv-ports"
_REFUSED: Mapping[str, str] = {
    "gpus-per-socket": "ask for GPUs per node: --gpus-per-node",
    "ntasks-per-gpu": "give --ntasks-per-node and --gpus-per-node",
    "tres-per-task": "give --cpus-per-task and --gpus-per-task",
    "nodefile": "name the nodes in --nodelist",
}


def _make_options() -> dict[str, Option]:
    options = [
        *(Option(name, Takes.VALUE, is_acted=True) for name in _ACTED.split()),
        *(Option(name, Takes.NOTHING, is_acted=True) for name in _ACTED_FLAGS.split()),
        *(Option(name, Takes.OPTIONAL, is_acted=True) for name in _ACTED_OPTIONAL.split()),
        *(Option(name, Takes.VALUE) for name in _NOTED.split()),
        *(Option(name, Takes.NOTHING) for name in _NOTED_FLAGS.split()),
        *(Option(name, Takes.OPTIONAL) for name in _NOTED_OPTIONAL.split()),
        *(Option(name, Takes.VALUE, refusal=refusal) for name, refusal in _REFUSED.items()),
    ]
    return {option.name: option for option in options}


OPTIONS: Final[Mapping[str, Option]] = _make_options()
"""By long name."""
