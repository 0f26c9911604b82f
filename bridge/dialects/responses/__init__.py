"""Other servers' Responses streams: normalised on the way in, respelled on the way out."""

from bridge.dialects.responses.inbound import Inbound
from bridge.dialects.responses.outbound import Outbound

__all__ = ["Inbound", "Outbound"]
