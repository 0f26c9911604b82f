"""A filter that cites the pages which a text names by their addresses.

A model that was shown what a search found names pages as links or bare addresses. Each such address becomes a
`url_citation` on the text, as soon as it is whole. A text is read once, whatever it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.emitter.failures import Failure
from openresponses_bridge.emitter.stream import ResponseStream, TextHoldingFilter
from openresponses_bridge.protocol.codec import item_from
from openresponses_bridge.protocol.content import LogProb, OutputTextContent, UrlCitation
from openresponses_bridge.protocol.events import Event, OutputTextDelta
from openresponses_bridge.protocol.items import Item, Message, MessagePhase
from openresponses_bridge.protocol.unknown import Extra

_BEGINNING: Final = re.compile(r"https?://", re.IGNORECASE)
_LONGEST_BEGINNING: Final = len("https://")
_END: Final = re.compile(r"[\s<>\"`()\[\]{}|\\^。，、；：！？（）【】「」『』《》“”‘’…]")
_LONGEST: Final = 2048  # characters of an address
_LABEL: Final = 300  # characters before it in which the text of its link begins
_MARKS: Final = frozenset(".,;:!?'*_~-")  # which end a sentence, or emphasis, rather than an address
_MOST_MARKS: Final = 8
_TITLE: Final = 200  # characters of a title in a citation
MOST_PAGES: Final = 2000
"""Pages that one response may name."""
MOST_CITATIONS: Final = 500
"""Citations in one response."""


class FoundPages:
    """The pages that a text may name: their addresses and titles."""

    def __init__(self) -> None:
        self._pages: dict[str, tuple[str, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._pages)

    def add(self, pages: Iterable[tuple[str, str]]) -> None:
        """Add further pages, by address and title. A title that comes later counts where there was none."""
        for url, title in pages:
            key = _key(url)
            known = self._pages.get(key)
            if known is None and len(self._pages) >= MOST_PAGES:
                continue
            if known is None or not known[1]:
                self._pages[key] = (url if known is None else known[0], title[:_TITLE])

    def named(self, address: str) -> tuple[str, str, int] | None:
        """The page that this begins with, and how many of its characters name it: what follows are marks of
        the sentence. None for a page that was not found."""
        length = len(address)
        for _ in range(_MOST_MARKS + 1):
            known = self._pages.get(_key(address[:length]))
            if known is not None:
                return *known, length
            if not length or address[length - 1] not in _MARKS:
                return None
            length -= 1
        return None


def _key(url: str) -> str:
    """Return the key that two addresses of the same page share: neither the place in it nor a slash at the
    end counts, and the host has no case."""
    scheme, _, rest = url.partition("#")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{slash}{path}".rstrip("/")


class AddressReader:
    """Reads the addresses of one text that comes in pieces."""

    def __init__(self, pages: FoundPages) -> None:
        self._pages = pages
        self._text = ""  # what is still needed: an address that has begun, and what stands before it
        self._before = 0  # characters of the text before that
        self._read = 0  # from here on in it, no address has begun
        self._begin = -1  # where one has begun
        self._at = 0  # so far it was read
        self._depth = 0  # brackets that are open in it

    def feed(self, piece: str) -> Iterator[UrlCitation]:
        """The citations that the next piece completes. Their indexes count code points of the whole text."""
        self._text += piece
        while self._has_address() and (end := self._end_of_address()) is not None:
            if (cited := self._citation(end)) is not None:
                yield cited
            self._begin, self._read = -1, end
        kept = max((self._read if self._begin < 0 else self._begin) - _LABEL, 0)
        if kept > _LABEL:
            self._text = self._text[kept:]
            self._before += kept
            self._read -= kept
            self._at -= kept
            self._begin = max(self._begin - kept, -1)

    def close(self) -> Iterator[UrlCitation]:
        """The text has ended: so has an address that had begun."""
        if self._begin >= 0:
            cited = self._citation(len(self._text))
            self._begin, self._read = -1, len(self._text)
            if cited is not None:
                yield cited

    def _has_address(self) -> bool:
        if self._begin >= 0:
            return True
        found = _BEGINNING.search(self._text, self._read)
        if found is None:
            self._read = max(self._read, len(self._text) - _LONGEST_BEGINNING + 1)
            return False
        self._begin, self._at, self._depth = found.start(), found.end(), 0
        return True

    def _end_of_address(self) -> int | None:
        """Return the end of the address that has begun; None while it continues."""
        text, most = self._text, self._begin + _LONGEST
        while (mark := _END.search(text, self._at, most)) is not None:
            at, bracket = mark.start(), mark[0]
            if bracket == "(":
                self._depth += 1
            elif bracket == ")" and self._depth:
                self._depth -= 1
            else:
                return at
            self._at = at + 1
        if len(text) >= most:
            return most
        self._at = len(text)
        return None

    def _citation(self, end: int) -> UrlCitation | None:
        text, begin = self._text, self._begin
        named = self._pages.named(text[begin:end])
        if named is None:
            return None
        url, title, length = named
        stop = begin + length
        if text.startswith(")", stop) and text.endswith("](", 0, begin):
            label = _opening(text, begin - 2)
            if label is not None:
                begin, stop = label, stop + 1
        return UrlCitation(url, self._before + begin, self._before + stop, title)


def _opening(text: str, end: int) -> int | None:
    """Return the position of the bracket that is closed at `end`; None if there is none."""
    depth = 0
    for at in range(end - 1, max(end - _LABEL, 0) - 1, -1):
        if text[at] == "]":
            depth += 1
        elif text[at] == "[":
            if not depth:
                return at
            depth -= 1
    return None


class CitingFilter(TextHoldingFilter):
    """Cites on `stream` the `pages` that its text names. Does nothing once upstream cites itself."""

    def __init__(self, stream: ResponseStream, pages: FoundPages) -> None:
        super().__init__(stream)
        self._pages = pages
        self._reader: AddressReader | None = None  # of the open text
        self._place: tuple[int, int] | None = None
        self._left = MOST_CITATIONS

    def text(self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None) -> list[Event]:
        events = super().text(delta, logprobs)
        if not self._pages or not self._left:
            return events
        for event in list(events):
            if isinstance(event, OutputTextDelta):
                place = (event.output_index, event.content_index)
                if self._reader is None or place != self._place:
                    self._reader, self._place = AddressReader(self._pages), place
                events += self._annotate(self._reader.feed(event.delta))
        return events

    def annotation(self, annotation: Any) -> list[Event]:
        self._left, self._reader = 0, None
        return super().annotation(annotation)

    def _annotate(self, found: Iterator[UrlCitation]) -> list[Event]:
        events: list[Event] = []
        for cited in found:
            if not self._left:
                break
            self._left -= 1
            events += super().annotation(cited)
        return events

    def _flush(self) -> list[Event]:
        """The open text may end now."""
        return [] if self._reader is None else self._annotate(self._reader.close())

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        return self._flush() + super().item(self._cited(item))

    def _cited(self, item: Item | Mapping[str, Any]) -> Item | Mapping[str, Any]:
        if not self._pages:
            return item
        message = item
        if isinstance(item, Mapping) and item.get("type") == "message":
            message = item_from(dict(item), [])
        if not isinstance(message, Message):
            return item
        content = [
            self._cited_part(part) if isinstance(part, OutputTextContent) else part
            for part in message.content
        ]
        return item if content == message.content else replace(message, content=content)

    def _cited_part(self, part: OutputTextContent) -> OutputTextContent:
        if part.annotations:
            self._left = 0
        reader = AddressReader(self._pages)
        cited = [*reader.feed(part.text), *reader.close()][: self._left]
        self._left -= len(cited)
        return replace(part, annotations=cited) if cited else part

    def expect_item(
        self,
        item_id: str,
        phase: MessagePhase | None = None,
        *,
        explicit_end: bool = False,
        extra: Extra = UNSET,
    ) -> list[Event]:
        return self._flush() + super().expect_item(item_id, phase, explicit_end=explicit_end, extra=extra)

    def cancel(self) -> list[Event]:
        return self._flush() + super().cancel()

    def fail(self, error: Failure) -> list[Event]:
        return self._flush() + super().fail(error)
