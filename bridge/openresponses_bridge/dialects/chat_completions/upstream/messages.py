"""Input items → Chat messages.

An assistant's turn there is one message: its text, then its calls; the answers to all of them must
follow at once. So reasoning, a message and the calls behind it are gathered into a turn, and a turn
brings the outputs of its calls with it wherever they stand in the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from msgspec import Struct

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import CallView, OutputView, call_view, output_view, pair
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import EFFORTS, Entry
from openresponses_bridge.dialects.chat_completions.types import ChatFunction, ChatMessage, ChatToolCall
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import input_items as params
from openresponses_bridge.protocol import items
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownPart

ChatPart = dict[str, Any]
_IMAGE_DETAILS = {"original": "high"}  # Chat knows auto, low and high


def chat_content(given: str | Sequence[Any], diagnostics: Diagnostics, where: str) -> str | list[ChatPart]:
    """Text as a string, which every server takes; a list of parts when there is more than text."""
    if isinstance(given, str):
        return given
    if _TEXT_KINDS.issuperset(map(type, given)):  # as almost always
        texts: Sequence[Any] = given
        return "\n\n".join([part.text for part in texts])
    parts = [
        chat
        for index, part in enumerate(given)
        if (chat := chat_part(part, diagnostics, f"{where}[{index}]"))
    ]
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def chat_part(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart | None:
    """One part, None when Chat has can't be expressed (then it is a loss)."""
    made = _PARTS[type(part)](part, diagnostics, where)
    if made is None:
        diagnostics.loss(where, f"{part.type} can't be expressed here")
    return made


def _text(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart:
    return {"type": "text", "text": part.text}


def _refusal(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart:
    return {"type": "text", "text": part.refusal}


def _image(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart | None:
    if not part.image_url:
        return None
    image = {"url": part.image_url}
    if part.detail:
        image["detail"] = _IMAGE_DETAILS.get(part.detail, part.detail)
        if part.detail in _IMAGE_DETAILS:
            diagnostics.loss(f"{where}.detail", f"{part.detail} sent as {image['detail']}")
    return {"type": "image_url", "image_url": image}


def _file(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart | None:
    given = {
        name: getattr(part, name) for name in ("filename", "file_data", "file_id") if getattr(part, name)
    }
    return {"type": "file", "file": given} if given.keys() & {"file_data", "file_id"} else None


def _video(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart:
    # not OpenAI's; vLLM, OpenRouter and others take it, and who does not says so
    return {"type": "video_url", "video_url": {"url": part.video_url}}


def _unknown(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart | None:
    return part.raw if part.type == "input_audio" else None


_PARTS: dict[type[Any], Callable[[Any, Diagnostics, str], ChatPart | None]] = {
    ct.InputTextContent: _text,
    ct.OutputTextParam: _text,
    ct.OutputTextContent: _text,
    ct.TextContent: _text,
    ct.SummaryTextContent: _text,
    ct.ReasoningTextContent: _text,
    ct.RefusalContent: _refusal,
    ct.InputImageParam: _image,
    ct.InputImageContent: _image,
    ct.InputFileContent: _file,
    ct.InputVideoContent: _video,
    UnknownPart: _unknown,
}
_TEXT_KINDS: frozenset[type[Any]] = frozenset({kind for kind, made in _PARTS.items() if made is _text})


class ChatOptions(Struct, frozen=True, kw_only=True):
    """Options of an upstream, where servers differ."""

    developer_role: Literal["system", "developer", "user"] = "system"
    """The role of developer messages; every server knows `system`."""
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The field for the output limit; older servers know `max_tokens` only."""
    reasoning_field: Literal["reasoning_content", "reasoning", "reasoning_details"] | None = None
    """The field for reasoning of earlier turns; None leaves it out, with a loss."""
    reasoning_turns: Literal["all", "loop"] = "all"
    """The reasoning that is sent: `all`, or that of the `loop` of tool calls since the user's last
    message."""
    missing_reasoning: str | None = None
    """The reasoning in a message with tool calls that has none, for servers that require it."""
    stream_usage: bool = True
    """Ask for the usage chunk of a stream."""
    forward_store: bool = False
    """Pass on `store` and `metadata`, so that the upstream stores the completion too."""
    json_schema: Literal["json_schema", "json_object"] = "json_schema"
    """The form of a schema for the output; `json_object` is a loss."""
    takes_n: bool = False
    """Whether the server gives several choices to one request; otherwise it gets one request for each."""
    tools_field: Literal["tools", "functions"] = "tools"
    """The field for tools; servers that know `functions` only make one call an answer."""
    efforts: frozenset[str] = EFFORTS
    """The accepted levels of `reasoning.effort`; others are refused."""
    omit: frozenset[str] = frozenset()
    """Names of request fields that this upstream refuses; each use is a loss."""


DEFAULT_OPTIONS = ChatOptions()


class MessagesBuilder:
    """Builds the message list: `build(entries)`. Raises InvalidRequestError with the item's place."""

    def __init__(self, identities: ToolIdentityMap, options: ChatOptions, diagnostics: Diagnostics) -> None:
        self._identities = identities
        self._options = options
        self._diagnostics = diagnostics
        self._legacy = options.tools_field == "functions"
        self._roles = {"developer": options.developer_role}
        self._messages: list[ChatMessage] = []
        self._entries: Sequence[Entry] = ()
        self._views: list[CallView | OutputView | None] = []
        self._answers: dict[int, int | None] = {}
        self._reasoning: list[str] = []
        self._at = self._asked = 0  # the position that is read, and that of the user's last message
        self._turn: ChatMessage | None = None
        self._calls: list[tuple[CallView, int]] = []  # of the open turn, with the positions of their outputs

    def build(self, entries: Sequence[Entry], instructions: str | None) -> list[ChatMessage]:
        """The whole conversation, `instructions` as its first message."""
        self._entries = entries
        self._views = [
            None
            if type(e.item) is params.MessageParam
            else call_view(e.item, self._identities) or output_view(e.item, self._identities)
            for e in entries
        ]
        self._answers = pair(self._views, lambda index: entries[index].param)
        if instructions:
            self._messages.append(ChatMessage(role="system", content=instructions))
        asked = [at for at, each in enumerate(entries) if getattr(each.item, "role", None) == "user"]
        self._asked = asked[-1] if asked else 0
        for position, entry in enumerate(entries):
            self._at = position
            view = self._views[position]
            if isinstance(view, CallView):
                self._call(view, self._answers[position], entry)
            elif isinstance(view, OutputView):
                self._output(entry)
            else:
                _HANDLERS[type(entry.item)](self, entry)
        self._end_turn()
        self._drop_reasoning("with no answer after it")
        return self._messages

    def _message(self, entry: Entry) -> None:
        item: Any = entry.item
        if item.role == "assistant":
            self._assistant(item, entry.where)
            return
        self._end_turn()
        self._drop_reasoning("with no answer after it")
        content = chat_content(item.content, self._diagnostics, f"{entry.where}.content")
        self._messages.append(ChatMessage(role=self._roles.get(item.role, item.role), content=content))

    def _assistant(self, item: Any, where: str) -> None:
        if self._turn is not None:
            self._end_turn()
        parts = item.content if not isinstance(item.content, str) else [ct.InputTextContent(item.content)]
        refusals = [part.refusal for part in parts if isinstance(part, ct.RefusalContent)]
        said = [part for part in parts if not isinstance(part, ct.RefusalContent)]
        texts = [part.text for part in said if isinstance(part, _TEXTS)]
        if len(texts) < len(said):
            self._diagnostics.loss(f"{where}.content", "an assistant's message takes text only")
        if any(getattr(part, "annotations", None) for part in said):
            self._diagnostics.loss(f"{where}.content", "annotations can't be expressed")
        if item.phase:
            self._diagnostics.loss(f"{where}.phase", "can't be expressed")
        text, refusal = "".join(texts), "".join(refusals)
        if text or refusal:
            turn = self._open_turn()
            turn.content, turn.refusal = text or None, refusal or None

    def _think(self, entry: Entry) -> None:
        item: Any = entry.item
        if self._turn is not None:
            self._end_turn()
        texts = [part.text for part in item.content or item.summary if part.text]
        if not texts:
            if item.encrypted_content:
                self._diagnostics.loss(entry.where, "encrypted reasoning can't be expressed")
        elif self._options.reasoning_turns == "loop" and self._at < self._asked:
            self._diagnostics.ignored(entry.where, "reasoning about an earlier question")
        elif self._options.reasoning_field is None:
            self._diagnostics.loss(entry.where, "reasoning of earlier turns can't be expressed")
        else:
            self._reasoning.append("\n\n".join(texts))
            if item.content and any(part.text for part in item.summary):
                self._diagnostics.loss(
                    entry.where, "a summary beside the reasoning itself can't be expressed"
                )

    def _call(self, call: CallView, answer: int | None, entry: Entry) -> None:
        if answer is None:
            self._diagnostics.loss(entry.where, "a call that was cut and never run, left out")
            return
        function = ChatFunction(call.name, call.arguments)
        if self._legacy:
            if self._calls:  # a message has a place for one `function_call`
                self._end_turn(at_output=True)
            self._open_turn().function_call = function
        else:
            turn = self._open_turn()
            made = ChatToolCall(None, call.call_id, "function", function)
            turn.tool_calls = [*(turn.tool_calls or ()), made]
        self._calls.append((call, answer))

    def _searched(self, entry: Entry) -> None:
        self._diagnostics.ignored(entry.where, "a tool search that the server ran itself")

    def _output(self, entry: Entry) -> None:
        if self._turn is not None:
            self._end_turn(at_output=True)

    def _tools(self, entry: Entry) -> None:
        """Declarations within the input say nothing of their own: the request's tools hold them."""

    def _reference(self, entry: Entry) -> None:
        reference: Any = entry.item
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE,
            f"item {reference.id!r} is not known here",
            param=entry.param,
        )

    def _compaction(self, entry: Entry) -> None:
        raise InvalidRequestError(
            InvalidRequestError.UNSUPPORTED,
            "a compaction must be opened before it is sent to a Chat Completions server",
            param=entry.param,
        )

    def _unknown(self, entry: Entry) -> None:
        unknown: Any = entry.item
        self._diagnostics.loss(entry.where, f"an item of type {unknown.type[:64]!r} can't be expressed")

    def _open_turn(self) -> ChatMessage:
        if self._turn is None:
            self._turn = ChatMessage(role="assistant")
            if self._reasoning:
                self._put_reasoning(self._turn, "\n\n".join(self._reasoning))
                self._reasoning = []
        return self._turn

    def _put_reasoning(self, turn: ChatMessage, text: str) -> None:
        field = self._options.reasoning_field
        if field == _DETAILS:
            turn.reasoning_details = [{"type": "reasoning.text", "text": text}]
        elif field is not None:
            setattr(turn, field, text)

    def _end_turn(self, at_output: bool = False) -> None:
        if self._turn is None:
            return
        missing, field = self._options.missing_reasoning, self._options.reasoning_field
        if missing is not None and self._turn.tool_calls and getattr(self._turn, field or _DETAILS) is None:
            self._put_reasoning(self._turn, missing)
        self._messages.append(self._turn)
        calls, self._calls, self._turn = self._calls, [], None
        attachments: list[ChatPart] = []
        for call, position in calls:
            if not at_output:
                where = self._entries[position].where
                self._diagnostics.repair(where, "a tool output was moved up to its call")
            attachments += self._answer(position, call)
        if attachments:
            self._messages.append(ChatMessage(role="user", content=attachments))

    def _answer(self, position: int, call: CallView) -> list[ChatPart]:
        """Append the tool message; give the parts that have no place in it."""
        entry = self._entries[position]
        content = chat_content(self._brought(position), self._diagnostics, f"{entry.where}.output")
        attachments: list[ChatPart] = []
        if not isinstance(content, str):
            attachments = [part for part in content if part["type"] != "text"]
            texts = [part["text"] for part in content if part["type"] == "text"]
            content = "\n\n".join(texts) or "(attached below)"
            self._diagnostics.loss(f"{entry.where}.output", "images and files moved to a user message")
            attachments.insert(
                0, {"type": "text", "text": f"Attached to the output of tool call {call.call_id}:"}
            )
        if self._legacy:
            self._messages.append(ChatMessage(role="function", name=call.name, content=content))
        else:
            self._messages.append(ChatMessage(role="tool", tool_call_id=call.call_id, content=content))
        return attachments

    def _brought(self, position: int) -> str | list[Any]:
        view = self._views[position]
        assert isinstance(view, OutputView)
        if self._entries[position].item.type != "apply_patch_call_output":
            return view.output
        # a patch may say nothing, and its failing has no other place
        return f"failed: {view.output}" if view.failed else view.output or "done"

    def _drop_reasoning(self, why: str) -> None:
        if self._reasoning:
            self._reasoning = []
            self._diagnostics.loss("input", f"reasoning {why} can't be expressed")


_DETAILS = "reasoning_details"
_TEXTS = (
    ct.InputTextContent,
    ct.OutputTextParam,
    ct.OutputTextContent,
    ct.TextContent,
    ct.SummaryTextContent,
    ct.ReasoningTextContent,
)

_HANDLERS: dict[type[Any], Callable[[MessagesBuilder, Entry], None]] = {
    params.ToolSearchCallParam: MessagesBuilder._searched,
    items.ToolSearchCall: MessagesBuilder._searched,
    params.ToolSearchOutputParam: MessagesBuilder._output,
    items.ToolSearchOutput: MessagesBuilder._output,
    params.MessageParam: MessagesBuilder._message,
    items.Message: MessagesBuilder._message,
    params.ReasoningParam: MessagesBuilder._think,
    items.ReasoningItem: MessagesBuilder._think,
    params.AdditionalTools: MessagesBuilder._tools,
    params.ItemReference: MessagesBuilder._reference,
    params.CompactionParam: MessagesBuilder._compaction,
    items.CompactionItem: MessagesBuilder._compaction,
    UnknownItem: MessagesBuilder._unknown,
}
