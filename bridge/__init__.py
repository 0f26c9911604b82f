"""Emit OpenResponses from any model, decode it into any client. Sans-IO."""

from bridge.emitter import ResponseStreamStateMachine
from bridge.errors import BridgeError
from bridge.protocol.codec import decode_event, encode_sse
from bridge.state import ResponseStreamPhase
from bridge.tools.identity import ToolIdentityMap

__all__ = [
    "BridgeError",
    "ResponseStreamPhase",
    "ResponseStreamStateMachine",
    "ToolIdentityMap",
    "decode_event",
    "encode_sse",
]
