"""A conversation that its client keeps: what goes into the next request."""

from __future__ import annotations

from typing import Any

from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.items import Message, ReasoningItem
from openresponses_bridge.protocol.response import Response

Item = dict[str, Any]


class Conversation:
    """Messages so far. Nothing of it is stored on the server."""

    def __init__(self, instructions: str | None = None) -> None:
        self._instructions = instructions
        self._items: list[Item] = []
        self._asked: Item | None = None
        self.attachments: list[Item] = []
        """Parts that go with the next message."""

    def __len__(self) -> int:
        return len(self._items)

    def ask(self, model: str, text: str) -> dict[str, Any]:
        """The request for this message."""
        parts = [*self.attachments, {"type": "input_text", "text": text}]
        self._asked = {"type": "message", "role": "user", "content": parts}
        request: dict[str, Any] = {
            "model": model,
            "input": [*self._items, self._asked],
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        return request if self._instructions is None else {**request, "instructions": self._instructions}

    def answered(self, response: Response) -> None:
        """Keep the message and its answer; of one that failed nothing is kept, and it can be asked again."""
        if self._asked is None or response.status == "failed":
            return
        self._items += [self._asked, *_to_keep(response)]
        self._asked = None
        self.attachments = []

    def clear(self) -> None:
        """Begin anew."""
        self._items.clear()
        self.attachments = []


def _to_keep(response: Response) -> list[Item]:
    """What a next request may have of an answer: a call without its output would be refused, and so would
    reasoning that led to it, or that the server has to have kept."""
    calls = any(not isinstance(item, Message | ReasoningItem) for item in response.output)
    kept: list[Item] = []
    for item in response.output:
        sealed = isinstance(item, ReasoningItem) and isinstance(item.encrypted_content, str)
        if isinstance(item, Message) or (sealed and not calls):
            kept.append(decode_json(encode(item)))
    return kept
