"""The hub: everyone gets what comes after the place where he was, and is told when some of it is gone."""

import asyncio

import pytest

from clearway.ports.control import Notice
from clearway.server import events
from clearway.server.access import find_reach
from clearway.server.auth import Identity, Role
from clearway.server.events import Hub, show_notice
from support.fake_control import FakeControl


@pytest.fixture
def control():
    return FakeControl(tenants={"vision": None})


@pytest.fixture
def hub(control):
    return Hub(control, life="now")


def tell(control, count=1):
    for number in range(count):
        control.tell("job", "vision", {"number": number})


def read_all(hub, position):
    position, is_lost, notices = hub.read(position)
    return [notice.seq for notice in notices], is_lost


def test_who_names_no_place_begins_behind_all_there_are(control, hub):
    tell(control, 3)
    position, is_lost, place = hub.position_after("")
    tell(control)
    assert hub.position_after(place) == (position, False, place), "what came since is not lost to who comes back"
    assert (read_all(hub, position), is_lost) == (([4], False), False)


@pytest.mark.parametrize(("seq", "rest"), [(0, [1, 2, 3]), (1, [2, 3]), (3, [])])
def test_who_names_his_last_notice_goes_on_behind_it(control, hub, seq, rest):
    tell(control, 3)
    position, is_lost, _ = hub.position_after(hub.name_place(seq))
    assert (read_all(hub, position), is_lost) == ((rest, False), False)


@pytest.mark.parametrize(
    "last_id", ["now.4", "before.2", "2", "now.", "now.x", "now.-1", ".", "now." + "9" * 30, "now.²"]
)
def test_a_place_of_another_life_or_of_none_is_a_gap(control, hub, last_id):
    tell(control, 3)
    position, is_lost, place = hub.position_after(last_id)
    assert (read_all(hub, position), is_lost) == (([], False), True)
    assert not hub.position_after(place)[1], "from there on it is none"


def test_a_place_before_the_first_notice_is_good(control, hub):
    _, _, place = hub.position_after("")
    assert hub.position_after(place) == (0, False, place)
    tell(control, 2)
    assert hub.position_after(place) == (0, False, place)


def test_what_is_forgotten_is_a_gap(control, monkeypatch):
    monkeypatch.setattr(events, "KEPT_MAX", 3)
    hub = Hub(control, life="now")
    tell(control, 5)
    assert hub.position_after("now.1")[1], "2 is forgotten"
    assert not hub.position_after("now.2")[1]
    assert read_all(hub, 0) == ([3, 4, 5], True)


def test_a_follower_is_given_so_many_at_a_time(control, hub, monkeypatch):
    monkeypatch.setattr(events, "BATCH_MAX", 2)
    tell(control, 3)
    position, _, notices = hub.read(0)
    assert (position, len(notices)) == (2, 2)
    assert hub.read(position)[0] == 3


def test_a_notice_from_another_thread_wakes_all_followers_once(control, hub):
    async def follow():
        hub.open(asyncio.get_running_loop())
        followers = [hub.join() for _ in range(3)]
        await asyncio.to_thread(tell, control, 100)
        await asyncio.gather(*(asyncio.wait_for(follower.wait(), 5) for follower in followers))
        hub.leave(followers[0])
        hub.close()
        return [follower.is_set() for follower in followers]

    assert asyncio.run(follow()) == [True] * 3


def test_a_closed_hub_hears_no_more_and_can_be_closed_again(control, hub):
    hub.close()
    hub.close()
    tell(control)
    assert read_all(hub, 0) == ([], False)
    assert hub.is_closed


def test_only_kinds_that_were_asked_for_are_shown():
    reach = find_reach(Identity(user="x", role=Role.OPERATOR), ())
    notice = Notice(seq=1, at_ms=2, kind="job", tenant="vision", data={})
    assert show_notice(notice, reach, frozenset({"job"})) is not None
    assert show_notice(notice, reach, frozenset({"node"})) is None
