"""A provider without a server: upstreams, stores and limits run in the caller's event loop."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, Unpack

import anyio

from openresponses_bridge.decoder import Cancellation
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_server.http.auth import NOBODY
from openresponses_server.requests.assembly import RunAssembly
from openresponses_server.requests.composition import compose, service_lifespan
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.prepared import Received
from openresponses_server.requests.service import Service
from openresponses_server.runs.client import Batch
from openresponses_server.runs.run import Run
from openresponses_server.settings import Settings
from openresponses_server.vscode.provider import LanguageModelChatProvider, ProviderOptions

_NO_HEADERS: Final[Mapping[str, str]] = {}


class ServiceBackend:
    """Answers the requests of one owner with the models of a running service."""

    def __init__(self, service: Service, owner: str = NOBODY) -> None:
        self._service = service
        self._owner = owner

    async def stream(
        self, request: CreateResponse, cancel: Cancellation | None = None
    ) -> AsyncGenerator[Event]:
        """Yield the events of one response. After `cancel`, or when the generator is closed, the response is
        cancelled.

        Raises InvalidRequestError and HttpError for a request that is refused or fails before the first
        event.
        """
        name = f"req_{secrets.token_hex(12)}"
        prepared = Received(request, _NO_HEADERS, name, self._owner, input_param="messages")
        run = RunAssembly(await prepare(prepared, self._service), self._service).run()
        into, out = anyio.create_memory_object_stream[Batch](0)

        async def generate() -> None:
            async with into:
                await run.generate(into.send)

        making = asyncio.create_task(generate())
        stopping = None if cancel is None else asyncio.create_task(_stop(run, cancel))
        try:
            async with out:
                async for batch in out:
                    for event in batch.events:
                        yield event
            await making
        finally:
            if not run.translation.ended:
                run.stop()
                await run.abandon()
            for task in filter(None, (making, stopping)):
                task.cancel()
                with suppress(asyncio.CancelledError, BridgeError, anyio.BrokenResourceError):
                    await task


async def _stop(run: Run, cancel: Cancellation) -> None:
    await cancel.wait()
    run.stop()


@asynccontextmanager
async def in_process(
    settings: Settings, **options: Unpack[ProviderOptions]
) -> AsyncIterator[LanguageModelChatProvider]:
    """A provider over the upstreams of these settings. Raises SettingsError when they can't be used."""
    service = compose(settings)
    async with service_lifespan(service):
        options.setdefault("tokens", service.meters.counter(NOBODY))
        yield LanguageModelChatProvider(ServiceBackend(service), service.listing, **options)
