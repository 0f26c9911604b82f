"""Google's Interactions API."""

from openresponses_bridge.dialects.interactions.client.interaction import interaction
from openresponses_bridge.dialects.interactions.client.outbound import Outbound
from openresponses_bridge.dialects.interactions.client.request import from_interactions
from openresponses_bridge.dialects.interactions.dialect import DIALECT
from openresponses_bridge.dialects.interactions.options import InteractionsOptions
from openresponses_bridge.dialects.interactions.types import encode_sse
from openresponses_bridge.dialects.interactions.upstream.inbound import Inbound
from openresponses_bridge.dialects.interactions.upstream.request import to_interactions

__all__ = [
    "DIALECT",
    "Inbound",
    "InteractionsOptions",
    "Outbound",
    "encode_sse",
    "from_interactions",
    "interaction",
    "to_interactions",
]
