"""Databases of every kind for contract tests; each test gets an empty one."""

import pytest

from support.servers import MariaServer, PostgresServer, RedisServer, running


@pytest.fixture(scope="session")
def postgresql():
    with running(PostgresServer) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb():
    with running(MariaServer) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server():
    with running(RedisServer) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request, tmp_path):
    """The URL of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    server = request.getfixturevalue(request.param)
    return server.url(server.make_database())


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request):
    """A database server of each kind in turn; who ends it starts it again."""
    return request.getfixturevalue(request.param)
