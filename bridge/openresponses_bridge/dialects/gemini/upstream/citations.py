"""Converts Google's sources of a text to citations. Their places are bytes of the text in UTF-8, the
protocol's are characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import Source, search_call
from openresponses_bridge.dialects.gemini.signatures import seal_search
from openresponses_bridge.dialects.gemini.types import spelled
from openresponses_bridge.protocol.content import UrlCitation
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.seal import Sealer

_WEB: Final = ("web", "maps")
_FURTHER: Final = bytes(range(0x80, 0xC0))  # bytes of a character after its first (RFC 3629, section 3)
MOST: Final = 1_000
"""The most citations of one text; further ones are a loss."""


class _Place(NamedTuple):
    """A source and the bytes that it supports."""

    start: int
    end: int
    url: str
    title: str


class Sources:
    """The sources that a candidate's chunks name for one text: the last `groundingMetadata`, which is about
    the text so far, and all `citationMetadata`, up to `MOST` sources."""

    __slots__ = ("_cited", "_grounding")

    def __init__(self) -> None:
        self._grounding: Any = None
        self._cited: list[Any] = []

    def __bool__(self) -> bool:
        return bool(self._grounding or self._cited)

    def add(self, candidate: dict[str, Any]) -> None:
        """Keep the sources in a chunk's candidate."""
        self._grounding = candidate.get("groundingMetadata") or self._grounding
        metadata = candidate.get("citationMetadata")
        if isinstance(metadata, dict):
            fields = spelled(metadata)
            sources = _listed(fields.get("citationSources") or fields.get("citations"))
            self._cited += sources[: MOST + 1 - len(self._cited)]

    def citations(self, text: str, diagnostics: Diagnostics) -> list[UrlCitation]:
        """Return the sources of a text, in order. Those without a web address or outside the text are left to
        clients of this API."""
        places = [*_grounded(self._grounding, diagnostics), *_cited(self._cited, diagnostics)]
        if len(places) > MOST:
            diagnostics.loss("groundingMetadata", f"more than {MOST} citations, the first are kept")
            del places[MOST:]
        if not places:
            return []
        size = len(text.encode("utf-8", "replace"))
        inside = [each for each in places if 0 <= each.start < each.end <= size]
        if len(inside) < len(places):
            diagnostics.ignored("groundingMetadata", "a citation outside the text")
        at = _characters(text, {each.start for each in inside} | {each.end for each in inside})
        return [UrlCitation(each.url, at[each.start], at[each.end], each.title) for each in inside]


def search_in(metadata: dict[str, Any], sealer: Sealer) -> UnknownItem | None:
    """Return the item of the searches that `groundingMetadata` is about; None if there were none."""
    grounding = spelled(metadata)
    queries = [each for each in _listed(grounding.get("webSearchQueries"))[:MOST] if isinstance(each, str)]
    pages = [page for each in _listed(grounding.get("groundingChunks"))[:MOST] if (page := _source(each))]
    if not queries and not pages:
        return None
    query, sources = queries[0] if queries else "", [Source(*page) for page in pages]
    return search_call("", query, sources, queries=queries, sealed=seal_search(sealer))


def _characters(text: str, offsets: set[int]) -> dict[int, int]:
    """Return the number of characters before each byte offset. An offset within a character counts it."""
    data = text.encode("utf-8", "replace")
    counts: dict[int, int] = {}
    before = count = 0
    for offset in sorted(offsets):
        count += len(data[before:offset].translate(None, _FURTHER))
        counts[offset], before = count, offset
    return counts


def _grounded(metadata: Any, diagnostics: Diagnostics) -> Iterator[_Place]:
    grounding = spelled(metadata) if isinstance(metadata, dict) else {}
    sources = [_source(each) for each in _listed(grounding.get("groundingChunks"))]
    for support in map(spelled, filter(_is_object, _listed(grounding.get("groundingSupports")))):
        segment = support.get("segment")
        place = spelled(segment) if isinstance(segment, dict) else {}
        start, end = place.get("startIndex", 0), place.get("endIndex")
        for index in _listed(support.get("groundingChunkIndices")):
            source = sources[index] if type(index) is int and 0 <= index < len(sources) else None
            if source is None or type(start) is not int or type(end) is not int:
                diagnostics.ignored("groundingMetadata", "a source that is not a web page")
            else:
                yield _Place(start, end, *source)


def _source(chunk: Any) -> tuple[str, str] | None:
    """Return (address, title) of a web page."""
    within = spelled(chunk) if isinstance(chunk, dict) else {}
    page: dict[str, Any] = next((within[kind] for kind in _WEB if isinstance(within.get(kind), dict)), {})
    return _page(page.get("uri"), page.get("title"))


def _page(url: Any, title: Any) -> tuple[str, str] | None:
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        return None
    return url, title if isinstance(title, str) else ""


def _cited(sources: list[Any], diagnostics: Diagnostics) -> Iterator[_Place]:
    for each in map(spelled, filter(_is_object, sources)):
        page = _page(each.get("uri"), each.get("title"))
        start, end = each.get("startIndex", 0), each.get("endIndex")
        if page is None or type(start) is not int or type(end) is not int:
            diagnostics.ignored("citationMetadata", "a source that is not a web page")
        else:
            yield _Place(start, end, *page)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)
