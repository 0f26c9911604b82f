"""Forms of answers that are made of a dialect's outbound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from openresponses_bridge.dialects.base.dialect import Outbound
from openresponses_bridge.dialects.base.surface import SSE_TYPE, EncodeResponses
from openresponses_bridge.protocol.events import Event


def _nothing() -> bytes:
    return b""


class Encoding(NamedTuple):
    """The bytes of a stream of chunks."""

    encode: Callable[[Iterable[Any]], bytes]
    """Return the bytes of the next chunks."""
    stream_type: bytes = SSE_TYPE
    end: Callable[[], bytes] = _nothing
    """Return the bytes after the last chunk."""


class OutboundForm:
    """Encodes an answer of one choice."""

    is_protocol = False
    single_reasoning_form = True

    def __init__(self, outbound: Outbound[Any], encoding: Encoding, whole: EncodeResponses) -> None:
        encode, self.stream_type, self._end = encoding

        def streamed(events: Sequence[Event]) -> bytes:  # a method would be a reference cycle
            return encode([chunk for event in events for chunk in outbound.feed(event)])

        self.encoders = (streamed,)
        self.whole = whole
        self._encode = encode
        self._outbound = outbound

    def end(self) -> bytes:
        """Encode the last chunks."""
        return self._encode(self._outbound.close()) + self._end()


class ChoiceStream(Protocol):
    """A stream of several choices."""

    def feed(self, choice: int, event: Event, /) -> list[Any]:
        """Return the chunks of one event of one choice."""
        ...

    def close(self) -> list[Any]:
        """Return the last chunks."""
        ...


class ChoicesForm:
    """Encodes an answer of `n` choices, as `OutboundForm` encodes one of a single choice."""

    is_protocol = False
    single_reasoning_form = True

    def __init__(self, n: int, choices: ChoiceStream, encoding: Encoding, whole: EncodeResponses) -> None:
        encode, self.stream_type, self._end = encoding

        def streamed(choice: int, events: Sequence[Event]) -> bytes:
            return encode([chunk for event in events for chunk in choices.feed(choice, event)])

        self.encoders = [partial(streamed, choice) for choice in range(n)]
        self.whole = whole
        self._encode = encode
        self._choices = choices

    def end(self) -> bytes:
        """Encode the last chunks."""
        return self._encode(self._choices.close()) + self._end()
