"""A digest of a conversation. With it, a stateful marker is used only if the chat before it is the one that
was answered: a client may have changed or condensed its history and kept the marker.

Reasoning does not count, since clients drop it. An answer counts in the form in which clients send it back:
as its parts, converted to items again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from openresponses_bridge.decoder import CALL_ID_PREFIX, PartDecoder
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.vscode.to_items import ItemBuilder
from openresponses_bridge.dialects.vscode.types import ChatMessage, Role
from openresponses_bridge.protocol.codec import decode_response, encode
from openresponses_bridge.protocol.content import InputTextContent, OutputTextParam
from openresponses_bridge.protocol.events import ResponseCompleted
from openresponses_bridge.protocol.input_items import (
    FunctionCallOutputParam,
    FunctionCallParam,
    InputItem,
    MessageParam,
    ReasoningParam,
)
from openresponses_bridge.protocol.items import Item, KnownItem
from openresponses_bridge.protocol.unknown import UnknownItem

_EMPTY = replace(decode_response(b"{}"), status="completed")


def conversation_digest(items: Iterable[InputItem | Item], call_id_prefix: str = CALL_ID_PREFIX) -> str:
    """Return the digest of these items, the input and output of any number of turns in order. It is the same
    for the items of a translated chat and for the stored ones."""
    digest = sha256()
    spoken: list[str] = []
    for item in _as_sent_back(items, call_id_prefix):
        if isinstance(item, ReasoningParam):
            continue
        text = _assistant_text(item)
        if text is not None:
            spoken.append(text)
            continue
        _flush(digest, spoken)
        _add(digest, _meaning(item))
    _flush(digest, spoken)
    return digest.hexdigest()


def _flush(digest: Any, spoken: list[str]) -> None:
    """Add the texts that the model wrote since the last flush as one text, however they were split."""
    if spoken:
        _add(digest, b"said" + "".join(spoken).encode("utf-8", "surrogatepass"))
        spoken.clear()


def _add(digest: Any, data: bytes) -> None:
    digest.update(b"%d:" % len(data))
    digest.update(data)


def output_items(output: Iterable[Item], call_id_prefix: str = CALL_ID_PREFIX) -> list[InputItem]:
    """Return the items of an answer in the form in which our clients send them back."""
    decoder = PartDecoder(call_id_prefix=call_id_prefix, errors="none")
    parts = decoder.feed(ResponseCompleted(0, replace(_EMPTY, output=list(output), store=False)))
    builder = ItemBuilder(Diagnostics(), call_id_prefix)
    builder.add(ChatMessage(Role.ASSISTANT, list(parts)))
    return builder.items


def _as_sent_back(items: Iterable[InputItem | Item], prefix: str) -> Iterable[Any]:
    for is_output, group in groupby(items, lambda item: isinstance(item, KnownItem | UnknownItem)):
        run: list[Any] = list(group)
        yield from output_items(run, prefix) if is_output else run


def _assistant_text(item: Any) -> str | None:
    """Return the text of a message of the model; None for anything else."""
    if not isinstance(item, MessageParam) or item.role != "assistant":
        return None
    if isinstance(item.content, str):
        return item.content
    texts = [part.text for part in item.content if isinstance(part, OutputTextParam | InputTextContent)]
    return "".join(texts) if len(texts) == len(item.content) else None


def _meaning(item: Any) -> bytes:
    if isinstance(item, FunctionCallParam):
        return encode(["call", item.call_id, item.name, _sorted(item.arguments)])
    if isinstance(item, FunctionCallOutputParam):
        return encode(["result", item.call_id, item.output])
    if isinstance(item, MessageParam):
        return encode([item.role, item.content])
    return encode(item)


def _sorted(arguments: str) -> str:
    """Return the JSON with sorted names, since JavaScript changes the order of names that are numbers."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
