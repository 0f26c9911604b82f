"""A model whose answer follows from what it is asked, so that each client knows what it has to receive.

python -m tests.load.model        → prints its port
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from contextlib import suppress
from typing import Final, NamedTuple

import uvloop

from tests.support.upstream import chunk, frame

_ASKED: Final = re.compile(r"say (\d{1,9}) (\d{1,6}) (\d{1,6})")
_LENGTH: Final = re.compile(rb"(?i)content-length: (\d{1,9})")
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Said(NamedTuple):
    """A text of `length` tokens that no other `seed` has, with so many milliseconds before each."""

    seed: int
    length: int
    pause: int

    @property
    def request(self) -> str:
        """What the client asks."""
        return f"say {self.seed} {self.length} {self.pause}"

    def tokens(self) -> list[str]:
        """What the model answers."""
        return [f" {self.seed}.{number}" for number in range(self.length)]

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.tokens())


def said(body: bytes) -> Said:
    """What a request asks for, by its last words that ask. Raises ValueError."""
    found = _ASKED.findall(json.dumps(json.loads(body)["messages"]))
    if not found:
        raise ValueError("nothing to say")
    return Said(*map(int, found[-1]))


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request after the other."""
    with suppress(OSError, RuntimeError, asyncio.IncompleteReadError):  # uvloop's, of a closed transport
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            try:
                asked = said(body)
            except (ValueError, LookupError):
                writer.write(_whole(400, b'{"error":{"message":"what?","type":"invalid_request_error"}}'))
                continue
            if json.loads(body).get("stream"):
                await _stream(asked, writer)
            else:
                await asyncio.sleep(asked.length * asked.pause / 1000)
                writer.write(_whole(200, _completion(asked)))
            await writer.drain()
    writer.close()


async def _stream(asked: Said, writer: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    writer.write(_HEAD + _piece(chunk(role="assistant", content="")))
    begun = loop.time()
    for number, token in enumerate(asked.tokens()):
        if asked.pause:
            await asyncio.sleep(begun + (number + 1) * asked.pause / 1000 - loop.time())
        writer.write(_piece(chunk(content=token)))
        await writer.drain()
    writer.write(
        _piece(chunk("stop") + frame(choices=[], usage=_usage(asked)) + b"data: [DONE]\n\n") + b"0\r\n\r\n"
    )


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
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(uvloop.run(_main()))
