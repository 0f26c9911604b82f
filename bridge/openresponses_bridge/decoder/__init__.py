"""Converts events to a Response, and events to VS Code parts."""

from openresponses_bridge.decoder.accumulator import ResponseAccumulator
from openresponses_bridge.decoder.finish import (
    PREMATURE_END,
    STATEFUL_MARKER_MIME,
    USAGE_MIME,
    FinishReason,
    PartResult,
)
from openresponses_bridge.decoder.part_decoder import (
    Cancellation,
    PartDecoder,
    Progress,
    StreamResult,
    process_stream,
)
from openresponses_bridge.decoder.parts import (
    LanguageModelDataPart,
    LanguageModelPromptTsxPart,
    LanguageModelTextPart,
    LanguageModelThinkingPart,
    LanguageModelToolCallPart,
    LanguageModelToolResultPart,
    Part,
    encode_part,
    encode_parts,
)
from openresponses_bridge.decoder.tool_calls import CALL_ID_PREFIX, namespace_call_id, strip_call_id

__all__ = [
    "CALL_ID_PREFIX",
    "PREMATURE_END",
    "STATEFUL_MARKER_MIME",
    "USAGE_MIME",
    "Cancellation",
    "FinishReason",
    "LanguageModelDataPart",
    "LanguageModelPromptTsxPart",
    "LanguageModelTextPart",
    "LanguageModelThinkingPart",
    "LanguageModelToolCallPart",
    "LanguageModelToolResultPart",
    "Part",
    "PartDecoder",
    "PartResult",
    "Progress",
    "ResponseAccumulator",
    "StreamResult",
    "encode_part",
    "encode_parts",
    "namespace_call_id",
    "process_stream",
    "strip_call_id",
]
