"""How a job is run: for backends and whoever stores jobs; the engine never looks at it."""

from dataclasses import dataclass
from enum import StrEnum

from clearway.model.values import made_often


class Launch(StrEnum):
    """Where the script runs: in every replica (job files), or in the first, which starts the rest (`#SBATCH`)."""

    EVERY_REPLICA = "every_replica"
    FIRST_REPLICA = "first_replica"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSignal:
    """Signal to send before the time limit. before_ms: how long before. shell_only: not to the steps (`B:`)."""

    signal: str
    before_ms: int
    shell_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """Nodes with such a taint may run the job all the same, where the backend has taints. key: empty = any. value: None
    = whatever the taint's is. effect: empty = whatever the taint's is."""

    key: str = ""
    value: str | None = None
    effect: str = ""


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """How to run a job.

    script: shell text; a `#!` in its first line names the interpreter. args: words for it, `$1` and on. setup: shell
    text run once per node before it. environment: (name, value) pairs. inherits_environment: whether the submitter's
    variables come along; if not, those of `inherited_names` still do. input, output, error: file patterns as Slurm's
    (`%j`, `%A_%a`); empty = default. append: output files are extended, not replaced. image: container image; empty =
    none. tasks_per_replica: processes that the script means to start in each replica. nodes, nodes_excluded: node
    names asked for, and ruled out. origin: what the backend knows the job by, where its users made it there and not
    here; empty = it was submitted here. tolerations: taints that it bears.
    """

    script: str
    args: tuple[str, ...] = ()
    setup: str = ""
    launch: Launch = Launch.EVERY_REPLICA
    workdir: str = ""
    image: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    inherits_environment: bool = True
    inherited_names: tuple[str, ...] = ()
    input: str = ""
    output: str = ""
    error: str = ""
    append: bool = False
    limit_signal: LimitSignal | None = None
    tasks_per_replica: int = 1
    nodes: tuple[str, ...] = ()
    nodes_excluded: tuple[str, ...] = ()
    origin: str = ""
    tolerations: tuple[Toleration, ...] = ()
