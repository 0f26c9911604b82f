"""Converts VS Code's chat requests to Responses requests and back, and reports what can't be expressed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct

from openresponses_bridge.calls.declarations import DeclaredTool, encode_choice, present_tools
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.decoder import CALL_ID_PREFIX, LanguageModelTextPart
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import AnyItem, active_tools, entries_of, invalid, settled_calls
from openresponses_bridge.dialects.vscode.reading import read_message
from openresponses_bridge.dialects.vscode.to_items import ItemBuilder
from openresponses_bridge.dialects.vscode.to_messages import MessageBuilder
from openresponses_bridge.dialects.vscode.types import ChatMessage, ChatRequest, ChatTool, Role, ToolMode
from openresponses_bridge.models.information import CONFIGURED_EFFORT, NO_CHOICE
from openresponses_bridge.models.tokens import TokenCounter
from openresponses_bridge.protocol.beyond import names_of
from openresponses_bridge.protocol.codec import request_object
from openresponses_bridge.protocol.request import CreateResponse, ReasoningOptions
from openresponses_bridge.protocol.tools import (
    AllowedToolChoice,
    FunctionToolChoice,
    FunctionToolParam,
    ToolChoice,
    ToolParam,
)

_LEGAL = re.compile(r"[\w-]{1,64}", re.ASCII)
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


def tool_params(tools: list[ChatTool], diagnostics: Diagnostics) -> list[ToolParam]:
    """Return VS Code's tools as functions. Schemas are not strict, since VS Code's are not."""
    for tool in tools:
        if not _LEGAL.fullmatch(tool.name):
            diagnostics.warning("tools.name", "not 1 to 64 letters, digits, _ and -")
    return [
        FunctionToolParam(tool.name, tool.description, tool.input_schema or _NO_PARAMETERS, False)
        for tool in tools
    ]


def tool_choice(mode: ToolMode, tools: list[ChatTool]) -> ToolChoice | None:
    """Return what the model may do with the tools; None without tools."""
    if not tools:
        return None
    return "required" if mode is ToolMode.REQUIRED else "auto"


class Offer(NamedTuple):
    """The tools for VS Code, and whether one must be called."""

    tools: list[ChatTool]
    mode: ToolMode


def offered(
    tools: Sequence[DeclaredTool],
    choice: ToolChoice | None,
    identities: ToolIdentityMap,
    diagnostics: Diagnostics,
) -> Offer:
    """Return a request's tools for VS Code. A choice among them is made by leaving out the others. Raises
    InvalidRequestError with the place of a tool whose name a tool of another kind has."""
    functions, others = present_tools(tools, identities, diagnostics)
    declared = {each.name: ChatTool(each.name, each.description, each.parameters) for each in functions}
    for tool, where in others:
        diagnostics.loss(where, f"{(tool.type or 'a tool without a type')[:64]}: VS Code has functions only")
    every = list(declared.values())
    if choice == "none":
        return Offer([], ToolMode.AUTO)
    if isinstance(choice, FunctionToolChoice):
        return Offer(_only(declared, [choice.name], identities), ToolMode.REQUIRED)
    if isinstance(choice, AllowedToolChoice):
        if choice.mode == "none":
            return Offer([], ToolMode.AUTO)
        names = [(encode_choice(each) or {}).get("name") for each in choice.tools]
        left = _only(declared, names, identities)
        return Offer(left, ToolMode.REQUIRED if choice.mode == "required" else ToolMode.AUTO)
    if choice not in (None, "auto", "required"):
        diagnostics.loss("tool_choice", "can't be expressed")
    return Offer(every, ToolMode.REQUIRED if choice == "required" and every else ToolMode.AUTO)


def _only(declared: dict[str, ChatTool], names: list[Any], identities: ToolIdentityMap) -> list[ChatTool]:
    upstream_names = [identities.upstream_name(name) for name in names if isinstance(name, str)]
    return [declared[name] for name in upstream_names if name in declared]


_DISGUISED = "You are "
# our field → the names under which extensions pass it in modelOptions; the first is the one that we write
_OPTIONS: dict[str, tuple[str, ...]] = {
    "temperature": ("temperature",),
    "top_p": ("top_p", "topP"),
    "presence_penalty": ("presence_penalty", "presencePenalty"),
    "frequency_penalty": ("frequency_penalty", "frequencyPenalty"),
    "max_output_tokens": (
        "max_tokens",
        "max_output_tokens",
        "max_completion_tokens",
        "maxTokens",
        "maxOutputTokens",
    ),
    "parallel_tool_calls": ("parallel_tool_calls", "parallelToolCalls"),
    "service_tier": ("service_tier",),
    "user": ("user",),
}
_EFFORT = ("reasoning_effort", "reasoningEffort")
_TYPES: dict[str, tuple[type, ...]] = {
    "max_output_tokens": (int,),
    "parallel_tool_calls": (bool,),
    "service_tier": (str,),
    "user": (str,),
}
_NUMBER = (int, float)
_SYSTEM_PROMPT = "systemPrompt"
_ENCRYPTED = "reasoning.encrypted_content"
# fields of a request that mean nothing to VS Code and change nothing about the answer
_OURS = frozenset({"model", "input", "instructions", "tools", "tool_choice", "stream", "stream_options"})
_STORED = frozenset(
    {"store", "background", "restart", "previous_response_id", "metadata", "include", "reasoning"}
)


def from_vscode(
    chat: ChatRequest, *, call_id_prefix: str = CALL_ID_PREFIX, use_markers: bool = False
) -> tuple[CreateResponse, Diagnostics]:
    """Return the Responses request for a chat, streamed. `modelOptions.systemPrompt` and leading system
    messages are its instructions, in this order. `modelOptions` take precedence over `modelConfiguration`.

    With `use_markers`, the request continues the last response of this model that a stateful marker names,
    with only what comes after it. Otherwise it has the whole chat, which needs no stored response.
    """
    diagnostics = Diagnostics()
    fields = _options(chat.model_options, diagnostics)
    if chat.model_configuration is not UNSET:
        fields = _configured(chat.model_configuration, diagnostics) | fields
    leading, messages = _instructions(chat.messages)
    prompt = chat.model_options.get(_SYSTEM_PROMPT)
    instructions = [text for text in (prompt, leading) if isinstance(text, str) and text]
    builder = ItemBuilder(diagnostics, call_id_prefix)
    for message in messages:
        builder.add(message)
    previous, start = _marked(builder, chat.model) if use_markers else (None, 0)
    return (
        CreateResponse(
            model=chat.model,
            input=builder.items[start:],
            instructions="\n\n".join(instructions) or None,
            previous_response_id=previous,
            include=[_ENCRYPTED] if chat.include_encrypted_thinking else None,
            store=None if chat.store is UNSET else chat.store,
            tools=tool_params(chat.tools, diagnostics) or None,
            tool_choice=tool_choice(chat.tool_mode, chat.tools),
            stream=True,
            **fields,
        ),
        diagnostics,
    )


def to_vscode(
    request: CreateResponse,
    *,
    history: Iterable[AnyItem] = (),
    model: str | None = None,
    tool_identities: ToolIdentityMap | None = None,
    call_id_prefix: str = CALL_ID_PREFIX,
    system_role: bool = True,
) -> tuple[ChatRequest, Diagnostics]:
    """Return the chat for a Responses request. `history` has the items for `previous_response_id`, `model` is
    VS Code's name for the model, and `tool_identities` is filled with the declared tools for the machine.

    Raises InvalidRequestError (`unpaired_tool_call`; `invalid_value` for two kinds of tools of one name).
    """
    diagnostics = Diagnostics()
    identities = ToolIdentityMap() if tool_identities is None else tool_identities
    entries = settled_calls(entries_of(request, history), diagnostics)
    offer = offered(active_tools(request, entries), request.tool_choice, identities, diagnostics)
    builder = MessageBuilder(diagnostics, identities, call_id_prefix, system_role)
    builder.system(request.instructions or "")
    builder.build(entries)
    options = _model_options(request, diagnostics)
    name = model or request.model or ""
    return ChatRequest(name, builder.messages, offer.tools, offer.mode, options), diagnostics


def _instructions(messages: list[ChatMessage]) -> tuple[str | None, list[ChatMessage]]:
    """Return (instructions, the other messages). Without a system role, extensions send the system prompt as
    the assistant's first text."""
    texts: list[str] = []
    for position, message in enumerate(messages):
        text = _text(message)
        leads = message.role is Role.SYSTEM or (position == 0 and _is_disguised(message, text, messages))
        if not leads or text is None:
            return "\n\n".join(texts) or None, messages[position:]
        texts.append(text)
    return "\n\n".join(texts) or None, []


def _is_disguised(message: ChatMessage, text: str | None, messages: list[ChatMessage]) -> bool:
    stripped = (text or "").lstrip()
    return message.role is Role.ASSISTANT and len(messages) > 1 and stripped.startswith(_DISGUISED)


def _text(message: ChatMessage) -> str | None:
    """Return a message's text; None if it has anything else."""
    texts = [part.value for part in message.content if isinstance(part, LanguageModelTextPart)]
    return "".join(texts) if len(texts) == len(message.content) else None


def _marked(builder: ItemBuilder, model: str) -> tuple[str | None, int]:
    for marked_model, marker, start in reversed(builder.markers):
        if marked_model == model:
            return marker, start
    return None, 0


def _options(options: dict[str, Any], diagnostics: Diagnostics) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    known = {name: ours for ours, names in _OPTIONS.items() for name in names}
    for name, value in options.items():
        ours = known.get(name)
        if ours is not None and _is(value, _TYPES.get(ours, _NUMBER)):
            fields.setdefault(ours, value)
        elif name in _EFFORT and isinstance(value, str):
            fields["reasoning"] = ReasoningOptions(effort=value)
        elif value is not None and not (name == _SYSTEM_PROMPT and isinstance(value, str)):
            diagnostics.loss(f"modelOptions.{name[:64]}", "can't be expressed")
    return fields


def _configured(configuration: dict[str, Any], diagnostics: Diagnostics) -> dict[str, Any]:
    """Return the user's settings for the model, of which the effort is one of the levels in the model's
    information."""
    fields: dict[str, Any] = {}
    for name, value in configuration.items():
        if name == CONFIGURED_EFFORT and isinstance(value, str):
            if value != NO_CHOICE:
                fields["reasoning"] = ReasoningOptions(effort=value)
        elif value is not None:
            diagnostics.loss(f"modelConfiguration.{name[:64]}", "can't be expressed")
    return fields


def _is(value: Any, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _model_options(request: CreateResponse, diagnostics: Diagnostics) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(request).items():
        if value is None or name in _OURS or name in _STORED or name in ("beyond", "native"):
            continue
        if name in _OPTIONS:
            options[_OPTIONS[name][0]] = value
        else:
            diagnostics.loss(name, "can't be expressed")
    for name in [*names_of(request.beyond), *(request.native.names if request.native else ())]:
        diagnostics.loss(name, "can't be expressed")
    for included in request.include or ():
        diagnostics.loss("include", f"{included[:64]!r} can't be requested")
    if request.reasoning is not None:
        if request.reasoning.effort:
            options[_EFFORT[0]] = request.reasoning.effort
        if request.reasoning.summary:
            diagnostics.loss("reasoning.summary", "can't be requested")
    return options


class TokenRequest(Struct, frozen=True):
    """A request to count tokens: the text or message, and the model."""

    model: str
    content: str | ChatMessage


def read_token_request(body: bytes) -> TokenRequest:
    """Decode the body `{model, text}` or `{model, message}`; as in VS Code, `text` may also be a message.
    Raises InvalidRequestError with `param`."""
    value = request_object(body)
    model = value.get("model")
    if not isinstance(model, str):
        raise invalid("model", "expected a string")
    names = [name for name in ("text", "message") if value.get(name) is not None]
    if len(names) != 1:
        raise invalid("text", "expected either `text` or `message`")
    (name,) = names
    content = value[name]
    if name == "text" and isinstance(content, str):
        return TokenRequest(model, content)
    return TokenRequest(model, read_message(content, name))


def token_count(content: str | ChatMessage, counter: TokenCounter, model: str) -> int:
    """Return the approximate number of tokens for this model, by its name upstream."""
    if isinstance(content, str):
        return counter.text(content, model)
    request, _ = from_vscode(ChatRequest("", [content]))
    items = request.input if isinstance(request.input, list) else []
    return counter.text(request.instructions or "", model) + sum(counter.item(item, model) for item in items)
