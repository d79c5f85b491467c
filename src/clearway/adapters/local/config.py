"""How the local backend is set up."""

from dataclasses import dataclass, field
from pathlib import Path

from clearway.adapters.local.keeper.host import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConfig:
    """state: directory of the keeper; made with mode 0700 (0711 as root, since jobs of others must reach `jobs`).

    account: user that runs every job; "" = the submitting user, which takes root unless it is oneself. settings: times
    of the keeper. docker_host: where Docker's daemon listens, as DOCKER_HOST says it; "" = the usual place.
    """

    state: Path
    account: str = ""
    settings: Settings = field(default_factory=Settings)
    docker_host: str = ""

    @property
    def jobs_folder(self) -> Path:
        """Where each job gets its CLEARWAY_JOB_DIR."""
        return self.state / "jobs"
