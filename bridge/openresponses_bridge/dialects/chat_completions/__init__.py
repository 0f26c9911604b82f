"""Chat Completions, both ways: streams, whole completions and requests."""

from openresponses_bridge.dialects.chat_completions.client.choices import Choices, completions
from openresponses_bridge.dialects.chat_completions.client.chunks import (
    ChatCompletion,
    Chunk,
    OutboundOptions,
    encode,
)
from openresponses_bridge.dialects.chat_completions.client.completion import completion
from openresponses_bridge.dialects.chat_completions.client.outbound import Outbound
from openresponses_bridge.dialects.chat_completions.client.request import (
    AnswerOptions,
    answer_options,
    from_chat,
)
from openresponses_bridge.dialects.chat_completions.dialect import DIALECT
from openresponses_bridge.dialects.chat_completions.options import ChatOptions, ThinkingFields
from openresponses_bridge.dialects.chat_completions.upstream.inbound import Inbound
from openresponses_bridge.dialects.chat_completions.upstream.request import to_chat

__all__ = [
    "DIALECT",
    "AnswerOptions",
    "ChatCompletion",
    "ChatOptions",
    "Choices",
    "Chunk",
    "Inbound",
    "Outbound",
    "OutboundOptions",
    "ThinkingFields",
    "answer_options",
    "completion",
    "completions",
    "encode",
    "from_chat",
    "to_chat",
]
