"""Law S5: an upstream's connection ends after any byte of its answer, on a real socket, in each dialect that
uses one. Codex is a process that writes lines to a pipe; tests/server/upstreams/test_codex_faults.py tests
how a turn ends when the process does."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from openresponses_bridge.dialects.bedrock_converse.event_stream import MEDIA_TYPE, FramesOfMessages
from openresponses_server.settings import Settings, UpstreamSettings
from tests.load.faults import reset
from tests.load.scene import port_of
from tests.load.wire import asked
from tests.support import converse
from tests.support import dialect_scripts as scripts
from tests.support.listening import listening
from tests.support.serving import Reply, output_text, serving, violations

pytestmark = pytest.mark.anyio

DIALECTS = ("chat", "anthropic", "responses", "gemini", "interactions", "bedrock")
_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ntransfer-encoding: chunked\r\n\r\n"
HEAD, BINARY = (_HEAD.format(each).encode() for each in ("text/event-stream", MEDIA_TYPE))
TEXTS = ("He", "llo", " there")
ARGUMENTS = '{"city": "Paris"}'
SAMPLED = 6
"""The number of places at which each answer is cut, in addition to its last bytes."""
REQUEST = re.compile(rb"(?i)content-length: (\d+)\r\n")


class Answer(Struct):
    """The whole answer of an upstream, and the mark of the frame that ends it; None if only the end of the
    body does."""

    raw: bytes
    terminal: bytes | None
    head: bytes = HEAD

    def frames(self, sent: int) -> list[bytes]:
        """The frames that are complete in so many of its bytes."""
        rest, body = self.raw[len(self.head) : max(sent, len(self.head))], b""
        while b"\r\n" in rest:
            size, _, rest = rest.partition(b"\r\n")
            body += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
        if self.head == BINARY:
            body = FramesOfMessages().feed(body)
        return body.split(b"\n\n")[:-1]

    def has_ended(self, sent: int) -> bool:
        """Whether these bytes include the end of the answer."""
        if self.terminal is None:
            return sent == len(self.raw)
        return any(self.terminal in frame for frame in self.frames(sent))


TERMINAL = {
    "chat": b"[DONE]",
    "anthropic": b'"message_stop"',
    "responses": b'"type":"response.completed"',
    "gemini": None,
    "interactions": b'"interaction.completed"',
    "bedrock": b"event: metadata",
}


def answer(dialect: str, what: str) -> Answer:
    if what == "text":
        steps = scripts.text(dialect, *TEXTS)
    else:
        steps = scripts.call(dialect, ("call_1", "weather", ARGUMENTS))
    if dialect == "bedrock":
        events = [json.loads(bytes(step).partition(b"data: ")[2]) for step in steps]  # type: ignore[arg-type]
        steps = list(converse.messages(events))
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(step), step) for step in steps if isinstance(step, bytes))
    head = BINARY if dialect == "bedrock" else HEAD
    return Answer(head + chunks + b"0\r\n\r\n", TERMINAL[dialect], head)


class Upstream:
    """Sends so many bytes of an answer, then closes the connection or resets it."""

    def __init__(self) -> None:
        self.sends = b""
        self.resets = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = REQUEST.search(head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        writer.write(self.sends)
        await writer.drain()
        if self.resets:
            await asyncio.sleep(0.001)  # otherwise written bytes may be lost with the connection
            reset(writer)


@asynccontextmanager
async def cut_off(dialect: str, folder: Path) -> AsyncIterator[tuple[Upstream, int]]:
    """An upstream of this dialect, and the port of a server in front of it."""
    upstream = Upstream()
    async with listening(upstream.serve) as port:
        settings = UpstreamSettings(url=f"http://127.0.0.1:{port}", dialect=dialect, api_key="k")
        with serving(Settings(upstreams=[settings], store=f"sqlite:///{folder}/s.sqlite3")) as base:
            yield upstream, port_of(base)


async def reply(port: int, method: str, path: str, body: Any = None) -> Reply:
    async with asked(port, method, path, body) as response:
        return Reply(response.status, response.headers, await response.body())


async def check(place: tuple[Upstream, int], whole: Answer, at: int, *, stored: bool, resets: bool) -> None:
    """Assert that the client gets the content of the first `at` bytes, and an end that is true."""
    upstream, port = place
    upstream.sends, upstream.resets = whole.raw[:at], resets
    tool = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
    body = {"model": "m", "input": "Hello", "stream": True, "store": stored, "tools": [tool]}
    sent = await reply(port, "POST", "/v1/responses", body)
    arrived = b"\n".join(whole.frames(at))
    case = f"{at} bytes, {stored=}, {resets=}: {sent.body[-600:]!r}"
    if sent.status != 200:
        assert sent.status == 502, case
        assert sent.error["type"] == "server_error", case
        assert TEXTS[0].encode() not in arrived, case
        assert b"weather" not in arrived, case
        return
    assert violations(sent) == [], case
    assert sent.body.endswith(b"data: [DONE]\n\n"), case
    final = sent.final
    assert final["status"] == ("completed" if whole.has_ended(at) else "failed"), case
    assert output_text(final) == "".join(each for each in TEXTS if f'"{each}"'.encode() in arrived), case
    for item in final["output"]:
        is_whole = item["status"] == "completed"
        assert is_whole or final["status"] == "failed", case
        if is_whole and item["type"] == "function_call":
            assert json.loads(item["arguments"]) == json.loads(ARGUMENTS), case
        elif is_whole:
            assert output_text(final) == "".join(TEXTS), case
    record = await reply(port, "GET", f"/v1/responses/{final['id']}")
    if not stored:
        assert record.status == 404, case
        return
    assert record.json == final, case
    again = await reply(port, "GET", f"/v1/responses/{final['id']}?stream=true")
    assert again.body == sent.body, case


@pytest.mark.parametrize("what", ["text", "call"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_s5_an_upstream_that_is_cut_never_completes(tmp_path: Path, dialect: str, what: str) -> None:
    whole, chance = answer(dialect, what), random.Random(f"{dialect} {what}")
    sampled = chance.sample(range(len(whole.raw)), SAMPLED)
    async with cut_off(dialect, tmp_path) as place:
        for at in (*sampled, len(whole.raw) - 1, len(whole.raw)):
            await check(place, whole, at, stored=chance.random() < 0.5, resets=chance.random() < 0.5)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("what", ["text", "call"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_s5_an_upstream_that_is_cut_at_every_byte(tmp_path: Path, dialect: str, what: str) -> None:
    whole, chance = answer(dialect, what), random.Random(1)
    async with cut_off(dialect, tmp_path) as place:
        for at in range(len(whole.raw) + 1):
            for stored in (True, False):
                await check(place, whole, at, stored=stored, resets=chance.random() < 0.5)
