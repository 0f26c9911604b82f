"""Laws S3 and S4 on the way of a token to a WebSocket that waits for nothing."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from openresponses_server.api.websocket.connection import Lanes
from openresponses_server.http.refusals import with_stream_id
from openresponses_server.http.websocket import WebSocketConnection
from openresponses_server.settings import Settings, Tracing, UpstreamSettings
from tests.support.direct_writes import DirectWrites
from tests.support.raw_sockets import raw_websocket, ws_frame
from tests.support.serving import call, serving
from tests.support.sockets import Socket, opened_socket
from tests.support.upstream import ScriptedUpstream, by_turns, paced
from tests.support.waiting import NEVER, wait_until

SEND_BUFFER = 16 * 1024


@pytest.fixture
def base(upstream: ScriptedUpstream, written: DirectWrites) -> Iterator[str]:
    """Without keep-alives, which would come between tokens on a busy machine."""
    upstreams = [UpstreamSettings(url=upstream.url)]
    with serving(Settings(upstreams=upstreams, keep_alive=NEVER), SEND_BUFFER) as base:
        yield base


def asked(model: str, **more: Any) -> bytes:
    body = {"type": "response.create", "model": model, "input": "Hi", "store": False, **more}
    return ws_frame(1, json.dumps(body).encode())


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("compression", [None, "deflate"])
def test_tokens_take_it(
    base: str, upstream: ScriptedUpstream, written: DirectWrites, store: bool, compression: str | None
) -> None:
    words = [f"w{number}. " for number in range(40)]
    with opened_socket(base, compression=compression) as client:
        for _ in range(2):
            got = bytearray()
            upstream.scripts["m"] = by_turns(words, got)
            written.count = 0
            client.send(model="m", input="Hi", store=store)
            while (event := client.receive())["type"] != "response.completed":
                got += event.get("delta", "").encode()
            assert got.decode() == "".join(words) + "end"
            assert written.count >= len(words) - 1


def test_lanes_do_not_mix(base: str, upstream: ScriptedUpstream, written: DirectWrites) -> None:
    upstream.scripts |= {"a": paced(*"a" * 40), "b": paced(*"b" * 40)}
    with opened_socket(base) as client:
        for lane in "ab":
            client.send(model=lane, input="Hi", store=False, stream_id=lane)
        shown = {"a": "", "b": ""}
        ended = 0
        while ended < 2:
            event = client.receive()
            ended += event["type"] == "response.completed"
            if event["type"] == "response.output_text.delta":
                shown[event["stream_id"]] += event["delta"]
    assert shown == {"a": "a" * 40 + "end", "b": "b" * 40 + "end"}


def test_s4_client_that_reads_nothing_has_its_upstream_wait(
    base: str, upstream: ScriptedUpstream, written: DirectWrites
) -> None:
    piece = "x" * 30_000
    upstream.scripts["m"] = paced(*[piece] * 80, every=0.001)
    with raw_websocket(base, reads_little=True) as client:
        client.send(asked("m"))
        wait_until(lambda: written.count > 0 and written.refused > 0)
        before = written.count
        assert upstream.last("m").sent < 80 * len(piece) * 0.9
        assert written.held <= HIGH_WATER_LIMIT + 2 * len(piece)
        client.widen()
        got = client.read(until=b'"response.completed"')
    assert got.count(b"response.output_text.delta") == 81
    assert got.count(b"x") >= 80 * len(piece)
    assert written.paused == 0
    assert written.count > before  # it is taken again when the client reads


async def test_message_that_waits_is_not_overtaken_by_one_of_another_lane() -> None:
    may, sent = asyncio.Event(), list[bytes]()

    async def send(message: bytes) -> None:
        await may.wait()
        sent.append(message)

    def write(message: bytes) -> bool:
        sent.append(message)
        return True

    async def after_turn() -> None:
        return None

    lanes = Lanes(cast(Any, None), {}, "", cast(Any, None), send, write, after_turn)
    first = asyncio.create_task(lanes._sender(None)(b"{}"))
    await asyncio.sleep(0)
    other = lanes._writer("b")
    assert not other(b'{"a":1}')
    may.set()
    await first
    assert other(b'{"a":1}')
    assert sent == [b"{}", with_stream_id(b'{"a":1}', "b")]


@pytest.mark.parametrize("half", [False, True])
def test_s3_client_that_leaves_between_tokens_aborts_its_upstream(
    base: str, upstream: ScriptedUpstream, written: DirectWrites, half: bool
) -> None:
    upstream.scripts["m"] = paced(*["a"] * 2000)
    with raw_websocket(base) as client:
        client.send(asked("m"))
        wait_until(lambda: written.count > 5)
        client.socket.shutdown(socket.SHUT_WR) if half else client.socket.close()
        wait_until(lambda: upstream.last("m").gone_at is not None)


def test_nothing_is_written_behind_a_close(
    base: str, upstream: ScriptedUpstream, written: DirectWrites
) -> None:
    upstream.scripts["m"] = paced(*["a"] * 400)
    with raw_websocket(base) as client:
        client.send(asked("m"))
        wait_until(lambda: written.count > 5)
        client.send(ws_frame(8, b"\x03\xe8"))
        got = client.read()
        wait_until(lambda: upstream.last("m").gone_at is not None)
    assert got.endswith(b"\x88\x02\x03\xe8")


def test_messages_of_many_clients_are_their_own(
    base: str, upstream: ScriptedUpstream, written: DirectWrites
) -> None:
    texts: dict[int, str] = {}

    def one(number: int) -> None:
        with opened_socket(base) as client:
            texts[number] = Socket(client.connection).turn(model=f"m{number}", input="Hi", store=False).text

    for number in range(8):
        upstream.scripts[f"m{number}"] = paced(*[f"{number} "] * 30)
    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: f"{number} " * 30 + "end" for number in range(8)}


def test_server_that_offers_no_such_way_sends_the_same(
    base: str, upstream: ScriptedUpstream, written: DirectWrites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WebSocketConnection, "handle_connect", WebSocketConnection.__base__.handle_connect)  # type: ignore[union-attr]
    upstream.scripts["m"] = paced("a", "b", "c")
    with opened_socket(base) as client:
        assert client.turn(model="m", input="Hi", store=False).text == "abcend"
    assert written.count == 0


def test_trace_has_each_message(upstream: ScriptedUpstream, written: DirectWrites, tmp_path: Any) -> None:
    upstream.scripts["m"] = paced(*["a"] * 20)
    settings = Settings(upstreams=[UpstreamSettings(url=upstream.url)], trace=Tracing(folder=str(tmp_path)))
    with serving(settings) as base:
        with opened_socket(base) as client:
            turn = client.turn(model="m", input="Hi", store=False)
        trace = call(base, "GET", f"/v1/responses/{turn.final['id']}/trace").body
    assert trace.count(b"response.output_text.delta") == 21
    assert written.count == 0
