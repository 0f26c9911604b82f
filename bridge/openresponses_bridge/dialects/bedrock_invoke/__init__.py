"""Anthropic's Messages in the envelope of Amazon Bedrock's InvokeModel."""

from openresponses_bridge.dialects.bedrock_invoke.dialect import DIALECT
from openresponses_bridge.dialects.bedrock_invoke.inbound import Inbound
from openresponses_bridge.dialects.bedrock_invoke.outbound import Outbound, encode_events, encode_sse

__all__ = ["DIALECT", "Inbound", "Outbound", "encode_events", "encode_sse"]
