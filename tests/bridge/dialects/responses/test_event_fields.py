"""Every field of the published events, from an upstream of Responses to a client of it (law N1). A field that
is new in the document fails here by its name, until it arrives or has a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_bridge.dialects import anthropic_messages, chat_completions, gemini
from openresponses_bridge.dialects.responses import Inbound
from openresponses_bridge.protocol.codec import encode
from tests.support.machines import machine, plain
from tests.support.schema import event_schemas
from tests.support.schema_fields import SchemaFields
from tests.support.sdk_fields import assert_none_is_silent

Json = dict[str, Any]
TEXT, JSON = "so", "{}"
NAMED: Json = {
    "id": "x_1", "item_id": "x_1", "call_id": "c1", "name": "look", "arguments": JSON, "role": "assistant",
    "delta": TEXT, "text": TEXT, "refusal": TEXT, "status": "completed", "total_tokens": 6,
    **dict.fromkeys(("sequence_number", "output_index", "content_index", "summary_index"), 0),
    "annotation_index": 0, "start_index": 0, "end_index": 1,
    "response": {},  # `test_sdk_fields.py` has the fields of responses
}  # fmt: skip
PAYLOADS: Json = {
    "content": [], "summary": [], "arguments": "", "status": "in_progress",
    "text": "", "refusal": "", "annotations": [], "logprobs": [],
}  # fmt: skip
"""What an item or a part has when it is added (law E4)."""
PARTS = {
    "message.content": ("output_text", "refusal"),
    "reasoning.content": ("reasoning_text",),
    "reasoning.summary": ("summary_text",),
    "content_part.part": ("output_text", "refusal", "reasoning_text"),
    "reasoning_summary_part.part": ("summary_text",),
}
"""The document allows any part in any item; a model's answer has these."""
PADDING = "padding of the upstream's stream; the server's own is its own"
ROWS = {
    "response.queued": "a response that is being made is in progress",
    "response.output_item.added.item.reasoning.encrypted_content": "it comes with the whole item",
    "response.output_text.delta.obfuscation": PADDING,
    "response.reasoning.delta.obfuscation": PADDING,
    "response.reasoning_summary_text.delta.obfuscation": PADDING,
    "response.function_call_arguments.delta.obfuscation": PADDING,
}
ITEM: Json = {"id": "x_1", "status": "completed"}
ITEMS: dict[str, Json] = {
    "output_text": ITEM | {"type": "message", "role": "assistant"},
    "refusal": ITEM | {"type": "message", "role": "assistant"},
    "reasoning_text": ITEM | {"type": "reasoning", "summary": []},
    "summary_text": ITEM | {"type": "reasoning"},
    "call": ITEM | {"type": "function_call", "call_id": "c1", "name": "look", "arguments": JSON},
}
"""The type of a part → the item with it; and a call."""
OF_PARTS: dict[str, Json] = {
    "output_text": {"type": "output_text", "text": TEXT, "annotations": []},
    "refusal": {"type": "refusal", "refusal": TEXT},
    "reasoning_text": {"type": "reasoning_text", "text": TEXT},
    "summary_text": {"type": "summary_text", "text": TEXT},
}
HOLDERS = {"summary_text": "summary"}
KINDS = {
    "refusal": "refusal",
    "reasoning": "reasoning_text",
    "reasoning_summary_part": "summary_text",
    "reasoning_summary_text": "summary_text",
    "function_call_arguments": "call",
}
"""The middle of an event's type → what it is about, which is text for all others."""
PLACE: Json = {"item_id": "x_1", "output_index": 0, "content_index": 0}
OF_SUMMARY: Json = {"item_id": "x_1", "output_index": 0, "summary_index": 0}


def events_of_part(kind: str, part: Json) -> list[Json]:
    """The events of such a part, or of a call."""
    if kind == "call":
        place = {"item_id": "x_1", "output_index": 0}
        return [
            {"type": "response.function_call_arguments.delta", **place, "delta": JSON},
            {"type": "response.function_call_arguments.done", **place, "arguments": JSON},
        ]
    place = OF_SUMMARY if kind == "summary_text" else PLACE
    outer = "reasoning_summary_part" if kind == "summary_text" else "content_part"
    inner = {"reasoning_text": "reasoning", "summary_text": "reasoning_summary_text"}.get(kind, kind)
    return [
        {"type": f"response.{outer}.added", **place, "part": emptied(part)},
        {"type": f"response.{inner}.delta", **place, "delta": TEXT},
        {"type": f"response.{inner}.done", **place, "refusal" if kind == "refusal" else "text": TEXT},
        {"type": f"response.{outer}.done", **place, "part": part},
    ]


def emptied(value: Json) -> Json:
    """The item or part as it is when it is added."""
    return value | {name: each for name, each in PAYLOADS.items() if name in value}


def stream_with(event: Json) -> list[Json]:
    """A stream in which this event may stand, with it."""
    kind = event["type"]
    item, about = event.get("item"), KINDS.get(kind.split(".")[1] if "." in kind else "", "output_text")
    part = event.get("part") or {}
    if item is not None:
        (part,) = item.get("content") or item.get("summary") or [{}]
        about = "call" if item["type"] == "function_call" else part.get("type", "")
    about = part.get("type", about)
    part = part or OF_PARTS.get(about, {})
    if item is None:
        item = ITEMS[about] | ({HOLDERS.get(about, "content"): [part]} if part else {})
    frames = [
        {"type": "response.output_item.added", "output_index": 0, "item": emptied(item)},
        *(events_of_part(about, part) if about else ()),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    ends = kind if last(kind) in ("completed", "failed", "incomplete") else "response.completed"
    head = {"id": "resp_9", "object": "response", "created_at": 1, "model": "m"}
    stream: list[Json] = [
        {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}},
        *frames,
        {"type": ends, "response": {**head, "status": last(ends), "output": [item]}},
    ]
    places = {"error": -1, "response.queued": 1, "response.in_progress": 1}
    places["response.output_text.annotation.added"] = 4
    if kind in places:
        stream.insert(places[kind], event)
    return [event if each["type"] == kind else each for each in stream]


def last(kind: str) -> str:
    return kind.rpartition(".")[2]


def samples() -> Iterator[tuple[str, Json]]:
    needed = {
        "Message": ITEMS["output_text"] | {"content": [OF_PARTS["output_text"]]},
        "ReasoningBody": ITEMS["reasoning_text"],
    }
    for kind, schema in event_schemas().items():
        usual = OF_PARTS["summary_text" if "summary" in kind else "output_text"]
        typed = SchemaFields(NAMED, needed | ({schema: {"part": usual}} if "_part." in kind else {}))
        for path, event in typed.of(schema):
            if kind.endswith(".added") and len(path) > 1 and path[1] in PAYLOADS:
                continue
            named = list(names(path, event))
            if all(is_own(*named[at : at + 3]) for at in range(len(named) - 2)):
                yield ".".join((kind, *named[1:])), as_sent(kind, event)


def names(path: tuple[str, ...], event: Json) -> Iterator[str]:
    """What the event is about, and the path with the types of the objects in it."""
    value: Any = event
    yield event["type"].split(".")[1] if "." in event["type"] else "error"
    for name in path:
        yield name
        value = value.get(name) if isinstance(value, dict) else None
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, dict) and name in ("item", "part", "content", "summary", "output"):
            yield str(value.get("type"))


def is_own(holder: str, name: str, kind: str) -> bool:
    return kind in PARTS.get(f"{holder}.{name}", (kind,))


def as_sent(kind: str, event: Json) -> Json:
    """The event as a server sends it."""
    if "response" in event:
        event["response"] = {"status": "in_progress" if last(kind) == "created" else last(kind)}
    if "arguments" in kind and "delta" in event:
        event["delta"] = JSON
    for within in {"item", "part"} & event.keys() if kind.endswith(".added") else ():
        event[within] = emptied(event[within])
    return event


def passed_on(event: Json) -> tuple[Json, list[str]]:
    """The event of the same type that a client gets of a stream with this one."""
    stream = machine()
    inbound = Inbound(stream)
    frames = [{**each, "sequence_number": number} for number, each in enumerate(stream_with(event))]
    sent = [plain(sent_event) for frame in frames for sent_event in inbound.feed(encode(frame))]
    sent += [plain(sent_event) for sent_event in inbound.close()]
    report = [str(case) for case in stream.diagnostics]
    return next((each for each in sent if each["type"] == event["type"]), {}), report


def test_n1_each_field_of_a_published_event_comes_back() -> None:
    assert_none_is_silent(samples(), passed_on, ROWS, ours=("sequence_number",), fewest=200)


TOKEN: Json = {"token": TEXT, "logprob": -0.5, "bytes": [115, 111], "top_logprobs": []}


@pytest.mark.parametrize("with_deltas", [True, False])
@pytest.mark.parametrize("place", ["response.output_text.done", "response.content_part.done"])
def test_n1_log_probabilities_of_the_finished_text_alone_are_those_of_the_text(
    place: str, with_deltas: bool
) -> None:
    part = OF_PARTS["output_text"] | {"logprobs": [TOKEN]}
    fields = {"part": part} if "part" in place else {"text": TEXT, "logprobs": [TOKEN]}
    frames = stream_with({"type": place, **PLACE, **fields})
    stream = machine()
    inbound = Inbound(stream)
    for frame in frames:
        if with_deltas or not frame["type"].endswith("text.delta"):
            inbound.feed(encode(frame))
    (message,) = plain(stream.snapshot)["output"]
    assert message["content"] == [part]
    assert [case.where for case in stream.diagnostics if case.kind == "loss"] == []


@pytest.mark.parametrize(
    ("outbound", "found", "lost"),
    [
        (chat_completions.Outbound, b'"logprob":-0.5', []),
        (gemini.Outbound, b'"logProbability":-0.5', []),
        (anthropic_messages.Outbound, b'"text":"so"', ["logprobs"]),
    ],
)
def test_log_probabilities_that_come_last_are_sent_or_a_loss(
    outbound: Any, found: bytes, lost: list[str]
) -> None:
    done_event = {"type": "response.output_text.done", **PLACE, "text": TEXT, "logprobs": [TOKEN]}
    stream, written = machine(unknown_fields=False), outbound()
    inbound = Inbound(stream)
    events = [event for frame in stream_with(done_event) for event in inbound.feed(encode(frame))]
    sent = [chunk for event in events for chunk in written.feed(event)]
    assert found in encode(sent)
    assert [case.where for case in written.diagnostics.of("loss")] == lost


def test_a_finished_part_that_no_answer_has_is_a_loss() -> None:
    stream = machine()
    inbound = Inbound(stream)
    image = {"type": "input_image", "image_url": "u", "detail": "low"}
    for frame in stream_with(
        {"type": "response.content_part.done", **PLACE, "part": OF_PARTS["output_text"]}
    ):
        inbound.feed(encode(frame | ({"part": image} if frame["type"].endswith("part.done") else {})))
    losses = [case.what for case in stream.diagnostics if case.kind == "loss"]
    assert losses == ["a part of type input_image"]
