"""The token file: who is in it is known, who is not is not, and a file that others could read is not trusted."""

import json
import os
import stat

import pytest

from clearway.model.errors import InputError
from clearway.server.auth import (
    AuthFileError,
    Identity,
    Role,
    TokenFile,
    add_user,
    expire_user,
    make_token_file,
    read_token_file,
    revoke_user,
)

NOW_MS = 1_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "tokens.json"


@pytest.fixture
def operator_token(path):
    return make_token_file(path, user="root-of-all", unix_user="root")


def known_by(path):
    return TokenFile(path, lambda: NOW_MS)


def test_the_first_token_is_an_operators(path, operator_token):
    assert known_by(path).identify(operator_token) == Identity(
        user="root-of-all", role=Role.OPERATOR, unix_user="root", expires_ms=None
    )


def test_the_file_is_private_and_holds_no_token(path, operator_token):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert operator_token not in text
    assert operator_token.rpartition("_")[2] not in text


def test_a_file_that_is_there_is_not_overwritten(path, operator_token):
    with pytest.raises(InputError, match="expected no file, found one"):
        make_token_file(path, user="second")
    assert known_by(path).identify(operator_token)


def test_a_user_is_known_with_his_role_and_tenants(path, operator_token):
    token = add_user(path, user="ada", role=Role.USER, tenants=("vision",))
    identity = known_by(path).identify(token)
    assert (identity.user, identity.role, identity.tenants, identity.unix_user) == ("ada", "user", ("vision",), "ada")


@pytest.mark.parametrize(
    "token",
    ["", "cw", "cw_", "cw__", "nonsense", "cw_0123456789ab_secret", "\udcff", "cw_" + "a" * 1000, "Bearer x"],
)
def test_what_is_no_token_is_nobodys(path, operator_token, token):
    assert known_by(path).identify(token) is None


def test_a_token_that_is_altered_by_one_letter_is_nobodys(path, operator_token):
    for place in range(len(operator_token)):
        altered = operator_token[:place] + ("x" if operator_token[place] != "x" else "y") + operator_token[place + 1 :]
        assert known_by(path).identify(altered) is None, place


def test_a_token_ends_when_its_time_has_come(path, operator_token):
    token = add_user(path, user="ada", role=Role.USER, tenants=("vision",), expires_ms=NOW_MS)
    later = add_user(path, user="ada", role=Role.USER, tenants=("vision",), expires_ms=NOW_MS + 1)
    assert known_by(path).identify(token) is None
    assert known_by(path).identify(later) is not None
    assert expire_user(path, user="ada", expires_ms=NOW_MS) == 2
    assert known_by(path).identify(later) is None


def test_a_revoked_token_is_good_for_nothing_at_once(path, operator_token):
    token = add_user(path, user="ada", role=Role.USER, tenants=("vision",))
    known = known_by(path)
    assert known.identify(token)
    assert revoke_user(path, user="ada") == 1
    assert known.identify(token) is None
    assert known.identify(operator_token)


def test_the_last_operator_cannot_be_revoked(path, operator_token):
    with pytest.raises(InputError, match="expected another operator"):
        revoke_user(path, user="root-of-all")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604, 0o601, 0o700, 0o400])
def test_a_file_of_another_mode_is_refused(path, operator_token, mode):
    known = known_by(path)
    os.chmod(path, mode)
    with pytest.raises(AuthFileError, match=f"expected mode 0600, found {mode:04o}"):
        read_token_file(path)
    with pytest.raises(AuthFileError):
        known.identify(operator_token)
    os.chmod(path, 0o600)
    assert known.identify(operator_token)


def test_a_link_is_refused(path, operator_token, tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to(path)
    with pytest.raises(AuthFileError, match="expected a token file"):
        read_token_file(link)


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(AuthFileError, match="plain file"):
        read_token_file(tmp_path / "pipe")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_owner_is_refused(path, operator_token):
    os.chown(path, 12_345, -1)
    with pytest.raises(AuthFileError, match="found uid 12345"):
        read_token_file(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "tokens": []}',
        '{"version": 1, "tokens": [{}]}',
        '{"version": 1, "tokens": [{"id": "a", "sha256": "b", "user": "c", "role": "god"}]}',
        '{"version": 1, "tokens": "all"}',
    ],
)
def test_a_file_of_something_else_is_refused(path, operator_token, text):
    path.write_text(text)
    with pytest.raises(AuthFileError):
        read_token_file(path)


def test_a_file_that_is_gone_lets_nobody_in(path, operator_token):
    known = known_by(path)
    path.unlink()
    with pytest.raises(AuthFileError):
        known.identify(operator_token)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"user": ""}, "expected a name"),
        ({"user": "a\nb"}, "expected a name"),
        ({"user": "a" * 300}, "expected a name"),
        ({"unix_user": "\0"}, "expected a name"),
        ({"tenants": ("",)}, "expected a name"),
        ({"tenants": ()}, "expected at least one tenant"),
        ({"role": Role.VIEWER, "tenants": ()}, "expected at least one tenant"),
    ],
)
def test_a_user_who_could_not_be_named_or_placed_is_refused(path, operator_token, fields, message):
    before = path.read_bytes()
    with pytest.raises(InputError, match=message):
        add_user(path, **{"user": "ada", "role": Role.USER, "tenants": ("vision",), **fields})
    assert path.read_bytes() == before


def test_an_interrupted_change_leaves_the_file_as_it_was(path, operator_token, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        add_user(path, user="ada", role=Role.USER, tenants=("vision",))
    assert path.read_bytes() == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["tokens.json", "tokens.json.lock"]


def test_two_tokens_differ_and_are_long(path, operator_token):
    tokens = [add_user(path, user="ada", role=Role.USER, tenants=("vision",)) for _ in range(20)]
    assert len(set(tokens)) == 20
    assert all(len(token.split("_", 2)[2]) >= 43 for token in tokens)
    assert len(json.loads(path.read_text())["tokens"]) == 21
