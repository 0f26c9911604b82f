"""A request → what one upstream is asked, and how its answer is read.

What the upstream does not support is handled here, before the dialect translates: compactions are opened,
a request to compact becomes one to condense, what the model can't do is left out, a format that it can't
enforce is asked for in words.
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
from openresponses_server.requests.abilities import fitted, offers_tools
from openresponses_server.requests.answer_format import instructed
from openresponses_server.requests.compaction import (
    COMPACTIONS,
    Condensing,
    asks_for_compaction,
    condensing_request,
    open_compactions,
)
from openresponses_server.requests.reasoning import (
    RAW,
    REASONING,
    Loss,
    ReasoningAs,
    SealedReasoning,
    open_reasoning,
    seal_for,
    seals,
)
from openresponses_server.requests.stops import with_stops
from openresponses_server.requests.truncation import Shortener
from openresponses_server.store.base import UpstreamResponse
from openresponses_server.store.history import own_input
from openresponses_server.store.records import can_be_id
from openresponses_server.upstreams.base import LOSSES_HEADER
from openresponses_server.upstreams.targets import Target

# Going on from a response that the upstream keeps itself: only what is new is sent there.
#
# The upstream then has to know all that the client means: the same server, credentials and model as before,
# and
# nothing in the history that is made anew for each request (condensed history, tools that came in it).


def keeps_responses(target: Target) -> bool:
    """Whether this upstream keeps responses and can be asked to go on from one."""
    return target.traits.keeps_responses


def kept_by(target: Target, response_id: str | None, key: str | None) -> UpstreamResponse | None:
    """The response that this upstream keeps under this id for whoever shows this key; None when it keeps
    none, and when the id is longer than any real one."""
    if response_id is None or not can_be_id(response_id) or not keeps_responses(target):
        return None
    return UpstreamResponse(target.upstream.account(key), target.model, response_id)


def continued_there(
    target: Target,
    request: CreateResponse,
    history: History,
    before: UpstreamResponse | None,
    key: str | None,
) -> str | None:
    """The upstream's id of the response `before` this request, where what is new is enough for it; None where
    the whole history has to be sent."""
    if before is None or before != kept_by(target, before.id, key) or asks_for_compaction(request):
        return None
    own = own_input(request)
    condensed = any(isinstance(item, CompactionParam | CompactionItem) for item in (*history, *own))
    if not own or condensed or active_tools((), history):
        return None
    return before.id


_FORMAT: Final = "text.format"
_SEALED: Final[frozenset[Any]] = REASONING | COMPACTIONS


class Asked(Struct, frozen=True):
    """One request to one upstream. `unenforced` says that the upstream does not hold its model to the
    format that the client wants, `stream` that it is asked for a stream: a model that calls tools in whole
    answers alone is not, when there are tools. `left` are the items of the conversation where some were left
    out."""

    outgoing: Outgoing
    unenforced: bool
    stream: bool = True
    left: History | None = None


def ask(
    target: Target,
    request: CreateResponse,
    history: History,
    identities: ToolIdentityMap,
    *,
    after: str | None = None,
    shortener: Shortener | None = None,
) -> Asked:
    """Raises InvalidRequestError with `param` for what can't be sent there. `after` is the upstream's own id
    of the response that the request goes on from: then the history is not sent. `shortener` is what holds the
    request to what its model takes."""
    losses: dict[Loss, None] = {}
    earlier, own = opened(target, request, () if after else history, losses)
    if asks_for_compaction(request):
        condense = condensing_request(request, [*earlier, *own])
        return Asked(target.prepare(condense, [], identities), False)
    fit = fitted(request, earlier, own, target.able)
    whole = fit
    if shortener is not None:
        fit = shortener.shortened(fit, target)
    left = None if fit.earlier is whole.earlier and fit.own is whole.own else [*fit.earlier, *fit.own]
    sent = with_stops(instructed(fit.request) if _knows_no_schema(target) else fit.request, target)
    if isinstance(request.input, list):
        sent = replace(sent, input=list(fit.own))
    if keeps_responses(target):
        sent = replace(sent, previous_response_id=after, store=request.store is not False)
    able = target.able
    mode = _tool_call_mode(able.tools is not False, able.streaming_tool_calls is not False)
    stream = mode is not ToolCallMode.WHOLE or not offers_tools(sent, fit)
    outgoing = target.prepare(sent, fit.earlier, identities, stream=stream)
    for where, what in (*losses, *fit.losses):
        outgoing.diagnostics.loss(where, what)
    said = outgoing.diagnostics.of("loss")
    lost = bool(said) and any(loss.where.startswith(_FORMAT) for loss in said)
    return Asked(outgoing, lost or sent.text is not request.text, stream, left)


def inbound(
    target: Target, request: CreateResponse, machine: ResponseStream, reasoning_as: str | None = None
) -> Inbound:
    """What reads the answer of this upstream into the machine; `reasoning_as` is the form of raw reasoning,
    else the upstream's."""
    form = reasoning_as or target.reasoning_as

    def read(into: ResponseStream) -> Inbound:
        side = target.dialect.side
        if form != RAW:
            into = ReasoningAs(into, form)
        if seals(target, request):
            into = SealedReasoning(into, seal_for(target))
        if target.choice is not None and side.choice is not None:
            return side.choice(into, target.choice)
        return side.inbound(into, target.sealer)

    return Condensing(machine, read, target.sealer) if asks_for_compaction(request) else read(machine)


def opened(
    target: Target, request: CreateResponse, history: History, losses: dict[Loss, None]
) -> tuple[History, History]:
    """(the turns before, the request's own input), compactions and reasoning in both opened for this
    upstream."""
    sealer, compacts = target.sealer, target.dialect.side.compacts
    given = own_input(request)
    if _SEALED.isdisjoint(map(type, (*history, *given))):  # as in most conversations
        return history, given
    earlier = open_reasoning(history, target, _before, losses)
    own = open_reasoning(given, target, _place, losses)
    return (
        open_compactions(earlier, sealer, _before, upstream_compacts=compacts),
        open_compactions(own, sealer, _place, upstream_compacts=compacts),
    )


def _before(_index: int) -> str:
    return "previous_response_id"


def _place(index: int) -> str:
    return f"input[{index}].encrypted_content"


@cache
def _tool_call_mode(tools: bool, streaming: bool) -> ToolCallMode:
    return tool_call_mode(ModelCapabilities(tools, streaming))


def _knows_no_schema(target: Target) -> bool:
    return not target.traits.takes_schemas


# What an answer's headers say of the losses of its request: ours, and those an upstream reports.

_LONGEST_HEADER: Final = 1000  # characters


def losses_of(*reports: Diagnostics | None) -> list[Diagnostic]:
    """The losses of these reports, in order."""
    found: list[Diagnostic] = []
    for report in reports:
        if report is not None:
            found += report.of("loss")
    return found


def unknown_fields(request: CreateResponse) -> list[Diagnostic]:
    """What the client sent that is not known, where no upstream is asked about it."""
    return [Diagnostic("loss", name, "is not known") for name in names_of(request.beyond)]


def reported_losses(losses: Iterable[Diagnostic], inner: str = "") -> list[str]:
    """As the header has them; `inner` is what an upstream says in its own, which is bounded."""
    ours = [f"{loss.where}: {loss.what}" for loss in losses]
    if not inner:
        return ours
    return [*ours, *filter(None, (each.strip() for each in inner[:_LONGEST_HEADER].split(";")))]


def loss_header(reported: Iterable[str]) -> dict[str, str]:
    """The header, where there are losses: bounded, and printable whatever somebody calls a field."""
    said = "; ".join(reported)[:_LONGEST_HEADER]
    if not said:
        return {}
    printable = "".join(sign if sign.isascii() and sign.isprintable() else "?" for sign in said)
    return {LOSSES_HEADER: printable}
