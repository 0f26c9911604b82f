"""Messages between agents (OpenAI's `agent_message`) for models that know users and assistants only.

OpenAI encrypts what an agent gives its sub-agents, and clients put it under `encrypted_content`. Where
another server made the call, the same field holds what the model wrote, as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base.entries import Entry
from openresponses_bridge.dialects.base.fields import Fields
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.content import InputPart, InputTextContent
from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_bridge.protocol.lenient import SchemaError, Strict, build
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownPart
from openresponses_bridge.protocol.vocabulary import INPUT_PARTS
from openresponses_bridge.seal import is_envelope

_ENCRYPTED: Final = "encrypted_content"
_SHORTEST_CIPHERTEXT: Final = 40  # characters: a nonce and a tag of 28 bytes are as long in base64
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/_.=-]+")


def is_readable(text: str) -> bool:
    """Whether a text under `encrypted_content` is plain: what is encrypted is one long word of base64, or an
    envelope of this library."""
    if is_envelope(text):
        return False
    return len(text) < _SHORTEST_CIPHERTEXT or _ENCODED.fullmatch(text.strip()) is None


def from_agent(entry: Entry, item: UnknownItem, diagnostics: Diagnostics) -> MessageParam | None:
    """The message as a user's that says whose it is; None when nothing in it can be read. What can't be is a
    loss. Raises InvalidRequestError with the place of what is not as it should be."""
    given = Fields(item.raw, entry.param)
    author, recipient = given.get("author", str), given.get("recipient", str)
    parts = list(_parts(given, entry.where, diagnostics))
    if not parts:
        return None
    whom = f" to agent {recipient}" if recipient else ""
    head = InputTextContent(f"[message from agent {author or 'unknown'}{whom}]")
    return MessageParam("user", [head, *parts])


def _parts(given: Fields, where: str, diagnostics: Diagnostics) -> Iterator[InputPart]:
    content = given.either("content", str, list)
    raws = [{"type": "input_text", "text": content}] if isinstance(content, str) else content or ()
    for index, raw in enumerate(raws):
        part = _part(raw, f"{given.at('content')}[{index}]")
        if not isinstance(part, UnknownPart) or part.type != _ENCRYPTED:
            yield part
        elif is_readable(said := Fields(part.raw, f"{given.at('content')}[{index}]").need(_ENCRYPTED, str)):
            yield InputTextContent(said)
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
