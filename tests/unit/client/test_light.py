"""Quick commands rest on the client: what it loads is what each of them waits for."""

import subprocess
import sys

import pytest

HEAVY = ("numpy", "numba", "pydantic", "fastapi", "httpx", "rich", "typer", "asyncio", "sqlalchemy", "yaml")


def loaded_by(statement):
    program = f"{statement}; import sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()


def test_importing_the_client_loads_nothing_heavy():
    assert loaded_by("import clearway.client") == []


@pytest.mark.parametrize("name", ["sbatch", "squeue", "sinfo", "scancel", "sacct", "scontrol"])
def test_commands_that_run_in_loops_load_nothing_heavy(name):
    assert loaded_by(f"import clearway.cli.connection, clearway.cli.slurm.main, clearway.cli.slurm.{name}") == []


@pytest.mark.parametrize("name", ["numpy", "asyncio"])
def test_what_is_heavy_would_be_found(name):
    assert name in loaded_by(f"import {name}")
