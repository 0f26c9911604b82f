"""Translates a request for one upstream, and chooses the inbound that reads its response.

What the upstream does not support is handled here, before the dialect translates: compaction items are
opened, a compaction request becomes a prompt for a summary, tools and images that the model can't use are
left out, and a format that the upstream can't enforce is described in the instructions.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import cache, partial
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.calls.declarations import tools_of
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.dialects.base import AnswerContext, AnswerWay, History, Inbound, invalid
from openresponses_bridge.emitter.failures import Redact
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.beyond import names_of
from openresponses_bridge.protocol.content import InputFileContent, InputImageContent, InputImageParam
from openresponses_bridge.protocol.input_items import CompactionParam
from openresponses_bridge.protocol.items import CompactionItem
from openresponses_bridge.protocol.request import CreateResponse, SearchRequest
from openresponses_bridge.tools.offering import ModelCapabilities, ToolCallMode, tool_call_mode
from openresponses_server.http.access import ACCESS
from openresponses_server.http.client.fetching import FetchError, fetch_file
from openresponses_server.requests.abilities import FittedRequest, Loss, fit_to_model, offers_tools
from openresponses_server.requests.answer_format import WAYS, asked_in, plan_of, way_of
from openresponses_server.requests.client_traits import session_key
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
from openresponses_server.requests.hosted import offer_hosted
from openresponses_server.requests.prepared import PreparedRequest, TranslatedRequest
from openresponses_server.requests.prompts import unknown_prompt
from openresponses_server.requests.reasoning import (
    BOTH,
    RAW,
    REASONING_ITEMS,
    ReasoningAsSummary,
    SealedReasoning,
    open_reasoning,
    reasoning_seal,
    sends_reasoning_back,
    without_encrypted,
)
from openresponses_server.requests.routes import choose_route, upstream_response
from openresponses_server.requests.service import Service, target_of
from openresponses_server.requests.truncation import Truncator, may_truncate
from openresponses_server.runs.metering import MeasuredInput
from openresponses_server.runs.rounds import HostedStream
from openresponses_server.tasks import on_thread
from openresponses_server.upstreams.base import LOSSES_HEADER
from openresponses_server.upstreams.refusals import ImageRefusals, OwnersModel
from openresponses_server.upstreams.targets import Target

LeftOut = Literal["a part of the answer", "older items", "encrypted reasoning", "images", "the format"]
"""What a request can do without when an upstream has refused it."""

_FORMAT: Final = "text.format"
_LONGEST_NAME: Final = 200  # characters of a file's name
_SEALED_ITEMS: Final[frozenset[Any]] = REASONING_ITEMS | COMPACTION_ITEMS


def choose_upstream(request: PreparedRequest, service: Service) -> None:
    """Find the upstream of the request's model. Raises InvalidRequestError and HttpError for a model that is
    not served or that the key is not for, and for a prompt that it does not know."""
    # a call less for most requests; the key of a claimed one was checked when it was queued
    is_admitted = ACCESS.get() is None or request.leased is not None
    find = service.router.target_of if is_admitted else partial(target_of, service)
    found = find(request.body.model, request.owner)
    target = found
    if service.image_refusals.until:
        target = _without_refused_images(found, request.owner, service.image_refusals)
    request.target = target if request.choices == 1 else target.for_choices(request.choices)
    request.chosen = None
    if request.body.prompt is not None and not (request.has_template or knows_prompts(request.target)):
        raise unknown_prompt(request.body)


def knows_prompts(target: Target) -> bool:
    """Whether the upstream stores prompts itself."""
    return target.dialect.side.outcomes(target.options)["prompt"].kind == "sent"


def _without_refused_images(target: Target, owner: str, refusals: ImageRefusals) -> Target:
    """The target as one that sees no images, where its model has refused this owner's lately."""
    fallbacks = tuple(_without_refused_images(each, owner, refusals) for each in target.fallbacks)
    able = target.able
    if model_of(target, owner) in refusals:
        able = replace(able, images=False)
    return target._replace(able=able, fallbacks=fallbacks)


def model_of(target: Target, owner: str) -> OwnersModel:
    """The target's model, as this owner has it."""
    return OwnersModel(owner, target.upstream.name, target.model)


async def translate(request: PreparedRequest, service: Service) -> None:
    """Translate the request for its upstream. Raises InvalidRequestError for what can't be sent there."""
    request.hosted = request.threshold = None
    request.is_due = False
    if request.target.fallbacks:
        await choose_route(request, service)
    if request.body.context_management and not request.compacts and request.choices == 1:
        request.threshold = threshold_of(request.body, request.target)
    if service.hosted:
        await offer_hosted(request, service)
    if request.target.fetches:
        await fetch_addresses(request, service)
    request.identities = ToolIdentityMap()
    request.truncator = request.output_room = None
    if request.body.truncation == "auto":
        request.truncator = Truncator(service.meters.counter(request.owner))
    begun = request.leased is not None
    try:
        request.translated = await translated_for(request, request.target, begun=begun)
    except InvalidRequestError as error:
        if error.code != InvalidRequestError.UNPAIRED_CALL or request.input_param == "input":
            raise
        # its place among the items is not one in the client's own request; the message names the call
        raise InvalidRequestError(error.code, error.message, param=request.input_param) from error
    left = request.translated.remaining_items
    request.measured = (
        MeasuredInput(request.body, [*request.lead, *request.history])
        if left is None
        else MeasuredInput(replace(request.body, input=None), left)
    )


# Files and images that a request names by their addresses, for an upstream that is sent their bytes.

_IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_FILE_TYPES: Final = frozenset({"application/pdf", "application/json"})
_PART_FIELDS: Final = ("content", "output")


async def fetch_addresses(request: PreparedRequest, service: Service) -> None:
    """Put the bytes of files and images in the place of their addresses. Raises InvalidRequestError for one
    that can't be fetched, with the place of its address, and HttpError 429 if there is no room for it."""
    fetched: dict[str, str] = {}
    left = service.settings.limits.fetched_bytes

    async def data_url(url: str, accepts: Callable[[str], bool], param: str) -> str:
        nonlocal left
        limits = service.settings.limits
        if url not in fetched:
            try:
                if len(fetched) >= limits.fetched_files:
                    raise FetchError(f"a request has at most {limits.fetched_files} files to fetch")
                held = request.reservation.size
                request.reservation.grow(left)
                file = await fetch_file(url, accepts, most=left, seconds=limits.fetch_seconds)
            except FetchError as error:
                raise invalid(param, f"the file can't be fetched: {error}") from error
            left -= len(file.data)
            text = f"data:{file.media_type};base64,{b64encode(file.data).decode()}"
            request.reservation.resize(held + len(text))
            fetched[url] = text
        return fetched[url]

    async def without_addresses(item: Any, where: str) -> Any:
        for field in _PART_FIELDS:
            parts = getattr(item, field, None)
            if isinstance(parts, list):
                made = [
                    await _with_bytes(part, request.target.fetches, data_url, f"{where}.{field}[{number}]")
                    for number, part in enumerate(parts)
                ]
                if any(new is not old for new, old in zip(made, parts, strict=True)):
                    item = replace(item, **{field: made})
        return item

    own, history = request.own, request.history
    request.own = [await without_addresses(each, f"input[{at}]") for at, each in enumerate(own)]
    request.history = [await without_addresses(each, "previous_response_id") for each in history]
    request.lead = [await without_addresses(each, "prompt.variables") for each in request.lead]


async def _with_bytes(
    part: Any,
    kinds: Sequence[str],
    data_url: Callable[[str, Callable[[str], bool], str], Awaitable[str]],
    where: str,
) -> Any:
    if isinstance(part, InputFileContent) and part.file_url and "files" in kinds and not part.file_data:
        name = part.filename or urlsplit(part.file_url).path.rpartition("/")[2][:_LONGEST_NAME] or "file"
        found = await data_url(part.file_url, _is_file_type, f"{where}.file_url")
        return replace(part, filename=name, file_data=found, file_url=UNSET)
    if isinstance(part, InputImageParam | InputImageContent) and "images" in kinds:
        url = part.image_url
        if isinstance(url, str) and not url.startswith("data:"):
            found = await data_url(url, _IMAGE_TYPES.__contains__, f"{where}.image_url")
            return replace(part, image_url=found)
    return part


def _is_file_type(media_type: str) -> bool:
    return media_type in _FILE_TYPES or media_type in _IMAGE_TYPES or media_type.startswith("text/")


async def translated_for(
    request: PreparedRequest, target: Target, left_out: Collection[LeftOut] = (), *, begun: bool
) -> TranslatedRequest:
    """The request for this upstream, as `translate_request` makes it: on a thread if it may be shortened.
    `begun`: its run has begun, and is not refused while the server stops."""
    work = partial(translate_request, request, target, truncator=request.truncator, left_out=left_out)
    if request.truncator is not None and may_truncate(request.body, request.history):
        return await on_thread(work, begun=begun)
    return work()


def continue_upstream(request: PreparedRequest, _service: Service) -> None:
    """Find out whether the upstream has stored the response before this request, so that it needs the new
    input only.

    That needs the same server, credentials and model as before, and a history without compaction items and
    without tools.
    """
    before, target, own = request.upstream_response, request.target, request.own
    request.previous_id = request.continuation = None
    if request.hosted is not None or request.lead:
        return  # the upstream has calls that it was sent no outputs of, or other messages of a prompt
    if before is None or before != upstream_response(target, before.id, request.client.key):
        return
    is_compacted = any(
        isinstance(item, CompactionParam | CompactionItem) for item in (*request.history, *own)
    )
    if request.compacts or not own or is_compacted or any(map(tools_of, request.history)):
        return
    request.previous_id = before.id
    request.continuation = translate_request(request, target, previous_id=before.id)


def translate_request(
    request: PreparedRequest,
    target: Target,
    *,
    previous_id: str | None = None,
    truncator: Truncator | None = None,
    left_out: Collection[LeftOut] = (),
) -> TranslatedRequest:
    """Translate a request. With `previous_id`, the upstream's id of the previous response, the history is not
    sent; `truncator` fits the request into the model's context; `left_out` is not sent, because the upstream
    has refused it. Raises InvalidRequestError with `param` for what this upstream can't be sent."""
    body, identities = request.body, request.identities
    if request.hosted is not None:
        body = request.hosted.body(body)
    losses: dict[Loss, None] = {}
    earlier: History = () if previous_id else request.history
    own: History = request.own
    is_window = False
    if not _SEALED_ITEMS.isdisjoint(map(type, (*earlier, *own))):
        before = len(earlier) + len(own)
        earlier, own = open_sealed_items(target, earlier, own, losses)
        is_window = len(earlier) + len(own) != before
    if request.lead:
        earlier = [*request.lead, *earlier]
    if "encrypted reasoning" in left_out:
        earlier, own = without_encrypted(earlier), without_encrypted(own)
        losses["reasoning", "refused by the upstream, which can't decrypt it"] = None
    if request.compacts:
        summarize = compaction_request(body, [*earlier, *own])
        return TranslatedRequest(target.prepare(summarize, [], identities))
    able = replace(target.able, images=False) if "images" in left_out else target.able
    fit = FittedRequest(body, earlier, own)
    if able.tools is False or able.images is False:
        fit = fit_to_model(body, earlier, own, able)
    whole = fit
    if truncator is not None:
        fit = truncator.truncated(fit, target, after_refusal="older items" in left_out)
    unchanged = fit.earlier is whole.earlier and fit.own is whole.own and not is_window
    remaining_items = None if unchanged else [*fit.earlier, *fit.own]
    sent = fit.request
    if "a part of the answer" in left_out:
        sent = replace(sent, max_output_tokens=request.output_room)
        if body.max_output_tokens is not None:
            losses["max_output_tokens", f"lowered to {request.output_room}, the upstream's limit"] = None
    way = None
    if body.text is not None:
        may_force, refused = not (request.follows or offers_tools(sent, fit)), "the format" in left_out
        way = way_of(body, target, may_force=may_force, refused=refused)
        if way is not None:
            sent = asked_in(way, sent, target, refused=refused)
        if way in WAYS:
            losses["text.format", WAYS[way]] = None
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
    mode = _tool_call_mode(able.tools is not False, able.streaming_tool_calls is not False)
    stream = mode is not ToolCallMode.WHOLE or not offers_tools(sent, fit)
    outgoing = target.prepare(sent, fit.earlier, identities, stream=stream)
    for where, what in (*losses, *fit.losses):
        outgoing.diagnostics.loss(where, what)
    if way is None:
        return TranslatedRequest(outgoing, None, stream, remaining_items)
    adapted = any(loss.where.startswith(_FORMAT) for loss in outgoing.diagnostics.of("loss"))
    plan = plan_of(body, way, adapted=adapted, streams=request.streams or bool(body.stream))
    if request.unreadable_patterns and plan is not None and way is AnswerWay.NATIVE:
        plan = replace(plan, schema=None)
    return TranslatedRequest(outgoing, plan, stream, remaining_items)


def inbound_for(request: PreparedRequest, target: Target, machine: ResponseStream) -> Inbound:
    """The inbound that feeds this upstream's response to the machine."""
    read = partial(_inbound_of, request, target)
    return CompactionInbound(machine, read, target.sealer) if request.compacts else read(machine)


def window_inbound_for(
    request: PreparedRequest, target: Target, stream: HostedStream, redact: Redact
) -> WindowInbound:
    """The inbound that reads the summary that comes before the answer."""
    return WindowInbound(stream, partial(_inbound_of, request, target), redact)


def _inbound_of(request: PreparedRequest, target: Target, machine: ResponseStream) -> Inbound:
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
    sealer, compacts, given = target.sealer, target.dialect.side.compacts, len(own)
    history, own = from_window(history, own, sealer)
    left_out = given - len(own)
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
    return f"input[{index}].encrypted_content"


@cache
def _tool_call_mode(tools: bool, streaming: bool) -> ToolCallMode:
    return tool_call_mode(ModelCapabilities(tools, streaming))


# The header that reports losses to the client: this server's, and those that an upstream reports.

_MAX_HEADER_LENGTH: Final = 1000  # characters


def report_losses(request: PreparedRequest, _service: Service) -> None:
    """Report what the request lost in translation in the headers of its answer."""
    request.reported = {}
    found = losses_of(request, request.continuation or request.translated)
    if found:
        request.answer_headers |= loss_header(reported_losses(found))


def losses_of(request: PreparedRequest, translated: TranslatedRequest) -> list[Diagnostic]:
    """The losses of the client's dialect, then those of the upstream's."""
    found = translated.outgoing.diagnostics.of("loss")
    return found if request.losses is None else [*request.losses.of("loss"), *found]


def unknown_fields(request: CreateResponse | SearchRequest) -> list[Diagnostic]:
    """Fields of the request that are not known, reported as losses where no upstream is asked."""
    return [Diagnostic("loss", name, "is not known") for name in names_of(request.beyond)]


def reported_losses(losses: Iterable[Diagnostic], upstream_header: str = "") -> list[str]:
    """The entries of the header; `upstream_header` is an upstream's own header, cut to the greatest
    length."""
    ours = [f"{loss.where}: {loss.what}" for loss in losses]
    if not upstream_header:
        return ours
    return [*ours, *filter(None, (each.strip() for each in upstream_header[:_MAX_HEADER_LENGTH].split(";")))]


def loss_header(reported: Iterable[str]) -> dict[str, str]:
    """The header, when there are losses: bounded, and printable ASCII whatever the names of fields."""
    value = "; ".join(reported)[:_MAX_HEADER_LENGTH]
    if not value:
        return {}
    printable = "".join(char if char.isascii() and char.isprintable() else "?" for char in value)
    return {LOSSES_HEADER: printable}
