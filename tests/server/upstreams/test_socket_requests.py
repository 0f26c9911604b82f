"""Requests over WebSockets that come, end and are cancelled at once, on the client of the upstream itself;
and the ways to the upstream: TLS and proxies, as over HTTP."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.http.client.body import ResponseBody
from openresponses_server.http.client.connect_options import ConnectOptions, TlsOptions
from openresponses_server.http.flow import BodyReader
from openresponses_server.settings import SocketSettings
from openresponses_server.upstreams.base import SocketCounts
from tests.support.certificates import Authority
from tests.support.listening import listening
from tests.support.scripted_proxy import ScriptedProxy
from tests.support.socket_client import ask, body_of, client, text_of
from tests.support.socket_upstream import Raw, SocketStep, SocketTurn, SocketUpstream, text_frame
from tests.support.upstream import HANG
from tests.support.waiting import until


@pytest.fixture
def upstream() -> Iterator[SocketUpstream]:
    with SocketUpstream(lambda body: ["You say ", body["input"][-1]["content"], "."]) as scripted:
        yield scripted


@pytest.mark.untraced
def test_requests_that_come_and_are_cancelled_at_once(upstream: SocketUpstream) -> None:
    """Each of a thousand gets its own answer or none, and none is made twice."""
    rng = random.Random(7)

    async def use() -> int:
        counts = SocketCounts()
        requests = client(counts, SocketSettings(connections=6))
        done = 0

        async def one(number: int) -> None:
            nonlocal done
            text = f"number {number}"
            task = asyncio.ensure_future(ask(requests, upstream.url, body_of(text), f"owner {number % 3}"))
            if rng.random() < 0.4:
                for _ in range(rng.randrange(60)):
                    await asyncio.sleep(0)
                task.cancel()
            with suppress(asyncio.CancelledError):
                assert text_of(await task) == f"You say {text}."
                done += 1

        for start in range(0, 1000, 20):
            await asyncio.gather(*(one(number) for number in range(start, start + 20)))
        await requests.close()
        await until(lambda: upstream.open == 0)
        assert counts.open == 0
        return done

    assert asyncio.run(use()) > 500
    assert upstream.received
    texts = [each.body["input"][-1]["content"] for each in (*upstream.turns, *upstream.received)]
    assert len(texts) == len(set(texts))


def test_a_request_that_leaves_when_its_turn_is_over_ends_no_other(
    upstream: SocketUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cancelled between the end of its answer and its hearing of the beginning. The connection is free
    by then, and another request may have it."""
    tasks: list[asyncio.Task[str]] = []
    ended: list[ResponseBody] = []
    end = ResponseBody.end

    def end_and_cancel(self: ResponseBody, error: BaseException | None = None) -> None:
        end(self, error)
        ended.append(self)
        if len(ended) == 1:
            tasks[0].cancel()

    def play(turn: SocketTurn, messages: list[bytes]) -> list[SocketStep]:
        return [Raw(b"".join(text_frame(each).data for each in (messages[0], messages[-1])))]

    monkeypatch.setattr(ResponseBody, "end", end_and_cancel)
    upstream.play = play

    async def use() -> None:
        requests = client(SocketCounts())
        one, two = (body_of(text, prompt_cache_key="c") for text in ("one", "two"))
        tasks.append(asyncio.ensure_future(ask(requests, upstream.url, one)))
        await until(lambda: ended)
        assert text_of(await ask(requests, upstream.url, two)) == "You say two."
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        await requests.close()

    asyncio.run(use())
    assert [turn.connection for turn in upstream.turns] == [1, 1]


def test_no_connection_has_two_owners(upstream: SocketUpstream) -> None:
    """Though they say the very same."""

    async def use() -> None:
        requests = client(SocketCounts())
        for texts in (["Hello"], ["Hello", "Go on."]):
            for owner in ("one", "other", ""):
                await ask(requests, upstream.url, conversation(*texts), owner)
        await requests.close()

    asyncio.run(use())
    assert [turn.connection for turn in upstream.turns] == [1, 2, 3, 1, 2, 3]
    assert [len(turn.message["input"]) for turn in upstream.turns] == [1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("field", ["stream", "background", "path"])
def test_what_a_websocket_does_not_have_goes_over_http(upstream: SocketUpstream, field: str) -> None:
    fields = json.loads(body_of("Hi")) | {"stream": field != "stream", "background": field == "background"}
    path = "/responses/compact" if field == "path" else "/responses"

    async def use() -> None:
        requests = client(SocketCounts())
        data = json.dumps(fields).encode()
        answer = await requests.request("POST", upstream.url + path, headers={}, data=data)
        answer.close()
        await requests.close()

    asyncio.run(use())
    assert (len(upstream.turns), len(upstream.received)) == (0, 1)


def conversation(*texts: str) -> bytes:
    """A request with what the upstream has answered before."""
    items: list[dict[str, Any]] = []
    for text in texts:
        if items:
            items.append({"type": "message", "role": "assistant", "content": f"You say {texts[0]}."})
        items.append({"type": "message", "role": "user", "content": text})
    return json.dumps({"model": "m", "stream": True, "input": items}).encode()


@pytest.mark.untraced
def test_a_reader_that_stops_stops_the_upstream(upstream: SocketUpstream) -> None:
    """What waits is bounded, however much the upstream has to send."""
    piece = text_frame(b'{"type":"response.output_text.delta","delta":"' + b"x" * 60_000 + b'"}')
    sent = 0

    def play(turn: SocketTurn, messages: list[bytes]) -> list[SocketStep]:
        def count() -> bool:
            nonlocal sent
            sent += len(piece.data)
            return True

        return [messages[0], *[step for _ in range(2000) for step in (piece, count)], *messages[1:]]

    upstream.play = play

    async def use() -> None:
        requests = client(SocketCounts())
        answer = await requests.request("POST", f"{upstream.url}/responses", headers={}, data=body_of("Hi"))
        before = -1
        while before != sent or not sent:  # until it gets nothing more into the network
            before = sent
            await asyncio.sleep(0.3)
        assert sent < 40_000_000
        reader = BodyReader(answer.content)
        assert len(await reader.collect(10**9)) > 2000 * 60_000
        answer.close()
        await requests.close()

    asyncio.run(use())
    assert sent == 2000 * len(piece.data)


def test_a_message_that_never_ends_is_bounded(upstream: SocketUpstream) -> None:
    endless = Raw(text_frame(b"x" * 1000, fin=False).data + text_frame(b"", fin=False).data[:0])
    more = Raw(b"\x00\x7e\x03\xe8" + b"x" * 1000)
    upstream.play = lambda turn, messages: [messages[0], endless, *[more] * 5000, HANG]

    async def use() -> None:
        requests = client(SocketCounts(), SocketSettings(message_bytes=100_000))
        with pytest.raises(OSError, match="or too large"):
            await ask(requests, upstream.url, body_of("Hi"))
        await until(lambda: upstream.open == 0)
        await requests.close()

    asyncio.run(use())


def test_through_a_proxy(upstream: SocketUpstream) -> None:
    port = int(upstream.url.rpartition(":")[2].partition("/")[0])

    async def use() -> list[str]:
        proxy = ScriptedProxy({"up.example:80": port}, user="u:p")
        async with proxy.listening():
            options = ConnectOptions(proxy=f"http://u:p@127.0.0.1:{proxy.port}")
            requests = client(SocketCounts(), options=options)
            for text in ("one", "two"):
                assert text_of(await ask(requests, "http://up.example/v1", body_of(text)))
            await requests.close()
        return [head.split("\r\n")[0] for head in proxy.passed]

    assert set(asyncio.run(use())) == {"CONNECT up.example:80 HTTP/1.1"}
    assert len(upstream.turns) == 2


@pytest.mark.parametrize("trusted", [True, False])
def test_over_tls(upstream: SocketUpstream, tmp_path: Path, trusted: bool) -> None:
    """A certificate that is not accepted is not accepted over HTTP either."""
    authority = Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.certificate("server"))
    port = int(upstream.url.rpartition(":")[2].partition("/")[0])

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.wait(
                [asyncio.ensure_future(each) for each in (copied(reader, out), copied(there, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            out.close()

    async def use() -> None:
        async with listening(relay, tls) as secured:
            ca_file = str(authority.file) if trusted else None
            requests = client(SocketCounts(), options=ConnectOptions(TlsOptions(ca_file=ca_file)))
            with nullcontext() if trusted else pytest.raises(OSError, match="certificate"):
                assert text_of(await ask(requests, f"https://localhost:{secured}/v1", body_of("one")))
            await requests.close()

    asyncio.run(use())
    assert len(upstream.turns) == trusted
    assert upstream.received == []


async def copied(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        to.write(data)
        await to.drain()


def test_a_proxy_that_refuses_leaves_http(upstream: SocketUpstream) -> None:
    async def use() -> None:
        proxy = ScriptedProxy({}, says=b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n")
        async with proxy.listening():
            options = ConnectOptions(proxy=f"http://127.0.0.1:{proxy.port}")
            requests = client(SocketCounts(), options=options)
            answer: Any = await requests.request(
                "POST", "http://up.example/v1/responses", headers={}, data=body_of("one")
            )
            assert answer.status == 403
            answer.close()
            await requests.close()

    asyncio.run(use())
    assert upstream.turns == []
