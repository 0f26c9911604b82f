"""From a request to its run: the passes that prepare it, then the run with its attempts at the upstreams."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Final, NamedTuple

import structlog
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.dialects.base import AnswerWay
from openresponses_bridge.emitter.citing import FoundPages
from openresponses_bridge.emitter.failures import redacted
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.secrets import request_without_secrets
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.wire import wire_for
from openresponses_server.errors import UpstreamError, code_for_codex
from openresponses_server.observation.recordings.masking import without_secrets_of
from openresponses_server.observation.responses import TokenTiming, Watch
from openresponses_server.observation.traces import REQUEST, RunTrace
from openresponses_server.requests.admission import (
    QuotaCount,
    apply_updates,
    check_fields,
    check_store,
    count_request,
    expand_prompt,
    load_history,
    reserve,
)
from openresponses_server.requests.answer_format import check_patterns, way_of
from openresponses_server.requests.client_traits import read_headers, with_betas
from openresponses_server.requests.condensing import ContextCompaction, plan_compaction
from openresponses_server.requests.constraints import machine_for, with_stop_filter
from openresponses_server.requests.formatted_stream import FormattedStream
from openresponses_server.requests.outgoing import (
    LeftOut,
    choose_upstream,
    continue_upstream,
    inbound_for,
    loss_header,
    losses_of,
    model_of,
    report_losses,
    reported_losses,
    translate,
    translated_for,
    window_inbound_for,
)
from openresponses_server.requests.prepared import PreparedRequest, TranslatedRequest
from openresponses_server.requests.reasoning import has_encrypted
from openresponses_server.requests.routes import remember_route, upstream_response
from openresponses_server.requests.service import Service
from openresponses_server.requests.truncation import may_truncate
from openresponses_server.runs.metering import Meter, Used, cost_of
from openresponses_server.runs.outcome import LogLine, RunOutcome
from openresponses_server.runs.pipeline import Translation
from openresponses_server.runs.rounds import HostedNames, HostedStream, Rounds
from openresponses_server.runs.run import Run, RunRequest
from openresponses_server.store.base import UpstreamResponse
from openresponses_server.upstreams.attempts import Attempt, Attempts, OnAccepted, Remedy
from openresponses_server.upstreams.base import UpstreamReply, UpstreamRequest
from openresponses_server.upstreams.choice import Route
from openresponses_server.upstreams.refusals import (
    cannot_decrypt,
    has_forgotten,
    is_about_the_key,
    is_too_long,
    output_room,
    refuses_format,
    sees_no_images,
)
from openresponses_server.upstreams.routes import Tried, tried_header
from openresponses_server.upstreams.targets import Target

_ENCRYPTED: Final = re.compile(
    rb'"(encrypted_content|signature|redacted_thinking|thought_signature|thoughtSignature)"'
)  # fields and types, as the dialects name them
_IMAGE: Final = b'"image'  # in every dialect, an image's type or its address is a string that begins so
_log = structlog.get_logger(__name__)

Step = Callable[[PreparedRequest, Service], Awaitable[None] | None]
"""One step of preparing a request: it checks it or adds to it. Raises HttpError or InvalidRequestError, with
`param`, for what can't be honoured."""


class Pass(NamedTuple):
    """A step, and the field of the body without which it has nothing to do; "" if it always has."""

    step: Step
    field: str = ""


PASSES: Final = (
    Pass(read_headers),
    Pass(expand_prompt, "prompt"),
    Pass(check_fields),
    Pass(check_store),
    Pass(choose_upstream),
    Pass(count_request),
    Pass(load_history),
    Pass(apply_updates),
    Pass(translate),
    Pass(check_patterns, "text"),
    Pass(plan_compaction, "context_management"),
    Pass(continue_upstream),
    Pass(reserve),
    Pass(report_losses),
)


async def prepare(request: PreparedRequest, service: Service) -> PreparedRequest:
    """Pass the request through all of `PASSES`, and return it. Raises what a pass raises."""
    try:
        for step, field in PASSES:
            if field and getattr(request.body, field) is None:
                continue
            rest = step(request, service)
            if rest is not None:
                await rest
    except BridgeError as error:
        if request.continued is not None:
            request.continued.reservation.release()
        if error.param == "previous_response_id" and request.body.conversation is not None:
            error.param = "conversation"  # what came before has this name here
        raise
    return request


def new_run(request: PreparedRequest, service: Service, choice: int | None = None) -> Run:
    """A new run of the request, or of one choice. The caller reserves the slot and the memory of all choices
    together."""
    body, key, leased = request.body, request.client.key, request.leased
    for_codex = request.client.is_codex  # what is kept for the whole run does not hold the request
    target = accepting = request.target if choice is None else request.target.of_choice(choice)
    all_shared = [] if choice is None else request.target.all_shared
    # the first choice counts a request that choices share
    counted_elsewhere = {shared.upstream.name for shared in all_shared} if choice else set()

    def clean(text: str) -> str:
        cleaned = without_secrets_of(body, accepting.upstream.clean(text, key))
        return code_for_codex(cleaned) if for_codex else cleaned

    def shown(error: ErrorPayload) -> ErrorPayload:
        ours = accepting.upstream.key_refused(key)
        if ours and is_about_the_key(error):
            return ErrorPayload("server_error", UpstreamError.AUTHENTICATION, ours, None)
        return redacted(error, clean)

    share = max(shared.readers for shared in all_shared) if all_shared else 1
    name = body.model or request.target.model
    wire = wire_for(body, request.headers, request.client.wire) if leased is None else leased.wire
    meter = Meter(
        service.meters,
        request.owner,
        name,
        request.target,
        request.measured,
        0 if counted_elsewhere else share,
    )
    has_hosted = request.hosted is not None
    has_rounds = has_hosted or request.is_due or request.translated.plan is not None
    pages = FoundPages() if has_hosted else None
    rounds: Rounds | None = None

    def settle(usage: Usage | None, output: Sequence[Any]) -> Usage | None:
        assert rounds is not None
        return rounds.settle(usage, output)

    constrained = machine_for(
        body,
        name,
        request.identities,
        wire,
        compacts=request.compacts,
        redact=shown,
        settle_usage=settle if has_rounds else meter.settle,
        unknown_fields=request.losses is None,
        pages=pages,
    )
    if leased is not None:
        constrained.adopt(leased.response)
    machine = constrained
    formatted = hosted = None
    if request.translated.plan is not None:
        machine = formatted = FormattedStream(constrained, request.identities)
    if has_rounds:
        names = HostedNames({}, request.identities)
        if request.hosted is not None:
            excluded = request.hosted.excluded(body.tool_choice)
            names = HostedNames(request.hosted.tools, request.identities, excluded)
        machine = hosted = HostedStream(machine, names, formatted)
        if request.hosted is not None:
            hosted.open_with([item for entry in request.hosted.entries for item in entry.preface])
    if body.stop and not request.compacts:
        machine = with_stop_filter(machine, body.stop)
    translation = Translation(
        machine,
        inbound_for(request, target, machine),
        most=service.settings.limits.output_bytes,
        judged=hosted,
        text_after_tools=target.text_after_tools,
    )
    chosen = request.chosen
    if chosen is None and choice is not None and target.fallbacks:
        chosen = service.routes.choice((target, *target.fallbacks))
    # a closure over the outcome would be a reference cycle through the attempts
    losses: list[Diagnostic] = []

    def accepted(attempt: Attempt, reply: UpstreamReply, tried: Sequence[Tried]) -> None:
        nonlocal accepting
        accepting = meter.accepting = attempt.target
        meter.answers += not attempt.again
        if accepting is not target or attempt.again or hosted is not None:
            translation.set_inbound(inbound_for(request, accepting, machine), accepting.text_after_tools)
        if formatted is not None:
            formatted.answer_by(attempt.plan)
        if attempt.images is not None:
            service.image_refusals.record(model_of(accepting, request.owner), accepted=attempt.images)
        if attempt.losses or reply.losses:
            _report(request, attempt, clean(reply.losses))
        if not choice:  # the first choice, or the only one
            losses[:] = attempt.losses
        if tried:
            request.answer_headers.update(tried_header(tried))
        if target.has_equals:
            remember_route(request, service, translation.response_id, accepting.candidate.route)

    traced = None if (trace := REQUEST.get()) is None else trace.of_run(translation)

    def count_asked(upstream: str, outcome: str) -> None:
        if traced is not None and outcome != "accepted":
            traced.refused_by(outcome)
        if upstream not in counted_elsewhere:
            service.metrics.asked(upstream, outcome)

    def stored_upstream() -> UpstreamResponse | None:
        summarized = compaction is not None and compaction.is_done
        if has_hosted or summarized or (rounds is not None and rounds.has_corrected):
            return None  # it has calls without outputs, a summary that is not in it, or one answer of two
        return upstream_response(accepting, translation.upstream_response_id, key)

    persistence = None
    if body.store is not False:
        persistence = service.runs.new_persistence(
            translation, body, request.owner, wire, leased and leased.worker, stored_upstream
        )
    prepared = partial(_attempt_at, request, target.candidate.route)
    attempts = Attempts(target, prepared, accepted, count_asked, service.routes, chosen)
    compaction = None
    if hosted is not None:

        def next_attempts(asked: PreparedRequest, accepted: OnAccepted) -> Attempts:
            others = [each.alone for each in (target, *target.fallbacks)]
            again = service.routes.choice(others) if target.fallbacks else None
            prepared = partial(_following_attempt, asked)
            return Attempts(accepting.alone, prepared, accepted, count_asked, service.routes, again)

        def ask(items: Sequence[Any], last: bool) -> Attempts:
            return next_attempts(_following(request, items, last=last), accepted)

        def ask_for_summary(asked: PreparedRequest) -> Attempts:
            def read(attempt: Attempt, _reply: UpstreamReply, _tried: Sequence[Tried]) -> None:
                nonlocal accepting
                accepting = attempt.target
                meter.answers += not attempt.again
                translation.set_inbound(window_inbound_for(asked, accepting, hosted, shown))

            return next_attempts(asked, read)

        def report(where: str, why: str) -> None:
            _report_losses(request, [Diagnostic("loss", where, clean(why))])

        if request.threshold is not None:
            compaction = ContextCompaction(request, service, ask_for_summary, report)
        rounds = Rounds(
            hosted,
            names,
            service.settings.tools,
            ask,
            pages,
            most_calls=body.max_tool_calls,
            spend=partial(service.quotas.spend_call, request.owner),
            reserve=request.reservation.grow,
            count=meter.settle,
            model=lambda: accepting.model,
            ended=None if traced is None else traced.end_answer,
            released=() if request.hosted is None else request.hosted.released,
            compaction=compaction,
            may_correct=formatted is not None and not body.stop,
        )
    used = partial(meter.settle, None) if rounds is None else rounds.used
    outcome = RunOutcome(
        translation,
        attempts,
        _watches(request, service, traced, LogLine(request.id, attempts), meter, used),
        TokenTiming() if traced is None else traced.timing(),
        ended_elsewhere=persistence is not None,
        losses=losses,
        rounds=() if rounds is None else rounds.usage,
        cost_of=None
        if service.prices is None
        else partial(cost_of, service.prices, used, None if rounds is None else rounds.answered_by),
    )
    memory = request.reservation if choice is None else service.available.budget.reserve(request.owner)
    return Run(
        RunRequest(
            request.owner,
            translation,
            attempts,
            outcome,
            memory,
            persistence,
            background=bool(body.background),
            personal=(key is not None and any(each.pass_through for each in service.settings.upstreams))
            or bool(body.background and request_without_secrets(body) is not body),
            for_codex=for_codex,
            slot_reserved=choice is not None,
            previous_attempts=0 if leased is None else leased.previous_attempts,
            check=partial(service.quotas.check_budget, request.owner),
            rounds=rounds,
        ),
        service,
    )


def _watches(
    request: PreparedRequest,
    service: Service,
    traced: RunTrace | None,
    line: LogLine,
    meter: Meter,
    used: Used,
) -> list[Watch]:
    """What observes the run. The last one is the first that observes its end."""
    watches: list[Watch] = [] if traced is None else [traced]
    target, body = request.target, request.body
    if service.spans is not None:
        parent = service.spans.parent(request.headers)
        watches.append(service.spans.response(parent, body.model or target.model, request.id))
    quota = QuotaCount(service, request.owner, used, body.store is not False)
    return [*watches, line, quota, meter, service.metrics.responses]


def _report(request: PreparedRequest, attempt: Attempt, upstream_header: str) -> None:
    """Add the losses of the attempt that was accepted, and those that its upstream reports, to the headers of
    the answer."""
    _report_losses(request, attempt.losses, upstream_header)


def _report_losses(request: PreparedRequest, losses: list[Diagnostic], upstream_header: str = "") -> None:
    found = reported_losses(losses, upstream_header)
    new = [loss for loss in found if loss not in request.reported]
    if new:
        _log.info("request.losses", request_id=request.id, losses=new)
    request.reported.update(dict.fromkeys(found))
    request.answer_headers.update(loss_header(request.reported))


def _following(request: PreparedRequest, items: Sequence[Any], *, last: bool) -> PreparedRequest:
    """The request for the next answer: these items follow its own input."""
    following = copy(request)
    following.own = [*request.own, *items]
    following.follows = True
    if request.hosted is None:
        following.body = replace(request.body, input=following.own)
    else:
        following.body = request.hosted.following(request.body, following.own, last=last)
    following.previous_id = following.continuation = None
    return following


# The attempts for a request: at its first target with the new input only, with the whole history, or
# truncated; at another one always with the whole history.


async def _attempt_at(request: PreparedRequest, first: Route, target: Target) -> Attempt:
    """The attempt at a target; `first` is the route that the request was prepared for."""
    if target.candidate.route != first:
        return _attempt(request, target, await translated_for(request, target, begun=True))
    if request.previous_id is None or request.continuation is None:
        return _attempt(request, target, request.translated)
    forgotten = partial(has_forgotten, response_id=request.previous_id)
    whole = Remedy("request.with_history", forgotten, partial(_with_history, request, target))
    return replace(_attempt(request, target, request.continuation), remedies=[whole])


async def _following_attempt(request: PreparedRequest, target: Target) -> Attempt:
    """The attempt for a next answer of the same response."""
    return _attempt(request, target, await translated_for(request, target, begun=True))


async def _with_history(request: PreparedRequest, target: Target, _error: UpstreamError) -> Attempt:
    return _attempt(request, target, request.translated)


async def _without(
    request: PreparedRequest,
    target: Target,
    left_out: frozenset[LeftOut],
    refused: bytes,
    error: UpstreamError,
) -> Attempt | None:
    request.output_room = output_room(error, refused) or request.output_room
    translated = await translated_for(request, target, left_out, begun=True)
    return None if translated.outgoing.body == refused else _attempt(request, target, translated, left_out)


def _attempt(
    request: PreparedRequest,
    target: Target,
    translated: TranslatedRequest,
    left_out: frozenset[LeftOut] = frozenset(),
) -> Attempt:
    client, headers = request.client, {}
    if client.betas:
        headers = with_betas(request.body, target, client.betas, translated.outgoing.diagnostics)
    sent = UpstreamRequest(
        target.dialect.path(target.model, stream=translated.stream),
        translated.outgoing.body,
        request.id,
        client.key,
        translated.stream,
        headers,
        request.owner,
        client.conversation,
        partial(without_secrets_of, request.body),
    )
    remedies = []
    if "a part of the answer" not in left_out:
        less = partial(_without, request, target, left_out | {"a part of the answer"}, sent.body)
        remedies.append(
            Remedy("request.output_limited", partial(output_room, sent=sent.body), less, late=False)
        )
    images = False if "images" in left_out else None
    known = _REMEDIES if request.body.text is None else _FORMAT_REMEDIES
    for what, (event, helps, has) in known.items():
        if what not in left_out and has(request, target, sent.body):
            without = partial(_without, request, target, left_out | {what}, sent.body)
            remedies.append(Remedy(event, helps, without))
            if what == "images":
                images = True
    losses = losses_of(request, translated)
    return Attempt(target, sent, losses, remedies, images=images, plan=translated.plan)


def _may_be_shortened(request: PreparedRequest, target: Target, _sent: bytes) -> bool:
    if request.truncator is None or target.shared is not None:
        return False
    return may_truncate(request.body, request.history)


def _has_encrypted(request: PreparedRequest, _target: Target, sent: bytes) -> bool:
    return _ENCRYPTED.search(sent) is not None and has_encrypted((*request.history, *request.own))


def _has_other_way(request: PreparedRequest, target: Target, _sent: bytes) -> bool:
    """Whether the answer is asked for in a format that its model could be instructed to keep instead."""
    way = None if request.compacts else way_of(request.body, target)
    return way is not None and way is not AnswerWay.INSTRUCTED


def _has_images(_request: PreparedRequest, target: Target, sent: bytes) -> bool:
    return _IMAGE in sent and target.able.images is not False


_Remedies = Mapping[
    LeftOut,
    tuple[str, Callable[[UpstreamError], bool], Callable[[PreparedRequest, Target, bytes], bool]],
]
_REMEDIES: Final[_Remedies] = {
    "older items": ("request.shortened", is_too_long, _may_be_shortened),
    "encrypted reasoning": ("request.without_encrypted", cannot_decrypt, _has_encrypted),
    "images": ("request.without_images", sees_no_images, _has_images),
}
"""What can be left out → the log's event, which refusal that helps against, whether the request has any."""
_FORMAT_REMEDIES: Final[_Remedies] = {
    **_REMEDIES,
    "the format": ("request.format_instructed", refuses_format, _has_other_way),
}
