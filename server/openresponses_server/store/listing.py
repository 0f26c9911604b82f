"""Lists of one owner's stored responses, newest first: metadata without contents."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, Protocol

from msgspec import Struct

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json

HEAD_BYTES: Final = 1000
"""The number of bytes that a list reads of a response, and of its last input item."""
_AT_ONCE: Final = 100
_LOOKED_AT: Final = 1000
"""The most responses that one call checks for a match."""
_SHOWN: Final = 200  # characters of the question
_MODEL: Final = re.compile(r'"model":"((?:[^"\\]|\\.){0,300})"')
_TEXT: Final = re.compile(r'"(?:text|content|output)":"((?:[^"\\]|\\.){0,1000})')
_UNFINISHED_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")


class ResponseRow(Struct, frozen=True):
    """Columns of a stored response, and the first `HEAD_BYTES` of its JSON and of its last input item's."""

    id: str
    status: str
    created_at: float
    previous_response_id: str | None
    last_sequence: int
    response: bytes
    item: bytes | None


class Listed(Struct, frozen=True):
    """One row of a list. `asked` is the beginning of the last input item's text, and `model` the model that
    answered; each is "" if it is not within the first `HEAD_BYTES`."""

    id: str
    status: str
    created_at: float
    previous_response_id: str | None
    last_sequence: int
    model: str
    asked: str


class ListFilter(Struct, frozen=True):
    """Selects responses that meet every condition given. `search` is a substring of the id or of `asked`,
    case ignored; `since` (inclusive) and `until` (exclusive) are Unix seconds."""

    status: str = ""
    model: str = ""
    search: str = ""
    since: float | None = None
    until: float | None = None

    def matches(self, row: Listed) -> bool:
        """Return True if the row meets the conditions that are not about columns of the database."""
        needle = self.search.casefold()
        is_match = needle in row.id.casefold() or needle in row.asked.casefold()
        return is_match and (not self.model or row.model == self.model)


class ListedPage(Struct, frozen=True):
    """`next` is the `after` of the next page; None on the last one. Pages before that may be short or empty
    too."""

    rows: list[Listed]
    next: str | None


class ListingStore(Protocol):
    """Lists responses that have not expired."""

    async def heads(
        self,
        owner: str,
        list_filter: ListFilter,
        after: str | None,
        limit: int,
        only: Collection[str] | None = None,
    ) -> list[ResponseRow]:
        """Return the responses after this id that meet the filter's `status`, `since` and `until`, newest
        first, and by descending id if created at the same time. With `only`, no others than these. The list
        is empty if the owner has no response with the id `after`."""
        ...


async def page_of(
    store: ListingStore, owner: str, list_filter: ListFilter, after: str | None, limit: int
) -> ListedPage:
    """Return a page of matching responses; at most `_LOOKED_AT` responses are checked."""
    rows: list[Listed] = []
    looked_at = 0
    while looked_at < _LOOKED_AT:
        heads = await store.heads(owner, list_filter, after, _AT_ONCE)
        for head in heads:
            after = head.id
            row = listed(head)
            if list_filter.matches(row):
                rows.append(row)
                if len(rows) == limit:
                    return ListedPage(rows, after)
        looked_at += len(heads)
        if len(heads) < _AT_ONCE:
            return ListedPage(rows, None)
    return ListedPage(rows, after)


async def conversation_of(store: ListingStore, owner: str, response_id: str, most: int = 100) -> list[Listed]:
    """Return the turns up to and including this one, newest first; of a longer conversation the last
    `most`."""
    turns: list[Listed] = []
    following: str | None = response_id
    seen: set[str] = set()
    while following and following not in seen and len(turns) < most:
        seen.add(following)
        heads = await store.heads(owner, ListFilter(), None, 1, [following])
        turns += map(listed, heads)
        following = heads[0].previous_response_id if heads else None
    return turns


def listed(head: ResponseRow) -> Listed:
    """Return the row of a list for this head."""
    return Listed(
        head.id,
        head.status,
        head.created_at,
        head.previous_response_id,
        head.last_sequence,
        _first(_MODEL, head.response),
        _first(_TEXT, head.item or b"")[:_SHOWN],
    )


def _first(pattern: re.Pattern[str], data: bytes) -> str:
    """Return the string that the pattern finds in the beginning of a JSON text, which may end within the
    string."""
    match = pattern.search(data.decode("utf-8", "ignore"))
    if match is None:
        return ""
    try:
        text = decode_json('"' + _UNFINISHED_ESCAPE.sub("", match[1]) + '"')
    except WireError:
        return ""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""
