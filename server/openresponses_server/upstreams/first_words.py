"""A refusal that an upstream makes inside of an answer that it has accepted, before anything of the answer:
as long as nothing of that has come, it may be asked otherwise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.sse import Frame, SSEDecoder
from openresponses_server.errors import UpstreamError, status_in
from openresponses_server.upstreams.base import Take, UpstreamReply
from openresponses_server.upstreams.refusals import refusal

if TYPE_CHECKING:
    from openresponses_server.upstreams.attempts import Attempt

_PREAMBLE: Final = frozenset(
    {"response.created", "response.queued", "response.in_progress", "keepalive", "ping"}
)
_MOST_FRAMES: Final = 100  # of a preamble
_REFUSED: Final = 400  # what is in a stream has no status

Over = Callable[["Attempt"], Awaitable[tuple["Attempt", UpstreamReply]]]
"""Asks so instead: the attempt that was accepted, and its reply."""


class FirstWords:
    """The reply to an attempt instead of which there is another. It is read as it comes; where it begins with
    a refusal that the other may spare, that is asked, and its reply goes on."""

    def __init__(self, attempt: Attempt, reply: UpstreamReply, over: Over) -> None:
        self._attempt = attempt
        self._reply = reply
        self._over = over
        self._frames: SSEDecoder | None = SSEDecoder()
        self._seen = 0
        self.losses = reply.losses

    async def read(self, take: Take | None = None) -> bytes:
        if self._frames is None:
            return await self._reply.read(take)
        data = await self._reply.read()
        for frame in self._frames.feed(data) if data else self._frames.close():
            self._seen += 1
            if _is_preamble(frame) and self._seen <= _MOST_FRAMES:
                continue
            self._frames = None
            error = refusal_in(frame.data)
            other = None if error is None else await self._attempt.instead(error)
            if other is None:
                return data
            self._attempt, self._reply = await self._over(other)
            self._seen, self.losses = 0, self._reply.losses
            self._frames = None if self._attempt.last else SSEDecoder()
            return await self.read()
        return data


def refusal_in(data: bytes) -> UpstreamError | None:
    """The error that a frame is, in the form of any dialect; None when it is something else."""
    value = _fields(data)
    response = value.get("response")
    holder: dict[str, Any] = response if isinstance(response, dict) else value
    error = holder.get("error")
    if not isinstance(error, dict):
        if value.get("type") != "error":
            return None
        error = {name: value[name] for name in ("code", "message", "param") if name in value}
    status = status_in(str(error.get("code"))) or _REFUSED
    return refusal(status, {}, encode({"error": error}))


def _is_preamble(frame: Frame) -> bool:
    kind = _fields(frame.data).get("type") or frame.event
    return not frame.data.strip() or kind in _PREAMBLE or (isinstance(kind, str) and ":" in kind)


def _fields(data: bytes) -> dict[str, Any]:
    try:
        value = decode_json(data)
    except WireError:
        return {}
    return value if isinstance(value, dict) else {}
