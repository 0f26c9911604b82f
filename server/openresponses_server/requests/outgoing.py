"""Translates a request for one upstream, and chooses the inbound that reads its response.

What the upstream does not support is handled here, before the dialect translates: compaction items are
opened, a compaction request becomes a prompt for a summary, tools and images that the model can't use are
left out, and a format that the upstream can't enforce is described in the instructions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

from msgspec.structs import asdict, replace

from openresponses_agent.tools.offering import ModelCapabilities, ToolCallMode, tool_call_mode
from openresponses_bridge.calls.declarations import tools_of
from openresponses_bridge.diagnostics import MOST_LOSSES, Diagnostic, loss_header
from openresponses_bridge.dialects.base import AnswerContext, AnswerWay, Cause, History, Inbound, Outgoing
from openresponses_bridge.emitter.failures import Redact
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.beyond import names_of
from openresponses_bridge.protocol.input_items import CompactionParam
from openresponses_bridge.protocol.items import CompactionItem
from openresponses_bridge.protocol.request import CreateResponse, SearchRequest
from openresponses_server.errors import UpstreamError
from openresponses_server.http.access import ACCESS
from openresponses_server.observation.recordings.masking import without_secrets_of
from openresponses_server.requests.abilities import FittedRequest, Loss, fit_to_model, offers_tools
from openresponses_server.requests.answer_format import WAYS, asked_in, plan_of, way_of
from openresponses_server.requests.client_traits import session_key, with_passed_headers
from openresponses_server.requests.compaction import (
    COMPACTION_ITEMS,
    CompactionInbound,
    WindowInbound,
    compaction_request,
    from_window,
    open_compactions,
)
from openresponses_server.requests.constraints import stops_for_upstream
from openresponses_server.requests.context import context_losses, threshold_of
from openresponses_server.requests.prepared import (
    Addressed,
    LeftOut,
    Placed,
    Received,
    Translated,
    UpstreamForm,
)
from openresponses_server.requests.prompts import unknown_prompt
from openresponses_server.requests.reasoning import (
    BOTH,
    RAW,
    REASONING_ITEMS,
    ReasoningAsSummary,
    SealedReasoning,
    has_encrypted,
    open_reasoning,
    reasoning_seal,
    sends_reasoning_back,
    without_encrypted,
)
from openresponses_server.requests.refused_fields import (
    MOST_FIELDS,
    named_fields,
    refused_fields,
    without_fields,
)
from openresponses_server.requests.routes import (
    named_session,
    session_of,
    session_within,
    upstream_response,
)
from openresponses_server.requests.service import Service, target_of
from openresponses_server.requests.truncation import may_truncate
from openresponses_server.runs.hosted_stream import HostedStream
from openresponses_server.runs.metering import MeasuredInput
from openresponses_server.tasks import off_loop, on_thread
from openresponses_server.upstreams.base import UpstreamRequest
from openresponses_server.upstreams.refusals import (
    ImageRefusals,
    OwnersModel,
    has_forgotten,
    is_about,
    is_too_long,
    output_room,
    refuses_format,
)
from openresponses_server.upstreams.routing.attempts import AnswerPlan, Attempt, Remedy
from openresponses_server.upstreams.targets import Target

_ENCRYPTED: Final = re.compile(
    rb'"(encrypted_content|signature|redacted_thinking|thought_signature|thoughtSignature)"'
)  # fields and types, as the dialects name them
_IMAGE: Final = b'"image'  # in every dialect, an image's type or its address is a string that begins so
_FORMAT: Final = "text.format"
_INPUT: Final = "input"
_SEALED_ITEMS: Final[frozenset[Any]] = REASONING_ITEMS | COMPACTION_ITEMS


def find_upstream(request: Received, service: Service) -> Addressed:
    """Find the upstream of the request's model. Raises InvalidRequestError and HttpError for a model that is
    not served or that the key is not for, and for a prompt that it does not know."""
    # a call less for most requests; the key of a claimed one was checked when it was queued
    is_admitted = ACCESS.get() is None or request.leased is not None
    find = service.router.target_of if is_admitted else partial(target_of, service)
    original = target = find(request.body.model, request.owner)
    if service.image_refusals.known:
        target = _without_refused_images(original, request.owner, service.image_refusals)
    if request.choices != 1:
        target = target.for_choices(request.choices)
    if request.body.prompt is not None and not (request.has_template or knows_prompts(target)):
        raise unknown_prompt(request.body)
    return Addressed(
        **asdict(request),
        target=target,
        learn=partial(service.learned_limits.learn, request.owner, request.body.model or original.model),
        field_refusals=service.field_refusals if service.field_refusals.known else None,
        providers=service.hosted,
    )


def knows_prompts(target: Target) -> bool:
    """Return True if the upstream stores prompts itself."""
    return target.dialect.side.outcomes(target.options)["prompt"].kind == "sent"


def _without_refused_images(target: Target, owner: str, refusals: ImageRefusals) -> Target:
    """The target; as one that takes no images, if its model has lately refused images of this owner."""
    fallbacks = tuple(_without_refused_images(each, owner, refusals) for each in target.fallbacks)
    able = target.able
    if model_of(target, owner) in refusals:
        able = replace(able, images=False)
    return target._replace(able=able, fallbacks=fallbacks)


def model_of(target: Target, owner: str) -> OwnersModel:
    """The target's model, as this owner has it."""
    return OwnersModel(owner, target.upstream.name, target.model)


def find_threshold(request: Placed, _service: Service) -> Placed:
    """Find the tokens of input beyond which the conversation is condensed here."""
    if request.compacts or request.choices != 1:
        return request
    return replace(request, threshold=threshold_of(request.body, request.target))


async def translate(request: Placed, _service: Service) -> Translated:
    """Translate the request for its upstream. Raises InvalidRequestError for what can't be sent there."""
    if request.truncator is not None:
        form = await _shortened(request, begun=request.leased is not None)
    else:
        form = translate_request(request)
    left = form.remaining_items
    measured = (
        MeasuredInput(request.body, [*request.lead, *request.history])
        if left is None
        else MeasuredInput(replace(request.body, input=None), left)
    )
    return Translated(**asdict(request), form=form, measured=measured)


async def translate_again(request: Translated) -> Translated:
    """Translate a request whose run has begun: for another upstream, for another answer, or without what its
    upstream has refused."""
    if request.truncator is None:
        return replace(request, form=translate_request(request))
    return replace(request, form=await _shortened(request, begun=True))


async def _shortened(request: Placed, *, begun: bool) -> UpstreamForm:
    """Translate a request that may be shortened: in a thread, if there is something to leave out. `begun`: it
    is not refused while the server stops."""
    if may_truncate(request.body, request.history):
        return await on_thread(partial(translate_request, request), begun=begun)
    return translate_request(request)


def continue_upstream(request: Translated, _service: Service) -> Translated:
    """Find out whether the upstream has stored the response before this request, so that it needs the new
    input only.

    That needs the same server, credentials and model as before, and a history without compaction items and
    without tools.
    """
    before, target, own = request.upstream_response, request.target, request.own
    if request.hosted is not None or request.lead:
        return request  # the upstream has calls that it was sent no outputs of, or other messages of a prompt
    if before is None or before != upstream_response(target, before.id, request.client.key):
        return request
    is_compacted = any(
        isinstance(item, CompactionParam | CompactionItem) for item in (*request.history, *own)
    )
    if request.compacts or not own or is_compacted or any(map(tools_of, request.history)):
        return request
    form = translate_request(replace(request, truncator=None), previous_id=before.id)
    return replace(request, previous_id=before.id, continuation=form)


def translate_request(request: Placed, *, previous_id: str | None = None) -> UpstreamForm:
    """Translate a request. With `previous_id`, the upstream's id of the previous response, the history is not
    sent; the truncator fits the request into the model's context; what the upstream has refused is left out.
    Raises InvalidRequestError with `param` for what this upstream can't be sent."""
    try:
        body, target, left_out = request.body, request.target, request.left_out
        if request.hosted is not None:
            body = request.hosted.body(body)
        losses: dict[Loss, None] = {}
        earlier, own, is_window = _readable(request, previous_id, losses)
        if request.compacts:
            outgoing = target.prepare(compaction_request(body, [*earlier, *own]), [], request.identities)
            return UpstreamForm(outgoing, [*_own_losses(request), *outgoing.diagnostics.of("loss")])
        able = replace(target.able, images=False) if "images" in left_out else target.able
        fit = FittedRequest(body, earlier, own)
        if able.tools is False or able.images is False:
            fit = fit_to_model(body, earlier, own, able)
        whole = fit
        if request.truncator is not None:
            fit = request.truncator.truncated(fit, target, after_refusal="older items" in left_out)
        unchanged = fit.earlier is whole.earlier and fit.own is whole.own and not is_window
        remaining_items = None if unchanged else [*fit.earlier, *fit.own]
        sent = _allowed(request, fit.request, losses) if left_out else fit.request
        way = None
        if body.text is not None:
            may_force, refused = not (request.follows or offers_tools(sent, fit)), "the format" in left_out
            way = way_of(body, target, may_force=may_force, refused=refused)
            if way is not None:
                sent = asked_in(way, sent, target, refused=refused)
            if way in WAYS:
                losses["text.format", WAYS[way]] = None
        sent = _fields_for(request, sent, fit, previous_id, losses)
        mode = _tool_call_mode(able.tools is not False, able.streaming_tool_calls is not False)
        stream = mode is not ToolCallMode.WHOLE or not offers_tools(sent, fit)
        outgoing = target.prepare(sent, fit.earlier, request.identities, stream=stream)
        for where, what in (*losses, *fit.losses):
            outgoing.diagnostics.loss(where, what)
        plan = None if way is None else _plan_for(request, body, way, outgoing)
        lost = outgoing.diagnostics.of("loss")
        if request.losses is not None:
            lost = [*_own_losses(request), *lost]
        return UpstreamForm(outgoing, lost, plan, stream, remaining_items)
    except InvalidRequestError as error:
        param = error.param or ""
        if request.input_param == _INPUT or not param.startswith(_INPUT):
            raise
        # the place among the items is not one in the client's own request
        message = error.message
        if message.startswith(param):
            message = request.input_param + message.removeprefix(param)
        raise InvalidRequestError(error.code, message, param=request.input_param) from error


def _readable(
    request: Placed, previous_id: str | None, losses: dict[Loss, None]
) -> tuple[History, History, bool]:
    """Return the history and the input as the upstream may read them, and whether a compaction in them
    replaces other items."""
    earlier: History = () if previous_id else request.history
    own: History = request.own
    is_window = False
    if not _SEALED_ITEMS.isdisjoint(map(type, (*earlier, *own))):
        before = len(earlier) + len(own)
        earlier, own = open_sealed_items(request.target, earlier, own, losses)
        is_window = len(earlier) + len(own) != before
    if request.lead:
        earlier = [*request.lead, *earlier]
    if "encrypted reasoning" in request.left_out:
        earlier, own = without_encrypted(earlier), without_encrypted(own)
        losses["reasoning", "refused by the upstream, which can't decrypt it"] = None
    return earlier, own, is_window


def _allowed(request: Placed, sent: CreateResponse, losses: dict[Loss, None]) -> CreateResponse:
    """Return what is sent without the limit and the forced call that the upstream has refused."""
    if "a part of the answer" in request.left_out:
        sent = replace(sent, max_output_tokens=request.output_room)
        if request.body.max_output_tokens is not None:
            losses["max_output_tokens", f"lowered to {request.output_room}, the upstream's limit"] = None
    if "the forced call" in request.left_out:
        sent = replace(sent, tool_choice="auto")
        losses["tool_choice", "a call can't be forced there while the model thinks, sent as auto"] = None
    return sent


def _fields_for(
    request: Placed,
    sent: CreateResponse,
    fit: FittedRequest,
    previous_id: str | None,
    losses: dict[Loss, None],
) -> CreateResponse:
    """Return what is sent with the fields that this upstream takes, and without those that are kept here."""
    body, target = request.body, request.target
    if sent.stop:
        sent = stops_for_upstream(sent, target)
    if sent.prompt_cache_key is None and target.traits.takes_cache_keys:
        key = session_key(request.owner, body.user, request.headers)
        sent = sent if key is None else replace(sent, prompt_cache_key=key)
    if isinstance(body.input, list):
        sent = replace(sent, input=list(fit.own))
    if request.has_template:
        sent = replace(sent, prompt=None)
    if sent.conversation is not None:  # it is kept here, and its items are in the history
        sent = replace(sent, conversation=None)
    if sent.context_management:
        losses |= context_losses(body, target, compacts_here=request.threshold is not None)
        if request.threshold is not None:
            sent = replace(sent, context_management=None)
    if target.traits.keeps_responses:
        sent = replace(sent, previous_response_id=previous_id, store=body.store is not False)
    return sent


def _plan_for(request: Placed, body: CreateResponse, way: AnswerWay, outgoing: Outgoing) -> AnswerPlan | None:
    """Return how the answer gets its format."""
    adapted = any(loss.where.startswith(_FORMAT) for loss in outgoing.diagnostics.of("loss"))
    plan = plan_of(body, way, adapted=adapted, streams=request.streams or bool(body.stream))
    if request.unreadable_patterns and plan is not None and way is AnswerWay.NATIVE:
        return replace(plan, schema=None)
    return plan


def inbound_for(request: Placed, target: Target, machine: ResponseStream) -> Inbound:
    """The inbound that feeds this upstream's response to the machine."""
    read = partial(_inbound_of, request, target)
    return CompactionInbound(machine, read, target.sealer) if request.compacts else read(machine)


def window_inbound_for(
    request: Placed, target: Target, stream: HostedStream, redact: Redact
) -> WindowInbound:
    """The inbound that reads the summary that comes before the answer."""
    return WindowInbound(stream, partial(_inbound_of, request, target), redact)


def _inbound_of(request: Placed, target: Target, machine: ResponseStream) -> Inbound:
    client = request.client
    form = client.reasoning_as or target.reasoning_as
    if form == RAW and client.reasoning_as is None and client.shows_only_summaries:
        form = BOTH
    if form != RAW:
        machine = ReasoningAsSummary(machine, form)
    if target.traits.takes_reasoning and sends_reasoning_back(request.body):
        machine = SealedReasoning(machine, reasoning_seal(target))
    side = target.dialect.side
    context = AnswerContext(target.options, target.sealer, request.identities)
    if target.choice is not None and side.choice is not None:
        return side.choice(machine, context, target.choice)
    return side.inbound(machine, context)


def open_sealed_items(
    target: Target, history: History, own: History, losses: dict[Loss, None]
) -> tuple[History, History]:
    """The items with the sealed compactions and reasoning that this upstream may read opened, and without
    those before a compaction that stands for them."""
    sealer, compacts, count = target.sealer, target.dialect.side.compacts, len(own)
    history, own = from_window(history, own, sealer)
    left_out = count - len(own)
    earlier = open_reasoning(history, target, losses)
    own = open_reasoning(own, target, losses)
    return (
        open_compactions(earlier, sealer, _history_param, upstream_compacts=compacts),
        open_compactions(
            own, sealer, lambda index: _input_param(index + left_out), upstream_compacts=compacts
        ),
    )


def _history_param(_index: int) -> str:
    return "previous_response_id"


def _input_param(index: int) -> str:
    return f"{_INPUT}[{index}].encrypted_content"


@cache
def _tool_call_mode(tools: bool, streaming: bool) -> ToolCallMode:
    return tool_call_mode(ModelCapabilities(tools, streaming))


# The header that reports losses to the client: this server's, and those that an upstream reports.


def report_losses(request: Translated, _service: Service) -> Translated:
    """Report what the request lost in translation in the headers of its answer."""
    if losses := (request.continuation or request.form).losses:
        request.answer_headers.update(loss_header(reported_losses(losses)))
    return request


def _own_losses(request: Placed) -> list[Diagnostic]:
    """Return the losses of the client's dialect."""
    return [] if request.losses is None else request.losses.of("loss")


def unknown_fields(request: CreateResponse | SearchRequest) -> list[Diagnostic]:
    """Fields of the request that are not known, reported as losses where no upstream is asked."""
    return [Diagnostic("loss", name, "is not known") for name in names_of(request.beyond)]


def reported_losses(losses: Iterable[Diagnostic], upstream_header: str = "") -> list[str]:
    """The entries of the header; `upstream_header` is an upstream's own header, cut to the greatest
    length."""
    ours = [f"{loss.where}: {loss.what}" for loss in losses]
    if not upstream_header:
        return ours
    return [*ours, *filter(None, (each.strip() for each in upstream_header[:MOST_LOSSES].split(";")))]


# The attempts at an upstream: with the new input only where it has stored what came before, else with the
# whole history. Each refusal leads to a request that lacks more.


async def attempt_at(request: Translated, target: Target) -> Attempt:
    """Return the attempt at this target. The request is translated again, unless that was the target that it
    was translated for."""
    is_other = target.candidate.route != request.target.candidate.route
    request = replace(request, target=target)
    if is_other or request.follows:
        return await _attempt(await translate_again(request))
    if request.continuation is None:
        return await _attempt(request)
    attempt = await _attempt(replace(request, form=request.continuation))
    forgotten = partial(has_forgotten, response_id=request.previous_id)
    whole = Remedy("request.with_history", forgotten, partial(_with_history, request))
    return replace(attempt, remedies=[whole])


async def _with_history(request: Translated, _error: UpstreamError) -> Attempt:
    return await _attempt(request)


async def _without(
    request: Translated, what: LeftOut, refused: bytes, error: UpstreamError
) -> Attempt | None:
    """Return the attempt without this; None if that changes nothing."""
    room = output_room(error, refused) or request.output_room
    less = replace(request, left_out=request.left_out | {what}, output_room=room)
    attempt = await _attempt(await translate_again(less))
    return None if attempt.request.body == refused else attempt


async def _without_fields(request: Translated, refused: bytes, error: UpstreamError) -> Attempt | None:
    """Return the attempt without the fields that the refusal names; None if it names none."""
    fields = await off_loop(len(refused), partial(refused_fields, error, refused), begun=True)
    if not fields:
        return None
    return await _attempt(replace(request, dropped_fields=request.dropped_fields.union(fields)))


async def _attempt(request: Translated) -> Attempt:
    target, client, form, fields = request.target, request.client, request.form, request.dropped_fields
    body, losses = form.outgoing.body, form.losses
    headers: dict[str, str] = {}
    if client.passed_headers or target.session_headers is not None:  # a call less for most requests
        headers, unknown = _headers_for(request, target, partial(session_of, request))
        losses = [*losses, *unknown]
    known = request.field_refusals and request.field_refusals.of(model_of(target, request.owner))
    if fields or known:
        leave_out = partial(without_fields, body, sorted(fields.union(known or ())))
        body, gone = await off_loop(len(body), leave_out, begun=True)
        losses = [*losses, *(Diagnostic("loss", each, "the upstream does not accept it") for each in gone)]
    sent = UpstreamRequest(
        target.dialect.fixed_path or target.dialect.path(target.model, stream=form.stream),
        body,
        request.id,
        client.key,
        form.stream,
        headers,
        request.owner,
        client.conversation,
        partial(without_secrets_of, request.body),
        target.dialect.dialect.name,
        model=target.model,
    )
    remedies: list[Remedy] = []
    if "a part of the answer" not in request.left_out:
        less = partial(_without, request, "a part of the answer", body)
        remedies.append(Remedy("request.output_limited", partial(output_room, sent=body), less, late=False))
    if len(fields) < MOST_FIELDS:
        fewer = partial(_without_fields, request, body)
        remedies.append(Remedy("request.without_fields", named_fields, fewer, late=False))
    droppable = _droppable(request, body)
    for what in droppable:
        event, helps = _REMEDIES[what]
        remedies.append(Remedy(event, helps, partial(_without, request, what, body)))
    images = True if "images" in droppable else False if "images" in request.left_out else None
    return Attempt(
        target,
        sent,
        losses,
        remedies,
        images=images,
        plan=form.plan,
        learn=request.learn,
        refused_fields=fields,
    )


def _headers_for(
    request: Received, target: Target, session: Callable[[], str]
) -> tuple[dict[str, str], list[Diagnostic]]:
    """Return the headers of the request for this upstream besides the upstream's own, and those of the client
    that are not among them. `session` returns the name of the session."""
    headers: dict[str, str] = {}
    unknown: list[Diagnostic] = []
    if request.client.passed_headers:
        headers, unknown = with_passed_headers(request.body, target, request.client.passed_headers)
    if target.session_headers is not None:
        headers = {**headers, **target.session_headers.of(session())}
    return headers, unknown


# Connections that are opened before their requests.


def prewarm(request: Placed, _service: Service) -> Placed:
    """Begin to open the connection that the request needs, while tools are listed, files are fetched and a
    slot is waited for. A request that is only queued needs none here."""
    if request.leased is not None or not request.body.background:
        prewarm_for(request, request.target, request.before.responses, request.response_id)
    return request


def prewarm_for(request: Received, target: Target, chain: Sequence[str], response_id: str) -> None:
    """Begin to open a connection to this target for a request that continues the last response of `chain`.
    `response_id` is the id of its response, "" if that is not known: then none is opened for a session that
    would have that name, whose headers are not known either."""
    if target.session_headers is not None and not (chain or response_id or named_session(request)):
        return
    session = partial(session_within, request, chain, response_id)
    headers, _ = _headers_for(request, target, session)
    named = request.body.prompt_cache_key
    if named is None and target.traits.takes_cache_keys:
        named = session_key(request.owner, request.body.user, request.headers)
    target.upstream.prewarm(
        UpstreamRequest(
            target.dialect.fixed_path or target.dialect.path(target.model, stream=True),
            b"",
            request.id,
            request.client.key,
            headers=headers,
            owner=request.owner,
            conversation=named or "",
        )
    )


_REMEDIES: Final[Mapping[LeftOut, tuple[str, Callable[[UpstreamError], object]]]] = {
    "older items": ("request.shortened", is_too_long),
    "encrypted reasoning": ("request.without_encrypted", partial(is_about, Cause.REASONING)),
    "images": ("request.without_images", partial(is_about, Cause.IMAGES)),
    "the format": ("request.format_instructed", refuses_format),
    "the forced call": ("request.without_forced_call", partial(is_about, Cause.FORCED_CALL)),
}
"""What can be left out → the log's event, and the refusal that helps against."""
_UNFORCED: Final = (None, "auto", "none")


def _droppable(request: Translated, sent: bytes) -> list[LeftOut]:
    """Return which of the things that an upstream may refuse and that can be left out this request has."""
    options: list[LeftOut] = []
    body, target = request.body, request.target
    if request.truncator is not None and target.shared is None and may_truncate(body, request.history):
        options.append("older items")
    if _ENCRYPTED.search(sent) is not None and has_encrypted((*request.history, *request.own)):
        options.append("encrypted reasoning")
    if _IMAGE in sent and target.able.images is not False:
        options.append("images")
    if body.text is not None and not request.compacts:
        way = way_of(body, target)
        if way is not None and way is not AnswerWay.INSTRUCTED:  # its model could be instructed instead
            options.append("the format")
    if body.tool_choice not in _UNFORCED:
        options.append("the forced call")
    return [each for each in options if each not in request.left_out] if request.left_out else options
