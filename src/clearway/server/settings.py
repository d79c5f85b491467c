"""How a server listens and what it bounds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clearway.model.errors import InputError
from clearway.wire.api import BODY_BYTES_MAX
from clearway.wire.config import is_loopback

PORT_DEFAULT: Final = 8642


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """host, port: where to listen; port 0 = any free one. host_names: more names by which clients may call it.

    log_folder: where a backend collects what jobs write, as JOB/REPLICA.log; "" = each writes its own files.
    certificate, private_key: PEM files for TLS; None = none. account: as whom all jobs run; "" = each as its user.
    heartbeat_s: silence on a stream before a sign of life. log_poll_s: between looks at a log that is followed.
    answer_s: longest wait for the control plane. reader_threads: requests that read the storage at once. streams_max:
    events and logs followed at once.
    """

    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    host_names: tuple[str, ...] = ()
    certificate: Path | None = None
    private_key: Path | None = None
    account: str = ""
    log_folder: str = ""
    body_bytes_max: int = BODY_BYTES_MAX
    heartbeat_s: float = 15.0
    log_poll_s: float = 0.25
    answer_s: float = 30.0
    reader_threads: int = 4
    streams_max: int = 1_000

    @property
    def has_tls(self) -> bool:
        """Whether the server speaks HTTPS only."""
        return self.certificate is not None and self.private_key is not None


def check_listen_address(host: str, *, has_tls: bool, has_auth: bool) -> None:
    """Raise InputError for an address that others can reach, unless it is protected."""
    if is_loopback(host):
        return
    missing = [name for name, there in (("TLS", has_tls), ("authentication", has_auth)) if not there]
    if missing:
        raise InputError(
            f"expected TLS and authentication to listen at {host or 'every address'!r}, which others can reach, "
            f"found no {' and no '.join(missing)}; give a certificate and its key, or listen at 127.0.0.1 and let "
            f"others come by ssh"
        )
