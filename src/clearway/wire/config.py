"""The configuration of a control plane (YAML, JSON or TOML), checked like a job file: lines, hints, no unknown key.

    state_dir: /var/lib/clearway
    listen: 127.0.0.1:8642
    policy: clearway                      # a name, the path of a policy file, or its settings right here
    cluster: 2x8:V100                     # virtual devices; or nodes as in a cluster file; or leave it out
    queues: [{name: urgent, priority: 100, preempts: [production]}, {name: production}]
    tenants: [{name: vision, guaranteed: 4, borrow_max: 4}]
    users: [{name: ada, tenant: vision}]

Everything has a default: an empty file, or none, is a control plane on this machine's own devices. `queues` and
`tenants` are those of a site file, `cluster` and `devices` those of a cluster file. What `policy` says is resolved by
whoever knows policies; its place in the file is kept for messages.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import pydantic

from clearway.model.cluster import ClusterSpec, LinkSpec, QueueSpec
from clearway.model.errors import InputError
from clearway.model.ids import DEFAULT_QUEUE, ROOT_TENANT, QueueName, TenantName
from clearway.model.jobs import DomainLevel
from clearway.model.units import SECOND_MS
from clearway.wire import cluster as cluster_file
from clearway.wire import site as site_file
from clearway.wire.configtoml import parse_toml_document
from clearway.wire.documents import Document, parse_document, validate_document
from clearway.wire.problems import NOTHING, ParseError, Problem, raise_problems, suggest_name
from clearway.wire.schema import Count, Name, Schema, Text, Word, convert
from clearway.wire.units import DeviceRequest, Scalar, parse_devices, parse_duration, parse_power

DEFAULT_LISTEN: Final = "127.0.0.1:8642"
"""Loopback only."""

LEASE_MS_MIN: Final = 2 * SECOND_MS
"""A leader must renew several times in the duration, over a network that may be slow."""

RETRIES_MAX: Final = 1_000

DEFAULT_QUEUES: Final = (
    QueueSpec(name=QueueName("debug"), priority=50),
    QueueSpec(name=DEFAULT_QUEUE),
    QueueSpec(name=QueueName("urgent"), priority=100, preempts=(DEFAULT_QUEUE, QueueName("debug"))),
)
"""Queues of a control plane whose configuration names none."""

SYNONYMS: Final[Mapping[str, str]] = {
    **cluster_file.SYNONYMS,
    **site_file.SYNONYMS,
    **dict.fromkeys(("database", "db", "storage", "database_uri"), "database_url"),
    **dict.fromkeys(("redis", "redis_uri"), "redis_url"),
    **dict.fromkeys(("bind", "address", "host", "port"), "listen"),
    **dict.fromkeys(("data_dir", "StateSaveLocation", "state"), "state_dir"),
    **dict.fromkeys(("KillWait", "killwait"), "kill_wait"),
    **dict.fromkeys(("gpus", "gpu"), "devices"),
    **dict.fromkeys(("max_retries", "backoff_limit"), "retries"),
    **dict.fromkeys(("loglevel", "log"), "log_level"),
    **dict.fromkeys(("cert", "certificate_file"), "certificate"),
    **dict.fromkeys(("private_key", "key_file"), "key"),
}


def _read_delay(value: Scalar) -> int:
    """A time that may be 0."""
    return 0 if value == 0 and not isinstance(value, bool) else parse_duration(value)


def _read_listen(value: object) -> str:
    """`host:port`, `port` or `[v6]:port`, as host:port."""
    parse_listen(value)
    text = str(value)
    return f"127.0.0.1:{text}" if text.isdigit() else text


def parse_listen(value: object) -> tuple[str, int]:
    """(host, port) of `127.0.0.1:8642`, `[::1]:8642` or `8642` (on loopback). Port 0 = any free one. ParseError."""
    expected = "an address such as 127.0.0.1:8642, [::1]:8642, or a port"
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    match = re.fullmatch(r"(?:(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):)?([0-9]{1,5})", text)
    if match is None or int(match[2]) > 65_535:
        raise ParseError(expected=expected, found=value, hint="ports go from 0 to 65535")
    return (match[1] or "127.0.0.1").strip("[]"), int(match[2])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`, a name or an address; one of IPv6 may stand in brackets."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _read_url(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z][a-z0-9+.-]*://\S*", value):
        hint = "such as postgresql+psycopg://user@host/clearway, mariadb+pymysql://..., sqlite:///path, redis://host"
        raise ParseError(expected="a URL", found=value, hint=hint)
    return value


def _read_prefix(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9._:-]{1,100}", value):
        raise ParseError(expected="a prefix of letters, digits and . _ : -", found=value, hint="such as clearway-east")
    return value


def _read_own_devices(value: Scalar) -> DeviceRequest | str:
    """`auto`, or so many virtual devices, perhaps of a model."""
    if value == "auto":
        return "auto"
    if re.match(r"[0-9]+x[0-9]", str(value)):
        expected = "devices of this machine, such as 4 or V100:4"
        raise ParseError(expected=expected, found=value, hint=f"for virtual nodes write `cluster: {value}`")
    return parse_devices(value)


class TlsModel(Schema):
    """Files in PEM form."""

    certificate: Word
    key: Word


class UserModel(Schema):
    """A user whom the control plane knows by its configuration. Tokens are made by `clearway users add`."""

    name: Name
    tenant: Name = ROOT_TENANT
    role: Literal["viewer", "user", "tenant_admin", "operator"] = "user"


class KubernetesModel(Schema):
    """What pods of submitted jobs get. shared_folder: seen by all of them at the same path; of each node, or of the
    PersistentVolumeClaim `shared_claim` in the job's namespace. lease: NAMESPACE/NAME, of several replicas."""

    shared_folder: Annotated[str, pydantic.Field(pattern=r"^(/[^/\x00]+)+$")] | None = None
    shared_claim: Name | None = None
    lease: Annotated[str, pydantic.Field(pattern=r"^[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}$")] | None = None
    lease_duration: Annotated[int, convert(_read_delay), pydantic.Field(ge=LEASE_MS_MIN)] = 15 * SECOND_MS

    @pydantic.model_validator(mode="after")
    def _check_folder(self) -> Self:
        if self.shared_claim and not self.shared_folder:
            raise ParseError(expected="`shared_folder` with a `shared_claim`", found=NOTHING, field="shared_folder")
        return self


class ConfigModel(site_file.SiteModel):
    """A configuration file."""

    state_dir: Word | None = None
    listen: Annotated[str, convert(_read_listen)] = DEFAULT_LISTEN
    host_names: tuple[Text, ...] = ()
    tls: TlsModel | None = None
    database_url: Annotated[str | None, convert(_read_url)] = None
    redis_url: Annotated[str | None, convert(_read_url)] = None
    redis_prefix: Annotated[str, convert(_read_prefix)] = "clearway"
    policy: object = "clearway"
    devices: Annotated[object, convert(_read_own_devices)] = "auto"
    visible_devices: Literal["index", "uuid"] = "index"
    cluster: cluster_file.ClusterModel | None = None
    links: dict[DomainLevel, cluster_file.LinkModel] = pydantic.Field(default_factory=dict)
    power_budget: Annotated[int | None, convert(parse_power)] = None
    users: tuple[UserModel, ...] = ()
    default_tenant: Name = ROOT_TENANT
    kill_wait: Annotated[int, convert(_read_delay)] = 30 * SECOND_MS
    retries: Annotated[Count, pydantic.Field(le=RETRIES_MAX)] = 3
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    kubernetes: KubernetesModel = KubernetesModel()

    @pydantic.model_validator(mode="after")
    def _check_users(self) -> Self:
        tenants = {tenant.name for tenant in self.tenants} | {str(ROOT_TENANT)}
        asked = [(f"users.{place}.tenant", user.tenant) for place, user in enumerate(self.users)]
        for place, tenant in [*asked, ("default_tenant", self.default_tenant)]:
            if tenant not in tenants:
                hint = suggest_name(tenant, tenants) or "add it to `tenants`"
                raise ParseError(expected="a tenant of this file", found=tenant, hint=hint, field=place)
        site_file.check_unique("users", [user.name for user in self.users])
        return self

    @pydantic.model_validator(mode="after")
    def _check_lease(self) -> Self:
        if self.kubernetes.lease and (self.database_url or "sqlite").startswith("sqlite"):
            hint = "replicas share their journal: give postgresql://... or mariadb://..."
            expected = "a database server with `lease`"
            raise ParseError(expected=expected, found=self.database_url or NOTHING, hint=hint, field="database_url")
        return self

    @pydantic.model_validator(mode="after")
    def _check_address(self) -> Self:
        host, _ = parse_listen(self.listen)
        if self.tls is None and not is_loopback(host):
            hint = "give `tls: {certificate: ..., key: ...}`, or listen on 127.0.0.1"
            raise ParseError(expected="TLS for a public address", found=self.listen, hint=hint, field="listen")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDefaults:
    """role: as in UserModel."""

    name: str
    tenant: TenantName
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a control plane is to be. Times in milliseconds; None = chosen by whoever starts it.

    host_names: by which clients may call the server besides its address. policy: a name, a path, or the settings of a
    policy file. devices: virtual devices of this machine; None = those that the machine has. cluster: virtual nodes
    instead; None = this machine is the only node. visible_devices: how CUDA_VISIBLE_DEVICES names GPUs, by `index` or
    `uuid`. links: how fast a device reaches others, by level; () = not known. power_budget_watts: of all devices
    together; None = any amount. shared_folder, shared_claim: for pods of submitted jobs; "" = none. lease, lease_ms: of
    several control planes over one Kubernetes cluster; "" = there is one alone. document: what was read, for messages;
    None = defaults.
    """

    state_dir: Path | None = None
    listen: str = DEFAULT_LISTEN
    host_names: tuple[str, ...] = ()
    tls: tuple[Path, Path] | None = None
    database_url: str | None = None
    redis_url: str | None = None
    redis_prefix: str = "clearway"
    policy: object = "clearway"
    devices: DeviceRequest | None = None
    visible_devices: str = "index"
    cluster: ClusterSpec | None = None
    links: tuple[tuple[str, LinkSpec], ...] = ()
    power_budget_watts: int | None = None
    site: site_file.Site = field(default_factory=lambda: site_file.Site(DEFAULT_QUEUES, ()))
    users: tuple[UserDefaults, ...] = ()
    default_tenant: TenantName = ROOT_TENANT
    kill_wait_ms: int = 30 * SECOND_MS
    retries: int = 3
    log_level: str = "info"
    shared_folder: str = ""
    shared_claim: str = ""
    lease: str = ""
    lease_ms: int = 15 * SECOND_MS
    document: Document | None = field(default=None, repr=False, compare=False)

    @property
    def address(self) -> tuple[str, int]:
        """(host, port)."""
        return parse_listen(self.listen)

    @property
    def source(self) -> str:
        """The file's name in messages; "" = there is none."""
        return "" if self.document is None else self.document.source


def load_config(path: Path) -> Config:
    """The configuration of a file; TOML by the ending `.toml`. Raises InputError, also where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        hint = "check the path, or write one with `clearway config example`"
        raise InputError(f"{path}: expected a configuration file, found nothing; {hint}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a readable UTF-8 text file, found: {error}") from error
    return parse_config(text, source=str(path))


def parse_config(text: str, *, source: str) -> Config:
    """The configuration that `text` holds; TOML where `source` ends in `.toml`. Raises InputError with all errors.

    An empty file is the default configuration.
    """
    parse = parse_toml_document if source.endswith(".toml") else parse_document
    document = parse(text, source=source)
    if document.data is None:
        document = Document(source, {}, document.lines, document.texts)
    short, rest = _take_short_cluster(document)
    model = validate_document(rest, ConfigModel, synonyms=SYNONYMS)
    return _make_config(model, short, document)


def _take_short_cluster(document: Document) -> tuple[ClusterSpec | None, Document]:
    """The cluster where it is given in short form, and the document without it."""
    if not isinstance(document.data, dict) or not isinstance(document.data.get("cluster"), str):
        return None, document
    line = document.line_of(("cluster",))
    try:
        short = cluster_file.parse_cluster_short(document.data["cluster"])
    except InputError as error:
        raise InputError(f"{document.source}:{line}: cluster: {error}") from error
    rest = {key: value for key, value in document.data.items() if key != "cluster"}
    return short, Document(document.source, rest, document.lines, document.texts)


def _make_config(model: ConfigModel, short: ClusterSpec | None, document: Document) -> Config:
    cluster = short if model.cluster is None else cluster_file.make_cluster(model.cluster)
    devices = model.devices if isinstance(model.devices, DeviceRequest) else None
    _check_machine(cluster, devices, document)
    site = site_file.make_site(model)
    return Config(
        state_dir=Path(model.state_dir).expanduser() if model.state_dir else None,
        listen=model.listen,
        host_names=model.host_names,
        tls=(Path(model.tls.certificate), Path(model.tls.key)) if model.tls else None,
        database_url=model.database_url,
        redis_url=model.redis_url,
        redis_prefix=model.redis_prefix,
        policy=model.policy,
        devices=devices,
        visible_devices=model.visible_devices,
        cluster=cluster,
        links=cluster_file.make_links(model.links) or (cluster.links if cluster else ()),
        power_budget_watts=model.power_budget or (cluster.power_budget_watts if cluster else None),
        site=site if site.queues else replace(site, queues=DEFAULT_QUEUES),
        users=tuple(
            UserDefaults(name=user.name, tenant=TenantName(user.tenant), role=user.role) for user in model.users
        ),
        default_tenant=TenantName(model.default_tenant),
        kill_wait_ms=model.kill_wait,
        retries=model.retries,
        log_level=model.log_level,
        shared_folder=model.kubernetes.shared_folder or "",
        shared_claim=model.kubernetes.shared_claim or "",
        lease=model.kubernetes.lease or "",
        lease_ms=model.kubernetes.lease_duration,
        document=document,
    )


def _check_machine(cluster: ClusterSpec | None, devices: DeviceRequest | None, document: Document) -> None:
    if cluster is not None and devices is not None:
        problem = Problem(
            source=document.source,
            line=document.line_of(("devices",)),
            field="devices",
            expected="`devices` (of this machine alone) or `cluster` (virtual nodes)",
            found="both",
            hint="leave one out",
        )
        raise_problems([problem])
