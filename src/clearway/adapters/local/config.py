"""How the local backend is set up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clearway.adapters.local.keeper.host import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConfig:
    """state: directory of the keeper; made with mode 0700 (0711 as root, since jobs of others must reach `jobs`).

    jobs: where each job gets its CLEARWAY_JOB_DIR; None = `state`/jobs. account: user that runs every job; "" = the
    submitting user, which takes root unless it is oneself. settings: times of the keeper. extra_environment: for every
    job, such as proxies.
    """

    state: Path
    jobs: Path | None = None
    account: str = ""
    settings: Settings = field(default_factory=Settings)
    extra_environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def jobs_folder(self) -> Path:
        """Where the directories of jobs lie."""
        return self.jobs or self.state / "jobs"
