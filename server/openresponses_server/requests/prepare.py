"""Prepares a request for its run: checks, quota, history, translation for the upstream, the machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import structlog
from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostic, Diagnostics
from openresponses_bridge.dialects.base import History, configured
from openresponses_bridge.errors import BridgeError, InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.request import RESTART, CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.wire import choose_wire
from openresponses_server.errors import HttpError
from openresponses_server.limits.memory import Reservation, release_received
from openresponses_server.limits.quotas import Form, openai_headers
from openresponses_server.limits.requests import check_conversation, check_request
from openresponses_server.observation.responses import EndedRun, LoggedEnd, TokenTiming, Watch
from openresponses_server.observation.traces import REQUEST
from openresponses_server.requests.answer_format import check_format, check_patterns
from openresponses_server.requests.client_traits import ClientTraits, traits_of, with_betas
from openresponses_server.requests.constraints import ConstrainedStream, machine_for
from openresponses_server.requests.outgoing import (
    TranslatedRequest,
    continuable_id,
    inbound_for,
    loss_header,
    losses_of,
    reported_losses,
    translate_request,
    upstream_response,
)
from openresponses_server.requests.service import Service
from openresponses_server.requests.stops import check_stops, with_stop_filter
from openresponses_server.requests.truncation import Truncator, may_truncate
from openresponses_server.runs.metering import MeasuredInput, Meter
from openresponses_server.runs.outcome import LogLine, Outcome
from openresponses_server.runs.pipeline import Translation
from openresponses_server.runs.run import Run
from openresponses_server.settings import Limits
from openresponses_server.store.base import TooLarge, UpstreamResponse
from openresponses_server.store.history import continued, own_input
from openresponses_server.tasks import on_thread
from openresponses_server.upstreams.attempts import Attempt, Attempts
from openresponses_server.upstreams.base import UpstreamReply, UpstreamRequest
from openresponses_server.upstreams.targets import Target


class AttemptPlan(Struct, frozen=True):
    """The attempts for one request: at its upstream with the new input only, with the whole history, or
    truncated; then at the fallbacks."""

    request: CreateResponse
    history: History
    identities: ToolIdentityMap
    request_id: str
    client: ClientTraits
    losses: Diagnostics | None
    truncator: Truncator
    translated: TranslatedRequest
    """The request with its whole history, for the first upstream."""
    continuation: TranslatedRequest | None
    """The request with its new input only, where the upstream stores the previous response."""
    previous_id: str | None
    """The upstream's id of the previous response."""
    owner: str

    def attempts(self, target: Target) -> list[Callable[[], Awaitable[Attempt]]]:
        """The attempts at this target and its fallbacks, in order."""
        return [partial(self._first, target), *(partial(self._fallback, each) for each in target.fallbacks)]

    async def _first(self, target: Target) -> Attempt:
        if self.previous_id is None or self.continuation is None:
            return self._attempt(target, self.translated)
        whole = partial(self._with_history, target)
        return replace(
            self._attempt(target, self.continuation), after=self.previous_id, whole=whole, shorter=None
        )

    async def _with_history(self, target: Target) -> Attempt:
        return self._attempt(target, self.translated)

    async def _fallback(self, other: Target) -> Attempt:
        return self._attempt(other, await self._translate(other, self.truncator))

    async def _truncated(self, target: Target) -> Attempt | None:
        translated = await self._translate(target, replace(self.truncator, after_refusal=True))
        if translated.outgoing.body == self.translated.outgoing.body:  # nothing was dropped
            return None
        return replace(self._attempt(target, translated), shorter=None)

    async def _translate(self, target: Target, truncator: Truncator) -> TranslatedRequest:
        translate = partial(
            translate_request, target, self.request, self.history, self.identities, truncator=truncator
        )
        if not may_truncate(self.request, self.history):
            return translate()
        return await on_thread(translate, begun=True)

    def _attempt(self, target: Target, translated: TranslatedRequest) -> Attempt:
        headers = with_betas(self.request, target, self.client.betas, translated.outgoing.diagnostics)
        sent = UpstreamRequest(
            target.dialect.path,
            translated.outgoing.body,
            self.request_id,
            self.client.key,
            translated.stream,
            headers,
            self.owner,
            self.client.conversation,
        )
        losses = losses_of(self.losses, translated.outgoing.diagnostics)
        if target.shared is not None or not may_truncate(self.request, self.history):
            return Attempt(target, sent, losses)
        return Attempt(target, sent, losses, shorter=partial(self._truncated, target))


# The quotas of a key: checked before the request is prepared, charged when its response has ended.

_BYTES_PER_TOKEN: Final = 4
_COPIED: Final = 32  # bytes of referenced items that may be stored for each byte of the input


async def admit(
    service: Service, request: CreateResponse, owner: str, limits_form: Form = openai_headers
) -> dict[str, str]:
    """Count the request against the quotas of its key; the rate-limit headers. Raises HttpError 429."""
    size = None if request.store is False else lambda: len(encode(own_input(request)))
    return await service.quotas.admit(owner, size=size, form=limits_form)


def check_references(given: CreateResponse, resolved: CreateResponse, limits: Limits) -> None:
    """Raises HttpError 400 when a request that is stored refers to items of more bytes, which are stored with
    it, than its own input allows."""
    if resolved is given or given.store is False:
        return
    own = len(encode(given.input))
    copied = len(encode(resolved.input)) - own
    most = limits.stored_reference_bytes + _COPIED * own
    if copied > most:
        raise HttpError(
            400,
            f"What the item references stand for is stored with the response: {copied} bytes more. With an "
            f"input of {own} bytes the limit is {most} (limits.stored_reference_bytes, and {_COPIED} times "
            "the input). Send the items themselves, continue with previous_response_id, or ask with store: "
            "false.",
            code=TooLarge.REFERENCES,
            param="input",
        )


def admit_references(service: Service, given: CreateResponse, resolved: CreateResponse, owner: str) -> None:
    """Count the items that a stored request refers to, which are stored with it, against the quota of stored
    bytes. Raises HttpError 429."""
    if resolved is given or given.store is False:
        return

    def more() -> int:
        return max(len(encode(own_input(resolved))) - len(encode(own_input(given))), 0)

    service.quotas.store(owner, more)


class QuotaCount(Watch, Struct):
    """Counts a response that an upstream has begun against the quotas of its key, however it ended; `size` is
    the number of bytes sent upstream, from which tokens are estimated when the upstream reports none."""

    service: Service
    owner: str
    model: str
    size: int
    stored: bool

    def end(self, ended: EndedRun, said: LoggedEnd) -> None:
        if ended.first_bytes is None:
            return
        response = ended.response

        def estimated() -> int:
            tokens = self.service.meters.counter(self.owner)
            return self.size // _BYTES_PER_TOKEN + sum(
                tokens.item(item, self.model) for item in response.output
            )

        self.service.quotas.ended(self.owner, response, estimated, stored=self.stored)


def check_background(request: CreateResponse) -> None:
    """Raises InvalidRequestError for a background response that is not stored, and for `restart: always` in
    the foreground: the client has seen the output that would be replaced."""
    if request.background and request.store is False:
        what = "a response in the background has to be stored"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="background")
    if request.restart == "always" and not request.background:
        what = f"{RESTART}: 'always' is for responses with background: true"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=RESTART)


_log = structlog.get_logger(__name__)


class LeasedResponse(NamedTuple):
    """A stored response that this worker has claimed and runs."""

    response: Response
    worker: str
    """The worker's name in the lease."""
    wire: str
    previous_attempts: int


class PreparedRequest(Struct, frozen=True):
    """A request that is ready for its run, or for several when it wants several choices. `translated`,
    `continuation` and `previous_id` are those of its `AttemptPlan`."""

    service: Service
    request: CreateResponse
    request_id: str
    owner: str
    target: Target
    history: History
    identities: ToolIdentityMap
    translated: TranslatedRequest
    previous_id: str | None
    continuation: TranslatedRequest | None
    truncator: Truncator
    wire: str
    client: ClientTraits
    reservation: Reservation
    leased: LeasedResponse | None
    input: MeasuredInput
    """What input tokens are estimated from."""
    losses: Diagnostics | None
    """Losses of translating the client's own dialect."""
    reported: dict[str, None]
    """The losses in `headers`."""
    headers: dict[str, str]
    """The headers of the HTTP response; final when an upstream has accepted, whose losses they report."""
    parent: Any
    """The parent context of the run's spans, None without tracing."""

    @property
    def input_tokens(self) -> int:
        """The estimated input tokens."""
        return self.service.meters.tokens(self.input.measured, self.target.model, self.owner)

    def end_choice(self, choice: int) -> None:
        """Detach this choice, whose run has ended, from the upstreams that the choices share."""
        for shared in self.target.all_shared:
            shared.leave(choice)

    def run(self, choice: int | None = None) -> Run:
        """A new run of the request, or of one choice. The caller reserves the slot and the memory of all
        choices together."""
        service, request, key = self.service, self.request, self.client.key
        accepting = target = self.target if choice is None else self.target.of_choice(choice)
        all_shared = [] if choice is None else target.all_shared
        counted = {shared.upstream.name for shared in all_shared} if choice else set()

        def clean(text: str) -> str:
            return accepting.upstream.clean(text, key)

        share = max(shared.readers for shared in all_shared) if all_shared else 1
        name = request.model or target.model
        meter = Meter(service.meters, self.owner, name, target, self.input, 0 if counted else share)
        constrained = machine_for(
            request,
            name,
            self.identities,
            self.wire,
            format_unenforced=self.translated.format_unenforced,
            clean=clean,
            settle_usage=meter.settle,
        )
        leased = self.leased
        if leased is not None:
            constrained.adopt(leased.response)
        machine = with_stop_filter(constrained, request)
        translation = Translation(
            machine,
            inbound_for(target, request, machine, self.client.reasoning_as),
            most=service.settings.limits.output_bytes,
            judged=constrained if isinstance(constrained, ConstrainedStream) and constrained.judged else None,
            text_after_tools=target.text_after_tools,
        )

        lost: list[
            Diagnostic
        ] = []  # a closure over the outcome would be a reference cycle through the attempts

        def accepted(attempt: Attempt, reply: UpstreamReply) -> None:
            nonlocal accepting
            accepting = meter.asked = chosen = attempt.target
            if chosen is not target or attempt.again:
                reader = inbound_for(chosen, request, machine, self.client.reasoning_as)
                translation.set_inbound(reader, chosen.text_after_tools)
            if attempt.losses or reply.losses:
                self._report(attempt, clean(reply.losses))
            if choice is None or choice == 0:
                lost[:] = attempt.losses

        def asked(upstream: str, outcome: str) -> None:
            if upstream not in counted:  # the first choice counts a request that choices share
                service.metrics.asked(upstream, outcome)

        def kept() -> UpstreamResponse | None:
            return upstream_response(accepting, translation.upstream_response_id, key)

        persistence = None
        if request.store is not False:
            persistence = service.runs.new_persistence(
                translation, request, self.owner, self.wire, leased and leased.worker, kept
            )
        plan = AttemptPlan(
            request,
            self.history,
            self.identities,
            self.request_id,
            self.client,
            self.losses,
            self.truncator,
            self.translated,
            self.continuation,
            self.previous_id,
            self.owner,
        )
        attempts = Attempts(plan.attempts(target), accepted, asked)
        watches: list[Watch] = []
        timing = TokenTiming()
        if (trace := REQUEST.get()) is not None and (traced := trace.of_run(translation)) is not None:
            watches.append(traced)
            timing = traced.timing()
        if service.spans is not None:
            watches.append(service.spans.response(self.parent, name, self.request_id))
        size = len(self.translated.outgoing.body)
        watches += (
            LogLine(self.request_id, attempts),
            QuotaCount(service, self.owner, target.model, size, request.store is not False),
            meter,
            service.metrics.responses,
        )
        outcome = Outcome(translation, attempts, watches, timing, ended_elsewhere=persistence is not None)
        outcome.losses = lost
        return Run(
            translation=translation,
            attempts=attempts,
            gate=service.gate,
            total=service.settings.timeouts.total,
            persistence=persistence,
            keeper=service.runs.keeper,
            owner=self.owner,
            reservation=self.reservation if choice is None else service.available.budget.reserve(self.owner),
            outcome=outcome,
            running=service.running,
            judge=service.judge,
            needs_keepalive_events=self.client.needs_keepalive_events,
            background=bool(request.background),
            personal=key is not None and any(each.pass_through for each in service.settings.upstreams),
            slot_reserved=choice is not None,
            previous_attempts=0 if leased is None else leased.previous_attempts,
        )

    def _report(self, attempt: Attempt, upstream_header: str) -> None:
        """Add the losses of the attempt that was accepted, and those that its upstream reports, to the
        headers."""
        found = reported_losses(attempt.losses, upstream_header)
        new = [loss for loss in found if loss not in self.reported]
        if new:
            _log.info("request.losses", request_id=self.request_id, losses=new)
        self.reported.update(dict.fromkeys(found))
        self.headers.update(loss_header(self.reported))


async def prepare(
    service: Service,
    request: CreateResponse,
    headers: Mapping[str, str],
    request_id: str,
    *,
    owner: str = "",  # of the responses it may refer to, and of its own
    losses: Diagnostics | None = None,  # of translating the client's own dialect
    history: History
    | None = None,  # with its references resolved in the input; None to load both from the store
    upstream: UpstreamResponse | None = None,  # the last response of `history` as its upstream stores it
    reservation: Reservation | None = None,  # memory already reserved for the request
    leased: LeasedResponse | None = None,  # of a background response that was claimed
    input_param: str = "input",  # the path of the input in the client's own request
    schema_param: str = "text.format.schema",  # the path of the output's schema there
    choices: int = 1,
    limits_form: Form = openai_headers,  # the names of the rate-limit headers
) -> PreparedRequest:
    """Check a request and prepare its run. Raises HttpError or InvalidRequestError, with `param`, for what
    can't be honoured."""
    client = traits_of(headers)
    stored = request.store is not False
    check_background(request)
    check_request(request, service.settings.limits, place=input_param)
    check_stops(request)
    check_format(request, service.settings.limits, schema_param)
    if stored and leased is None:
        await service.runs.check_store()
    target = service.router.target_of(request.model, owner)
    allowed = await admit(service, request, owner, limits_form) if leased is None else {}
    if choices > 1:
        target = target.for_choices(choices)
    given = request
    if history is None:
        request, before, reservation = await continued(
            service.store, request, owner, service.available, accepted=leased is not None
        )
        history, upstream = before.items, before.upstream
    identities = ToolIdentityMap()
    reservation = reservation or service.available.budget.reserve(owner)
    try:
        if leased is None:
            check_references(given, request, service.settings.limits)
            admit_references(service, given, request, owner)
        check_conversation(request, len(history), service.settings.limits)
        updated = configured(request, history)
        if updated is not request:
            request, schema_param = updated, input_param
            check_format(request, service.settings.limits, schema_param)
        truncator = Truncator(service.meters.counter(owner))
        translate = partial(translate_request, target, request, history, identities, truncator=truncator)
        if may_truncate(request, history):
            translated = await on_thread(translate, begun=leased is not None)
        else:
            translated = translate()
        if translated.format_unenforced:
            await check_patterns(service.judge, request, owner, schema_param)
        previous_id = continuable_id(target, request, history, upstream, client.key)
        continuation = None
        if previous_id is not None:
            continuation = translate_request(target, request, history, identities, previous_id=previous_id)
        release_received()
        reservation.grow(
            len(translated.outgoing.body) + (0 if continuation is None else len(continuation.outgoing.body))
        )
    except BridgeError:
        reservation.release()
        raise
    found = losses_of(losses, (continuation or translated).outgoing.diagnostics)
    return PreparedRequest(
        service=service,
        request=request,
        request_id=request_id,
        owner=owner,
        target=target,
        history=history,
        identities=identities,
        translated=translated,
        previous_id=previous_id,
        continuation=continuation,
        truncator=truncator,
        wire=choose_wire(request, headers) if leased is None else leased.wire,
        client=client,
        reservation=reservation,
        leased=leased,
        input=MeasuredInput(request, history)
        if translated.remaining_items is None
        else MeasuredInput(replace(request, input=None), translated.remaining_items),
        losses=losses,
        reported={},
        parent=None if service.spans is None else service.spans.parent(headers),
        headers=allowed | (loss_header(reported_losses(found)) if found else {}),
    )
