"""Emit OpenResponses from any model, decode it into any client. Sans-IO."""

from bridge.conformance import StreamValidator, Violation
from bridge.decoder import (
    LanguageModelDataPart,
    LanguageModelPromptTsxPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    LanguageModelToolResultPart,
    Part,
    PartDecoder,
    PartResult,
    ResponseAccumulator,
    StreamResult,
    process_stream,
)
from bridge.diagnostics import Diagnostic, Diagnostics
from bridge.emitter import ResponseStreamStateMachine
from bridge.emitter.stream import ResponseStream, StreamFilter
from bridge.emitter.tool_call import ToolCallBlock
from bridge.errors import (
    BridgeError,
    HttpError,
    InvalidRequestError,
    LocalError,
    RemoteError,
    StreamStateError,
    ToolError,
    WireError,
)
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
    "Diagnostic",
    "Diagnostics",
    "Event",
    "Frame",
    "HttpError",
    "InvalidRequestError",
    "LanguageModelDataPart",
    "LanguageModelPromptTsxPart",
    "LanguageModelTextPart",
    "LanguageModelThinkingPart",
    "LanguageModelToolCallPart",
    "LanguageModelToolResultPart",
    "LocalError",
    "Part",
    "PartDecoder",
    "PartResult",
    "RemoteError",
    "Response",
    "ResponseAccumulator",
    "ResponseStream",
    "ResponseStreamPhase",
    "ResponseStreamStateMachine",
    "SSEDecoder",
    "StreamFilter",
    "StreamResult",
    "StreamStateError",
    "StreamValidator",
    "ToolCallAggregator",
    "ToolCallBlock",
    "ToolError",
    "ToolIdentityMap",
    "ToolKind",
    "Usage",
    "UsageTracker",
    "Violation",
    "WireError",
    "decode_event",
    "decode_request",
    "encode_sse",
    "process_stream",
]
