"""A client of a stored stream that stops reading: its run goes on, and it reads on from what is kept."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from http.client import HTTPResponse
from typing import Any

import pytest

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_server.api import responses
from openresponses_server.runs import client as clients
from openresponses_server.runs.client import Batch, Client
from openresponses_server.runs.run import Run
from openresponses_server.settings import Limits, Settings, UpstreamSettings
from openresponses_server.surfaces.stored_stream import StoredStream
from tests.support.serving import Reply, call, opened, serving, violations, wait_for
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, text

DONE = b"data: [DONE]\n\n"
PIECES = 250  # more than the system and the server keep for a client that reads nothing
FLOOD = [chunk(content="x" * 10_000)] * PIECES


@pytest.fixture(scope="module")
def server(upstream: ScriptedUpstream) -> Iterator[str]:
    """One that does not wait long, keeps connections alive often, and has room for two readers."""
    settings = Settings(
        upstreams=[UpstreamSettings(url=upstream.url)], keep_alive=0.05, limits=Limits(readers=2)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients, "_TIMEOUT", 0.2)
        with serving(settings, send_buffer=65536) as base:
            yield base


def begun(response: HTTPResponse) -> tuple[bytes, str]:
    """The first frame, and whose it is."""
    first = response.readline() + response.readline() + response.readline()
    return first, "resp_" + first.split(b'"id":"resp_', 1)[1].partition(b'"')[0].decode()


def asked(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "input": "x", "stream": True, **more}


def without_comments(data: bytes) -> bytes:
    return b"".join(each + b"\n\n" for each in data.split(b"\n\n")[:-1] if not each.startswith(b":"))


@pytest.fixture
def slow_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is over for several keep-alives before its responder knows it, as while a run waits to hear
    that its end is stored."""
    remaining = responses.remaining_stream

    async def slowly(*of: Any) -> AsyncIterator[bytes]:
        async for data in remaining(*of):
            yield data
        await asyncio.sleep(0.3)

    monkeypatch.setattr(responses, "remaining_stream", slowly)
    monkeypatch.setattr(Run, "draining", False)


def test_s4_run_does_not_wait_for_a_client_that_stops_reading(
    server: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["flood"] = Script([*FLOOD, *text("end")])
    with opened(server, "POST", "/v1/responses", asked("flood")) as response:
        first, response_id = begun(response)
        ended = wait_for(server, response_id, "completed")
        assert len(ended["output"][0]["content"][0]["text"]) == PIECES * 10_000 + len("end")
        time.sleep(0.3)  # comments, if there are any, come between frames
        rest = response.read()
    got = without_comments(first + rest)
    again = call(server, "GET", f"/v1/responses/{response_id}?stream=true").body
    assert got == without_comments(again)
    assert violations(Reply(200, {}, got)) == []
    assert got.endswith(DONE)


def test_s3_client_that_falls_behind_gets_a_live_stream_to_its_end(
    server: str, upstream: ScriptedUpstream
) -> None:
    """It catches up while the response is still being made."""
    upstream.scripts["both"] = Script([*FLOOD, chunk(content="y"), HANG])
    with opened(server, "POST", "/v1/responses", asked("both")) as response:
        first, response_id = begun(response)
        time.sleep(0.5)
        rest = b""
        while b'"delta":"y"' not in rest[-1000:]:
            rest += response.read1(65536)
        assert call(server, "POST", f"/v1/responses/{response_id}/cancel").status == 200
        rest += response.read()
    got = without_comments(first + rest)
    assert violations(Reply(200, {}, got)) == []
    assert got.count(b"response.output_text.delta\n") == PIECES + 1
    assert b"event: response.incomplete\n" in got


@pytest.mark.usefixtures("slow_end")
def test_s8_who_falls_behind_counts_as_a_reader(server: str, upstream: ScriptedUpstream) -> None:
    """One too many is broken off, and can ask again; one that leaves gives its place back. No keep-alive
    comes after the end of a stream."""
    upstream.scripts["flood"] = Script([*FLOOD, *text("end")])
    with ExitStack() as stack:
        stuck = []
        for _ in range(3):
            stuck.append(stack.enter_context(opened(server, "POST", "/v1/responses", asked("flood"))))
            _, response_id = begun(stuck[-1])
            if len(stuck) == 2:
                eventually(server, response_id, 429)
        wait_for_end(upstream, 3)
        assert not stuck[2].read().endswith(DONE)
        assert stuck[1].read().endswith(DONE)
        eventually(server, response_id, 200)
    rest = call(server, "GET", f"/v1/responses/{response_id}?stream=true").body
    assert rest.endswith(DONE)


def eventually(server: str, response_id: str, status: int) -> None:
    """The answer to a reader, which is one more, comes to be that."""
    while call(server, "GET", f"/v1/responses/{response_id}").status != status:
        time.sleep(0.02)


def wait_for_end(upstream: ScriptedUpstream, count: int) -> None:
    """So many streams of the model have been read from it to their end."""
    whole = sum(len(step) for step in upstream.scripts["flood"].steps)  # type: ignore[union-attr, arg-type]
    while [each.sent for each in upstream.received if each.body["model"] == "flood"][-count:] != [
        whole
    ] * count:
        time.sleep(0.02)


async def test_a_stored_stream_is_not_kept_alive_after_its_end() -> None:
    bodies: list[bytes] = []

    async def pieces() -> AsyncIterator[bytes]:
        yield b"event: a\ndata: {}\n\n"
        await asyncio.sleep(0.1)
        yield b"event: b\ndata: {}\n\n" + DONE
        await asyncio.sleep(0.1)

    async def send(message: Any) -> None:
        bodies.append(message.get("body", b""))

    async def receive() -> Any:
        return await asyncio.Event().wait()

    await StoredStream(pieces(), {}, 0.01)({"type": "http", "method": "GET"}, receive, send)
    whole = b"".join(bodies)
    assert b": keep-alive\n\nevent: b" in whole
    assert whole.endswith(DONE)


async def sent(client: Client, batch: Batch) -> None:
    if client.deliver is not None and (rest := client.deliver(batch)) is not None:
        await client.drain(rest, batch)


async def test_delivery_that_takes_too_long_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_TIMEOUT", 0.05)
    delivered: list[Batch] = []

    async def deliver(batch: Batch) -> None:
        if delivered:
            await asyncio.Event().wait()
        delivered.append(batch)

    client = Client(may_leave=True)
    client.attach(deliver, may_fall_behind=True)
    machine = ResponseStreamStateMachine("m")
    begin, more, end = machine.start(), machine.text("x"), machine.finish("stop")
    for events in (begin, more, end):
        await sent(client, Batch(events))
    assert [each.events for each in delivered] == [begin]
    assert client.last_sent == begin[-1].sequence_number
    assert client.is_behind
    await asyncio.sleep(0.1)  # nothing looks any more


async def test_cancellation_that_comes_with_it_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_TIMEOUT", 0.05)
    client = Client(may_leave=True)

    async def deliver(batch: Batch) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            sending.cancel()

    client.attach(deliver, may_fall_behind=True)
    sending = asyncio.create_task(sent(client, Batch(ResponseStreamStateMachine("m").start())))
    with pytest.raises(asyncio.CancelledError):
        await sending
    client.detach()


async def test_a_run_that_is_not_stored_waits_for_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_TIMEOUT", 0.02)
    taken = asyncio.Event()

    async def deliver(batch: Batch) -> None:
        await taken.wait()

    client = Client(may_leave=False)
    client.attach(deliver, may_fall_behind=True)
    sending = asyncio.create_task(sent(client, Batch(ResponseStreamStateMachine("m").start())))
    await asyncio.sleep(0.2)
    assert not client.is_behind
    assert not sending.done()
    taken.set()
    await sending
