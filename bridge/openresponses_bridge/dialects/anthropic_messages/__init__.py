"""Anthropic's Messages API."""

from openresponses_bridge.dialects.anthropic_messages.carried import is_native
from openresponses_bridge.dialects.anthropic_messages.client.ending import error_body
from openresponses_bridge.dialects.anthropic_messages.client.message import message
from openresponses_bridge.dialects.anthropic_messages.client.model_list import (
    for_claude_code,
    from_claude_code,
    model_body,
    model_page,
)
from openresponses_bridge.dialects.anthropic_messages.client.outbound import Outbound, encode_sse
from openresponses_bridge.dialects.anthropic_messages.client.request import from_messages
from openresponses_bridge.dialects.anthropic_messages.dialect import DIALECT
from openresponses_bridge.dialects.anthropic_messages.models import MessagesOptions, ModelFacts, facts_of
from openresponses_bridge.dialects.anthropic_messages.upstream.inbound import Inbound
from openresponses_bridge.dialects.anthropic_messages.upstream.request import to_messages

__all__ = [
    "DIALECT",
    "Inbound",
    "MessagesOptions",
    "ModelFacts",
    "Outbound",
    "encode_sse",
    "error_body",
    "facts_of",
    "for_claude_code",
    "from_claude_code",
    "from_messages",
    "is_native",
    "message",
    "model_body",
    "model_page",
    "to_messages",
]
