"""Emit OpenResponses from any model, decode it into any client. Sans-IO.

The names below are loaded when they are first used: a program that only translates does not wait for the
validator.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from openresponses_bridge.calls.aggregator import ToolCallAggregator
    from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
    from openresponses_bridge.conformance import StreamValidator, Violation
    from openresponses_bridge.decoder import (
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
    from openresponses_bridge.diagnostics import Diagnostic, Diagnostics
    from openresponses_bridge.emitter import ResponseStreamStateMachine
    from openresponses_bridge.emitter.stream import ResponseStream, StreamFilter
    from openresponses_bridge.emitter.tool_call import ToolCallBlock
    from openresponses_bridge.errors import (
        BridgeError,
        HttpError,
        InvalidRequestError,
        LocalError,
        RemoteError,
        StreamStateError,
        ToolError,
        WireError,
    )
    from openresponses_bridge.models.usage import UsageTracker
    from openresponses_bridge.protocol.codec import decode_event, decode_request, encode_sse
    from openresponses_bridge.protocol.events import Event
    from openresponses_bridge.protocol.request import CreateResponse
    from openresponses_bridge.protocol.response import Response
    from openresponses_bridge.protocol.usage import Usage
    from openresponses_bridge.sse import Frame, SSEDecoder
    from openresponses_bridge.state import ResponseStreamPhase

_MODULES: Final = {
    "calls.aggregator": ("ToolCallAggregator",),
    "calls.identity": (
        "ToolIdentityMap",
        "ToolKind",
    ),
    "conformance": (
        "StreamValidator",
        "Violation",
    ),
    "decoder": (
        "LanguageModelDataPart",
        "LanguageModelPromptTsxPart",
        "LanguageModelTextPart",
        "LanguageModelThinkingPart",
        "LanguageModelToolCallPart",
        "LanguageModelToolResultPart",
        "Part",
        "PartDecoder",
        "PartResult",
        "ResponseAccumulator",
        "StreamResult",
        "process_stream",
    ),
    "diagnostics": (
        "Diagnostic",
        "Diagnostics",
    ),
    "emitter": ("ResponseStreamStateMachine",),
    "emitter.stream": (
        "ResponseStream",
        "StreamFilter",
    ),
    "emitter.tool_call": ("ToolCallBlock",),
    "errors": (
        "BridgeError",
        "HttpError",
        "InvalidRequestError",
        "LocalError",
        "RemoteError",
        "StreamStateError",
        "ToolError",
        "WireError",
    ),
    "models.usage": ("UsageTracker",),
    "protocol.codec": (
        "decode_event",
        "decode_request",
        "encode_sse",
    ),
    "protocol.events": ("Event",),
    "protocol.request": ("CreateResponse",),
    "protocol.response": ("Response",),
    "protocol.usage": ("Usage",),
    "sse": (
        "Frame",
        "SSEDecoder",
    ),
    "state": ("ResponseStreamPhase",),
}
_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names}

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


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
