"""Sends one answer: writes the stream, keeps the connection alive, and stops when the client disconnects."""

from __future__ import annotations

import logging
from math import inf
from time import monotonic
from typing import Final

import anyio
from anyio.lowlevel import checkpoint
from starlette.types import Message, Receive, Send

from openresponses_bridge.backend.answer import Answer, AnswerHead
from openresponses_bridge.backend.outputs import AsyncGenerate, async_close, async_opened
from openresponses_bridge.errors import HttpError
from openresponses_server.tasks import ForeignExitError, contained

_CLOSE_SECONDS: Final = 5.0  # seconds for a model's iterator to close
_YIELD_SECONDS: Final = 0.005  # seconds after which a model that never waits yields to the event loop
# exceptions of servers and middlewares for a closed connection
_DISCONNECTED: Final = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)
_log = logging.getLogger("openresponses_bridge.backend")


class ClientDisconnected(Exception):
    """The client has disconnected, or does not read what it is sent."""


class Writer:
    """Writes one HTTP answer, one message at a time, with the application's `headers`. Each method that
    writes raises ClientDisconnected."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._to_client = send
        self._headers = headers
        self._begun = False
        self._writing = False
        self._state_since = monotonic()  # when the last write began or ended
        self._keeping_alive: anyio.Event | None = None

    async def chunk(self, answer: Answer, body: bytes, *, more: bool = True) -> None:
        """Write the next bytes of a stream; before the first, its head."""
        while self._keeping_alive is not None:
            await self._keeping_alive.wait()
        if not self._begun:
            await self._begin(answer.head)
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def whole(self, head: AnswerHead, body: bytes) -> None:
        """Write an answer that is not streamed."""
        while self._keeping_alive is not None:
            await self._keeping_alive.wait()
        head.headers["content-length"] = str(len(body))
        await self._begin(head)
        await self._send({"type": "http.response.body", "body": body})

    async def keep_alive(self, answer: Answer) -> None:
        """Send a keep-alive on a silent stream."""
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
        """A pair: True while a write is in progress, and for how many seconds that has been so."""
        return self._writing, monotonic() - self._state_since

    async def _begin(self, head: AnswerHead) -> None:
        self._begun = True
        named = {name for name, _value in self._headers}
        ours = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers.items()]
        headers = [*self._headers, *(each for each in ours if each[0] not in named)]
        await self._send({"type": "http.response.start", "status": head.status, "headers": headers})

    async def _send(self, message: Message) -> None:
        self._writing = True
        self._state_since = monotonic()
        try:
            await self._to_client(message)
        except _DISCONNECTED as error:
            raise ClientDisconnected from error
        finally:
            self._writing = False
            self._state_since = monotonic()


class AsgiExchange:
    """One request and its answer. One task reads the model and writes its output; another waits for a
    disconnect and sends keep-alives."""

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
        self._last = b""  # the last bytes of the stream

    async def run(self, receive: Receive) -> None:
        """Send the whole answer. Raises ClientDisconnected."""
        raised: Exception | None = ClientDisconnected()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._monitor_client, receive, tasks.cancel_scope)
            try:
                await self._finish(await self._read())
                raised = None
            except Exception as error:
                raised = error  # raised below, not within an ExceptionGroup
            tasks.cancel_scope.cancel()
        if raised is not None:
            raise raised

    async def _monitor_client(self, receive: Receive, scope: anyio.CancelScope) -> None:
        """Cancel the answer when the client disconnects or a write exceeds its timeout."""
        wait: float | None = min(self._keep_alive, self._send_timeout)
        try:
            while wait is not None:
                with anyio.move_on_after(wait):
                    if (await receive())["type"] == "http.disconnect":
                        break
                    continue
                wait = await self._keep_alive_or_time_out()
        except ClientDisconnected:
            pass
        scope.cancel()

    async def _keep_alive_or_time_out(self) -> float | None:
        """Send a keep-alive if one is due. Returns the seconds until the next call; None if a write has
        exceeded its timeout."""
        writing, seconds = self._writer.state
        if writing:
            left = self._send_timeout - seconds
            return left if left > 0 else None
        if seconds >= self._keep_alive:
            await self._writer.keep_alive(self._answer)
            seconds = 0.0
        return min(self._keep_alive - seconds, self._send_timeout)

    async def _read(self) -> Exception | None:
        """Read the model and write its output; returns the exception that the model raised."""
        outputs = None
        raised: Exception | None = None
        try:
            with anyio.move_on_after(inf if self._timeout is None else self._timeout) as time:
                with contained():
                    outputs = async_opened(self._generate, self._answer.request)
                    yield_at = monotonic() + _YIELD_SECONDS
                    async for output in outputs:
                        if data := self._answer.feed(output, outputs):
                            await self._writer.chunk(self._answer, data)
                        if monotonic() > yield_at:  # perhaps neither the model nor the client ever waits
                            await checkpoint()
                            yield_at = monotonic() + _YIELD_SECONDS
                    self._last = self._answer.end()
        except ClientDisconnected:
            raise
        except Exception as error:
            raised = error
        finally:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True) as closing:
                await _close(outputs)
            if closing.cancelled_caught:
                _log.warning("a backend's iterator did not end within %g seconds", _CLOSE_SECONDS)
        if time.cancelled_caught:
            return HttpError(
                504, f"The model did not finish within {self._timeout:g} seconds.", code="timeout"
            )
        return raised

    async def _finish(self, raised: Exception | None) -> None:
        answer = self._answer
        if raised is not None and answer.streamed and not answer.begun:
            await self._writer.whole(*answer.refuse(raised))
            return
        if raised is not None:
            self._last = answer.fail(raised)
        if answer.streamed:
            await self._writer.chunk(answer, self._last, more=False)
        else:
            await self._writer.whole(*answer.whole())


async def _close(outputs: object) -> None:
    try:
        with contained():
            await async_close(outputs)
    except ForeignExitError:
        _log.exception("a backend's iterator failed when it was closed")
