"""Codex behind the interface of an upstream."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from openresponses_bridge.protocol.codec import encode
from openresponses_server.http.flow import TaskSource
from openresponses_server.observation.recordings.masking import Secrets
from openresponses_server.settings import CodexSettings, Timeouts
from openresponses_server.settings.files import expanded
from openresponses_server.upstreams.base import UpstreamReply, UpstreamRequest
from openresponses_server.upstreams.catalog import ReportedModel
from openresponses_server.upstreams.codex import messages
from openresponses_server.upstreams.codex.pool import Pool, TurnSlots
from openresponses_server.upstreams.codex.turns import TurnRequest

_ACCOUNT_LENGTH: Final = 32
_MOST_MODELS: Final = 1000


class _ListedModel(Struct):
    model: str = ""


class _CodexModels(Struct):
    data: list[_ListedModel] = []


class CodexUpstream:
    """`codex app-server` as these settings have it; no process runs before the first request."""

    def __init__(self, name: str, settings: CodexSettings, timeouts: Timeouts) -> None:
        self.name = name
        self.address = settings.path
        self.forwards = False
        self._settings = settings
        self._timeouts = timeouts
        self._secrets = Secrets([expanded(value) for value in settings.env.values()])
        self._made: tuple[Pool, TurnSlots] | None = None

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: UpstreamRequest) -> AsyncIterator[UpstreamReply]:
        pool, slots = self._running()
        turn = msgspec.json.decode(request.body, type=TurnRequest)
        async with slots.acquire(request.owner):
            thread = await pool.begin(turn, request.owner, request.conversation)
            assert thread.turn is not None
            # one turn, as a stream of events whose data are Codex's lines
            reply = TaskSource(partial(thread.turn.read, self._timeouts.idle))
            try:
                with closing(reply):
                    yield reply
            finally:
                pool.leave(thread)

    def prewarm(self, request: UpstreamRequest) -> None:
        return None

    def clean(self, text: str, client_key: str | None = None) -> str:
        return self._secrets.out_of(text)

    def key_refused(self, client_key: str | None = None) -> str:
        return ""

    def account(self, client_key: str | None = None) -> str:
        shown = encode([self.name, self._settings.path, self._settings.args, self._settings.home])
        return hashlib.sha256(shown).hexdigest()[:_ACCOUNT_LENGTH]

    async def models(self) -> list[ReportedModel]:
        pool, _ = self._running()
        process = await pool.processes.least_busy()
        result = await process.request("model/list", {})
        try:
            entries = msgspec.json.decode(result, type=_CodexModels).data
        except (msgspec.DecodeError, RecursionError) as error:
            raise messages.invalid(self.name, "its list of models can't be read") from error
        return [ReportedModel(each.model) for each in entries[:_MOST_MODELS] if each.model]

    async def close(self) -> None:
        if self._made is not None:
            (pool, _), self._made = self._made, None
            await pool.close()

    def _running(self) -> tuple[Pool, TurnSlots]:
        # made here and not in __init__: they belong to the event loop that runs
        if self._made is None:
            pool = Pool(self.name, self._settings, self.clean)
            self._made = pool, TurnSlots(self.name, self._settings)
        return self._made
