"""What goes on while the store takes its time, and around a client that takes nothing (S1, S4, S6, S8)."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec import Struct, field

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.protocol.events import Event
from openresponses_server.runs.client import Batch, Client
from openresponses_server.settings import Settings, Timeouts
from openresponses_server.store.memory import MemoryStore
from tests.support.failing_store import store_ends_within
from tests.support.serving import call, respond, serving, stream, wait_for
from tests.support.waiting import until, wait_until
from tests.support.workers import Reader, type_of


class Store(Struct):
    """A store that stores no end of a response while it is held, and tells when one is to be stored."""

    base: str = ""
    released: threading.Event = field(default_factory=threading.Event)
    saving: threading.Event = field(default_factory=threading.Event)


@contextmanager
def served(patience: float) -> Iterator[Store]:
    """A server that waits for its store for so many seconds."""
    store = Store()
    store.released.set()
    real = MemoryStore.finish

    async def finish(self: MemoryStore, *given: Any, **named: Any) -> None:
        store.saving.set()
        await until(store.released.is_set)
        await real(self, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryStore, "finish", finish)
        store_ends_within(patch, patience)
        settings = Settings(store="memory://", keep_alive=0.1, timeouts=Timeouts(total=2 * patience))
        with serving(settings) as base:
            store.base = base
            yield store
            store.released.set()


@pytest.fixture
def patient() -> Iterator[Store]:
    with served(60.0) as store:
        yield store


@pytest.fixture
def impatient() -> Iterator[Store]:
    with served(1.0) as store:
        yield store


def begin(store: Store, **more: Any) -> Reader:
    """A short stream whose end is being stored until the store is released."""
    store.released.clear()
    reader = Reader(store.base, "POST", "/v1/responses", {"model": "demo-slow", "input": "5 words", **more})
    assert store.saving.wait(60)
    return reader


def test_cancel_that_comes_while_the_end_is_stored_is_answered_with_the_end(patient: Store) -> None:
    reader = begin(patient, stream=True)
    threading.Timer(0.2, patient.released.set).start()  # it waits for the end
    refused = call(patient.base, "POST", f"/v1/responses/{reader.response_id}/cancel")
    assert (refused.status, refused.error["code"]) == (400, "response_not_cancellable")
    reader.join()
    assert type_of(reader.frames[-2]) == "response.completed"


def test_s6_connection_is_kept_alive_while_the_end_is_stored(patient: Store) -> None:
    reader = begin(patient, stream=True)
    wait_until(lambda: reader.data.count(b"\n: ", reader.data.rindex(b"output_text.delta")) >= 3)
    patient.released.set()
    reader.join()
    assert type_of(reader.frames[-2]) == "response.completed"


def test_s1_store_that_does_not_answer_is_waited_for_as_long_as_patience_lasts(impatient: Store) -> None:
    reader = begin(impatient, stream=True)
    reader.join()
    assert [type_of(each) for each in reader.frames[-3:-1]] == ["error", "response.failed"]
    assert b'"code":"store_unavailable"' in reader.frames[-2]
    impatient.released.set()
    wait_for(impatient.base, str(reader.response_id), "failed")


@pytest.mark.parametrize("cancelled", [False, True])
def test_s8_run_whose_client_takes_nothing_ends_in_time(impatient: Store, cancelled: bool) -> None:
    body = json.dumps({"model": "demo", "input": f"{40_000} words", "stream": True}).encode()
    address = urlsplit(impatient.base)
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
            assert call(impatient.base, "POST", f"/v1/responses/{response_id}/cancel").status in (200, 400)
        wait_for(impatient.base, response_id, "completed", "incomplete", "failed")


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


def test_what_is_being_made_cannot_be_continued(patient: Store) -> None:
    """Half a call can't be answered."""
    running = respond(patient.base, model="demo-slow", input="4000 words", background=True).json["id"]
    refused = respond(patient.base, model="demo", input="And?", previous_response_id=running)
    assert (refused.status, refused.error["code"]) == (400, "previous_response_in_progress")
    assert refused.error["param"] == "previous_response_id"
    call(patient.base, "POST", f"/v1/responses/{running}/cancel")
    assert stream(patient.base, model="demo", input="And?", previous_response_id=running).final["status"] == (
        "completed"
    )
