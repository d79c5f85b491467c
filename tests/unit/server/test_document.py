"""docs/api.md names the routes, permissions and statuses that there are."""

import re

from clearway import client
from clearway.client.errors import make_error
from clearway.server.access import ROUTES
from clearway.server.auth import Role
from clearway.wire.api import ApiProblem
from support.source_rules import ROOT

TEXT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def test_the_table_of_routes_is_that_of_the_server():
    rows = re.findall(r"^\| `([A-Z]+) (/[^`]*)` \| ([a-z.]+) \|$", TEXT, re.MULTILINE)
    assert [((method, path), needed) for method, path, needed in rows] == list(ROUTES.items())


def test_every_role_is_explained():
    assert re.findall(r"^\| ([a-z_]+) \| ", TEXT, re.MULTILINE)[1:5] == list(Role)


def test_the_table_of_errors_is_that_of_the_client():
    for statuses, name in re.findall(r"^\| ([0-9, ]+) \| `(\w+)`", TEXT, re.MULTILINE):
        for status in statuses.split(", "):
            error = make_error(ApiProblem(title="", status=int(status), detail="x"))
            assert type(error) is getattr(client, name), status
