"""Searches of the web at servers of Chat Completions: each has its own way to request them, and reports the
results in its own fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from openresponses_bridge.dialects.base import SearchForm, Source, WebSearch, search_call, sources_of
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.protocol.content import UrlCitation
from openresponses_bridge.protocol.unknown import UnknownItem

# ── requests: fields of the body, `tools` among them ──────────────────────────────────────────────────
_DOMAINS: Final = ("allowed_domains", "blocked_domains")


def _openai(search: WebSearch) -> dict[str, Any]:
    place = {"type": "approximate", "approximate": search.location} if search.location else None
    return {"web_search_options": _given(search_context_size=search.context_size, user_location=place)}


def _perplexity(search: WebSearch) -> dict[str, Any]:
    place = {name: value for name, value in search.location.items() if name != "timezone"}
    domains = [*search.allowed_domains, *(f"-{each}" for each in search.blocked_domains)]
    options = _given(search_context_size=search.context_size, user_location=place)
    return _given(web_search_options=options, search_domain_filter=domains)


def _openrouter(search: WebSearch) -> dict[str, Any]:
    place = {"type": "approximate", **search.location} if search.location else None
    parameters = _given(
        allowed_domains=search.allowed_domains,
        excluded_domains=search.blocked_domains,
        user_location=place,
        search_context_size=search.context_size,
    )
    return {"tools": [{"type": "openrouter:web_search", **_given(parameters=parameters)}]}


def _compound(search: WebSearch) -> dict[str, Any]:
    settings = _given(include_domains=search.allowed_domains, exclude_domains=search.blocked_domains)
    return _given(search_settings=settings)


def _zai(_search: WebSearch) -> dict[str, Any]:
    settings = {"enable": True, "search_engine": "search-prime", "search_result": True}
    return {"tools": [{"type": "web_search", "web_search": settings}]}


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


FORMS: Final[dict[str, SearchForm]] = {
    # OpenAI's reference of Chat Completions, for models with `search` in their names
    "openai": SearchForm(_openai, frozenset({"location", "context_size"})),
    # docs.perplexity.ai, Sonar API, whose models search without being asked
    "perplexity": SearchForm(_perplexity, frozenset({*_DOMAINS, "location", "context_size"}), either=True),
    # openrouter.ai, Server Tools, which came after the plugin `web`
    "openrouter": SearchForm(_openrouter, frozenset({*_DOMAINS, "location", "context_size"}), either=True),
    # console.groq.com, Browser Search, for gpt-oss, and Web Search, for Compound
    "groq": SearchForm(lambda _search: {"tools": [{"type": "browser_search"}]}),
    "groq_compound": SearchForm(_compound, frozenset(_DOMAINS)),
    # Vertex AI's page of OpenAI compatibility: Google Search without settings
    "google": SearchForm(lambda _search: {"web_search_options": {}}),
    # Alibaba Cloud's reference of its compatible mode
    "qwen": SearchForm(lambda _search: {"enable_search": True}),
    # docs.z.ai, Web Search in Chat
    "zai": SearchForm(_zai),
}
"""By the names in `ChatOptions.web_search`."""


# ── results ────────────────────────────────────────────────────────────────────────────────────────────
MOST: Final = 200
"""The most sources and searches of one answer that are kept."""


class FoundSources:
    """The sources that an answer's chunks name for searches."""

    __slots__ = ("_cited", "_listed", "_run")

    def __init__(self) -> None:
        self._cited: dict[str, Source] = {}
        self._listed: list[Source] = []
        self._run: dict[object, tuple[str, list[Source]]] = {}  # by index, since each comes more than once

    def annotate(self, citation: UrlCitation) -> None:
        """Add a page that a place in the text cites."""
        if len(self._cited) < MOST:
            self._cited.setdefault(citation.url, Source(citation.url, citation.title))

    def list(self, pages: Any, url: str = "url") -> None:
        """Add a list of pages. A later list replaces it, since servers send it with each chunk, unless only
        the earlier one has titles."""
        sources = list(sources_of(pages[:MOST] if isinstance(pages, list) else None, url))
        if sources and (any(each.title for each in sources) or not any(each.title for each in self._listed)):
            self._listed = sources

    def run(self, given: Any) -> None:
        """Add the tools that Groq ran."""
        for number, each in enumerate(given[:MOST] if isinstance(given, list) else ()):
            if isinstance(each, dict) and each.get("type") in _SEARCHING and len(self._run) < MOST:
                results = each.get("search_results")
                pages = results.get("results") if isinstance(results, dict) else None
                index = each.get("index")
                key = index if isinstance(index, int) else number
                before = self._run.get(key, ("", []))
                latest = _query(each.get("arguments")), list(sources_of(pages))
                self._run[key] = (latest[0] or before[0], latest[1] or before[1])

    def items(self) -> Iterable[UnknownItem]:
        """Yield the searches as items. If a server does not say which searches it ran, there is one without
        its query."""
        if self._run:
            return [search_call("", query, sources) for query, sources in self._run.values()]
        sources = self._listed or list(self._cited.values())
        return [search_call("", "", sources)] if sources else []


_SEARCHING: Final = ("search", "web_search", "browser_search", "browser.search")


def _query(arguments: Any) -> str:
    if isinstance(arguments, str):
        try:
            arguments = decode_json(arguments)
        except WireError:
            return ""
    query = arguments.get("query") if isinstance(arguments, dict) else None
    return query if isinstance(query, str) else ""
