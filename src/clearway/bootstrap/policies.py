"""Policies by name or from a YAML file."""

from pathlib import Path
from typing import Any, Final

import yaml

from clearway.engine.policy import Policy
from clearway.model.errors import InputError
from clearway.policies.named import POLICY_NAMES, POLICY_SUMMARIES, named_policy
from clearway.policies.policy_file import PolicyError, describe_policy, make_policy
from clearway.wire.documents import load_document

SUFFIXES: Final = (".yaml", ".yml", ".json")


def policy_summaries() -> tuple[tuple[str, str], ...]:
    """(name, one line about it) of every policy."""
    return tuple(POLICY_SUMMARIES.items())


def read_policy(asked: str) -> Policy:
    """The policy of that name, or of that YAML or JSON file. InputError for neither."""
    if asked in POLICY_NAMES:
        return named_policy(asked)
    path = Path(asked)
    if path.suffix not in SUFFIXES:
        known = ", ".join(POLICY_NAMES)
        raise InputError(f"--policy: expected a name or a YAML file, found {asked!r}; names are: {known}")
    document = load_document(path)
    try:
        return make_policy(document.data)
    except PolicyError as error:
        raise InputError(f"{path}:{document.line_of(error.place)}: {error}") from error


def policy_as_mapping(name: str) -> dict[str, Any]:
    """All settings of a policy, as a policy file has them."""
    return describe_policy(read_policy(name))


def render_policy_yaml(name: str) -> str:
    """All settings of a policy as a policy file."""
    return yaml.safe_dump(policy_as_mapping(name), sort_keys=False, allow_unicode=True)
