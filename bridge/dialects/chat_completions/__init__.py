"""Chat Completions: streams and completions in, requests out."""

from bridge.dialects.chat_completions.inbound import Inbound
from bridge.dialects.chat_completions.options import ChatOptions
from bridge.dialects.chat_completions.request import to_chat

__all__ = ["ChatOptions", "Inbound", "to_chat"]
