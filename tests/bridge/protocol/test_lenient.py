"""Other servers' streams: what is corrected, and how that is reported."""

import json
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import fields, replace

from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.codec import decode_event, decode_item, decode_response, encode, event_from
from openresponses_bridge.protocol.fields import fields_of
from openresponses_bridge.protocol.items import FunctionCall, Message
from openresponses_bridge.protocol.lenient import MISSING, Repair
from openresponses_bridge.protocol.response import RESPONSE_DEFAULTS, Response
from openresponses_bridge.protocol.unknown import (
    Unknown,
    UnknownAnnotation,
    UnknownEvent,
    UnknownItem,
    UnknownPart,
    UnknownTool,
)
from openresponses_bridge.protocol.vocabulary import (
    ANNOTATIONS,
    EVENTS,
    FORMATS,
    ITEMS,
    PARTS,
    TOOL_CHOICES,
    TOOLS,
    Slot,
    zero,
)
from tests.support.schema import violations
from tests.support.shared import shared_root

DELTA: dict[str, Any] = {
    "type": "response.output_text.delta", "sequence_number": 1, "item_id": "m", "output_index": 0,
    "content_index": 0, "delta": "a",
}  # fmt: skip
LOGPROB = {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}
FULL: dict[str, Any] = {**RESPONSE_DEFAULTS, "id": "r", "created_at": 1, "model": "m", "status": "completed"}
ADDED: dict[str, Any] = {"type": "response.output_item.added", "sequence_number": 0, "output_index": 0}


def response(**changes: Any) -> dict[str, Any]:
    return {"type": "response.completed", "sequence_number": 0, "response": FULL | changes}


def without(raw: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in names}


# raw, what was repaired, what the event says there now
REPAIRS: list[tuple[str, dict[str, Any], list[tuple[str, str]], dict[str, Any]]] = [
    ("missing number", without(DELTA, "sequence_number"), [("$.sequence_number", MISSING)],
     {"sequence_number": -1}),
    ("missing text", without(DELTA, "delta", "item_id"), [("$.item_id", MISSING), ("$.delta", MISSING)],
     {"delta": "", "item_id": ""}),
    ("null text", DELTA | {"delta": None}, [("$.delta", "Expected `str`, got `null`")], {"delta": ""}),
    ("text of a number", DELTA | {"output_index": "0"}, [("$.output_index", "Expected `int`, got `str`")],
     {"output_index": 0}),
    ("bad optional", DELTA | {"obfuscation": 5}, [("$.obfuscation", "Expected `str`, got `int`")], {}),
    ("logprobs that are an object", DELTA | {"logprobs": {}}, [("$.logprobs",
     "Expected `array`, got `object`")], {}),
    ("logprobs that are null", DELTA | {"logprobs": None}, [("$.logprobs", "Expected `array`, got `null`")],
     {}),
    ("logprobs without bytes", DELTA | {"logprobs": [without(LOGPROB, "bytes")]},
     [("$.logprobs[0].bytes", MISSING)], {"logprobs": [LOGPROB | {"bytes": []}]}),
    ("logprobs with alternatives without bytes",
     DELTA | {"logprobs": [LOGPROB | {"top_logprobs": [{"token": "b", "logprob": -2.0}, 5]}]},
     [("$.logprobs[0].top_logprobs[0].bytes", MISSING),
      ("$.logprobs[0].top_logprobs[1]", "Expected `object`, got `int`")],
     {"logprobs": [LOGPROB | {"top_logprobs": [{"token": "b", "logprob": -2.0, "bytes": []}]}]}),
    ("a response of a few fields", {"type": "response.created", "sequence_number": 0,
     "response": {"id": "r"}},
     [(f"$.response.{at.name}", MISSING) for at in fields(Response) if at.required and at.name != "id"],
     {"response": {**RESPONSE_DEFAULTS, "id": "r", "created_at": 0, "model": "", "status": "in_progress"}}),
    ("no response", {"type": "response.created", "sequence_number": 0}, [("$.response", MISSING)],
     {"response": {**RESPONSE_DEFAULTS, "id": "", "created_at": 0, "model": "", "status": "in_progress"}}),
    ("a response that is a string", {"type": "response.created", "sequence_number": 0, "response": "r"},
     [("$.response", "Expected `object`, got `str`")],
     {"response": {**RESPONSE_DEFAULTS, "id": "", "created_at": 0, "model": "", "status": "in_progress"}}),
    ("usage without details", response(usage={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
     [("$.response.usage.input_tokens_details", MISSING), ("$.response.usage.output_tokens_details",
      MISSING)],
     {"response": FULL | {"usage": {
         "input_tokens": 1, "output_tokens": 2, "total_tokens": 3,
         "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}}}),
    ("usage of floats", response(usage={"input_tokens": 1.5}),
     [("$.response.usage.input_tokens", "Expected `int`, got `float`"),
      *((f"$.response.usage.{name}", MISSING)
        for name in ("output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details"))],
     {"response": FULL | {"usage": {
         "input_tokens": 0, "output_tokens": 0, "total_tokens": 0,
         "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}}}),
    ("penalties that are null", response(top_p=None), [("$.response.top_p", "Expected `float`, got `null`")],
     {"response": FULL}),
    ("a truncation of its own", response(truncation="middle"),
     [("$.response.truncation", "Invalid enum value 'middle', not one of: auto, disabled")],
     {"response": FULL}),
    ("text without a format", response(text={}), [("$.response.text.format", MISSING)], {"response": FULL}),
    ("output that is an object", response(output={"type": "message"}),
     [("$.response.output", "Expected `array`, got `object`")], {"response": FULL}),
    ("output that is null", response(output=None), [("$.response.output", "Expected `array`, got `null`")],
     {"response": FULL}),
    ("items that are not objects", response(output=[5, None, "x"]),
     [("$.response.output[0]", "Expected `object`, got `int`"), ("$.response.output[1]",
      "Expected `object`, got `null`"),
      ("$.response.output[2]", "Expected `object`, got `str`")], {"response": FULL}),
    ("a tool choice that is a list", response(tool_choice=[]),
     [("$.response.tool_choice", "Expected `str | object`, got `array`")], {"response": FULL}),
    ("a tool choice of its own", response(tool_choice="maybe"),
     [("$.response.tool_choice", "Invalid enum value 'maybe', not one of: none, auto, required")],
     {"response": FULL}),
    ("no allowed tools", response(tool_choice={"type": "allowed_tools", "tools": []}),
     [("$.response.tool_choice.tools", "Expected `array` of length >= 1")],
     {"response": FULL | {"tool_choice": {"type": "allowed_tools", "tools": [], "mode": "auto"}}}),
    ("a function tool of a few fields", response(tools=[{"type": "function", "name": "f"}]),
     [(f"$.response.tools[0].{name}", MISSING) for name in ("description", "parameters", "strict")],
     {"response": FULL | {"tools": [
         {"type": "function", "name": "f", "description": None, "parameters": None, "strict": None}]}}),
    ("an item without a type", ADDED | {"item": {"role": "assistant", "id": "m", "status": "completed",
     "content": []}},
     [("$.item.type", MISSING)],
     {"item": {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": []}}),
    ("an item that is a list", ADDED | {"item": [{}]}, [("$.item", "Expected `object | null`, got `array`")],
     {"item": None}),
    ("no item", ADDED, [("$.item", MISSING)], {"item": None}),
    ("a message of a few fields", ADDED | {"item": {"type": "message", "id": "m"}},
     [(f"$.item.{name}", MISSING) for name in ("status", "role", "content")],
     {"item": {"type": "message", "id": "m", "status": "in_progress", "role": "assistant", "content": []}}),
    ("a status of its own", ADDED | {"item": {"type": "function_call", "id": "f", "call_id": "c", "name": "n",
                                              "arguments": "", "status": "searching"}},
     [("$.item.status", "Invalid enum value 'searching', not one of: in_progress, completed, incomplete")],
     {"item": {"type": "function_call", "id": "f", "call_id": "c", "name": "n", "arguments": "",
               "status": "in_progress"}}),
    ("a shell call of nothing", ADDED | {"item": {"type": "shell_call", "id": "s", "call_id": "c",
     "action": {}}},
     [("$.item.action.commands", MISSING)],
     {"item": {"type": "shell_call", "id": "s", "call_id": "c", "action": {"commands": []}}}),
    ("a local shell call of nothing", ADDED | {"item": {"type": "local_shell_call", "id": "s",
     "call_id": "c"}},
     [("$.item.action", MISSING)],
     {"item": {"type": "local_shell_call", "id": "s", "call_id": "c",
               "action": {"command": [], "env": {}, "type": "exec"}}}),
    ("a tool search of nothing", ADDED | {"item": {"type": "tool_search_call", "id": "s"}},
     [("$.item.arguments", MISSING)], {"item": {"type": "tool_search_call", "id": "s", "arguments": None}}),
    ("a part that is missing", {"type": "response.content_part.added", "sequence_number": 0, "item_id": "m",
                                "output_index": 0, "content_index": 0}, [("$.part", MISSING)], {"part": {}}),
    ("a part without its fields", {"type": "response.content_part.added", "sequence_number": 0,
     "item_id": "m",
                                   "output_index": 0, "content_index": 0, "part": {"type": "output_text"}},
     [("$.part.text", MISSING), ("$.part.annotations", MISSING)],
     {"part": {"type": "output_text", "text": "", "annotations": []}}),
    ("an image without detail", {"type": "response.content_part.added", "sequence_number": 0, "item_id": "m",
                                 "output_index": 0, "content_index": 0, "part": {"type": "input_image"}},
     [("$.part.image_url", MISSING), ("$.part.detail", MISSING)],
     {"part": {"type": "input_image", "image_url": None, "detail": "auto"}}),
    ("a part without a type", {"type": "response.content_part.added", "sequence_number": 0, "item_id": "m",
                               "output_index": 0, "content_index": 0, "part": {"text": "a"}},
     [("$.part.type", MISSING)], {"part": {"text": "a"}}),
    ("an error at top level", {"type": "error", "sequence_number": 0, "code": None, "message": "m",
     "param": None}, [],
     {"code": None, "message": "m", "param": None}),
    ("an error that is a text", {"type": "error", "sequence_number": 0, "error": "m"},
     [("$.error", "Expected `object`, got `str`")], {}),
    ("a type that is null", DELTA | {"type": None}, [("$.type", MISSING)], {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "sent", "says"), [case[1:] for case in REPAIRS], ids=[case[0] for case in REPAIRS]
)
def test_what_is_wrong_is_put_right_and_reported(
    raw: dict[str, Any], sent: list[tuple[str, str]], says: dict[str, Any]
) -> None:
    repairs: list[Repair] = []
    event = decode_event(encode(raw), repairs)
    assert sorted(repairs) == sorted(sent)
    now = json.loads(encode(event))
    assert {name: now[name] for name in says} == json.loads(encode(says))
    dropped = {path.removeprefix("$.") for path, _ in sent if "." not in path[2:]} - set(says)
    assert not dropped & set(now) or isinstance(event, UnknownEvent)
    # without a list for the repairs it is read the same
    assert decode_event(encode(raw)) == event


def test_a_repaired_response_is_valid_by_the_published_schema() -> None:
    if shared_root() is None:
        pytest.skip("needs the published document")
    assert violations("ResponseResource", json.loads(encode(decode_response("{}")))) == []


def test_responses_and_items_report_their_repairs_too() -> None:
    repairs: list[Repair] = []
    decode_response(encode(FULL), repairs)
    assert repairs == []
    assert decode_response(encode(without(FULL, "model")), repairs).model == ""
    assert repairs.pop() == Repair("$.model", MISSING)
    assert decode_item(
        '{"type": "message", "id": "m", "status": "completed", "content": []}', repairs
    ) == Message("m", "completed", "assistant", [])
    assert repairs.pop() == Repair("$.role", MISSING)
    call = FunctionCall("f", "c", "n", "", "completed")
    assert decode_item(encode(call), repairs) == call
    assert (
        decode_item(
            '{"id": "f", "call_id": "c", "name": "n", "arguments": "", "status": "completed"}', repairs
        )
        == call
    )
    assert repairs.pop() == Repair("$.type", MISSING)
    assert decode_item('{"id": "f"}', repairs) == UnknownItem({"id": "f"})
    assert repairs == [Repair("$.type", MISSING)]


def test_what_is_too_deep_to_convert_is_dropped() -> None:
    deep: Any = []
    for _ in range(200_000):  # Python 3.14 goes as deep as the stack has room
        deep = [deep]
    repairs: list[Repair] = []
    event = event_from(DELTA | {"obfuscation": deep}, repairs)
    assert repairs == [Repair("$.obfuscation", "JSON is nested too deeply")]
    assert event == ev.OutputTextDelta(1, "m", 0, 0, "a")


# ── what is unknown is kept whole, at every depth ────────────────────────────────────────────────────
EXTENSION = {"type": "acme:x", "deep": {"a": [1, None, {"b": 2.5}]}, "id": "i"}


def message(content: list[Any]) -> dict[str, Any]:
    return {"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": content}


TEXT = {"type": "output_text", "text": "a", "annotations": [EXTENSION], "logprobs": []}
PART_EVENT = {"sequence_number": 0, "item_id": "m", "output_index": 0, "content_index": 0}
KEPT: list[dict[str, Any]] = [
    {"type": "acme:event", "sequence_number": 3, "x": EXTENSION},
    {"type": "response.brand_new.delta", "sequence_number": 3},
    {"type": "no_number"},
    ADDED | {"item": EXTENSION},
    ADDED | {"item": message([EXTENSION])},
    ADDED | {"item": message([TEXT])},
    ADDED | {"item": {"type": "reasoning", "id": "r", "summary": [EXTENSION], "content": [EXTENSION]}},
    ADDED | {"item": {"type": "function_call_output", "id": "o", "call_id": "c", "output": [EXTENSION],
                      "status": "completed"}},
    {"type": "response.content_part.added", **PART_EVENT, "part": EXTENSION},
    {"type": "response.content_part.done", **PART_EVENT, "part": TEXT},
    {"type": "response.reasoning_summary_part.added", **without(PART_EVENT, "content_index"),
     "summary_index": 0,
     "part": EXTENSION},
    {"type": "response.output_text.annotation.added", **PART_EVENT, "annotation_index": 0,
     "annotation": EXTENSION},
    response(output=[EXTENSION, message([TEXT, EXTENSION])], tools=[EXTENSION], tool_choice=EXTENSION),
    response(text={"format": EXTENSION}),
    response(tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [EXTENSION]}),
    response(tools=[{"type": "namespace", "name": "n", "tools": [EXTENSION]}]),
]  # fmt: skip


@pytest.mark.parametrize("raw", KEPT, ids=[f"{i}_{raw['type']}" for i, raw in enumerate(KEPT)])
def test_what_is_unknown_leaves_as_it_came(raw: dict[str, Any]) -> None:
    repairs: list[Repair] = []
    event = decode_event(encode(raw), repairs)
    assert json.loads(encode(event)) == json.loads(encode(raw))
    assert repairs == []


def test_unknowns_know_their_type_and_little_else() -> None:
    item = UnknownItem({"type": "acme:x", "id": "i", "status": "failed"})
    assert (item.type, item.id, item.status) == ("acme:x", "i", "failed")
    odd = UnknownItem({"type": 5, "id": None, "status": []})
    assert (odd.type, odd.id, odd.status) == ("", "", None)
    assert UnknownEvent({"sequence_number": 3}).sequence_number == 3
    assert UnknownEvent({"sequence_number": "3"}).sequence_number == -1
    assert repr(UnknownPart({"type": "a"})) == "UnknownPart({'type': 'a'})"


def test_unknowns_are_equal_when_kind_and_content_are() -> None:
    assert UnknownPart({"a": 1}) == UnknownPart({"a": 1})
    assert UnknownPart({"a": 1}) != UnknownAnnotation({"a": 1})
    assert UnknownPart({"a": 1}) != {"a": 1}
    assert len({UnknownPart({"type": "a"}), UnknownPart({"type": "a"}), UnknownTool({"type": "a"})}) == 2


# ── zero values ──────────────────────────────────────────────────────────────────────────────────────
SLOTS: list[Slot] = [EVENTS, ITEMS, PARTS, ANNOTATIONS, TOOLS, TOOL_CHOICES, FORMATS]
STRUCTS = [struct for slot in SLOTS for struct in slot.structs.values()]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_zero_values_make_a_whole_that_reads_back(struct: type[Any]) -> None:
    """A value of each type out of nothing but zeros is of that type, but for parts that no one can guess."""
    built = struct(**{field.name: zero(struct, field) for field in fields_of(struct) if field.required})
    again: list[Repair] = []
    raw = json.loads(encode(built))
    slot = next(slot for slot in SLOTS if struct in slot.structs.values())
    from openresponses_bridge.protocol.lenient import Repairing, build

    manner = Repairing()
    assert build(slot, raw, manner) == built
    again = [repair for repair in manner.repairs if repair.path not in ("$.part.type", "$.tools")]
    assert again == []


def test_zero_values_are_not_shared_where_they_could_change() -> None:
    one, two = (decode_item('{"type": "shell_call", "action": {}}') for _ in range(2))
    assert one.action.commands is not two.action.commands
    assert isinstance(Unknown({}), Unknown)


def test_an_event_keeps_what_it_came_as_only_where_that_was_repaired() -> None:
    data = encode(without(DELTA, "item_id"))
    event = decode_event(data)
    assert isinstance(event, ev.OutputTextDelta)
    assert event.repaired_from == data
    mended = decode_event(encode(event))
    assert isinstance(mended, ev.OutputTextDelta)
    assert mended.repaired_from is None
    assert (mended, encode(mended), repr(mended)) == (event, encode(event), repr(event))
    assert replace(event, item_id="msg_1").repaired_from is None
    raw = {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0,
           "item": {"type": "acme:thing", "id": "x"}}  # fmt: skip
    whole = decode_event(encode(raw))
    assert isinstance(whole, ev.OutputItemAdded)
    assert whole.repaired_from is None
    raw["item"] = 5
    parsed = event_from(raw)
    assert isinstance(parsed, ev.OutputItemAdded)
    assert parsed.repaired_from is raw


def test_a_field_that_is_read_under_another_name_is_not_an_unknown_one_too() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    for more in ({}, {"seconds": 1.5}):
        read = decode_response(encode(FULL | {"usage": usage | more})).usage
        assert read is not None
        assert (read.input_tokens, read.output_tokens) == (3, 2)
        assert read.extra == (more or UNSET)
