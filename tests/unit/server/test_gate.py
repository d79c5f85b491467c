"""What every request passes: the host by which it came, and headers that go with every answer."""

import pytest

from clearway.model.errors import InputError
from clearway.server.settings import ServerSettings, check_listen_address
from clearway.wire.api import API
from support.served import asked, make_site


def status_of(site, host):
    with asked(site) as web:
        return web.request("GET", f"{API}/whoami", headers={**site.bearer("op"), "Host": host}).status_code


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8642", "localhost:1", "LOCALHOST", "[::1]:8642", "127.8.8.8"])
def test_a_server_on_loopback_answers_to_names_of_loopback(site, host):
    assert status_of(site, host) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8642", "10.0.0.1", "", "[::2]", "0.0.0.0", "@"],
)
def test_a_name_that_was_made_to_point_here_is_refused(site, host):
    assert status_of(site, host) == 421


def test_a_name_that_the_operator_gave_is_taken(tmp_path):
    site = make_site(tmp_path, settings=ServerSettings(host_names=("dgx.example",)))
    assert status_of(site, "dgx.example:8642") == 200
    assert status_of(site, "evil.example") == 421


@pytest.mark.parametrize(("names", "host", "status"), [((), "any.example", 200), (("a.example",), "b.example", 421)])
def test_a_public_server_answers_to_its_names_or_to_any(tmp_path, names, host, status):
    site = make_site(tmp_path, settings=ServerSettings(host="10.0.0.1", host_names=names))
    assert status_of(site, host) == status


def test_a_token_file_that_others_can_read_lets_nobody_in_and_is_told_in_the_log_once(site, ask, caplog):
    site.token_file.chmod(0o644)
    assert [ask("op", "GET", f"{API}/whoami").status_code for _ in range(3)] == [503] * 3
    assert [record.levelname for record in caplog.records if "expected mode 0600" in record.getMessage()] == ["ERROR"]
    site.token_file.chmod(0o600)
    assert ask("op", "GET", f"{API}/whoami").status_code == 200


def test_no_answer_is_kept_framed_or_shared_with_other_pages(ask):
    for path in ("/health", f"{API}/jobs", f"{API}/nothing"):
        answer = ask("op", "GET", path, headers={"Origin": "https://evil.example"})
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_preflight_of_another_page_gets_nothing(ask):
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    assert ask("", "OPTIONS", f"{API}/jobs", headers=headers).status_code == 401


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_loopback_needs_no_tls(host):
    check_listen_address(host, has_tls=False, has_auth=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "dgx.example", "128.0.0.1", "localhost.example"])
@pytest.mark.parametrize(
    ("has_tls", "has_auth", "missing"),
    [
        (False, True, "found no TLS;"),
        (True, False, "found no authentication;"),
        (False, False, "found no TLS and no authentication;"),
    ],
)
def test_an_address_that_others_reach_needs_tls_and_authentication(host, has_tls, has_auth, missing):
    with pytest.raises(InputError, match=missing):
        check_listen_address(host, has_tls=has_tls, has_auth=has_auth)
    check_listen_address(host, has_tls=True, has_auth=True)
