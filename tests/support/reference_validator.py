"""A strict validator of streams, simple and slow, with which the library's validator is compared.

It implements the error list of an independent validator over plain JSON and imports nothing of the library,
so that a mistake there can't hide itself. It accepts published streams with extensions, and rejects OpenAI's
names.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from tests.support.schema import event_violations
from tests.support.shared import shared_root

Event = dict[str, Any]

TERMINAL = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
EMPTY_WHEN_ADDED = {
    "message": ["content"],
    "function_call": ["arguments"],
    "reasoning": ["content", "summary"],
}
# delta event → (done event, field of the done text, where the text is in the item, field within the part)
TEXTS = {
    "response.output_text.delta": ("response.output_text.done", "text", "content", "text"),
    "response.refusal.delta": ("response.refusal.done", "refusal", "content", "refusal"),
    "response.reasoning.delta": ("response.reasoning.done", "text", "content", "text"),
    "response.reasoning_summary_text.delta": (
        "response.reasoning_summary_text.done",
        "text",
        "summary",
        "text",
    ),
}
PART_DONE = {"content": "response.content_part.done", "summary": "response.reasoning_summary_part.done"}
INDEX = {"content": "content_index", "summary": "summary_index"}


# the types that these fields must have before anything else is checked
SHAPES: dict[str, type] = {
    "type": str,
    "output_index": int,
    "content_index": int,
    "summary_index": int,
    "item": dict,
    "part": dict,
    "response": dict,
}


def judge(events: list[Event]) -> list[str]:
    """The errors of a whole stream as sentences; empty if there are none."""
    misshapen = [*_shapes(events)]
    if misshapen:
        return misshapen
    checks = (_schema, _numbers, _lifecycle, _responses, _items, _terminal_output, _texts, _arguments)
    return [problem for check in checks for problem in check(events)]


def _shapes(events: list[Event]) -> Iterator[str]:
    for event in events:
        item = event.get("item", {})
        if "type" not in event or (isinstance(item, dict) and not isinstance(item.get("type", ""), str)):
            yield "an event or item without a type"
        for field, kind in SHAPES.items():
            if field in event and type(event[field]) is not kind:
                yield f"{field} is {event[field]!r}"


def _schema(events: list[Event]) -> Iterator[str]:
    if shared_root() is None:
        return
    for event in events:
        if not _is_extension(event) and not _is_extension(event.get("item")):
            yield from _event_violations(json.dumps(_without_extensions(event)))


@lru_cache(maxsize=10_000)
def _event_violations(event: str) -> tuple[str, ...]:
    return tuple(event_violations(json.loads(event)))


def _is_extension(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str) and ":" in value["type"]


def _without_extensions(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_extensions(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_extensions(each) for each in value if not _is_extension(each)]
    return value


def _numbers(events: list[Event]) -> Iterator[str]:
    numbers = [event.get("sequence_number") for event in events]
    if numbers != list(range(len(events))):
        yield f"the sequence numbers are {numbers}"


def _lifecycle(events: list[Event]) -> Iterator[str]:
    types = [event.get("type") for event in events]
    ends = [kind for kind in types if kind in TERMINAL]
    if len(ends) != 1 or types[-1] not in TERMINAL:
        yield f"the terminal events are {ends}, the last event is {types[-1]}"
    if types[0] != "response.created":
        yield f"the first event is {types[0]}"
    if "response.in_progress" not in types and "response.failed" not in types:
        yield "there is no response.in_progress"
    for kind, following in zip(types, [*types[1:], None], strict=True):
        if kind == "error" and following != "response.failed":
            yield "an error is not followed by response.failed"


def _responses(events: list[Event]) -> Iterator[str]:
    for event in events:
        response = event.get("response")
        if not isinstance(response, dict):
            continue
        status = response.get("status")
        if event.get("type") in TERMINAL and status != TERMINAL[event["type"]]:
            yield f"{event['type']} with status {status}"
        for field, when in (
            ("completed_at", "completed"),
            ("error", "failed"),
            ("incomplete_details", "incomplete"),
        ):
            if (response.get(field) is not None) != (status == when):
                yield f"{field} is {response.get(field)} while the status is {status}"


def _added(events: list[Event]) -> Iterator[tuple[int, Event]]:
    return _item_events(events, "response.output_item.added")


def _done(events: list[Event]) -> Iterator[tuple[int, Event]]:
    return _item_events(events, "response.output_item.done")


def _item_events(events: list[Event], kind: str) -> Iterator[tuple[int, Event]]:
    for event in events:
        if event.get("type") == kind and isinstance(event.get("item"), dict):
            yield event.get("output_index", -1), event["item"]


def _items(events: list[Event]) -> Iterator[str]:
    for _, item in _added(events):
        if item.get("type") not in EMPTY_WHEN_ADDED:
            continue
        if item.get("status") != "in_progress":
            yield f"an item is added as {item.get('status')}"
        for field in EMPTY_WHEN_ADDED[item["type"]]:
            if item.get(field):
                yield f"an item is added with {field}"
    for _, item in [*_added(events), *_done(events)]:
        if item.get("type") == "message":
            if item.get("role") != "assistant":
                yield f"a message has the role {item.get('role')}"
            for part in _list(item.get("content")):
                if not isinstance(part, dict) or part.get("type") not in ("output_text", "refusal"):
                    yield "a message holds a part that is neither output_text nor refusal"


def _terminal_output(events: list[Event]) -> Iterator[str]:
    end = next((event for event in events if event.get("type") in TERMINAL), None)
    if end is None or not isinstance(end.get("response"), dict):
        return
    done = dict(_done(events))
    opened = {index for index, _ in _added(events)} - set(done)
    output = _list(end["response"].get("output"))
    if end["type"] != "response.failed":
        if opened:
            yield f"items {opened} are not done"
        if output != [item for _, item in sorted(done.items())]:
            yield "the terminal output is not the done items"
    elif [item for item in output if item in done.values()] != [item for _, item in sorted(done.items())]:
        yield "the output of the failed response lacks done items"


def _texts(events: list[Event]) -> Iterator[str]:
    for kind, (done_kind, done_field, field, part_field) in TEXTS.items():
        sums: dict[Any, str] = {}
        for event in events:
            place = (event.get("output_index"), event.get(INDEX[field]))
            if event.get("type") == kind:
                sums[place] = sums.get(place, "") + str(event.get("delta"))
            elif event.get("type") == done_kind:
                sums.setdefault(place, "")
        for (index, within), text in sums.items():
            here = [
                event
                for event in events
                if (event.get("output_index"), event.get(INDEX[field])) == (index, within)
            ]
            sent = [event.get(done_field) for event in here if event.get("type") == done_kind]
            parts = [event.get("part") for event in here if event.get("type") == PART_DONE[field]]
            for holder in _holders(events, index):
                content = _list(holder.get(field))
                there = isinstance(within, int) and 0 <= within < len(content)
                parts.append(content[within] if there else None)
            sent += [part.get(part_field) if isinstance(part, dict) else None for part in parts]
            if any(each != text for each in sent):
                yield f"{kind} at {index}, {within} adds up to {text!r}, but {sent} was sent"


def _arguments(events: list[Event]) -> Iterator[str]:
    sums: dict[Any, str] = {}
    for event in events:
        if event.get("type") == "response.function_call_arguments.delta":
            index = event.get("output_index")
            sums[index] = sums.get(index, "") + str(event.get("delta"))
        elif event.get("type") == "response.function_call_arguments.done":
            sums.setdefault(event.get("output_index"), "")
    for index, text in sums.items():
        sent = [
            event.get("arguments")
            for event in events
            if event.get("type") == "response.function_call_arguments.done"
            and event.get("output_index") == index
        ]
        sent += [holder.get("arguments") for holder in _holders(events, index)]
        if any(each != text for each in sent):
            yield f"arguments at {index} add up to {text!r}, but {sent} was sent"


def _holders(events: list[Event], index: Any) -> Iterator[Event]:
    """The item at this index as its done event has it, and as the terminal output has it."""
    yield from (item for at, item in _done(events) if at == index)
    for event in events:
        if event.get("type") in TERMINAL and isinstance(event.get("response"), dict):
            output = _list(event["response"].get("output"))
            if isinstance(index, int) and 0 <= index < len(output) and isinstance(output[index], dict):
                yield output[index]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
