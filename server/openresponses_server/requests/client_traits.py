"""What a request's headers say about its client."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects import anthropic_messages
from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.wire import WIRE_HEADER, is_codex, shows_only_summaries, wire_choice
from openresponses_server.http.auth import client_key
from openresponses_server.requests.prepared import ClientTraits, PreparedRequest
from openresponses_server.requests.reasoning import FORMS
from openresponses_server.requests.service import Service
from openresponses_server.settings import WireKeys
from openresponses_server.settings.files import is_among
from openresponses_server.upstreams.base import CONVERSATION_HEADER
from openresponses_server.upstreams.targets import Target

# `anthropic-beta`: passed on to upstreams of Anthropic's API.

BETA_HEADER: Final = "anthropic-beta"
_MAX_BETAS: Final = 32
_MAX_BETA_LENGTH: Final = 64
_BETA_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def betas_of(value: str) -> list[str]:
    """The names in the header that are passed on, each once: lower-case letters, digits and hyphens."""
    given = value[: _MAX_BETAS * (_MAX_BETA_LENGTH + 2)].split(",")
    names = dict.fromkeys(name.strip() for name in given)
    return [
        name for name in names if name and len(name) <= _MAX_BETA_LENGTH and _BETA_CHARACTERS.issuperset(name)
    ][:_MAX_BETAS]


def with_betas(
    request: CreateResponse, target: Target, betas: list[str], losses: Diagnostics
) -> dict[str, str]:
    """The headers that pass these names on to this upstream; a loss when it does not speak Anthropic's
    API."""
    if not betas or not anthropic_messages.is_native(request):
        return {}
    if target.traits.takes_betas:
        return {BETA_HEADER: ",".join(betas)}
    losses.loss(BETA_HEADER, "is not known to the upstream")
    return {}


# The session that a client names, as the key of the upstream's cache: Claude Code has it at the end of
# `metadata.user_id` or in the JSON there, and in a header, Codex in a header.

_SESSION_HEADERS: Final = ("session_id", "session-id", "conversation_id", "x-claude-code-session-id")
_SESSION: Final = re.compile(r'session_(?:id"\s*:\s*")?([0-9A-Za-z-]{8,64})(?![0-9A-Za-z-])')
_LONGEST_USER: Final = 512  # characters
_LONGEST_KEY: Final = 64  # characters, of the schema


def session_key(owner: str, user: str | None, headers: Mapping[str, str]) -> str | None:
    """The key for the session that the user or the headers name, of 64 characters; None if they name none.
    Two owners never have the same."""
    found = _SESSION.search(user[:_LONGEST_USER]) if user else None
    session = "" if found is None else found[1]
    if found is None:
        for name in _SESSION_HEADERS:
            if name in headers:
                session = headers[name][:_LONGEST_USER]
                break
    if not session:
        return None
    return hashlib.sha256(f"{owner}\0{session}".encode(errors="replace")).hexdigest()[:_LONGEST_KEY]


_LONGEST_CONVERSATION: Final = 200  # characters
REASONING_HEADER: Final = "openresponses-reasoning-as"


def read_headers(request: PreparedRequest, service: Service) -> None:
    """Read what the headers say about the client. Raises InvalidRequestError for an unknown form of reasoning
    or an unknown wire."""
    headers = request.headers
    form = headers.get(REASONING_HEADER)
    if form is not None and form not in FORMS:
        raise invalid(REASONING_HEADER, f"expected one of {', '.join(FORMS)}")
    key = client_key(headers)
    wire: str = service.settings.wire
    wire_keys = service.settings.wire_keys
    if WIRE_HEADER in headers:
        wire = wire_choice(headers[WIRE_HEADER])
    elif key is not None and wire_keys is not None:
        wire = _wire_of_key(key, wire_keys) or wire
    request.client = ClientTraits(
        key,
        is_codex(headers),
        betas_of(headers[BETA_HEADER]) if BETA_HEADER in headers else [],
        form,
        headers[CONVERSATION_HEADER][:_LONGEST_CONVERSATION] if CONVERSATION_HEADER in headers else "",
        wire,
        shows_only_summaries(headers, streamed=bool(request.body.stream)),
    )


def _wire_of_key(key: str, wire_keys: WireKeys) -> str | None:
    return next(
        (wire for wire in wire_keys.__struct_fields__ if is_among(key, getattr(wire_keys, wire))), None
    )
