"""Conversations in requests and in the responses to them."""

import json
from typing import Any

import pytest

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.dialects.responses import Inbound
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import (
    decode_conversation_items,
    decode_create_conversation,
    decode_request,
    decode_update_conversation,
    plain,
)
from openresponses_bridge.protocol.request import CreateResponse, conversation_of
from openresponses_bridge.wire import wire_for


@pytest.mark.parametrize(
    ("given", "found"), [(None, None), ("conv_1", "conv_1"), ({"id": "conv_1"}, "conv_1")]
)
def test_a_conversation_is_named_by_its_id(given: Any, found: str | None) -> None:
    assert conversation_of(CreateResponse(conversation=given)) == found


@pytest.mark.parametrize("given", ["", {}, {"id": ""}, {"id": 1}, {"id": "conv_1", "more": 1}])
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        conversation_of(CreateResponse(conversation=given))
    assert refused.value.param == "conversation"


def test_bodies_are_decoded_with_types_filled_in_and_unknown_fields_kept() -> None:
    items = [{"role": "user", "content": "Hi"}, {"type": "odd:item", "a": 1}]
    body = {"items": items, "metadata": {"a": "b"}, "later": 1}
    conversation = decode_create_conversation(json.dumps(body))
    assert plain(conversation.items)[0]["type"] == "message"
    assert conversation.metadata == {"a": "b"}
    assert conversation.beyond
    added = decode_conversation_items(json.dumps({"items": items}))
    assert plain(added.items) == plain(conversation.items)
    assert decode_update_conversation(b'{"metadata":null}').metadata is None
    for decode, wrong, param in (
        (decode_create_conversation, {"items": [{"role": "user"}]}, "items[0].content"),
        (decode_conversation_items, {}, "items"),
        (decode_update_conversation, {}, "metadata"),
    ):
        with pytest.raises(InvalidRequestError) as refused:
            decode(json.dumps(wrong))
        assert refused.value.param == param


def test_e10_it_is_echoed_where_the_wire_has_it_and_no_upstream_names_another() -> None:
    request = decode_request(b'{"model":"m","input":"Hi","conversation":"conv_1"}')
    assert wire_for(request, {}, "auto") == "openai"
    for wire, shown in (("openai", {"id": "conv_1"}), ("openresponses", None)):
        machine = ResponseStreamStateMachine("m", request, wire=wire)
        theirs = plain(ResponseStreamStateMachine("m").start()[0])
        theirs["response"]["conversation"] = {"id": "conv_theirs"}
        events = Inbound(machine).feed(json.dumps(theirs).encode()) or machine.start()
        events += machine.finish("stop")
        assert [plain(event)["response"].get("conversation") for event in events] == [shown] * len(events)
