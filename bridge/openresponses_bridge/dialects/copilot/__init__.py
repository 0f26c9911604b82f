"""Copilot Chat's `IResponseDelta` stream: the arguments of its `finishedCallback`."""

from openresponses_bridge.dialects.copilot.dialect import DIALECT, Choices
from openresponses_bridge.dialects.copilot.inbound import Inbound
from openresponses_bridge.dialects.copilot.outbound import Outbound
from openresponses_bridge.dialects.copilot.types import (
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
