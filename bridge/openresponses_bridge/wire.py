"""Chooses the wire, the spelling of the protocol, for a client (law E10): by a header or a setting, otherwise
by the request's content and the client's name."""

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
"""The request's content and the client's name decide."""
WIRE_CHOICES: Final = (OPENAI, OPENRESPONSES, AUTO)
WIRE_HEADER: Final = "openresponses-wire"
"""The header with which a request chooses its wire: one of `WIRE_CHOICES`."""

_PUBLISHED_TOOLS: Final = frozenset({"function"})
_PUBLISHED_INPUT: Final = PUBLISHED_ITEMS | {"item_reference"}


class KnownClient(NamedTuple):
    """A client that reads only OpenAI's names, recognised by its user agent.

    `agents` is the regular expression that finds its user agent. `shows` is the reasoning that it shows: raw
    reasoning, summaries only, or in whole answers (not streamed) an unknown one. `seen` is the version that
    was examined, on the date `on`. `package` is where its versions are published, `npm:` or `pypi:` and a
    name; "" if there is no such place.
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
    # reads `reasoning_text` with both of its providers; a request for a whole answer does not name the
    # provider, and the one for Open Responses reads only raw reasoning in it
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
    # sends its own name instead of that of the AI SDK's provider for OpenAI
    KnownClient("opencode", r"^opencode/", "summaries", "1.18.33", "2026-11-28", "npm:opencode-ai"),
    KnownClient("Zed", r"^Zed/", "raw", "1.4.2", "2026-11-23"),
    KnownClient("Grok Build", r"^grok-(?:shell|pager)/", "raw", "0.2.101", "2026-11-23"),
    KnownClient("Cline", r"^Cline/", "raw", "3.74.0", "2026-11-23"),
    KnownClient("Roo Code", r"^RooCode/", "raw", "3.36.6", "2026-11-23"),
    KnownClient("Kilo Code", r"^Kilo-Code/", "raw", "7.2.0", "2026-11-23"),
    # SDKs that are not listed, such as `async-openai` and successors of `ai-sdk-openai/4`: an SDK for
    # OpenAI's API reads no other spelling
    KnownClient("an SDK of OpenAI's kind", r"openai|\bai-sdk\b", "summaries", "", "2026-11-28"),
)
"""If several match a user agent, the match nearest to its beginning counts; at the same place, the first in
this list."""
_KNOWN_CLIENTS: Final = re.compile(
    "|".join(f"(?P<c{at}>{each.agents})" for at, each in enumerate(CLIENTS)), re.IGNORECASE
)
# Headers that identify a client without its user agent: OpenAI's SDKs send theirs even if an application sets
# another user agent, and Goose sends no user agent.
_KNOWN_HEADERS: Final = frozenset({"x-stainless-lang", "goose-session-id", "agent-session-id"})
_CODEX: Final = re.compile("codex", re.IGNORECASE)


def is_codex(headers: Mapping[str, str]) -> bool:
    """Return True if this client is Codex, which times out although it receives SSE comments (field case 43),
    and ends its turn at some errors after which other clients retry (field case 46)."""
    if "user-agent" in headers and _CODEX.match(headers["user-agent"]):
        return True
    return "originator" in headers and _CODEX.match(headers["originator"]) is not None


def shows_only_summaries(headers: Mapping[str, str], *, streamed: bool, asked: str = AUTO) -> bool:
    """Return True if this client shows summaries and no raw reasoning. `asked` is the wire that its header
    asks for, one of `WIRE_CHOICES`; unless that is `auto`, it decides: of the clients that ask for `openai`,
    only Codex shows raw reasoning."""
    if asked != AUTO:
        return asked == OPENAI and not is_codex(headers)
    match = _KNOWN_CLIENTS.search(headers["user-agent"]) if "user-agent" in headers else None
    if match is None:
        return False
    shows = CLIENTS[int(str(match.lastgroup)[1:])].shows
    return shows == "summaries" or (shows != "raw" and not streamed)


def wire_choice(value: str) -> str:
    """Return the header's value as one of `WIRE_CHOICES`. Raises InvalidRequestError for any other value."""
    choice = value.strip().lower()
    if choice in WIRE_CHOICES:
        return choice
    what = f"expected one of {', '.join(WIRE_CHOICES)}"
    raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=WIRE_HEADER)


def choose_wire(request: CreateResponse, headers: Mapping[str, str], setting: str = AUTO) -> str:
    """Return the wire that the header asks for, or without the header the one that `setting` asks for, as
    `wire_for` does. Both are one of `WIRE_CHOICES`; raises InvalidRequestError for any other value of the
    header."""
    return wire_for(
        request, headers, wire_choice(headers[WIRE_HEADER]) if WIRE_HEADER in headers else setting
    )


def wire_for(request: CreateResponse, headers: Mapping[str, str], chosen: str) -> str:
    """Return the wire for `chosen`, one of `WIRE_CHOICES`: for `auto`, `openai` if the request contains what
    only OpenAI's API has or comes from a client that is known to need it, otherwise `openresponses`."""
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
