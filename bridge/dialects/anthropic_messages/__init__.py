"""Anthropic's Messages API."""

from bridge.dialects.anthropic_messages.failures import error_body
from bridge.dialects.anthropic_messages.frames import encode_sse
from bridge.dialects.anthropic_messages.inbound import Inbound
from bridge.dialects.anthropic_messages.message import message
from bridge.dialects.anthropic_messages.models import MessagesOptions, ModelFacts, facts_of
from bridge.dialects.anthropic_messages.outbound import Outbound
from bridge.dialects.anthropic_messages.request_in import from_messages
from bridge.dialects.anthropic_messages.request_out import to_messages

__all__ = [
    "Inbound",
    "MessagesOptions",
    "ModelFacts",
    "Outbound",
    "encode_sse",
    "error_body",
    "facts_of",
    "from_messages",
    "message",
    "to_messages",
]
