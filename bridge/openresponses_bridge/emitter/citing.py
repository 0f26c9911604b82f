"""A filter that adds citations of the pages whose addresses are in a text.

A model that has seen the results of a search names their pages by links or bare addresses. Each address of
such a page gives a `url_citation` of the text as soon as it is complete. Every text is read once, whatever is
in it.
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
_LABEL: Final = 300  # characters before an address in which its link's text must begin
_MARKS: Final = frozenset(".,;:!?'*_~-")  # at an address's end, marks of the sentence or of emphasis
_MOST_MARKS: Final = 8
_TITLE: Final = 200  # characters of a title in a citation
MOST_PAGES: Final = 2000
"""The most pages of one response that can be cited."""
MOST_CITATIONS: Final = 500
"""The most citations that are added to one response."""


class FoundPages:
    """The pages that can be cited: their addresses and titles."""

    def __init__(self) -> None:
        self._pages: dict[str, tuple[str, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._pages)

    def add(self, pages: Iterable[tuple[str, str]]) -> None:
        """Add pages, each as (address, title). A later title of the same page is used only if it had none."""
        for url, title in pages:
            key = _key(url)
            known = self._pages.get(key)
            if known is None and len(self._pages) >= MOST_PAGES:
                continue
            if known is None or not known[1]:
                self._pages[key] = (url if known is None else known[0], title[:_TITLE])

    def named(self, address: str) -> tuple[str, str, int] | None:
        """Return (address, title, length) of the page with this address. Its first `length` characters are
        the page's address, what follows them is punctuation of the sentence. None if there is no such
        page."""
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
    """Return the key that all addresses of one page share: without fragment and last slash, with scheme and
    host in lower case."""
    scheme, _, rest = url.partition("#")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{slash}{path}".rstrip("/")


class AddressReader:
    """Finds the addresses in one text that comes in pieces."""

    def __init__(self, pages: FoundPages) -> None:
        self._pages = pages
        self._text = ""  # the end of the text: an address that has begun, and what precedes it
        self._before = 0  # characters of the text before `_text`
        self._read = 0  # where in `_text` to search for the next address
        self._begin = -1  # where in `_text` an address has begun, or -1
        self._at = 0  # where to go on reading that address
        self._depth = 0  # open brackets in that address

    def feed(self, piece: str) -> Iterator[UrlCitation]:
        """Yield the citations that the next piece completes. Their indexes count code points of the whole
        text."""
        self._text += piece
        while self._has_address() and (end := self._end_of_address()) is not None:
            if (cited := self._citation(end)) is not None:
                yield cited
            self._begin, self._read = -1, end
        excess = max((self._read if self._begin < 0 else self._begin) - _LABEL, 0)
        if excess > _LABEL:
            self._text = self._text[excess:]
            self._before += excess
            self._read -= excess
            self._at -= excess
            self._begin = max(self._begin - excess, -1)

    def close(self) -> Iterator[UrlCitation]:
        """End the text, and with it an address that has begun: yield its citation."""
        if self._begin >= 0:
            cited = self._citation(len(self._text))
            self._begin, self._read = -1, len(self._text)
            if cited is not None:
                yield cited

    def _has_address(self) -> bool:
        if self._begin >= 0:
            return True
        match = _BEGINNING.search(self._text, self._read)
        if match is None:
            self._read = max(self._read, len(self._text) - _LONGEST_BEGINNING + 1)
            return False
        self._begin, self._at, self._depth = match.start(), match.end(), 0
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
    """Adds citations of `pages` to the text of `stream`, until the upstream sends citations of its own."""

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

    def _annotate(self, citations: Iterator[UrlCitation]) -> list[Event]:
        events: list[Event] = []
        for cited in citations:
            if not self._left:
                break
            self._left -= 1
            events += super().annotation(cited)
        return events

    def _flush(self) -> list[Event]:
        """End the open text, and cite the page of an address at its end."""
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
