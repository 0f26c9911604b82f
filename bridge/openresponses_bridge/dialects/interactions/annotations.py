"""Citations of a text ↔ annotations. Their places are bytes of the text in UTF-8, the protocol's are
characters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.interactions.types import Json, objects_in
from openresponses_bridge.protocol.content import UrlCitation

MOST: Final = 1_000
"""The most citations of one text; more are a loss."""
_URL: Final = "url_citation"
_FURTHER: Final = bytes(range(0x80, 0xC0))  # bytes of a character after its first (RFC 3629, section 3)


def annotation_of(citation: Any, at: Mapping[int, int], diagnostics: Diagnostics) -> Json | None:
    """Return the annotation for a citation; `at` returns the byte of each place. None, with a loss, for one
    that this API does not have."""
    if isinstance(citation, UrlCitation):
        place = {"start_index": at[citation.start_index], "end_index": at[citation.end_index]}
        return {"type": _URL, "url": citation.url, "title": citation.title, **place}
    diagnostics.loss("annotation", "Interactions has no such annotation")
    return None


def citations_of(
    annotations: list[Any], text: str, diagnostics: Diagnostics
) -> tuple[list[UrlCitation], list[Json]]:
    """Return (the web pages that a text cites, in order; the other annotations, which are only for clients of
    this API)."""
    objects = objects_in({"annotations": annotations}, "annotations", diagnostics)
    if len(objects) > MOST:
        diagnostics.loss("annotations", f"more than {MOST}, the first are kept")
        del objects[MOST:]
    data = text.encode("utf-8", "replace")
    pages = [each for each in objects if _is_page(each, len(data))]
    at = _characters(data, {each[name] for each in pages for name in ("start_index", "end_index")})
    citations: list[UrlCitation] = []
    for each in pages:
        title = each.get("title")
        named = title if isinstance(title, str) else ""
        citations.append(UrlCitation(each["url"], at[each["start_index"]], at[each["end_index"]], named))
    return citations, [each for each in objects if not _is_page(each, len(data))]


def _is_page(annotation: Json, size: int) -> bool:
    url, start, end = annotation.get("url"), annotation.get("start_index"), annotation.get("end_index")
    is_url = isinstance(url, str) and url.startswith(("http://", "https://"))
    if annotation.get("type") != _URL or not is_url or type(start) is not int or type(end) is not int:
        return False
    return 0 <= start <= end <= size


def bytes_before(text: str, places: Collection[int]) -> dict[int, int]:
    """Return the number of bytes before each of these numbers of characters; places outside the text become
    its ends."""
    offsets: dict[int, int] = {}
    counted = size = 0
    for place in sorted(places):
        end = min(max(place, 0), len(text))
        size += len(text[counted:end].encode("utf-8", "replace"))
        offsets[place], counted = size, max(counted, end)
    return offsets


def _characters(data: bytes, offsets: Collection[int]) -> dict[int, int]:
    """Return the number of characters before each byte offset. An offset within a character counts it."""
    counts: dict[int, int] = {}
    before = count = 0
    for offset in sorted(offsets):
        count += len(data[before:offset].translate(None, _FURTHER))
        counts[offset], before = count, offset
    return counts
