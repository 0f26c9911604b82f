"""One table of the items that a client answers."""

from openresponses_bridge.calls.answered import CLIENT_ANSWERS, is_answered_by_client
from openresponses_bridge.dialects.base import continuing
from openresponses_bridge.protocol import input_items
from openresponses_bridge.protocol.codec import item_from

GIVEN = {
    "function_call": {"call_id": "c", "name": "n", "arguments": "{}"},
    "custom_tool_call": {"call_id": "c", "name": "n", "input": "x"},
    "tool_search_call": {"call_id": "c", "arguments": {}, "execution": "client"},
}


def test_calls_are_the_client_s_and_searches_of_the_upstream_are_not() -> None:
    for kind, fields in GIVEN.items():
        assert is_answered_by_client(item_from({"type": kind, "id": "i", **fields}))
    for execution in ({"execution": "server"}, {}):
        search = {"type": "tool_search_call", "id": "i", "call_id": "c", "arguments": {}, **execution}
        assert not is_answered_by_client(item_from(search))
    for kind in ("message", "reasoning", "web_search_call", "function_call_output"):
        assert kind not in CLIENT_ANSWERS


def test_each_answer_is_an_item_of_a_request_and_what_is_left_out_has_one() -> None:
    """A screen can't be made up: a call of a computer without its output is left as it is."""
    known = {
        struct.type for struct in vars(input_items).values() if isinstance(getattr(struct, "type", None), str)
    }
    assert set(CLIENT_ANSWERS.values()) - known == {"computer_call_output"}
    assert continuing._ANSWERS.keys() == CLIENT_ANSWERS.keys() - {"computer_call"}
