"""Where a control plane keeps its things, and in whose name."""

import os
import pwd
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from clearway.bootstrap.live import take_lock
from clearway.bootstrap.places import Places, Running, current_user, is_running, write_running
from clearway.cli.app import app
from clearway.model.errors import InputError
from clearway.server.auth import make_token_file, read_token_file

NAMELESS = 3_999_999_999
"""A user id that no machine gives a name."""


def test_a_user_without_a_name_goes_by_its_number(monkeypatch):
    assert current_user() == pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: NAMELESS)
    assert current_user() == str(NAMELESS)


def test_whether_a_control_plane_runs_is_told_by_its_lock(tmp_path):
    places = Places(tmp_path)
    assert not is_running(places)
    lock = take_lock(places)
    assert is_running(places)
    os.close(lock)
    assert not is_running(places)


@pytest.fixture
def stranger():
    """A process that has the number of a control plane that was killed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_what_a_killed_control_plane_left_behind_has_no_stranger_stopped(tmp_path, stranger):
    write_running(Places(tmp_path), Running(url="http://127.0.0.1:1", pid=stranger.pid))
    ended = CliRunner().invoke(app, ["down", "--state-dir", str(tmp_path)])
    assert ended.exit_code == 0
    assert "No control plane runs here" in ended.output
    assert stranger.poll() is None


def test_users_are_added_by_the_configuration_of_the_control_plane_that_runs(tmp_path, monkeypatch):
    monkeypatch.delenv("CLEARWAY_CONFIG", raising=False)
    places, config = Places(tmp_path), tmp_path / "its.yaml"
    config.write_text("tenants: [{name: vision}]\ndefault_tenant: vision\n")
    make_token_file(places.tokens, user="root")
    write_running(places, Running(url="http://127.0.0.1:1", pid=1, config=str(config)))
    assert CliRunner().invoke(app, ["users", "add", "ada", "--state-dir", str(tmp_path)]).exit_code == 0
    assert [entry.tenants for entry in read_token_file(places.tokens)] == [(), ("vision",)]


def test_state_directory_that_cannot_be_made_is_an_error_that_says_what_to_do(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"expected a folder that .* may write, found Not a directory; choose another"):
        take_lock(Places(tmp_path / "file" / "state"))
