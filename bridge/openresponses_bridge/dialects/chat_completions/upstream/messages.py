"""Converts input items to Chat messages.

In Chat, an assistant's turn is one message: its text, then its calls; the answers to all calls must follow
directly. So reasoning, a message and the calls after it are gathered into a turn, and the outputs of its
calls follow the turn, wherever they are in the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from openresponses_bridge.calls.call_ids import call_id_form, sent_call_id
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.json_text import WRAPPED, is_wrapped, tool_input
from openresponses_bridge.calls.presentation import CallView, OutputView, View, pair
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    CONTINUE,
    CONTINUED,
    Entry,
    before_own,
    is_breakpoint,
    searched,
    views_of,
)
from openresponses_bridge.dialects.chat_completions.carried import (
    AUDIO,
    NOTHING,
    CarriedFields,
    DetailsField,
    open_carried,
    placeholder,
)
from openresponses_bridge.dialects.chat_completions.options import ChatOptions
from openresponses_bridge.dialects.chat_completions.types import ChatFunction, ChatMessage, ChatToolCall
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import input_items as params
from openresponses_bridge.protocol import items
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownPart
from openresponses_bridge.seal import Sealer

ChatPart = dict[str, Any]
_NOTHING_OWN: Mapping[int, dict[str, Any]] = MappingProxyType({})
_IMAGE_URL = "image_url"
_IMAGE_DETAILS = {"original": "high"}  # Chat knows auto, low and high


def chat_content(
    content: str | Sequence[Any],
    diagnostics: Diagnostics,
    where: str,
    *,
    breaks: bool = False,
    own: Mapping[int, dict[str, Any]] = _NOTHING_OWN,
) -> str | list[ChatPart]:
    """Return a text as a string, which every server accepts; a list of parts if there is more than text, or
    with `breaks` a cache breakpoint. `own` has fields of parts by their indexes, from a client of this
    API."""
    if isinstance(content, str):
        return content
    if own:
        return [
            chat
            for at, part in enumerate(content)
            if (chat := _own_part(part, own.get(at), diagnostics, f"{where}[{at}]", breaks)) is not None
        ]
    if breaks and any(is_breakpoint(getattr(part, "extra", None)) for part in content):
        made = [(part, chat_part(part, diagnostics, f"{where}[{at}]")) for at, part in enumerate(content)]
        return [
            {**chat, **_MARK} if is_breakpoint(getattr(part, "extra", None)) else chat
            for part, chat in made
            if chat is not None
        ]
    if _TEXT_KINDS.issuperset(map(type, content)):  # as in almost all messages
        texts: Sequence[Any] = content
        return "\n\n".join([part.text for part in texts])
    parts = [
        chat
        for index, part in enumerate(content)
        if (chat := chat_part(part, diagnostics, f"{where}[{index}]"))
    ]
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def chat_part(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart | None:
    """Return one part; None, with a loss, if it can't be expressed in Chat."""
    made = _PARTS[type(part)](part, diagnostics, where)
    if made is None:
        diagnostics.loss(where, f"{part.type} can't be expressed here")
    return made


def _own_part(
    part: Any, own: dict[str, Any] | None, diagnostics: Diagnostics, where: str, breaks: bool
) -> ChatPart | None:
    """Return one part, with the fields that a client of this API gave it."""
    if own is None:
        chat = chat_part(part, diagnostics, where)
        is_marked = chat is not None and breaks and is_breakpoint(getattr(part, "extra", None))
        return {**(chat or {}), **_MARK} if is_marked else chat
    image = own.get(_IMAGE_URL)
    chat = chat_part(part if image is None else replace(part, detail=UNSET), diagnostics, where)
    if chat is None:
        return None
    return {**chat, **own, **({_IMAGE_URL: {**chat[_IMAGE_URL], **image}} if image is not None else {})}


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
    file = {name: getattr(part, name) for name in ("filename", "file_data", "file_id") if getattr(part, name)}
    return {"type": "file", "file": file} if file.keys() & {"file_data", "file_id"} else None


def _video(part: Any, diagnostics: Diagnostics, where: str) -> ChatPart:
    # not OpenAI's; vLLM, OpenRouter and others accept it, and other servers say that they do not
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


class MessagesBuilder:
    """Builds the message list: `build(entries)`. Raises InvalidRequestError with the item's place."""

    def __init__(
        self,
        identities: ToolIdentityMap,
        options: ChatOptions,
        diagnostics: Diagnostics,
        sealer: Sealer,
        carried: CarriedFields = NOTHING,
    ) -> None:
        self._carried = carried
        self._before: int | None = None  # entries of earlier turns: fields have their places after them
        self._parts: dict[int, dict[int, dict[str, Any]]] = {}  # index of an item → fields of its parts
        self._identities = identities
        self._sealer = sealer
        self._options = options
        self._diagnostics = diagnostics
        self._empty = _EMPTY[options.empty_content]
        self._legacy = options.tools_field == "functions"
        self._roles = {"developer": options.developer_role}
        self._call_ids = None if options.call_ids is None else call_id_form(options.call_ids)
        self._messages: list[ChatMessage] = []
        self._leading: list[str | list[ChatPart] | UnsetType | None] = []  # to be joined as the first message
        self._entries: Sequence[Entry] = ()
        self._views: list[View] = []
        self._answers: dict[int, int | None] = {}
        self._reasoning: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._details_field: DetailsField = _DETAILS  # the field in which they are sent back
        self._extra: dict[str, Any] | None = None  # of the next message
        self._extras: dict[str, dict[str, Any]] = {}  # of calls, by their ids; "" stands for the next one
        self._at = self._asked = 0  # the present position, and that of the user's last message
        self._turn: ChatMessage | None = None
        self._calls: list[tuple[CallView, int]] = []  # of the open turn, with the positions of their outputs

    def build(self, entries: Sequence[Entry], instructions: str | None) -> list[ChatMessage]:
        """Return the messages of the whole conversation, with `instructions` as the first one."""
        self._entries = entries
        self._views = views_of(entries, self._identities)
        if self._carried.messages or self._carried.parts:
            self._before = before_own(entries, self._carried.items)
            for name in self._carried.placed if self._before is None else ():
                self._diagnostics.loss(name, "the input differs from the client's")
            for (item, part), own in self._carried.parts.items():
                self._parts.setdefault(item, {})[part] = own
        for position, entry in enumerate(entries):
            if getattr(entry.item, "role", None) == "user":
                self._asked = position
        if self._views.count(None) < len(entries):
            self._answers = pair(self._views, lambda index: entries[index].param)
        if instructions:
            self._messages.append(ChatMessage(role="system", content=instructions))
        for position, entry in enumerate(entries):
            self._at = position
            view = self._views[position]
            if isinstance(view, CallView):
                self._call(view, self._answers[position], entry)
            elif isinstance(view, OutputView):
                self._output(entry)
            else:
                _HANDLERS[type(entry.item)](self, entry)
        self._end_question()
        if self._leading:
            self._messages[0].content = _joined(*self._leading)
        if self._options.alternating:
            self._messages = self._alternating()
        if not self._options.user_after_outputs:
            self._messages = self._acknowledged()
        if not self._options.prefill and self._messages and self._messages[-1].role == "assistant":
            self._diagnostics.repair("messages", CONTINUED)
            self._messages.append(ChatMessage(role="user", content=CONTINUE))
        return self._messages

    def _alternating(self) -> list[ChatMessage]:
        """Return the messages; neighbours of the same role are joined."""
        groups: list[list[ChatMessage]] = []
        for message in self._messages:
            before = groups[-1][-1] if groups else None
            joins = before is not None and before.role == message.role and message.role in _SPEAKING
            if joins and before is not None and not (before.tool_calls or before.function_call):
                groups[-1].append(message)
            else:
                groups.append([message])
        if len(groups) < len(self._messages):
            self._diagnostics.repair("messages", "neighbours of one role, joined")
        return [group[0] if len(group) == 1 else _one_message(group) for group in groups]

    def _acknowledged(self) -> list[ChatMessage]:
        """Return the messages, with an assistant's message between outputs of calls and a user's message
        after them."""
        messages: list[ChatMessage] = []
        for message in self._messages:
            if message.role == "user" and messages and messages[-1].role in _OUTPUTS:
                messages.append(ChatMessage(role="assistant", content=_OK))
                what = "a user's message behind outputs of calls"
                self._diagnostics.repair("messages", f"{what}, an assistant's {_OK!r} put between")
            messages.append(message)
        return messages

    def _message(self, entry: Entry) -> None:
        item: Any = entry.item
        if item.role == "assistant":
            self._assistant(item, entry.where)
            return
        self._end_question()
        content = chat_content(
            item.content,
            self._diagnostics,
            f"{entry.where}.content",
            breaks=self._options.cache_breakpoints,
            own=self._own_parts(self._at) if self._before is not None else _NOTHING_OWN,
        )
        role = self._roles.get(item.role, item.role)
        if self._options.system_messages == "one" and role in _INSTRUCTING:
            self._instruct(role, content, entry.where)
        else:
            name = self._own_name() if self._before is not None else None
            self._messages.append(ChatMessage(role=role, content=content, name=name))

    def _own_parts(self, position: int) -> Mapping[int, dict[str, Any]]:
        """Return the fields that a client of this API gave the parts of an entry."""
        return self._parts.get(position - (self._before or 0), _NOTHING_OWN)

    def _own_name(self) -> str | None:
        """Return the name that a client of this API gave the message of the present entry."""
        return self._carried.messages.get(self._at - (self._before or 0), {}).get("name")

    def _instruct(self, role: str, content: str | list[ChatPart], where: str) -> None:
        """Add a message of the system, for models whose only system message is the first one."""
        first = self._messages[0] if self._messages else None
        if first is None:
            self._messages.append(ChatMessage(role=role, content=content))
        elif len(self._messages) == 1 and first.role in _INSTRUCTING:
            self._leading = self._leading or [first.content]
            self._leading.append(content)
            self._diagnostics.repair(where, "joined with the system message before it")
        else:
            reminder = _joined("<system-reminder>", content, "</system-reminder>", by="\n")
            self._messages.append(ChatMessage(role="user", content=reminder))
            self._diagnostics.repair(where, "a later system message, sent as a reminder of the user's")

    def _assistant(self, item: Any, where: str) -> None:
        if self._turn is not None:
            self._end_turn()
        parts = item.content if not isinstance(item.content, str) else [ct.InputTextContent(item.content)]
        refusals = [part.refusal for part in parts if isinstance(part, ct.RefusalContent)]
        others = [part for part in parts if not isinstance(part, ct.RefusalContent)]
        texts = [part.text for part in others if isinstance(part, _TEXTS)]
        if len(texts) < len(others):
            self._diagnostics.loss(f"{where}.content", "an assistant's message takes text only")
        if any(getattr(part, "annotations", None) for part in others):
            self._diagnostics.loss(f"{where}.content", "annotations can't be expressed")
        if item.phase:
            self._diagnostics.loss(f"{where}.phase", "can't be expressed")
        text, refusal = "".join(texts), "".join(refusals)
        if text or refusal:
            turn = self._open_turn()
            turn.content, turn.refusal = text or self._empty, refusal or None

    def _think(self, entry: Entry) -> None:
        item: Any = entry.item
        carried = open_carried(self._sealer, item.encrypted_content) if item.encrypted_content else None
        texts = [part.text for part in item.content or item.summary if part.text]
        if carried is not None and carried.extra is not None:
            self._return_extra(carried.extra, carried.call_id, entry.where)
            if not texts:
                return
        if self._turn is not None:
            self._end_turn()
        if carried is not None and carried.details is not None and carried.field in self._options.returned:
            if self._details_field != carried.field:
                self._details_field, self._details = carried.field, []
            self._details += carried.details
        elif not texts:
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

    def _return_extra(self, extra: dict[str, Any], call_id: str | None, where: str) -> None:
        """Send back the extra content of a call, or of the message around it."""
        turn = self._turn
        if "extra_content" not in self._options.returned:
            self._diagnostics.loss(where, "extra content can't be expressed")
        elif call_id is None and turn is not None:
            turn.extra_content = extra
        elif call_id is None:
            self._extra = extra
        elif (made := self._made(call_id)) is not None:
            made.extra_content = extra
        else:
            self._extras[call_id] = extra

    def _made(self, call_id: str) -> ChatToolCall | None:
        """Return the call with this id, if it is the last one of the open turn."""
        last = self._turn.tool_calls[-1] if self._turn is not None and self._turn.tool_calls else None
        return last if last is not None and call_id and last.id == call_id else None

    def _call(self, call: CallView, answer: int | None, entry: Entry) -> None:
        if answer is None:
            self._diagnostics.loss(entry.where, "a call that was cut off and never run, left out")
            return
        own_id = call.call_id
        call_id = sent_call_id(call.call_id, self._call_ids, self._diagnostics, entry.where)
        arguments = call.arguments
        if self._options.wrap_arguments and is_wrapped(wrapped := tool_input(arguments), arguments):
            arguments = encode(wrapped).decode()
            self._diagnostics.repair(f"{entry.where}.arguments", WRAPPED)
        call = call._replace(call_id=call_id, arguments=arguments)
        function = ChatFunction(call.name, call.arguments)
        if self._legacy:
            if self._calls:  # a message can have only one `function_call`
                self._end_turn(at_output=True)
            self._open_turn().function_call = function
        else:
            turn = self._open_turn()
            extra = self._extras.pop(own_id, None) or self._extras.pop("", None) if self._extras else None
            made = ChatToolCall(None, call.call_id, "function", function, extra_content=extra)
            turn.tool_calls = turn.tool_calls or []
            turn.tool_calls.append(made)
        self._calls.append((call, answer))

    def _searched(self, entry: Entry) -> None:
        self._diagnostics.ignored(entry.where, "a tool search that the server ran itself")

    def _output(self, entry: Entry) -> None:
        if self._turn is not None:
            self._end_turn(at_output=True)

    def _tools(self, entry: Entry) -> None:
        """Ignore declarations within the input, which are already in the request's tools."""

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
        if unknown.type == AUDIO and isinstance(audio := unknown.raw.get("audio"), dict):
            self._open_turn().audio = audio
            return
        if (search := searched(unknown)) is not None:
            self._diagnostics.loss(entry.where, "a search, sent as text")
            self._assistant(params.MessageParam("assistant", search.text()), entry.where)
            return
        self._diagnostics.loss(entry.where, f"an item of type {unknown.type[:64]!r} can't be expressed")

    def _open_turn(self) -> ChatMessage:
        if self._turn is None:
            self._turn = ChatMessage(role="assistant", content=self._empty)
            if self._before is not None:
                self._turn.name = self._own_name()
            if self._details:
                setattr(self._turn, self._details_field, self._details)
                self._details, self._reasoning = [], []
            elif self._reasoning:
                self._put_reasoning(self._turn, "\n\n".join(self._reasoning))
                self._reasoning = []
            self._turn.extra_content, self._extra = self._extra, None
        return self._turn

    def _put_reasoning(self, turn: ChatMessage, text: str) -> None:
        field = self._options.reasoning_field
        if field == _DETAILS:
            turn.reasoning_details = [{"type": "reasoning.text", "text": text}]
        elif field is not None:
            setattr(turn, field, text)

    def _end_question(self) -> None:
        """Mark the assistant's text as complete, before the user's next message or at the end."""
        if self._turn is not None:
            self._end_turn()
        self._details = []
        if self._reasoning:
            self._reasoning = []
            self._diagnostics.loss("input", "reasoning with no answer after it can't be expressed")

    def _end_turn(self, at_output: bool = False) -> None:
        assert self._turn is not None
        missing, field = self._options.missing_reasoning, self._options.reasoning_field
        details = self._turn.reasoning_details or self._turn.thinking_blocks
        lacks = details is None and getattr(self._turn, field or _DETAILS) is None
        last = self._messages[-1] if self._messages else None
        follows = last is not None and last.role in _OUTPUTS
        if missing is not None and (self._turn.tool_calls or follows) and lacks:
            self._put_reasoning(self._turn, missing)
        if self._options.missing_signature is not None:
            self._sign(self._turn, self._options.missing_signature)
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

    def _sign(self, turn: ChatMessage, signature: str) -> None:
        """Add a placeholder if the server requires a thought signature."""
        first = turn.tool_calls[0] if turn.tool_calls else None
        if first is not None and first.extra_content is None and turn.extra_content is None:
            first.extra_content = placeholder(signature)
            self._diagnostics.repair("tool_calls", "a call without a thought signature, a placeholder sent")

    def _answer(self, position: int, call: CallView) -> list[ChatPart]:
        """Append the tool message. Returns the parts that it can't have."""
        entry = self._entries[position]
        content = chat_content(
            self._brought(position),
            self._diagnostics,
            f"{entry.where}.output",
            breaks=self._options.cache_breakpoints,
            own=self._own_parts(position) if self._before is not None else _NOTHING_OWN,
        )
        attachments: list[ChatPart] = []
        if not isinstance(content, str) and any(part["type"] != "text" for part in content):
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
        # a patch may have no output, and only this can say that it failed
        return f"failed: {view.output}" if view.failed else view.output or "done"


def _one_message(messages: Sequence[ChatMessage]) -> ChatMessage:
    """Return messages as one: the last of them, which may have calls, with the texts of all."""
    contents = [each.content for each in messages if each.content]
    made = copy(messages[-1])
    made.content = _joined(*contents) if contents else made.content
    for name in _LISTS_OF_A_TURN:
        setattr(made, name, [one for each in messages for one in getattr(each, name) or ()] or None)
    for name in _TEXTS_OF_A_TURN:
        texts = [text for each in messages if (text := getattr(each, name))]
        setattr(made, name, "\n\n".join(texts) or None)
    return made


def _joined(*contents: str | list[ChatPart] | UnsetType | None, by: str = "\n\n") -> str | list[ChatPart]:
    """Return contents one after the other: as one text, or as parts if one of them has more than text."""
    if all(isinstance(content, str) for content in contents):
        return by.join(map(str, contents))
    parts: list[ChatPart] = []
    for content in contents:
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content or ()
    return parts


_MARK = {"cache_control": {"type": "ephemeral"}}
_INSTRUCTING = frozenset({"system", "developer"})
_OUTPUTS = frozenset({"tool", "function"})
_SPEAKING = frozenset({"user", "assistant"})
_LISTS_OF_A_TURN = ("reasoning_details", "thinking_blocks")
_TEXTS_OF_A_TURN = ("reasoning_content", "reasoning", "refusal")
_OK = "OK."
_EMPTY: dict[str, str | UnsetType | None] = {"absent": UNSET, "null": None, "": ""}
_DETAILS: Final = "reasoning_details"
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
