"""A request → a run: its model's upstream, its history, the body that goes out, the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import structlog

from bridge.diagnostics import Diagnostics
from bridge.dialects.base import History
from bridge.errors import BridgeError, InvalidRequestError
from bridge.protocol.request import CreateResponse
from bridge.protocol.response import Response
from bridge.tools.identity import ToolIdentityMap
from server.auth import client_key
from server.budget import Hold
from server.limits import check_conversation, check_request
from server.requests.answer_format import check_format, check_patterns
from server.requests.constraints import ConstrainedStream, machine_for
from server.requests.losses import loss_header, losses_of, reported_losses
from server.requests.outgoing import Asked, ask, inbound
from server.requests.wire import choose_wire, ignores_comments
from server.runs.run import Run
from server.runs.translation import Translation
from server.service import Service
from server.sessions.references import continued
from server.upstreams.attempts import Attempt, Attempts
from server.upstreams.base import UpstreamReply, UpstreamRequest
from server.upstreams.targets import Target

_log = structlog.get_logger(__name__)


class Taken(NamedTuple):
    """A queued response, the name under which its record is held (see `Lease`), and its wire."""

    response: Response
    worker: str
    wire: str


class Prepared(NamedTuple):
    """A request that may be answered, by one run or by several. `asked` is what its upstream is asked, `key`
    what its client showed, `hold` what it has in memory; `losses` are those that the request had before.
    `headers` are those of its answer, final when upstreams have accepted: they say what was lost on the way
    to those, which is in `reported`."""

    service: Service
    request: CreateResponse
    request_id: str
    owner: str
    target: Target
    history: History
    identities: ToolIdentityMap
    asked: Asked
    wire: str
    key: str | None
    beats: bool
    hold: Hold
    taken: Taken | None
    losses: Diagnostics | None
    reported: dict[str, None]
    headers: dict[str, str]

    def leave(self, choice: int) -> None:
        """The run of this choice has ended."""
        for shared in self.target.all_shared:
            shared.leave(choice)

    def run(self, choice: int | None = None) -> Run:
        """A run that answers it, or makes one choice of its answer. That one leaves it to whoever runs all of
        them to hold its place among those that are made at once, and the memory of the request."""
        service, request, key = self.service, self.request, self.key
        answering = target = self.target if choice is None else self.target.of_choice(choice)
        counted = {shared.upstream.name for shared in self.target.all_shared} if choice else set()

        def clean(text: str) -> str:
            return answering.upstream.clean(text, key)

        machine = machine_for(
            request,
            request.model or target.model,
            self.identities,
            self.wire,
            unenforced=self.asked.unenforced,
            clean=clean,
        )
        taken = self.taken
        if taken is not None:
            machine.adopt(taken.response)
        translation = Translation(
            machine,
            inbound(target, request, machine),
            most=service.settings.limits.output_bytes,
            judged=machine if isinstance(machine, ConstrainedStream) and machine.judged else None,
        )

        def accepted(attempt: Attempt, reply: UpstreamReply) -> None:
            nonlocal answering
            answering = chosen = attempt.target
            if chosen is not target:
                translation.read_as(inbound(chosen, request, machine))
            self._report(attempt, clean(reply.losses))

        def asked(upstream: str, outcome: str) -> None:
            if upstream not in counted:  # a request that is shared is the first choice's
                service.metrics.asked(upstream, outcome)

        keeping = None
        if request.store is not False:
            keeping = service.runs.keeping(
                translation, request, self.owner, self.wire, taken and taken.worker
            )
        return Run(
            translation=translation,
            attempts=Attempts(self._attempts(target), accepted, asked),
            gate=service.gate,
            total=service.settings.timeouts.total,
            keeping=keeping,
            keeper=service.runs.keeper,
            owner=self.owner,
            hold=self.hold if choice is None else service.room.budget.hold(self.owner),
            ended=service.metrics.ended,
            running=service.running,
            judge=service.judge,
            beats=self.beats,
            background=bool(request.background),
            personal=key is not None and any(each.pass_through for each in service.settings.upstreams),
            placed=choice is not None,
        )

    def _report(self, attempt: Attempt, inner: str) -> None:
        """What was lost on the way to an upstream that has accepted, and what it says was lost beyond."""
        found = reported_losses(attempt.losses, inner)
        new = [loss for loss in found if loss not in self.reported]
        if new:
            _log.info("request.losses", request_id=self.request_id, losses=new)
        self.reported.update(dict.fromkeys(found))
        self.headers.clear()
        self.headers.update(loss_header(self.reported))

    def _attempts(self, target: Target) -> list[Callable[[], Attempt]]:
        fallbacks = [partial(self._fallback, other) for other in target.fallbacks]
        return [partial(self._attempt, target, self.asked), *fallbacks]

    def _fallback(self, other: Target) -> Attempt:
        return self._attempt(other, ask(other, self.request, self.history, self.identities))

    def _attempt(self, target: Target, asked: Asked) -> Attempt:
        sent = UpstreamRequest(target.dialect.path, asked.outgoing.body, self.request_id, self.key)
        return Attempt(target, sent, losses_of(self.losses, asked.outgoing.diagnostics))


async def prepare(
    service: Service,
    request: CreateResponse,
    headers: Mapping[str, str],
    request_id: str,
    *,
    owner: str = "",
    losses: Diagnostics | None = None,
    history: History | None = None,
    hold: Hold | None = None,
    taken: Taken | None = None,
    place: str = "input",
    schema_param: str = "text.format.schema",
    choices: int = 1,
) -> Prepared:
    """This request, ready to be run. `owner` is whose responses
    it may refer to and whose it will be; `losses` are those that the request had before; `history` is what
    `previous_response_id` stands for, and its input is then free of references: when it is not given, both
    are looked up in the store; `hold` is what it holds in memory already; `taken` is the record that a queued
    response has already; `place` is where the client's own request has its input, `schema_param` where it
    has the schema for its answer; `choices` is how many answers it wants.

    Raises HttpError or InvalidRequestError for what can't be honoured, with `param`.
    """
    stored = request.store is not False
    if request.background and not stored:
        what = "a response in the background has to be stored"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param="background")
    check_request(request, service.settings.limits, place=place)
    check_format(request, service.settings.limits, schema_param)
    if stored and taken is None:
        await service.runs.check_store()
    target = service.router.resolve(request.model).bound(owner)
    if choices > 1:
        target = target.for_choices(choices)
    if history is None:
        request, before, hold = await continued(
            service.store, request, owner, service.room, accepted=taken is not None
        )
        history = before.items
    identities = ToolIdentityMap()
    hold = hold or service.room.budget.hold(owner)
    try:
        check_conversation(request, len(history), service.settings.limits)
        asked = ask(target, request, history, identities)
        if asked.unenforced:
            await check_patterns(service.judge, request, owner, schema_param)
        hold.grow(len(asked.outgoing.body))
    except BridgeError:
        hold.release()
        raise
    outgoing = asked.outgoing.diagnostics
    return Prepared(
        service=service,
        request=request,
        request_id=request_id,
        owner=owner,
        target=target,
        history=history,
        identities=identities,
        asked=asked,
        wire=choose_wire(request, headers) if taken is None else taken.wire,
        key=client_key(headers),
        beats=ignores_comments(headers),
        hold=hold,
        taken=taken,
        losses=losses,
        reported={},
        headers=loss_header(reported_losses(losses_of(losses, outgoing))),
    )
