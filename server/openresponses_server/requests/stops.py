"""Stop sequences, applied by this server where the upstream does not support them or does not report which
one matched."""

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

MAX_STOP_CHARACTERS: Final = 4096
"""The limit of all stop sequences of a request together: the matcher takes some hundred bytes for each
one."""


def check_stops(request: CreateResponse) -> None:
    """Raises InvalidRequestError with `param` for stop sequences beyond the limit."""
    if not request.stop:
        return
    length = sum(map(len, sequences_of(request.stop)))
    if length > MAX_STOP_CHARACTERS:
        name = "stop_sequences" if is_native(request) else "stop"
        what = f"{name}: {length} characters in all; the limit is {MAX_STOP_CHARACTERS}"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=name)


def with_stop_filter(machine: ResponseStream, request: CreateResponse) -> ResponseStream:
    """The machine behind a filter for the request's stop sequences, if it has any."""
    if not request.stop or asks_for_compaction(request):
        return machine
    sequences = sequences_of(request.stop)
    return StopFilter(machine, sequences) if sequences else machine


def stops_for_upstream(request: CreateResponse, target: Target) -> CreateResponse:
    """The request for this upstream: without stop sequences where it does not take them, or where the client
    uses the Messages API, whose response names the sequence that matched, and the upstream does not name
    it."""
    if not request.stop:
        return request
    traits = target.traits
    sent = traits.takes_stops and (traits.names_stops or not is_native(request))
    return request if sent else replace(request, stop=None)
