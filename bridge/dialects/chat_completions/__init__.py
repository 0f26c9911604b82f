"""Chat Completions, both ways: streams, whole completions and requests."""

from bridge.dialects.chat_completions.choices import Choices
from bridge.dialects.chat_completions.chunks import ChatCompletion, Chunk, encode
from bridge.dialects.chat_completions.completion import completion
from bridge.dialects.chat_completions.inbound import Inbound
from bridge.dialects.chat_completions.options import ChatOptions
from bridge.dialects.chat_completions.outbound import Outbound
from bridge.dialects.chat_completions.request import to_chat
from bridge.dialects.chat_completions.request_in import Manner, from_chat, manner_of

__all__ = [
    "ChatCompletion",
    "ChatOptions",
    "Choices",
    "Chunk",
    "Inbound",
    "Manner",
    "Outbound",
    "completion",
    "encode",
    "from_chat",
    "manner_of",
    "to_chat",
]
