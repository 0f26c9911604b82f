"""Assembles a context into raw messages, with nothing left out: the system message, and the conversation in
units.

A summary replaces whole units: a unit is a question, or a round with the results of its calls. So a call is
never left without its result.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from openresponses_agent.prompt.context import (
    ApprovalRequest,
    Attachment,
    PromptContext,
    Reference,
    SystemPart,
    ToolCall,
    ToolCallResults,
    ToolCallRound,
    one_line,
)
from openresponses_agent.prompt.raw import (
    Base64Image,
    CacheBreakpointPart,
    ChatMessage,
    ChatMessageToolCall,
    ContentPart,
    ImagePart,
    OpaquePart,
    TextPart,
    content_of,
    parts_of,
)
from openresponses_agent.tools.results import (
    LanguageModelToolResult,
    ToolResultDataPart,
    ToolResultPart,
    ToolResultTextPart,
)
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.vscode.media import text_of_tree
from openresponses_bridge.text import repair_surrogates, repair_surrogates_json

_UNKNOWN: Final = LanguageModelToolResult.failure(
    "Error: there is no result of this call. It was interrupted or never run."
)
_INTERRUPTED: Final = (
    "Error: Interrupted - the run stopped after the user had approved this call. It may have had its effect: "
    "look before calling it again."
)
_TOOL: Final = "#tool:"


class Unit(NamedTuple):
    """Messages that are kept or replaced together: a question (one user message, in whose content the last
    `whole` parts are never cut), or a model's answer with the results of its calls."""

    messages: list[ChatMessage]
    question: bool
    whole: int = 0


class PromptUnits(NamedTuple):
    """The units of a conversation, in order. `current` is the index of the question that is being answered,
    if there is one. `is_asked` is True if there is something to answer, a question or results."""

    units: list[Unit]
    current: int | None
    is_asked: bool


def collapse_system_messages(messages: Iterable[ChatMessage], separator: str = "\n\n") -> list[ChatMessage]:
    """Merge consecutive system messages. Adjacent texts are joined with the separator, so that a message
    without breakpoints has one text."""
    collapsed: list[ChatMessage] = []
    for message in messages:
        if message.role != "system" or not collapsed or collapsed[-1].role != "system":
            collapsed.append(message)
            continue
        parts = parts_of(collapsed[-1].content)
        for part in parts_of(message.content):
            if isinstance(part, TextPart) and parts and isinstance(parts[-1], TextPart):
                parts[-1] = TextPart(parts[-1].text + separator + part.text)
            else:
                parts.append(part)
        collapsed[-1] = ChatMessage(role="system", content=content_of(parts))
    return collapsed


def system_messages(context: PromptContext, separator: str) -> list[ChatMessage]:
    """Return the system text, then the global context, as one message; [] if both are empty."""
    parts: list[SystemPart] = [*context.system, context.global_context.text()]
    instructions = map(_instruction, parts)
    messages = [
        ChatMessage(role="system", content=[part])
        for part in instructions
        if not isinstance(part, TextPart) or part.text.strip()
    ]
    collapsed = collapse_system_messages(messages, separator)
    return [ChatMessage(role="system", content=content_of(parts_of(each.content))) for each in collapsed]


def _instruction(part: SystemPart) -> TextPart | CacheBreakpointPart:
    if isinstance(part, CacheBreakpointPart):
        return part
    return TextPart(repair_surrogates(part if isinstance(part, str) else part.text))


class Assembler:
    """Makes the units of one prompt. Ids of calls are unique in it, whatever ids models used."""

    def __init__(self, *, supports_images: bool, history_thinking: bool, diagnostics: Diagnostics) -> None:
        self._supports_images = supports_images
        self._history_thinking = history_thinking
        self._diagnostics = diagnostics
        self._call_ids: dict[str, int] = {}  # how often each id was used
        self._granted: frozenset[str] = frozenset()
        self._ran: set[str] = set()  # the requests for approval whose calls the server has run
        self._units: list[Unit] = []

    def conversation(self, context: PromptContext) -> PromptUnits:
        """Return the units of earlier turns, the question, and its rounds so far."""
        self._granted = context.granted
        rounds = [*(each for turn in context.history for each in turn.rounds), *context.tool_call_rounds]
        self._ran = {str(item.get("approval_request_id")) for each in rounds for item in each.items}
        for turn in context.history:
            self._question(turn.query, turn.attachments, turn.references)
            self._rounds(turn.rounds, turn.results, thinking=self._history_thinking)
            if turn.response.strip():
                answer = ChatMessage(role="assistant", content=repair_surrogates(turn.response))
                self._units.append(Unit([answer], question=False))
        current = len(self._units)
        has_question = self._question(context.query, context.attachments, context.references)
        self._rounds(context.tool_call_rounds, context.tool_call_results, thinking=True)
        return PromptUnits(self._units, current if has_question else None, len(self._units) > current)

    def _question(
        self, query: str, attachments: Sequence[Attachment], references: Sequence[Reference]
    ) -> bool:
        parts: list[ContentPart] = []
        for attachment in attachments:
            parts += self._attached(attachment)
        named = _named(references)
        if named:
            parts.append(TextPart(named))
        whole = 1 if query.strip() else 0
        if whole:
            parts.append(TextPart(repair_surrogates(query)))
        if parts:
            message = ChatMessage(role="user", content=content_of(parts))
            self._units.append(Unit([message], question=True, whole=whole))
        return bool(parts)

    def _attached(self, attachment: Attachment) -> list[ContentPart]:
        name = one_line(repair_surrogates(attachment.name))
        parts: list[ContentPart] = []
        if attachment.text:
            parts.append(TextPart(_shown(name, attachment)))
        if attachment.image is not None:
            parts.append(self._image(ImagePart(attachment.image), name))
        return parts

    def _image(self, image: ImagePart, name: str) -> ContentPart:
        if self._supports_images:
            return image
        self._diagnostics.loss("image", "the model does not take images")
        return TextPart(f"[An image was left out, since this model does not take images: {name}]")

    def _rounds(self, rounds: Iterable[ToolCallRound], results: ToolCallResults, *, thinking: bool) -> None:
        for each in rounds:
            messages = self._round(each, results, thinking)
            if messages:
                self._units.append(Unit(messages, question=False))

    def _round(self, each: ToolCallRound, results: ToolCallResults, thinking: bool) -> list[ChatMessage]:
        called = [(self._unique(call), call) for call in each.tool_calls]
        text = repair_surrogates(each.response)
        if not called and not text.strip() and not each.items:
            return []  # nothing that may be sent back to a model
        parts: list[ContentPart] = []
        if thinking and each.thinking is not None:
            parts += each.thinking.blocks
        parts += [OpaquePart(repair_surrogates_json(item), scope="item") for item in each.items]
        if text.strip():
            parts.append(TextPart(text))
        calls = [
            ChatMessageToolCall.of(call_id, repair_surrogates(call.name), repair_surrogates(call.arguments))
            for call_id, call in called
        ]
        answer = ChatMessage(role="assistant", content=content_of(parts), tool_calls=calls or None)
        messages = [answer, *(self._result(call_id, call, results) for call_id, call in called)]
        decided: list[ContentPart] = [
            OpaquePart(self._decision(request, results.get(request.id)), scope="item")
            for request in each.approvals
        ]
        return [*messages, ChatMessage(role="user", content=decided)] if decided else messages

    def _decision(
        self, request: ApprovalRequest, result: LanguageModelToolResult | None
    ) -> dict[str, str | bool]:
        """Return the item that answers a request for approval. An approval of an earlier process is sent as
        declined, since it is unknown whether the call ran, unless the conversation has the call."""
        item: dict[str, str | bool] = {
            "type": "mcp_approval_response",
            "approval_request_id": request.request_id,
        }
        if result is not None and result.is_error:
            return {**item, "approve": False, "reason": repair_surrogates(result.text)}
        if request.request_id in self._ran or (result is not None and request.id in self._granted):
            return {**item, "approve": True}
        return {**item, "approve": False, "reason": _INTERRUPTED}

    def _unique(self, call: ToolCall) -> str:
        base = candidate = repair_surrogates(call.call_id or call.id) or "call"
        while candidate in self._call_ids:
            self._call_ids[base] += 1
            candidate = f"{base}_{self._call_ids[base]}"
        self._call_ids[candidate] = 1
        return candidate

    def _result(self, call_id: str, call: ToolCall, results: ToolCallResults) -> ChatMessage:
        result = results.get(call.id)
        if result is None:
            self._diagnostics.repair("tool_call_results", "a call without a result got one that says so")
            result = _UNKNOWN
        parts = [self._brought(part) for part in result.content]
        return ChatMessage(
            role="tool",
            content=content_of(part for part in parts if not isinstance(part, TextPart) or part.text.strip()),
            tool_call_id=call_id,
            name=repair_surrogates(call.name),
            is_error=result.is_error,
        )

    def _brought(self, part: ToolResultPart) -> ContentPart:
        if isinstance(part, ToolResultTextPart):
            return TextPart(repair_surrogates(part.value))
        if not isinstance(part, ToolResultDataPart):
            return TextPart(repair_surrogates(text_of_tree(part.value)))
        kind = one_line(part.mime_type)
        if kind.startswith("image/"):
            image = Base64Image(kind, base64.b64encode(part.data).decode())
            return self._image(ImagePart(image), kind)
        if kind.startswith("text/"):
            return TextPart(part.data.decode(errors="replace"))
        self._diagnostics.loss("tool_result.data", "only its type and size are shown")
        return TextPart(f"[{kind}, {len(part.data)} bytes]")


def _named(references: Sequence[Reference]) -> str:
    """Return the references in the question, one per line; all tools in one line."""
    tools = [each.name.removeprefix(_TOOL) for each in references if each.name.startswith(_TOOL)]
    others = [each for each in references if not each.name.startswith(_TOOL)]
    lines = [
        f"{one_line(each.name)} ({one_line(each.value)})" if each.value else one_line(each.name)
        for each in others
    ]
    if tools:
        lines.append(f"Tools to use: {', '.join(map(one_line, tools))}")
    return repair_surrogates("The question refers to:\n" + "\n".join(lines)) if lines else ""


def _shown(name: str, attachment: Attachment) -> str:
    """Return a text with its name, in a fence that is longer than any in the text."""
    text = repair_surrogates(attachment.text)
    fence = "`" * max(3, _longest_row(text) + 1)
    lines = ""
    if attachment.start_line is not None:
        end = attachment.start_line if attachment.end_line is None else attachment.end_line
        lines = f", lines {attachment.start_line} to {end}"
    language = one_line(attachment.language).replace("`", "")
    closing = "" if text.endswith("\n") else "\n"
    return f"Attached: {name}{lines}\n{fence}{language}\n{text}{closing}{fence}"


def _longest_row(text: str) -> int:
    """The length of the longest row of backticks."""
    longest = row = 0
    if "```" in text:
        for each in text:
            row = row + 1 if each == "`" else 0
            longest = max(longest, row)
    return longest
