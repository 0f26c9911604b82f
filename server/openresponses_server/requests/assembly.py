"""Assembles the run of a prepared request, or of one of its choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import structlog
from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostic, loss_header
from openresponses_bridge.emitter.citing import CitingFilter, FoundPages
from openresponses_bridge.emitter.failures import redacted
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.request import CreateResponse, conversation_of
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.wire import wire_for
from openresponses_server.errors import UpstreamError, code_for_codex
from openresponses_server.limits.memory import Reservation
from openresponses_server.limits.owners import WITHOUT_KEY
from openresponses_server.observation.contents import Content
from openresponses_server.observation.metrics import Metrics
from openresponses_server.observation.recordings.masking import without_secrets_of
from openresponses_server.observation.responses import TokenTiming, Watch
from openresponses_server.observation.traces import REQUEST, RunTrace
from openresponses_server.observation.tracing import Attributes
from openresponses_server.requests.admission import QuotaCount
from openresponses_server.requests.condensing import ContextCompaction
from openresponses_server.requests.constraints import with_rules, with_stop_filter
from openresponses_server.requests.formatted_stream import FormattedStream
from openresponses_server.requests.outgoing import (
    attempt_at,
    inbound_for,
    model_of,
    reported_losses,
    window_inbound_for,
)
from openresponses_server.requests.prepared import Translated
from openresponses_server.requests.routes import remember_route, upstream_response
from openresponses_server.requests.service import Service
from openresponses_server.runs.answers import AnswerLog
from openresponses_server.runs.calls import CallRunner, CallSpans
from openresponses_server.runs.exchange import Translation
from openresponses_server.runs.hosted_stream import HostedNames, HostedStream
from openresponses_server.runs.metering import Meter, cost_of
from openresponses_server.runs.outcome import LogLine, RunOutcome
from openresponses_server.runs.rounds import Rounds
from openresponses_server.runs.run import Run, RunRequest
from openresponses_server.runs.support import is_personal
from openresponses_server.store.base import UpstreamResponse
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from openresponses_server.upstreams.base import UpstreamReply
from openresponses_server.upstreams.refusals import is_about_the_key
from openresponses_server.upstreams.routing.attempts import Attempt, Attempts, OnAccepted
from openresponses_server.upstreams.routing.routes import RouteChoice, Tried, tried_header
from openresponses_server.upstreams.targets import Target

_log = structlog.get_logger(__name__)


class AnsweringUpstream(Struct, eq=False):
    """The upstream of a run's latest answer; until an upstream has accepted, the one that is asked first.

    It lasts as long as the run and does not refer to the prepared request, which is freed before.
    """

    target: Target
    body: CreateResponse
    key: str | None
    """The client's own."""
    for_codex: bool

    def model(self) -> str:
        """Return the upstream's name of the model."""
        return self.target.model

    def clean(self, text: str) -> str:
        """Return a message of the upstream without keys, addresses and secrets of the request."""
        cleaned = without_secrets_of(self.body, self.target.upstream.clean(text, self.key))
        return code_for_codex(cleaned) if self.for_codex else cleaned

    def shown(self, error: ErrorPayload) -> ErrorPayload:
        """Return the upstream's error as the client may read it: the client is not at fault if the operator's
        key was refused."""
        ours = self.target.upstream.key_refused(self.key)
        if ours and is_about_the_key(error):
            return ErrorPayload("server_error", UpstreamError.AUTHENTICATION, ours, None)
        return redacted(error, self.clean)

    def stored_response(
        self, translation: Translation, answers: AnswerLog | None, *, has_hosted: bool
    ) -> UpstreamResponse | None:
        """Return the response as the upstream has stored it; None if it has not, or has something else: calls
        without outputs, no summary, or one answer of two."""
        if has_hosted or not (answers is None or answers.is_whole):
            return None
        return upstream_response(self.target, translation.upstream_response_id, self.key)


def _count_asked(
    metrics: Metrics, traced: RunTrace | None, elsewhere: set[str], upstream: str, outcome: str
) -> None:
    """Count what an upstream was asked for, unless another choice counts it."""
    if traced is not None and outcome != "accepted":
        traced.refused_by(outcome)
    if upstream not in elsewhere:
        metrics.asked(upstream, outcome)


class RunAssembly:
    """The parts of one run, each made when those that it needs exist.

    The attempts at upstreams keep this object, and with it the request, in memory until an answer has begun;
    if the server runs tools or condenses the conversation, until the run ends. To avoid a cycle it does not
    refer to the outcome, which refers to the attempts, and these to it.
    """

    def __init__(self, request: Translated, service: Service, choice: int | None = None) -> None:
        """`choice`: which of several choices the run is for; the caller reserves the slots and the memory of
        all of them."""
        self._request = request
        self._service = service
        self._choice = choice
        self._target = target = request.target if choice is None else request.target.of_choice(choice)
        self._shared = () if choice is None else request.target.all_shared
        # the first choice counts a request that choices share
        self._elsewhere = {each.upstream.name for each in self._shared} if choice else set()
        self._upstream = AnsweringUpstream(target, request.body, request.client.key, request.client.is_codex)
        leased = request.leased
        wire = wire_for(request.body, request.headers, request.client.wire) if leased is None else leased.wire
        self._wire = wire
        share = max(each.readers for each in self._shared) if self._shared else 1
        name = request.body.model or request.target.model
        self._meter = meter = Meter(
            service.meters,
            request.owner,
            name,
            request.target,
            request.measured,
            0 if self._elsewhere else share,
        )
        self._answers: AnswerLog | None = None
        if request.hosted is not None or request.is_due or request.form.plan is not None:
            self._answers = AnswerLog(meter.settle, self._upstream.model, request.reservation.grow)
        self._pages = None if request.hosted is None else FoundPages()
        self._formatted: FormattedStream | None = None
        self._hosted: HostedStream | None = None
        self._machine = machine = self._new_machine()
        for each in (target, *target.fallbacks):
            if each.session_headers is not None:
                self._request = replace(request, response_id=machine.response_id)
                break
        self._translation = Translation(
            machine,
            inbound_for(request, target, machine),
            most=service.settings.limits.output_bytes,
            judged=self._hosted,
            text_after_tools=target.text_after_tools,
        )
        self._traced = None if (trace := REQUEST.get()) is None else trace.of_run(self._translation)
        self._observe: Callable[[str, str], None] = service.metrics.asked
        if self._traced is not None or self._elsewhere:
            self._observe = partial(_count_asked, service.metrics, self._traced, self._elsewhere)
        self._content: Content | None = None
        if service.contents is not None:
            self._content = service.contents.of_request(request.body, request.headers, request.client.key)
        self._losses: list[Diagnostic] = []  # those of the upstream that has accepted

    def run(self) -> Run:
        """Return the run."""
        request, service, choice, leased = self._request, self._service, self._choice, self._request.leased
        body, key = request.body, request.client.key
        attempts = self._first_attempts()
        persistence = None if body.store is False else self._new_persistence()
        rounds = None if self._hosted is None else self._new_rounds(self._hosted, persistence)
        outcome = self._new_outcome(attempts, ended_elsewhere=persistence is not None)
        memory = (
            request.reservation if choice is None else Reservation(service.available.budget, request.owner)
        )
        has_own_key = key is not None and any(each.pass_through for each in service.settings.upstreams)
        parts = RunRequest(
            request.owner,
            self._translation,
            attempts,
            outcome,
            memory,
            persistence,
            background=bool(body.background),
            personal=has_own_key or bool(body.background and is_personal(body)),
            for_codex=request.client.is_codex,
            needs_client=request.needs_client,
            slot_reserved=choice is not None,
            previous_attempts=0 if leased is None else leased.previous_attempts,
            check=partial(service.quotas.check_budget, request.owner),
            rounds=rounds,
        )
        return Run(parts, service)

    # What makes events of an upstream's answer.

    def _new_machine(self) -> ResponseStream:
        """Return the machine behind its filters: for the request's constraints, for its format, for the tools
        that the server runs, for its stop sequences."""
        request, body = self._request, self._request.body
        machine: ResponseStream = ResponseStreamStateMachine(
            body.model or request.target.model,
            body,
            tool_identities=request.identities,
            wire=self._wire,
            redact=self._upstream.shown,
            settle_usage=self._meter.settle if self._answers is None else self._answers.settle,
            unknown_fields=request.losses is None,
        )
        if self._pages is not None:
            machine = CitingFilter(machine, self._pages)
        limits_calls = body.tool_choice is not None or body.max_tool_calls is not None
        if not request.compacts and (limits_calls or body.parallel_tool_calls is False):
            machine = with_rules(machine, body, request.identities)
        if request.leased is not None:
            machine.adopt(request.leased.response)
        if request.form.plan is not None:
            machine = self._formatted = FormattedStream(machine, request.identities)
        if self._answers is not None:
            machine = self._hosted = HostedStream(machine, self._names(), self._formatted, self._answers)
            if request.hosted is not None:
                prefaces = [entry.preface for entry in request.hosted.entries]
                self._hosted.open_with([item for preface in prefaces for item in preface])
        if body.stop and not request.compacts:
            machine = with_stop_filter(machine, body.stop)
        return machine

    def _names(self) -> HostedNames:
        request = self._request
        if request.hosted is None:
            return HostedNames({}, request.identities)
        excluded = request.hosted.excluded(request.body.tool_choice)
        return HostedNames(request.hosted.tools, request.identities, excluded)

    # What asks for the first answer, and reads what accepts.

    def _first_attempts(self) -> Attempts:
        request, target = self._request, self._target
        # a request that may be condensed meanwhile is another one then
        prepare = partial(attempt_at, request) if request.threshold is None else self._attempt
        choice = request.chosen or RouteChoice(self._service.routes, (target, *target.fallbacks))
        return Attempts(target, prepare, self._accept, self._observe, choice)

    def _accept(self, attempt: Attempt, reply: UpstreamReply, tried: Sequence[Tried]) -> None:
        """Read the answer to the accepted attempt, and learn from it."""
        request, service, first = self._request, self._service, self._target
        accepting = self._upstream.target = self._meter.accepting = attempt.target
        self._meter.answers += not attempt.again
        if accepting is not first or attempt.again or self._hosted is not None:
            inbound = inbound_for(request, accepting, self._machine)
            self._translation.set_inbound(inbound, accepting.text_after_tools)
        if self._formatted is not None:
            self._formatted.answer_by(attempt.plan)
        if attempt.images is not None:
            service.image_refusals.record(model_of(accepting, request.owner), accepted=attempt.images)
        if attempt.refused_fields:
            service.field_refusals.record(model_of(accepting, request.owner), attempt.refused_fields)
        if attempt.losses or reply.losses:
            self._report(attempt.losses, self._upstream.clean(reply.losses))
        if not self._choice:  # the first choice, or the only one
            self._losses[:] = attempt.losses
        if tried:
            request.answer_headers.update(tried_header(tried))
        if first.has_equals:
            remember_route(request, service, self._translation.response_id, accepting.candidate.route)

    def _report(self, losses: Sequence[Diagnostic], upstream_header: str = "") -> None:
        """Add these losses, and those that the upstream reports, to the headers of the answer."""
        request = self._request
        all_losses = reported_losses(losses, upstream_header)
        new = [loss for loss in all_losses if loss not in request.reported]
        if new:
            _log.info("request.losses", request_id=request.id, losses=new)
        request.reported.update(dict.fromkeys(all_losses))
        request.answer_headers.update(loss_header(request.reported))

    # What asks for the answers that follow in the same response.

    def _new_rounds(
        self, stream: HostedStream, persistence: ResponseSessionPersistenceTransformer | None
    ) -> Rounds:
        request, service, answers = self._request, self._service, self._answers
        assert answers is not None
        if self._traced is not None:
            answers.ended = self._traced.end_answer
        calls = CallRunner(
            stream,
            self._names(),
            service.settings.tools,
            self._pages,
            request.body.max_tool_calls,
            partial(service.quotas.spend_call, request.owner),
            persistence,
            None if service.spans is None else CallSpans(service.spans, self._content),
        )
        compaction = None
        if request.threshold is not None:
            ask = partial(self._ask_for_summary, stream)
            compaction = ContextCompaction(request, service, ask, self._replace, self._report_loss)
        return Rounds(
            stream,
            calls,
            answers,
            self._ask,
            released=() if request.hosted is None else request.hosted.released,
            compaction=compaction,
            may_correct=self._formatted is not None and not request.body.stop,
        )

    def _next_attempts(self, request: Translated, accept: OnAccepted) -> Attempts:
        others = [each.alone for each in (self._target, *self._target.fallbacks)]
        again = RouteChoice(self._service.routes, others)
        prepare = partial(attempt_at, request)
        return Attempts(self._upstream.target.alone, prepare, accept, self._observe, again)

    async def _attempt(self, target: Target) -> Attempt:
        return await attempt_at(self._request, target)

    def _replace(self, condensed: Translated) -> None:
        """Ask with this request from now on."""
        self._request = condensed

    def _ask(self, items: Sequence[Any], last: bool) -> Attempts:
        return self._next_attempts(_following(self._request, items, last=last), self._accept)

    def _ask_for_summary(self, stream: HostedStream, request: Translated) -> Attempts:
        return self._next_attempts(request, partial(self._accept_summary, stream, request))

    def _accept_summary(
        self,
        stream: HostedStream,
        request: Translated,
        attempt: Attempt,
        _reply: UpstreamReply,
        _tried: Sequence[Tried],
    ) -> None:
        self._upstream.target = attempt.target
        self._meter.answers += not attempt.again
        inbound = window_inbound_for(request, attempt.target, stream, self._upstream.shown)
        self._translation.set_inbound(inbound)

    def _report_loss(self, where: str, why: str) -> None:
        self._report([Diagnostic("loss", where, self._upstream.clean(why))])

    # What keeps the response, and what observes its end.

    def _new_persistence(self) -> ResponseSessionPersistenceTransformer:
        request, leased = self._request, self._request.leased
        has_hosted = request.hosted is not None
        return self._service.runs.new_persistence(
            self._translation,
            request.body,
            request.owner,
            self._wire,
            leased and leased.worker,
            partial(self._upstream.stored_response, self._translation, self._answers, has_hosted=has_hosted),
            request.key,
        )

    def _new_outcome(self, attempts: Attempts, *, ended_elsewhere: bool) -> RunOutcome:
        request, service, answers, traced = self._request, self._service, self._answers, self._traced
        used = partial(self._meter.settle, None) if answers is None else answers.used
        models_of = None if answers is None else answers.models_of
        watches: list[Watch] = [] if traced is None else [traced]
        if service.spans is not None:
            parent, model = service.spans.parent(request.headers), request.body.model or request.target.model
            answered = None if self._content is None else self._content.answered
            span = service.spans.response(parent, model, request.id, asked=self._asked, answered=answered)
            watches.append(span)
        # the last one is the first that observes the end
        watches.append(LogLine(request.id, attempts))
        if request.owner != WITHOUT_KEY:  # else there are no quotas
            watches.append(QuotaCount(service, request.owner, used, request.body.store is not False))
        watches += [self._meter, service.metrics.responses]
        return RunOutcome(
            self._translation,
            attempts,
            watches,
            TokenTiming() if traced is None else traced.timing(),
            ended_elsewhere=ended_elsewhere,
            losses=self._losses,
            rounds=() if answers is None else answers.usage,
            cost_of=None if service.prices is None else partial(cost_of, service.prices, used, models_of),
        )

    def _asked(self) -> Attributes:
        """Return what the request has set, for its span."""
        from openresponses_server.observation.spans import request_attributes

        request = self._request
        attributes = request_attributes(
            request.body,
            stream=request.streams or request.body.stream is True,
            choices=request.choices,
            conversation=conversation_of(request.body) or request.client.conversation,
        )
        return attributes if self._content is None else {**attributes, **self._content.asked()}


def _following(request: Translated, items: Sequence[Any], *, last: bool) -> Translated:
    """Return the request for the next answer: these items follow its own input."""
    own = [*request.own, *items]
    if request.hosted is None:
        body = replace(request.body, input=own)
    else:
        body = request.hosted.following(request.body, own, last=last)
    return replace(request, body=body, own=own, follows=True, continuation=None)
