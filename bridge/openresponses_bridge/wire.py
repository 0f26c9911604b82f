"""Chooses the wire, the spelling of the protocol, for a client (law E10): as a header or a setting says, else
by what the request carries and by the client's name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

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


class KnownClient(NamedTuple):
    """A client that reads OpenAI's names only, as its user agent says.

    `agents` is how the user agent is recognised, `shows` what of raw reasoning it shows. `seen` is the
    version that was looked at, on the day `on`; `package` is where newer ones would come from, `npm:` or
    `pypi:` and a name, "" where that can't be asked.
    """

    title: str
    agents: str
    shows: Literal["raw", "summaries", "unknown when whole"]
    seen: str
    on: str
    package: str = ""


CLIENTS: Final = (
    # shows reasoning from `reasoning_text` events and knows its own tools' calls by their types
    KnownClient("Codex", r"^codex", "raw", "0.171.0", "2026-11-28", "npm:@openai/codex"),
    # the SDKs have models for OpenAI's events and no others
    KnownClient("OpenAI SDK (JS)", r"^OpenAI/JS", "raw", "7.59.0", "2026-11-28", "npm:openai"),
    KnownClient("OpenAI SDK (Python)", r"^(?:Async)?OpenAI/", "raw", "3.57.0", "2026-11-28", "pypi:openai"),
    KnownClient("OpenAI Agents", r"^Agents/", "raw", "0.24.0", "2026-11-28", "pypi:openai-agents"),
    # reads `reasoning_text` over both of its providers; in requests for whole answers it does not say which
    # provider it is, and the one for Open Responses reads there nothing but raw reasoning
    KnownClient("AI SDK", r"^ai/", "unknown when whole", "7.0.173", "2026-11-28", "npm:ai"),
    KnownClient(
        "AI SDK, OpenAI", r"\bai-sdk[/-]openai/", "summaries", "4.0.118", "2026-11-28", "npm:@ai-sdk/openai"
    ),
    KnownClient(
        "AI SDK, Open Responses",
        r"\bai-sdk[/-]open-responses/",
        "raw",
        "2.0.36",
        "2026-11-28",
        "npm:@ai-sdk/open-responses",
    ),
    KnownClient("AI SDK, OpenAI-compatible", r"\bai-sdk[/-]openai-compatible/", "raw", "2.0", "2026-11-23"),
    # sends its own name in the place of the AI SDK's provider for OpenAI
    KnownClient("opencode", r"^opencode/", "summaries", "1.18.33", "2026-11-28", "npm:opencode-ai"),
    KnownClient("Zed", r"^Zed/", "raw", "1.4.2", "2026-11-23"),
    KnownClient("Grok Build", r"^grok-(?:shell|pager)/", "raw", "0.2.101", "2026-11-23"),
    KnownClient("Cline", r"^Cline/", "raw", "3.74.0", "2026-11-23"),
    KnownClient("Roo Code", r"^RooCode/", "raw", "3.36.6", "2026-11-23"),
    KnownClient("Kilo Code", r"^Kilo-Code/", "raw", "7.2.0", "2026-11-23"),
    # names change, and an SDK of OpenAI's kind reads no other spelling: `async-openai`, what comes after
    # `ai-sdk-openai/4`
    KnownClient("an SDK of OpenAI's kind", r"openai|\bai-sdk\b", "summaries", "", "2026-11-28"),
)
"""Of those that a user agent fits, the one that fits at its beginning counts, then the first one."""
_KNOWN_CLIENTS: Final = re.compile(
    "|".join(f"(?P<c{at}>{each.agents})" for at, each in enumerate(CLIENTS)), re.IGNORECASE
)
# Headers of clients whatever their user agents are: OpenAI's SDKs add theirs under any application's name,
# Goose sends no user agent.
_KNOWN_HEADERS: Final = frozenset({"x-stainless-lang", "goose-session-id", "agent-session-id"})
_CODEX: Final = re.compile("codex", re.IGNORECASE)


def is_codex(headers: Mapping[str, str]) -> bool:
    """Return True if this client is Codex, which times out although it receives SSE comments (field case 43),
    and ends its turn over some errors that others ask again over (field case 46)."""
    if "user-agent" in headers and _CODEX.match(headers["user-agent"]):
        return True
    return "originator" in headers and _CODEX.match(headers["originator"]) is not None


def shows_only_summaries(headers: Mapping[str, str], *, streamed: bool, asked: str = AUTO) -> bool:
    """Return whether this client shows summaries and no raw reasoning. The wire that it asked for by its
    header says so too: in OpenAI's spelling only Codex has raw reasoning."""
    if asked != AUTO:
        return asked == OPENAI and not is_codex(headers)
    found = _KNOWN_CLIENTS.search(headers["user-agent"]) if "user-agent" in headers else None
    if found is None:
        return False
    shows = CLIENTS[int(str(found.lastgroup)[1:])].shows
    return shows == "summaries" or (shows != "raw" and not streamed)


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
    """Return True if one of these is neither published nor an extension (`slug:name`)."""
    return any(":" not in kind for kind in {thing.type for thing in things}.difference(published))
