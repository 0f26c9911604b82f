"""Finds the upstream's item that an event is about: by output_index, or by id if indexes repeat or are wrong.

Ids change on some servers, and indexes collide on others (field case 10); each guess is a repair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from zlib import crc32

from msgspec import UNSET

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.items import CustomToolCall, FunctionCall, Item
from openresponses_bridge.protocol.unknown import Extra

_UTF_16 = "utf-16-le"
MANY = 64  # deltas that wait to be counted
_LOOKED_AT = 16  # parts that are searched for the one that a wrong index is about
CALLS = (FunctionCall, CustomToolCall)
_MESSAGE = "message"

# kind of text → the items that can have it
HOLDERS: dict[str, frozenset[str]] = {
    "text": frozenset({"message"}),
    "refusal": frozenset({"message"}),
    "reasoning": frozenset({"reasoning"}),
    "summary": frozenset({"reasoning"}),
    "call": frozenset({"function_call", "custom_tool_call"}),
}


class SentText:
    """The length and checksum of what was sent of a part, so that its text is kept only once.

    They are counted in UTF-16, where a lone surrogate is a unit of its own, since servers split pairs. Deltas
    are counted in batches, which costs less.
    """

    __slots__ = ("_check", "_size", "citations", "logprobs", "recent")

    def __init__(self) -> None:
        self._size = 0
        self._check = 0
        self.recent: list[str] = []
        self.citations = 0
        self.logprobs = False  # some were sent

    def add(self, delta: str) -> None:
        recent = self.recent
        recent.append(delta)
        if len(recent) >= MANY:
            self.count()

    def count(self) -> None:
        """Count the recent deltas."""
        data = "".join(self.recent).encode(_UTF_16, "surrogatepass")
        self.recent.clear()
        self._size += len(data)
        self._check = crc32(data, self._check)

    @property
    def size(self) -> int:
        """The bytes so far."""
        self.count()
        return self._size

    def rest(self, whole: str) -> str | None:
        """Return the part of `whole` that was not sent; None if it does not begin with the sent text."""
        self.count()
        data = whole.encode(_UTF_16, "surrogatepass")
        if crc32(data[: self._size]) != self._check:
            return None
        return data[self._size :].decode(_UTF_16, "surrogatepass")


class EndedParts:
    """The parts of an item that done events of one kind were found to be about: `parts` has their indexes,
    and `renamed` the indexes by the names that the events gave."""

    __slots__ = ("parts", "renamed")

    def __init__(self) -> None:
        self.parts: set[tuple[str, int]] = set()
        self.renamed: dict[tuple[str, int], int] = {}


class Track:
    """One upstream item. `slot` is its number here, and the machine's index of a call; `item` is None until
    an event brings it; `pending` is the payload in a call's `added` event."""

    __slots__ = (
        "_free",
        "again",
        "announced",
        "beside",
        "closed",
        "content",
        "ended_parts",
        "ended_texts",
        "item",
        "item_id",
        "kind",
        "named",
        "opened",
        "payload",
        "pending",
        "reported",
        "reported_parts",
        "sealed",
        "sent",
        "slot",
        "summary",
    )

    def __init__(self, slot: int, item_id: str, item: Item | None = None) -> None:
        self.slot = slot
        self.item_id = item_id
        self.item = item
        self.kind = "" if item is None else item.type
        self.sent: dict[tuple[str, int], SentText] = {}
        # what the machine has open of it: a part of its content, which may be `sealed`, and one of its
        # summary
        self.content: tuple[str, int] | None = None
        self.summary: int | None = None
        self.sealed = False
        self.again: Track | None = None  # an item that has ended and had the same id
        self.pending = ""
        self.payload: SentText | None = None  # of a call, once some of its arguments or input were sent
        # a call with the name that came beside its arguments or input
        self.beside: FunctionCall | CustomToolCall | None = None
        self.named = False  # True if its call was opened in the machine
        self.opened = False  # True if its reasoning item was opened before it had text
        self.announced = False  # True if its item, which a server fills by itself, was announced
        self.closed = False
        # its unknown fields that the machine has, and the parts of which the machine has them
        self.reported: Extra = UNSET
        self.reported_parts: set[tuple[str, int]] = set()
        # servers number the ends of texts differently from those of their parts
        self.ended_texts, self.ended_parts = EndedParts(), EndedParts()
        self._free: dict[str, int] = {}  # kind → an index up to which none is free for its parts

    @property
    def is_unsent(self) -> bool:
        """True if nothing of the item has been sent on."""
        return not (self.sent or self.named or self.opened or self.announced)

    def repeats(self, kind: str, texts: list[str]) -> bool:
        """Return True if an item with this id has ended with these texts and nothing of this one was sent:
        servers repeat a message after its calls."""
        return self.again is not None and self.is_unsent and not self.again.differs(kind, texts)

    def differs(self, kind: str, texts: list[str]) -> bool:
        """Return True if these texts of one kind, in order, are not those that were sent. Indexes do not
        count, since servers number parts in different ways."""
        sent = [part for (each, _), part in sorted(self.sent.items()) if each == kind and part.size]
        nonempty = [text for text in texts if text]
        if len(nonempty) != len(sent):
            return True
        return any(part.rest(text) != "" for part, text in zip(sent, nonempty, strict=True))

    def holds(self, kind: str) -> bool:
        return not self.kind or self.kind in HOLDERS[kind]

    def holds_item(self, item: Item) -> bool:
        """Return True if `item` can be this item: it is of the same type, or text of its kind was sent before
        it."""
        if self.kind:
            return self.kind == item.type
        return all(item.type in HOLDERS[kind] for kind, _ in self.sent)

    def may_be_followed_by(self, item: Item) -> bool:
        """Return True if `item`, which ends at an index of its own with the id of this one, may be another
        item: this one has ended, and is another call, or a message, whose text shows whether it is
        repeated."""
        known = self.item
        if not isinstance(known, CALLS):
            return self.closed and self.kind == _MESSAGE
        if not isinstance(item, CALLS):
            return False
        if item.name and known.name and item.name != known.name:
            return True  # whether or not it has ended: two names are two calls
        return self.closed and (item.call_id, item.name) != (known.call_id, known.name)

    def close_parts(self) -> None:
        """Record that the machine has closed the item's open parts."""
        self.content = self.summary = None
        self.sealed = False

    def place(self, kind: str, index: int, whole: str, ended: EndedParts, *, once: bool = False) -> int:
        """Return the index of the part that ends with this text, which may have another name. `ended` has the
        parts that other events were found to be about, and this one is added. With `once`, each part ends
        only once. Examines a few parts."""
        part_index = ended.renamed.get((kind, index), index)
        sent_text = self.sent.get((kind, part_index))
        if whole and (sent_text is None or sent_text.rest(whole) is None):
            latest = reversed([*islice(reversed(self.sent), _LOOKED_AT)])
            for each in (each for each in latest if each[0] == kind and each not in ended.parts):
                if self.sent[each].size and self.sent[each].rest(whole) is not None:
                    part_index = ended.renamed[kind, index] = each[1]
                    break
            else:
                if once and (kind, part_index) in ended.parts:
                    part_index = self._free[kind] = max(self._free.get(kind, 0), part_index) + 1
                    while (kind, part_index) in self.sent:
                        part_index = self._free[kind] = part_index + 1
        ended.parts.add((kind, part_index))
        return part_index

    def begin_payload(self) -> SentText:
        """Return the sent text of a call's arguments or input."""
        self.payload = self.part("call", 0)
        return self.payload

    def part(self, kind: str, index: int) -> SentText:
        """Return the sent text of a part, which begins with its first delta."""
        sent_text = self.sent.get((kind, index))
        if sent_text is None:
            sent_text = self.sent[kind, index] = SentText()
        return sent_text


class _Left:
    """The items of a stream that were not found in the terminal response; `taken` has the slots of the
    others. Each is examined a few times at most."""

    def __init__(self, tracks: list[Track], taken: set[int]) -> None:
        self.taken = taken
        self._of_kind: dict[str, deque[Track]] = {}
        # unannounced items, by the kinds of their text
        self._of_texts: dict[frozenset[str], deque[Track]] = {}
        self._calls: dict[tuple[str, str], deque[Track]] = {}
        for track in tracks:
            if not track.kind:
                texts = frozenset(kind for kind, _ in track.sent)
                self._of_texts.setdefault(texts, deque()).append(track)
                continue
            self._of_kind.setdefault(track.kind, deque()).append(track)
            if isinstance(track.item, CALLS):
                self._calls.setdefault((track.kind, track.item.call_id), deque()).append(track)

    def call(self, item: FunctionCall | CustomToolCall) -> Track | None:
        """Return the first call with this call id."""
        return self._next(self._calls.get((item.type, item.call_id)))

    def first(self, item: Item) -> Track | None:
        """Return the first item that `item` can be."""
        heads = [self._next(self._of_kind.get(item.type))]
        for texts, tracks in self._of_texts.items():
            if all(item.type in HOLDERS[kind] for kind in texts):
                heads.append(self._next(tracks))
        return min((track for track in heads if track is not None), key=lambda each: each.slot, default=None)

    def _next(self, tracks: deque[Track] | None) -> Track | None:
        while tracks and tracks[0].slot in self.taken:
            tracks.popleft()
        return tracks[0] if tracks else None


_MISSING = "missing, added"
_RENAMED = "changed within an item, the index was followed"


class Tracks:
    """All items of a stream, in order of first appearance. `by_index` has the latest item at each index."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._all: list[Track] = []
        self.by_index: dict[int, Track] = {}
        self._by_id: dict[str, Track] = {}
        self._listed: set[int] = set()  # slots of the items in the terminal response

    def of_text(self, event: str, output_index: int, item_id: str, kind: str) -> Track:
        """Return the item of an event with text of this kind, which is begun if it does not exist."""
        here = self.by_index.get(output_index)
        if here is not None and here.kind and here.kind not in HOLDERS[kind]:
            here = None
        if here is not None and here.item_id == item_id:
            return here
        named = self._by_id.get(item_id)
        if named is not None and named is not here and named.holds(kind):
            self._diagnostics.repair(f"{event} output_index", "names another item, found by its id")
            return named
        if here is not None:
            if item_id:
                self._diagnostics.record("repair", "item_id", _RENAMED)
            return here
        return self.implied(output_index, item_id)

    def implied(self, output_index: int, item_id: str) -> Track:
        """Return an item that was not announced."""
        self._diagnostics.repair("response.output_item.added", _MISSING)
        return self._begin(output_index, Track(len(self._all), item_id))

    def of_progress(self, output_index: object, item_id: object) -> Track | None:
        """Return the announced and open item of a progress event."""
        here = self.by_index.get(output_index) if isinstance(output_index, int) else None
        named = self._by_id.get(item_id) if isinstance(item_id, str) else None
        return next((each for each in (here, named) if each and each.announced and not each.closed), None)

    def added(self, output_index: int, item: Item) -> Track | None:
        """Return the item that begins; None if it began before."""
        here = self.by_index.get(output_index)
        if here is not None and not here.closed:
            if here.item is None and here.holds_item(item):
                self._diagnostics.repair("response.output_item.added", "came after the item's first text")
                return self._known(here, item)
            if here.item_id == item.id and here.kind == item.type:
                self._diagnostics.ignored("response.output_item.added", "sent twice")
                return None
        if here is not None:
            self._diagnostics.repair("output_index", "used for two items, renumbered")
        track = self._begin(output_index, Track(len(self._all), item.id, item))
        named = self._by_id.get(item.id)
        if named is not None and named is not track and named.closed and track.kind == named.kind == _MESSAGE:
            track.again = named
        return track

    def done(self, output_index: int, item: Item) -> Track:
        """Return the item that ends, which is begun if it was not announced."""
        here, again = self.by_index.get(output_index), None
        if here is None or here.item_id != item.id:
            named = self._by_id.get(item.id)
            if named is not None and named.holds_item(item):
                if here is None and named.may_be_followed_by(item):
                    again = named
                else:
                    here = named
        if here is not None and here.holds_item(item) and not (here.closed and here.item_id != item.id):
            return here if here.item is not None else self._known(here, item)
        self._diagnostics.repair("response.output_item.added", _MISSING)
        track = self._begin(output_index, Track(len(self._all), item.id, item))
        track.again = again if track.kind == _MESSAGE else None
        return track

    def retyped(self, output_index: int, item: Item) -> Track | None:
        """Return the open item at this index with this id that began as another type and was sent in part."""
        here = self.by_index.get(output_index)
        if here is None or here.closed or here.is_unsent or not item.id or here.item_id != item.id:
            return None
        return None if here.holds_item(item) else here

    def is_another_kind(self, index: int, item: Item) -> bool:
        """Return True if this item of the terminal response is one that was sent as another type."""
        named = self._by_id.get(item.id) if item.id else None
        return named is not None and named.slot == index and not (named.is_unsent or named.holds_item(item))

    def of_output(self, output: list[Item]) -> Iterator[tuple[Track, Item]]:
        """Yield each item of the terminal response with its track, which is found by id, by call_id, by
        place, or by type."""
        taken = self._listed = set[int]()
        left = _Left(self._all, taken)
        for index, item in enumerate(output):
            track = self._match(index, item, left)
            if track is None:
                self._diagnostics.repair("response.output_item.added", _MISSING)
                track = self._begin(len(self._all), Track(len(self._all), item.id, item))
            taken.add(track.slot)
            yield (track if track.item is not None else self._known(track, item)), item

    def left_out(self) -> list[Track]:
        """Return the items of which something was sent and that the terminal response does not have."""
        return [track for track in self._all if track.slot not in self._listed and not track.is_unsent]

    def unfinished_calls(self) -> list[Track]:
        """Return the calls that have begun and not ended."""
        return [track for track in self._all if not track.closed and isinstance(track.item, CALLS)]

    def named_calls(self) -> list[Track]:
        """Return the calls of which no event brought the item, but one brought the name."""
        return [track for track in self._all if track.beside is not None and track.item is None]

    def _match(self, index: int, item: Item, left: _Left) -> Track | None:
        for track in (
            self._by_id.get(item.id),
            left.call(item) if isinstance(item, CALLS) else None,
            self.by_index.get(index),
        ):
            if track is not None and track.slot not in left.taken and track.holds_item(item):
                return track
        return left.first(item)

    def _begin(self, output_index: int, track: Track) -> Track:
        self._all.append(track)
        self.by_index[output_index] = track
        if track.item_id:
            self._by_id.setdefault(track.item_id, track)
        return track

    def _known(self, track: Track, item: Item) -> Track:
        track.item, track.kind = item, item.type
        track.item_id = track.item_id or item.id
        if item.id:
            self._by_id.setdefault(item.id, track)
        return track
