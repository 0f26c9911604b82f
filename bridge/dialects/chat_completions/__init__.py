"""Chat Completions: streams and completions in, requests out."""

from bridge.dialects.chat_completions.inbound import Inbound

__all__ = ["Inbound"]
