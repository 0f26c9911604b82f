"""What sends several choices of one answer: the `n` of Chat Completions, the candidates of Gemini."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import anyio
from starlette.types import Send

from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event
from openresponses_server.api.responders import (
    KEEP_ALIVE,
    SSE_TYPE,
    JsonResponder,
    Responder,
    StreamingResponder,
    failure_of,
)
from openresponses_server.limits.gate import Gate
from openresponses_server.limits.memory import Reservation
from openresponses_server.runs.client import Batch, Deliver
from openresponses_server.runs.run import Run


class ChoiceStream(Protocol):
    """The stream of several choices."""

    def feed(self, choice: int, event: Event, /) -> list[Any]:
        """The chunks that one event of one choice gives."""
        ...

    def close(self) -> list[Any]:
        """The chunks of the end."""
        ...


class ChoicesSurface(NamedTuple):
    """How a surface encodes several choices. `stream` is called when a run may begin, `encode` with chunks
    and whether they are the last; `whole` gives None where there is only an error to report."""

    stream: Callable[[Sequence[Run]], ChoiceStream]
    encode: Callable[[Sequence[Any], bool], bytes]
    whole: Callable[[Sequence[Run]], bytes | None]
    stream_type: bytes = SSE_TYPE
    keep_alive: bytes = KEEP_ALIVE


# Several choices are several concurrent runs. A run that fails is reported in its choice while the others
# continue. When all are refused before the first byte, the error of the first choice is the HTTP error.


class ChoicesResponder(Responder):
    """Responds with several runs. Their slots in `gate` are reserved together, and `reservation` is released
    after all; `end_choice` is called with the index of each run that has ended."""

    def __init__(
        self,
        runs: Sequence[Run],
        headers: Mapping[str, str],
        keep_alive: float,
        surface: ChoicesSurface,
        gate: Gate,
        reservation: Reservation,
        end_choice: Callable[[int], None],
    ) -> None:
        super().__init__(runs, headers, keep_alive)
        self._surface = surface
        self._gate = gate
        self._reservation = reservation
        self._end_choice = end_choice
        self._refused: dict[int, BridgeError] = {}

    async def _answer(self, send: Send) -> None:
        try:
            async with self._gate.slots(self._runs[0].owner, len(self._runs)):
                await self._make(send)
        finally:
            self._reservation.release()

    async def _make(self, send: Send) -> None:
        raise NotImplementedError

    async def _run_all(self, delivers: Sequence[Deliver | None]) -> None:
        """Run all choices to their ends. Raises the first one's error when every run was refused."""
        async with anyio.create_task_group() as tasks:
            for number, deliver in enumerate(delivers):
                tasks.start_soon(self._run_one, number, deliver)
        if len(self._refused) == len(self._runs):
            raise self._refused[0]

    async def _run_one(self, number: int, deliver: Deliver | None) -> None:
        run = self._runs[number]
        try:
            await run.generate(deliver)
        except BridgeError as error:
            self._refused[number] = error
        finally:
            self._end_choice(number)


class ChoiceForm:
    """The chunks of one choice in the stream of all. They do not end with it."""

    def __init__(self, surface: ChoicesSurface, choices: ChoiceStream, number: int) -> None:
        self.stream_type = surface.stream_type
        self.keep_alive = surface.keep_alive
        self._encode = surface.encode
        self._choices = choices
        self._number = number

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        chunks = [chunk for event in batch.events for chunk in self._choices.feed(self._number, event)]
        return self._encode(chunks, False)


class ChoicesStreamResponder(ChoicesResponder, StreamingResponder):
    """The interleaved chunks of all choices, with the usage, if requested, once at the end."""

    async def _make(self, send: Send) -> None:
        surface = self._surface
        self.stream_type, self.keep_alive = surface.stream_type, surface.keep_alive
        choices = surface.stream(self._runs)
        forms = (ChoiceForm(surface, choices, number) for number in range(len(self._runs)))
        await self._run_all([partial(self._deliver, send, form) for form in forms])
        last: list[Any] = []
        for number, error in sorted(self._refused.items()):
            last += [
                chunk for event in self._runs[number].refuse(error) for chunk in choices.feed(number, event)
            ]
        await self._send(send, surface.encode([*last, *choices.close()], True), more=False)


class ChoicesJsonResponder(ChoicesResponder, JsonResponder):
    """One body of all choices when they have ended."""

    async def _make(self, send: Send) -> None:
        await self._run_all([None] * len(self._runs))
        for number, error in self._refused.items():
            self._runs[number].refuse(error)
        body = self._surface.whole(self._runs)
        if body is None:
            raise failure_of(self._runs[0].translation)
        await self._send(send, body)
