"""Emit OpenResponses from any model, decode it into any client. Sans-IO."""

from bridge.conformance import StreamValidator, Violation
from bridge.decoder import Part, PartDecoder, ResponseAccumulator
from bridge.emitter import ResponseStreamStateMachine
from bridge.errors import BridgeError
from bridge.protocol.codec import decode_event, decode_request, encode_sse
from bridge.protocol.events import Event
from bridge.protocol.request import CreateResponse
from bridge.protocol.response import Response
from bridge.protocol.usage import Usage
from bridge.sse import Frame, SSEDecoder
from bridge.state import ResponseStreamPhase
from bridge.tools.aggregator import ToolCallAggregator
from bridge.tools.identity import ToolIdentityMap, ToolKind
from bridge.usage import UsageTracker

__all__ = [
    "BridgeError",
    "CreateResponse",
    "Event",
    "Frame",
    "Part",
    "PartDecoder",
    "Response",
    "ResponseAccumulator",
    "ResponseStreamPhase",
    "ResponseStreamStateMachine",
    "SSEDecoder",
    "StreamValidator",
    "ToolCallAggregator",
    "ToolIdentityMap",
    "ToolKind",
    "Usage",
    "UsageTracker",
    "Violation",
    "decode_event",
    "decode_request",
    "encode_sse",
]
