"""Finds where JSON deviates from what a wire allows. The protocol's structs accept more than the published
schema, namely OpenAI's additions too; so the JSON is checked once more, with tables of what each wire
allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NamedTuple

from openresponses_bridge.conformance.tracks import EventContext
from openresponses_bridge.protocol.hosted import PROGRESS_EVENTS
from openresponses_bridge.protocol.lenient import MISSING, Repair
from openresponses_bridge.state import (
    LIFECYCLE_EVENTS,
    OPENAI_ROLES,
    OPENAI_SLUG,
    PUBLISHED_EFFORTS,
    PUBLISHED_EVENTS,
    PUBLISHED_ITEMS,
    PUBLISHED_SUMMARIES,
    WIRES,
)

AUTO: Final = "auto"
WireName = Literal["auto", "openresponses", "openai", "any"]
SLUG = re.compile(r"[A-Za-z0-9_-]+:[A-Za-z0-9_.:-]+")

OPENAI_EVENTS = (
    PUBLISHED_EVENTS - {"response.reasoning.delta", "response.reasoning.done"}
    | OPENAI_ROLES
    | PROGRESS_EVENTS
)


def _any_response_event(event_type: str) -> bool:
    return event_type.startswith("response.") or event_type in LIFECYCLE_EVENTS


# wire → whether it has an event of this type, extensions aside
EVENTS: dict[str, Callable[[str], bool]] = {
    "openresponses": PUBLISHED_EVENTS.__contains__,
    "openai": OPENAI_EVENTS.__contains__,
    "any": _any_response_event,
}


def has_event(wire: str, event_type: str) -> bool:
    """Return True if the wire has events of this type; every wire has extensions (`slug:name`)."""
    return EVENTS[wire](event_type) or SLUG.fullmatch(event_type) is not None


_PARTS = frozenset(
    {
        "input_text",
        "output_text",
        "text",
        "summary_text",
        "reasoning_text",
        "refusal",
        "input_image",
        "input_file",
    }
)


class Kind(NamedTuple):
    """Objects distinguished by `type`: the published types, and whether extensions are allowed."""

    published: frozenset[str]
    extensible: bool = False


KINDS: dict[str, Kind] = {
    "item": Kind(PUBLISHED_ITEMS, True),
    "tool": Kind(frozenset({"function"}), True),
    "annotation": Kind(frozenset({"url_citation"}), True),
    "part": Kind(_PARTS),
    "message part": Kind(_PARTS | {"input_video"}),
    "output part": Kind(frozenset({"input_text", "input_image", "input_file"})),
    "tool choice": Kind(frozenset({"function", "allowed_tools"})),
    "allowed tool": Kind(frozenset({"function"})),
    "format": Kind(frozenset({"text", "json_object", "json_schema"})),
}

# kind, or kind:type → field → the kind of the object in it, or of each object in its list
CHILDREN: dict[str, dict[str, str]] = {
    "event": {"response": "response", "item": "item", "part": "part", "annotation": "annotation"},
    "response": {
        "output": "item",
        "tools": "tool",
        "tool_choice": "tool choice",
        "text": "text settings",
        "reasoning": "reasoning settings",
    },
    "text settings": {"format": "format"},
    "item:message": {"content": "message part"},
    "item:reasoning": {"content": "part", "summary": "part"},
    "item:function_call_output": {"output": "output part"},
    "part:output_text": {"annotations": "annotation"},
    "message part:output_text": {"annotations": "annotation"},
    "tool choice:allowed_tools": {"tools": "allowed tool"},
}


class Limit(NamedTuple):
    """A condition on a field's value. `admits` is called only when the field is present."""

    field: str
    required: bool
    admits: Callable[[Any], bool]
    says: str


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values


def _of(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


_IMAGE = (
    Limit("image_url", True, lambda value: value is None or isinstance(value, str), "a string or null"),
    Limit("detail", True, _one_of("low", "high", "auto"), "low, high or auto"),
)
_FILE = (
    Limit("filename", False, _of(str), "a string"),
    Limit("file_url", False, _of(str), "a string"),
)

# kind:type → limits on every wire, for objects that the structs keep as JSON
EVERYWHERE: dict[str, tuple[Limit, ...]] = {
    "event:": (Limit("sequence_number", True, _of(int), "an integer"),),
    "item:": (Limit("id", True, _of(str), "a string"),),
}
# kind or kind:type → limits of the published schema
PUBLISHED: dict[str, tuple[Limit, ...]] = {
    "event:error": (Limit("error", True, _of(dict), "an object"),),
    "reasoning settings": (
        Limit("effort", True, _one_of(None, *PUBLISHED_EFFORTS), "a published effort"),
        Limit("summary", True, _one_of(None, *PUBLISHED_SUMMARIES), "a published summary mode"),
    ),
    "format:json_schema": (Limit("schema", True, lambda value: value is None, "null"),),
    "tool choice:allowed_tools": (Limit("mode", True, _of(str), "a string"),),
    **{f"{kind}:input_image": _IMAGE for kind in ("part", "message part", "output part")},
    **{f"{kind}:input_file": _FILE for kind in ("part", "message part", "output part")},
}


def deviations(wire: str, value: Any, kind: str = "event", path: str = "$") -> Iterator[Repair]:
    """Yield the places where `value` deviates from what the wire allows. Deviations that the structs refuse
    as well may be reported here again, at the same path."""
    if not isinstance(value, dict):
        return
    tag = value.get("type")
    strict = wire == "openresponses"
    if kind in KINDS:
        yield from _type(KINDS[kind], tag, path, strict)
    names = (kind, f"{kind}:{tag}")
    limits = [*EVERYWHERE.get(f"{kind}:", ())]
    if strict:
        limits += [limit for name in names for limit in PUBLISHED.get(name, ())]
    for limit in limits:
        yield from _limit(limit, value, path)
    if kind == "event" and isinstance(tag, str) and SLUG.fullmatch(tag):  # an extension's own content
        return
    for name in names:
        for field, child in CHILDREN.get(name, {}).items():
            inner = value.get(field)
            if isinstance(inner, list):
                for index, element in enumerate(inner):
                    yield from deviations(wire, element, child, f"{path}.{field}[{index}]")
            elif inner:
                yield from deviations(wire, inner, child, f"{path}.{field}")


def _type(kind: Kind, tag: Any, path: str, strict: bool) -> Iterator[Repair]:
    if not isinstance(tag, str):
        yield Repair(f"{path}.type", MISSING)
    elif strict and tag not in kind.published and not (kind.extensible and SLUG.fullmatch(tag)):
        yield Repair(f"{path}.type", f"Invalid value {tag!r}: neither published nor an extension")


def _limit(limit: Limit, value: dict[str, Any], path: str) -> Iterator[Repair]:
    if limit.field not in value:
        if limit.required:
            yield Repair(f"{path}.{limit.field}", MISSING)
    elif not limit.admits(value[limit.field]):
        yield Repair(f"{path}.{limit.field}", f"Expected {limit.says}")


OPENRESPONSES: Final = "openresponses"
OPENAI: Final = "openai"
_ONLY_PUBLISHED: Final = PUBLISHED_EVENTS - OPENAI_EVENTS
_ONLY_OPENAI: Final = OPENAI_EVENTS - PUBLISHED_EVENTS
_CANCELLED: Final = WIRES[OPENAI].cancelled_status


def wire_of(context: EventContext) -> str | None:
    """Return the only wire that has this event, its item or its spelling; None if both wires have it, or
    neither."""
    if context.type in _ONLY_PUBLISHED:
        return OPENRESPONSES
    if context.type in _ONLY_OPENAI:
        return OPENAI
    if context.type == "error":
        return OPENAI if "error" not in context.raw and "message" in context.raw else None
    response = context.object("response") or {}
    if response.get("status") == _CANCELLED:
        return OPENAI
    return wire_of_item(context.object("item"))


def wire_of_item(item: dict[str, Any] | None) -> str | None:
    """Return the only wire that has items of this type; None if both have it, or neither."""
    kind = None if item is None else item.get("type")
    if not isinstance(kind, str) or not kind or kind in PUBLISHED_ITEMS:
        return None
    if kind.startswith(OPENAI_SLUG):
        return OPENRESPONSES
    return None if SLUG.fullmatch(kind) else OPENAI
