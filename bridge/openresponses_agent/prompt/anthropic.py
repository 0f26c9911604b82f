"""Converts raw messages to the system text and messages of Anthropic's Messages API."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from openresponses_agent.prompt.chat import bare, breakpoint_of, mark_of, objects_of
from openresponses_agent.prompt.raw import (
    Base64Image,
    CacheBreakpointPart,
    ChatMessage,
    ChatMessageToolCall,
    ChatRole,
    Content,
    ContentPart,
    ImagePart,
    ImageUrl,
    OpaquePart,
    TextPart,
    ThinkingPart,
    content_of,
    parts_of,
)
from openresponses_agent.prompt.thinking import block_of, part_of_block
from openresponses_bridge.calls.json_text import tool_input
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.anthropic_messages.upstream.messages import AlternatingMessages
from openresponses_bridge.dialects.base import Fields, invalid
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.seal import Sealer

Block = dict[str, Any]

_SCOPES: Final = ("anthropic", "any")
MAX_BREAKPOINTS: Final = 4
"""The most breakpoints that the API accepts in one request."""


class AnthropicPrompt(NamedTuple):
    """A prompt in the form of the Messages API. `system` is a text, or blocks if it contains breakpoints; ""
    if there is none."""

    system: str | list[Block]
    messages: list[dict[str, Any]]


def api_messages_to_anthropic(
    messages: Iterable[ChatMessage],
    *,
    sealer: Sealer | None = None,
    diagnostics: Diagnostics | None = None,
) -> AnthropicPrompt:
    """Convert messages to the API's form: all system text in one place, results as blocks of a user's turn,
    alternating turns, breakpoints as the `cache_control` of the block before (the last four).

    `sealer` opens thinking in `encrypted_content`. What can't be expressed is a loss.
    """
    return _AnthropicWriter(sealer, Diagnostics() if diagnostics is None else diagnostics).prompt(messages)


class _AnthropicWriter:
    def __init__(self, sealer: Sealer | None, diagnostics: Diagnostics) -> None:
        self._sealer = sealer
        self._diagnostics = diagnostics
        self._turns = AlternatingMessages(diagnostics)
        self._system: list[Block] = []
        self._marked: list[Block] = []
        self._tool_ids: dict[str, deque[str]] = {}  # a call's id → its ids in the API
        self._begun = False

    def prompt(self, messages: Iterable[ChatMessage]) -> AnthropicPrompt:
        for message in messages:
            _WRITERS[message.role](self, message)
        turns = self._turns.finished()
        for block in self._marked[:-MAX_BREAKPOINTS]:
            del block["cache_control"]
        return AnthropicPrompt(self._system_text(), turns)

    def _system_text(self) -> str | list[Block]:
        blocks: list[Block] = []
        for block in self._system:
            if blocks and "cache_control" not in blocks[-1]:
                block["text"] = f"{blocks.pop()['text']}\n\n{block['text']}"
            blocks.append(block)
        if len(blocks) == 1 and "cache_control" not in blocks[0]:
            text: str = blocks[0]["text"]
            return text
        return blocks or ""

    def _add_system(self, message: ChatMessage) -> None:
        if self._begun:
            self._diagnostics.loss("message.system", "moved from within the conversation to its head")
        blocks = self._blocks(message.content)
        texts = [block for block in blocks if block["type"] == "text"]
        if len(texts) < len(blocks):
            self._diagnostics.loss("message.system", "only its text has a place in the system prompt")
        self._system += texts

    def _user(self, message: ChatMessage) -> None:
        self._begun = True
        self._turns.add("user", self._blocks(message.content))

    def _assistant(self, message: ChatMessage) -> None:
        self._begun = True
        blocks = self._blocks(message.content)
        for call in message.tool_calls or ():
            tool_id = self._turns.tool_id(call.id)
            self._tool_ids.setdefault(call.id, deque()).append(tool_id)
            arguments = tool_input(call.function.arguments)
            blocks.append({"type": "tool_use", "id": tool_id, "name": call.function.name, "input": arguments})
        self._turns.add("assistant", blocks)

    def _result(self, message: ChatMessage) -> None:
        call_id = message.tool_call_id or ""
        known = self._tool_ids.get(call_id)
        block: Block = {"type": "tool_result", "tool_use_id": known.popleft() if known else call_id}
        parts = parts_of(message.content)
        marks = [part for part in parts if isinstance(part, CacheBreakpointPart)]
        blocks = self._blocks([part for part in parts if not isinstance(part, CacheBreakpointPart)])
        if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
            block["content"] = blocks[0]["text"]
        elif blocks:
            block["content"] = blocks
        if message.is_error:
            block["is_error"] = True
        for mark in marks:  # what is in a result can't be marked
            self._mark([block], mark)
        self._turns.add("user", [block])

    def _blocks(self, content: Content) -> list[Block]:
        """Return the blocks without blank texts, which the API refuses."""
        blocks: list[Block] = []
        for part in parts_of(content):
            if isinstance(part, CacheBreakpointPart):
                self._mark(blocks, part)
            elif (block := self._block(part)) is not None:
                blocks.append(block)
        return blocks

    def _mark(self, blocks: list[Block], part: CacheBreakpointPart) -> None:
        if not blocks or blocks[-1]["type"].endswith("thinking"):
            self._diagnostics.ignored("cache_breakpoint", "nothing before it can have it")
            return
        if "cache_control" not in blocks[-1]:
            self._marked.append(blocks[-1])
        blocks[-1]["cache_control"] = mark_of(part)

    def _block(self, part: TextPart | ImagePart | OpaquePart | ThinkingPart) -> Block | None:
        if isinstance(part, TextPart):
            return {"type": "text", "text": part.text} if part.text.strip() else None
        if isinstance(part, ThinkingPart):
            return block_of(part, self._sealer, self._diagnostics)
        if isinstance(part, ImagePart):
            return {"type": "image", "source": _source(part)}
        if part.scope in _SCOPES and isinstance(part.value, dict) and isinstance(part.value.get("type"), str):
            return dict(part.value)
        self._diagnostics.loss("content.opaque", "can't be expressed")
        return None


def _source(part: ImagePart) -> dict[str, Any]:
    source = part.source
    if isinstance(source, Base64Image):
        return {"type": "base64", "media_type": source.media_type, "data": source.data}
    return {"type": "url", "url": source.url}


_WRITERS: Final[dict[str, Callable[[_AnthropicWriter, ChatMessage], None]]] = {
    "system": _AnthropicWriter._add_system,
    "user": _AnthropicWriter._user,
    "assistant": _AnthropicWriter._assistant,
    "tool": _AnthropicWriter._result,
}


def anthropic_messages_to_raw_messages(
    messages: Iterable[Mapping[str, Any]], system: str | list[Mapping[str, Any]] = ""
) -> list[ChatMessage]:
    """Convert the messages of a body, with its system text as the first one. A `tool_result` is a message of
    the role `tool`, named by its call; `cache_control` is a breakpoint after its part; blocks that have no
    part of their own are opaque.

    Raises InvalidRequestError (`invalid_value`) with the place of what is wrong: `messages[0].content[1]`.
    """
    reader = _AnthropicReader()
    reader.system(Fields({"system": system}))
    for message in objects_of(messages, "messages"):
        reader.message(message)
    return reader.made


class _AnthropicReader:
    def __init__(self) -> None:
        self.made: list[ChatMessage] = []
        self._names: dict[str, str] = {}  # a call's id → its tool
        self._parts: list[ContentPart] = []
        self._calls: list[ChatMessageToolCall] = []

    def system(self, fields: Fields) -> None:
        content = self._content(fields, "system")
        if content:
            self.made.append(ChatMessage(role="system", content=content))

    def message(self, message: Fields) -> None:
        role: Any = message.one_of("role", ("user", "assistant"))
        if role is None:
            raise invalid(message.at("role"), "is required")
        if isinstance(message.either("content", str, list), list):
            for block in message.each("content"):
                self._block(block, role)
        else:
            self._parts.append(TextPart(message.need("content", str)))
        self._flush(role)

    def _block(self, block: Fields, role: ChatRole) -> None:
        kind = block.need("type", str)
        if kind == "tool_use":
            call_id, name = block.need("id", str), block.need("name", str)
            arguments = encode(block.need("input", dict)).decode()
            self._calls.append(ChatMessageToolCall.of(call_id, name, arguments))
            self._names[call_id] = name
            self._parts += breakpoint_of(block)  # a call has no parts: the cache ends before it
        elif kind == "tool_result":
            self._flush(role)
            self._result(block)
        else:
            self._parts += [_part(block), *breakpoint_of(block)]

    def _result(self, block: Fields) -> None:
        call_id = block.need("tool_use_id", str)
        self.made.append(
            ChatMessage(
                role="tool",
                content=content_of([*parts_of(self._content(block, "content")), *breakpoint_of(block)]),
                tool_call_id=call_id,
                name=self._names.get(call_id),
                is_error=bool(block.get("is_error", bool)),
            )
        )

    def _flush(self, role: ChatRole) -> None:
        parts, self._parts = self._parts, []
        calls, self._calls = self._calls, []
        if parts or calls:
            self.made.append(ChatMessage(role=role, content=content_of(parts), tool_calls=calls or None))

    def _content(self, fields: Fields, name: str) -> Content:
        content = fields.either(name, str, list)
        if not isinstance(content, list):
            return content or ""
        return content_of(
            part for block in fields.each(name) for part in (_part(block), *breakpoint_of(block))
        )


def _part(block: Fields) -> ContentPart:
    return _PARTS.get(block.need("type", str), _opaque)(block)


def _text(block: Fields) -> ContentPart:
    return TextPart(block.need("text", str))


def _image(block: Fields) -> ContentPart:
    source = block.inner("source")
    kind = source.need("type", str)
    if kind == "base64":
        return ImagePart(Base64Image(source.need("media_type", str), source.need("data", str)))
    return ImagePart(ImageUrl(source.need("url", str))) if kind == "url" else _opaque(block)


def _thinking(block: Fields) -> ContentPart:
    block.need("thinking", str)
    block.get("signature", str)
    return part_of_block(block.whole())


def _redacted(block: Fields) -> ContentPart:
    block.need("data", str)
    return part_of_block(block.whole())


def _opaque(block: Fields) -> ContentPart:
    return OpaquePart(bare(block), scope="anthropic")


_PARTS: Final[dict[str, Callable[[Fields], ContentPart]]] = {
    "text": _text,
    "image": _image,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
}
