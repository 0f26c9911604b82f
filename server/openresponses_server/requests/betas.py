"""`anthropic-beta`: what a client of Anthropic's API asks to try out, passed on where that API answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects import anthropic_messages
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.upstreams.targets import Target

HEADER: Final = "anthropic-beta"
_MOST: Final = 32  # names of one request
_LONGEST: Final = 64
_SIGNS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def betas_of(headers: Mapping[str, str]) -> list[str]:
    """The names that may go on, each once: small letters, digits and hyphens."""
    if HEADER not in headers:
        return []
    given = headers[HEADER][: _MOST * (_LONGEST + 2)].split(",")
    names = dict.fromkeys(name.strip() for name in given)
    return [name for name in names if name and len(name) <= _LONGEST and _SIGNS.issuperset(name)][:_MOST]


def with_betas(
    request: CreateResponse, target: Target, betas: list[str], losses: Diagnostics
) -> dict[str, str]:
    """The headers for this upstream of a request that came with these names; a loss where it is another's."""
    if not betas or not anthropic_messages.is_native(request):
        return {}
    if target.traits.takes_betas:
        return {HEADER: ",".join(betas)}
    losses.loss(HEADER, "is not known to the upstream")
    return {}
