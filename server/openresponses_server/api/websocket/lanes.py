"""The lanes of one connection: turns with one `stream_id` follow each other, those of different ones are made
side by side. Turns without one are a lane too, in which a message within a turn is refused.

What a client may have here is bounded: lanes, turns that are made at once, messages that wait in a lane, and
their bytes, which count like conversations in memory.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.codec import encode
from openresponses_server.api.websocket.memory import ConnectionMemory
from openresponses_server.api.websocket.messages import CANCEL, PROCESSED, STEER, Head, head_of, steer_failed
from openresponses_server.api.websocket.turn_stream import Send
from openresponses_server.api.websocket.turns import Turns
from openresponses_server.budget import RECEIVED, Hold
from openresponses_server.errors import HttpError
from openresponses_server.http.direct_writes import Write
from openresponses_server.http.envelopes import BUSY, envelope, in_lane
from openresponses_server.off_loop import LARGE
from openresponses_server.requests.service import Service
from openresponses_server.runs.order import Order

LANES: Final = 32
ACTIVE: Final = 16
WAITING: Final = 16
_TOO_MANY_LANES: Final = HttpError(
    429,
    f"{LANES} streams of this connection have turns under way, and no more may. Wait for one to end.",
    code="too_many_streams",
)
_TOO_MANY_WAITING: Final = HttpError(
    429,
    f"{WAITING} messages wait in this stream, and no more may.",
    code="too_many_waiting",
)


class Lane:
    """Turns that follow each other. `waiting` are the messages whose turns are to come."""

    def __init__(
        self, service: Service, headers: Mapping[str, str], owner: str, send: Send, write: Write
    ) -> None:
        self.memory = ConnectionMemory(service.room, owner)
        self.turns = Turns(service, headers, owner, send, write, self.memory)
        self.waiting: deque[tuple[str | bytes, Hold]] = deque()

    @property
    def busy(self) -> bool:
        """Whether a turn is under way or waits."""
        return self.turns.busy or bool(self.waiting)

    async def close(self) -> None:
        """The client has left."""
        self.waiting.clear()
        await self.turns.close()


class Lanes:
    """`take` the messages of a connection in the order in which they come. `send` takes a message for the
    client, and `write` one that waits for nothing; `owner` is whose the responses are, `received` what holds
    the message that is taken; `after_turn` is called behind each turn."""

    def __init__(
        self,
        service: Service,
        headers: Mapping[str, str],
        owner: str,
        received: Hold,
        send: Send,
        write: Write,
        after_turn: Callable[[], Awaitable[None]],
    ) -> None:
        self._service = service
        self._headers = headers
        self._owner = owner
        self._received = received
        self._send = send
        self._write = write
        self._after_turn = after_turn
        self._sending = Order()
        self._active = anyio.Semaphore(ACTIVE, fast_acquire=True)
        self._lanes: OrderedDict[str | None, Lane] = OrderedDict()
        self._answers = 0

    @property
    def busy(self) -> bool:
        """Whether a turn is under way in any lane, or waits."""
        return any(lane.busy for lane in self._lanes.values())

    async def take(self, message: str | bytes, turns: TaskGroup) -> None:
        """A message within its limit; a turn that it asks for is made in a task of `turns`."""
        limits = self._service.settings.limits
        head = await head_of(message, limits)
        try:
            name = head.lane
        except BridgeError as error:
            await self._pass(envelope(error))
            return
        if head.type == CANCEL:
            self._cancel(name, head)
        elif head.type == STEER:
            self._answers += 1
            await self._pass(encode(await steer_failed(message, limits, self._answers - 1)))
        elif head.type != PROCESSED:
            await self._begin(name, message, turns)

    async def close(self) -> None:
        """The client has left."""
        for lane in self._lanes.values():
            await lane.close()

    def _cancel(self, name: str | None, head: Head) -> None:
        """End the turn that is under way in this lane. One that has ended, or never was, needs no answer: the
        message may have crossed its end, and an answer would be taken for the next turn's."""
        lane = self._lanes.get(name)
        if lane is not None:
            lane.turns.cancel(head.response_id if isinstance(head.response_id, str) else None)

    async def _begin(self, name: str | None, message: str | bytes, turns: TaskGroup) -> None:
        lane = self._lane(name)
        try:
            if lane is None:
                raise _TOO_MANY_LANES
            if name is None and lane.busy:
                raise BUSY
            self._queue(lane, message)
        except BridgeError as error:
            await self._sender(name)(envelope(error))
            return
        assert lane is not None
        self._advance(lane, turns)

    def _queue(self, lane: Lane, message: str | bytes) -> None:
        if len(lane.waiting) >= WAITING:
            raise _TOO_MANY_WAITING
        hold = self._service.room.budget.hold(self._owner)
        self._received.release()
        if lane.busy or len(message) > LARGE:
            hold.grow(len(message))
        lane.waiting.append((message, hold))

    def _advance(self, lane: Lane, turns: TaskGroup) -> None:
        """Begin the next turn of a lane, unless one is under way. The turn before may have things to finish
        still: its last message has left."""
        if lane.waiting and not lane.turns.busy:
            lane.turns.begin(partial(self._advance, lane, turns))
            turns.start_soon(self._turn, lane, *lane.waiting.popleft())

    async def _turn(self, lane: Lane, message: str | bytes, hold: Hold) -> None:
        async with self._active:  # the one that has waited longest is next
            RECEIVED.set(hold)
            try:
                await lane.turns.take(message, [each.memory for each in self._lanes.values()])
            finally:
                hold.release()
        await self._after_turn()

    def _lane(self, name: str | None) -> Lane | None:
        """The lane of this name, now the latest; None when there may not be another one. An idle one makes
        room, and what it remembered is forgotten."""
        lane = self._lanes.get(name)
        if lane is None:
            if len(self._lanes) >= LANES:
                idle = next((key for key, each in self._lanes.items() if not each.busy), name)
                if idle == name:
                    return None
                self._lanes.pop(idle).memory.close()
            lane = self._lanes[name] = Lane(
                self._service, self._headers, self._owner, self._sender(name), self._writer(name)
            )
        self._lanes.move_to_end(name)
        return lane

    def _sender(self, name: str | None) -> Send:
        if name is None:
            return self._pass
        labelled = name

        async def send(data: bytes) -> None:
            await self._pass(in_lane(data, labelled))

        return send

    def _writer(self, name: str | None) -> Write:
        def write(data: bytes) -> bool:
            return self._sending.free and self._write(data if name is None else in_lane(data, name))

        return write

    async def _pass(self, data: bytes) -> None:
        """One message at a time: lanes do not write into each other's."""
        async with self._sending:
            await self._send(data)
