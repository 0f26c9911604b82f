"""One answer on its way to its client: written, kept alive, and ended when the client leaves."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from time import monotonic
from typing import Final

import anyio
from anyio.lowlevel import checkpoint
from starlette.types import Message, Receive, Send

from openresponses_bridge.backend.answer import Answer, Head
from openresponses_bridge.backend.outputs import AsyncGenerate, async_close, async_opened
from openresponses_bridge.errors import HttpError

_CLOSING: Final = 5.0  # seconds that a model's iterator has to end when it is not read further
_TURN: Final = 0.005  # seconds that a model which never waits may keep all others waiting
# what servers and middlewares raise for a connection that is not there any more
_GONE: Final = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)
_log = logging.getLogger("openresponses_bridge.backend")


class Left(Exception):
    """The client has left, or reads nothing."""


class Writer:
    """One HTTP answer, one message at a time. Each method that writes raises Left."""

    def __init__(self, send: Send, given: list[tuple[bytes, bytes]]) -> None:
        self._to_client = send
        self._given = given
        self._begun = False
        self._writing = False
        self._changed_at = monotonic()  # when the last write began or ended
        self._keeping_alive: anyio.Event | None = None

    async def piece(self, answer: Answer, body: bytes, *, more: bool = True) -> None:
        """The next bytes of a stream, after its head."""
        while self._keeping_alive is not None:
            await self._keeping_alive.wait()
        if not self._begun:
            await self._begin(answer.head)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def whole(self, head: Head, body: bytes) -> None:
        while self._keeping_alive is not None:
            await self._keeping_alive.wait()
        head.headers["content-length"] = str(len(body))
        await self._begin(head)
        await self._send({"type": "http.response.body", "body": body})

    async def keep_alive(self, answer: Answer) -> None:
        """Show the client of a stream that is quiet that the answer is being made."""
        if not (data := answer.keep_alive()):
            return
        self._keeping_alive = done = anyio.Event()
        try:
            if not self._begun:
                await self._begin(answer.head)
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            self._keeping_alive = None
            done.set()

    @property
    def state(self) -> tuple[bool, float]:
        """Whether there is a write, and for how many seconds there has been one or none."""
        return self._writing, monotonic() - self._changed_at

    async def _begin(self, head: Head) -> None:
        self._begun = True
        named = {name for name, _value in self._given}
        ours = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers.items()]
        headers = [*self._given, *(each for each in ours if each[0] not in named)]
        await self._send({"type": "http.response.start", "status": head.status, "headers": headers})

    async def _send(self, message: Message) -> None:
        self._writing = True
        self._changed_at = monotonic()
        try:
            await self._to_client(message)
        except _GONE as error:
            raise Left from error
        finally:
            self._writing = False
            self._changed_at = monotonic()


class Exchange:
    """One answer on its way: the model is read and written out by one task, and another one waits for the
    client to leave and keeps the connection alive."""

    def __init__(
        self,
        answer: Answer,
        generate: AsyncGenerate,
        writer: Writer,
        keep_alive: float,
        timeout: float | None,
        send_timeout: float,
    ) -> None:
        self._answer = answer
        self._generate = generate
        self._writer = writer
        self._keep_alive = keep_alive
        self._timeout = timeout
        self._send_timeout = send_timeout
        self._last = b""  # what ends the stream

    async def run(self, receive: Receive) -> None:
        """Raises Left when the client does not get all of it."""
        raised: Exception | None = Left()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._accompany, receive, tasks.cancel_scope)
            try:
                await self._conclude(await self._read())
                raised = None
            except Exception as error:
                raised = error  # and not a group of one
            tasks.cancel_scope.cancel()
        if raised is not None:
            raise raised

    async def _accompany(self, receive: Receive, all_of_it: anyio.CancelScope) -> None:
        """Ends all of it when the client leaves, or does not take a write in its time."""
        wait: float | None = min(self._keep_alive, self._send_timeout)
        try:
            while wait is not None:
                with anyio.move_on_after(wait):
                    if (await receive())["type"] == "http.disconnect":
                        break
                    continue
                wait = await self._look_after()
        except Left:
            pass
        all_of_it.cancel()

    async def _look_after(self) -> float | None:
        """Seconds until the next time; None for a client that counts as having left."""
        writing, seconds = self._writer.state
        if writing:
            left = self._send_timeout - seconds
            return left if left > 0 else None
        if seconds >= self._keep_alive:
            await self._writer.keep_alive(self._answer)
            seconds = 0.0
        return min(self._keep_alive - seconds, self._send_timeout)

    async def _read(self) -> BaseException | None:
        """Read the model and write what it says; what it raised."""
        outputs = None
        raised: BaseException | None = None
        try:
            with anyio.move_on_after(inf if self._timeout is None else self._timeout) as time:
                outputs = async_opened(self._generate, self._answer.request)
                turn = monotonic() + _TURN
                async for output in outputs:
                    if data := self._answer.feed(output, outputs):
                        await self._writer.piece(self._answer, data)
                    if monotonic() > turn:  # neither the model nor the client need have waited
                        await checkpoint()
                        turn = monotonic() + _TURN
                self._last = self._answer.end()
        except Left:
            raise
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            raised = error  # the model's own: it waited for something that was cancelled
        except Exception as error:
            raised = error
        finally:
            with anyio.move_on_after(_CLOSING, shield=True) as closing:
                await async_close(outputs)
            if closing.cancelled_caught:
                _log.warning("a backend's iterator did not end within %g seconds", _CLOSING)
        if time.cancelled_caught:
            return HttpError(504, f"The model was not done within {self._timeout:g} seconds.", code="timeout")
        return raised

    async def _conclude(self, raised: BaseException | None) -> None:
        answer = self._answer
        if raised is not None and answer.streamed and not answer.begun:
            await self._writer.whole(*answer.refuse(raised))
            return
        if raised is not None:
            self._last = answer.fail(raised)
        if answer.streamed:
            await self._writer.piece(answer, self._last, more=False)
        else:
            await self._writer.whole(*answer.whole())


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
