"""A configuration as people read it: what is in force, without secrets, and an example to start from."""

import re
from typing import Any, Final

from clearway.model.cluster import LinkSpec, QueueSpec, TenantSpec
from clearway.model.units import MILLI
from clearway.wire.config import Config
from clearway.wire.units import render_duration

_PASSWORD: Final = re.compile(r"(?<=://)([^:/@\s]*):[^@\s]*@")

EXAMPLE: Final = """\
# Configuration of Clearway. Everything may be left out; what stands here after `#` is the default.
# `clearway config check FILE` finds mistakes, `clearway config show` prints what is in force.
# Queues, tenants and the policy are taken over without a restart by `clearway config reload` or SIGHUP.

# state_dir: ~/.local/state/clearway      # journal, tokens, output of jobs without a directory of their own
# listen: 127.0.0.1:8642                  # a public address needs `tls`
# host_names: [dgx.example.org]           # by which clients may call it besides its address, such as behind a proxy
# tls: {certificate: /etc/clearway/cert.pem, key: /etc/clearway/key.pem}
# database_url: sqlite in state_dir       # or postgresql+psycopg://..., mariadb+pymysql://...
# redis_url: none                         # carries the present state to further servers: `clearway serve`
# redis_prefix: clearway                  # of keys there; one for each control plane that shares a Redis

# policy: clearway                        # a name of `clearway policies`, a policy file, or its settings right here

# devices: auto                           # GPUs by NVML, else one virtual device per CPU; 8 or V100:8 = virtual ones
# visible_devices: index                  # how CUDA_VISIBLE_DEVICES names GPUs; or uuid
# power_budget: 2kW                       # what all devices may draw together; they are capped, or wait
# cluster: 2x8:V100                       # or several virtual nodes; also `{nodes: [...]}` as in a cluster file

# links: none                             # how fast devices reach one another, by level, as in a cluster file:
                                          # {node: {bandwidth_gbps: 450}, site: {bandwidth_gbps: 25, latency_us: 8}}

queues:
  - {name: debug, priority: 50, job_gpus_max: 1, time_limit_max: 30m}
  - {name: production, time_limit_default: 1d}
  - {name: urgent, priority: 100, preempts: [production, debug]}

tenants:
  - {name: vision, weight: 2}
  - {name: language, weight: 1}

users:                                    # whom to expect; tokens are made by `clearway users add NAME`
  - {name: ada, tenant: vision, role: user}
  - {name: grace, tenant: language, role: tenant_admin}
# default_tenant: root                    # of users that are not listed

# kill_wait: 30s                          # between SIGTERM and SIGKILL at a time limit or a cancel
# retries: 3                              # failed starts before a job is held
# log_level: info
# kubernetes: {shared_folder: none, shared_claim: none}   # what pods of submitted jobs see at the same path
# kubernetes: {lease: none, lease_duration: 15s}          # NAMESPACE/NAME, where several replicas take turns
"""


def describe_config(config: Config) -> dict[str, Any]:
    """Every setting as plain data, in the words of the file. Passwords in URLs are masked."""
    cluster: Any = "none"
    if config.cluster is not None:
        nodes = config.cluster.nodes
        cluster = {"nodes": len(nodes), "devices": config.cluster.device_count}
    devices = config.devices
    return {
        "state_dir": str(config.state_dir) if config.state_dir else "default",
        "listen": config.listen,
        "host_names": list(config.host_names),
        "tls": {"certificate": str(config.tls[0]), "key": str(config.tls[1])} if config.tls else "none",
        "database_url": mask_url(config.database_url) or "sqlite in state_dir",
        "redis_url": mask_url(config.redis_url) or "none",
        "redis_prefix": config.redis_prefix,
        "policy": config.policy,
        "devices": "auto" if devices is None else f"{devices.model + ':' if devices.model else ''}{devices.count}",
        "visible_devices": config.visible_devices,
        "power_budget": config.power_budget_watts,
        "cluster": cluster,
        "links": {level: _describe_link(link) for level, link in config.links} or "none",
        "queues": [_describe_queue(queue) for queue in config.site.queues],
        "tenants": [_describe_tenant(tenant) for tenant in config.site.tenants],
        "users": [{"name": user.name, "tenant": user.tenant, "role": user.role} for user in config.users],
        "default_tenant": config.default_tenant,
        "kill_wait": render_duration(config.kill_wait_ms),
        "retries": config.retries,
        "log_level": config.log_level,
        "kubernetes": {
            "shared_folder": config.shared_folder or "none",
            "shared_claim": config.shared_claim or "none",
            "lease": config.lease or "none",
            "lease_duration": render_duration(config.lease_ms),
        },
    }


def mask_url(url: str | None) -> str:
    """The URL with `***` for a password; "" for None."""
    return _PASSWORD.sub(r"\1:***@", url) if url else ""


def _describe_queue(queue: QueueSpec) -> dict[str, Any]:
    described: dict[str, Any] = {"name": queue.name, "priority": queue.priority}
    for key, milli in (("gpus_max", queue.devices_max_milli), ("job_gpus_max", queue.job_devices_max_milli)):
        if milli is not None:
            described[key] = milli / MILLI
    if queue.running_max is not None:
        described["running_max"] = queue.running_max
    for key, time_ms in (("time_limit_max", queue.limit_max_ms), ("time_limit_default", queue.limit_default_ms)):
        if time_ms is not None:
            described[key] = render_duration(time_ms)
    if queue.preempts:
        described["preempts"] = list(queue.preempts)
    return described


def _describe_link(link: LinkSpec) -> dict[str, float]:
    return {"bandwidth_gbps": link.bandwidth_gbps, "latency_us": link.latency_us}


def _describe_tenant(tenant: TenantSpec) -> dict[str, Any]:
    described: dict[str, Any] = {"name": tenant.name, "weight": tenant.weight}
    if tenant.parent is not None:
        described["parent"] = tenant.parent
    if tenant.quota is not None:
        quota = tenant.quota
        amounts = (
            ("guaranteed", quota.guaranteed_milli),
            ("borrow_max", quota.borrow_max_milli),
            ("lend_max", quota.lend_max_milli),
        )
        described.update({key: milli / MILLI for key, milli in amounts if milli is not None})
    return described
