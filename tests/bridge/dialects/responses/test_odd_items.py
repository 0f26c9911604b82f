"""Items with a text in the place of parts, and items that end with another type, name or id than they began
with."""

from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.responses import Inbound, to_responses
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import decode_request, encode
from tests.support.damaged_responses import (
    CheckedResponses,
    Json,
    added,
    argue,
    call,
    created,
    done,
    ended,
    message,
    reasoning,
    response,
    say,
)

# ── text where parts belong ────────────────────────────────────────────────────────────────────────────────
PLACES: dict[str, tuple[Json, str, str]] = {
    "message": (message(), "content", "output_text"),
    "reasoning": (reasoning(), "content", "reasoning_text"),
    "summary": (reasoning(), "summary", "summary_text"),
}
TEXTS: dict[str, Any] = {
    "a string": "Hello",
    "a list of strings": ["Hel", "lo"],
    "a part": {"text": "Hello"},
    "parts without a type": [{"text": "Hel"}, {"text": "lo"}],
    "mixed": ["Hel", {"text": "l"}, "o"],
}


def text_in(item: Json, field: str) -> str:
    return "".join(part["text"] for part in item[field])


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("place", PLACES)
def test_text_where_parts_belong_does_not_vanish(place: str, text: Any) -> None:
    item, field, kind = PLACES[place]
    odd_item = {**item, field: text}
    for frames in (
        [created(), done(odd_item), ended()],
        [created(), ended("completed", odd_item)],
        [{**response("completed", output=[odd_item]), "object": "response"}],
    ):
        fed = CheckedResponses(frames)
        assert [each["type"] for each in fed.output] == [item["type"]]
        assert text_in(fed.output[0], field) == "Hello"
        assert {part["type"] for part in fed.output[0][field]} == {kind}
        noted = fed.repairs
        assert (
            any(field in repair for repair in noted) or "response: required fields missing, filled" in noted
        )
    machine = ResponseStreamStateMachine("m")
    machine.start()
    machine.item(odd_item)
    assert any(f"{item['type']}.{field}" in case.where for case in machine.diagnostics)
    assert "".join(part.text for part in getattr(machine.snapshot.output[0], field)) == "Hello"


def test_a_refusal_without_its_type_is_one_and_nothing_is_made_of_an_empty_string() -> None:
    fed = CheckedResponses([created(), done({**message(), "content": [{"refusal": "No."}]}), ended()])
    assert fed.output[0]["content"] == [{"type": "refusal", "refusal": "No."}]
    assert (
        CheckedResponses([created(), done({**message(), "content": ""}), ended()]).output[0]["content"] == []
    )


# ── junk call ids ──────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("call_id", [7, None, [1], "", " ", "a b", "a\n", "\x00", "\u2028", "x" * 65])
def test_a_call_id_that_no_client_can_send_back_is_replaced_and_noted(call_id: Any) -> None:
    item = call("{}", call_id=call_id)
    fed = CheckedResponses(
        [created(), added({**item, "arguments": ""}), argue("{}"), done(item), ended("completed", item)]
    )
    ((replacement, *_),) = fed.calls
    assert replacement.isprintable()
    assert " " not in replacement
    assert 0 < len(replacement) <= 64
    assert any("call_id" in repair or "tool_call.id" in repair for repair in fed.repairs)
    assert fed.status == "completed"


@pytest.mark.parametrize("call_id", ["call_1", "functions.look:0", "call_1|fc_2", "æ", "x" * 64])
def test_other_call_ids_are_kept(call_id: str) -> None:
    assert CheckedResponses([created(), done(call("{}", call_id=call_id)), ended()]).calls == [
        (call_id, "look", "{}")
    ]


# ── items that end as another ──────────────────────────────────────────────────────────────────────────────
BEGUN = [created(), added(call(status="in_progress")), argue("{}")]


@pytest.mark.parametrize(
    ("field", "value"), [("name", "remove"), ("call_id", "call_other"), ("namespace", "other")]
)
def test_what_a_call_began_as_stands_with_a_warning(field: str, value: str) -> None:
    fed = CheckedResponses([*BEGUN, done({**call("{}"), field: value}), ended()])
    assert fed.calls == [("call_u", "look", "{}")]
    assert fed.notes("warning") == [f"call done: has another {field}, the first is kept"]


CUSTOM: Json = {"type": "custom_tool_call", "id": "fc_u", "call_id": "call_u", "name": "look", "input": "x"}


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("other", [CUSTOM, message("Hi", id="fc_u")], ids=["custom call", "message"])
def test_a_call_that_ends_as_another_type_is_not_run(other: Json, listed: bool) -> None:
    fed = CheckedResponses([*BEGUN, done(other), ended("completed", *([other] if listed else []))])
    assert fed.status == "incomplete"
    assert [(item["type"], item["status"]) for item in fed.output] == [("function_call", "incomplete")]
    assert "response.output_item.done: a function_call ends as another type, which is left out" in fed.notes(
        "loss"
    )


def test_a_message_that_ends_as_a_call_is_no_call() -> None:
    other = call("{}", id="msg_u")
    fed = CheckedResponses(
        [
            created(),
            added(message()),
            say("Hi"),
            done(other),
            say("Ho", 1, "msg_2"),
            ended("completed", other),
        ]
    )
    assert (fed.texts, fed.calls) == (["Hi", "Ho"], [])
    assert fed.notes("loss") == [
        "response.output_item.done: a message ends as another type, which is left out",
        "response.output: an item has another type than it was sent with",
    ]


def test_an_item_of_which_nothing_was_sent_may_still_be_another() -> None:
    fed = CheckedResponses([created(), added(message()), done(call("{}", id="msg_u")), ended()])
    assert fed.calls == [("call_u", "look", "{}")]


@pytest.mark.parametrize("announced", [True, False])
def test_e11_a_name_with_tokens_is_the_function_s_of_the_request(announced: bool) -> None:
    identities = ToolIdentityMap()
    tools = [{"type": "function", "name": "look"}, {"type": "custom", "name": "sql"}]
    to_responses(
        decode_request(encode({"model": "m", "input": "Hi", "tools": tools})), tool_identities=identities
    )
    machine = ResponseStreamStateMachine("m", tool_identities=identities, wire="openai")
    inbound = Inbound(machine)
    called = {"id": "fc_1", "call_id": "c1", "arguments": '{"a":1}', "status": "completed"}
    items = [
        {"type": "function_call", "name": "look<|channel|>commentary", **called},
        {"type": "function_call", "name": "other", **called, "id": "fc_2", "call_id": "c2"},
    ]
    for at, item in enumerate(items if announced else []):
        inbound.feed(encode({"type": "response.output_item.done", "output_index": at, "item": item}))
    inbound.feed(encode({"type": "response.completed", "response": {"status": "completed", "output": items}}))
    assert [each.name for each in machine.snapshot.output] == ["look", "other"]  # type: ignore[union-attr]
    assert [(each.kind, each.where) for each in inbound.diagnostics if "name" in each.where] == [
        ("repair", "tool_call.name")
    ]
