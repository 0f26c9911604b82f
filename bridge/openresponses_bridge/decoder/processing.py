"""A stream of events, read to its end into whoever shows its parts (RFC 016's `processStream`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from inspect import isawaitable
from typing import Any, Protocol

from openresponses_bridge.decoder.finish import PartResult
from openresponses_bridge.decoder.part_decoder import PartDecoder
from openresponses_bridge.decoder.parts import Part
from openresponses_bridge.errors import RemoteError
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.response import ResponseError

StreamResult = PartResult
"""What a stream reported beside its parts."""


class Progress(Protocol):
    """VS Code's `Progress<LanguageModelResponsePart>`. What `report` returns is awaited if it can be."""

    def report(self, value: Part, /) -> object: ...


class Cancellation(Protocol):
    """Whether the user has cancelled; `asyncio.Event` and `anyio.Event` are such."""

    def is_set(self) -> bool: ...

    async def wait(self) -> Any: ...


async def process_stream(
    events: AsyncIterable[Event | Mapping[str, Any]],
    progress: Progress,
    cancel: Cancellation | None = None,
    *,
    decoder: PartDecoder | None = None,
) -> StreamResult:
    """Report the parts of one response as they become whole; what else the stream said is returned.

    After `cancel` nothing is reported. An error that `events` raises is raised here if nothing was reported
    yet, else it ends the parts as the decoder ends failures. `decoder` has options of its own; without one,
    a response that says nothing is named as such.
    """
    decoder = PartDecoder(no_response=True) if decoder is None else decoder
    reported = False
    try:
        async for event in events:
            if cancel is not None and cancel.is_set():
                break
            for part in decoder.feed(event):
                reported = True
                await _report(progress, part)
    except RemoteError as error:
        if not reported:
            raise
        for part in decoder.fail(ResponseError(error.code, error.message)):
            await _report(progress, part)
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
    if cancel is not None and cancel.is_set():
        decoder.cancel()
    for part in decoder.close():
        await _report(progress, part)
    return decoder.result


async def _report(progress: Progress, part: Part) -> None:
    taken = progress.report(part)
    if isawaitable(taken):
        await taken
