"""How servers of one configuration are set up: that of the control plane and further ones alike."""

from clearway.bootstrap.places import only_account
from clearway.server.settings import ServerSettings
from clearway.wire.config import Config


def make_server_settings(config: Config, log_folder: str) -> ServerSettings:
    """Settings of a server. log_folder: see `ServerSettings`."""
    host, port = config.address
    certificate, key = config.tls or (None, None)
    return ServerSettings(
        host=host,
        port=port,
        host_names=config.host_names,
        certificate=certificate,
        private_key=key,
        account=only_account(),
        log_folder=log_folder,
    )
