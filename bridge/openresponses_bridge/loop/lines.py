"""Entries as lines of JSON, one each.

A round's prompt is all that was said so far, so that the prompts of a loop together grow with the square of
its rounds. A line has of a prompt only the messages that the prompt of the round before did not have, and
says which of that one's messages stand between them: the lines together are as long as what happened.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import field
from msgspec.structs import replace

from openresponses_bridge.loop.journal import (
    CallEnded,
    CallsBegun,
    JournalError,
    LimitRaised,
    LoopBegun,
    LoopEnded,
    LoopEntry,
    RoundMade,
)
from openresponses_bridge.prompt.raw import ChatMessage

LINE_END: Final = b"\n"
MOST_MESSAGES: Final = 1 << 24
"""Messages that the prompts of a journal may have in sum: its lines are shorter than what they stand for."""

Kept = tuple[int, int, int]
"""`(at, start, stop)`: before the new message number `at` stand those from `start` to `stop` of the prompt of
the round before. Each is used once at most, in the order of that prompt."""


class _RoundLine(RoundMade, frozen=True, tag="round"):
    """A round whose `prompt` has the new messages alone; `same_summary`: as in the round before."""

    kept: list[Kept] = field(default_factory=list)
    same_summary: bool = False


_Line = LoopBegun | _RoundLine | CallsBegun | CallEnded | LimitRaised | LoopEnded

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Line).decode


def encode_entry(entry: LoopEntry, last_round: RoundMade | None = None) -> bytes:
    """An entry as its line, with the line end. `last_round` is the last RoundMade that was written before it;
    without, the line of a round has its whole prompt."""
    if isinstance(entry, RoundMade) and last_round is not None:
        entry = _shortened(entry, last_round)
    return _encode(entry) + LINE_END


def decode_entries(data: bytes) -> Iterator[LoopEntry]:
    """The entries of a journal. A last line without its end was being written when the process stopped: it is
    left out. Raises JournalError for any other line that is not an entry, or that refers to messages that are
    not there, and for prompts of more than `MOST_MESSAGES` in sum."""
    *lines, _cut = data.split(LINE_END)
    last: RoundMade | None = None
    messages = 0
    for number, line in enumerate(lines, 1):
        try:
            entry = _decode(line)
            if isinstance(entry, _RoundLine):
                messages += len(entry.round.prompt) + sum(stop - start for _, start, stop in entry.kept)
                if messages > MOST_MESSAGES:
                    raise ValueError(f"its prompts have more than {MOST_MESSAGES} messages")
                entry = last = _whole(entry, last)
        except (ValueError, RecursionError) as error:  # what can't be decoded raises a ValueError too
            raise JournalError(JournalError.INVALID, f"line {number} is not an entry: {error}") from error
        yield entry


def _shortened(entry: RoundMade, last: RoundMade) -> _RoundLine:
    new, kept = _difference(last.round.prompt, entry.round.prompt)
    same = entry.summary is not None and entry.summary == last.summary
    return _RoundLine(
        replace(entry.round, prompt=new),
        entry.usage,
        None if same else entry.summary,
        entry.incomplete,
        entry.trimmed,
        kept,
        same,
    )


def _difference(
    before: Sequence[ChatMessage], prompt: Sequence[ChatMessage]
) -> tuple[list[ChatMessage], list[Kept]]:
    """What is new in a prompt, and what of the one before is in it. Linear: what stands in the same order is
    found where it is next, and nothing is looked for twice. Compared are bytes, since 1 equals True."""
    places: dict[bytes, list[int]] = {}
    for place, message in enumerate(before):
        places.setdefault(_encode(message), []).append(place)
    new: list[ChatMessage] = []
    kept: list[Kept] = []
    following = 0
    for message in prompt:
        found = places.get(_encode(message), [])
        index = bisect_left(found, following)
        if index == len(found):
            new.append(message)
            continue
        place = found[index]
        if kept and kept[-1][0] == len(new) and kept[-1][2] == place:
            kept[-1] = (len(new), kept[-1][1], place + 1)
        else:
            kept.append((len(new), place, place + 1))
        following = place + 1
    return new, kept


def _whole(line: _RoundLine, last: RoundMade | None) -> RoundMade:
    """Raises ValueError for what does not fit to the round before."""
    before = [] if last is None else last.round.prompt
    new, prompt, done, used = line.round.prompt, list[ChatMessage](), 0, 0
    for at, start, stop in line.kept:
        if not (done <= at <= len(new) and used <= start < stop <= len(before)):
            raise ValueError("it refers to messages that the round before does not have")
        prompt += [*new[done:at], *before[start:stop]]
        done, used = at, stop
    if line.same_summary and last is None:
        raise ValueError("it refers to the summary of a round before, and there is none")
    summary = last.summary if line.same_summary and last is not None else line.summary
    made = replace(line.round, prompt=[*prompt, *new[done:]])
    return RoundMade(made, line.usage, summary, line.incomplete, line.trimmed)
