"""The entry of the dialect."""

from __future__ import annotations

from typing import Final

from openresponses_bridge.dialects.anthropic_messages.client.surface import whole
from openresponses_bridge.dialects.anthropic_messages.dialect import DIALECT as MESSAGES
from openresponses_bridge.dialects.base import CaptureFormat, ClientSide, Dialect
from openresponses_bridge.dialects.bedrock_invoke.inbound import Inbound, event_in
from openresponses_bridge.dialects.bedrock_invoke.outbound import Outbound, encode_sse
from openresponses_bridge.dialects.bedrock_invoke.surface import SURFACE

DIALECT: Final = Dialect(
    name="bedrock-invoke",
    title="InvokeModel",
    client=ClientSide(outbound=Outbound, encode=encode_sse, whole=whole),
    surface=SURFACE,
    capture=CaptureFormat(
        recognises=lambda value: MESSAGES.capture.recognises(event_in(value)),
        inbound=Inbound,
        head=lambda value: MESSAGES.capture.head(event_in(value)),
        begins=lambda value, _before: MESSAGES.capture.begins(event_in(value), None),
    ),
)
