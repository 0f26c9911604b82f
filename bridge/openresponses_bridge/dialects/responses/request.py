"""Converts a request to one for an upstream that itself speaks Responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.calls.call_ids import sent_call_id
from openresponses_bridge.calls.declarations import (
    FunctionView,
    chosen_function,
    encode_choice,
    named,
    present_tools,
)
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import CallView, OutputView, pair
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import (
    DIALECT_SLUGS,
    EFFORTS,
    METADATA_OF_CHAT,
    NO_TAGS,
    OTHER,
    OURS,
    RUN_OUTPUTS,
    SEARCH_CALL,
    SEARCH_SOURCES,
    THINK_TAGS,
    Entry,
    Outcomes,
    SearchForm,
    UnansweredCalls,
    WebSearch,
    active_tools,
    apply,
    built,
    configured,
    entries_of,
    fitted_effort,
    honoured,
    is_answered_trigger,
    is_search,
    kept_there,
    loss,
    normalize_entries,
    search_of,
    searched,
    sent,
    settled_calls,
    views_of,
    with_answers,
    without_breakpoints,
)
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.beyond import name_of, names_of, restore_fields
from openresponses_bridge.protocol.codec import plain, without_extra
from openresponses_bridge.protocol.ids import accepted_id
from openresponses_bridge.protocol.request import CreateResponse, ForeignFields
from openresponses_bridge.protocol.tools import FunctionToolParam
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownTool
from openresponses_bridge.schemas.rewriting import ONE_ROOT, object_root
from openresponses_bridge.seal import is_envelope

_Plain = dict[str, Any]


class ResponsesOptions(Struct, frozen=True, kw_only=True):
    """Options of an upstream, for differences between its servers."""

    supersets: bool = True
    """Whether the server knows OpenAI's own tools, items and fields. If not, the tools and their calls are
    sent as functions, and the rest is a loss."""
    stateful: bool = False
    """Whether the server stores responses, so that `previous_response_id`, `store` and item references work,
    and only new items are sent. If not, it is asked to store nothing, and the whole history is sent."""
    item_ids: bool = True
    """Whether the `id` of items is sent. Encrypted items are always sent with theirs. Servers that know
    OpenAI's items get ids in OpenAI's forms."""
    item_statuses: bool = True
    """Whether the `status` of items is sent."""
    reasoning_content: bool = True
    """Whether the server accepts raw reasoning of earlier turns, which the published schema does not have."""
    encrypted_reasoning: bool = False
    """Whether encrypted reasoning is requested, which a conversation that is not stored needs. Then no other
    reasoning is sent back."""
    encrypted_content: bool = True
    """Whether the server accepts `encrypted_content`. If not, it is left out, with a loss, and only the
    readable part of reasoning is sent."""
    content_parts: bool = False
    """Whether the text of a message is sent as a list of parts, for servers that refuse a string."""
    schemas: Literal["text", "response_format", "none"] = "text"
    """The field by which the server enforces a JSON Schema for the answer: `text`, or `response_format` of
    Chat Completions, which is sent in addition. With `none`, the model gets instructions, and the answer is
    validated here."""
    reports_cuts: bool = True
    """Whether the server reports that an answer was cut off by the output limit. If not, an answer with as
    many tokens as that limit counts as cut off, unless it ends with a call."""
    web_search: Literal["openai", "xai", "groq", "plain", "none"] | None = None
    """How the server is asked for a web search: as OpenAI, xAI or Groq are, or with `plain` by the type of
    the tool alone. Default: `openai` if the server knows OpenAI's tools, else `none`, with which a search is
    a loss."""
    think: Literal["off", "tagged", "opened"] = "off"
    """How a text that contains reasoning begins, if the server does not parse it: `tagged` with a think tag,
    `opened` within one that the model's template has opened. With `off`, such tags are text."""
    think_tags: tuple[tuple[str, str], ...] = THINK_TAGS
    """The pairs of tags around reasoning in a text, such as `["[THINK]", "[/THINK]"]`."""
    unanswered_calls: UnansweredCalls = "refuse"
    """What is done with calls that have no output: `refuse` refuses the request, `answer` sends an output
    that says there is none."""
    omit: frozenset[str] = frozenset()
    """The names of request fields that this upstream refuses. Each use is a loss."""

    def __post_init__(self) -> None:
        if not self.think_tags or not all(map(all, self.think_tags)):
            raise ValueError(NO_TAGS)

    @property
    def search_form(self) -> SearchForm | None:
        """The form in which the server is asked to search; None if it can't."""
        return _SEARCHES.get(self.web_search or ("openai" if self.supersets else "none"))


DEFAULT_OPTIONS = ResponsesOptions()


def _openai_search(search: WebSearch) -> _Plain:
    return {name: value for name, value in search.tool().raw.items() if name != "max_uses"}


def _xai_search(search: WebSearch) -> _Plain:
    domain_lists = {"allowed_domains": search.allowed_domains, "excluded_domains": search.blocked_domains}
    filters = {name: domains for name, domains in domain_lists.items() if domains}
    return {"type": "web_search", **({"filters": filters} if filters else {})}


_SEARCHES: Final[dict[str, SearchForm]] = {
    # OpenAI's guide, Web search
    "openai": SearchForm(
        _openai_search, frozenset({"allowed_domains", "blocked_domains", "location", "context_size"})
    ),
    # docs.x.ai, Web Search, which its Chat Completions no longer has
    "xai": SearchForm(_xai_search, frozenset({"allowed_domains", "blocked_domains"}), either=True),
    # console.groq.com, Browser Search, which its gpt-oss models have
    "groq": SearchForm(lambda _search: {"type": "browser_search"}),
    "plain": SearchForm(lambda _search: {"type": "web_search"}),
}


_SLUG = "openai:"
_MAX_USES: Final = "max_uses"
# the items that every server knows, and those of their fields that every server knows
PUBLISHED = frozenset(
    {"message", "function_call", "function_call_output", "reasoning", "compaction", "item_reference"}
)
_NULLS = frozenset({"arguments", "output"})  # where null is a value


def published(value: Any) -> Any:
    """Return a protocol value as JSON, with OpenAI's types under their own names."""
    data = plain(value)
    if isinstance(data, dict) and str(data.get("type")).startswith(_SLUG):
        return {**data, "type": data["type"].removeprefix(_SLUG)}
    return data


class InputItems:
    """Builds the input: `build(entries, joined)`."""

    def __init__(
        self, identities: ToolIdentityMap, options: ResponsesOptions, diagnostics: Diagnostics
    ) -> None:
        self._identities = identities
        self._options = options
        self._diagnostics = diagnostics
        self.places: dict[str, _Plain] = {}
        """The path of each item in the request → the item that is sent."""

    def build(self, entries: Sequence[Entry], joined: bool) -> list[_Plain]:
        """Build the input. `joined` is True if the upstream has the earlier turns, so that outputs may answer
        calls that are not here. Raises InvalidRequestError with the item's path."""
        views: list[Any] = views_of(entries, self._identities)
        cut = frozenset[int]()
        if not joined:
            answers = pair(views, lambda index: entries[index].param)
            cut = frozenset(index for index, answer in answers.items() if answer is None)
            for call, answer in answers.items():
                if answer is not None:  # it may have named the call by the call's item
                    views[answer] = views[answer]._replace(call_id=views[call].call_id)
        items: list[tuple[_Plain, str]] = []
        for index, entry in enumerate(entries):
            if index in cut:
                self._diagnostics.loss(entry.param, "a call that was cut off and never answered")
            elif (item := self._item(entry.item, views[index], entry.param)) is not None:
                items.append((item, entry.param))
        if self._options.encrypted_reasoning and not self._options.stateful:
            items = self._followed(items)
        self.places = {where: item for item, where in items}
        return [item for item, _ in items]

    def _followed(self, items: list[tuple[_Plain, str]]) -> list[tuple[_Plain, str]]:
        """Return the items without reasoning that nothing followed: the upstream refuses reasoning unless an
        item of the model follows it."""
        result: list[tuple[_Plain, str]] = []
        following = False
        for item, where in reversed(items):
            if item["type"] == "reasoning" and not following:
                self._diagnostics.loss(where, "reasoning that no output of the model follows")
                continue
            following = item.get("role", "assistant") == "assistant" and not item["type"].endswith("_output")
            result.append((item, where))
        result.reverse()
        return result

    def _item(self, item: Any, view: CallView | OutputView | None, where: str) -> _Plain | None:
        if item.type == "item_reference" and not self._options.stateful:
            raise InvalidRequestError(
                InvalidRequestError.INVALID_VALUE, f"item {item.id[:64]!r} is not known here", param=where
            )
        if _is_of_dialect(item):
            self._diagnostics.loss(where, f"an item of type {item.type[:64]!r} is not known to the upstream")
            return None
        if not self._options.supersets:
            item = without_extra(item, [])  # they were reported with the request's other fields
            if item.type == "additional_tools":
                return None  # they are among the request's tools
            if view is not None:
                return self._function(item, view, where)
            search = searched(item)
            if search is not None and self._options.search_form is None:
                self._diagnostics.loss(where, "a search, sent as text")
                text = _text_part("assistant", search.text())
                return {"type": "message", "role": "assistant", "content": [text]}
            if search is None and item.type not in PUBLISHED and not _is_extension(item):
                self._diagnostics.loss(
                    where, f"an item of type {item.type[:64]!r} is not known to the upstream"
                )
                return None
        fields: _Plain = published(item)
        if view is not None and fields.get("call_id"):
            fields["call_id"] = view.call_id
        return self._finished(fields, where)

    def _function(self, item: Any, view: CallView | OutputView, where: str) -> _Plain | None:
        """Convert a call, or an answer, of any kind to a function's."""
        fields: _Plain = {"call_id": view.call_id}
        if isinstance(view, CallView):
            fields = {"type": "function_call", **fields, "name": view.name, "arguments": view.arguments}
        else:
            fields = {"type": "function_call_output", **fields, "output": published(view.output)}
        if item.type in PUBLISHED:
            fields |= {name: getattr(item, name) for name in ("id", "status") if getattr(item, name, None)}
        return self._finished(fields, where)

    def _finished(self, item: _Plain, where: str) -> _Plain | None:
        if not self._options.item_statuses:
            item.pop("status", None)
        if item.get("type") == SEARCH_CALL:
            self._search(item, where)
        if item.get("type") == "message":
            content = item.get("content")
            if isinstance(content, list):
                for part in content:
                    part.pop("logprobs", None)  # a request can't have them
                    for cited in part.get("annotations") or ():
                        self._unseal(cited, where)
            elif isinstance(content, str) and self._options.content_parts:
                item["content"] = [_text_part(item.get("role"), content)]
        if item.get("type") == "reasoning" and not self._reasoning(item, where):
            return None
        self._identify(item, where)
        return {name: value for name, value in item.items() if value is not None or name in _NULLS}

    def _search(self, item: _Plain, where: str) -> None:
        """Remove the fields that the bridge has added to a search."""
        self._unseal(item, where)
        action = item.get("action")
        sources = action.get("sources") if isinstance(action, dict) else None
        if isinstance(action, dict) and isinstance(sources, list):
            bare = [
                {name: value for name, value in each.items() if name != "title"}
                if isinstance(each, dict)
                else each
                for each in sources
            ]
            item["action"] = {**action, "sources": bare}

    def _unseal(self, fields: Any, where: str) -> None:
        """Remove what was sealed for another kind of upstream."""
        sealed = fields.get("encrypted_content") if isinstance(fields, dict) else None
        if isinstance(sealed, str) and is_envelope(sealed):
            del fields["encrypted_content"]
            self._diagnostics.loss(where, "results that are encrypted for another upstream")

    def _identify(self, item: _Plain, where: str) -> None:
        """Set the ids of the item to ones that the upstream accepts."""
        if isinstance(call_id := item.get("call_id"), str):
            item["call_id"] = sent_call_id(call_id, None, self._diagnostics, where)
        if item["type"] == "item_reference" or item.get("encrypted_content"):
            return  # the upstream knows the item by this id
        if not self._options.item_ids:
            item.pop("id", None)
        elif self._options.supersets:
            for field, kind in (("id", item["type"]), ("approval_request_id", "mcp_approval_request")):
                old_id = item.get(field)
                if isinstance(old_id, str) and old_id and (accepted := accepted_id(old_id, kind)) != old_id:
                    item[field] = accepted
                    self._diagnostics.repair(f"{where}.{field}", f"not an id of {kind}, replaced")

    def _reasoning(self, item: _Plain, where: str) -> bool:
        """Keep the parts of reasoning that the upstream accepts. Returns False if nothing is left."""
        if not self._options.reasoning_content and item.pop("content", None):
            self._diagnostics.loss(where, "raw reasoning of earlier turns")
        if is_envelope(item.get("encrypted_content") or ""):
            # sealed here for another kind of upstream, so this one can't read it
            del item["encrypted_content"]
            self._diagnostics.loss(where, "reasoning sealed for another upstream")
        elif not self._options.encrypted_content and item.pop("encrypted_content", None):
            self._diagnostics.loss(where, "encrypted reasoning, which this upstream does not take")
        if self._options.encrypted_reasoning and not self._options.stateful:
            if not item.get("encrypted_content"):
                self._diagnostics.loss(where, "reasoning that this upstream has not encrypted")
            return bool(item.get("encrypted_content"))
        return bool(item.get("encrypted_content") or item.get("content") or item.get("summary"))


def _is_of_dialect(element: Any) -> bool:
    """Return True if it is an item or a tool that only servers of another dialect know."""
    return isinstance(element, UnknownItem | UnknownTool) and element.type.startswith(DIALECT_SLUGS)


def _is_extension(item: Any) -> bool:
    return isinstance(item, UnknownItem) and ":" in item.type


def _text_part(role: Any, text: str) -> _Plain:
    """Return a message's text as its only part."""
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}


# The outcome of each field of a request at a server with the Responses API.

_PUBLISHED: Final = (
    "instructions",
    "metadata",
    "text.format",
    "text.verbosity",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "parallel_tool_calls",
    "max_tool_calls",
    "reasoning.effort",
    "reasoning.summary",
    "safety_identifier",
    "prompt_cache_key",
    "truncation",
    "service_tier",
    "top_logprobs",
)
_OPENAI: Final = (
    "user",
    "client_metadata",
    "prompt",
    "context_management",
    "moderation",
    "prompt_cache_retention",
    "prompt_cache_options",
    "access_programs",
    "reasoning.context",
    "reasoning.mode",
)
_OF_OTHERS: Final = ("seed", "logit_bias", "prediction", "top_k")

_EVERYWHERE: Final[Outcomes] = {
    **{name: sent(name) for name in _PUBLISHED},
    **{name: loss("Responses has no such field") for name in _OF_OTHERS},
    **{name: built(name) for name in ("model", "input", "include", "tools", "tool_choice", "stream")},
    "max_output_tokens": built("max_output_tokens"),
    "stop": honoured("the answer ends before the first of them"),
    "stream_options.include_obfuscation": built("stream_options"),
    METADATA_OF_CHAT: built("metadata"),
}
FIELDS: Final[Outcomes] = {
    **OURS,
    **_EVERYWHERE,
    **{name: sent(name) for name in _OPENAI},
    OTHER: built("its own name"),
}
PUBLISHED_FIELDS: Final[Outcomes] = {
    **OURS,
    **_EVERYWHERE,
    **{name: loss("is not known to the upstream") for name in _OPENAI},
    "context_management": OURS["context_management"],
    "prompt": OURS["prompt"],
}
# where the upstream keeps responses
_STATEFUL: Final[Outcomes] = {
    name: sent(name) for name in ("previous_response_id", "background", "store", "background_options")
}


def outcomes(options: ResponsesOptions) -> Outcomes:
    """Return the table of a server with these options."""
    table = FIELDS if options.supersets else PUBLISHED_FIELDS
    if not options.stateful:
        return table
    stateful_table = {**table, **_STATEFUL}
    return {**stateful_table, "conversation": sent("conversation")} if options.supersets else stateful_table


SMALLEST_LIMIT = 16  # tokens, schema CreateResponseBody
_ENCRYPTED = "reasoning.encrypted_content"


def to_responses(
    request: CreateResponse,
    *,
    model: str | None = None,
    history: Sequence[Any] = (),
    tool_identities: ToolIdentityMap | None = None,
    options: ResponsesOptions = DEFAULT_OPTIONS,
    reasons: bool = True,
    efforts: frozenset[str] | None = None,
) -> tuple[dict[str, Any], Diagnostics]:
    """Translate a request. Returns (body, losses and repairs).

    `history` has the items of earlier turns, input and output, for `previous_response_id`; if it is given, it
    is sent instead of the link. `model` replaces the request's; `tool_identities` is filled with the tools,
    for the machine that reads the answer. `reasons` is True if the model may reason: OpenAI refuses a request
    for encrypted reasoning of any other model. `efforts` are the model's levels of effort, as in
    `accepted_efforts`. Raises InvalidRequestError with `param`: unpaired calls and outputs
    (`unpaired_tool_call`), references to items, tools of two kinds with one name, a choice that can't be
    kept, nothing to answer.
    """
    diagnostics = Diagnostics()
    identities = ToolIdentityMap() if tool_identities is None else tool_identities
    name = model or request.model
    if not name:
        raise _invalid("model", "no model is given")
    entries = entries_of(request, history)
    if options.supersets:
        entries = [entry for entry in entries if not is_answered_trigger(entry, entries[-1])]
        entries = list(settled_calls(entries, diagnostics))
    else:
        request = configured(request, history)
        entries = normalize_entries(entries, diagnostics)
    joined = options.stateful and request.previous_response_id is not None and not history
    if not (entries or request.instructions or joined or request.prompt or request.conversation):
        raise _invalid("input", "there is nothing to answer: give input or instructions")
    body: dict[str, Any] = {"model": name}
    tools, choice = _tools(request, entries, identities, options, diagnostics)
    if options.unanswered_calls == "answer" and not joined:
        entries = with_answers(entries, identities, diagnostics)
    items = InputItems(identities, options, diagnostics)
    sent = items.build(entries, joined)
    if sent:
        body["input"] = sent
    body |= {"tools": tools} if tools else {}
    body |= {"tool_choice": choice} if choice is not None else {}
    body |= _fields(request, options, reasons, diagnostics)
    if efforts is not None:
        _fit_effort(body.get("reasoning"), efforts, diagnostics)
    if not options.stateful:
        body["store"] = False
    elif not joined:
        body.pop("previous_response_id", None)
    body["stream"] = bool(request.stream)
    if request.stream and request.stream_options is not None:
        body["stream_options"] = published(request.stream_options)
    if options.supersets:
        _pass_on(body, items.places, request, diagnostics)
        _close_gaps(body)
    _omit(body, options, diagnostics)
    return body, diagnostics


def _omit(body: dict[str, Any], options: ResponsesOptions, diagnostics: Diagnostics) -> None:
    for field in sorted(options.omit):
        if _left_out(body, field):
            diagnostics.loss(field, "the upstream does not accept it")


def _left_out(body: dict[str, Any], field: str) -> bool:
    """Remove a field from the body and return whether it had it; `reasoning.summary` is a field of
    `reasoning`."""
    name, _, within = field.partition(".")
    if not within:
        return body.pop(name, None) is not None
    holder = body.get(name)
    if not isinstance(holder, dict) or holder.pop(within, None) is None:
        return False
    if not holder:
        del body[name]
    return True


def _invalid(param: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(InvalidRequestError.INVALID_VALUE, message, param=param)


def _fields(
    request: CreateResponse, options: ResponsesOptions, reasons: bool, diagnostics: Diagnostics
) -> dict[str, Any]:
    """Return all fields that mean the same at the upstream."""
    source = without_breakpoints(request) if options.supersets else request
    body: dict[str, Any] = published(apply(source, outcomes(options), diagnostics))
    if options.schemas == "response_format" and (format := _response_format(body.get("text"))) is not None:
        body["response_format"] = format
    limit = request.max_output_tokens
    if limit is not None:
        body["max_output_tokens"] = max(limit, SMALLEST_LIMIT)
    if limit is not None and limit < SMALLEST_LIMIT:
        diagnostics.loss("max_output_tokens", f"raised to {SMALLEST_LIMIT}")
    included = list(request.include or ())
    if not options.supersets and options.search_form is None:
        included = [each for each in included if each != SEARCH_SOURCES]  # nothing to include
    if not options.supersets:
        included = [each for each in included if each != RUN_OUTPUTS]
    if options.encrypted_reasoning and reasons and not options.stateful:
        included.append(_ENCRYPTED)
    return body | ({"include": list(dict.fromkeys(included))} if included else {})


def _response_format(text: Any) -> _Plain | None:
    """Return the format of the answer in Chat Completions' form; None for plain text."""
    format = text.get("format") if isinstance(text, dict) else None
    if not isinstance(format, dict) or format.get("type") not in ("json_schema", "json_object"):
        return None
    fields = {name: value for name, value in format.items() if name != "type" and value is not None}
    return {"type": format["type"], **({"json_schema": fields} if fields else {})}


def _fit_effort(reasoning: Any, efforts: frozenset[str], diagnostics: Diagnostics) -> None:
    """Replace a level that the model does not have. A level that is not known here may be known there."""
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    if effort not in EFFORTS:
        return
    level = fitted_effort(effort, efforts, diagnostics)
    del reasoning["effort"]
    reasoning |= {} if level is None else {"effort": level}


def _close_gaps(body: _Plain) -> None:
    """Remove the places of tools that are not sent, with which the fields of other tools were counted."""
    tools = [tool for tool in body.get("tools", ()) if tool is not None]
    if tools:
        body["tools"] = tools
    else:
        body.pop("tools", None)


def _pass_on(
    body: dict[str, Any], items: dict[str, _Plain], request: CreateResponse, diagnostics: Diagnostics
) -> None:
    """Pass on the fields that are not known here, since they may be known there."""
    stored = kept_there(request)
    for place, fields, carried in request.beyond or ():
        if carried:
            continue  # items have these fields themselves
        passed = ForeignFields(place, {name: fields[name] for name in fields if place or name not in stored})
        if place[:1] == ("input",):  # items are made anew, in one list with those of earlier turns
            within = items.get(name_of(place[:2]))
            inner = passed._replace(place=place[2:])
            lost = names_of([passed]) if within is None else restore_fields(within, [inner])
        else:
            lost = restore_fields(body, [passed])
        for name in lost:
            diagnostics.loss(name, "has no place in what is sent")


def _tools(
    request: CreateResponse,
    entries: Sequence[Entry],
    identities: ToolIdentityMap,
    options: ResponsesOptions,
    diagnostics: Diagnostics,
) -> tuple[list[Any], Any]:
    """Return (tools, choice) as they are sent."""
    if options.supersets:
        for tool in request.tools or ():
            if isinstance(tool, FunctionToolParam):
                identities.know(tool.name)
        choice = None if request.tool_choice is None else published(request.tool_choice)
        sent = [
            _superset(tool, f"tools[{index}]", options, diagnostics)
            for index, tool in enumerate(request.tools or ())
        ]
        kinds = [str(tool.get("type")) for tool in sent if tool is not None]
        alone = len(kinds) == 1 and is_search(kinds[0])
        if alone and isinstance(choice, dict) and is_search(str(choice.get("type"))):
            choice = "required"  # means the same, and has been known for longer
        return sent, choice
    functions, others = present_tools(active_tools(request, entries), identities, diagnostics)
    searches: list[Any] = []
    form = options.search_form
    for tool, where in others:
        search_tools = [] if form is None else _searching(tool, where, form, diagnostics)
        if not search_tools:
            diagnostics.loss("tools", f"a tool of type {tool.type[:64]!r} is not known to the upstream")
        searches += search_tools
    tools: list[Any] = [
        {
            "type": "function",
            "name": view.name,
            "description": view.description or None,
            "parameters": view.parameters,
            "strict": view.strict,
        }
        for view in functions
    ]
    tools += searches
    return tools, _choice(request.tool_choice, functions, searches, identities, diagnostics)


def _superset(tool: Any, where: str, options: ResponsesOptions, diagnostics: Diagnostics) -> Any:
    """Return a tool for a server that knows OpenAI's tools, unchanged except for a search, which gets that
    server's form. Such a server refuses a single function with alternatives at the root of its schema. None
    for a tool that is not sent."""
    if _is_of_dialect(tool):
        diagnostics.loss(where, f"a tool of type {tool.type[:64]!r} is not known to the upstream")
        return None
    if isinstance(tool, FunctionToolParam) and tool.parameters:
        parameters = object_root(tool.parameters)
        if parameters is not tool.parameters:
            diagnostics.loss(f"{where}.parameters", ONE_ROOT)
            tool = replace(tool, parameters=parameters)
    if not isinstance(tool, UnknownTool) or not is_search(tool.type):
        return published(tool)
    form = options.search_form
    if form is None:
        diagnostics.loss(where, "the upstream does not search the web")
        return None
    if form is _SEARCHES["openai"]:  # it may have settings that are not known here
        if _MAX_USES in tool.raw:
            diagnostics.loss(f"{where}.{_MAX_USES}", "can't be expressed")
        return {name: value for name, value in published(tool).items() if name != _MAX_USES}
    return next(iter(_searching(tool, where, form, diagnostics)), None)


def _searching(tool: Any, where: str, form: SearchForm, diagnostics: Diagnostics) -> list[Any]:
    """Return the search in the form of a server; [] for another tool."""
    wish = search_of(tool, where)
    return [] if wish is None else [form.made(wish, where, diagnostics)]


def _choice(
    tool_choice: Any,
    functions: list[FunctionView],
    searches: list[Any],
    identities: ToolIdentityMap,
    diagnostics: Diagnostics,
) -> Any:
    """Return the choice among functions and searches. Other hosted tools can't be chosen if the server does
    not know them."""
    choice = encode_choice(tool_choice)
    if choice is None:
        return tool_choice if functions or searches or tool_choice != "required" else _refuse("required")
    if searches and is_search(str(choice.get("type"))):
        return {"type": searches[0]["type"]}
    if choice.get("type") != "allowed_tools":
        view = chosen_function(choice, functions, identities)
        return _refuse(named(choice)) if view is None else _function(view)
    views = [chosen_function(each, functions, identities) for each in choice["tools"]]
    left = [_function(view) for view in views if view is not None]
    if len(left) < len(views):
        diagnostics.loss("tool_choice.tools", "tools that are not known there")
    return {**choice, "tools": left} if left else _refuse("allowed_tools")


def _function(view: FunctionView) -> dict[str, str]:
    return {"type": "function", "name": view.name}


def _refuse(what: str) -> Any:
    raise _invalid("tool_choice", f"{what!r} is not among the tools that the upstream can call")
