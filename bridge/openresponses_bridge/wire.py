"""Chooses the wire, the spelling of the protocol, for a client (law E10): as a header or a setting says, else
by what the request carries and by the client's name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.state import PUBLISHED_ITEMS

OPENRESPONSES: Final = "openresponses"
OPENAI: Final = "openai"
AUTO: Final = "auto"
"""The choice by the request and its client's name."""
WIRE_CHOICES: Final = (OPENAI, OPENRESPONSES, AUTO)
WIRE_HEADER: Final = "openresponses-wire"
"""The header with which a request chooses its wire: one of `WIRE_CHOICES`."""

_PUBLISHED_TOOLS: Final = frozenset({"function"})
_PUBLISHED_INPUT: Final = PUBLISHED_ITEMS | {"item_reference"}
# Clients that read OpenAI's names only, by how their user agents begin: Codex shows reasoning from
# `reasoning_text` events and knows its own tools' calls by their types; the SDKs have models for OpenAI's
# events and no others. The AI SDK reads `reasoning_text` over both of its providers, and some of its calls
# carry its bare name.
_KNOWN_CLIENTS: Final = re.compile(
    r"^codex|^(Async)?OpenAI/|^Agents/|^ai/|^(Zed|grok-shell|grok-pager|opencode|Cline|RooCode|Kilo-Code)/"
    r"|\bai-sdk/open(ai|-responses)/",
    re.IGNORECASE,
)
# Headers of clients whatever their user agents are: OpenAI's SDKs add theirs under any application's name,
# Goose sends no user agent.
_KNOWN_HEADERS: Final = frozenset({"x-stainless-lang", "goose-session-id", "agent-session-id"})
# opencode sends its own name in the place of the provider's.
_AI_SDK_OPENAI: Final = re.compile(r"\bai-sdk/openai/|^opencode/", re.IGNORECASE)
_AI_SDK: Final = re.compile(r"^ai/", re.IGNORECASE)
_CODEX: Final = re.compile("codex", re.IGNORECASE)


def is_codex(headers: Mapping[str, str]) -> bool:
    """Whether this client is Codex, which times out although it receives SSE comments (field case 43), and
    ends its turn over some errors that others ask again over (field case 46)."""
    if "user-agent" in headers and _CODEX.match(headers["user-agent"]):
        return True
    return "originator" in headers and _CODEX.match(headers["originator"]) is not None


def shows_only_summaries(headers: Mapping[str, str], *, streamed: bool) -> bool:
    """Whether this client shows summaries and no raw reasoning, as the AI SDK's provider `openai` does. In
    requests for whole answers the SDK does not say which provider it is, and the one for Open Responses
    reads there nothing but raw reasoning."""
    if "user-agent" not in headers:
        return False
    agent = headers["user-agent"]
    return bool(_AI_SDK_OPENAI.search(agent) or (not streamed and _AI_SDK.match(agent)))


def wire_choice(value: str) -> str:
    """The value of the header as one of `WIRE_CHOICES`. Raises InvalidRequestError for another value."""
    wanted = value.strip().lower()
    if wanted in WIRE_CHOICES:
        return wanted
    what = f"expected one of {', '.join(WIRE_CHOICES)}"
    raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=WIRE_HEADER)


def choose_wire(request: CreateResponse, headers: Mapping[str, str], setting: str = AUTO) -> str:
    """The wire that the header asks for, else that of `setting`, one of `WIRE_CHOICES`, as `wire_for` has it.
    Raises InvalidRequestError for a header with another value."""
    return wire_for(
        request, headers, wire_choice(headers[WIRE_HEADER]) if WIRE_HEADER in headers else setting
    )


def wire_for(request: CreateResponse, headers: Mapping[str, str], chosen: str) -> str:
    """The chosen one of `WIRE_CHOICES` as a wire. With `auto` it is `openai` when the request carries what
    only OpenAI's API has or comes from a client known to need it, else `openresponses`."""
    if chosen != AUTO:
        return chosen
    items = request.input if isinstance(request.input, list) else ()
    asks = (
        request.conversation is not None
        or (request.tools and _beyond(request.tools, _PUBLISHED_TOOLS))
        or (items and _beyond(items, _PUBLISHED_INPUT))
    )
    known = not _KNOWN_HEADERS.isdisjoint(headers) or (
        "user-agent" in headers and _KNOWN_CLIENTS.search(headers["user-agent"])
    )
    return OPENAI if asks or known else OPENRESPONSES


def _beyond(things: Sequence[Any], published: Iterable[str]) -> bool:
    """Whether one of these is neither published nor an extension (`slug:name`)."""
    return any(":" not in kind for kind in {thing.type for thing in things}.difference(published))
