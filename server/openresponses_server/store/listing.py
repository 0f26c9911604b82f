"""Lists of one owner's stored responses, newest first: metadata without contents."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, Protocol

from msgspec import Struct

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json

HEAD_BYTES: Final = 1000
"""So much of a response and of its last input item is read for a list, however long they are."""
_AT_ONCE: Final = 100
_LOOKED_AT: Final = 1000
"""The most responses that one call checks for a match."""
_SHOWN: Final = 200  # characters of what was asked
_MODEL: Final = re.compile(r'"model":"((?:[^"\\]|\\.){0,300})"')
_TEXT: Final = re.compile(r'"(?:text|content|output)":"((?:[^"\\]|\\.){0,1000})')
_UNFINISHED_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")


class Head(Struct, frozen=True):
    """A stored response by its columns, and the first `HEAD_BYTES` of its JSON and its last input item's."""

    id: str
    status: str
    created_at: float
    previous_response_id: str | None
    last_sequence: int
    response: bytes
    item: bytes | None


class Listed(Struct, frozen=True):
    """One row of a list. `asked` is the beginning of what was asked last, `model` what answered; both are ""
    where the beginning of the record does not have them."""

    id: str
    status: str
    created_at: float
    previous_response_id: str | None
    last_sequence: int
    model: str
    asked: str


class Wanted(Struct, frozen=True):
    """Which responses: all that is given has to fit. `search` is looked for in ids and in what was asked,
    whatever its case; times are Unix seconds, `since` is included and `until` not."""

    status: str = ""
    model: str = ""
    search: str = ""
    since: float | None = None
    until: float | None = None

    def fits(self, row: Listed) -> bool:
        """Whether the row is wanted by what the database does not know as columns."""
        needle = self.search.casefold()
        found = needle in row.id.casefold() or needle in row.asked.casefold()
        return found and (not self.model or row.model == self.model)


class ListedPage(Struct, frozen=True):
    """`next` is the id to go on after, None at the end. A page may be short, or empty, and have one."""

    rows: list[Listed]
    next: str | None


class ListingStore(Protocol):
    """Heads in order. What has expired is not among them."""

    async def heads(
        self, owner: str, wanted: Wanted, after: str | None, limit: int, only: Collection[str] | None = None
    ) -> list[Head]:
        """The next ones after this id, by `status`, `since` and `until` of what is wanted, the newest first;
        of those made at once the one with the higher id. With `only`, of these ids. After an id that this
        owner has not there are none."""
        ...


async def page_of(
    store: ListingStore, owner: str, wanted: Wanted, after: str | None, limit: int
) -> ListedPage:
    """A page of matching responses. It checks a bounded number of responses."""
    found: list[Listed] = []
    looked_at = 0
    while looked_at < _LOOKED_AT:
        heads = await store.heads(owner, wanted, after, _AT_ONCE)
        for head in heads:
            after = head.id
            row = listed(head)
            if wanted.fits(row):
                found.append(row)
                if len(found) == limit:
                    return ListedPage(found, after)
        looked_at += len(heads)
        if len(heads) < _AT_ONCE:
            return ListedPage(found, None)
    return ListedPage(found, after)


async def conversation_of(store: ListingStore, owner: str, response_id: str, most: int = 100) -> list[Listed]:
    """The turns up to and with this one, the newest first; of a longer conversation the last `most`."""
    found: list[Listed] = []
    following: str | None = response_id
    seen: set[str] = set()
    while following and following not in seen and len(found) < most:
        seen.add(following)
        heads = await store.heads(owner, Wanted(), None, 1, [following])
        found += map(listed, heads)
        following = heads[0].previous_response_id if heads else None
    return found


def listed(head: Head) -> Listed:
    """The row that a head is shown as."""
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
    """The string that the pattern finds in a piece of JSON, which may be cut within it."""
    found = pattern.search(data.decode("utf-8", "ignore"))
    if found is None:
        return ""
    try:
        text = decode_json('"' + _UNFINISHED_ESCAPE.sub("", found[1]) + '"')
    except WireError:
        return ""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""
