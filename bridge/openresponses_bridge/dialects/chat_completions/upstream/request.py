"""A Responses request → a Chat Completions request, with a report of what it could not say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from openresponses_bridge.calls.declarations import active_tools, present_tools
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    HISTORY,
    AnyItem,
    Entry,
    apply,
    configured,
    effort_of,
    entries_of,
    kept_there,
    understood,
)
from openresponses_bridge.dialects.chat_completions.types import ChatRequest
from openresponses_bridge.dialects.chat_completions.upstream.fields import FIELDS
from openresponses_bridge.dialects.chat_completions.upstream.messages import MessagesBuilder
from openresponses_bridge.dialects.chat_completions.upstream.options import DEFAULT_OPTIONS, ChatOptions
from openresponses_bridge.dialects.chat_completions.upstream.tools import Chosen, as_functions, choose
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.response import JsonObjectFormat, TextFormat
from openresponses_bridge.protocol.unknown import UnknownFormat

_LOGPROBS = "message.output_text.logprobs"
# what may stand in `include` and is either kept or nothing that an upstream could add
_INCLUDES = frozenset({_LOGPROBS, "reasoning.encrypted_content"})


def to_chat(
    request: CreateResponse,
    *,
    history: Sequence[AnyItem] = (),
    tool_identities: ToolIdentityMap | None = None,
    model: str | None = None,
    options: ChatOptions = DEFAULT_OPTIONS,
    choices: int = 1,
) -> tuple[ChatRequest, Diagnostics]:
    """The request for an upstream, and what was lost on the way.

    `history` are the items of earlier turns (input and output, in order) that `previous_response_id`
    stands for. `tool_identities` takes the declared tools, for the machine that restores their calls.
    `model` is the upstream's name for the model, if it differs. `choices` go out as `n` where the upstream
    takes it.

    Raises InvalidRequestError with `param`: an unpaired call or output, an item that is not known here,
    a tool choice that can't be kept, nothing to answer.
    """
    diagnostics = Diagnostics()
    identities = ToolIdentityMap() if tool_identities is None else tool_identities
    request = configured(request, history)
    entries = understood(entries_of(request, history), diagnostics)
    chosen = _tools(request, entries, identities, diagnostics)
    messages = MessagesBuilder(identities, options, diagnostics).build(entries, request.instructions)
    if not messages:
        raise _missing("input", "there is nothing to answer: give input or instructions")
    name = model or request.model
    if not name:
        raise _missing("model", "no model is given")
    fields = apply(request, FIELDS, diagnostics)
    fields |= _offered(request, chosen, options, diagnostics)
    fields["n"] = choices if choices > 1 and options.takes_n else None
    fields[options.max_tokens_field] = request.max_output_tokens
    fields |= _logprobs(request) | _text(request, options, diagnostics) | _reasoning(request, options)
    fields |= _stored(request, options) | _streamed(request, options)
    _report(request, diagnostics)
    for field in sorted(options.omit & fields.keys()):
        if fields.pop(field) is not None:
            diagnostics.loss(field, "the upstream does not take it")
    return ChatRequest(model=name, messages=messages, **fields), diagnostics


def _tools(
    request: CreateResponse, entries: list[Entry], identities: ToolIdentityMap, diagnostics: Diagnostics
) -> Chosen:
    items = [entry.item for entry in entries]
    earlier = sum([entry.param == HISTORY for entry in entries])
    functions, others = present_tools(active_tools(request.tools, items, earlier), identities, diagnostics)
    for tool, where in others:
        kind = tool.type or "a tool without a type"
        diagnostics.loss(where, f"{kind} is not known to the upstream")
    return choose(request.tool_choice, functions, identities, diagnostics)


def _offered(
    request: CreateResponse, chosen: Chosen, options: ChatOptions, diagnostics: Diagnostics
) -> dict[str, Any]:
    if chosen.tools is None:
        return {}
    if options.tools_field == "functions":
        if request.parallel_tool_calls:
            diagnostics.loss("parallel_tool_calls", "the upstream makes one call an answer")
        return as_functions(chosen, diagnostics)
    return {
        "tools": chosen.tools,
        "tool_choice": chosen.choice,
        "parallel_tool_calls": request.parallel_tool_calls,
    }


def _missing(param: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(InvalidRequestError.INVALID_VALUE, message, param=param)


def _logprobs(request: CreateResponse) -> dict[str, Any]:
    if not request.top_logprobs and _LOGPROBS not in (request.include or ()):
        return {}
    return {"logprobs": True, "top_logprobs": request.top_logprobs}


def _text(request: CreateResponse, options: ChatOptions, diagnostics: Diagnostics) -> dict[str, Any]:
    text = request.text
    if text is None:
        return {}
    found: dict[str, Any] = {"verbosity": text.verbosity or None}
    if text.format:
        format = _FORMATS[type(text.format)](text.format, diagnostics)
        if format is not None and format["type"] == "json_schema" != options.json_schema:
            diagnostics.loss("text.format.schema", f"the upstream takes {options.json_schema} only")
            format = {"type": options.json_schema}
        found["response_format"] = format
    return found


def _schema(format: Any, diagnostics: Diagnostics) -> dict[str, Any]:
    given = {field: getattr(format, field) for field in ("description", "schema", "strict")}
    schema = {field: value for field, value in given.items() if isinstance(value, str | dict | bool)}
    return {"type": "json_schema", "json_schema": {"name": format.name or "response", **schema}}


def _unknown_format(format: Any, diagnostics: Diagnostics) -> None:
    diagnostics.loss("text.format", f"{format.type[:64]!r} can't be expressed")


_FORMATS: dict[type[Any], Callable[[Any, Diagnostics], dict[str, Any] | None]] = {
    TextFormat: lambda format, diagnostics: None,
    JsonObjectFormat: lambda format, diagnostics: {"type": "json_object"},
    JsonSchemaFormatParam: _schema,
    UnknownFormat: _unknown_format,
}


def _reasoning(request: CreateResponse, options: ChatOptions) -> dict[str, Any]:
    effort = effort_of(request, options.efforts)
    return {} if effort is None else {"reasoning_effort": effort}


def _stored(request: CreateResponse, options: ChatOptions) -> dict[str, Any]:
    # what is stored and its metadata are ours unless the upstream is to keep it as well, or a client of
    # this very dialect has asked for it
    given = kept_there(request)
    return {"store": True, "metadata": request.metadata} if options.forward_store and request.store else given


def _streamed(request: CreateResponse, options: ChatOptions) -> dict[str, Any]:
    if not request.stream:
        return {}
    return {"stream": True, "stream_options": {"include_usage": True} if options.stream_usage else None}


def _report(request: CreateResponse, diagnostics: Diagnostics) -> None:
    for included in request.include or ():
        if included not in _INCLUDES:
            diagnostics.loss("include", f"{included[:64]!r} is not known to the upstream")
