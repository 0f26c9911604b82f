"""What goes on while the store takes its time, and around a client that takes nothing (S1, S4, S6, S8)."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec import Struct, field

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from openresponses_server.runs.client import Batch, Client
from openresponses_server.settings import Settings, Timeouts
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.persistence import ResponseSessionPersistenceTransformer
from tests.support.serving import call, respond, serving, stream, wait_for
from tests.support.workers import Reader, type_of

pytestmark = pytest.mark.timeout(120)


class Store(Struct):
    """How long the end of a response takes to be stored, and whether one is being stored."""

    base: str = ""
    seconds: float = 0.0
    saving: threading.Event = field(default_factory=threading.Event)


@pytest.fixture(scope="module")
def _served() -> Iterator[Store]:
    store = Store()
    real = MemoryStore.finish

    async def finish(self: MemoryStore, *given: Any, **named: Any) -> None:
        store.saving.set()
        begun = time.monotonic()
        while time.monotonic() - begun < store.seconds:  # one that has begun ends with the slowness too
            await asyncio.sleep(0.01)
        await real(self, *given, **named)

    defaults = ResponseSessionPersistenceTransformer.__init__.__kwdefaults__
    assert defaults is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryStore, "finish", finish)
        patch.setitem(defaults, "timeout", 1.0)
        settings = Settings(store="memory://", keep_alive=0.1, timeouts=Timeouts(total=2.0))
        with serving(settings) as base:
            store.base = base
            yield store


@pytest.fixture
def store(_served: Store) -> Store:
    _served.seconds = 0.0
    _served.saving.clear()
    return _served


def begin(store: Store, seconds: float, **more: Any) -> Reader:
    """A short stream whose end is being stored for that long, from now on."""
    store.seconds = seconds
    reader = Reader(store.base, "POST", "/v1/responses", {"model": "demo-slow", "input": "5 words", **more})
    assert store.saving.wait(60)
    return reader


def test_cancel_that_comes_while_the_end_is_stored_is_answered_with_the_end(store: Store) -> None:
    reader = begin(store, 0.4, stream=True)
    refused = call(store.base, "POST", f"/v1/responses/{reader.response_id}/cancel")
    assert (refused.status, refused.error["code"]) == (400, "response_not_cancellable")
    reader.join(5)
    assert type_of(reader.frames[-2]) == "response.completed"


def test_s6_connection_is_kept_alive_while_the_end_is_stored(store: Store) -> None:
    reader = begin(store, 0.7, stream=True)
    reader.join(5)
    last = reader.data.rindex(b"event: response.output_text.delta")
    assert reader.data.count(b"\n: ", last) >= 3
    assert type_of(reader.frames[-2]) == "response.completed"


def test_s1_store_that_does_not_answer_is_waited_for_as_long_as_patience_lasts(store: Store) -> None:
    begun = time.monotonic()
    reader = begin(store, 20.0, stream=True)
    reader.join(5)
    assert [type_of(each) for each in reader.frames[-3:-1]] == ["error", "response.failed"]
    assert b'"code":"store_unavailable"' in reader.frames[-2]
    assert time.monotonic() - begun < 5
    store.seconds = 0.0
    wait_for(store.base, str(reader.response_id), "failed")


@pytest.mark.parametrize("cancelled", [False, True])
def test_s8_run_whose_client_takes_nothing_ends_in_time(store: Store, cancelled: bool) -> None:
    body = json.dumps({"model": "demo", "input": f"{40_000} words", "stream": True}).encode()
    address = urlsplit(store.base)
    head = (
        "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect((address.hostname, address.port))
        stuck.sendall(head + body)
        first = b""
        while b'","object":"response"' not in first:
            first += stuck.recv(500)
        response_id = "resp_" + first.split(b'"id":"resp_', 1)[1].partition(b'"')[0].decode()
        if cancelled:
            asked = time.monotonic()
            assert call(store.base, "POST", f"/v1/responses/{response_id}/cancel").status in (200, 400)
            assert time.monotonic() - asked < 2
        wait_for(store.base, response_id, "completed", "incomplete", "failed")


async def test_s4_client_that_does_not_take_the_end_is_let_go() -> None:
    taken: list[Event] = []

    async def stuck(batch: Batch) -> None:
        taken.extend(batch.events)
        await asyncio.Event().wait()

    client = Client(may_leave=True)
    client.attach(stuck)
    machine = ResponseStreamStateMachine("m")
    begun, ended = machine.start(), machine.finish("stop")
    await client.send_last(Batch(begun + ended, last=True), seconds=0.05)
    assert taken == begun + ended
    assert client.deliver is None


def test_what_is_being_made_cannot_be_continued(store: Store) -> None:
    """Half a call can't be answered."""
    running = respond(store.base, model="demo-slow", input="30 words", background=True).json["id"]
    refused = respond(store.base, model="demo", input="And?", previous_response_id=running)
    assert (refused.status, refused.error["code"]) == (400, "previous_response_in_progress")
    assert refused.error["param"] == "previous_response_id"
    call(store.base, "POST", f"/v1/responses/{running}/cancel")
    assert stream(store.base, model="demo", input="And?", previous_response_id=running).final["status"] == (
        "completed"
    )
