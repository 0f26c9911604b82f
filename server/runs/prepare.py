"""A request → a generation: its model's upstream, its history, the body that goes out, the machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from bridge.diagnostics import Diagnostic
from bridge.emitter.machine import ResponseStreamStateMachine
from bridge.errors import InvalidRequestError
from bridge.protocol.request import CreateResponse
from server.runs.generation import Generation
from server.runs.run import Run
from server.service import Service
from server.sessions.history import history_of, own_input
from server.upstreams.base import UpstreamRequest
from server.wire import choose_wire

LOSSES_HEADER: Final = "openresponses-losses"
_LONGEST_HEADER: Final = 1000  # characters
_log = structlog.get_logger(__name__)


async def prepare(
    service: Service, request: CreateResponse, headers: Mapping[str, str], request_id: str
) -> tuple[Generation, dict[str, str]]:
    """The generation that answers this request, and headers for the answer.

    Raises HttpError or InvalidRequestError for what can't be honoured, with `param`.
    """
    if request.background:
        what = "background responses are not served"
        raise InvalidRequestError(InvalidRequestError.UNSUPPORTED, what, param="background")
    target = service.router.resolve(request.model)
    history = await history_of(service.store, request)
    outgoing = target.dialect.prepare(request, history, target.model)
    machine = ResponseStreamStateMachine(
        request.model or target.model,
        request,
        tool_identities=outgoing.identities,
        wire=choose_wire(request, headers),
    )
    generation = Generation(
        run=Run(machine, target.dialect.inbound(machine)),
        upstream=target.upstream,
        request=UpstreamRequest(target.dialect.path, outgoing.body, request_id),
        total=service.settings.timeouts.total,
        store=None if request.store is False else service.store,
        input=own_input(request),
    )
    losses = outgoing.diagnostics.of("loss")
    if losses:
        _log.info("request.losses", request_id=request_id, losses=[str(loss) for loss in losses])
    return generation, _loss_header(losses)


def _loss_header(losses: Iterable[Diagnostic]) -> dict[str, str]:
    """What the upstream's dialect can't express, where the client sees it (DESIGN 6)."""
    told = "; ".join(f"{loss.where}: {loss.what}" for loss in losses)
    printable = "".join(sign if sign.isascii() and sign.isprintable() else "?" for sign in told)
    return {LOSSES_HEADER: printable[:_LONGEST_HEADER]} if printable else {}
