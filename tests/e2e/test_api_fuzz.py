"""What schemathesis makes of the OpenAPI description, within its bounds and beyond them, never meets an error of the
server's own, and every answer is one that the description names."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from clearway.ports.views import JobState
from clearway.server.access import ROUTES
from clearway.wire.api import API
from support.fake_control import NOW_MS
from support.served import make_site, running
from support.stored import make_view

EXAMPLES = 12
"""Of each operation and mode: some 30 s of one core in all."""

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

OPERATIONS = sorted(
    f"{method} {path}"
    for method, path in ROUTES
    if not path.endswith(("/events", "/follow", "/openapi.json"))  # the first two do not end by themselves
)

MODES = [
    (label, mode)
    for label in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE
    or "{" in label
    or label.endswith(("jobs", "counts", "audit"))
    or "/jobs/" in label
]
"""Without parameters and body there is nothing to do wrong."""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    site = make_site(folder)
    (folder / "out.log").write_text("hello\n")
    for number in range(1, 6):
        fields = {"state": JobState.RUNNING, "start_ms": NOW_MS, "submit_ms": NOW_MS, "user": "ada"}
        site.control.put(make_view(number, tenant="vision", workdir=str(folder), output="out.log", **fields))
    with running(site) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}{API}/openapi.json")
        operations = {result.ok().label: result.ok() for result in schema.get_all_operations()}
        yield operations, site.bearer("op")


@pytest.mark.parametrize(("label", "mode"), MODES)
def test_no_request_breaks_the_server(served, label, mode):
    operations, headers = served

    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operations[label].as_strategy(generation_mode=mode))
    def check(case):
        response = case.call(headers=headers)
        case.validate_response(response, checks=CHECKS)

    check()
