"""Server-sent events are read back as they were written, however the network cuts them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from clearway.client.sse import Message, parse_messages
from clearway.server.streams import HEARTBEAT, make_message


def test_a_message_ends_at_an_empty_line():
    assert list(parse_messages([b"id: 7\nevent: job\ndata: a\ndata: b\n\n"])) == [Message("7", "job", "a\nb")]


def test_comments_and_unknown_fields_say_nothing():
    assert list(parse_messages([HEARTBEAT, b"retry: 5\n\n", b":\n", b"data\n\n"])) == [Message("", "message", "")]


def test_the_last_id_holds_until_there_is_another():
    messages = parse_messages([b"id: 1\ndata: a\n\n", b"data: b\r\n\r\n", b"id\ndata: c\n\n"])
    assert [message.id for message in messages] == ["1", "1", ""]


def test_a_message_that_was_cut_off_is_dropped():
    assert list(parse_messages([b"data: a\n\ndata: b\n"])) == [Message("", "message", "a")]


values = st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none(), st.lists(st.text())), max_size=4)


@given(st.lists(values, max_size=5), st.integers(1, 20))
def test_what_was_written_is_read_back_whatever_the_cuts(written, size):
    stream = b"".join(make_message("job", data, f"life.{number}") + HEARTBEAT for number, data in enumerate(written))
    parts = [stream[begin : begin + size] for begin in range(0, len(stream), size)]
    messages = list(parse_messages(parts))
    assert [json.loads(message.data) for message in messages] == written
    assert [message.id for message in messages] == [f"life.{number}" for number in range(len(written))]
