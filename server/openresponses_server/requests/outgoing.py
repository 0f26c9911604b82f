"""A request → what one upstream is asked, and how its answer is read.

What the upstream does not support is handled here, before the dialect translates: compactions are opened,
a request to compact becomes one to condense, what the model can't do is left out, a format that it can't
enforce is asked for in words.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.base import History, Inbound, Outgoing
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.tools.offering import ModelCapabilities, ToolCallMode, tool_call_mode
from openresponses_server.requests.abilities import fitted, offers_tools
from openresponses_server.requests.answer_format import instructed
from openresponses_server.requests.compaction import Condensing, asks_for_compaction, condensing_request
from openresponses_server.requests.continuing import keeps_responses
from openresponses_server.requests.opening import COMPACTIONS, open_compactions
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
from openresponses_server.store.history import own_input
from openresponses_server.upstreams.targets import Target

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
