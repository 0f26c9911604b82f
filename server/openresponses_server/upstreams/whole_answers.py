"""A whole JSON answer where a stream was asked for: servers and gateways that can't stream send one.

It becomes the only frame of a stream, as its bytes arrive, and the dialect's inbound reads it like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_frame
from openresponses_server.upstreams.base import DataReceiver, UpstreamReply

_BOM: Final = b"\xef\xbb\xbf"
_FIELD: Final = b"data: "
_END: Final = b"\n\n"
# between JSON tokens a line end is white space, and within a string there can't be one
_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")

Recognises = Callable[[Mapping[str, Any]], bool]


def is_whole_answer(body: bytes, recognises: Recognises) -> bool:
    """Whether a JSON body is an answer in the dialect that `recognises` knows."""
    try:
        value = decode_frame(body.removeprefix(_BOM))
    except WireError:
        return False
    return isinstance(value, dict) and recognises(value)


class WholeReply:
    """The answer as a stream of one frame: `begun` is what was read of it, `rest` gives what follows, and is
    None when that was all."""

    __slots__ = ("_begun", "_rest", "_sent", "losses")

    def __init__(self, begun: bytes, losses: str, rest: UpstreamReply | None) -> None:
        self._begun = _FIELD + begun.removeprefix(_BOM).translate(_ONE_LINE)
        self._rest = rest
        self.losses = losses
        self._sent = False
        if rest is None:
            self._begun += _END
            self._sent = True

    @property
    def is_read(self) -> bool:
        """It has given all there is."""
        return self._sent and not self._begun

    async def read(self, receive: DataReceiver | None = None) -> bytes:
        """As `UpstreamReply.read`."""
        if self._begun:
            begun, self._begun = self._begun, b""
            return begun
        if self._sent or self._rest is None:
            return b""
        data = await self._rest.read()
        self._sent = not data
        return data.translate(_ONE_LINE) if data else _END
