"""Amazon Bedrock's Converse API."""

from openresponses_bridge.dialects.bedrock_converse.client.message import answer
from openresponses_bridge.dialects.bedrock_converse.client.outbound import Outbound, encode_events, encode_sse
from openresponses_bridge.dialects.bedrock_converse.client.request import from_converse
from openresponses_bridge.dialects.bedrock_converse.dialect import DIALECT
from openresponses_bridge.dialects.bedrock_converse.event_stream import (
    EventStreamDecoder,
    Message,
    encode_event,
    encode_message,
)
from openresponses_bridge.dialects.bedrock_converse.options import ConverseOptions
from openresponses_bridge.dialects.bedrock_converse.upstream.inbound import Inbound
from openresponses_bridge.dialects.bedrock_converse.upstream.request import to_converse

__all__ = [
    "DIALECT",
    "ConverseOptions",
    "EventStreamDecoder",
    "Inbound",
    "Message",
    "Outbound",
    "answer",
    "encode_event",
    "encode_events",
    "encode_message",
    "encode_sse",
    "from_converse",
    "to_converse",
]
