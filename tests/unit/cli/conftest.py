"""Commands in this process against a server over a control plane in memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway.cli.slurm.main import run_slurm_command
from support.fake_control import FakeControl
from support.served import make_site, running


@dataclass(frozen=True)
class Typed:
    """How a Slurm-named command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Desk:
    """Where commands are typed."""

    control: FakeControl
    become: Callable[[str], None]
    slurm: Callable[..., Typed]

    def clearway(self, *words: str) -> Result:
        return CliRunner().invoke(app, ["--language", "en", *words])


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    """Whoever types is ada, a user of the tenant vision, until a test becomes somebody else."""
    site = make_site(tmp_path)

    def slurm(*words: str) -> Typed:
        code = run_slurm_command(words[0], words[1:])
        return Typed(code, *capfd.readouterr())

    with running(site) as server:
        monkeypatch.setenv("CLEARWAY_URL", server.url)
        desk = Desk(site.control, lambda user: monkeypatch.setenv("CLEARWAY_TOKEN", site.tokens[user]), slurm)
        desk.become("ada")
        yield desk
