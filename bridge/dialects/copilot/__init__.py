"""Copilot Chat's `IResponseDelta` stream: what its `finishedCallback` is called with."""

from bridge.dialects.copilot.choices import Choices
from bridge.dialects.copilot.dialect import DIALECT
from bridge.dialects.copilot.inbound import Inbound
from bridge.dialects.copilot.outbound import Outbound
from bridge.dialects.copilot.types import (
    CallbackChunk,
    FinishedCompletion,
    FinishedCompletionReason,
    FunctionCall,
    ResponseDelta,
    ToolCall,
    as_dict,
    encode_chunk,
)

__all__ = [
    "DIALECT",
    "CallbackChunk",
    "Choices",
    "FinishedCompletion",
    "FinishedCompletionReason",
    "FunctionCall",
    "Inbound",
    "Outbound",
    "ResponseDelta",
    "ToolCall",
    "as_dict",
    "encode_chunk",
]
