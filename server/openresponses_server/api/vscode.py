"""`/vscode/v1/`: any model for VS Code's language-model interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Literal, NamedTuple

import msgspec
import structlog
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from openresponses_bridge.decoder.part_decoder import ErrorPolicy
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.dialects.vscode import (
    ChatRequest,
    Outbound,
    conversation_digest,
    decode_chat,
    error_body,
    from_vscode,
)
from openresponses_bridge.dialects.vscode.request import read_token_request, token_count
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer
from openresponses_server.api.parameters import flag_of
from openresponses_server.api.responders import PARTS, DialectForm, RunStreamResponder
from openresponses_server.errors import HttpError, failure
from openresponses_server.http.access import may_use
from openresponses_server.http.headers import fields_of
from openresponses_server.requests.bodies import read_json
from openresponses_server.requests.prepare import new_run, prepare
from openresponses_server.requests.prepared import PreparedRequest
from openresponses_server.requests.service import Service, service_of, target_of
from openresponses_server.runs.client import Batch
from openresponses_server.runs.run import Run
from openresponses_server.store.base import StoreError
from openresponses_server.store.history import Continued, history_of
from openresponses_server.tasks import off_loop

# A stateful marker in a chat names a stored response. It is used when that response belongs to the owner, has
# ended and answered exactly the chat before the marker; then only what follows the marker is input. Any other
# marker is ignored, and the whole chat is the input.

_INPUT_PARAM: Final = "messages"
_log = structlog.get_logger(__name__)


class Continuation(NamedTuple):
    """The request for what follows a chat's last marker, and the digest of the chat before it."""

    request: CreateResponse
    previous_id: str
    """The marker: the id of the response before."""
    losses: Diagnostics
    before: str


class DecodedChat(NamedTuple):
    """A chat, the request for all of it, and one for what follows its last marker, if there is any."""

    chat: ChatRequest
    request: CreateResponse
    losses: Diagnostics
    continuation: Continuation | None


def read_chat(body: bytes) -> DecodedChat:
    """Decode the body of a chat request. Raises InvalidRequestError with `param`."""
    chat = decode_chat(body)
    marked, marked_losses = from_vscode(chat, use_markers=True)
    if marked.previous_response_id is None:
        return DecodedChat(chat, marked, marked_losses, None)
    request, losses = from_vscode(chat)
    if not marked.input:
        return DecodedChat(chat, request, losses, None)
    whole = request.input if isinstance(request.input, list) else []
    before = conversation_digest(whole[: len(whole) - len(marked.input)])
    return DecodedChat(
        chat, request, losses, Continuation(marked, marked.previous_response_id, marked_losses, before)
    )


async def prepare_chat(
    service: Service, asked: DecodedChat, headers: Mapping[str, str], request_id: str, owner: str
) -> PreparedRequest:
    """Prepare a chat's request. The response is stored unless the chat says not to, or the store does not
    work. Raises as `prepare` does.
    """
    request = asked.request
    if not await _can_store(service, request):
        request = replace(request, store=False)
    elif (
        asked.continuation is not None
        and (found := await _history_before_marker(service, asked.continuation, owner)) is not None
    ):
        # a continuation that is refused is retried with the whole chat
        with suppress(InvalidRequestError):
            continuation = PreparedRequest(
                found.request,
                headers,
                request_id,
                owner,
                losses=asked.continuation.losses,
                continued=found,
                input_param=_INPUT_PARAM,
            )
            return await prepare(continuation, service)
    whole = PreparedRequest(
        request, headers, request_id, owner, losses=asked.losses, input_param=_INPUT_PARAM
    )
    return await prepare(whole, service)


async def _can_store(service: Service, request: CreateResponse) -> bool:
    """Whether the response can be stored. A chat works without, unlike the Responses API."""
    if request.store is False:
        return False
    try:
        await service.runs.check_store()
    except StoreError as error:
        _log.warning("vscode.not_stored", code=error.code)
        return False
    return True


async def _history_before_marker(
    service: Service, continuation: Continuation, owner: str
) -> Continued | None:
    """The conversation up to the marker and its memory; None when the marker can't be used."""
    reservation = service.available.budget.reserve(owner)
    try:
        before = await history_of(
            service.store, continuation.previous_id, owner, service.available, reservation
        )
    except HttpError as error:
        why = error.code
    else:
        if await off_loop(before.size, lambda: conversation_digest(before.items)) == continuation.before:
            return Continued(continuation.request, before, reservation)
        why = "another_conversation"
    reservation.release()
    _log.info("vscode.marker_unused", code=why)
    return None


# A response as VS Code's parts over HTTP: one JSON line each.

FailureForm = Literal["text", "line"]
"""How a failure after the first part is sent: as text for the user, or as a last line `{"error": …}`."""
FAILURES: dict[FailureForm, ErrorPolicy] = {"text": "text", "line": "notes"}


class PartsForm(DialectForm):
    """The answer to one chat. `trace` gets a line for each event: what it became, never content."""

    def __init__(
        self,
        chat: ChatRequest,
        failures: FailureForm,
        sealer: Sealer,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self._parts = Outbound(
            errors=FAILURES[failures],
            no_response=True,
            model=chat.model,
            include_encrypted_thinking=chat.include_encrypted_thinking is True,
            trace=trace,
        )
        self._failures = failures
        super().__init__(PARTS, self._parts, sealer)

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        data = super().streamed(batch, ended)
        error = self._parts.result.error
        if ended and error is not None and self._failures == "line":
            return data + encode(error_body(failure(error))) + b"\n"
        return data


class PartsResponder(RunStreamResponder):
    """VS Code cancels by disconnecting, even a response that is stored."""

    async def _client_left(self, run: Run) -> None:
        run.stop()
        await super()._client_left(run)


_MAX_LINE = 200  # characters of a line, in which an unknown event names its type


async def models(request: Request) -> JSONResponse:
    """The models as LanguageModelChatInformation, and the changes since the version `since`. `?refresh=true`
    lists the upstreams' models again."""
    service = service_of(request)
    enriched = await service.listing.enriched(refresh=flag_of(request.query_params, "refresh"))
    listed = [model.information() for model in enriched if may_use(model.id)]
    version = service.lists.record(listed)
    since = request.query_params.get("since")
    changes = None if since is None else service.lists.changes(since, version)
    found = None if changes is None else msgspec.structs.asdict(changes)
    return JSONResponse({"version": version, "models": listed, "changes": found})


async def chat(request: Request) -> ASGIApp:
    """Parts as JSON lines. With `errors=line` a failure is the last line. A disconnect cancels the
    response."""
    service = service_of(request)
    failures = request.query_params.get("errors", "text")
    if failures not in FAILURES:
        raise invalid("errors", f"expected one of: {', '.join(FAILURES)}")
    asked = await read_json(request, service, read_chat)
    state = request.state
    prepared = await prepare_chat(service, asked, fields_of(request.scope), state.request_id, state.owner)
    traced = service.settings.log_level == "debug"
    trace = partial(_trace, state.request_id) if traced else None
    form = PartsForm(asked.chat, failures, service.sealer, trace)
    run, headers = new_run(prepared, service), prepared.answer_headers
    return PartsResponder(run, headers, service.settings.keep_alive, form)


def _trace(request_id: str, line: str) -> None:
    _log.debug("vscode.event", request_id=request_id, event_and_parts=line[:_MAX_LINE])


async def tokens(request: Request) -> JSONResponse:
    """Estimate the tokens of a text or message for a model."""
    service = service_of(request)
    asked = await read_json(request, service, read_token_request)
    model = target_of(service, asked.model, request.state.owner).model
    size = len(asked.content) if isinstance(asked.content, str) else len(encode(asked.content))
    counter = service.meters.counter(request.state.owner)
    return JSONResponse({"tokens": await off_loop(size, lambda: token_count(asked.content, counter, model))})
