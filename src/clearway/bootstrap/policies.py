"""Policies by name or from a YAML file, and as a backend can carry them out."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from clearway.engine.policy import Policy
from clearway.model.errors import InputError
from clearway.policies.named import POLICY_NAMES, POLICY_SUMMARIES, named_policy
from clearway.policies.policy_file import PolicyError, describe_policy, make_policy
from clearway.wire.documents import load_document

SUFFIXES: Final = (".yaml", ".yml", ".json")

FOR_PODS: Final = " for pods"
"""Ends the name of a policy that is fitted to pods, so that a journal says by which one was decided."""


def fit_to_pods(policy: Policy) -> Policy:
    """The policy without what pods cannot do: they are started and evicted, not moved or frozen."""
    preemption = replace(policy.preemption, migrate=False, suspend=False)
    return replace(policy, name=policy.name + FOR_PODS, preemption=preemption)


def recorded_policy(name: str, configured: Policy) -> Policy:
    """The policy of which a journal holds the name alone: the configured one, else one of the named ones. Raises
    InputError for another.

    name: "" = a journal that names none, which means the configured one.
    """
    plain = name.removesuffix(FOR_PODS)
    if plain not in ("", configured.name, *POLICY_NAMES):
        raise InputError(
            f"expected the policy by which the journal was decided, {plain!r}, found {configured.name!r}; name the "
            "configuration that has it by CLEARWAY_CONFIG"
        )
    policy = configured if plain in ("", configured.name) else named_policy(plain)
    return fit_to_pods(policy) if name.endswith(FOR_PODS) else policy


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
