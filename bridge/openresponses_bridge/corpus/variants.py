"""Variants: the same response, sent in another way. Some are legal, most are sent by faulty servers and
proxies; each says what a reader should do with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from openresponses_bridge.corpus.truth import Expected, cut_after

Json = dict[str, Any]
Events = list[Json]
TERMINALS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_INDEXES: Final = ("output_index", "content_index", "summary_index")
_MANY: Final = ("text_then_tool", "reasoning", "two_tools_interleaved")
_IN_PROGRESS: Final = "response.in_progress"
_TEXT_DONE: Final = "response.output_text.done"


class Variant(NamedTuple):
    """A change of some scripts' streams. `asks` says what a reader has to do."""

    name: str
    asks: str
    scripts: tuple[str, ...]
    events: Callable[[Events], Events] | None = None
    """Returns the changed events; None if only the bytes change."""
    frame: Callable[[int, Json], str] | None = None
    """Returns a changed frame, from its number and event."""
    text: Callable[[str], str] | None = None
    """Returns the changed text of the whole stream."""
    piece: int = 0
    """The number of bytes that a reader gets at a time; 0: any number."""


def frame_of(event: Mapping[str, Any]) -> str:
    """Return the frame of an event as it is sent."""
    return f"event: {event['type']}\ndata: {json_of(event)}\n\n"


def json_of(value: Any) -> str:
    """Return JSON without whitespace. Lone surrogates are escaped, since UTF-8 can't encode them."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() or _is_whole(text) else json.dumps(value, separators=(",", ":"))


def _is_whole(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _without(*ends: str) -> Callable[[Events], Events]:
    return lambda events: [each for each in events if not each["type"].endswith(ends)]


def _without_fields(*names: str) -> Callable[[Events], Events]:
    return lambda events: [{key: value for key, value in each.items() if key not in names} for each in events]


def _each(change: Callable[[int, Json], Events]) -> Callable[[Events], Events]:
    return lambda events: [new for at, event in enumerate(events) for new in change(at, event)]


def _numbered(events: Events) -> Events:
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _alone(events: Events) -> Events:
    return [each for each in events if each["type"] in TERMINALS]


def _without_output(at: int, event: Json) -> Events:
    if event["type"] not in TERMINALS:
        return [event]
    return [{**event, "response": {**event["response"], "output": []}}]


def _little(at: int, event: Json) -> Events:
    if "response" not in event:
        return [event]
    fields = ("id", "status", "model", "output", "usage", "error", "incomplete_details")
    response = {key: value for key, value in event["response"].items() if key in fields and value is not None}
    return [{**event, "response": response}]


def _other_ids(events: Events) -> Events:
    """Give each event ids of its own, as a proxy does that signs ids anew."""

    def renamed(item: Json, at: int) -> Json:
        return {**item, "id": f"{item['id']}_{at}"} if "id" in item else item

    def change(at: int, event: Json) -> Events:
        changed = dict(event)
        if "item_id" in event:
            changed["item_id"] = f"{event['item_id']}_{at}"
        if "item" in event:
            changed["item"] = renamed(event["item"], at)
        if "response" in event:
            output = [renamed(item, at) for item in event["response"]["output"]]
            changed["response"] = {**event["response"], "output": output}
        return [changed]

    return _each(change)(events)


def _again(events: Events) -> Events:
    """Repeat the events around the first delta, as for a reader that resumes too early."""
    at = next(place for place, each in enumerate(events) if each["type"].endswith(".delta")) + 1
    return [*events[: at + 1], *events[at - 2 :]]


def _novel_fields(at: int, event: Json) -> Events:
    novel = {"novel": {"deep": [1]}}
    changed = {**event, **novel, "obfuscation": "x" * (at % 7 + 1)}
    for name in ("item", "response"):
        if name in event:
            changed[name] = {**event[name], **novel}
    if "response" in event:
        changed["response"]["output"] = [{**item, **novel} for item in event["response"]["output"]]
    return [changed]


def _novel_events(at: int, event: Json) -> Events:
    novel = {"type": "response.novel.delta", "sequence_number": 0, "output_index": 0, "delta": "NOVEL"}
    return [event, novel] if event["type"] not in TERMINALS and at else [event]


def _nulls(at: int, event: Json) -> Events:
    changed = {name: None if name in ("logprobs", "annotations") else value for name, value in event.items()}
    if "part" in event:
        changed["part"] = {**event["part"], **dict.fromkeys(("annotations", "logprobs"))}
    return [changed]


_SPELT: Final = {
    "response.reasoning.delta": "response.reasoning_text.delta",
    "response.reasoning.done": "response.reasoning_text.done",
}
_OTHERWISE: Final = _SPELT | {new: old for old, new in _SPELT.items()}


def _spelt(at: int, event: Json) -> Events:
    return [{**event, "type": _OTHERWISE.get(event["type"], event["type"])}]


def _halves(at: int, event: Json) -> Events:
    """Split a character beyond the basic plane: each of two deltas has one surrogate of it."""
    delta = event.get("delta", "")
    index = next((place for place, char in enumerate(delta) if char > "\uffff"), None)
    if index is None:
        return [event]
    code = ord(delta[index]) - 0x10000
    high, low = chr(0xD800 + (code >> 10)), chr(0xDC00 + (code & 0x3FF))
    return [{**event, "delta": delta[:index] + high}, {**event, "delta": low + delta[index + 1 :]}]


def _queued(events: Events) -> Events:
    created = {**events[0], "response": {**events[0]["response"], "status": "queued"}}
    return _numbered([created, {**created, "type": "response.queued"}, *events[1:]])


def _beat_first(events: Events) -> Events:
    beat = {"type": "acme:beat", "sequence_number": 0, "value": 1}
    return _numbered([events[0], beat, *events[1:]])


def _cited_late(events: Events) -> Events:
    """Move the citations of a text after its done event, before that of its part."""
    done = {_part(each) for each in events if each["type"] == _TEXT_DONE}
    late = [each for each in events if each["type"].endswith("annotation.added") and _part(each) in done]
    reordered: Events = []
    for each in events:
        if each not in late:
            reordered.append(each)
        if each["type"] == _TEXT_DONE:
            reordered += [one for one in late if _part(one) == _part(each)]
    return _numbered(reordered)


def _part(event: Json) -> tuple[int, int]:
    return event["output_index"], event["content_index"]


def _failed_alone(events: Events) -> Events:
    return _numbered(_without("error")(events))


def _failed_first(events: Events) -> Events:
    return _numbered([each for each in events if each["type"] not in ("error", _IN_PROGRESS)])


def _refused(events: Events) -> Events:
    """Send the error before the response is in progress."""
    return _numbered([each for each in events if each["type"] != _IN_PROGRESS])


def _late(events: Events) -> Events:
    late = next(each for each in events if each["type"].endswith("output_text.delta"))
    return [*events, {**late, "sequence_number": len(events), "delta": "TOO LATE"}]


def _pretty(at: int, event: Json) -> str:
    lines = json.dumps(event, ensure_ascii=False, indent=1).split("\n")
    return f"event: {event['type']}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"


def _commented(at: int, event: Json) -> str:
    head, data = frame_of(event).split("\n", 1)
    return f": keep-alive {at}\n\n{head}\n: within\n{data}"


VARIANTS: Final[dict[str, Variant]] = {
    each.name: each
    for each in (
        Variant("queued", "A response may be queued at first.", ("text",), _queued),
        Variant("beat-first", "An extension's event may come before anything else.", ("text",), _beat_first),
        Variant("cited-late", "A citation may come after its text is done.", ("citation",), _cited_late),
        Variant(
            "failed-alone",
            "The error is in response.failed, without an error event.",
            ("fail",),
            _failed_alone,
        ),
        Variant(
            "failed-first",
            "A response may fail before it is in progress.",
            ("fail_at_once",),
            _failed_first,
        ),
        Variant(
            "refused", "An error may come before the response is in progress.", ("fail_at_once",), _refused
        ),
        Variant(
            "no-deltas",
            "Content that was sent without deltas is read from the done events.",
            _MANY,
            _without(".delta"),
        ),
        Variant(
            "no-done",
            "Content that was sent without done events is joined from the deltas.",
            _MANY,
            _without("_text.done", "reasoning.done", "part.done", "arguments.done", "item.done"),
        ),
        Variant(
            "no-parts",
            "Deltas may come without the events that announce and close their parts.",
            _MANY[:2],
            _without("part.added", "part.done"),
        ),
        Variant(
            "no-added",
            "Items and parts that were not announced begin with the first event about them.",
            _MANY,
            _without(".added"),
        ),
        Variant("terminal-alone", "The terminal event has the whole response.", _MANY, _alone),
        Variant(
            "no-final-output",
            "A terminal event without output keeps what was streamed.",
            _MANY,
            _each(_without_output),
        ),
        Variant("little-response", "A response may lack fields.", _MANY, _each(_little)),
        Variant(
            "no-indexes",
            "Without indexes, items are distinguished by their ids.",
            _MANY,
            _without_fields(*_INDEXES),
        ),
        Variant(
            "no-item-ids",
            "Without item ids, items are distinguished by their indexes.",
            _MANY,
            _without_fields("item_id"),
        ),
        Variant("changing-ids", "Items keep their output_index where ids change.", _MANY, _other_ids),
        Variant("no-numbers", "Events may lack sequence numbers.", _MANY, _without_fields("sequence_number")),
        Variant(
            "doubled",
            "An event whose sequence number was received before is ignored.",
            _MANY,
            _each(lambda at, event: [event, event]),
        ),
        Variant("resumed", "Events that are sent again after an interruption are ignored.", _MANY, _again),
        Variant("unknown-fields", "Unknown fields are ignored.", _MANY, _each(_novel_fields)),
        Variant("unknown-events", "Unknown events are ignored.", _MANY, _each(_novel_events)),
        Variant("nulls", "Null stands for an empty list.", ("text", "citation"), _each(_nulls)),
        Variant("spelling", "Raw reasoning has two spellings.", ("reasoning",), _each(_spelt)),
        Variant("split-surrogates", "Halves of a character are joined.", ("text",), _each(_halves)),
        Variant("late-delta", "Everything after the terminal event is ignored.", ("text",), _late),
        Variant(
            "error-alone",
            "An error event without response.failed is a failure too.",
            ("fail",),
            _without("response.failed"),
        ),
        Variant("comments", "Comments are ignored, also within a frame.", ("text",), frame=_commented),
        Variant("crlf", "Lines may end with CRLF.", ("text",), text=lambda all: all.replace("\n", "\r\n")),
        Variant("cr", "Lines may end with CR.", ("text",), text=lambda all: all.replace("\n", "\r")),
        Variant("several-lines", "The data lines of a frame are joined by LF.", ("text",), frame=_pretty),
        Variant(
            "no-space",
            "The space after a field's colon may be missing.",
            ("text",),
            text=lambda all: all.replace("event: ", "event:").replace("data: ", "data:"),
        ),
        Variant(
            "no-names",
            "The type in the data is enough: frames may lack an event name.",
            ("text",),
            frame=lambda at, event: f"data: {json_of(event)}\n\n",
        ),
        Variant(
            "ids",
            "The fields id and retry, and unknown ones, are ignored.",
            ("text",),
            frame=lambda at, event: f"id: {at}\nretry: 1000\nnovel: 1\n{frame_of(event)}",
        ),
        Variant("bom", "A byte order mark may come first.", ("text",), text=lambda all: "\ufeff" + all),
        Variant(
            "no-marker",
            "The terminal event ends the response, also without [DONE].",
            ("text",),
            text=lambda all: all.replace("data: [DONE]\n\n", ""),
        ),
        Variant("in-pieces", "Bytes come in any pieces, also within a character.", ("text",), piece=7),
    )
}


class LegalChange(NamedTuple):
    """A legal change of a stream, which no call of the machine makes."""

    apply: Callable[[Events], Events]
    fits: Callable[[Events], bool]
    """Returns whether the change applies to these events and leaves them legal."""


def _has(end: str) -> Callable[[Events], bool]:
    return lambda events: any(each["type"].endswith(end) for each in events)


def _failed_at_once(events: Events) -> bool:
    return len(events) == 4 and events[-1]["type"] == "response.failed"


LEGAL: Final[dict[str, LegalChange]] = {
    "queued": LegalChange(_queued, lambda events: True),
    "beat-first": LegalChange(_beat_first, lambda events: True),
    "cited-late": LegalChange(_cited_late, _has("annotation.added")),
    "failed-alone": LegalChange(_failed_alone, _has("response.failed")),
    "failed-first": LegalChange(_failed_first, _failed_at_once),
    "refused": LegalChange(_refused, _failed_at_once),
}
"""The variants that are legal for every stream to which they apply, by name."""
CUT: Final = "cut-"
CUT_SCRIPT: Final = "text_then_tool"
CUT_ASKS: Final = (
    "A stream that ends without a terminal event was cut off: it is not complete, and no call is run."
)


def cut(events: Sequence[Json], count: int) -> tuple[Events, Expected]:
    """Return the first `count` events of a stream, and the expected result of reading them."""
    head = list(events[:count])
    return head, cut_after(head)


def cuts(events: Sequence[Json]) -> Iterator[str]:
    """Return the names of the variants that are cut off, one after each event but the last."""
    return (f"{CUT}{count:02}" for count in range(1, len(events)))
