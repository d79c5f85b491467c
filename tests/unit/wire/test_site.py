"""Queues and tenants of a site."""

import pytest

from clearway.model.cluster import QueueSpec, Quota, TenantSpec
from clearway.model.errors import InputError
from clearway.model.units import DAY_MS
from clearway.wire.site import load_site_file, parse_site_file


def parse(text):
    return parse_site_file(text, source="site.yaml")


def refuse(text):
    with pytest.raises(InputError) as caught:
        parse(text)
    return str(caught.value).splitlines()


def test_every_key_of_a_queue_reaches_it():
    text = """
queues:
- {name: urgent, priority: 100, preempts: [production]}
- name: production
  gpus_max: 512
  job_gpus_max: 0.5
  running_max: 100
  time_limit_max: 7d
  time_limit_default: 1-0
"""
    assert parse(text).queues == (
        QueueSpec(name="urgent", priority=100, preempts=("production",)),
        QueueSpec(
            name="production",
            devices_max_milli=512_000,
            job_devices_max_milli=500,
            running_max=100,
            limit_max_ms=7 * DAY_MS,
            limit_default_ms=DAY_MS,
        ),
    )


def test_tenants_come_with_parents_before_their_children():
    text = """
tenants:
- {name: grandchild, parent: child}
- {name: child, parent: team, guaranteed: 8, borrow_max: 0, lend_max: 8}
- {name: team, weight: 2, guaranteed: 64.5}
- {name: other, parent: root}
"""
    assert parse(text).tenants == (
        TenantSpec(name="team", weight=2.0, quota=Quota(guaranteed_milli=64_500)),
        TenantSpec(name="other", parent="root"),
        TenantSpec(
            name="child",
            parent="team",
            quota=Quota(guaranteed_milli=8000, borrow_max_milli=0, lend_max_milli=8000),
        ),
        TenantSpec(name="grandchild", parent="child"),
    )


def test_a_site_file_is_loaded_from_its_path(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("queues: [{name: debug}]", encoding="utf-8")
    assert load_site_file(path).queues == (QueueSpec(name="debug"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tenants:\n- {name: a, parent: b}\n- {name: b, parent: c}\n- {name: c, parent: b}",
            "site.yaml:3: tenants[1].parent: expected parents without a circle, found 'b → c → b'; cut it",
        ),
        (
            "tenants:\n- {name: vision}\n- {name: b, parent: visoin}",
            "site.yaml:3: tenants[1].parent: expected a tenant of this file, found 'visoin'; did you mean 'vision'?",
        ),
        (
            "tenants:\n- {name: a}\n- {name: a}",
            "site.yaml:3: tenants[1].name: expected each name once, found 'a'; rename it",
        ),
        (
            "tenants:\n- {name: a, lend_max: 3}",
            "site.yaml:2: tenants[0].lend_max: expected at most what is `guaranteed`, found 3000; "
            "nobody lends what is not his",
        ),
        (
            "queues:\n- {name: a, preempts: [prod]}\n- {name: production}",
            "site.yaml:2: queues[0].preempts: expected a queue of this file, found 'prod'; did you mean 'production'?",
        ),
        (
            "queues:\n- {name: a, max_time: 1d}",
            "site.yaml:2: queues[0].max_time: expected one of name, priority, gpus_max, job_gpus_max, running_max, "
            "time_limit_max, time_limit_default, preempts, found 'max_time'; did you mean 'time_limit_max'?",
        ),
        (
            "queues:\n- {name: a, time_limit_max: 1d, time_limit_default: 2d}",
            "site.yaml:2: queues[0].time_limit_default: expected at most `time_limit_max`, found 172800000; lower it",
        ),
        (
            "queues:\n- {name: a, gpus_max: true}",
            "site.yaml:2: queues[0].gpus_max: expected a number of devices, such as 8 or 0.5, found True",
        ),
    ],
)
def test_what_contradicts_itself_is_an_error_at_its_key(text, message):
    assert refuse(text) == [message]
