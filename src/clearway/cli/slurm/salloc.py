"""`salloc`: not offered, and says so."""

from collections.abc import Sequence

from clearway.cli.slurm.arguments import UsageError


def run(_arguments: Sequence[str]) -> int:
    """Refuse."""
    raise UsageError(
        "allocations without a command are not offered: devices would stand idle while nobody types. Use "
        "`srun [options] command`, `sbatch`, or `clearway submit --follow -- command`"
    )
