"""Converts items that only OpenAI's own servers accept into items that every model reads.

A message from another agent becomes a user's message. A program that a server ran and its output become
texts, since a function call would need a declaration. Items that no model can read stay unchanged; the
dialect reports them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base.entries import HISTORY, AnyItem, Entry, entries_of, settled_calls
from openresponses_bridge.dialects.base.fields import Fields
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.beyond import name_of
from openresponses_bridge.protocol.codec import without_extra
from openresponses_bridge.protocol.content import InputPart, InputTextContent
from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_bridge.protocol.items import MessageRole
from openresponses_bridge.protocol.lenient import SchemaError, Strict, build, build_struct
from openresponses_bridge.protocol.request import CreateResponse, ReasoningOptions, TextParam
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownPart
from openresponses_bridge.protocol.vocabulary import INPUT_PARTS
from openresponses_bridge.seal import is_envelope

# Messages between agents (OpenAI's `agent_message`) for models that know users and assistants only.

_ENCRYPTED: Final = "encrypted_content"
_SHORTEST_CIPHERTEXT: Final = 40  # characters; a nonce and a tag of 28 bytes are that long in base64
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/_.=-]+")


def is_readable(text: str) -> bool:
    """Return True if a text under `encrypted_content` is plain text: an encrypted one is one long word of
    base64, or an envelope of this library."""
    if is_envelope(text):
        return False
    return len(text) < _SHORTEST_CIPHERTEXT or _ENCODED.fullmatch(text.strip()) is None


def user_message_of(entry: Entry, item: UnknownItem, diagnostics: Diagnostics) -> MessageParam | None:
    """Return the message as a user's message that names its author; None if nothing in it can be read.
    Unreadable parts are losses. Raises InvalidRequestError with the path of an invalid field."""
    fields = Fields(item.raw, entry.param)
    author, recipient = fields.get("author", str), fields.get("recipient", str)
    parts = list(_parts(fields, entry.where, diagnostics))
    if not parts:
        return None
    whom = f" to agent {recipient}" if recipient else ""
    head = InputTextContent(f"[message from agent {author or 'unknown'}{whom}]")
    return MessageParam("user", [head, *parts])


def _parts(fields: Fields, where: str, diagnostics: Diagnostics) -> Iterator[InputPart]:
    content = fields.either("content", str, list)
    raws = [{"type": "input_text", "text": content}] if isinstance(content, str) else content or ()
    for index, raw in enumerate(raws):
        part = _part(raw, f"{fields.at('content')}[{index}]")
        if not isinstance(part, UnknownPart) or part.type != _ENCRYPTED:
            yield part
        elif is_readable(text := Fields(part.raw, f"{fields.at('content')}[{index}]").need(_ENCRYPTED, str)):
            yield InputTextContent(text)
        else:
            diagnostics.loss(f"{where}.content[{index}]", "encrypted, can't be read here")


def _part(raw: Any, param: str) -> InputPart:
    try:
        part: InputPart = build(INPUT_PARTS, raw, Strict(), param)
    except SchemaError as error:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE, error.message, param=error.param
        ) from error
    return part


# Changes of the configuration within a conversation (OpenAI's `configuration_update`). Each setting applies
# to the responses after it until another update replaces it. An upstream that does not know such items gets
# the final settings.

UPDATE: Final = "configuration_update"


def configured(request: CreateResponse, history: Sequence[AnyItem] = ()) -> CreateResponse:
    """Return the request with the effort and the text format that the updates in its conversation set; the
    request itself if there are no updates. Raises InvalidRequestError with the path of an invalid field."""
    own = request.input if isinstance(request.input, list) else ()
    if UnknownItem not in {*map(type, history), *map(type, own)}:  # as in almost all requests
        return request
    if not any(map(is_update, history)) and not any(map(is_update, own)):
        return request
    return _updated(request, entries_of(request, history))


def is_update(item: AnyItem) -> bool:
    """Return True if the item is such an update."""
    return isinstance(item, UnknownItem) and item.type.removeprefix("openai:") == UPDATE


def _updated(request: CreateResponse, entries: Iterable[Entry]) -> CreateResponse:
    reasoning, text = request.reasoning or ReasoningOptions(), request.text or TextParam()
    for entry in entries:
        item = entry.item
        if isinstance(item, UnknownItem) and is_update(item):
            fields = Fields(item.raw, entry.param)
            if fields.maybe_inner("reasoning"):
                new = _read(ReasoningOptions, fields, "reasoning")
                reasoning = replace(reasoning, effort=new.effort) if new.effort else reasoning
            if fields.maybe_inner("text"):
                changed = _read(TextParam, fields, "text")
                text = replace(text, format=changed.format) if changed.format else text
    options = {"reasoning": reasoning, "text": text}
    empty = {"reasoning": ReasoningOptions(), "text": TextParam()}
    return replace(request, **{name: value for name, value in options.items() if value != empty[name]})


def _read(struct: type[Any], fields: Fields, name: str) -> Any:
    try:
        return build_struct(struct, fields.need(name, dict), Strict(), fields.at(name))
    except SchemaError as error:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE, error.message, param=error.param
        ) from error


TRIGGER: Final = "compaction_trigger"
_item_of: Final = attrgetter("item")


def is_answered_trigger(entry: Entry, last: Entry) -> bool:
    """Return True if the entry is a request for compaction that an earlier turn has answered, in a
    conversation that ends with `last`."""
    return entry is not last and isinstance(entry.item, UnknownItem) and entry.item.type == TRIGGER


def normalize_entries(entries: Sequence[Entry], diagnostics: Diagnostics) -> list[Entry]:
    """Return the entries with these items converted, without those that are handled elsewhere (see
    `configured`). Unknown fields of earlier turns' items are losses; those of the request's own are reported
    with its other fields. Raises InvalidRequestError with the path of an invalid field."""
    entries = settled_calls(entries, diagnostics)
    unknown: list[str] = []
    for entry in entries:
        if entry.param == HISTORY:
            without_extra(entry.item, unknown)
    for name in unknown:
        diagnostics.loss(name_of((HISTORY,), name), "is not known")
    if UnknownItem not in set(map(type, map(_item_of, entries))):
        return list(entries)
    return _ItemReader(entries, diagnostics).read()


class _ItemReader:
    def __init__(self, entries: Sequence[Entry], diagnostics: Diagnostics) -> None:
        self._entries = entries
        self._diagnostics = diagnostics

    def read(self) -> list[Entry]:
        entries = []
        for index, entry in enumerate(self._entries):
            item: AnyItem | None = entry.item
            if isinstance(item, UnknownItem):
                item = _READERS.get(item.type.removeprefix("openai:"), _ItemReader.other)(self, item, index)
            if item is not None:
                entries.append(replace(entry, item=item))
        return entries

    def agent_message(self, item: UnknownItem, index: int) -> AnyItem | None:
        return user_message_of(self._entries[index], item, self._diagnostics)

    def update(self, _item: UnknownItem, _index: int) -> None:
        """Leave the item out: the request already has its settings (see `configured`)."""

    def trigger(self, item: UnknownItem, index: int) -> AnyItem | None:
        """Leave a trigger out that is followed by something, since it was answered."""
        return item if index == len(self._entries) - 1 else None

    def program(self, item: UnknownItem, index: int) -> AnyItem:
        fields = Fields(item.raw, self._entries[index].param)
        return _message("assistant", "ran a program", fields, "code")

    def program_output(self, item: UnknownItem, index: int) -> AnyItem:
        fields = Fields(item.raw, self._entries[index].param)
        return _message("user", "output of the program", fields, "result")

    def other(self, item: UnknownItem, _index: int) -> AnyItem | None:
        return item


def _message(role: MessageRole, what: str, fields: Fields, field: str) -> MessageParam:
    return MessageParam(role, f"[{what}, {fields.need('call_id', str)}]\n{fields.need(field, str)}")


_READERS: Final[dict[str, Callable[[_ItemReader, UnknownItem, int], AnyItem | None]]] = {
    "agent_message": _ItemReader.agent_message,
    UPDATE: _ItemReader.update,
    TRIGGER: _ItemReader.trigger,
    "program": _ItemReader.program,
    "program_output": _ItemReader.program_output,
}
