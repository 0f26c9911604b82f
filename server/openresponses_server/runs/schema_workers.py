"""Judging answers in worker processes, so that no schema holds up the server.

How long a schema takes can't be seen from its size (references double, alternatives nest). So it is judged
where it can be stopped: in one of a few processes, which are kept for the next answer and killed when the
time is over.
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
from openresponses_server.runs.schema_judge import objection

ANY_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_WORKERS: Final = 2
_SHORT: Final = 100_000  # characters that are read in well under a hundredth of a second
_NOTHING: Final = json.dumps([{}, 1.0, None]).encode()  # is answered when the process is there
_log = structlog.get_logger(__name__)


class Question(NamedTuple):
    """Does this text fit this schema? `schema` has been checked."""

    schema: dict[str, Any]
    text: str


class SchemaJudge:
    """Judges for one application; one answer may take `seconds`. A key has one process at a time, so that its
    slow schemas leave the others to other keys; without keys (owner "") all of them are everybody's."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._workers = anyio.CapacityLimiter(_WORKERS)
        self._turns: dict[str, anyio.Lock] = {}
        self._idle: list[IsolatedProcess] = []

    def close(self) -> None:
        """End the processes."""
        while self._idle:
            self._idle.pop().end()

    async def objection(self, question: Question, owner: str = "") -> str | None:
        """Why the text does not fit, or could not be checked; None when it fits."""
        schema, text = question
        if schema == ANY_OBJECT and len(text) <= _SHORT:
            return objection(schema, text)
        slow = f"The answer could not be checked against the schema within {self._seconds:g} seconds."
        failed = "The answer could not be checked against the schema: that takes too much."
        return await self._asked(owner, slow, failed, schema, text)

    async def unusable(self, schema: dict[str, Any], owner: str = "") -> str | None:
        """Why answers can't be judged by this schema, which has been checked; None when they can. A schema
        without patterns can always be used, and no process is asked."""
        if not has_patterns(schema):
            return None
        slow = f"its patterns could not be read within {self._seconds:g} seconds"
        return await self._asked(owner, slow, "its patterns take too much", schema, None)

    async def _asked(
        self, owner: str, slow: str, failed: str, schema: dict[str, Any], text: str | None
    ) -> str | None:
        async with self._turn(owner), self._workers:
            try:
                return await self._in_process(schema, text)
            except TimeoutError:
                _log.warning("schema.too_slow", seconds=self._seconds)
                return slow
            except Exception as error:  # what ended the process, or what the engine made of it
                _log.warning("schema.worker_failed", error=type(error).__name__)
                return failed

    @asynccontextmanager
    async def _turn(self, owner: str) -> AsyncIterator[None]:
        if not owner:
            yield
            return
        turn = self._turns.setdefault(owner, anyio.Lock())
        try:
            async with turn:
                yield
        finally:
            if not turn.locked() and not turn.statistics().tasks_waiting:
                self._turns.pop(owner, None)

    async def _in_process(self, schema: dict[str, Any], text: str | None) -> str | None:
        """The time counts from when there is a process: starting one is not the schema's doing."""
        line = json.dumps([schema, self._seconds, text]).encode()
        process = self._idle.pop() if self._idle else IsolatedProcess(schema_judge.__name__)
        try:
            await process.ask(_NOTHING)
            with anyio.fail_after(self._seconds):
                said: str | None = json.loads(await process.ask(line))
        except BaseException:
            process.end()
            raise
        self._idle.append(process)
        return said
