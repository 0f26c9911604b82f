"""A WebSocket client that stops reading: its run goes on, and it reads on from what is kept."""

import json
import socket
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from structlog.testing import capture_logs
from websockets.exceptions import ConnectionClosed

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode, encode_sse
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.sse import DONE
from openresponses_server.api.websocket.turns import TurnStream
from openresponses_server.errors import HttpError
from openresponses_server.runs import client as clients
from openresponses_server.runs.client import Batch
from openresponses_server.settings import Limits, Settings, UpstreamSettings
from tests.support.clocks import connection_clock
from tests.support.services import own_redis, postgres_database
from tests.support.serving import call, ready, serving, wait_for
from tests.support.sockets import Socket, opened_socket
from tests.support.upstream import CUT, HANG, Script, ScriptedUpstream, chunk, text
from tests.support.waiting import NEVER, wait_until

BUFFER = 65536  # bytes that the system keeps on either side of a connection
PIECES = 60
FLOOD = [chunk(content="x" * 10_000)] * PIECES


def settings_of(upstream: ScriptedUpstream, write_seconds: float = 30.0, **more: Any) -> Settings:
    limits = Limits(readers=2, write_seconds=write_seconds)
    return Settings(upstreams=[UpstreamSettings(url=upstream.url)], keep_alive=0.05, limits=limits, **more)


@pytest.fixture(scope="module")
def server(upstream: ScriptedUpstream) -> Iterator[str]:
    """One that does not wait long for a client, and has room for two readers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients, "_TIMEOUT", 0.2)
        with serving(settings_of(upstream), BUFFER) as base:
            yield base


@contextmanager
def narrow_socket(base: str) -> Iterator[Socket]:
    """One that holds little of what it does not read."""
    address = urlsplit(base)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        connection.connect((address.hostname, address.port))
        with opened_socket(
            base, sock=connection, compression=None, max_queue=2, max_size=None, ping_interval=None
        ) as opened:
            yield opened


def begun(opened: Socket, **request: Any) -> tuple[dict[str, Any], str]:
    """The first event of a turn, and whose it is."""
    opened.send(input="x", **request)
    first = opened.receive()
    return first, first["response"]["id"]


def events_of(base: str, response_id: str) -> list[dict[str, Any]]:
    return call(base, "GET", f"/v1/responses/{response_id}?stream=true").events


def is_same(events: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    """Whether they are: a difference of so long texts would take minutes to be written."""
    return events == others


@pytest.mark.parametrize("kept", ["here", "redis", pytest.param("postgres", marks=pytest.mark.slow)])
def test_s4_run_does_not_wait_for_a_socket_that_is_not_read(
    server: str, upstream: ScriptedUpstream, kept: str
) -> None:
    """Every event comes once, as it is stored; the next turn comes behind it and goes on from it."""
    upstream.scripts["flood"] = Script([*FLOOD, *text("end")])
    with ExitStack() as stack:
        base = server
        if kept != "here":
            log = stack.enter_context(own_redis()).url
            store = "memory://" if kept == "redis" else stack.enter_context(postgres_database())
            base = stack.enter_context(serving(settings_of(upstream, store=store, event_log=log), BUFFER))
        opened = stack.enter_context(narrow_socket(base))
        first, response_id = begun(opened, model="flood")
        wait_for(base, response_id, "completed")
        assert is_same(opened.rest(first).events, events_of(base, response_id))
        upstream.scripts["flood"] = Script(text("Next"))
        following = opened.turn(model="flood", input="and on", previous_response_id=response_id)
        assert following.final["previous_response_id"] == response_id
        assert following.text == "Next"


def test_s4_failure_of_a_run_that_went_on_ends_the_turn_once(server: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["cut"] = Script([*FLOOD, CUT])
    with narrow_socket(server) as opened:
        first, response_id = begun(opened, model="cut")
        wait_for(server, response_id, "failed")
        turn = opened.rest(first)
        *before, error, failed = events_of(server, response_id)
        assert error["type"] == "error"
        assert is_same(turn.events, [*before, failed | {"sequence_number": error["sequence_number"]}])
        assert opened.turn(model="demo", input="x").events[-1]["type"] != "response.failed"


def test_s3_socket_catches_up_with_a_run_that_goes_on(server: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["both"] = Script([*FLOOD, chunk(content="y"), HANG])
    with narrow_socket(server) as opened:
        first, response_id = begun(opened, model="both")
        wait_until(lambda: readers(server) == 1)
        events = [first]
        while events[-1].get("delta") != "y":
            events.append(opened.receive())
        assert call(server, "POST", f"/v1/responses/{response_id}/cancel").status == 200
        turn = opened.rest(*events)
    assert is_same(turn.events, events_of(server, response_id))
    assert turn.final["incomplete_details"] == {"reason": "cancelled"}


def test_s8_socket_that_falls_behind_counts_as_a_reader(server: str, upstream: ScriptedUpstream) -> None:
    """One too many gets the rest elsewhere, and goes on."""
    upstream.scripts["flood"] = Script([*FLOOD, *text("end")])
    upstream.scripts["m"] = Script(text("Hello"))
    with ExitStack() as stack:
        sockets = [stack.enter_context(narrow_socket(server)) for _ in range(3)]
        ids = []
        for places, each in enumerate(sockets, 1):
            ids.append(begun(each, model="flood")[1])
            wait_until(lambda places=places: readers(server) == min(places, 2))
        wait_until(lambda: ready(server).json["running"] == 0)  # all have ended without their clients
        events = []
        while not events or events[-1]["type"] != "error":
            events.append(sockets[2].receive())
        assert events[-1]["status"] == 429
        assert sockets[2].turn(model="m", input="x").text == "Hello"
    last = events[-2]["sequence_number"]
    wait_until(lambda: call(server, "GET", f"/v1/responses/{ids[2]}").status == 200)
    rest = call(server, "GET", f"/v1/responses/{ids[2]}?stream=true&starting_after={last}")
    assert rest.events[0]["sequence_number"] == last + 1
    assert rest.types[-1] == "response.completed"


def readers(base: str) -> int:
    """Of what is stored, at this server; clients that fell behind are among them."""
    return int(ready(base).json["readers"])


def test_s8_socket_that_is_never_read_is_closed_and_its_run_is_whole(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "_TIMEOUT", 0.2)
    upstream.scripts["flood"] = Script([*FLOOD, *text("end")])
    with (
        capture_logs() as lines,
        connection_clock() as clock,
        serving(settings_of(upstream, write_seconds=0.4), BUFFER, clock) as server,
        narrow_socket(server) as opened,
    ):
        _, response_id = begun(opened, model="flood")
        ended = wait_for(server, response_id, "completed")
        assert len(ended["output"][0]["content"][0]["text"]) == PIECES * 10_000 + len("end")
        clock.passes_until(lambda: any("client_takes_nothing" in line for line in lines), 0.4)
        with pytest.raises(ConnectionClosed):
            opened.rest()
        assert events_of(server, response_id)[-1]["response"] == ended


def test_rest_that_was_deleted_ends_the_turn(server: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["both"] = Script([*FLOOD, HANG])
    upstream.scripts["m"] = Script(text("Hello"))
    with narrow_socket(server) as opened:
        _, response_id = begun(opened, model="both")
        wait_until(lambda: readers(server) == 1)
        assert call(server, "DELETE", f"/v1/responses/{response_id}").status == 200
        event = opened.receive()
        while event["type"] != "error":
            event = opened.receive()
        assert (event["status"], event["error"]["code"]) == (503, "stream_broken_off")
        assert opened.turn(model="m", input="x").text == "Hello"


def test_interruption_within_a_batch_sends_no_event_twice(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response that is cancelled while its client takes nothing, and the run still waits for it."""
    monkeypatch.setattr(clients, "_TIMEOUT", NEVER)
    upstream.scripts["block"] = Script([b"".join(FLOOD), HANG])
    with serving(settings_of(upstream), BUFFER) as base, narrow_socket(base) as opened:
        first, response_id = begun(opened, model="block")
        time.sleep(0.5)
        assert call(base, "POST", f"/v1/responses/{response_id}/cancel").status == 200
        assert opened.rest(first).final["incomplete_details"] == {"reason": "cancelled"}


# ── without a server ───────────────────────────────────────────────────────────────────────────────────
class Turn:
    """One whose messages are kept, or cancelled where the test says so."""

    def __init__(self, machine: ResponseStreamStateMachine, headers: dict[str, str] | None = None) -> None:
        self.sent: list[bytes] = []
        self.ends: list[str] = []
        self.stuck = False
        self.client = SimpleNamespace(last_sent=-1)
        self.translation = SimpleNamespace(response_id=machine.response_id)
        self.stream = TurnStream(
            self,  # type: ignore[arg-type]
            self._send,
            lambda _message: False,
            headers or {},
            lambda: self.ends.append("before"),
            lambda: self.ends.append("after"),
        )

    async def wait_for_end(self) -> None:
        return None

    async def _send(self, data: bytes) -> None:
        if self.stuck and len(self.sent) == 2:
            await anyio.sleep_forever()
        self.sent.append(data)


async def cut(data: bytes, size: int) -> AsyncGenerator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_rest_goes_on_within_a_batch_with_the_same_bytes(size: int) -> None:
    machine = ResponseStreamStateMachine("m")
    first = machine.start() + machine.text("a\r\nb\n\n") + machine.extension_event("other:thing", {"a": 1})
    rest = machine.text("ü") + machine.finish("stop")
    turn = Turn(machine)
    turn.stuck = True
    with anyio.move_on_after(0.01):
        await turn.stream.deliver(Batch(first))
    assert turn.client.last_sent == 1
    turn.stuck = False
    await turn.stream.catch_up(cut(encode_sse([*first[2:], *rest]) + DONE, size))
    assert turn.sent == [encode(each) for each in first + rest]
    assert turn.ends == ["before", "after"]


@pytest.mark.parametrize("size", [1, 100_000])
async def test_error_before_the_end_is_folded_into_it(size: int) -> None:
    machine = ResponseStreamStateMachine("m")
    begin, end = machine.start(), machine.fail(ErrorPayload("server_error", "x", "It failed.", None))
    delivered, read = Turn(machine), Turn(machine)
    await delivered.stream.deliver(Batch(begin))
    await delivered.stream.deliver(Batch(end, last=True))
    await read.stream.catch_up(cut(encode_sse(begin + end) + DONE, size))
    assert read.sent == delivered.sent
    assert [json.loads(each)["sequence_number"] for each in read.sent] == [0, 1, 2]


async def test_what_was_sent_of_a_batch_is_not_sent_with_the_end() -> None:
    machine = ResponseStreamStateMachine("m")
    first = machine.start() + machine.text("a")
    turn = Turn(machine)
    turn.stuck = True
    with anyio.move_on_after(0.01):
        await turn.stream.deliver(Batch(first))
    turn.stuck = False
    last = machine.cancel()
    await turn.stream.deliver(Batch([*first, *last], last=True))
    assert turn.sent == [encode(each) for each in first + last]


async def test_headers_come_with_the_first_message_that_is_sent() -> None:
    machine = ResponseStreamStateMachine("m")
    events = machine.start() + machine.finish("stop")
    turn = Turn(machine, {"a": "b"})
    await turn.stream.catch_up(cut(encode_sse(events) + DONE, 64))
    assert [json.loads(each).get("headers") for each in turn.sent] == [{"a": "b"}] + [None] * (
        len(events) - 1
    )


@pytest.mark.parametrize("extra", [b"", DONE])
async def test_rest_without_an_end_is_reported(extra: bytes) -> None:
    machine = ResponseStreamStateMachine("m")
    turn = Turn(machine)
    with pytest.raises(HttpError, match=r"starting_after=1\.$") as raised:
        await turn.stream.catch_up(cut(encode_sse(machine.start()) + extra, 100))
    assert raised.value.code == "stream_broken_off"
    assert turn.ends == []
