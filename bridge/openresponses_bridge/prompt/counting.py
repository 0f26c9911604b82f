"""Tokens of raw messages, by a `TokenCounter`. They add up: a prompt is the sum of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from openresponses_bridge.models.token_counter import TokenCounter
from openresponses_bridge.prompt.items import raw_messages_to_input_items
from openresponses_bridge.prompt.raw import (
    ChatMessage,
    ImagePart,
    OpaquePart,
    TextPart,
    ThinkingPart,
    content_of,
    parts_of,
)
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.tools import FunctionToolParam
from openresponses_bridge.tools.registry import Tool

_CHARACTERS_PER_TOKEN = 4  # of what is signed or encrypted


class PromptCounter:
    """Counts for one model."""

    def __init__(self, counter: TokenCounter, model: str) -> None:
        self._counter = counter
        self._model = model

    def text(self, text: str) -> int:
        """Tokens of a text."""
        return self._counter.text(text, self._model)

    def messages(self, messages: Iterable[ChatMessage]) -> int:
        """Tokens of messages."""
        return sum(map(self.message, messages))

    def message(self, message: ChatMessage) -> int:
        """Tokens of a message: its role, content, calls, and its thinking by text and size."""
        parts = parts_of(message.content)
        beside = [part for part in parts if isinstance(part, ThinkingPart | OpaquePart)]
        shown = content_of(part for part in parts if isinstance(part, TextPart | ImagePart))
        items = raw_messages_to_input_items([replace(message, content=shown)])
        return sum(self._counter.item(item, self._model) for item in items) + sum(map(self._part, beside))

    def request(self, tools: Sequence[Tool]) -> int:
        """Tokens of a request without messages: its tools, and what a server adds to each."""
        declared = [FunctionToolParam(each.name, each.description, each.input_schema) for each in tools]
        return self._counter.request(CreateResponse(tools=list(declared) or None), (), self._model)

    def _part(self, part: ThinkingPart | OpaquePart) -> int:
        if isinstance(part, OpaquePart):
            return part.token_usage or self.text(encode(part.value).decode())
        sealed = part.encrypted_content or part.signature or part.redacted or ""
        thought = "\n".join([part.thinking, *(part.summary or ())])
        return self.text(thought) + len(sealed) // _CHARACTERS_PER_TOKEN
