"""Chat Completions, both ways: streams, whole completions and requests."""

from bridge.dialects.chat_completions.client.choices import Choices, completions
from bridge.dialects.chat_completions.client.chunks import ChatCompletion, Chunk, encode
from bridge.dialects.chat_completions.client.completion import completion
from bridge.dialects.chat_completions.client.options import OutboundOptions
from bridge.dialects.chat_completions.client.outbound import Outbound
from bridge.dialects.chat_completions.client.request import AnswerOptions, answer_options, from_chat
from bridge.dialects.chat_completions.dialect import DIALECT
from bridge.dialects.chat_completions.upstream.inbound import Inbound
from bridge.dialects.chat_completions.upstream.options import ChatOptions
from bridge.dialects.chat_completions.upstream.request import to_chat

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
    "answer_options",
    "completion",
    "completions",
    "encode",
    "from_chat",
    "to_chat",
]
