"""Which configuration is in force, and the policy that it names."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clearway.model.errors import InputError
from clearway.wire.config import Config, load_config

if TYPE_CHECKING:
    from clearway.engine.policy import Policy

CONFIG_VARIABLE: Final = "CLEARWAY_CONFIG"
NAMES: Final = ("clearway.yaml", "clearway.yml", "clearway.toml", "clearway.json")


def find_config_file(environment: Mapping[str, str], asked: Path | None) -> Path | None:
    """What was asked for, or the environment names, or a file in the user's or the system's folder; None = none."""
    if asked is not None:
        return asked
    if environment.get(CONFIG_VARIABLE):
        return Path(environment[CONFIG_VARIABLE]).expanduser()
    base = environment.get("XDG_CONFIG_HOME", "")
    own = (Path(base) if base.startswith("/") else Path.home() / ".config") / "clearway"
    places = (folder / name for folder in (own, Path("/etc/clearway")) for name in NAMES)
    return next((place for place in places if place.is_file()), None)


def read_config_file(path: Path | None) -> Config:
    """The configuration of a file, its policy checked too; defaults for None. Raises InputError."""
    if path is None:
        return Config()
    config = load_config(path)
    resolve_policy(config)
    return config


def resolve_policy(config: Config) -> "Policy":
    """The policy that the configuration names, refers to, or holds. Raises InputError with the line."""
    from clearway.bootstrap.policies import read_policy
    from clearway.policies.named import POLICY_NAMES
    from clearway.policies.policy_file import PolicyError, make_policy

    asked, document = config.policy, config.document
    line = document.line_of(("policy",)) if document is not None else 0
    try:
        if isinstance(asked, str):
            is_name = asked in POLICY_NAMES or document is None
            return read_policy(asked if is_name else _beside(config.source, asked))
        if isinstance(asked, dict):
            return make_policy({"name": "configured", **asked})
    except PolicyError as error:
        assert document is not None
        line = document.line_of(("policy", *error.place))
        raise InputError(f"{config.source}:{line}: policy: {error}") from error
    except InputError as error:
        raise InputError(f"{config.source}:{line}: policy: {error}") from error
    raise InputError(f"{config.source}:{line}: policy: expected a name, a path or settings, found {asked!r}")


def _beside(source: str, asked: str) -> str:
    """A path as seen from the file that names it. What has no ending of a file is a mistyped name: left as it is."""
    return str(Path(source).parent / asked) if Path(asked).suffix else asked
