"""Which policy a journal means."""

from dataclasses import replace

import pytest

from clearway.bootstrap.policies import fit_to_pods, recorded_policy
from clearway.model.errors import InputError
from clearway.policies.named import named_policy

CONFIGURED = replace(named_policy("clearway"), name="configured", scan_max=7)


def test_a_journal_means_the_configured_policy_or_a_named_one():
    assert recorded_policy("easy", CONFIGURED) == named_policy("easy")
    assert recorded_policy("configured", CONFIGURED) == CONFIGURED
    assert recorded_policy("", CONFIGURED) == CONFIGURED


def test_a_policy_that_nobody_knows_any_more_is_asked_for_and_not_taken_for_another():
    with pytest.raises(InputError, match="by which the journal was decided, 'of another file', found 'configured'"):
        recorded_policy("of another file", CONFIGURED)


def test_a_named_policy_that_the_configuration_changes_is_the_configured_one():
    changed = replace(CONFIGURED, name="easy")
    assert recorded_policy("easy", changed) == changed


def test_what_was_decided_for_pods_is_decided_again_for_pods():
    for policy in (CONFIGURED, named_policy("clearway")):
        fitted = fit_to_pods(policy)
        assert not any((fitted.preemption.migrate, fitted.preemption.suspend))
        assert recorded_policy(fitted.name, CONFIGURED) == fitted
