"""Changes of the configuration within a conversation (OpenAI's `configuration_update`).

Each setting holds for the responses after it until another update replaces it. An upstream that does not know
such items is asked with what holds in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.dialects.base.entries import AnyItem, Entry, entries_of
from openresponses_bridge.dialects.base.fields import Fields
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.lenient import SchemaError, Strict, build_struct
from openresponses_bridge.protocol.request import CreateResponse, ReasoningOptions, TextParam
from openresponses_bridge.protocol.unknown import UnknownItem

UPDATE: Final = "configuration_update"


def configured(request: CreateResponse, history: Sequence[AnyItem] = ()) -> CreateResponse:
    """The request with the effort and the text format that the updates in its conversation leave; itself
    when there are none. Raises InvalidRequestError with the place of what is not as it should be."""
    own = request.input if isinstance(request.input, list) else ()
    if UnknownItem not in {*map(type, history), *map(type, own)}:  # as almost always
        return request
    if not any(map(is_update, history)) and not any(map(is_update, own)):
        return request
    return _updated(request, entries_of(request, history))


def is_update(item: AnyItem) -> bool:
    """Whether it is such an item."""
    return isinstance(item, UnknownItem) and item.type.removeprefix("openai:") == UPDATE


def _updated(request: CreateResponse, entries: Iterable[Entry]) -> CreateResponse:
    reasoning, text = request.reasoning or ReasoningOptions(), request.text or TextParam()
    for entry in entries:
        item = entry.item
        if isinstance(item, UnknownItem) and is_update(item):
            given = Fields(item.raw, entry.param)
            if given.maybe_inner("reasoning"):
                new = _read(ReasoningOptions, given, "reasoning")
                reasoning = replace(reasoning, effort=new.effort) if new.effort else reasoning
            if given.maybe_inner("text"):
                changed = _read(TextParam, given, "text")
                text = replace(text, format=changed.format) if changed.format else text
    said = {"reasoning": reasoning, "text": text}
    empty = {"reasoning": ReasoningOptions(), "text": TextParam()}
    return replace(request, **{name: value for name, value in said.items() if value != empty[name]})


def _read(struct: type[Any], given: Fields, name: str) -> Any:
    try:
        return build_struct(struct, given.need(name, dict), Strict(), given.at(name))
    except SchemaError as error:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE, error.message, param=error.param
        ) from error
