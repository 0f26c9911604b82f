"""Stop sequences, honoured on this side where the upstream does not know them, or would not name the one that
it met."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from openresponses_bridge.dialects.anthropic_messages import is_native
from openresponses_bridge.emitter.stopping import StopFilter, sequences_of
from openresponses_bridge.emitter.stream import ResponseStream
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.requests.compaction import asks_for_compaction
from openresponses_server.upstreams.targets import Target

MOST_CHARACTERS: Final = 4096
"""Of all stop sequences of a request: looking for them takes a few hundred bytes of memory for each."""


def check_stops(request: CreateResponse) -> None:
    """Raises InvalidRequestError with `param` for stop sequences that are too long together."""
    if not request.stop:
        return
    length = sum(map(len, sequences_of(request.stop)))
    if length > MOST_CHARACTERS:
        name = "stop_sequences" if is_native(request) else "stop"
        what = f"{name}: {length} characters in all; the limit is {MOST_CHARACTERS}"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=name)


def stopping(machine: ResponseStream, request: CreateResponse) -> ResponseStream:
    """The machine, ended at the request's stop sequences, if it has any."""
    if not request.stop or asks_for_compaction(request):
        return machine
    sequences = sequences_of(request.stop)
    return StopFilter(machine, sequences) if sequences else machine


def with_stops(request: CreateResponse, target: Target) -> CreateResponse:
    """The request as this upstream is asked it: without its stop sequences where it does not take them, and
    where it would not say which of them it met, which a client of the Messages API wants to know."""
    if not request.stop:
        return request
    traits = target.traits
    said = traits.takes_stops and (traits.names_stops or not is_native(request))
    return request if said else replace(request, stop=None)
