"""`POST /v1/messages` and `…/count_tokens`: any model for clients of Anthropic's API."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from openresponses_bridge.dialects.anthropic_messages import Outbound
from openresponses_bridge.protocol.codec import encode, request_object
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.api.models import model_meant
from openresponses_server.api.responders import MESSAGES, DialectForm, RunJsonResponder, RunStreamResponder
from openresponses_server.http.headers import fields_of
from openresponses_server.limits.quotas import anthropic_headers
from openresponses_server.limits.requests import check_request
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.outgoing import loss_header, reported_losses
from openresponses_server.requests.prepare import new_run, prepare
from openresponses_server.requests.prepared import PreparedRequest
from openresponses_server.requests.service import Service, service_of, target_of
from openresponses_server.tasks import on_thread

_ANY_LIMIT: Final = 1024


async def count_tokens(request: Request) -> Response:
    """Estimate the input tokens of a request of this API for its upstream."""
    service = service_of(request)
    owner = request.state.owner
    sealer = service.sealer.bound(owner)
    asked, losses = await read_json(
        request, service, lambda body: MESSAGES.request(_with_limit(body), sealer)
    )
    asked = _with_model_meant(asked, request, service)
    target = target_of(service, asked.model, owner)
    check_request(asked, service.settings.limits, param="messages")
    counter = service.meters.counter(owner)
    tokens = await on_thread(lambda: counter.request(asked, model=target.model))
    headers = loss_header(reported_losses(losses.of("loss")))
    return Response(encode({"input_tokens": tokens}), headers=headers, media_type="application/json")


def _with_limit(body: bytes) -> bytes:
    """The body with `max_tokens`, which a request for a message requires and one to count tokens does not."""
    value = request_object(body)
    return body if "max_tokens" in value else encode({**value, "max_tokens": _ANY_LIMIT})


def _with_model_meant(asked: CreateResponse, request: Request, service: Service) -> CreateResponse:
    named = asked.model or ""
    meant = model_meant(named, fields_of(request.scope), service.router)
    return asked if meant == named else replace(asked, model=meant)


async def create(request: Request) -> ASGIApp:
    """Events with `stream`, else one message. Nothing is stored: this API has no field for it."""
    service = service_of(request)
    sealer = service.sealer.bound(request.state.owner)
    asked, losses = await read_json(request, service, lambda body: MESSAGES.request(body, sealer))
    asked = _with_model_meant(asked, request, service)
    prepared = PreparedRequest(
        asked,
        fields_of(request.scope),
        request.state.request_id,
        owner=request.state.owner,
        losses=losses,
        input_param="messages",
        schema_param="output_config.format.schema",
        limits_form=anthropic_headers,
    )
    await prepare(prepared, service)
    responder = RunStreamResponder if asked.stream else RunJsonResponder
    tokens = service.meters.tokens(prepared.measured.measured, prepared.target.model, prepared.owner)
    form = DialectForm(MESSAGES, Outbound(sealer, input_tokens=tokens), sealer)
    return responder(new_run(prepared, service), prepared.answer_headers, service.settings.keep_alive, form)
