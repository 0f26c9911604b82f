"""Converts a finished response into events, for callers that no longer have its stream. So an outbound can
make whole answers as it makes streamed ones, and a stream that was interrupted can be ended from its
response."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from itertools import count
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.unknown import UnknownAnnotation
from openresponses_bridge.state import TERMINAL_EVENT

# the type of an event and its fields after the sequence number
_Draft = tuple[Callable[..., Event], tuple[Any, ...]]


def events_of(response: Response) -> Iterator[Event]:
    """Yield the events of its beginning, its items and its end. A text is one delta, divided only where a
    citation ends; the done events of texts and arguments are left out, since the item's done event repeats
    them.

    A call that was cut off (`is_cut_call`) is left out too, since clients of whole answers run every call.
    Raises KeyError for a response that has not ended.
    """
    terminal = TERMINAL_EVENT[response.status]
    numbers = count()
    for beginning in opening_events(response):
        next(numbers)
        yield beginning
    for index, item in enumerate(response.output):
        for kind, fields in () if is_cut_call(item) else _item(index, item):
            yield kind(next(numbers), *fields)
    yield terminal(next(numbers), response)


def opening_events(response: Response) -> list[Event]:
    """Return `response.created` and `response.in_progress` as they were before any output."""
    begun = replace(response, status="in_progress", error=None, incomplete_details=None, output=[])
    return [ev.ResponseCreated(0, begun), ev.ResponseInProgress(1, begun)]


def is_cut_call(item: it.Item) -> bool:
    """Return True if this is a tool call whose arguments were cut off."""
    return isinstance(item, it.FunctionCall | it.CustomToolCall) and item.status == "incomplete"


def in_one_form(response: Response, summarised: Container[str]) -> Response:
    """Return the response without the raw reasoning of the items with these ids, whose summary came first.
    For all other items `events_of` yields the raw reasoning first."""
    output = [
        replace(item, content=UNSET) if isinstance(item, it.ReasoningItem) and item.id in summarised else item
        for item in response.output
    ]
    return replace(response, output=output)


def _item(index: int, item: it.Item) -> Iterator[_Draft]:
    yield ev.OutputItemAdded, (index, item)
    if isinstance(item, it.FunctionCall) and item.arguments:
        yield ev.FunctionCallArgumentsDelta, (item.id, index, item.arguments)
    elif isinstance(item, it.CustomToolCall) and item.input:
        yield ev.CustomToolCallInputDelta, (item.id, index, item.input)
    elif isinstance(item, it.Message):
        for within, part in enumerate(item.content):
            yield from _part(part, (item.id, index, within))
    elif isinstance(item, it.ReasoningItem):
        for within, part in enumerate(item.content or ()):
            if text := _text(part):
                yield ev.ReasoningDelta, (item.id, index, within, text)
        for within, part in enumerate(item.summary):
            if text := _text(part):
                yield ev.ReasoningSummaryTextDelta, (item.id, index, within, text)
    yield ev.OutputItemDone, (index, item)


def _part(part: ct.ContentPart, place: tuple[str, int, int]) -> Iterator[_Draft]:
    if isinstance(part, ct.OutputTextContent):
        sent, size, tokens = 0, len(part.text), deque(part.logprobs or ())
        for number, annotation in enumerate(part.annotations):
            end = _end_of(annotation)
            if sent < size and (end > sent or not sent):  # its text is sent before it
                until = end if 0 < end < size else size
                logprobs = _tokens_of(tokens, until - sent if until < size else None)
                yield ev.OutputTextDelta, (*place, part.text[sent:until], logprobs)
                sent = until
            yield ev.OutputTextAnnotationAdded, (*place, number, annotation)
        if sent < size:
            yield ev.OutputTextDelta, (*place, part.text[sent:], _tokens_of(tokens, None))
    elif isinstance(part, ct.RefusalContent) and part.refusal:
        yield ev.RefusalDelta, (*place, part.refusal)
    yield ev.ContentPartDone, (*place, part)


def _tokens_of(tokens: deque[ct.LogProb], size: int | None) -> list[ct.LogProb]:
    """Remove and return the tokens that fit whole into the next `size` code points; all tokens for None."""
    taken: list[ct.LogProb] = []
    while tokens and (size is None or len(tokens[0].token) <= size):
        taken.append(tokens.popleft())
        size = None if size is None else size - len(taken[-1].token)
    return taken


def _end_of(annotation: ct.Annotation) -> int:
    """Return the index after the cited text; 0 if the citation has none."""
    if isinstance(annotation, UnknownAnnotation):
        end = annotation.raw.get("end_index")
        return end if isinstance(end, int) else 0
    return getattr(annotation, "end_index", 0)


def _text(part: ct.ContentPart) -> str:
    """Return the text of a part of a reasoning item, whatever kind of part a server used for it."""
    text = getattr(part, "text", "")
    return text if isinstance(text, str) else ""
