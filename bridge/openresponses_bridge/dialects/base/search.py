"""Searches of the web that an upstream runs itself: what a client asks for, and what was found.

Between the dialects, both are in OpenAI's terms, the tool `web_search` and the item `web_search_call`; each
dialect translates them to its own and back. A tool that can't be expressed for an upstream is a loss. A
server that runs searches itself has to remove the tool from the request before it is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base.failures import LONGEST_NAME
from openresponses_bridge.dialects.base.fields import Fields, invalid
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownTool

SEARCH_CALL: Final = "web_search_call"
SEARCH_SOURCES: Final = "web_search_call.action.sources"
"""The value of `include` that asks OpenAI for the addresses that a search found."""
_TOOL: Final = "web_search"
_TOOLS: Final = (_TOOL, "web_search_preview")
SEARCH_TOOLS: Final = frozenset(_TOOLS)
"""The types of OpenAI's search, without versions."""
_SLUG: Final = "openai:"
_PLACE: Final = ("country", "region", "city", "timezone")
_MOST_SHOWN: Final = 20  # sources in a text
_LONGEST: Final = 500  # characters of a query, a title or an address in a text
# attributes with settings → their places in the tool
SETTINGS: Final = {
    "allowed_domains": "filters.allowed_domains",
    "blocked_domains": "filters.blocked_domains",
    "location": "user_location",
    "context_size": "search_context_size",
    "max_uses": "max_uses",
}


class WebSearch(Struct, frozen=True, kw_only=True):
    """The search that a client asks for."""

    allowed_domains: list[str] = []
    """The domains, with their subdomains, to which the search is limited."""
    blocked_domains: list[str] = []
    """The domains that are left out of the search."""
    location: dict[str, str] = {}
    """The user's `country`, `region`, `city` and `timezone`, as far as they are known."""
    context_size: str | None = None
    """How much of the results the model reads: low, medium or high."""
    max_uses: int | None = None
    """The most searches for one answer."""
    others: tuple[str, ...] = ()
    """The names of further settings, which only OpenAI has."""

    def tool(self) -> UnknownTool:
        """Return the tool in OpenAI's spelling, except for `max_uses`, which is not OpenAI's."""
        filters = {
            name: value for name in ("allowed_domains", "blocked_domains") if (value := getattr(self, name))
        }
        settings: dict[str, Any] = {
            "filters": filters,
            "user_location": {"type": "approximate", **self.location} if self.location else None,
            "search_context_size": self.context_size,
            "max_uses": self.max_uses,
        }
        return UnknownTool({"type": _TOOL, **{name: value for name, value in settings.items() if value}})


class SearchForm(NamedTuple):
    """The form of a search for one kind of server. `make` returns what is sent; `kept` are the attributes of
    `WebSearch` that it can express. With `either`, domains are allowed or blocked but not both, and the
    allowed ones count."""

    make: Callable[[WebSearch], dict[str, Any]]
    kept: frozenset[str] = frozenset()
    either: bool = False

    def made(self, search: WebSearch, where: str, diagnostics: Diagnostics) -> dict[str, Any]:
        """Return the JSON that is sent for the tool at this path. Settings that are not sent are losses."""
        unsaid = [name for name in SETTINGS if name not in self.kept and getattr(search, name)]
        if self.either and search.allowed_domains and search.blocked_domains:
            unsaid.append("blocked_domains")
            search = replace(search, blocked_domains=[])
        for lost in (*(SETTINGS[name] for name in unsaid), *search.others):
            diagnostics.loss(f"{where}.{lost[:LONGEST_NAME]}", "can't be expressed")
        return self.make(search)


def is_search(kind: str) -> bool:
    """Return True if the type of a tool is that of OpenAI's search, in any version."""
    return kind.removeprefix(_SLUG).partition("_20")[0] in _TOOLS


def search_of(tool: Any, where: str) -> WebSearch | None:
    """Return the search of a tool at this path; None for another tool. Raises InvalidRequestError with the
    path of a setting that can't be read."""
    if not isinstance(tool, UnknownTool) or not is_search(tool.type):
        return None
    fields = Fields(tool.raw, where)
    fields.skip("type", "name")
    filters = fields.maybe_inner("filters") or Fields({}, f"{where}.filters")
    place = fields.maybe_inner("user_location") or Fields({}, f"{where}.user_location")
    live = fields.get("external_web_access", bool)
    others = ["external_web_access"] if live is False else []
    search = WebSearch(
        allowed_domains=_texts(filters, "allowed_domains"),
        blocked_domains=_texts(filters, "blocked_domains"),
        location=location_of(place),
        context_size=fields.get("search_context_size", str),
        max_uses=fields.get("max_uses", int),
    )
    unread = [*fields.unread_here, *filters.unread_here, *place.unread_here]
    others += [path.removeprefix(f"{where}.") for path in unread]
    return WebSearch(**{name: getattr(search, name) for name in SETTINGS}, others=tuple(others))


def location_of(place: Fields) -> dict[str, str]:
    """Return a user's approximate place, in the form of OpenAI's Responses and of Anthropic."""
    place.skip("type")
    location = {name: place.get(name, str) for name in _PLACE}
    return {name: value for name, value in location.items() if value}


def _texts(filters: Fields, name: str) -> list[str]:
    texts = filters.get(name, list) or []
    if not all(isinstance(each, str) for each in texts):
        raise invalid(filters.at(name), "expected strings")
    return texts


class Source(NamedTuple):
    """A page that was found. The title may be empty."""

    url: str
    title: str = ""


class Searched(NamedTuple):
    """A `web_search_call` as far as it can be read: `kind` is search, open_page or find_in_page; `failed` is
    True if it had no result; `sealed` can be read by one upstream only."""

    kind: str
    query: str
    sources: list[Source]
    url: str = ""
    pattern: str = ""
    failed: bool = False
    sealed: str = ""

    def text(self) -> str:
        """Return the search as text for a model that did not run it: its results, so that it need not search
        again."""
        if self.kind == "open_page":
            return f"[opened the page {_cut(self.url)}]"
        if self.kind == "find_in_page":
            return f"[looked for {_cut(self.pattern)!r} in the page {_cut(self.url)}]"
        summary = f"searched the web for {_cut(self.query)!r}" if self.query else "searched the web"
        if self.failed:
            return f"[{summary}, which failed]"
        if not self.sources:
            return f"[{summary}]"
        shown = self.sources[:_MOST_SHOWN]
        lines = [
            f"- {_cut(each.title)} {_cut(each.url)}" if each.title else f"- {_cut(each.url)}"
            for each in shown
        ]
        return "\n".join([f"[{summary} and found", *lines]) + "]"


def searched(item: Any) -> Searched | None:
    """Return what an item of a search says; None for another item. Fields of the wrong types are left out."""
    if not isinstance(item, UnknownItem) or item.type.removeprefix(_SLUG) != SEARCH_CALL:
        return None
    raw = item.raw
    raw_action = raw.get("action")
    action: dict[str, Any] = raw_action if isinstance(raw_action, dict) else {}
    queries = action.get("queries")
    several = [each for each in queries if isinstance(each, str)] if isinstance(queries, list) else []
    return Searched(
        _text(action.get("type")) or "search",
        " / ".join(several) or _text(action.get("query")),
        list(sources_of(action.get("sources"))),
        _text(action.get("url")),
        _text(action.get("pattern")),
        raw.get("status") in ("failed", "incomplete"),
        _text(raw.get("encrypted_content")),
    )


def search_call(
    item_id: str,
    query: str,
    sources: Iterable[Source],
    *,
    queries: Sequence[str] = (),
    status: str = "completed",
    sealed: str = "",
) -> UnknownItem:
    """Return the item of a search, or of several with one list of results. A page that was found twice is
    listed once."""
    pages: dict[str, dict[str, str]] = {}
    for each in sources:
        titled = {"title": each.title} if each.title else {}
        pages.setdefault(each.url, {"type": "url", "url": each.url, **titled})
    action: dict[str, Any] = {"type": "search", "query": query}
    action |= {"queries": list(queries)} if len(queries) > 1 else {}
    action |= {"sources": list(pages.values())} if pages else {}
    raw = {"type": SEARCH_CALL, "id": item_id, "status": status, "action": action}
    return UnknownItem(raw | {"encrypted_content": sealed} if sealed else raw)


def sources_of(given: Any, url: str = "url") -> Iterable[Source]:
    """Yield the web pages in a list of objects, or of addresses, from a server. `url` is the name of the
    field with the address."""
    for each in given if isinstance(given, list) else ():
        page = {url: each} if isinstance(each, str) else each if isinstance(each, dict) else {}
        address = page.get(url)
        if isinstance(address, str) and address.startswith(("http://", "https://")):
            yield Source(address, _text(page.get("title")))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
