"""Converts a Chat Completions request to one of ours, and reports what that can't express."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import BREAKPOINT, CACHE_OF_PARTS, CHAT, Fields, body_of, invalid
from openresponses_bridge.dialects.chat_completions.client.messages import MessageReader
from openresponses_bridge.protocol import request as rq
from openresponses_bridge.protocol import tools as tl
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.response import JsonObjectFormat, TextFormat
from openresponses_bridge.protocol.unknown import UnknownFormat, UnknownTool, UnknownToolChoice
from openresponses_bridge.seal import Sealer

_MODES = ("none", "auto", "required")
_ALLOWED_MODES = ("auto", "required")
_MOST_ALLOWED = 128


def tools_of(body: Fields) -> list[Any] | None:
    """Return `tools`, the older `functions`, and web search; None if nothing is offered."""
    tools = [_tool(tool) for tool in body.each("tools")]
    tools += [_function(function) for function in body.each("functions")]
    search = body.maybe_inner("web_search_options")
    if search is not None:
        tools.append(_search(search))
    return tools or None


_PLACE: Final = ("city", "country", "region", "timezone")


def _search(search: Fields) -> UnknownTool:
    """Return the search in the form of Responses, where the user's place is not nested."""
    place = search.maybe_inner("user_location")
    within = None if place is None else place.maybe_inner("approximate")
    search.get("search_context_size", str)
    options = search.whole()
    if place is not None and within is not None:
        place.skip("type")
        for name in _PLACE:
            within.get(name, str)
        options["user_location"] = {"type": "approximate", **within.whole()}
    return UnknownTool({**options, "type": "web_search"})


def _tool(tool: Fields) -> Any:
    kind = tool.need("type", str)
    if kind == "function":
        return _function(_declared(tool, kind))
    if kind == "custom":
        return _custom(_declared(tool, kind))
    return UnknownTool(tool.whole())


def _declared(tool: Fields, kind: str) -> Fields:
    """Return the object with the name of a tool or of a choice: the nested one, or the tool itself in the
    flat form of Responses."""
    return tool if "name" in tool and kind not in tool else tool.inner(kind)


def _function(function: Fields) -> tl.FunctionToolParam:
    # if absent, false in this API and true in the Responses API
    return tl.FunctionToolParam(
        _name(function),
        function.get("description", str) or UNSET,
        function.get("parameters", dict) or UNSET,
        bool(function.get("strict", bool)),
    )


def _custom(custom: Fields) -> tl.CustomTool:
    shape: dict[str, Any] = {}
    form = custom.maybe_inner("format")
    if form is not None:
        shape = {"type": form.need("type", str)}
        if shape["type"] == "grammar":
            shape |= (form.inner("grammar") if "definition" not in form else form).whole()
    return tl.CustomTool(_name(custom), custom.get("description", str) or UNSET, shape or UNSET)


def _name(tool: Fields) -> str:
    name = tool.need("name", str)
    if not name:
        raise invalid(tool.at("name"), "is empty")
    return name


def choice_of(body: Fields) -> Any:
    """Return the ToolChoice of `tool_choice`, or of the older `function_call`; None if there is neither."""
    if "tool_choice" not in body:
        return _legacy_choice(body)
    tool_choice = body.either("tool_choice", str, dict)
    if isinstance(tool_choice, str):
        return _mode(tool_choice, "tool_choice")
    choice = body.inner("tool_choice")
    if choice.need("type", str) == "allowed_tools":
        return _allowed(choice.inner("allowed_tools"))
    return _one(choice)


def _legacy_choice(body: Fields) -> Any:
    choice = body.either("function_call", str, dict)
    if isinstance(choice, dict):
        return tl.FunctionToolChoice(_name(body.inner("function_call")))
    return None if choice is None else _mode(choice, "function_call")


def _mode(mode: str, param: str) -> Any:
    if mode not in _MODES:
        raise invalid(param, f"expected one of {', '.join(_MODES)}, or an object")
    return mode


def _one(choice: Fields) -> Any:
    kind = choice.need("type", str)
    if kind == "function":
        return tl.FunctionToolChoice(_name(_declared(choice, kind)))
    if kind == "custom":
        return UnknownToolChoice({"type": "custom", "name": _name(_declared(choice, kind))})
    return UnknownToolChoice(choice.whole())


def _allowed(allowed: Fields) -> tl.AllowedToolChoice:
    mode: Any = allowed.one_of("mode", _ALLOWED_MODES) or "auto"
    tools = [_one(tool) for tool in allowed.each("tools")]
    if not 1 <= len(tools) <= _MOST_ALLOWED:
        raise invalid(allowed.at("tools"), f"expected 1 to {_MOST_ALLOWED} tools")
    return tl.AllowedToolChoice(tools, mode)


def text_of(body: Fields) -> rq.TextParam | None:
    """Return the text options of `response_format` and `verbosity`."""
    response_format = body.maybe_inner("response_format")
    verbosity: Any = body.one_of("verbosity", ("low", "medium", "high"))
    if response_format is None and verbosity is None:
        return None
    return rq.TextParam(UNSET if response_format is None else _format(response_format), verbosity or UNSET)


def _format(fields: Fields) -> Any:
    kind = fields.need("type", str)
    if kind == "json_schema":
        schema = fields.inner("json_schema")
        strict = schema.get("strict", bool)
        return rq.JsonSchemaFormatParam(
            _name(schema),
            schema.get("description", str) or UNSET,
            schema.get("schema", dict) or UNSET,
            UNSET if strict is None else strict,
        )
    plain = {"text": TextFormat, "json_object": JsonObjectFormat}.get(kind)
    return UnknownFormat(fields.whole()) if plain is None else plain()


_MOST_CHOICES = 128
_LOGPROBS = "message.output_text.logprobs"
_SAME = {
    "temperature": float,
    "top_p": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "parallel_tool_calls": bool,
    "stream": bool,
    "service_tier": str,
    "safety_identifier": str,
    "prompt_cache_key": str,
    "prompt_cache_retention": str,
    "seed": int,
    "prediction": dict,
    "user": str,
}


class AnswerOptions(Struct, frozen=True):
    """The client's options for the form of the answer: `n` choices, the usage chunk, calls in the form of the
    older `function_call`. `input_param` is the field with the conversation: `messages`, or `input` in a
    request with the body of Responses."""

    n: int = 1
    include_usage: bool = False
    legacy_functions: bool = False
    input_param: str = "messages"


def answer_options(body: bytes | str | Mapping[str, Any]) -> AnswerOptions:
    """Return the options in a request, which `from_chat` does not read. Raises InvalidRequestError with
    `param`."""
    fields = body_of(body)
    n = fields.get("n", int)
    if n is not None and not 1 <= n <= _MOST_CHOICES:
        raise invalid("n", f"must be from 1 to {_MOST_CHOICES}")
    options = fields.maybe_inner("stream_options")
    usage = options is not None and bool(options.get("include_usage", bool))
    return AnswerOptions(
        n or 1, usage, _is_legacy(fields), "input" if _has_responses_body(fields) else "messages"
    )


def _is_legacy(fields: Fields) -> bool:
    return "functions" in fields and "tools" not in fields


def from_chat(
    body: bytes | str | Mapping[str, Any], sealer: Sealer | None = None
) -> tuple[rq.CreateResponse, Diagnostics]:
    """Translate a request. Returns (request, losses). `answer_options` reads `n` and the form of the answer.
    `sealer` seals what only an upstream of this dialect can read. A body with `input` and no `messages`, as
    Cursor sends it, is read as one of Responses.

    Raises InvalidRequestError with `param`, as `messages[0].content[1].image_url`: malformed fields,
    and answers without a call (`unpaired_tool_call`).
    """
    diagnostics = Diagnostics()
    fields = body_of(body)
    if _has_responses_body(fields):
        return _from_responses(fields, diagnostics), diagnostics
    reader = MessageReader(diagnostics, sealer or Sealer())
    fields.need("messages", list)
    for message in fields.each("messages"):
        reader.message(message)
    if not reader.items:
        raise invalid("messages", "at least one message is required")
    same: dict[str, Any] = {name: fields.get(name, kind) for name, kind in _SAME.items()}
    logprobs, top = _logprobs(fields)
    if _is_legacy(fields):
        same["parallel_tool_calls"] = False  # a message can have only one `function_call`
    request = rq.CreateResponse(
        model=fields.need("model", str),
        input=reader.items,
        tools=tools_of(fields),
        tool_choice=choice_of(fields),
        text=text_of(fields),
        reasoning=_reasoning(fields),
        max_output_tokens=_limit(fields),
        include=[_LOGPROBS] if logprobs else None,
        top_logprobs=top,
        stream_options=_stream_options(fields),
        stop=_stop(fields),
        logit_bias=_biases(fields),
        store=bool(fields.get("store", bool)),
        metadata=_metadata(fields),
        beyond=_for_its_upstream(fields),
        **same,
    )
    fields.skip("n", "function_call")
    if fields.equals("modalities", ["text"]):
        fields.skip("modalities")
    unread = {name: fields.raw(name) for name in fields.unread_here}
    for where in fields.unread:
        within, _, name = where.partition(".")
        if within == "reasoning" and name:
            unread.setdefault(within, {})[name] = fields.inner(within).raw(name)
        elif where not in unread:
            diagnostics.loss(where, "can't be expressed")
    carried = reader.carried
    carried.body, carried.items = unread, len(reader.items)
    names = [*unread, *(name for name in carried.placed if name not in _ELSEWHERE)]
    if carried.cached or any(BREAKPOINT in part for part in carried.parts.values()):
        names.append(CACHE_OF_PARTS)
    if names or reader.needed or carried.parts:
        request = replace(request, native=rq.Native(CHAT, names, carried, needed=reader.needed))
    return request, diagnostics


_ELSEWHERE: Final = (f"content.{BREAKPOINT}", "content.image_url")
"""Fields of parts that other APIs have too; they are reported with the parts."""
_ONLY_CHAT: Final = (
    "max_completion_tokens",
    "max_tokens",
    "reasoning_effort",
    "response_format",
    "verbosity",
    "functions",
    "function_call",
    "logprobs",
    "n",
)


def _has_responses_body(fields: Fields) -> bool:
    if "input" not in fields:
        return False
    if "messages" in fields:
        raise invalid("input", "is given beside messages: only one of them can be read")
    return True


def _from_responses(fields: Fields, diagnostics: Diagnostics) -> rq.CreateResponse:
    """Return a body of Responses as a request. Fields that only Chat Completions has count if their other
    form is absent."""
    fields.need("model", str)
    body = fields.whole()
    chat = Fields({name: body.pop(name) for name in _ONLY_CHAT if name in body})
    if isinstance(options := body.get("stream_options"), dict):
        body["stream_options"] = {name: each for name, each in options.items() if name != "include_usage"}
    request = decode_request(encode(body))
    if request.background:
        raise invalid("background", "is not possible in Chat Completions")
    defaults = {"max_output_tokens": _limit(chat), "reasoning": _reasoning(chat), "text": text_of(chat)}
    for name, value in defaults.items():
        if value is None:
            continue
        if getattr(request, name) is None:
            request = replace(request, **{name: value})
        else:
            diagnostics.loss(name, "is given in both forms, that of Responses counts")
    chat.skip("n")
    for where in chat.unread:
        diagnostics.loss(where, "can't be expressed")
    return replace(request, store=bool(request.store))


def _logprobs(fields: Fields) -> tuple[bool, int | None]:
    logprobs = bool(fields.get("logprobs", bool))
    top = fields.get("top_logprobs", int)
    if top is not None and not 0 <= top <= 20:
        raise invalid("top_logprobs", "must be from 0 to 20")
    if top and not logprobs:
        raise invalid("top_logprobs", "needs logprobs")
    return logprobs, top


def _limit(fields: Fields) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        limit = fields.get(name, int)
        if limit is not None:
            fields.skip("max_tokens")
            if limit < 1:
                raise invalid(name, "must be 1 or more")
            return limit
    return None


def _reasoning(fields: Fields) -> rq.ReasoningOptions | None:
    effort = fields.get("reasoning_effort", str)
    reasoning = fields.maybe_inner("reasoning")  # of OpenRouter
    if reasoning is not None:
        effort = effort or reasoning.get("effort", str)
    return None if effort is None else rq.ReasoningOptions(effort)


def _metadata(fields: Fields) -> dict[str, str] | None:
    metadata = fields.get("metadata", dict)
    for name, value in (metadata or {}).items():
        if not isinstance(value, str):
            raise invalid(f"metadata.{name}", "expected a string")
    return metadata


def _stop(fields: Fields) -> str | list[str] | None:
    stop: str | list[Any] | None = fields.either("stop", str, list)
    if isinstance(stop, list) and not all(isinstance(each, str) for each in stop):
        raise invalid("stop", "expected strings")
    return stop or None


def _biases(fields: Fields) -> dict[str, float] | None:
    biases = fields.get("logit_bias", dict)
    for token, bias in (biases or {}).items():
        if type(bias) not in (int, float):
            raise invalid(f"logit_bias.{token[:32]}", "expected a number")
    return biases or None


def _for_its_upstream(fields: Fields) -> list[rq.ForeignFields] | UnsetType:
    """Return the unchanged fields by which the client asks its upstream to keep the answer; this server keeps
    nothing for them."""
    storage = {name: fields.raw(name) for name in ("store", "metadata") if name in fields}
    return [rq.ForeignFields((), storage)] if storage else UNSET


def _stream_options(fields: Fields) -> rq.StreamOptions | None:
    options = fields.maybe_inner("stream_options")
    if options is None:
        return None
    options.skip("include_usage")
    padding = options.get("include_obfuscation", bool)
    return None if padding is None else rq.StreamOptions(padding)
