"""Texts made shorter: results of tools and attachments, where a budget has no room for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from openresponses_bridge.prompt.assembly import Unit
from openresponses_bridge.prompt.counting import PromptCounter
from openresponses_bridge.prompt.raw import ChatMessage, ContentPart, TextPart, content_of, parts_of

_TRIES: Final = 6


def cut_text(text: str, most_tokens: int, counter: PromptCounter) -> str:
    """The beginning and the end of a text with a note between them of how much is left out; the note alone
    where there is no room for more, unless the text is shorter. Takes time linear in the text."""
    tokens = counter.text(text)
    keep = len(text) * max(most_tokens, 0) // max(tokens, 1)
    while keep > 0:
        cut = _with_note(text, keep)
        if counter.text(cut) <= most_tokens:
            return cut
        keep = keep * 4 // 5
    note = _with_note(text, 0)
    return note if counter.text(note) < tokens else text


def _with_note(text: str, keep: int) -> str:
    end = keep // 3
    note = f"[… {len(text) - keep} characters left out …]"
    if not keep:
        return note
    return f"{text[: keep - end]}\n{note}\n{text[len(text) - end :]}"


def fitted(unit: Unit, room: int, counter: PromptCounter) -> Unit | None:
    """The unit within `room` tokens, its longest texts cut to one length; None when cutting does not do.

    Of a round the results are cut, of a question what comes with it, never the question itself.
    """
    tokens = counter.messages(unit.messages)
    if tokens <= room:
        return unit
    parts = [parts_of(message.content) for message in unit.messages]
    sizes = {
        (row, column): counter.text(part.text)
        for row, column in _places(unit, parts)
        if isinstance(part := parts[row][column], TextPart)
    }
    left = room - (tokens - sum(sizes.values()))
    for again in range(_TRIES):
        level = _level(sorted(sizes.values()), left) if again < _TRIES - 1 else 0
        longest = {place for place, size in sizes.items() if size > level}
        cut = unit._replace(messages=_cut(unit.messages, parts, longest, level, counter))
        tokens = counter.messages(cut.messages)
        if tokens <= room:
            return cut
        left -= tokens - room + 1
    return None


def least(unit: Unit, counter: PromptCounter) -> int:
    """The tokens of a unit with all that can be cut at its shortest: `fitted` gives one in just that room."""
    parts = [parts_of(message.content) for message in unit.messages]
    return counter.messages(_cut(unit.messages, parts, _places(unit, parts), 0, counter))


def _places(unit: Unit, parts: Sequence[Sequence[ContentPart]]) -> set[tuple[int, int]]:
    """Where the texts stand that may be cut."""
    return {
        (row, column)
        for row, message in enumerate(unit.messages)
        for column, part in enumerate(parts[row][: len(parts[row]) - unit.whole])
        if isinstance(part, TextPart) and message.role != "assistant"
    }


def _level(sizes: Sequence[int], room: int) -> int:
    """The size to which all larger ones have to come down so that they add up to `room`."""
    for index, size in enumerate(sizes):
        share = room // (len(sizes) - index)
        if size > share:
            return max(share, 0)
        room -= size
    return room


def _cut(
    messages: Sequence[ChatMessage],
    parts: Sequence[Sequence[ContentPart]],
    places: set[tuple[int, int]],
    level: int,
    counter: PromptCounter,
) -> list[ChatMessage]:
    made = []
    for row, message in enumerate(messages):
        content = [
            TextPart(cut_text(part.text, level, counter))
            if isinstance(part, TextPart) and (row, column) in places
            else part
            for column, part in enumerate(parts[row])
        ]
        made.append(replace(message, content=content_of(content)))
    return made
