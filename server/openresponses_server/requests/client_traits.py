"""What a request's headers say about its client."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostic
from openresponses_bridge.dialects.base import PROTOCOL, dialect_of, invalid
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.wire import AUTO, WIRE_HEADER, is_codex, shows_only_summaries, wire_choice
from openresponses_server.http.auth import client_key
from openresponses_server.requests.prepared import ClientTraits, Received
from openresponses_server.requests.reasoning import FORMS
from openresponses_server.requests.service import Service
from openresponses_server.settings import WireKeys
from openresponses_server.settings.files import is_among
from openresponses_server.upstreams.base import CONVERSATION_HEADER
from openresponses_server.upstreams.dialects import DIALECTS
from openresponses_server.upstreams.targets import Target

# Headers that go on to an upstream of the client's own API, such as `anthropic-beta` (law N2).

_MAX_VALUES: Final = 32
_MAX_LENGTH: Final = 64
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789-"
_CHARACTERS: Final = {
    "anthropic-beta": frozenset(_LETTERS),
    "openai-beta": frozenset(f"{_LETTERS}_=."),
}
_OF_AN_ID: Final = frozenset(f"{_LETTERS}{_LETTERS.upper()}_")
_PASSED: Final = frozenset(
    name
    for dialect in DIALECTS.values()
    if dialect.side.endpoint is not None
    for name in dialect.side.endpoint.passed_headers
)
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
# betas of what is answered here, a thread or the connection itself, and not sent on
_ANSWERED: Final = ("message-threads-", "responses_websockets=")


def passed_values(name: str, value: str) -> list[str]:
    """The values in this header that are passed on, each once: those made of the characters that its names
    have."""
    parts = value[: _MAX_VALUES * (_MAX_LENGTH + 2)].split(",")
    values = dict.fromkeys(each.strip() for each in parts)
    known = _CHARACTERS.get(name, _OF_AN_ID)
    return [
        each
        for each in values
        if each and len(each) <= _MAX_LENGTH and known.issuperset(each) and not each.startswith(_ANSWERED)
    ][:_MAX_VALUES]


def _passed_headers(request: Received) -> dict[str, str]:
    headers, spoken = request.headers, dialect_of(request.body)
    if spoken == PROTOCOL and request.losses is not None:
        return {}  # a client of Chat Completions may have brought nothing of its own
    own = DIALECTS[spoken].side.endpoint
    mine = frozenset() if own is None else own.passed_headers
    by_name = {name: passed_values(name, headers[name]) for name in mine if name in headers}
    return {name: ",".join(values) for name, values in by_name.items() if values}


def with_passed_headers(
    request: CreateResponse, target: Target, passed: Mapping[str, str]
) -> tuple[dict[str, str], list[Diagnostic]]:
    """Return those of these headers of the client's API that go on to this upstream; the others are losses,
    if it has another API, or does not know them."""
    if target.dialect.dialect.name == dialect_of(request) and target.traits.takes_betas:
        return dict(passed), []
    return {}, [Diagnostic("loss", name, "is not known to the upstream") for name in passed]


# The session that a client names, as the key of the upstream's cache: Claude Code has it at the end of
# `metadata.user_id` or in the JSON there, and in a header, Codex in a header.

_SESSION_HEADERS: Final = ("session_id", "session-id", "conversation_id", "x-claude-code-session-id")
_SESSION: Final = re.compile(r'session_(?:id"\s*:\s*")?([0-9A-Za-z-]{8,64})(?![0-9A-Za-z-])')
_LONGEST_USER: Final = 512  # characters
_LONGEST_KEY: Final = 64  # characters, of the schema


def session_key(owner: str, user: str | None, headers: Mapping[str, str]) -> str | None:
    """The cache key for the session that the user or the headers name, of 64 characters; None if they name
    none. Two owners never have the same key."""
    match = _SESSION.search(user[:_LONGEST_USER]) if user else None
    session = "" if match is None else match[1]
    if match is None:
        for name in _SESSION_HEADERS:
            if name in headers:
                session = headers[name][:_LONGEST_USER]
                break
    if not session:
        return None
    return hashlib.sha256(f"{owner}\0{session}".encode(errors="replace")).hexdigest()[:_LONGEST_KEY]


_LONGEST_CONVERSATION: Final = 200  # characters
REASONING_HEADER: Final = "openresponses-reasoning-as"


def read_headers(request: Received, service: Service) -> Received:
    """Read what the headers say about the client. Raises InvalidRequestError for an unknown form of reasoning
    or an unknown wire."""
    headers = request.headers
    form = headers.get(REASONING_HEADER)
    if form is not None and form not in FORMS:
        raise invalid(REASONING_HEADER, f"expected one of {', '.join(FORMS)}")
    key = client_key(headers)
    wire: str = service.settings.wire
    requested = AUTO
    wire_keys = service.settings.wire_keys
    if WIRE_HEADER in headers:
        wire = requested = wire_choice(headers[WIRE_HEADER])
    elif key is not None and wire_keys is not None:
        wire = _wire_of_key(key, wire_keys) or wire
    client = ClientTraits(
        key,
        is_codex(headers),
        _NONE if _PASSED.isdisjoint(headers) else _passed_headers(request),
        form,
        headers[CONVERSATION_HEADER][:_LONGEST_CONVERSATION] if CONVERSATION_HEADER in headers else "",
        wire,
        shows_only_summaries(headers, streamed=bool(request.body.stream), asked=requested),
    )
    return replace(request, client=client)


def _wire_of_key(key: str, wire_keys: WireKeys) -> str | None:
    return next(
        (wire for wire in wire_keys.__struct_fields__ if is_among(key, getattr(wire_keys, wire))), None
    )
