"""What a request's headers say of its client, beside its body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects import anthropic_messages
from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.wire import ignores_comments
from openresponses_server.http.auth import client_key
from openresponses_server.requests.reasoning import FORMS
from openresponses_server.upstreams.base import conversation_of
from openresponses_server.upstreams.targets import Target

# `anthropic-beta`: what a client of Anthropic's API asks to try out, passed on where that API answers.

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


REASONING_HEADER: Final = "openresponses-reasoning-as"


class ClientTraits(Struct, frozen=True):
    """`key` is what the client showed; `needs_keepalive_events`: comments do not keep it from giving up;
    `betas` are the names in `anthropic-beta`; `reasoning_as` is the form of raw reasoning that it wants, None
    where it does not say; `conversation` is what it calls its conversation, empty where it does not say."""

    key: str | None
    needs_keepalive_events: bool
    betas: list[str]
    reasoning_as: str | None
    conversation: str = ""


def traits_of(headers: Mapping[str, str]) -> ClientTraits:
    """Raises InvalidRequestError for a form of reasoning that is not known."""
    form = headers.get(REASONING_HEADER)
    if form is not None and form not in FORMS:
        raise invalid(REASONING_HEADER, f"expected one of {', '.join(FORMS)}")
    key, needs_keepalive_events, betas = client_key(headers), ignores_comments(headers), betas_of(headers)
    return ClientTraits(key, needs_keepalive_events, betas, form, conversation_of(headers))
