"""The tools `web_search` and `web_search_preview`: searches by a provider, and pages that are opened here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from openresponses_bridge.dialects.base import SEARCH_CALL, is_search
from openresponses_bridge.errors import InvalidRequestError, WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.hosted import OUTPUT, kind_of
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.unknown import UnknownTool
from openresponses_bridge.text import repair_surrogates
from openresponses_server.hosted.base import (
    HostedCall,
    HostedContext,
    HostedFunction,
    HostedResult,
    HostedTool,
    HostedToolError,
    Recalled,
)
from openresponses_server.hosted.html import Page
from openresponses_server.hosted.pages import PageBudget, Pages, found_in, with_scheme
from openresponses_server.hosted.search import HttpSearch, SearchHit, SearchProvider, SearchQuery
from openresponses_server.settings import WebSearchSettings

_SEARCH, _OPEN, _FIND = "web_search", "open_page", "find_in_page"
_SHARES: Final = {"low": 0.5, "medium": 1.0, "high": 2.0}  # factors of the results, by `search_context_size`
_MOST_RESULTS: Final = 20
_BUDGET: Final = "pages"
_MOST_DOMAINS: Final = 100
_MOST_DAYS: Final = 3650
_LONGEST: Final = 2000  # characters of a query, an address, a pattern
_PLACE: Final = ("city", "region", "country", "timezone")


class WebSearch:
    """Web search of the settings, for all requests."""

    def __init__(self, settings: WebSearchSettings, provider: SearchProvider | None = None) -> None:
        """Raises SettingsError."""
        self._settings = settings
        self.provider = HttpSearch(settings) if provider is None else provider
        self.pages = Pages(settings) if settings.pages else None

    def takes(self, tool: Any, *, upstream_has: bool) -> bool:
        return (
            isinstance(tool, UnknownTool)
            and is_search(tool.type)
            and not (upstream_has and self._settings.when == "missing")
        )

    async def open(self, tool: Any, context: HostedContext) -> HostedTool:
        return self.tool(tool.raw, context.shared)

    def tool(self, raw: Mapping[str, Any], shared: dict[str, Any]) -> WebSearchTool:
        """Return the search with the settings of a tool `web_search`; `shared` is what all tools of one
        request have in common. Raises InvalidRequestError with the path of a setting that can't be used."""
        budget = None if self.pages is None else shared.setdefault(_BUDGET, self.pages.budget())
        return WebSearchTool(raw, self._settings.results, self.provider, self.pages, budget)

    def offered(self, request: CreateResponse, context: HostedContext) -> HostedTool | None:
        return None

    def recall(self, item: Any, *, upstream_has: bool) -> Recalled | None:
        if kind_of(item) != SEARCH_CALL or not isinstance(output := item.raw.get(OUTPUT), str):
            return None
        action = item.raw.get("action")
        fields: Mapping[str, Any] = action if isinstance(action, dict) else {}
        names = {"open_page": ("url",), "find_in_page": ("url", "pattern")}.get(
            str(fields.get("type")), ("query",)
        )
        name = _SEARCH if names == ("query",) else str(fields["type"])
        return Recalled(name, encode({each: str(fields.get(each) or "") for each in names}).decode(), output)

    async def close(self) -> None:
        await self.provider.close()


class WebSearchTool:
    """A search with the settings of one request."""

    kind = "extension"
    preface: Sequence[dict[str, Any]] = ()

    def __init__(
        self,
        raw: Mapping[str, Any],
        results: int,
        provider: SearchProvider,
        pages: Pages | None,
        budget: PageBudget | None,
    ) -> None:
        """Raises InvalidRequestError, with `param` within the tool."""
        filters = _object(raw, "filters")
        self._allowed = _domains(filters, "allowed_domains")
        self._blocked = _domains(filters, "blocked_domains")
        place = _object(raw, "user_location")
        place = _object(place, "approximate") or place  # as in Chat Completions
        size = raw.get("search_context_size") or "medium"
        if not isinstance(size, str) or size not in _SHARES:
            raise _invalid("search_context_size", "expected low, medium or high")
        self._results = min(max(int(results * _SHARES[size]), 1), _MOST_RESULTS)
        where = {name: str(place[name])[:100] for name in _PLACE if isinstance(place.get(name), str)}
        self._country = where.get("country", "")[:2].upper() if len(where.get("country", "")) == 2 else ""
        most = raw.get("max_uses")
        self._uses_left = most if isinstance(most, int) else None
        self._provider = provider
        # anything else restricts the search to what is known of pages without opening them
        self._pages = pages if raw.get("external_web_access") in (None, True) else None
        self._budget = budget
        self.functions = _functions(where, self._allowed, self._pages is not None)

    def announce(self, call: HostedCall) -> dict[str, Any]:
        return {"type": SEARCH_CALL, "status": "in_progress", "action": _action(call)}

    def progress(self, call: HostedCall) -> Sequence[tuple[str, dict[str, Any]]]:
        return [("response.web_search_call.in_progress", {}), ("response.web_search_call.searching", {})]

    def ending(self, result: HostedResult) -> str | None:
        return "response.web_search_call.completed"

    def is_repeatable(self, call: HostedCall) -> bool:
        return True

    def approval(self, call: HostedCall) -> dict[str, Any] | None:
        return None

    def released(self, items: Sequence[Any]) -> Sequence[HostedCall]:
        return ()

    async def run(self, call: HostedCall) -> HostedResult:
        arguments = _arguments(call)
        action = _action(call)
        try:
            if call.name == _SEARCH:
                hits = await self.search(arguments.get("query", ""))
                action["sources"] = [{"type": "url", "url": hit.url, "title": hit.title} for hit in hits]
                text, pages = shown_hits(hits), [(hit.url, hit.title) for hit in hits]
            else:
                page = await self.page(arguments.get("url", ""))
                text = f"{page.title}\n\n{page.text}".strip() or "The page has no text."
                text = text if call.name == _OPEN else places(text, arguments.get("pattern", ""))
                pages = [(with_scheme(arguments["url"]), page.title)]
        except HostedToolError as error:
            return HostedResult(error.message, {"status": "failed", "action": action}, failed=True)
        return HostedResult(text, {"status": "completed", "action": action}, pages=pages)

    async def search(
        self, text: str, *, days: int | None = None, domains: Sequence[str] = ()
    ) -> list[SearchHit]:
        """Return the hits of the last `days` (None for any time) at these `domains` (none for all that the
        request allows). Raises HostedToolError."""
        if not (text := repair_surrogates(text).strip()[:_LONGEST]):
            raise HostedToolError("The query is missing.")
        if self._uses_left is not None:
            if self._uses_left <= 0:
                raise HostedToolError("The request allows no further search. Answer with what is known.")
            self._uses_left -= 1
        allowed = [repair_surrogates(each) for each in domains[:_MOST_DOMAINS]] or self._allowed
        days = None if days is None else min(max(days, 1), _MOST_DAYS)
        query = SearchQuery(text, self._results, allowed, self._blocked, self._country, days)
        return [hit for hit in await self._provider.search(query) if self._admits(hit.url)]

    def _admits(self, url: str) -> bool:
        return SearchQuery("", 0, self._allowed, self._blocked).admits(url)

    async def page(self, url: str) -> Page:
        """Return the page at an address. Raises HostedToolError."""
        if self._pages is None or self._budget is None:
            raise HostedToolError("Pages can't be opened here.")
        if not url or len(url) > _LONGEST:
            raise HostedToolError("The address is missing, or too long.")
        return await self._pages.open(with_scheme(repair_surrogates(url)), self._admits, self._budget)


def places(text: str, pattern: str) -> str:
    """Return the places in a page's text that contain this pattern, as text for a model. Raises
    HostedToolError."""
    if not pattern:
        raise HostedToolError("The pattern is missing.")
    return found_in(text, pattern) or "The page does not have that text."


def shown_hits(hits: Sequence[SearchHit]) -> str:
    """Return the hits as text for a model."""
    if not hits:
        return "Nothing was found."
    return "\n\n".join(f"[{n}] {hit.title}\n{hit.url}\n{hit.text}".strip() for n, hit in enumerate(hits, 1))


def _functions(where: Mapping[str, str], allowed: Sequence[str], pages: bool) -> list[HostedFunction]:
    about = (
        "Searches the web. Returns titles, addresses and extracts of pages; cite the addresses that you use."
    )
    if where:
        about += f" The user is near {', '.join(where.values())}."
    if allowed:
        about += f" Only these domains are searched: {', '.join(allowed[:10])}."
    functions = [HostedFunction(_SEARCH, about, _parameters(query="What to search for."))]
    if pages:
        opening = "Opens a page of the web and returns its text."
        finding = "Looks for text in a page of the web; returns the places with what stands around them."
        functions.append(HostedFunction(_OPEN, opening, _parameters(url="The page's address.")))
        both = _parameters(url="The page's address.", pattern="The text to look for, whatever its case.")
        functions.append(HostedFunction(_FIND, finding, both))
    return functions


def _parameters(**texts: str) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": about} for name, about in texts.items()}
    return {
        "type": "object",
        "properties": properties,
        "required": list(texts),
        "additionalProperties": False,
    }


def _arguments(call: HostedCall) -> dict[str, str]:
    try:
        arguments = decode_json(call.arguments.encode(errors="replace") or b"{}")
    except WireError:
        arguments = {}
    if not isinstance(arguments, dict):
        return {}
    return {name: value[:_LONGEST] for name, value in arguments.items() if isinstance(value, str)}


def _action(call: HostedCall) -> dict[str, Any]:
    arguments = _arguments(call)
    if call.name == _OPEN:
        return {"type": _OPEN, "url": arguments.get("url", "")}
    if call.name == _FIND:
        return {"type": _FIND, "url": arguments.get("url", ""), "pattern": arguments.get("pattern", "")}
    return {"type": "search", "query": arguments.get("query", "")}


def _object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _invalid(name, "expected an object")
    return value


def _domains(filters: Mapping[str, Any], name: str) -> list[str]:
    domains = filters.get(name) or []
    if not isinstance(domains, list) or not all(isinstance(each, str) for each in domains):
        raise _invalid(f"filters.{name}", "expected strings")
    if len(domains) > _MOST_DOMAINS:
        raise _invalid(f"filters.{name}", f"{len(domains)} domains; the limit is {_MOST_DOMAINS}")
    return [repair_surrogates(each[:_LONGEST]) for each in domains]


def _invalid(param: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(InvalidRequestError.INVALID_VALUE, f"{param}: {what}", param=param)
