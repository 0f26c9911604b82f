"""Search of the web: the providers behind one small interface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlencode, urlsplit

import structlog
from msgspec import Struct

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_server.hosted.base import HostedToolError
from openresponses_server.hosted.html import plain_text, tokens
from openresponses_server.http.client.connection import canonical_host
from openresponses_server.http.client.pool import ConnectionPool
from openresponses_server.http.flow import BodyReader
from openresponses_server.settings import SettingsError, Timeouts, WebSearchSettings
from openresponses_server.settings.files import expanded
from openresponses_server.tasks import on_thread

_MOST: Final = 2 * 1024 * 1024  # bytes of an answer
_LONGEST: Final = 2000  # characters of a text from a provider
_JSON: Final = {"accept": "application/json"}
_log = structlog.get_logger(__name__)


class SearchQuery(Struct, frozen=True):
    """A search for `most` results, of some domains and their subdomains, and not of others. `country` is ISO
    3166, "" for any; `days` is the highest age of a page, None for any."""

    text: str
    most: int
    allowed: Sequence[str] = ()
    blocked: Sequence[str] = ()
    country: str = ""
    days: int | None = None

    def span(self, names: Sequence[str]) -> str | None:
        """Return the one of `names`, for a day, a week, a month and a year, of the shortest span of time that
        covers the days, else a year; None for any age."""
        if self.days is None:
            return None
        return next(
            (name for name, most in zip(names, (1, 7, 31), strict=False) if self.days <= most), names[3]
        )

    def admits(self, url: str) -> bool:
        """Return True if the query's domains allow this page to be found or opened."""
        try:
            host = canonical_host(urlsplit(url).hostname or "")
        except ValueError:
            return False
        if not host or any(_is_within(host, each) for each in self.blocked):
            return False
        return not self.allowed or any(_is_within(host, each) for each in self.allowed)


def _is_within(host: str, domain: str) -> bool:
    named = domain.lower().removeprefix("http://").removeprefix("https://").partition("/")[0].strip(".[]")
    try:
        named = canonical_host(named)
    except ValueError:
        return False
    return bool(named) and (host == named or host.endswith(f".{named}"))


class SearchHit(Struct, frozen=True):
    """A page that was found; `text` is a part of it, as plain text."""

    url: str
    title: str
    text: str


class SearchProvider(Protocol):
    """A provider of searches."""

    async def search(self, query: SearchQuery) -> list[SearchHit]:
        """Return the hits, best first. Raises HostedToolError, whose message names no address or key."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class _Request(Struct, frozen=True):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


Form = Callable[[SearchQuery, str], _Request]
"""Makes the request for a search, with the key, as a provider requires it."""
Reading = Callable[[bytes], list[SearchHit]]
"""Reads the hits from a provider's answer. Raises ValueError, KeyError or TypeError for any other answer."""


class HttpSearch:
    """A provider over HTTP, at the address of the settings."""

    def __init__(self, settings: WebSearchSettings) -> None:
        """Raises SettingsError."""
        address, needs_key, self._form, self._read = _PROVIDERS[settings.provider]
        url = settings.url or address
        if url is None:
            raise SettingsError(f"{settings.provider} needs the address of an instance", "$.web_search.url")
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise SettingsError(f"{url[:80]!r} is not an http:// or https:// address", "$.web_search.url")
        self._key = expanded(settings.api_key, "$.web_search.api_key") if settings.api_key else ""
        if needs_key and not self._key:
            raise SettingsError(f"{settings.provider} needs a key", "$.web_search.api_key")
        self._url = url.rstrip("/")
        self._name = settings.provider
        self._seconds = settings.seconds
        self._pool: ConnectionPool | None = None

    async def search(self, query: SearchQuery) -> list[SearchHit]:
        request = self._form(query, self._key)
        try:
            async with asyncio.timeout(self._seconds):
                status, data = await self._ask(request)
        except TimeoutError:
            raise self._failed("it did not answer in time") from None
        except OSError as error:
            raise self._failed("it can't be reached", str(error)) from error
        if status != 200:
            raise self._failed(f"it answered with status {status}")
        if len(data) > _MOST:
            raise self._failed("its answer is too long")
        try:
            hits = await on_thread(lambda: self._read(data), begun=True)
        except (WireError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._failed("its answer can't be read", repr(error)[:200]) from error
        admitted = [
            hit for hit in hits if hit.url.startswith(("http://", "https://")) and query.admits(hit.url)
        ]
        return admitted[: query.most]

    async def _ask(self, request: _Request) -> tuple[int, bytes]:
        if self._pool is None:
            seconds = self._seconds
            self._pool = ConnectionPool("", Timeouts(seconds, seconds, seconds, seconds))
        url = f"{self._url}{request.path}"
        answer = await self._pool.request(
            request.method, url, headers={"user-agent": _AGENT, **request.headers}, data=request.body
        )
        with closing(answer):
            return answer.status, await BodyReader(answer.content).collect(_MOST + 1)

    def _failed(self, what: str, cause: str = "") -> HostedToolError:
        _log.warning("search.failed", provider=self._name, reason=what, cause=cause)
        return HostedToolError(f"The search failed: {what}.")

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()


_AGENT: Final = "openresponses-bridge"


def _with_domains(query: SearchQuery) -> str:
    """Return the text of a search with its domains as operators, which search engines understand."""
    allowed = " OR ".join(f"site:{each}" for each in query.allowed[:10])
    blocked = " ".join(f"-site:{each}" for each in query.blocked[:10])
    return " ".join(filter(None, [query.text, f"({allowed})" if " OR " in allowed else allowed, blocked]))


def _hit(result: Mapping[str, Any], url: str, title: str, text: str) -> SearchHit:
    values = (result.get(name) for name in (url, title, text))
    address, name, extract = (value if isinstance(value, str) else "" for value in values)
    return SearchHit(address[:_LONGEST], plain_text(name)[:_LONGEST], plain_text(extract)[:_LONGEST])


def _objects(results: Any) -> list[dict[str, Any]]:
    return [each for each in results if isinstance(each, dict)]


_SPANS: Final = ("day", "week", "month", "year")


def _searxng(query: SearchQuery, key: str) -> _Request:
    parameters = {"q": _with_domains(query), "format": "json"}
    if span := query.span(_SPANS):
        parameters["time_range"] = span
    headers = {**_JSON, "authorization": f"Bearer {key}"} if key else _JSON
    return _Request("GET", f"/search?{urlencode(parameters)}", headers)


def _of_searxng(data: bytes) -> list[SearchHit]:
    return [_hit(each, "url", "title", "content") for each in _objects(decode_json(data)["results"])]


def _brave(query: SearchQuery, key: str) -> _Request:
    parameters = {"q": _with_domains(query)[:400], "count": str(query.most)}
    if query.country:
        parameters["country"] = query.country
    if span := query.span(("pd", "pw", "pm", "py")):
        parameters["freshness"] = span
    headers = {**_JSON, "x-subscription-token": key}
    return _Request("GET", f"/res/v1/web/search?{urlencode(parameters)}", headers)


def _of_brave(data: bytes) -> list[SearchHit]:
    web = decode_json(data).get("web") or {"results": []}
    return [_hit(each, "url", "title", "description") for each in _objects(web["results"])]


def _tavily(query: SearchQuery, key: str) -> _Request:
    body: dict[str, Any] = {"query": query.text, "max_results": query.most}
    if query.allowed:
        body["include_domains"] = list(query.allowed)
    if query.blocked:
        body["exclude_domains"] = list(query.blocked)
    if span := query.span(_SPANS):
        body["time_range"] = span
    return _post("/search", body, authorization=f"Bearer {key}")


def _of_tavily(data: bytes) -> list[SearchHit]:
    return [_hit(each, "url", "title", "content") for each in _objects(decode_json(data)["results"])]


def _exa(query: SearchQuery, key: str) -> _Request:
    contents = {"text": {"maxCharacters": _LONGEST}}
    body: dict[str, Any] = {"query": query.text, "numResults": query.most, "contents": contents}
    if query.allowed:
        body["includeDomains"] = list(query.allowed)
    if query.blocked:
        body["excludeDomains"] = list(query.blocked)
    if query.country:
        body["userLocation"] = query.country
    if query.days is not None:
        since = datetime.now(UTC) - timedelta(days=query.days)
        body["startPublishedDate"] = f"{since:%Y-%m-%dT%H:%M:%SZ}"
    return _post("/search", body, x_api_key=key)


def _of_exa(data: bytes) -> list[SearchHit]:
    return [_hit(each, "url", "title", "text") for each in _objects(decode_json(data)["results"])]


def _post(path: str, body: dict[str, Any], **headers: str) -> _Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return _Request("POST", path, {**_JSON, "content-type": "application/json", **named}, encode(body))


def _duckduckgo(query: SearchQuery, _key: str) -> _Request:
    parameters = {"q": _with_domains(query)}
    if span := query.span("dwmy"):
        parameters["df"] = span
    return _Request("GET", f"/html/?{urlencode(parameters)}", {"accept": "text/html"})


def _of_duckduckgo(data: bytes) -> list[SearchHit]:
    hits: list[SearchHit] = []
    url, within = "", ""  # the address of the present result, and what its text belongs to
    pieces: list[str] = []
    for token in tokens(data.decode(errors="replace")):
        if isinstance(token, str):
            if within:
                pieces.append(token)
        elif token.name == "a" and "result__a" in token.attribute("class").split():
            url, within, pieces = _target_of(token.attribute("href")), "title", []
        elif token.name == "a" and "result__snippet" in token.attribute("class").split():
            within, pieces = "text", []
        elif token.name == "/a" and within:
            text = plain_text("".join(pieces))[:_LONGEST]
            if within == "title":
                hits.append(SearchHit(url[:_LONGEST], text, ""))
            elif hits:
                hits[-1] = SearchHit(hits[-1].url, hits[-1].title, text)
            within = ""
    return hits


def _target_of(link: str) -> str:
    """Return the page that a link of DuckDuckGo leads to."""
    parts = urlsplit(link)
    if parts.path == "/l/":
        return next(iter(parse_qs(parts.query).get("uddg", ())), "")
    return link


_PROVIDERS: Final[dict[str, tuple[str | None, bool, Form, Reading]]] = {
    "searxng": (None, False, _searxng, _of_searxng),
    "brave": ("https://api.search.brave.com", True, _brave, _of_brave),
    "tavily": ("https://api.tavily.com", True, _tavily, _of_tavily),
    "exa": ("https://api.exa.ai", True, _exa, _of_exa),
    "duckduckgo": ("https://html.duckduckgo.com", False, _duckduckgo, _of_duckduckgo),
}
"""Name → its own address, whether it needs a key, how its request is made, how its answer is read."""
