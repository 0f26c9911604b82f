"""`POST /v1beta/models/{model}:generateContent`, `…:streamGenerateContent` and `…:countTokens`, and the list
of models: any model for clients of the Gemini API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from openresponses_bridge.dialects import gemini
from openresponses_bridge.protocol.codec import encode, request_object
from openresponses_bridge.protocol.response import Response as BridgeResponse
from openresponses_bridge.seal import Sealer
from openresponses_server.api.choices import (
    ChoicesJsonResponder,
    ChoicesStreamResponder,
    ChoicesSurface,
)
from openresponses_server.api.models import google_model, google_models
from openresponses_server.api.responders import (
    GEMINI,
    SSE_TYPE,
    DialectForm,
    RunJsonResponder,
    RunStreamResponder,
)
from openresponses_server.http.headers import fields_of
from openresponses_server.limits.requests import check_choices, check_request
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.outgoing import loss_header, reported_losses
from openresponses_server.requests.prepare import new_run, prepare
from openresponses_server.requests.prepared import PreparedRequest
from openresponses_server.requests.service import service_of, target_of
from openresponses_server.runs.client import Batch
from openresponses_server.runs.run import Run
from openresponses_server.tasks import on_thread

_INPUT: Final = "contents"
_SCHEMA: Final = "generationConfig.responseSchema"
_COUNTED: Final = "generateContentRequest"
_ARRAY_TYPE: Final = b"application/json; charset=utf-8"
_ALT: Final = ("alt", "$alt")


class ArrayEncoder:
    """Encodes a stream as one JSON array, whose elements come one after the other."""

    def __init__(self) -> None:
        self._before = b"["

    def __call__(self, chunks: Iterable[Any], last: bool) -> bytes:
        """The bytes of these chunks; of the end too, if they are the `last`."""
        pieces = []
        for chunk in chunks:
            pieces += [self._before, encode(chunk)]
            self._before = b",\n"
        if last:
            pieces.append(b"[]" if self._before == b"[" else b"]\n")
        return b"".join(pieces)


def _sse(chunks: Iterable[Any], _last: bool) -> bytes:
    return GEMINI.side.encode(chunks)


class GeminiForm(DialectForm):
    """Encodes a response of one candidate, with its thoughts if the client wants them: as server-sent events
    with `sse`, else as one array."""

    def __init__(self, options: gemini.AnswerOptions, sealer: Sealer, *, sse: bool) -> None:
        super().__init__(GEMINI, gemini.Outbound(sealer, thoughts=options.thoughts), sealer)
        self._thoughts = options.thoughts
        self._streamed = _sse if sse else ArrayEncoder()
        self.stream_type = SSE_TYPE if sse else _ARRAY_TYPE

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        chunks = [chunk for event in batch.events for chunk in self._outbound.feed(event)]
        return self._streamed([*chunks, *self._outbound.close()] if ended else chunks, ended)

    def whole(self, response: BridgeResponse) -> bytes | None:
        answer = gemini.answer([response], self._sealer, thoughts=self._thoughts)
        return None if answer.error is not None else encode(answer)


def _candidates(options: gemini.AnswerOptions, sealer: Sealer, *, sse: bool) -> ChoicesSurface:
    """How several candidates are encoded."""

    def whole(runs: Sequence[Run]) -> bytes | None:
        responses = [run.translation.in_one_form for run in runs]
        answer = gemini.answer(responses, sealer, thoughts=options.thoughts)
        return None if answer.error is not None else encode(answer)

    def stream(runs: Sequence[Run]) -> gemini.Candidates:
        answer_id = runs[0].translation.response_id
        return gemini.Candidates(len(runs), sealer, id=answer_id, thoughts=options.thoughts)

    return ChoicesSurface(
        stream,
        _sse if sse else ArrayEncoder(),
        whole,
        SSE_TYPE if sse else _ARRAY_TYPE,
        GEMINI.keep_alive,
    )


async def generate(request: Request) -> ASGIApp:
    """One answer."""
    return await _answer(request, stream=False)


async def stream_generate(request: Request) -> ASGIApp:
    """Chunks: as server-sent events with `alt=sse`, else as one array."""
    return await _answer(request, stream=True)


async def _answer(request: Request, *, stream: bool) -> ASGIApp:
    """Nothing is stored: this API can't refer to stored responses."""
    service = service_of(request)
    sealer = service.sealer.bound(request.state.owner)
    (asked, losses), options = await read_json(
        request, service, lambda body: (GEMINI.request(body, sealer), gemini.answer_options(body))
    )
    most = service.gate.runs.most_of(request.state.owner)
    check_choices(options.n, request.state.owner, service.settings.limits, most)
    prepared = PreparedRequest(
        replace(asked, model=request.path_params["model"], stream=stream),
        fields_of(request.scope),
        request.state.request_id,
        owner=request.state.owner,
        losses=losses,
        input_param=_INPUT,
        schema_param=_SCHEMA,
        choices=options.n,
    )
    await prepare(prepared, service)
    headers, keep_alive = prepared.answer_headers, service.settings.keep_alive
    sse = any(request.query_params.get(name) == "sse" for name in _ALT)
    if options.n > 1:
        runs = [new_run(prepared, service, choice) for choice in range(options.n)]
        choices_responder = ChoicesStreamResponder if stream else ChoicesJsonResponder
        surface = _candidates(options, sealer, sse=sse)
        gate, reservation = service.gate, prepared.reservation
        end_choice = prepared.target.end_choice
        return choices_responder(runs, headers, keep_alive, surface, gate, reservation, end_choice)
    responder = RunStreamResponder if stream else RunJsonResponder
    form = GeminiForm(options, sealer, sse=sse)
    return responder(new_run(prepared, service), headers, keep_alive, form)


async def count_tokens(request: Request) -> Response:
    """Estimate the input tokens of a request of this API for its upstream."""
    service = service_of(request)
    owner = request.state.owner
    sealer = service.sealer.bound(owner)
    asked, losses = await read_json(
        request, service, lambda body: GEMINI.request(_to_be_counted(body), sealer)
    )
    target = target_of(service, request.path_params["model"], owner)
    check_request(asked, service.settings.limits, param=_INPUT)
    counter = service.meters.counter(owner)
    tokens = await on_thread(lambda: counter.request(asked, model=target.model))
    headers = loss_header(reported_losses(losses.of("loss")))
    return Response(encode({"totalTokens": tokens}), headers=headers, media_type="application/json")


def _to_be_counted(body: bytes) -> bytes:
    """The request that is meant: the body, or what is within it."""
    value = request_object(body)
    within = value.get(_COUNTED, value.get("generate_content_request"))
    return encode(within) if isinstance(within, dict) else body


_CALLS: Final = {
    "generateContent": generate,
    "streamGenerateContent": stream_generate,
    "countTokens": count_tokens,
}
# Google serves its models under both versions; `/v1/models` itself is in `api/models.py`
ROUTES: Final[list[BaseRoute]] = [
    *(
        Route(f"/{version}/models/{{model:path}}:{name}", endpoint, methods=["POST"])
        for version in ("v1beta", "v1")
        for name, endpoint in _CALLS.items()
    ),
    Route("/v1beta/models", google_models, methods=["GET"]),
    Route("/v1beta/models/{model:path}", google_model, methods=["GET"]),
]
