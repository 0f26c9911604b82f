"""Chooses the wire, the spelling of the protocol, for a client (law E10): by the request, then by the
client's name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.state import PUBLISHED_ITEMS

OPENRESPONSES: Final = "openresponses"
OPENAI: Final = "openai"

_PUBLISHED_TOOLS: Final = frozenset({"function"})
_PUBLISHED_INPUT: Final = PUBLISHED_ITEMS | {"item_reference"}
# Clients that read OpenAI's names only: Codex shows reasoning from `reasoning_text` events and knows
# its own tools' calls by their types; the SDKs have models for OpenAI's events and no others. The AI SDK
# reads `reasoning_text` over both of its providers, and some of its calls carry its bare name.
_KNOWN_CLIENTS: Final = re.compile(
    r"^codex|^(Async)?OpenAI/|^Agents/|^ai/|\bai-sdk/open(ai|-responses)/", re.IGNORECASE
)
_CODEX: Final = re.compile("codex", re.IGNORECASE)
_SDK_HEADER: Final = "x-stainless-lang"  # whatever name an application gives itself, the SDK adds this


def ignores_comments(headers: Mapping[str, str]) -> bool:
    """Whether this client times out although it receives SSE comments (field case 43)."""
    if "user-agent" in headers and _CODEX.match(headers["user-agent"]):
        return True
    return "originator" in headers and _CODEX.match(headers["originator"]) is not None


def choose_wire(request: CreateResponse, headers: Mapping[str, str]) -> str:
    """`openai` when the request carries what only OpenAI's API has or comes from a client known to
    need it, else `openresponses`."""
    items = request.input if isinstance(request.input, list) else ()
    asks = (request.tools and _beyond(request.tools, _PUBLISHED_TOOLS)) or (
        items and _beyond(items, _PUBLISHED_INPUT)
    )
    known = _SDK_HEADER in headers or (
        "user-agent" in headers and _KNOWN_CLIENTS.search(headers["user-agent"])
    )
    return OPENAI if asks or known else OPENRESPONSES


def _beyond(things: Sequence[Any], published: Iterable[str]) -> bool:
    """Whether one of these is neither published nor an extension (`slug:name`)."""
    return any(":" not in kind for kind in {thing.type for thing in things}.difference(published))
