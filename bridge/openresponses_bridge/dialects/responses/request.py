"""A request of ours → a request of an upstream that itself speaks Responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openresponses_bridge.calls.choice import meant, named, plain_choice
from openresponses_bridge.calls.declarations import FunctionView, Placed, active_tools, present_tools
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    HISTORY,
    apply,
    configured,
    entries_of,
    is_answered_trigger,
    kept_there,
    understood,
)
from openresponses_bridge.dialects.responses.fields import outcomes
from openresponses_bridge.dialects.responses.options import DEFAULT_OPTIONS, ResponsesOptions
from openresponses_bridge.dialects.responses.request_items import InputItems, plain
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.beyond import names_of, put_back
from openresponses_bridge.protocol.request import CreateResponse, ForeignFields

SMALLEST_LIMIT = 16  # tokens, schema CreateResponseBody
_ENCRYPTED = "reasoning.encrypted_content"


def to_responses(
    request: CreateResponse,
    *,
    model: str | None = None,
    history: Sequence[Any] = (),
    tool_identities: ToolIdentityMap | None = None,
    options: ResponsesOptions = DEFAULT_OPTIONS,
) -> tuple[dict[str, Any], Diagnostics]:
    """(body, what was lost or repaired on the way).

    `history` are the items of earlier turns, input and output, that `previous_response_id` stands for:
    where they are given they go along and the link does not. `model` replaces the request's;
    `tool_identities` learns the tools, for the machine that reads the answer. Raises
    InvalidRequestError with `param`: unpaired calls and outputs (`unpaired_tool_call`), references to
    items, tools that two kinds share a name of, a choice that can't be kept, nothing to answer.
    """
    diagnostics = Diagnostics()
    identities = ToolIdentityMap() if tool_identities is None else tool_identities
    name = model or request.model
    if not name:
        raise _invalid("model", "no model is given")
    entries = entries_of(request, history)
    if options.supersets:
        entries = [entry for entry in entries if not is_answered_trigger(entry, entries[-1])]
    else:
        request = configured(request, history)
        entries = understood(entries, diagnostics)
    items = [entry.item for entry in entries]
    joined = options.stateful and request.previous_response_id is not None and not history
    if not (items or request.instructions or joined or request.prompt or request.conversation):
        raise _invalid("input", "there is nothing to answer: give input or instructions")
    body: dict[str, Any] = {"model": name}
    earlier = sum(entry.param == HISTORY for entry in entries)
    active = active_tools(request.tools, items, earlier)
    tools, choice = _tools(request, active, identities, options, diagnostics)
    sent = InputItems(identities, options, diagnostics).build(entries, joined)
    if sent:
        body["input"] = sent
    body |= {"tools": tools} if tools else {}
    body |= {"tool_choice": choice} if choice is not None else {}
    body |= _fields(request, options, diagnostics)
    if not options.stateful:
        body["store"] = False
    elif not joined:
        body.pop("previous_response_id", None)
    body["stream"] = bool(request.stream)
    if request.stream and request.stream_options is not None:
        body["stream_options"] = plain(request.stream_options)
    if options.supersets:
        _pass_on(body, request, diagnostics)
    for field in sorted(options.omit & body.keys()):
        del body[field]
        diagnostics.loss(field, "the upstream does not take it")
    return body, diagnostics


def _invalid(param: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(InvalidRequestError.INVALID_VALUE, message, param=param)


def _fields(request: CreateResponse, options: ResponsesOptions, diagnostics: Diagnostics) -> dict[str, Any]:
    """All fields that mean the same there."""
    body: dict[str, Any] = plain(apply(request, outcomes(options), diagnostics))
    limit = request.max_output_tokens
    if limit is not None:
        body["max_output_tokens"] = max(limit, SMALLEST_LIMIT)
    if limit is not None and limit < SMALLEST_LIMIT:
        diagnostics.loss("max_output_tokens", f"raised to {SMALLEST_LIMIT}")
    included = list(request.include or ())
    if options.encrypted_reasoning and not options.stateful:
        included.append(_ENCRYPTED)
    return body | ({"include": list(dict.fromkeys(included))} if included or request.include else {})


def _pass_on(body: dict[str, Any], request: CreateResponse, diagnostics: Diagnostics) -> None:
    """Fields that are not known here may be known there."""
    kept = kept_there(request)
    for place, fields in request.beyond or ():
        passed = ForeignFields(place, {name: fields[name] for name in fields if place or name not in kept})
        # items are made anew, among those of earlier turns
        lost = names_of([passed]) if place[:1] == ("input",) else put_back(body, [passed])
        for name in lost:
            diagnostics.loss(name, "has no place in what is sent")


def _tools(
    request: CreateResponse,
    active: list[Placed],
    identities: ToolIdentityMap,
    options: ResponsesOptions,
    diagnostics: Diagnostics,
) -> tuple[list[Any], Any]:
    """(tools, choice) as they go out."""
    if options.supersets:
        choice = None if request.tool_choice is None else plain(request.tool_choice)
        return [plain(tool) for tool in request.tools or ()], choice
    functions, others = present_tools(active, identities, diagnostics)
    for tool, _ in others:
        diagnostics.loss("tools", f"a tool of type {tool.type[:64]!r} is not known there")
    tools = [
        {
            "type": "function",
            "name": view.name,
            "description": view.description or None,
            "parameters": view.parameters,
            "strict": view.strict,
        }
        for view in functions
    ]
    return tools, _choice(request.tool_choice, functions, identities, diagnostics)


def _choice(
    given: Any, functions: list[FunctionView], identities: ToolIdentityMap, diagnostics: Diagnostics
) -> Any:
    """The choice among functions. Hosted tools can't be chosen where they are not known."""
    choice = plain_choice(given)
    if choice is None:
        return given if functions or given != "required" else _refuse("required")
    if choice.get("type") != "allowed_tools":
        view = meant(choice, functions, identities)
        return _refuse(named(choice)) if view is None else _function(view)
    views = [meant(each, functions, identities) for each in choice["tools"]]
    left = [_function(view) for view in views if view is not None]
    if len(left) < len(views):
        diagnostics.loss("tool_choice.tools", "tools that are not known there")
    return {**choice, "tools": left} if left else _refuse("allowed_tools")


def _function(view: FunctionView) -> dict[str, str]:
    return {"type": "function", "name": view.name}


def _refuse(what: str) -> Any:
    raise _invalid("tool_choice", f"{what!r} is not among the tools that the upstream can call")
