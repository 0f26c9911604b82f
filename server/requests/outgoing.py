"""A request → what one upstream is asked, and how its answer is read.

What the upstream does not support is handled here, before the dialect translates: compactions are opened,
a request to compact becomes one to condense, a format that it can't enforce is asked for in words.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from bridge.dialects.base import History, Inbound, Outgoing
from bridge.dialects.chat_completions import ChatOptions
from bridge.emitter.stream import ResponseStream
from bridge.protocol.request import CreateResponse
from bridge.tools.identity import ToolIdentityMap
from server.compaction.condensing import Condensing, asks_for_compaction, condensing_request
from server.compaction.opening import open_compactions
from server.requests.answer_format import instructed
from server.sessions.history import own_input
from server.upstreams.targets import Target

_FORMAT: Final = "text.format"


class Asked(NamedTuple):
    """One request to one upstream. `unenforced` says that the upstream does not hold its model to the
    format that the client wants."""

    outgoing: Outgoing
    unenforced: bool


def ask(target: Target, request: CreateResponse, history: History, identities: ToolIdentityMap) -> Asked:
    """Raises InvalidRequestError with `param` for what can't be sent there."""
    earlier, own = opened(target, request, history)
    if asks_for_compaction(request):
        condense = condensing_request(request, [*earlier, *own])
        return Asked(target.prepare(condense, [], identities), False)
    sent = instructed(request) if _knows_no_schema(target) else request
    if isinstance(request.input, list):
        sent = replace(sent, input=own)
    outgoing = target.prepare(sent, earlier, identities)
    lost = any(loss.where.startswith(_FORMAT) for loss in outgoing.diagnostics.of("loss"))
    return Asked(outgoing, lost or sent.text is not request.text)


def inbound(target: Target, request: CreateResponse, machine: ResponseStream) -> Inbound:
    """What reads the answer of this upstream into the machine."""

    def read(into: ResponseStream) -> Inbound:
        side = target.dialect.side
        if target.choice is not None and side.choice is not None:
            return side.choice(into, target.choice)
        return side.inbound(into, target.sealer)

    return Condensing(machine, read, target.sealer) if asks_for_compaction(request) else read(machine)


def opened(target: Target, request: CreateResponse, history: History) -> tuple[History, History]:
    """(the turns before, the request's own input), compactions in both opened for this upstream."""
    sealer, compacts = target.sealer, target.dialect.side.compacts
    earlier = open_compactions(history, sealer, lambda _: "previous_response_id", upstream_compacts=compacts)
    own = open_compactions(own_input(request), sealer, _place, upstream_compacts=compacts)
    return earlier, own


def _place(index: int) -> str:
    return f"input[{index}].encrypted_content"


def _knows_no_schema(target: Target) -> bool:
    """Anthropic's dialect words the wish by itself, Responses servers know schemas."""
    options = target.options
    return isinstance(options, ChatOptions) and (
        options.json_schema != "json_schema" or "response_format" in options.omit
    )
