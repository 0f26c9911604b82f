"""Translates a request for one upstream, and chooses the inbound that reads its response.

What the upstream does not support is handled here, before the dialect translates: compaction items are
opened, a compaction request becomes a prompt for a summary, tools and images that the model can't use are
left out, and a format that the upstream can't enforce is described in the instructions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.calls.declarations import active_tools
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.diagnostics import Diagnostic, Diagnostics
from openresponses_bridge.dialects.base import History, Inbound, Outgoing
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.beyond import names_of
from openresponses_bridge.protocol.input_items import CompactionParam
from openresponses_bridge.protocol.items import CompactionItem
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.tools.offering import ModelCapabilities, ToolCallMode, tool_call_mode
from openresponses_server.requests.abilities import Loss, fit_to_model, offers_tools
from openresponses_server.requests.answer_format import with_schema_instructions
from openresponses_server.requests.compaction import (
    COMPACTION_ITEMS,
    CompactionInbound,
    asks_for_compaction,
    compaction_request,
    open_compactions,
)
from openresponses_server.requests.reasoning import (
    RAW,
    REASONING_ITEMS,
    ReasoningAsSummary,
    SealedReasoning,
    open_reasoning,
    reasoning_seal,
    seals_reasoning,
)
from openresponses_server.requests.stops import stops_for_upstream
from openresponses_server.requests.truncation import Truncator
from openresponses_server.store.base import UpstreamResponse
from openresponses_server.store.history import own_input
from openresponses_server.store.records import can_be_id
from openresponses_server.upstreams.base import LOSSES_HEADER
from openresponses_server.upstreams.targets import Target

# An upstream that stores responses itself is sent only the new input and its own previous_response_id. That
# needs the same server, credentials and model as before, and a history without compaction items and without
# tools.


def upstream_response(target: Target, response_id: str | None, key: str | None) -> UpstreamResponse | None:
    """The response that this upstream stores under this id for this key; None when it does not store
    responses or the id can't be one."""
    if response_id is None or not can_be_id(response_id) or not target.traits.keeps_responses:
        return None
    return UpstreamResponse(target.upstream.account(key), target.model, response_id)


def continuable_id(
    target: Target,
    request: CreateResponse,
    history: History,
    before: UpstreamResponse | None,
    key: str | None,
) -> str | None:
    """The upstream's id of the response `before` this request when its new input is enough; None when the
    whole history must be sent."""
    if before is None or before != upstream_response(target, before.id, key) or asks_for_compaction(request):
        return None
    own = own_input(request)
    condensed = any(isinstance(item, CompactionParam | CompactionItem) for item in (*history, *own))
    if not own or condensed or active_tools((), history):
        return None
    return before.id


_FORMAT: Final = "text.format"
_SEALED_ITEMS: Final[frozenset[Any]] = REASONING_ITEMS | COMPACTION_ITEMS


class TranslatedRequest(Struct, frozen=True):
    """A request translated for one upstream."""

    outgoing: Outgoing
    format_unenforced: bool
    """The upstream does not enforce `text.format`."""
    stream: bool = True
    """False for a model that can call tools only in a response that is not streamed."""
    remaining_items: History | None = None
    """The items of the conversation after truncation; None when it was not truncated."""


def translate_request(
    target: Target,
    request: CreateResponse,
    history: History,
    identities: ToolIdentityMap,
    *,
    previous_id: str | None = None,
    truncator: Truncator | None = None,
) -> TranslatedRequest:
    """Translate a request. With `previous_id`, the upstream's id of the previous response, the history is not
    sent; `truncator` fits the request into the model's context. Raises InvalidRequestError with `param` for
    what this upstream can't be sent."""
    losses: dict[Loss, None] = {}
    earlier, own = open_sealed_items(target, request, () if previous_id else history, losses)
    if asks_for_compaction(request):
        summarize = compaction_request(request, [*earlier, *own])
        return TranslatedRequest(target.prepare(summarize, [], identities), False)
    fit = fit_to_model(request, earlier, own, target.able)
    whole = fit
    if truncator is not None:
        fit = truncator.truncated(fit, target)
    remaining_items = (
        None if fit.earlier is whole.earlier and fit.own is whole.own else [*fit.earlier, *fit.own]
    )
    sent = stops_for_upstream(
        fit.request if target.traits.takes_schemas else with_schema_instructions(fit.request), target
    )
    if isinstance(request.input, list):
        sent = replace(sent, input=list(fit.own))
    if target.traits.keeps_responses:
        sent = replace(sent, previous_response_id=previous_id, store=request.store is not False)
    able = target.able
    mode = _tool_call_mode(able.tools is not False, able.streaming_tool_calls is not False)
    stream = mode is not ToolCallMode.WHOLE or not offers_tools(sent, fit)
    outgoing = target.prepare(sent, fit.earlier, identities, stream=stream)
    for where, what in (*losses, *fit.losses):
        outgoing.diagnostics.loss(where, what)
    lost = outgoing.diagnostics.of("loss")
    format_lost = bool(lost) and any(loss.where.startswith(_FORMAT) for loss in lost)
    return TranslatedRequest(outgoing, format_lost or sent.text is not request.text, stream, remaining_items)


def inbound_for(
    target: Target, request: CreateResponse, machine: ResponseStream, reasoning_as: str | None = None
) -> Inbound:
    """The inbound that feeds this upstream's response to the machine. `reasoning_as` overrides the upstream's
    form of raw reasoning."""
    form = reasoning_as or target.reasoning_as

    def read(into: ResponseStream) -> Inbound:
        side = target.dialect.side
        if form != RAW:
            into = ReasoningAsSummary(into, form)
        if seals_reasoning(target, request):
            into = SealedReasoning(into, reasoning_seal(target))
        if target.choice is not None and side.choice is not None:
            return side.choice(into, target.choice)
        return side.inbound(into, target.sealer)

    return CompactionInbound(machine, read, target.sealer) if asks_for_compaction(request) else read(machine)


def open_sealed_items(
    target: Target, request: CreateResponse, history: History, losses: dict[Loss, None]
) -> tuple[History, History]:
    """(history, the request's own input) with the sealed compactions and reasoning that this upstream may
    read opened."""
    sealer, compacts = target.sealer, target.dialect.side.compacts
    given = own_input(request)
    if _SEALED_ITEMS.isdisjoint(map(type, (*history, *given))):  # as in most conversations
        return history, given
    earlier = open_reasoning(history, target, _history_param, losses)
    own = open_reasoning(given, target, _input_param, losses)
    return (
        open_compactions(earlier, sealer, _history_param, upstream_compacts=compacts),
        open_compactions(own, sealer, _input_param, upstream_compacts=compacts),
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


def losses_of(*reports: Diagnostics | None) -> list[Diagnostic]:
    """The losses of these reports, in order."""
    found: list[Diagnostic] = []
    for report in reports:
        if report is not None:
            found += report.of("loss")
    return found


def unknown_fields(request: CreateResponse) -> list[Diagnostic]:
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
