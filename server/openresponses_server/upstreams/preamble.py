"""The beginning of an upstream's stream, in which it may still refuse, and the limits of one frame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from openresponses_bridge.dialects.base import error_in_frame
from openresponses_bridge.errors import InvalidRequestError, WireError
from openresponses_bridge.protocol.codec import decode_json
from openresponses_bridge.sse import Frame, SSEDecoder
from openresponses_server.errors import UpstreamError, unreadable
from openresponses_server.limits.requests import check_json
from openresponses_server.settings import Limits
from openresponses_server.upstreams.routing.attempts import Attempt

_PREAMBLE: Final = frozenset(
    {
        *("response.created", "response.queued", "response.in_progress"),
        *("message_start", "messageStart", "keepalive", "ping"),
    }
)
_MOST_FRAMES: Final = 100  # of a preamble
_FRAME_LIMITS: Final = Limits(depth=200, json_values=2_000_000)
"""The limits of the JSON in a frame: deeper nesting can't be handled everywhere, and the objects of many
values take far more memory than their text."""
SHALLOW: Final = 2 * _FRAME_LIMITS.depth
"""The bytes of a frame that can't be nested deeper than that, and has few values."""
_MOST_ELEMENTS: Final = 5_000
"""Objects in the arrays of a frame, which is translated at once: each may be an item or a part of one, with
several events (0.1 ms)."""
_PASSED_ON: Final = frozenset({"args", "arguments", "input", "logprobs", "logprobsResult", "tools"})
"""Fields whose values are not looked into, or cost little for each element."""
_FRAME_END: Final = b"\n\n"  # a stream with other line ends is read at once


def check_frame(data: bytes) -> None:
    """Raises UpstreamError if a frame's JSON is nested too deeply, or has too many values or elements. For
    frames of more than `SHALLOW` bytes."""
    try:
        check_json(data, _FRAME_LIMITS)
    except InvalidRequestError as error:
        raise unreadable(error.message) from error
    if data.count(b"{") > _MOST_ELEMENTS and _elements_in(data) > _MOST_ELEMENTS:
        raise unreadable(f"An event has more than {_MOST_ELEMENTS} objects in arrays.")


def _elements_in(data: bytes) -> int:
    """The objects in arrays of a frame, without those in `_PASSED_ON`; 0 for what is not JSON."""
    try:
        left = [decode_json(data)]
    except WireError:
        return 0
    elements = 0
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += [each for name, each in value.items() if name not in _PASSED_ON]
        elif isinstance(value, list):
            elements += sum(isinstance(each, dict) for each in value)
            left += value
    return elements


class Preamble:
    """Buffers the beginning of a stream. An upstream may accept a request and then send an error as the first
    event; until the answer begins, the request can still be sent elsewhere. `attempt` is the accepted one."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._frames = SSEDecoder()
        self._seen = 0
        self.over = False
        """Whether the answer has begun."""

    def refusal(self, data: bytes) -> UpstreamError | None:
        """The refusal in these bytes; None if there is none, or not yet. b"" is the end."""
        for frame in self._read(data) if data else self._frames.close():
            self._seen += 1
            try:
                if len(frame.data) > SHALLOW:
                    check_frame(frame.data)
                value = decode_json(frame.data)
            except (WireError, UpstreamError):
                value = None
            fields = value if isinstance(value, dict) else {}
            if not _is_preamble(frame, fields) or self._seen > _MOST_FRAMES:
                self.over = True
                if error_in_frame(value, frame.event) is None:
                    return None
                return self._attempt.refused(frame.data)
        return None

    def _read(self, data: bytes) -> Iterator[Frame]:
        """The frames in these bytes, the first one before the others are looked for: mostly it is enough."""
        end = data.find(_FRAME_END) + len(_FRAME_END)
        if len(_FRAME_END) <= end < len(data):
            yield from self._frames.feed(data[:end])
            data = data[end:]
        yield from self._frames.feed(data)


def _is_preamble(frame: Frame, fields: dict[str, Any]) -> bool:
    kind = fields.get("type") or frame.event
    if not frame.data.strip() or (isinstance(kind, str) and (kind in _PREAMBLE or ":" in kind)):
        return True
    choices = fields.get("choices")
    return isinstance(choices, list) and "error" not in fields and all(map(_is_empty, choices))


def _is_empty(choice: Any) -> bool:
    """Return True if a choice of a chunk of Chat Completions has nothing of an answer."""
    delta = choice.get("delta") if isinstance(choice, dict) else None
    if not isinstance(delta, dict) or choice.get("finish_reason") is not None:
        return False
    return not any(map(delta.get, delta.keys() - {"role"}))
