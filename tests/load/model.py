"""A model whose answer follows from the request, so that each client knows the text that it has to receive.

python -m tests.load.model → prints its port
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import uvloop

from tests.support.upstream import DONE, chunk, frame

_ASKED: Final = re.compile(r"say (\d{1,9}) (\d{1,6}) (\d{1,6})")
_LENGTH: Final = re.compile(rb"(?i)content-length: (\d{1,9})")
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_MARK: Final = "-"
_BEFORE_TOKEN, _AFTER_TOKEN = chunk(content=_MARK).split(f'"{_MARK}"'.encode())


class Said(NamedTuple):
    """A text of `length` tokens that depends on `seed`, with so many milliseconds before each token."""

    seed: int
    length: int
    pause: int

    @property
    def request(self) -> str:
        """The text of the client's request."""
        return f"say {self.seed} {self.length} {self.pause}"

    def tokens(self) -> list[str]:
        """The tokens of the model's answer."""
        return [f" {self.seed}.{number}" for number in range(self.length)]

    @property
    def text(self) -> str:
        """The whole text of the answer."""
        return "".join(self.tokens())


def said(body: dict[str, object]) -> Said:
    """Parse a request from its last words that have the form of one. Raises ValueError and LookupError."""
    matches = _ASKED.findall(json.dumps(body["messages"]))
    if not matches:
        raise ValueError("nothing to say")
    return Said(*map(int, matches[-1]))


class Connection(asyncio.Protocol):
    """A connection, which answers one request after another."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Remember the transport, for the answers."""
        self._transport: asyncio.Transport = transport

    def connection_lost(self, _error: Exception | None) -> None:
        """Stop sending."""
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer the request once it is whole."""
        self._received += data
        head, separator, rest = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        size = int(length[1]) if length else 0
        if not separator or len(rest) < size:
            return
        self._received = rest[size:]
        try:
            body = json.loads(rest[:size])
            answer = said(body)
        except (ValueError, LookupError):
            self._write(_whole(400, b'{"error":{"message":"what?","type":"invalid_request_error"}}'))
            return
        if body.get("stream"):
            self._begin(answer)
        else:
            whole = _whole(200, _completion(answer))
            self._timer = self._loop.call_later(answer.length * answer.pause / 1000, self._write, whole)

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def _begin(self, asked: Said) -> None:
        pieces = [_piece(_BEFORE_TOKEN + b'"%b"' % token.encode() + _AFTER_TOKEN) for token in asked.tokens()]
        end = chunk("stop") + frame(choices=[], usage=_usage(asked)) + DONE
        pieces[-1] += _piece(end) + b"0\r\n\r\n"
        self._write(_HEAD + _piece(chunk(role="assistant", content="")))
        if asked.pause:
            self._continue(iter(pieces), self._loop.time(), asked.pause / 1000)
        else:
            self._write(b"".join(pieces))

    def _continue(self, pieces: Iterator[bytes], before: float, pause: float) -> None:
        """Write the next of the pieces, so many milliseconds after the previous one, and then all that
        follow."""
        if (piece := next(pieces, None)) is not None:
            at = before + pause
            self._timer = self._loop.call_at(at, self._write_one, piece, pieces, at, pause)

    def _write_one(self, piece: bytes, pieces: Iterator[bytes], at: float, pause: float) -> None:
        self._write(piece)
        self._continue(pieces, at, pause)


def _usage(asked: Said) -> dict[str, int]:
    return {"prompt_tokens": 3, "completion_tokens": asked.length, "total_tokens": 3 + asked.length}


def _completion(asked: Said) -> bytes:
    message = {"role": "assistant", "content": asked.text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "said", "choices": [choice]}
    return json.dumps(whole | {"usage": _usage(asked)}).encode()


def _piece(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _whole(status: int, body: bytes) -> bytes:
    head = b"HTTP/1.1 %d -\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


async def _main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(uvloop.run(_main()))
