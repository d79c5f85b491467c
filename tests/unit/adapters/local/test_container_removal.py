"""How what a container's tool left behind is taken away, by programs that stand in for the tool."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from clearway.adapters.local.keeper.cgroups import Groups
from clearway.adapters.local.keeper.daemon import REMOVAL_MS, Removal, name_container
from clearway.adapters.local.keeper.messages import Launch
from support.benches import wait_until
from support.keepers import make_launch


class Over:
    """A run whose processes are gone, and the removal of its containers."""

    def __init__(self, *remover):
        groups = Groups("clearway-1", is_forbidden=True)
        self.owned = []
        host = SimpleNamespace(groups=groups, own=lambda pid, _run: self.owned.append(pid))
        self.run = SimpleNamespace(launch=make_launch(remover=remover), host=host)
        self.group = groups.open("5.1")
        self.removal = Removal()

    def advance(self, tick):
        return self.removal.advance(self.run, self.group, tick)

    def await_end(self, tick=1):
        pid = self.removal.pid
        _, status = os.waitpid(pid, 0)
        self.removal.end(status, tick, 5)
        return status


def test_tool_is_told_the_names_of_the_containers_and_then_nothing_is_left_to_do(tmp_path, capsys):
    said = tmp_path / "said"
    over = Over("/bin/sh", "-c", f'echo "$@" > {said}', "sh", "rm", "{container}")
    assert not over.advance(0)
    assert not over.advance(0)
    assert over.owned == [over.removal.pid]
    over.await_end()
    assert over.advance(1)
    assert said.read_text() == "rm clearway-1-5.1.0\n"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("remover", [("/bin/false", "{container}"), ("/no/such/program", "{container}")])
def test_tool_that_fails_holds_up_nobody_and_is_complained_of_once(remover, capsys):
    over = Over(*remover)
    assert not over.advance(0)
    over.await_end()
    assert over.advance(1)
    assert over.advance(100_000)
    assert len(over.owned) == 1
    assert "containers of job 5 left behind may be there still" in capsys.readouterr().err


def test_tool_that_hangs_is_killed(capsys):
    over = Over("/bin/sleep", "600")
    assert not over.advance(0)
    command = Path(f"/proc/{over.removal.pid}/cmdline")
    wait_until(lambda: command.read_bytes().startswith(b"/bin/sleep"), "the tool")
    assert not over.advance(REMOVAL_MS - 1)
    assert not over.advance(REMOVAL_MS)
    assert over.await_end() == signal.SIGKILL
    assert over.advance(REMOVAL_MS + 1)
    assert "signal 9" in capsys.readouterr().err


def test_tool_that_even_sigkill_does_not_end_holds_up_nobody(capsys):
    over = Over("/bin/sleep", "600")
    assert not over.advance(0)
    assert over.advance(2 * REMOVAL_MS)
    os.kill(over.removal.pid, signal.SIGKILL)
    over.await_end()
    capsys.readouterr()


def test_runs_without_containers_wait_for_nothing():
    over = Over()
    assert over.advance(0)
    assert over.owned == []


def test_what_takes_containers_away_is_told_only_where_there_are_some():
    for remover in ((), ("/usr/bin/podman", "rm", "{container}")):
        launch = make_launch(remover=remover)
        message = launch.to_message()
        assert ("remover" in message) == bool(remover)
        assert Launch.of_message(message) == launch


def test_container_has_a_name_that_tools_take_also_below_groups_of_a_user():
    path = "/user.slice/user@1000.service/app.slice/run-u7.scope/clearway-ab12/5.1"
    assert name_container(SimpleNamespace(path=path, mark="5.1"), 0) == "clearway-ab12-5.1.0"
    assert name_container(SimpleNamespace(path="/clearway-ab12/5.1", mark="5.1"), 3) == "clearway-ab12-5.1.3"
    assert name_container(SimpleNamespace(path="", mark="clearway-ab12/5.1"), 1) == "clearway-ab12-5.1.1"
