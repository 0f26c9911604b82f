"""Translates a request into one of the Messages API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

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
from openresponses_bridge.dialects.anthropic_messages import search
from openresponses_bridge.dialects.anthropic_messages.carried import STABLE, CarriedFields, carried_by
from openresponses_bridge.dialects.anthropic_messages.models import (
    DEFAULT_OPTIONS,
    MessagesOptions,
    ModelFacts,
    facts_of,
)
from openresponses_bridge.dialects.anthropic_messages.thinking import plan_thinking
from openresponses_bridge.dialects.anthropic_messages.types import SLUG
from openresponses_bridge.dialects.anthropic_messages.upstream.formats import is_closed, text_format
from openresponses_bridge.dialects.anthropic_messages.upstream.messages import (
    THINKING_BLOCKS,
    MessagesBuilder,
    lacks_thinking,
)
from openresponses_bridge.dialects.base import (
    LONGEST_NAME,
    NATIVE_OF_MESSAGES,
    OURS,
    RUN_OUTPUTS,
    SEARCH_SOURCES,
    Outcomes,
    active_tools,
    add_beside,
    apply,
    asked_tier,
    built,
    check_include,
    configured,
    effort_of,
    entries_of,
    fitted_effort,
    honoured,
    is_search,
    loss,
    normalize_entries,
    search_of,
    sent,
    with_answers,
    without_breakpoints,
)
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.unknown import UnknownTool, UnknownToolChoice
from openresponses_bridge.schemas.rewriting import ONE_ROOT, object_root
from openresponses_bridge.seal import Sealer

_MODES: Final = {"auto": "auto", "required": "any", "none": "none"}
FORCING: Final = frozenset({"any", "tool"})


def tool_bodies(
    functions: Sequence[FunctionView],
    others: Sequence[DeclaredTool],
    facts: ModelFacts,
    diagnostics: Diagnostics,
    *,
    searches: bool = True,
    declared: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return tool definitions. Anthropic's own tools, declared as `anthropic:…`, are unchanged. `declared` is
    the search as a client of the API declared it."""
    bodies = [_function(view, facts, diagnostics) for view in functions]
    taken = (tool.raw.get("name") for tool, _ in others if isinstance(tool, UnknownTool))
    named = {view.name for view in functions} | {name for name in taken if isinstance(name, str)}
    for tool, where in others:
        wish = search_of(tool, where) if searches else None
        if wish is not None and search.NAME in named:
            diagnostics.loss(where, "the upstream has one search, under the name of another tool")
        elif wish is not None:
            named.add(search.NAME)
            bodies.append(search.FORM.made(wish, where, diagnostics) if declared is None else declared)
        elif isinstance(tool, UnknownTool) and tool.type.startswith(SLUG):
            bodies.append({**tool.raw, "type": tool.type.removeprefix(SLUG)})
        else:
            diagnostics.loss(f"tools.{tool.type[:64]}", "the upstream has no such tool")
    return bodies


def _function(view: FunctionView, facts: ModelFacts, diagnostics: Diagnostics) -> dict[str, Any]:
    body: dict[str, Any] = {"name": view.name}
    if view.description:
        body["description"] = view.description
    parameters = object_root(view.parameters)
    if parameters is not view.parameters:
        diagnostics.loss(f"tools.{view.name}.input_schema", ONE_ROOT)
    body["input_schema"] = parameters
    if view.strict and facts.structured and is_closed(parameters):
        body["strict"] = True
    elif view.strict:
        diagnostics.loss(f"tools.{view.name}.strict", "not enforced")
    return body


def tools_called(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the fields that declare the tools of earlier calls if no tools are offered, since the API
    refuses calls of undeclared tools. {} if there are no calls."""
    blocks = (block for message in messages for block in message["content"])
    names = dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use")
    declared = [{"name": name, "input_schema": {"type": "object"}} for name in names]
    return {"tools": declared, "tool_choice": {"type": "none"}} if declared else {}


class ToolChoice:
    """The choice of tools. `body` is the tool_choice, None if none is needed; `allowed` are the names of the
    tools that may be called, None for all. Raises InvalidRequestError for a tool that was not declared."""

    def __init__(
        self,
        request: CreateResponse,
        functions: Sequence[FunctionView],
        identities: ToolIdentityMap,
        diagnostics: Diagnostics,
        *,
        searches: bool = False,
    ) -> None:
        self._functions = functions
        self._identities = identities
        self.searches = searches
        """True if the search of the web may be called."""
        self.allowed: frozenset[str] | None = None
        self.body = self._choose(request.tool_choice, diagnostics)
        if request.parallel_tool_calls is False and (self.body or {}).get("type") != "none":
            self.body = {**(self.body or {"type": "auto"}), "disable_parallel_tool_use": True}

    @property
    def forces(self) -> bool:
        return self.body is not None and self.body["type"] in FORCING

    def loosen(self, diagnostics: Diagnostics) -> None:
        """Let the model decide whether it calls a tool."""
        assert self.body is not None
        diagnostics.loss("tool_choice", f"{self.body['type']!r} sent as 'auto', the model takes no other")
        self.body = {**self.body, "type": "auto"}
        self.body.pop("name", None)

    def check(self, tools: Sequence[Any]) -> None:
        """Raises InvalidRequestError if a call is required and there is no tool to call."""
        if self.forces and not tools:
            raise InvalidRequestError(
                InvalidRequestError.INVALID_VALUE,
                "tool_choice 'required' needs a tool that the upstream can call",
                param="tool_choice",
            )

    def _choose(self, choice: Any, diagnostics: Diagnostics) -> dict[str, Any] | None:
        raw = encode_choice(choice)
        if raw is None:
            return None if choice is None else {"type": _MODES[choice]}
        if raw.get("type") == "allowed_tools":
            tools = dict(enumerate(raw["tools"]))
            named = {at: tool for at, tool in tools.items() if not self._is_search(tool)}
            self.searches = len(named) < len(tools)
            self.allowed = frozenset(
                self._name(tool, f"tool_choice.tools[{at}]") for at, tool in named.items()
            )
            return {"type": _MODES[raw["mode"]]}
        if isinstance(choice, UnknownToolChoice) and not chosen_function(
            raw, self._functions, self._identities
        ):
            if self._is_search(raw):
                return {"type": "tool", "name": search.NAME}
            diagnostics.loss(f"tool_choice.{choice.type[:64]}", "the upstream has no such tool")
            return None
        return {"type": "tool", "name": self._name(raw, "tool_choice")}

    def _is_search(self, choice: dict[str, Any]) -> bool:
        return self.searches and is_search(str(choice.get("type")))

    def _name(self, choice: dict[str, Any], param: str) -> str:
        view = chosen_function(choice, self._functions, self._identities)
        if view is None:
            raise InvalidRequestError(
                InvalidRequestError.INVALID_VALUE,
                f"no tool is named {named(choice)!r}",
                param=f"{param}.name",
            )
        return view.name


# The outcome of each field of a request at a server with the Messages API.

_UNSAID: Final = (
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "text.verbosity",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "reasoning.context",
    "reasoning.mode",
    "client_metadata",
    "seed",
    "logit_bias",
    "prediction",
)

FIELDS: Final[Outcomes] = {
    **OURS,
    **{name: loss() for name in _UNSAID},
    "model": built("model"),
    "input": built("messages"),
    "instructions": built("system"),
    "include": honoured("encrypted reasoning and sources are always included, anything else is a loss"),
    "tools": built("tools"),
    "tool_choice": built("tool_choice"),
    "parallel_tool_calls": built("tool_choice"),
    "text.format": built("output_config"),
    "max_output_tokens": built("max_tokens"),
    "temperature": built("temperature"),
    "top_p": built("top_p"),
    "top_k": sent("top_k"),
    "stop": built("stop_sequences"),
    "reasoning.effort": built("thinking"),
    "reasoning.summary": built("thinking"),
    "service_tier": built("service_tier"),
    "safety_identifier": built("metadata"),
    "user": built("metadata"),
    "stream": built("stream"),
    "stream_options.include_obfuscation": loss("answers are not padded"),
    NATIVE_OF_MESSAGES: built("messages"),
    "truncation": loss("a conversation that is too long is not shortened"),
}


_HOTTEST = 1.0  # Anthropic's highest temperature is in the middle of OpenAI's range
# values of `include` that are sent anyway
_INCLUDES = frozenset({"reasoning.encrypted_content", SEARCH_SOURCES, RUN_OUTPUTS})
_UNTHINKING: Final = {"type": "disabled"}
_PLANNED = ("enabled", "adaptive")  # kinds of thinking that the protocol expresses as efforts
_TIERS = {"auto": "auto", "default": "standard_only"}


def to_messages(
    request: CreateResponse,
    *,
    model: str | None = None,
    history: Sequence[Any] = (),
    tool_identities: ToolIdentityMap | None = None,
    sealer: Sealer | None = None,
    options: MessagesOptions = DEFAULT_OPTIONS,
    efforts: frozenset[str] | None = None,
    output_room: int | None = None,
) -> tuple[dict[str, Any], Diagnostics]:
    """Translate a request. Returns (body, losses and repairs).

    `history` are the items of earlier turns, input and output; `model` replaces the request's;
    `tool_identities` is filled with the tools, for the machine that reads the answer; `efforts` are the
    model's levels of effort, as in `accepted_efforts`; `output_room` limits `max_tokens` in a request that
    names none, for a model whose limit is not known. Raises InvalidRequestError with `param` for a request
    that can't be sent: unpaired calls (`unpaired_tool_call`), seals that can't be opened, malformed data,
    tools that were not declared.
    """
    diagnostics = Diagnostics()
    identities = tool_identities if tool_identities is not None else ToolIdentityMap()
    name = model or request.model or ""
    facts = _facts(name, options, efforts)
    carried = carried_by(request)
    if carried.declared is not None and request.tools == carried.offered and _defers(facts, carried):
        request = replace(request, tools=carried.declared)
    request = configured(request, history)
    entries = normalize_entries(entries_of(request, history, tool_changes=True), diagnostics)
    functions, others = present_tools(active_tools(request, entries), identities, diagnostics)
    searches = options.web_search and any(is_search(tool.type) for tool, _ in others)
    choice = ToolChoice(request, functions, identities, diagnostics, searches=searches)
    if options.unanswered_calls == "answer":
        entries = with_answers(entries, identities, diagnostics)
    enforced, instructed = text_format(request, facts, diagnostics)
    sealed = sealer or Sealer()
    prefill, turns = facts.prefill, facts.system_turns
    builder = MessagesBuilder(
        entries, identities, sealed, options, diagnostics, carried, prefill=prefill, system_turns=turns
    )
    messages = _built(builder, request.instructions, instructed)
    if carried.billing is not None and "claude" in name.lower():
        builder.system.insert(0, carried.billing)
    if searches and not choice.searches:  # the choice does not allow it
        others = [each for each in others if not is_search(each.tool.type)]
    tools = _offered(functions, others, choice, facts, carried, diagnostics, searches=searches)
    most = _max_tokens(request, facts, output_room, diagnostics)
    body: dict[str, Any] = {"model": name, "max_tokens": most, "messages": messages}
    body |= {"system": builder.system} if builder.system else {}
    body |= _tools(tools, choice, messages, diagnostics)
    planned = _thinking(request, carried, facts, body, choice, diagnostics)
    body |= _requested(planned, carried, facts, body["max_tokens"])
    if enforced is not None:
        body["output_config"] = {**body.get("output_config", {}), "format": enforced}
    _add_options(body, request, facts, carried, options, diagnostics)
    if options.cache_control is not None and not carried.caches and not builder.breaks:
        _mark_cache(body, options.cache_control)
    return body, diagnostics


def _add_options(
    body: dict[str, Any],
    request: CreateResponse,
    facts: ModelFacts,
    carried: CarriedFields,
    options: MessagesOptions,
    diagnostics: Diagnostics,
) -> None:
    """Add what the request asks for besides messages, tools and thinking, then the upstream's own options."""
    thinks = body.get("thinking", _UNTHINKING).get("type") != "disabled"
    body |= _sampling(request, facts, thinks, diagnostics)
    request = without_breakpoints(request)
    body |= apply(request, FIELDS, diagnostics) | _about(request, diagnostics)
    body["stream"] = options.stream
    add_beside(body, options.extra, carried=_carried(carried, options, diagnostics), passed={})


def _built(builder: MessagesBuilder, instructions: str | None, added: str | None) -> list[dict[str, Any]]:
    """Return the messages. The text `added` to the instructions is in the builder's `system`."""
    messages = builder.build(instructions)
    if not messages:
        what = "there is no message to answer"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="input")
    if added:
        builder.system.append({"type": "text", "text": added})
    return messages


def _offered(
    functions: Sequence[FunctionView],
    others: Sequence[DeclaredTool],
    choice: ToolChoice,
    facts: ModelFacts,
    carried: CarriedFields,
    diagnostics: Diagnostics,
    *,
    searches: bool,
) -> list[dict[str, Any]]:
    """Return the tools that the choice allows, and limit the choice to them."""
    allowed = [view for view in functions if choice.allowed is None or view.name in choice.allowed]
    bodies = tool_bodies(allowed, others, facts, diagnostics, searches=searches, declared=carried.search)
    tools = [body | carried.tool_fields(body) for body in bodies]
    choice.check(tools)
    if choice.forces and not facts.forced_calls:
        choice.loosen(diagnostics)
    return tools


def _facts(name: str, options: MessagesOptions, efforts: frozenset[str] | None) -> ModelFacts:
    facts = options.facts or facts_of(name)
    if not facts.known and efforts is not None and "none" not in efforts:
        return replace(facts, unthinking="impossible")
    return facts


def _defers(facts: ModelFacts, carried: CarriedFields) -> bool:
    """Return whether the model itself reads which of all declared tools are offered. It does not if messages
    of the system change that and the model does not accept those."""
    return facts.system_turns or not carried.changes_tools


def _max_tokens(
    request: CreateResponse, facts: ModelFacts, room: int | None, diagnostics: Diagnostics
) -> int:
    requested = request.max_output_tokens
    if requested is None:
        return facts.max_tokens if facts.known or room is None else min(facts.max_tokens, room)
    if facts.known and requested > facts.max_tokens:
        diagnostics.loss("max_output_tokens", f"the model's limit is {facts.max_tokens}")
        return facts.max_tokens
    return requested


def _tools(
    tools: list[dict[str, Any]],
    choice: ToolChoice,
    messages: list[dict[str, Any]],
    diagnostics: Diagnostics,
) -> dict[str, Any]:
    if tools:
        return {"tools": tools} | ({"tool_choice": choice.body} if choice.body is not None else {})
    declared = tools_called(messages)
    if declared:
        diagnostics.repair("tools", "the tools of earlier calls are declared, but can't be called")
    return declared


def _thinking(
    request: CreateResponse,
    carried: CarriedFields,
    facts: ModelFacts,
    body: dict[str, Any],
    choice: ToolChoice,
    diagnostics: Diagnostics,
) -> dict[str, Any]:
    effort = effort_of(request)
    if effort is None and _is_off_otherwise(carried, facts):
        effort = "none"
    if effort == "none" and facts.unthinking == "impossible":
        least = fitted_effort(effort, facts.efforts, diagnostics)
        return {} if least is None else {"output_config": {"effort": least}}
    if effort == "none" and facts.unthinking != "absent":
        return {"thinking": {"type": facts.unthinking}}
    if effort is None or effort == "none":
        return {}
    if choice.forces and "tools" in body:
        diagnostics.loss("reasoning.effort", "turned off, since a tool call is forced")
        return {}
    if facts.thinking == "budget" and lacks_thinking(body["messages"]):
        diagnostics.loss("reasoning.effort", "turned off, since the calls before it have no signed thinking")
        return {}
    return plan_thinking(effort, request, facts, body["max_tokens"], diagnostics)


def _is_off_otherwise(carried: CarriedFields, facts: ModelFacts) -> bool:
    """Return True if a client of this API has turned thinking off in terms that the model refuses."""
    off = carried.thinking is not None and carried.thinking.get("type") == _UNTHINKING["type"]
    return off and facts.unthinking in ("between_tools", "impossible")


def _requested(
    planned: dict[str, Any], carried: CarriedFields, facts: ModelFacts, max_tokens: int
) -> dict[str, Any]:
    """Return the plan for thinking in the words of a client of this API, if it means the same and the model
    knows its terms."""
    thinking, config = carried.thinking, dict(carried.output_config)
    if thinking is not None and facts.thinking != "none":
        kind, budget = thinking.get("type"), thinking.get("budget_tokens")
        is_same = kind == planned.get("thinking", {}).get("type")
        fits = kind not in _PLANNED or (is_same and (not isinstance(budget, int) or budget < max_tokens))
        if fits and not _is_off_otherwise(carried, facts):
            planned = {**planned, "thinking": thinking}
    if facts.thinking != "adaptive" or (facts.known and config.get("effort") not in facts.efforts):
        config.pop("effort", None)
    config = {**planned.get("output_config", {}), **config}
    return {**planned, "output_config": config} if config else planned


def _sampling(
    request: CreateResponse, facts: ModelFacts, thinking: bool, diagnostics: Diagnostics
) -> dict[str, Any]:
    options = {name: getattr(request, name) for name in ("temperature", "top_p")}
    sampling = {name: value for name, value in options.items() if value is not None}
    if sampling and (thinking or not facts.sampling):
        for name in sampling:
            if sampling[name] != _HOTTEST:
                diagnostics.loss(name, "not with thinking" if thinking else "the model takes none")
        return {}
    # newer models refuse both together; a top_p of 1 has no effect
    if len(sampling) == len(options) and sampling.pop("top_p") != 1:
        diagnostics.loss("top_p", "not beside temperature")
    if sampling.get("temperature", 0) > _HOTTEST:
        diagnostics.loss("temperature", f"above {_HOTTEST}, lowered to it")
        sampling["temperature"] = _HOTTEST
    return sampling


def _about(request: CreateResponse, diagnostics: Diagnostics) -> dict[str, Any]:
    body: dict[str, Any] = {}
    user = request.safety_identifier or request.user or (request.metadata or {}).get("user_id")
    if user:
        body["metadata"] = {"user_id": user}
    if (tier := asked_tier(request, _TIERS, diagnostics)) is not None:
        body["service_tier"] = tier
    if request.stop:
        body["stop_sequences"] = [request.stop] if isinstance(request.stop, str) else request.stop
    check_include(request.include or (), _INCLUDES, diagnostics)
    return body


def _carried(carried: CarriedFields, options: MessagesOptions, diagnostics: Diagnostics) -> dict[str, Any]:
    """Return the fields of a client of this API that have no counterpart."""
    if options.betas:
        return carried.body
    for name in carried.body.keys() - STABLE:
        diagnostics.loss(name[:LONGEST_NAME], "needs a beta, and the upstream accepts none")
    return {name: value for name, value in carried.body.items() if name in STABLE}


def _mark_cache(body: dict[str, Any], mark: dict[str, Any]) -> None:
    """Set a cache breakpoint at the end of each section that later turns repeat; the API allows four."""
    ends = [body.get("tools"), body.get("system"), body["messages"][-1]["content"]]
    for end in ends:
        if end and end[-1].get("type") not in THINKING_BLOCKS:
            end[-1] = {**end[-1], "cache_control": mark}
