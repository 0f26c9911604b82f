"""What `POST /v1/responses/compact` answers: the input window that a new chain begins with."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from openresponses_bridge.protocol.codec import encode, item_from
from openresponses_bridge.protocol.input_items import MessageParam
from openresponses_bridge.protocol.items import Item, Message
from openresponses_bridge.protocol.response import CompactResource, Response
from openresponses_bridge.protocol.unknown import enc_hook
from openresponses_bridge.protocol.usage import Usage
from openresponses_server.api.forms import KEEP_ALIVE, SSE_TYPE
from openresponses_server.errors import HttpError
from openresponses_server.runs.client import Batch

KEPT_TOKENS: Final = 20_000
"""How much of what users said stays word for word, newest first."""
Tokens = Callable[[Any], int]
_RULES: Final = frozenset({"system", "developer"})


class CompactionForm:
    """The answer of `/v1/responses/compact` to a response that condenses `items`. It is never streamed.
    `tokens` counts those of an item."""

    stream_type = SSE_TYPE
    keep_alive = KEEP_ALIVE
    one_form = False

    def __init__(self, items: Sequence[Any], tokens: Tokens) -> None:
        self._items = items
        self._tokens = tokens

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        raise NotImplementedError("a compaction is always whole")

    def whole(self, response: Response) -> bytes | None:
        """Raises HttpError when the model stopped before its summary was whole."""
        if response.incomplete_details is not None:
            why = f"The summary was cut ({response.incomplete_details.reason})."
            raise HttpError(502, why, code="compaction_incomplete")
        return encode(compacted(response, self._items, self._tokens))


def compacted(response: Response, items: Sequence[Any], tokens: Tokens) -> CompactResource:
    """`response` holds the compaction of `items`. In the window, clients expect, users' messages stay as
    they were and the compaction comes last; the rules they set stay too, since a summary does not bind the
    model."""
    return CompactResource(
        id=response.id,
        object="response.compaction",
        output=[*_kept(items, tokens), *response.output],
        created_at=response.created_at,
        usage=response.usage or _estimated(items, response.output, tokens),
    )


def _kept(items: Sequence[Any], tokens: Tokens) -> list[Item]:
    left = KEPT_TOKENS
    kept: list[Item] = []
    for item in reversed(items):
        if not isinstance(item, MessageParam | Message):
            continue
        if item.role == "user" and left >= 0:  # what does not fit any more need not be measured
            left -= tokens(item)
        if item.role in _RULES or (item.role == "user" and left >= 0):
            kept.append(_message(item))
    return kept[::-1]


def _message(item: MessageParam | Message) -> Item:
    raw: dict[str, Any] = msgspec.to_builtins(item, enc_hook=enc_hook)
    content = raw["content"]
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    made = {
        "type": "message",
        "id": raw.get("id") or f"msg_{secrets.token_hex(16)}",
        "status": "completed",
        "role": item.role,
        "content": list(map(_output_part, parts)),
    }
    return item_from(made)


def _output_part(part: dict[str, Any]) -> dict[str, Any]:
    """The part as items of an output have it: SDKs read the window as one and warn of `input_text`."""
    if part["type"] != "input_text":
        return part
    return {"type": "output_text", "text": part["text"], "annotations": [], "logprobs": []}


def _estimated(items: Sequence[Any], output: Sequence[Item], tokens: Tokens) -> Usage:
    return Usage.of(sum(map(tokens, items)), sum(map(tokens, output)))
