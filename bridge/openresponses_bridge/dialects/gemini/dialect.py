"""The entry of the dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from openresponses_bridge.dialects.base import (
    SEARCH_TOOLS,
    AnswerContext,
    CaptureFormat,
    ClientSide,
    Dialect,
    Endpoint,
    Outgoing,
    RequestContext,
    Traits,
    UpstreamSide,
)
from openresponses_bridge.dialects.gemini.client.answer import answer
from openresponses_bridge.dialects.gemini.client.outbound import Outbound, encode_sse
from openresponses_bridge.dialects.gemini.client.surface import SURFACE
from openresponses_bridge.dialects.gemini.options import GeminiOptions
from openresponses_bridge.dialects.gemini.types import encode_chunk
from openresponses_bridge.dialects.gemini.upstream.decoding import unwrapped
from openresponses_bridge.dialects.gemini.upstream.inbound import Inbound
from openresponses_bridge.dialects.gemini.upstream.request import FIELDS, to_gemini
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer

_NAMES: Final = ("candidates", "promptFeedback", "usageMetadata")


def _to_upstream(request: CreateResponse, context: RequestContext) -> Outgoing:
    body, diagnostics = to_gemini(
        request,
        history=context.history,
        tool_identities=context.identities,
        model=context.model,
        sealer=context.sealer,
        options=context.options,
        choices=context.choices,
        efforts=context.efforts,
    )
    return Outgoing(encode(body), diagnostics)


def _inbound(machine: ResponseStream, context: AnswerContext, choice: int | None = None) -> Inbound:
    return Inbound(machine, context.sealer, choice=choice)


def _whole(response: Response, sealer: Sealer) -> bytes | None:
    chunk = answer([response], sealer)
    return None if chunk.error is not None else encode_chunk(chunk)


def _chunks(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in unwrapped(value) if isinstance(each, dict)] or [{}]


def _is_gemini(value: Mapping[str, Any]) -> bool:
    return any(name in _chunks(value)[0] for name in _NAMES)


def _finish_reason(chunk: Mapping[str, Any]) -> Any:
    candidates = chunk.get("candidates")
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    return first.get("finishReason") if isinstance(first, dict) else None


def _concludes(value: Mapping[str, Any]) -> bool:
    last = _chunks(value)[-1]
    feedback = last.get("promptFeedback")
    blocked = isinstance(feedback, dict) and bool(feedback.get("blockReason"))
    return blocked or _finish_reason(last) is not None


def _begins(value: Mapping[str, Any], before: Mapping[str, Any] | None) -> bool:
    """Return True if another answer begins: by its id where servers give one, else after a finish reason."""
    if before is None:
        return True
    last = _chunks(before)[-1]
    ids = (_chunks(value)[0].get("responseId"), last.get("responseId"))
    return ids[0] != ids[1] if any(ids) else _finish_reason(last) is not None


DIALECT: Final = Dialect(
    name="gemini",
    title="Gemini",
    upstream=UpstreamSide(
        options=GeminiOptions,
        request=_to_upstream,
        inbound=_inbound,
        choice=_inbound,
        whole=_is_gemini,
        outcomes=lambda _options: FIELDS,
        endpoint=Endpoint(
            path="/models/{model}:streamGenerateContent?alt=sse",
            whole_path="/models/{model}:generateContent",
            version="/v1beta",
            key_header="x-goog-api-key",
            key_prefix="",
        ),
        traits=lambda options: Traits(
            takes_choices=options.candidates,
            names_stops=False,
            hosted_tools=SEARCH_TOOLS,
        ),
    ),
    client=ClientSide(outbound=Outbound, encode=encode_sse, whole=_whole),
    surface=SURFACE,
    capture=CaptureFormat(
        recognises=_is_gemini,
        inbound=Inbound,
        head=lambda value: (_chunks(value)[0].get("modelVersion"), None),
        concludes=_concludes,
        begins=_begins,
    ),
)
