"""The policies that users' scripts name."""

import pytest

from clearway.engine.policy import PreemptMode, RuntimeSource
from clearway.model.errors import InputError
from clearway.policies.named import CONSERVATIVE_DEPTH, POLICY_NAMES, POLICY_SUMMARIES, named_policy


def test_names_are_those_that_scripts_rely_on():
    assert " ".join(POLICY_NAMES) == "fifo easy conservative sjf srpt las gittins multifactor deadline clearway"


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_each_policy_carries_its_name_and_one_line_about_it(name):
    assert named_policy(name).name == name
    assert named_policy(name) == named_policy(name)
    summary = POLICY_SUMMARIES[name]
    assert summary.endswith(".")
    assert "\n" not in summary


def test_backfill_is_one_loop_with_one_number():
    depths = {name: named_policy(name).backfill.reservation_depth for name in ("fifo", "easy", "conservative")}
    assert depths == {"fifo": 0, "easy": 1, "conservative": CONSERVATIVE_DEPTH}
    assert [name for name in POLICY_NAMES if named_policy(name).backfill.strict] == ["fifo"]


def test_only_srpt_is_clairvoyant():
    assert [name for name in POLICY_NAMES if named_policy(name).runtime is RuntimeSource.ORACLE] == ["srpt"]


def test_policies_preempt_as_their_papers_do():
    by_order = [name for name in POLICY_NAMES if named_policy(name).preemption.mode is PreemptMode.ORDER]
    assert by_order == ["srpt", "las", "gittins"]
    assert named_policy("clearway").preemption.mode is PreemptMode.PRIORITY


def test_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match=r"expected one of fifo, .*found 'multifacter'; did you mean 'multifactor'\?"):
        named_policy("multifacter")
