"""Converts a Responses request to a Chat Completions request, and reports what that can't express."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import asdict, replace

from openresponses_bridge.calls.declarations import (
    DeclaredTool,
    FunctionView,
    chosen_function,
    encode_choice,
    named,
    present_tools,
)
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    CACHE_OF_PARTS,
    CHAT,
    EFFORTS,
    METADATA_OF_CHAT,
    NATIVE_OF_CHAT,
    OURS,
    RUN_OUTPUTS,
    SEARCH_SOURCES,
    STORE_OF_CHAT,
    AnyItem,
    Outcomes,
    accepted_efforts,
    active_tools,
    add_beside,
    apply,
    built,
    check_include,
    configured,
    effort_of,
    entries_of,
    fitted_effort,
    is_search,
    kept_there,
    loss,
    may_pass,
    normalize_entries,
    passed_on,
    search_of,
    sent,
    with_answers,
    without_breakpoints,
)
from openresponses_bridge.dialects.chat_completions.carried import NOTHING, carried_by
from openresponses_bridge.dialects.chat_completions.options import (
    DEFAULT_OPTIONS,
    MADE,
    ChatOptions,
    ThinkingFields,
)
from openresponses_bridge.dialects.chat_completions.types import ChatFunctionDefinition, ChatRequest, ChatTool
from openresponses_bridge.dialects.chat_completions.upstream.messages import MessagesBuilder
from openresponses_bridge.dialects.chat_completions.upstream.search import FORMS
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam, TextParam
from openresponses_bridge.protocol.response import JsonObjectFormat, TextFormat
from openresponses_bridge.protocol.unknown import UnknownFormat
from openresponses_bridge.schemas.rewriting import Schema, rewritten
from openresponses_bridge.seal import Sealer

# tool_choice, and the tools that it leaves; Chat has auto, none, required and one function.


class Chosen(NamedTuple):
    """The tools and the choice that are sent; both None if there is nothing to choose from."""

    tools: list[ChatTool] | None
    choice: str | dict[str, Any] | None


def choose(
    choice: Any,
    functions: Sequence[FunctionView],
    identities: ToolIdentityMap,
    diagnostics: Diagnostics,
    *,
    searches: bool = False,
) -> Chosen:
    """Return the tools and the choice to send. Raises InvalidRequestError (`tool_choice`) if the choice can't
    be kept. `searches` is True if the upstream searches the web, which it can't be forced to."""
    encoded = encode_choice(choice)
    if searches and (is_search(named(encoded)) if encoded else choice == "required" and not functions):
        diagnostics.loss("tool_choice", "a search can't be required")
        return _chosen(functions, "auto")
    if encoded is None:
        if choice == "required" and not functions:
            raise _error("required", "needs a tool that the upstream can call")
        return _chosen(functions, choice)
    if encoded.get("type") == "allowed_tools":
        left: dict[str, FunctionView] = {}
        for each in encoded["tools"]:
            view = chosen_function(each, functions, identities)
            if view is None:
                diagnostics.loss("tool_choice.tools", f"{named(each)} can't be called")
            else:
                left[view.name] = view
        if not left and encoded["mode"] == "required":
            raise _error("allowed_tools", "leaves no tool that the upstream can call")
        return _chosen(list(left.values()), encoded["mode"])
    view = chosen_function(encoded, functions, identities)
    if view is None:
        raise _error(named(encoded), "is not among the tools that the upstream can call")
    return _chosen(functions, {"type": "function", "function": {"name": view.name}})


def as_functions(chosen: Chosen, diagnostics: Diagnostics) -> dict[str, Any]:
    """Return the tools and the choice as the older fields `functions` and `function_call`, which know auto,
    none and one function."""
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
    "reasoning.summary": loss("summaries can't be requested"),
    "reasoning.context": loss(),
    "reasoning.mode": loss(),
    "truncation": loss("a conversation that is too long is not shortened"),
    "prompt_cache_options": loss(),
    "client_metadata": loss(),
    "top_k": loss(),
    STORE_OF_CHAT: built("store"),
    METADATA_OF_CHAT: built("metadata"),
    NATIVE_OF_CHAT: built("its own name"),
}


_LOGPROBS = "message.output_text.logprobs"
# values of `include` that are either kept or mean nothing that an upstream could add
_INCLUDES = frozenset({_LOGPROBS, "reasoning.encrypted_content", SEARCH_SOURCES, RUN_OUTPUTS})


def to_chat(
    request: CreateResponse,
    *,
    history: Sequence[AnyItem] = (),
    tool_identities: ToolIdentityMap | None = None,
    model: str | None = None,
    options: ChatOptions = DEFAULT_OPTIONS,
    choices: int = 1,
    sealer: Sealer | None = None,
    efforts: frozenset[str] | None = None,
) -> tuple[ChatRequest, Diagnostics]:
    """Return the request for an upstream, and the losses.

    `history` has the items of earlier turns (input and output, in order) for `previous_response_id`.
    `tool_identities` is filled with the declared tools, for the machine that restores their calls. `model` is
    the upstream's name for the model, if it differs. `choices` is sent as `n` if the upstream accepts that.
    `sealer` opens data that the upstream wants back unchanged. `efforts` are the model's levels of effort, as
    in `accepted_efforts`.

    Raises InvalidRequestError with `param`: an unpaired call or output, an item that is not known here,
    a tool choice that can't be kept, nothing to answer.
    """
    diagnostics = Diagnostics()
    identities = ToolIdentityMap() if tool_identities is None else tool_identities
    request = configured(request, history)
    entries = normalize_entries(entries_of(request, history), diagnostics)
    declared = active_tools(request, entries)
    chosen, search = Chosen(None, None), dict[str, Any]()
    if declared or request.tool_choice is not None:
        chosen, search = _tools(request, declared, identities, options, diagnostics)
    if options.unanswered_calls == "answer":
        entries = with_answers(entries, identities, diagnostics)
    carried = NOTHING if request.native is UNSET else carried_by(request)
    builder = MessagesBuilder(identities, options, diagnostics, sealer or Sealer(), carried)
    messages = builder.build(entries, request.instructions)
    if not messages:
        raise _missing("input", "there is nothing to answer: give input or instructions")
    name = model or request.model
    if not name:
        raise _missing("model", "no model is given")
    extra: dict[str, Any] = {}
    if options.passes or options.extra or request.native is not UNSET:
        request, extra = _passed(request, options, diagnostics)
    fields = apply(request, FIELDS, diagnostics)
    if chosen.tools is not None:
        fields |= _offered(request, chosen, options, diagnostics)
    if search:
        fields["tools"] = [*(fields.get("tools") or ()), *search.pop("tools", ())] or None
    fields["n"] = choices if choices > 1 and options.takes_n else None
    fields[options.max_tokens_field] = request.max_output_tokens
    _add_options(fields, request, options, efforts, diagnostics)
    extra = {**extra, **search}
    for field in sorted(options.omit & (fields.keys() | extra.keys())):
        if fields.pop(field, None) is not None or extra.pop(field, None) is not None:
            diagnostics.loss(field, "the upstream does not accept it")
    return ChatRequest(model=name, messages=messages, extra=extra or UNSET, **fields), diagnostics


def _add_options(
    fields: dict[str, Any],
    request: CreateResponse,
    options: ChatOptions,
    efforts: frozenset[str] | None,
    diagnostics: Diagnostics,
) -> None:
    """Add what the request asks for besides messages, tools and limits, in the form of this upstream."""
    if request.top_logprobs or _LOGPROBS in (request.include or ()):
        fields |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if request.text is not None:
        fields |= _text(request.text, options, diagnostics)
    if request.reasoning is not None or request.native is not UNSET:
        fields |= _reasoning(request, options, efforts, diagnostics)
    if not options.forced_while_thinking and fields.get("tool_choice") not in _UNFORCED:
        _without_thinking(fields, options, efforts, diagnostics)
    if options.forward_store and request.store:
        fields |= {"store": True, "metadata": request.metadata}
    elif request.beyond:
        fields |= kept_there(request)
    if request.stream:
        usage = {"include_usage": True} if options.stream_usage else None
        fields |= {"stream": True, "stream_options": usage}
    if request.include:
        check_include(request.include, _INCLUDES, diagnostics)


def _passed(
    request: CreateResponse, options: ChatOptions, diagnostics: Diagnostics
) -> tuple[CreateResponse, dict[str, Any]]:
    """Return (the request without the fields that are passed under their own names, these fields)."""
    own: dict[str, Any] = {}
    passed: dict[str, Any] = {}
    if options.cache_breakpoints:
        request = without_breakpoints(request)
    native = request.native
    if native is not UNSET and native.dialect == CHAT:
        carried = carried_by(request)
        own = carried.body
        if carried.cached and CACHE_OF_PARTS in native.names:
            diagnostics.loss(CACHE_OF_PARTS, "can't be expressed")
        request = replace(request, native=UNSET)
    if options.passes:
        request, passed = passed_on(request, options.passes, MADE)
        if request.top_k is not None and may_pass("top_k", options.passes):
            passed["top_k"] = request.top_k
            request = replace(request, top_k=None)
    extra: dict[str, Any] = {}
    add_beside(extra, options.extra, carried=own, passed=passed)
    return request, extra


def _tools(
    request: CreateResponse,
    declared: Sequence[DeclaredTool],
    identities: ToolIdentityMap,
    options: ChatOptions,
    diagnostics: Diagnostics,
) -> tuple[Chosen, dict[str, Any]]:
    """Return (the functions and the choice among them, the fields that ask for a search)."""
    functions, others = present_tools(declared, identities, diagnostics)
    form = FORMS.get(options.web_search)
    search: dict[str, Any] | None = None
    for tool, where in others:
        if form is not None and request.tool_choice == "none" and is_search(tool.type):
            continue  # as required
        wish = None if form is None or search is not None else search_of(tool, where)
        if form is not None and wish is not None:
            search = form.made(wish, where, diagnostics)
            continue
        kind = tool.type or "a tool without a type"
        diagnostics.loss(where, f"{kind} is not known to the upstream")
    if options.schema_omit or options.schema_forms:
        functions = [
            view._replace(
                parameters=_as_taken(view.parameters, options, f"tools.{view.name}.parameters", diagnostics)
            )
            for view in functions
        ]
    searches = search is not None
    chosen = choose(request.tool_choice, functions, identities, diagnostics, searches=searches)
    return chosen, search or {}


_OF_TOOLS: Final = frozenset({"object_root"})


def _as_taken(
    schema: Schema, options: ChatOptions, where: str, diagnostics: Diagnostics, *, answer: bool = False
) -> Schema:
    """Return the schema in a form that the server accepts; changes in it are losses. An `answer` that is not
    an object can't be made one."""
    forms = options.schema_forms - _OF_TOOLS if answer else options.schema_forms
    return rewritten(schema, options.schema_omit, forms, where, diagnostics)


def _offered(
    request: CreateResponse, chosen: Chosen, options: ChatOptions, diagnostics: Diagnostics
) -> dict[str, Any]:
    if options.tools_field == "functions":
        if request.parallel_tool_calls:
            diagnostics.loss("parallel_tool_calls", "the upstream makes one call per answer")
        return as_functions(chosen, diagnostics)
    tools = chosen.tools or []
    if options.uniform_strict and len({bool(tool.function.strict) for tool in tools}) > 1:
        tools = [replace(tool, function=replace(tool.function, strict=False)) for tool in tools]
        diagnostics.loss("tools.strict", "not all tools have it, and the upstream accepts one value for all")
    return {
        "tools": tools,
        "tool_choice": chosen.choice,
        "parallel_tool_calls": request.parallel_tool_calls,
    }


def _missing(param: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(InvalidRequestError.INVALID_VALUE, message, param=param)


def _text(text: TextParam, options: ChatOptions, diagnostics: Diagnostics) -> dict[str, Any]:
    fields: dict[str, Any] = {"verbosity": text.verbosity or None}
    if text.format:
        format = _FORMATS[type(text.format)](text.format, diagnostics)
        if format is not None and format["type"] == "json_schema" != options.json_schema:
            diagnostics.loss("text.format.schema", "the upstream takes json_object only")
            format = {"type": "json_object"}
        elif format is not None and "schema" in format.get("json_schema", ()):
            format["json_schema"]["schema"] = _as_taken(
                format["json_schema"]["schema"], options, "text.format.schema", diagnostics, answer=True
            )
        fields["response_format"] = format
    return fields


def _schema(format: Any, diagnostics: Diagnostics) -> dict[str, Any]:
    fields = {field: getattr(format, field) for field in ("description", "schema", "strict")}
    schema = {field: value for field, value in fields.items() if isinstance(value, str | dict | bool)}
    return {"type": "json_schema", "json_schema": {"name": format.name or "response", **schema}}


def _unknown_format(format: Any, diagnostics: Diagnostics) -> None:
    diagnostics.loss("text.format", f"{format.type[:64]!r} can't be expressed")


_FORMATS: dict[type[Any], Callable[[Any, Diagnostics], dict[str, Any] | None]] = {
    TextFormat: lambda format, diagnostics: None,
    JsonObjectFormat: lambda format, diagnostics: {"type": "json_object"},
    JsonSchemaFormatParam: _schema,
    UnknownFormat: _unknown_format,
}


_UNFORCED: Final = (None, "auto", "none")


def _without_thinking(
    fields: dict[str, Any], options: ChatOptions, efforts: frozenset[str] | None, diagnostics: Diagnostics
) -> None:
    """Turn thinking off, so that a call can be forced; if that can't be expressed, leave the choice to the
    model."""
    off = {} if options.thinking_off is None else asdict(options.thinking_off)
    if off and all(fields.get(name) == value for name, value in off.items()):
        return
    if off and (efforts is None or "none" in efforts):
        fields |= dict.fromkeys((*asdict(options.thinking_on or ThinkingFields()), "reasoning_effort"))
        fields |= off
        diagnostics.loss("reasoning", "turned off, since a tool call is forced")
    else:
        fields["tool_choice"] = "auto"
        diagnostics.loss("tool_choice", "a call can't be forced while the model thinks, sent as auto")


def _reasoning(
    request: CreateResponse,
    options: ChatOptions,
    efforts: frozenset[str] | None,
    diagnostics: Diagnostics,
) -> dict[str, Any]:
    """Return the fields for reasoning. `efforts` are the model's."""
    accepted = accepted_efforts(options.efforts, efforts)
    effort = effort_of(request, EFFORTS.union(accepted))
    unthinking = effort is None and request.native is not UNSET and request.native.unthinking
    if unthinking and efforts is not None and "none" not in efforts:
        diagnostics.loss("thinking", "the model's thinking can't be turned off")
    elif options.thinking_off is not None and (
        unthinking or (effort == "none" and (efforts is None or "none" in efforts))
    ):
        return asdict(options.thinking_off)
    if effort is None:
        return {}
    fields = {"reasoning_effort": fitted_effort(effort, accepted, diagnostics)}
    return fields if options.thinking_on is None or effort == "none" else fields | asdict(options.thinking_on)
