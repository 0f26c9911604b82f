"""Cancelling responses that no worker of this process makes."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_bridge import ResponseStreamStateMachine
from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.protocol.codec import encode, encode_sse
from openresponses_server.errors import HttpError
from openresponses_server.requests.background import cancel_response
from openresponses_server.runs.follow import Follower
from openresponses_server.runs.run import ActiveRuns
from openresponses_server.runs.settle import Settler
from openresponses_server.runs.support import WIRE
from openresponses_server.store.base import NOBODY, Lease, StoredResponse
from openresponses_server.store.endings import cancelled
from openresponses_server.store.frames import Frames
from openresponses_server.store.logs.memory import MemoryLog
from openresponses_server.store.memory import MemoryStore

FAR = 4e9


class Away:
    """A service whose responses are made elsewhere, or were."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.log = MemoryLog()
        self.settler = Settler(self.store, self.log, 5.0)
        self.service: Any = SimpleNamespace(
            running=ActiveRuns(),
            store=self.store,
            runs=SimpleNamespace(settler=self.settler, new_worker=lambda: "canceller"),
        )

    async def queue(self, wire: Any, request: bytes) -> str:
        machine = ResponseStreamStateMachine("m", wire=wire)
        response = replace(machine.snapshot, status="queued", background=True)
        await self.store.put(StoredResponse(response, [], request=request, lease=Lease(NOBODY, FAR)))
        return response.id

    async def stream(self, response_id: str) -> bytes:
        standing = await self.store.standing(response_id)
        assert standing is not None
        follower = Follower(self.store, self.log, self.settler)
        return b"".join([data async for data in follower.follow(standing, -1)])


def violations(stream: bytes, wire: Any) -> list[str]:
    validator = StreamValidator(wire)
    for line in stream.split(b"\n"):
        if line.startswith(b"data: {"):
            validator.feed(line.removeprefix(b"data: "))
    validator.close()
    return [str(each) for each in validator.violations]


@pytest.mark.parametrize(("wire", "status"), [("openresponses", "incomplete"), ("openai", "cancelled")])
async def test_e8_queued_response_that_is_cancelled_is_a_valid_stream_of_its_wire(
    wire: str, status: str
) -> None:
    away = Away()
    response_id = await away.queue(wire, encode({"model": "m", "input": "x", WIRE: wire}))
    ended = await cancel_response(away.service, response_id, "")
    assert ended is not None
    assert ended.status == status
    stream = await away.stream(response_id)
    assert violations(stream, wire) == []
    assert stream.count(b"event: ") == 3
    assert await cancel_response(away.service, response_id, "") == ended


@pytest.mark.parametrize("request_", [b"{broken", encode({WIRE: "of another version"}), b"{}"], ids=repr)
async def test_queued_response_whose_wire_is_unknown_is_cancelled(request_: bytes) -> None:
    away = Away()
    ended = await cancel_response(away.service, await away.queue("openresponses", request_), "")
    assert ended is not None
    assert ended.status == "incomplete"


async def test_run_whose_worker_stopped_does_not_end_as_cancelled() -> None:
    """It ended before anybody cancelled it, and an open item would be sent as if it had been closed."""
    away = Away()
    machine = ResponseStreamStateMachine("m")
    events = machine.start() + machine.text("Half")
    frames = Frames(0, len(events) - 1, encode_sse(events))
    await away.store.put(StoredResponse(machine.snapshot, [], lease=Lease("dead", 1.0)), frames)
    with pytest.raises(HttpError) as refused:
        await cancel_response(away.service, machine.response_id, "")
    assert (refused.value.http_status, refused.value.code) == (400, "response_not_cancellable")
    stream = await away.stream(machine.response_id)
    assert b"event: response.failed\n" in stream
    assert violations(stream, "openresponses") == []


class Signals:
    """Another worker's messages: the first `lost` ones, which it misses while it connects again, have no
    effect. None can be sent at all if `sends` says so."""

    def __init__(self, store: MemoryStore, lost: int, sends: bool = True) -> None:
        self.store, self.lost, self.sends = store, lost, sends

    async def cancel(self, response_id: str, worker: str) -> bool:
        self.lost -= 1
        if self.lost < 0:
            record = await self.store.get(response_id, "")
            assert record is not None
            await self.store.finish(response_id, worker, cancelled(record.response, "openai"))
        return self.sends


async def made_elsewhere(away: Away, signals: Signals) -> str:
    away.service.runs.signals = signals
    machine = ResponseStreamStateMachine("m")
    machine.start()
    await away.store.put(StoredResponse(machine.snapshot, [], lease=Lease("worker-1", FAR)))
    return machine.response_id


async def test_worker_that_missed_the_message_is_told_again() -> None:
    away = Away()
    response_id = await made_elsewhere(away, Signals(away.store, lost=2))
    ended = await cancel_response(away.service, response_id, "")
    assert ended is not None
    assert ended.status == "cancelled"


async def test_worker_that_no_message_can_be_sent_to_is_not_waited_for() -> None:
    away = Away()
    signals = Signals(away.store, lost=9, sends=False)
    with pytest.raises(HttpError) as refused:
        await cancel_response(away.service, await made_elsewhere(away, signals), "")
    assert (refused.value.http_status, refused.value.code) == (503, "worker_unreachable")
    assert signals.lost == 8
