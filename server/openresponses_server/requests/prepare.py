"""A request → a run: its model's upstream, its history, the body that goes out, the machine."""

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
from openresponses_server.limits.memory import Hold, hand_over
from openresponses_server.limits.quotas import Form, openai_headers
from openresponses_server.limits.requests import check_conversation, check_request
from openresponses_server.observation.traces import REQUEST
from openresponses_server.requests.answer_format import check_format, check_patterns
from openresponses_server.requests.client_traits import ClientTraits, traits_of, with_betas
from openresponses_server.requests.constraints import ConstrainedStream, machine_for
from openresponses_server.requests.outgoing import (
    Asked,
    ask,
    continued_there,
    inbound,
    kept_by,
    loss_header,
    losses_of,
    reported_losses,
)
from openresponses_server.requests.service import Service
from openresponses_server.requests.stops import check_stops, stopping
from openresponses_server.requests.truncation import Shortener, may_be_shortened
from openresponses_server.runs.metering import MeasuredInput, Meter
from openresponses_server.runs.outcome import Outcome
from openresponses_server.runs.run import Run
from openresponses_server.runs.translation import Translation
from openresponses_server.settings import Limits
from openresponses_server.store.base import TooLarge, UpstreamResponse
from openresponses_server.store.history import continued, own_input
from openresponses_server.tasks import on_thread
from openresponses_server.upstreams.attempts import Attempt, Attempts
from openresponses_server.upstreams.base import UpstreamReply, UpstreamRequest
from openresponses_server.upstreams.targets import Target

# The ways in which upstreams may be asked one request: with what is new alone, with the whole history, with
# a shortened one, and the same at the upstreams that are asked when the first is down.


class Ways(Struct, frozen=True):
    """Those of one request. `client` is what its headers say, `asked` what its first upstream is asked; `new`
    what it is asked instead where it keeps the response `after` which the request comes; `owner` is whose it
    is."""

    request: CreateResponse
    history: History
    identities: ToolIdentityMap
    request_id: str
    client: ClientTraits
    losses: Diagnostics | None
    shortener: Shortener
    asked: Asked
    new: Asked | None
    after: str | None
    owner: str

    def all(self, target: Target) -> list[Callable[[], Awaitable[Attempt]]]:
        """At this target and its fallbacks, in order."""
        return [partial(self._first, target), *(partial(self._fallback, each) for each in target.fallbacks)]

    async def _first(self, target: Target) -> Attempt:
        if self.after is None or self.new is None:
            return self._attempt(target, self.asked)
        whole = partial(self._whole, target)
        return replace(self._attempt(target, self.new), after=self.after, whole=whole, shorter=None)

    async def _whole(self, target: Target) -> Attempt:
        return self._attempt(target, self.asked)

    async def _fallback(self, other: Target) -> Attempt:
        return self._attempt(other, await self._ask(other, self.shortener))

    async def _shorter(self, target: Target) -> Attempt | None:
        asked = await self._ask(target, replace(self.shortener, harder=True))
        if asked.outgoing.body == self.asked.outgoing.body:  # there is nothing that may go
            return None
        return replace(self._attempt(target, asked), shorter=None)

    async def _ask(self, target: Target, shortener: Shortener) -> Asked:
        asking = partial(ask, target, self.request, self.history, self.identities, shortener=shortener)
        return await on_thread(asking) if may_be_shortened(self.request, self.history) else asking()

    def _attempt(self, target: Target, asked: Asked) -> Attempt:
        path, body = target.dialect.path, asked.outgoing.body
        headers = with_betas(self.request, target, self.client.betas, asked.outgoing.diagnostics)
        sent = UpstreamRequest(
            path,
            body,
            self.request_id,
            self.client.key,
            asked.stream,
            headers,
            self.owner,
            self.client.conversation,
        )
        losses = losses_of(self.losses, asked.outgoing.diagnostics)
        if target.shared is not None or not may_be_shortened(self.request, self.history):
            return Attempt(target, sent, losses)
        return Attempt(target, sent, losses, shorter=partial(self._shorter, target))


# The limits of a key: before anything else is done for its request, and when its response is over.

_BYTES_PER_TOKEN: Final = 4
_COPIED: Final = 32  # bytes of what references stand for that are stored for each byte of an input


async def admit(
    service: Service, request: CreateResponse, owner: str, limits_form: Form = openai_headers
) -> dict[str, str]:
    """Count the request against the limits of its key; the headers of its answer. Raises HttpError 429."""
    size = None if request.store is False else lambda: len(encode(own_input(request)))
    return await service.quotas.admit(owner, size=size, form=limits_form)


def check_references(given: CreateResponse, resolved: CreateResponse, limits: Limits) -> None:
    """Raises HttpError 400 when the references of a request that is stored bring in more bytes, which are
    stored with it, than its own input allows."""
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
    """Count what the references of a request that is stored stand for: a copy of each is stored with it.
    Raises HttpError 429."""
    if resolved is given or given.store is False:
        return

    def more() -> int:
        return max(len(encode(own_input(resolved))) - len(encode(own_input(given))), 0)

    service.quotas.store(owner, more)


def spent(
    service: Service, owner: str, model: str, size: int, request: CreateResponse, response: Response
) -> None:
    """Count a response that an upstream has begun and that is over; `size` are the bytes of the body that it
    was asked with, which is not kept for this."""
    tokens = service.meters.counter(owner)

    def estimated() -> int:
        return size // _BYTES_PER_TOKEN + sum(tokens.item(item, model) for item in response.output)

    service.quotas.ended(owner, response, estimated, stored=request.store is not False)


# What a request may say of the background, before anything is made of it.


def check_background(request: CreateResponse) -> None:
    """Raises InvalidRequestError for a response in the background that is not stored, and for one in the
    foreground that is to be made again whatever was made: its client has seen what it would replace."""
    if request.background and request.store is False:
        what = "a response in the background has to be stored"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="background")
    if request.restart == "always" and not request.background:
        what = f"{RESTART}: 'always' is for responses with background: true"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=RESTART)


_log = structlog.get_logger(__name__)


class Taken(NamedTuple):
    """A response to be made, the name under which its record is held (see `Lease`), its wire, and how often
    it was begun before."""

    response: Response
    worker: str
    wire: str
    previous_attempts: int


class Prepared(Struct, frozen=True):
    """A request that may be answered, by one run or by several. `asked` is what its upstream is asked,
    `client` what its headers say, `hold` what it has in memory, `given` its input, to be measured; `new` is
    what is asked instead where the upstream keeps the response `after` which it comes; `losses` are
    those that the request had before. `headers` are those of its answer, final when upstreams have accepted:
    they say what was lost on the way to those, which is in `reported`. `parent` is the context of its spans,
    where there are any."""

    service: Service
    request: CreateResponse
    request_id: str
    owner: str
    target: Target
    history: History
    identities: ToolIdentityMap
    asked: Asked
    after: str | None
    new: Asked | None
    wire: str
    client: ClientTraits
    hold: Hold
    taken: Taken | None
    given: MeasuredInput
    losses: Diagnostics | None
    reported: dict[str, None]
    headers: dict[str, str]
    parent: Any

    @property
    def input_tokens(self) -> int:
        """About how many tokens its upstream will count."""
        return self.service.meters.tokens(self.given.measured, self.target.model, self.owner)

    def leave(self, choice: int) -> None:
        """The run of this choice has ended."""
        for shared in self.target.all_shared:
            shared.leave(choice)

    def run(self, choice: int | None = None) -> Run:
        """A run that answers it, or makes one choice of its answer. That one leaves it to whoever runs all of
        them to hold its place among those that are made at once, and the memory of the request."""
        service, request, key = self.service, self.request, self.client.key
        answering = target = self.target if choice is None else self.target.of_choice(choice)
        all_shared = self.target.all_shared
        counted = {shared.upstream.name for shared in all_shared} if choice else set()

        def clean(text: str) -> str:
            return answering.upstream.clean(text, key)

        share = max(shared.readers for shared in all_shared) if all_shared else 1
        name = request.model or target.model
        meter = Meter(service.meters, self.owner, name, target, self.given, 0 if counted else share)
        constrained = machine_for(
            request,
            name,
            self.identities,
            self.wire,
            unenforced=self.asked.unenforced,
            clean=clean,
            settle_usage=meter.settle,
        )
        taken = self.taken
        if taken is not None:
            constrained.adopt(taken.response)
        machine = stopping(constrained, request)
        translation = Translation(
            machine,
            inbound(target, request, machine, self.client.reasoning_as),
            most=service.settings.limits.output_bytes,
            judged=constrained if isinstance(constrained, ConstrainedStream) and constrained.judged else None,
            text_after_tools=target.text_after_tools,
        )

        lost: list[Diagnostic] = []  # and not the outcome, which would refer to itself by way of the attempts

        def accepted(attempt: Attempt, reply: UpstreamReply) -> None:
            nonlocal answering
            answering = chosen = attempt.target
            if chosen is not target or attempt.again:
                reader = inbound(chosen, request, machine, self.client.reasoning_as)
                translation.set_inbound(reader, chosen.text_after_tools)
            if attempt.losses or reply.losses:
                self._report(attempt, clean(reply.losses))
            if choice is None or choice == 0:
                lost[:] = attempt.losses

        def asked(upstream: str, outcome: str) -> None:
            if upstream not in counted:  # a request that is shared is the first choice's
                service.metrics.asked(upstream, outcome)

        def kept() -> UpstreamResponse | None:
            return kept_by(answering, translation.upstream_response_id, key)

        persistence = None
        if request.store is not False:
            persistence = service.runs.new_persistence(
                translation, request, self.owner, self.wire, taken and taken.worker, kept
            )
        given = (request, self.history, self.identities, self.request_id, self.client, self.losses)
        ways = Ways(
            *given,
            Shortener(service.meters.counter(self.owner)),
            self.asked,
            self.new,
            self.after,
            self.owner,
        )
        attempts = Attempts(ways.all(target), accepted, asked)
        outcome = Outcome(
            self.request_id,
            translation,
            attempts,
            service.metrics.responses.ended,
            partial(spent, service, self.owner, target.model, len(self.asked.outgoing.body), request),
            meter,
            ended_elsewhere=persistence is not None,
        )
        outcome.losses = lost
        if (trace := REQUEST.get()) is not None and (traced := trace.of_run(translation)) is not None:
            outcome.watch(traced, traced.pace())
        if service.spans is not None:
            outcome.watch(service.spans.response(self.parent, name, self.request_id))
        return Run(
            translation=translation,
            attempts=attempts,
            gate=service.gate,
            total=service.settings.timeouts.total,
            persistence=persistence,
            keeper=service.runs.keeper,
            owner=self.owner,
            reservation=self.hold if choice is None else service.room.budget.hold(self.owner),
            outcome=outcome,
            running=service.running,
            judge=service.judge,
            needs_keepalive_events=self.client.needs_keepalive_events,
            background=bool(request.background),
            personal=key is not None and any(each.pass_through for each in service.settings.upstreams),
            slot_reserved=choice is not None,
            previous_attempts=0 if taken is None else taken.previous_attempts,
        )

    def _report(self, attempt: Attempt, inner: str) -> None:
        """What was lost on the way to an upstream that has accepted, and what it says was lost beyond."""
        found = reported_losses(attempt.losses, inner)
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
    owner: str = "",
    losses: Diagnostics | None = None,
    history: History | None = None,
    upstream: UpstreamResponse | None = None,
    hold: Hold | None = None,
    taken: Taken | None = None,
    place: str = "input",
    schema_param: str = "text.format.schema",
    choices: int = 1,
    limits_form: Form = openai_headers,
) -> Prepared:
    """This request, ready to be run. `owner` is whose responses it may refer to and whose it will be;
    `losses` are those that the request had before; `history` is what `previous_response_id` stands for, and
    its input is then free of references: when it is not given, both are looked up in the store; `upstream` is
    the last response of that as its upstream keeps it; `hold` is what it holds in memory already; `taken` is
    the record that a queued response has already; `place` is where the client's own request has its input,
    `schema_param` where it has the schema for its answer; `choices` is how many answers it wants;
    `limits_form` is how the headers of its answer say what is left of its key's limits.

    Raises HttpError or InvalidRequestError for what can't be honoured, with `param`.
    """
    client = traits_of(headers)
    stored = request.store is not False
    check_background(request)
    check_request(request, service.settings.limits, place=place)
    check_stops(request)
    check_format(request, service.settings.limits, schema_param)
    if stored and taken is None:
        await service.runs.check_store()
    target = service.router.target_of(request.model, owner)
    allowed = await admit(service, request, owner, limits_form) if taken is None else {}
    if choices > 1:
        target = target.for_choices(choices)
    given = request
    if history is None:
        request, before, hold = await continued(
            service.store, request, owner, service.room, accepted=taken is not None
        )
        history, upstream = before.items, before.upstream
    identities = ToolIdentityMap()
    hold = hold or service.room.budget.hold(owner)
    try:
        if taken is None:
            check_references(given, request, service.settings.limits)
            admit_references(service, given, request, owner)
        check_conversation(request, len(history), service.settings.limits)
        updated = configured(request, history)
        if updated is not request:
            request, schema_param = updated, place
            check_format(request, service.settings.limits, schema_param)
        shortener = Shortener(service.meters.counter(owner))
        asking = partial(ask, target, request, history, identities, shortener=shortener)
        asked = await on_thread(asking) if may_be_shortened(request, history) else asking()
        if asked.unenforced:
            await check_patterns(service.judge, request, owner, schema_param)
        after = continued_there(target, request, history, upstream, client.key)
        new = None if after is None else ask(target, request, history, identities, after=after)
        hand_over()
        hold.grow(len(asked.outgoing.body) + (0 if new is None else len(new.outgoing.body)))
    except BridgeError:
        hold.release()
        raise
    found = losses_of(losses, (new or asked).outgoing.diagnostics)
    return Prepared(
        service=service,
        request=request,
        request_id=request_id,
        owner=owner,
        target=target,
        history=history,
        identities=identities,
        asked=asked,
        after=after,
        new=new,
        wire=choose_wire(request, headers) if taken is None else taken.wire,
        client=client,
        hold=hold,
        taken=taken,
        given=MeasuredInput(request, history)
        if asked.left is None
        else MeasuredInput(replace(request, input=None), asked.left),
        losses=losses,
        reported={},
        parent=None if service.spans is None else service.spans.parent(headers),
        headers=allowed | (loss_header(reported_losses(found)) if found else {}),
    )
