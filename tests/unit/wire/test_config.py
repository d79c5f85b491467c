"""Configuration files: everything has a default, every mistake has a line and a hint, secrets are not shown."""

from pathlib import Path

import pytest

from clearway.model.cluster import LinkSpec
from clearway.model.errors import InputError
from clearway.wire.config import Config, ConfigModel, is_loopback, load_config, parse_config, parse_listen
from clearway.wire.configtext import EXAMPLE, describe_config, mask_url

YAML = """\
state_dir: /var/lib/clearway
listen: 127.0.0.1:8000
cluster: 2x8:V100
kill_wait: 5s
queues:
  - {name: urgent, priority: 100, preempts: [production]}
  - {name: production, time_limit_max: 2d}
tenants:
  - {name: vision, guaranteed: 4}
users:
  - {name: ada, tenant: vision, role: operator}
"""

TOML = """\
state_dir = "/var/lib/clearway"
listen = "127.0.0.1:8000"
cluster = "2x8:V100"
kill_wait = "5s"
tenants = [{name = "vision", guaranteed = 4}]

[[queues]]
name = "urgent"
priority = 100
preempts = ["production"]

[[queues]]
name = "production"
time_limit_max = "2d"

[[users]]
name = "ada"
tenant = "vision"
role = "operator"
"""


def mistakes_of(text: str, source: str = "c.yaml") -> list[str]:
    with pytest.raises(InputError) as caught:
        parse_config(text, source=source)
    return str(caught.value).splitlines()


def test_nothing_is_the_default_configuration():
    assert parse_config("", source="c.yaml") == Config()
    assert parse_config("# only a comment\n", source="c.toml") == Config()


def test_toml_says_the_same_as_yaml():
    assert parse_config(TOML, source="c.toml") == parse_config(YAML, source="c.yaml")


def test_what_is_written_is_what_is_meant():
    config = parse_config(YAML, source="c.yaml")
    assert config.address == ("127.0.0.1", 8000)
    assert config.cluster.device_count == 16
    assert config.kill_wait_ms == 5_000
    assert [queue.name for queue in config.site.queues] == ["urgent", "production"]
    assert config.users[0].tenant == "vision"


def test_the_example_is_a_configuration():
    config = parse_config(EXAMPLE, source="example.yaml")
    assert [queue.name for queue in config.site.queues] == ["debug", "production", "urgent"]


def test_the_example_names_every_key_and_no_other():
    keys = {line.lstrip("# ").split(":")[0] for line in EXAMPLE.splitlines() if ":" in line}
    assert (
        {key for key in keys if key.isidentifier()} == set(describe_config(Config())) == set(ConfigModel.model_fields)
    )


def test_every_mistake_of_a_file_is_told_with_its_line():
    text = "listen: 127.0.0.1:99999\nqueus: []\nretries: -1\nkill_wait: 5\nlog_level: loud\n"
    mistakes = mistakes_of(text)
    assert [mistake.split(": ")[0] for mistake in mistakes] == [f"c.yaml:{line}" for line in (1, 2, 3, 4, 5)]
    assert "did you mean 'queues'?" in mistakes[1]


def test_a_mistake_in_toml_has_the_line_of_its_key():
    text = 'listen = "127.0.0.1:8000"\n\n[[queues]]\nname = "a"\n\n[[queues]]\nname = "b"\npriority = "high"\n'
    assert mistakes_of(text, "c.toml") == [
        "c.toml:8: queues[1].priority: expected a whole number, found 'high'; write digits without quotes"
    ]


def test_broken_toml_has_a_line():
    assert mistakes_of("listen = 1\nretries = = 3\n", "c.toml")[0].startswith("c.toml:2: expected TOML, found: ")
    assert mistakes_of('listen = "a', "c.toml")[0].startswith("c.toml:1: ")


def test_what_looks_like_a_key_inside_a_long_text_is_none():
    text = 'state_dir = """\nretries = 7\n"""\nretries = -1\n'
    assert mistakes_of(text, "c.toml")[0].startswith("c.toml:4: retries: ")


@pytest.mark.parametrize("listen", ["0.0.0.0:80", "[::]:80", "gpu1.example:80"])
def test_a_public_address_needs_tls(listen):
    assert "expected TLS for a public address" in mistakes_of(f'listen: "{listen}"')[0]
    tls = "tls: {certificate: c.pem, key: k.pem}"
    assert parse_config(f'listen: "{listen}"\n{tls}', source="c.yaml").tls == (Path("c.pem"), Path("k.pem"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "localhost", "127.9.9.9"])
def test_loopback_is_recognised(host):
    assert is_loopback(host)


def test_a_port_alone_is_on_loopback():
    assert parse_listen(7000) == ("127.0.0.1", 7000)
    assert parse_listen("[::1]:7000") == ("::1", 7000)
    assert parse_config("listen: 7000", source="c.yaml").listen == "127.0.0.1:7000"


def test_a_user_needs_a_tenant_that_exists():
    assert mistakes_of("tenants: [{name: vision}]\nusers: [{name: a, tenant: vison}]") == [
        "c.yaml:2: users[0].tenant: expected a tenant of this file, found 'vison'; did you mean 'vision'?"
    ]


def test_links_stand_by_themselves_or_in_the_cluster():
    alone = parse_config("links: {site: {bandwidth_gbps: 25, latency_us: 8}, node: {bandwidth_gbps: 450}}", source="c")
    assert alone.links == (
        ("node", LinkSpec(bandwidth_gbps=450, latency_us=0)),
        ("site", LinkSpec(bandwidth_gbps=25, latency_us=8)),
    )
    inside = parse_config("cluster: {nodes: [{name: a, gpus: 8}], links: {site: {bandwidth_gbps: 1}}}", source="c")
    assert inside.links == (("site", LinkSpec(bandwidth_gbps=1, latency_us=0)),)
    assert "links.rack" in mistakes_of("links: {rack: {bandwidth_gbps: 25}}")[0]


def test_devices_and_cluster_exclude_each_other():
    assert "leave one out" in mistakes_of("devices: 4\ncluster: 1x4")[0]


def test_virtual_nodes_in_place_of_devices_are_told_where_they_belong():
    assert "write `cluster: 2x4:V100`" in mistakes_of("devices: 2x4:V100")[0]


def test_virtual_devices_of_this_machine_may_have_a_model():
    devices = parse_config("devices: V100:4", source="c.yaml").devices
    assert (devices.model, devices.count) == ("V100", 4)
    assert parse_config("devices: auto", source="c.yaml").devices is None


def test_nodes_are_written_as_in_a_cluster_file():
    text = "cluster:\n  nodes:\n    - {name: a, gpus: A100:8, cpus: 64}\n    - {name: b, gpus: 99}\n"
    assert mistakes_of(text)[0].startswith("c.yaml:4: cluster.nodes[1].gpus")


def test_a_missing_file_is_told_with_what_to_do(tmp_path):
    with pytest.raises(InputError, match="clearway config example"):
        load_config(tmp_path / "none.yaml")


def test_passwords_are_not_shown():
    config = parse_config("database_url: postgresql+psycopg://ada:secret@db/clearway", source="c.yaml")
    shown = str(describe_config(config))
    assert "secret" not in shown
    assert "ada:***@db" in shown
    assert mask_url(None) == ""
