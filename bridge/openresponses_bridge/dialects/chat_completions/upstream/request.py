"""A Responses request → a Chat Completions request, with a report of what it could not say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from openresponses_bridge.calls.declarations import (
    FunctionView,
    active_tools,
    chosen_function,
    encode_choice,
    named,
    present_tools,
)
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    HISTORY,
    METADATA_OF_CHAT,
    OURS,
    STORE_OF_CHAT,
    AnyItem,
    Entry,
    Outcomes,
    apply,
    built,
    configured,
    effort_of,
    entries_of,
    kept_there,
    loss,
    normalize_entries,
    sent,
)
from openresponses_bridge.dialects.chat_completions.types import ChatFunctionDefinition, ChatRequest, ChatTool
from openresponses_bridge.dialects.chat_completions.upstream.messages import (
    DEFAULT_OPTIONS,
    ChatOptions,
    MessagesBuilder,
)
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.response import JsonObjectFormat, TextFormat
from openresponses_bridge.protocol.unknown import UnknownFormat

# tool_choice, and the tools that it leaves: Chat has auto, none, required and one function.


class Chosen(NamedTuple):
    """What goes out; both None when there is nothing to choose from."""

    tools: list[ChatTool] | None
    choice: str | dict[str, Any] | None


def choose(
    choice: Any, functions: Sequence[FunctionView], identities: ToolIdentityMap, diagnostics: Diagnostics
) -> Chosen:
    """Raises InvalidRequestError (`tool_choice`) when the choice can't be kept."""
    given = encode_choice(choice)
    if given is None:
        if choice == "required" and not functions:
            raise _error("required", "needs a tool that the upstream can call")
        return _chosen(functions, choice)
    if given.get("type") == "allowed_tools":
        left: dict[str, FunctionView] = {}
        for each in given["tools"]:
            view = chosen_function(each, functions, identities)
            if view is None:
                diagnostics.loss("tool_choice.tools", f"{named(each)} can't be called")
            else:
                left[view.name] = view
        if not left and given["mode"] == "required":
            raise _error("allowed_tools", "leaves no tool that the upstream can call")
        return _chosen(list(left.values()), given["mode"])
    view = chosen_function(given, functions, identities)
    if view is None:
        raise _error(named(given), "is not among the tools that the upstream can call")
    return _chosen(functions, {"type": "function", "function": {"name": view.name}})


def as_functions(chosen: Chosen, diagnostics: Diagnostics) -> dict[str, Any]:
    """The same as `functions` and `function_call`, which know auto, none and one function."""
    if chosen.tools is None:
        return {}
    functions = [replace(tool.function, strict=None) for tool in chosen.tools]
    if any(tool.function.strict for tool in chosen.tools):
        diagnostics.loss("tools.strict", "can't be expressed")
    choice = chosen.choice
    if isinstance(choice, dict):
        choice = {"name": choice["function"]["name"]}
    elif choice == "required" and len(functions) == 1:
        choice = {"name": functions[0].name}
    elif choice == "required":
        diagnostics.loss("tool_choice", "required sent as auto")
        choice = "auto"
    return {"functions": functions, "function_call": choice}


def _chosen(functions: Sequence[FunctionView], choice: Any) -> Chosen:
    return Chosen([_tool(view) for view in functions], choice) if functions else Chosen(None, None)


def _tool(view: FunctionView) -> ChatTool:
    about = view.description or None
    return ChatTool(
        ChatFunctionDefinition(
            name=view.name, description=about, parameters=view.parameters, strict=view.strict
        )
    )


def _error(what: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        InvalidRequestError.INVALID_VALUE, f"tool_choice {what!r} {why}", param="tool_choice"
    )


# The outcome of each field of a request at a Chat Completions server.

_SAME: Final = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "user",
    "stop",
    "seed",
    "logit_bias",
    "prediction",
)

FIELDS: Final[Outcomes] = {
    **OURS,
    **{name: sent(name) for name in _SAME},
    "model": built("model"),
    "input": built("messages"),
    "instructions": built("messages"),
    "include": built("logprobs"),
    "tools": built("tools"),
    "tool_choice": built("tool_choice"),
    "parallel_tool_calls": built("parallel_tool_calls"),
    "text.format": built("response_format"),
    "text.verbosity": built("verbosity"),
    "max_output_tokens": built("max_completion_tokens"),
    "top_logprobs": built("top_logprobs"),
    "stream": built("stream"),
    "stream_options.include_obfuscation": loss("answers are not padded"),
    "reasoning.effort": built("reasoning_effort"),
    "reasoning.summary": loss("summaries can't be asked for"),
    "reasoning.context": loss(),
    "reasoning.mode": loss(),
    "truncation": loss("a conversation that is too long is not shortened"),
    "prompt_cache_options": loss(),
    "client_metadata": loss(),
    "top_k": loss(),
    STORE_OF_CHAT: built("store"),
    METADATA_OF_CHAT: built("metadata"),
}


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
    entries = normalize_entries(entries_of(request, history), diagnostics)
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
            diagnostics.loss(field, "the upstream does not accept it")
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
