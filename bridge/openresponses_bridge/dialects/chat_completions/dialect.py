"""The entry of the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from openresponses_bridge.dialects.base import (
    SEARCH_TOOLS,
    AnswerContext,
    AnswerFormat,
    AnswerWay,
    CaptureFormat,
    ClientSide,
    Dialect,
    Endpoint,
    Outgoing,
    RequestContext,
    Traits,
    UpstreamSide,
)
from openresponses_bridge.dialects.chat_completions.client.chunks import ChatCompletion, encode
from openresponses_bridge.dialects.chat_completions.client.completion import completion
from openresponses_bridge.dialects.chat_completions.client.outbound import Outbound
from openresponses_bridge.dialects.chat_completions.client.surface import SURFACE
from openresponses_bridge.dialects.chat_completions.options import ChatOptions
from openresponses_bridge.dialects.chat_completions.upstream.inbound import Inbound
from openresponses_bridge.dialects.chat_completions.upstream.request import FIELDS, to_chat
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol import codec
from openresponses_bridge.protocol.request import CreateResponse, JsonSchemaFormatParam
from openresponses_bridge.protocol.response import JsonObjectFormat, Response
from openresponses_bridge.seal import Sealer


def _to_upstream(request: CreateResponse, context: RequestContext) -> Outgoing:
    body, diagnostics = to_chat(
        replace(request, stream=context.stream),
        history=context.history,
        tool_identities=context.identities,
        model=context.model,
        options=context.options,
        choices=context.choices,
        sealer=context.sealer,
        efforts=context.efforts,
    )
    return Outgoing(codec.encode(body), diagnostics)


def _inbound(machine: ResponseStream, context: AnswerContext, choice: int | None = None) -> Inbound:
    return Inbound(
        machine,
        options=context.options,
        choice=choice,
        sealer=context.sealer,
        identities=context.identities,
    )


def _whole(response: Response, sealer: Sealer) -> bytes | None:
    answer = completion(response, sealer=sealer)
    return codec.encode(answer) if isinstance(answer, ChatCompletion) else None


def _is_chat(value: Mapping[str, Any]) -> bool:
    return "choices" in value or "error" in value or str(value.get("object")).startswith("chat.completion")


def _first_choice(value: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _begins(value: Mapping[str, Any], before: Mapping[str, Any] | None) -> bool:
    choice = _first_choice(value)
    if not choice or before is None or "message" in choice:
        return bool(choice)
    # there is no `[DONE]` between them; some servers give each chunk an id of its own, so the id alone does
    # not decide
    delta = choice.get("delta")
    return value.get("id") != before.get("id") and isinstance(delta, dict) and "role" in delta


def _traits(options: ChatOptions) -> Traits:
    return Traits(
        takes_choices=options.takes_n,
        takes_stops="stop" not in options.omit,
        names_stops=False,
        takes_reasoning=options.reasoning_field is not None,
        hosted_tools=frozenset() if options.web_search == "none" else SEARCH_TOOLS,
    )


def _answers(format: AnswerFormat, _model: str, options: ChatOptions) -> AnswerWay:
    if isinstance(format, JsonSchemaFormatParam) and options.json_schema == "function":
        return AnswerWay.FUNCTION
    if "response_format" in options.omit:
        return AnswerWay.INSTRUCTED
    is_native = isinstance(format, JsonObjectFormat) or options.json_schema == "json_schema"
    return AnswerWay.NATIVE if is_native else AnswerWay.INSTRUCTED


DIALECT: Final = Dialect(
    name="chat",
    title="Chat Completions",
    upstream=UpstreamSide(
        options=ChatOptions,
        request=_to_upstream,
        inbound=_inbound,
        choice=_inbound,
        whole=lambda value: "message" in _first_choice(value) and not value.get("error"),
        outcomes=lambda _options: FIELDS,
        endpoint=Endpoint(path="/chat/completions"),
        traits=_traits,
        answers=_answers,
    ),
    client=ClientSide(
        outbound=lambda: Outbound(include_usage=True),
        encode=encode,
        whole=_whole,
        without_text_after_tools=lambda: Outbound(include_usage=True, text_after_tool_call="drop"),
    ),
    surface=SURFACE,
    capture=CaptureFormat(
        recognises=_is_chat,
        inbound=Inbound,
        head=lambda value: (value.get("model"), value.get("created")),
        concludes=lambda value: _first_choice(value).get("finish_reason") is not None,
        begins=_begins,
    ),
)
