"""Validates answers in worker processes, so that no schema blocks the server.

How long a schema takes can't be known from its size (references double, alternatives nest). So answers are
validated in one of a few processes, which are reused, and killed when the time is over.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import anyio
import structlog

from openresponses_bridge.schemas.checking import has_patterns
from openresponses_server.isolated import IsolatedProcess
from openresponses_server.runs import schema_judge
from openresponses_server.runs.schema_judge import UNJUDGED, objection

ANY_OBJECT: Final[dict[str, Any]] = {"type": "object"}
ANY_JSON: Final[dict[str, Any]] = {}
_WORKERS: Final = 2
_SHORT: Final = 100_000  # characters that are parsed in well under a hundredth of a second
_NOTHING: Final = json.dumps([{}, 1.0, None]).encode()  # answered once the process has started
_log = structlog.get_logger(__name__)


class SchemaCheck(NamedTuple):
    """A question: does this text fit this schema? `schema` has been checked."""

    schema: dict[str, Any]
    text: str


class SchemaJudge:
    """The worker processes of one application; one answer may take `seconds`. A key uses one process at a
    time, so that its slow schemas leave the others to other keys; without keys (owner "") there is no such
    limit."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._workers = anyio.CapacityLimiter(_WORKERS)
        self._owner_locks: dict[str, anyio.Lock] = {}
        self._idle: list[IsolatedProcess] = []

    def close(self) -> None:
        """End the processes."""
        while self._idle:
            self._idle.pop().end()

    async def objection(self, question: SchemaCheck, owner: str = "") -> str | None:
        """Return why the text does not fit, or could not be checked; None if it fits."""
        schema, text = question
        if schema in (ANY_OBJECT, ANY_JSON) and len(text) <= _SHORT:
            return objection(schema, text)
        slow = f"{UNJUDGED} against the schema within {self._seconds:g} seconds."
        failed = f"{UNJUDGED} against the schema: that takes too much."
        return await self._ask(owner, slow, failed, schema, text)

    async def unusable(self, schema: dict[str, Any], owner: str = "") -> str | None:
        """Return why this schema, which has been checked, can't be used; None if it can. A schema without
        patterns always can, so that no process is asked."""
        if not has_patterns(schema):
            return None
        slow = f"its patterns could not be read within {self._seconds:g} seconds"
        return await self._ask(owner, slow, "its patterns take too much", schema, None)

    async def _ask(
        self, owner: str, slow: str, failed: str, schema: dict[str, Any], text: str | None
    ) -> str | None:
        async with self._owner_lock(owner), self._workers:
            try:
                return await self._in_process(schema, text)
            except TimeoutError:
                _log.warning("schema.too_slow", seconds=self._seconds)
                return slow
            except Exception as error:  # the process died, or the engine failed
                _log.warning("schema.worker_failed", error=type(error).__name__)
                return failed

    @asynccontextmanager
    async def _owner_lock(self, owner: str) -> AsyncIterator[None]:
        if not owner:
            yield
            return
        lock = self._owner_locks.setdefault(owner, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and not lock.statistics().tasks_waiting:
                self._owner_locks.pop(owner, None)

    async def _process(self) -> IsolatedProcess:
        """A process that answers: one that waits, unless it has died since another key's schema, or a new
        one."""
        while True:
            waiting = self._idle.pop() if self._idle else None
            process = waiting or IsolatedProcess(schema_judge.__name__)
            try:
                await process.ask(_NOTHING)
            except BaseException as error:
                process.end()
                if waiting is None or not isinstance(error, ConnectionError):
                    raise
            else:
                return process

    async def _in_process(self, schema: dict[str, Any], text: str | None) -> str | None:
        """Ask a process; its start does not count as time of the schema."""
        line = json.dumps([schema, self._seconds, text]).encode()
        process = await self._process()
        try:
            with anyio.fail_after(self._seconds):
                verdict: str | None = json.loads(await process.ask(line))
        except BaseException:
            process.end()
            raise
        self._idle.append(process)
        return verdict
