"""What a journal says of the policy by which is decided: enough to decide so again, whatever becomes of files."""

import json

from clearway.engine.policy import Policy
from clearway.model.errors import InputError
from clearway.model.events import ControlStarted
from clearway.policies.policy_file import describe_policy, make_policy


def begin_deciding(now_ms: int, policy: Policy) -> ControlStarted:
    """The record of a control plane that decides by `policy` from now on."""
    return ControlStarted(now_ms, policy.name, _render_settings(policy))


def _render_settings(policy: Policy) -> str:
    """The policy as JSON; "" for one whose order no file can name, which only programs make."""
    try:
        described = describe_policy(policy)
    except InputError:
        return ""
    return json.dumps(described, sort_keys=True, separators=(",", ":"))


def told_policy(started: ControlStarted) -> Policy | None:
    """The policy that the record tells whole; None where it names one at most. Raises InputError for one that this
    release does not know."""
    if not started.settings:
        return None
    try:
        return make_policy(json.loads(started.settings))
    except (InputError, ValueError) as error:
        raise InputError(
            f"expected the policy {started.policy!r} as this release knows policies, found another: {error}; use the "
            "release that wrote the journal"
        ) from error
