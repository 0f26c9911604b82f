"""The input as entries: one list with places, whatever dialect it goes out in."""

from openresponses_bridge.dialects.base import HISTORY, entries_of
from openresponses_bridge.protocol.codec import decode_request
from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_bridge.protocol.request import CreateResponse


def test_earlier_turns_come_first_and_have_the_links_place() -> None:
    items = [MessageParam("user", "1"), MessageParam("assistant", "2")]
    request = decode_request(b'{"model":"m","input":[{"role":"user","content":"3"}]}')
    entries = entries_of(request, items)
    assert [getattr(entry.item, "content", None) for entry in entries] == ["1", "2", "3"]
    assert [entry.param for entry in entries] == [HISTORY, HISTORY, "input[0]"]
    assert [entry.where for entry in entries] == ["history[0]", "history[1]", "input[0]"]
    assert [entry.at("content") for entry in entries] == [HISTORY, HISTORY, "input[0].content"]


def test_a_text_is_a_users_message_and_has_no_fields() -> None:
    (entry,) = entries_of(CreateResponse(input="Hi"), ())
    assert entry.item == MessageParam("user", "Hi")
    assert (entry.param, entry.where, entry.at("content")) == ("input", "input", "input")


def test_no_input_is_no_entry() -> None:
    assert entries_of(CreateResponse(), ()) == entries_of(CreateResponse(input=[]), ()) == []
