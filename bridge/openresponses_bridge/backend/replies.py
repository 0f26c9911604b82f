"""A whole HTTP answer for any framework: status, headers, and a body to iterate over, sync or async.

The first output is awaited before the status is chosen, so that a model that fails before its first output
gives an HTTP error. Nothing runs beside the iteration. Keep-alives while the model is silent, and stopping
the model when the client disconnects, need tasks: `openresponses_server.backend` has them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any, NamedTuple, Unpack

from openresponses_bridge.backend.answer import Answer, AnswerHead, AnswerOptions, refusal
from openresponses_bridge.backend.outputs import (
    AsyncGenerate,
    Generate,
    Output,
    async_close,
    async_opened,
    close,
    opened,
)
from openresponses_bridge.errors import RemoteError


class ReplyBody:
    """The bytes to send. It can be iterated over once; `close` closes the model's iterator early."""

    def __init__(self, first: bytes, rest: Generator[bytes, None, None] | None = None) -> None:
        self._pieces: Iterator[bytes] = iter([first])
        self._rest = rest

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._pieces
            yield from self._rest or ()
        finally:
            self.close()

    def close(self) -> None:
        if self._rest is not None:
            self._rest.close()


class AsyncBody:
    """Like `ReplyBody`, to iterate over with `async for`; `aclose` closes the model's iterator early."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None] | None = None) -> None:
        self._pieces: Iterator[bytes] = iter([first])
        self._rest = rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            for piece in self._pieces:
                yield piece
            if self._rest is not None:
                async for piece in self._rest:
                    yield piece
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        if self._rest is not None:
            await self._rest.aclose()


class Reply(NamedTuple):
    """An HTTP answer. Names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: ReplyBody


class AsyncReply(NamedTuple):
    """Like `Reply`, with an async body."""

    status: int
    headers: dict[str, str]
    body: AsyncBody


def reply(body: Any, generate: Generate, **options: Unpack[AnswerOptions]) -> Reply:
    """Return the answer to the request in `body`, made of the outputs that `generate` yields. The options are
    those of `Answer`. A request that can't be read or fulfilled gives a reply that is an HTTP error."""
    try:
        answer = Answer(body, **options)
    except RemoteError as error:
        close(generate)
        head, refused = refusal(error, options.get("dialect", "responses"))
        return Reply(*head, ReplyBody(refused))
    try:
        outputs = opened(generate, answer.request)
        if not answer.streamed:
            head, whole = collected(answer, outputs)
            return Reply(*head, ReplyBody(whole))
        chunks = streamed(answer, outputs)
        first = next(chunks)
    except Exception as error:
        head, refused = answer.refuse(error)
        return Reply(*head, ReplyBody(refused))
    return Reply(*answer.head, ReplyBody(first, chunks))


async def async_reply(body: Any, generate: AsyncGenerate, **options: Unpack[AnswerOptions]) -> AsyncReply:
    """Like `reply`, for an async iterator."""
    try:
        answer = Answer(body, **options)
    except RemoteError as error:
        await async_close(generate)
        head, refused = refusal(error, options.get("dialect", "responses"))
        return AsyncReply(*head, AsyncBody(refused))
    try:
        outputs = async_opened(generate, answer.request)
        if not answer.streamed:
            head, whole = await async_collected(answer, outputs)
            return AsyncReply(*head, AsyncBody(whole))
        chunks = async_streamed(answer, outputs)
        first = await anext(chunks)
    except Exception as error:
        head, refused = answer.refuse(error)
        return AsyncReply(*head, AsyncBody(refused))
    return AsyncReply(*answer.head, AsyncBody(first, chunks))


def streamed(answer: Answer, outputs: Iterator[Output]) -> Generator[bytes, None, None]:
    """Yield the bytes of a streamed answer, output by output. An exception of the model before the first
    bytes is raised; a later one ends the stream with a failure."""
    try:
        for output in outputs:
            if data := answer.feed(output, outputs):
                yield data
        last = answer.end()
    except Exception as error:
        if not answer.begun:
            raise
        last = answer.fail(error)
    finally:
        close(outputs)
    yield last


async def async_streamed(answer: Answer, outputs: AsyncIterator[Output]) -> AsyncGenerator[bytes, None]:
    """Like `streamed`, for an async iterator."""
    try:
        async for output in outputs:
            if data := answer.feed(output, outputs):
                yield data
        last = answer.end()
    except Exception as error:
        if not answer.begun:
            raise
        last = answer.fail(error)
    finally:
        await async_close(outputs)
    yield last


def collected(answer: Answer, outputs: Iterator[Output]) -> tuple[AnswerHead, bytes]:
    """Return the answer that is not streamed, after the model has finished or failed."""
    try:
        for output in outputs:
            answer.feed(output, outputs)
        answer.end()
    except Exception as error:
        answer.fail(error)
    finally:
        close(outputs)
    return answer.whole()


async def async_collected(answer: Answer, outputs: AsyncIterator[Output]) -> tuple[AnswerHead, bytes]:
    """Like `collected`, for an async iterator."""
    try:
        async for output in outputs:
            answer.feed(output, outputs)
        answer.end()
    except Exception as error:
        answer.fail(error)
    finally:
        await async_close(outputs)
    return answer.whole()
