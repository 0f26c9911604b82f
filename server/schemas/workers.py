"""Judging answers in worker processes, so that no schema holds up the server.

How long a schema takes can't be seen from its size (references double, alternatives nest). So it is judged
where it can be stopped: in one of a few processes, which are kept for the next answer and killed when the
time is over.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import anyio
import structlog
from anyio import to_process

from server.schemas.judge import judge_within, make_ready, objection

ANY_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_WORKERS: Final = 2
_SHORT: Final = 100_000  # characters that are read in well under a hundredth of a second
_log = structlog.get_logger(__name__)


class Question(NamedTuple):
    """Does this text fit this schema? `schema` has been checked."""

    schema: dict[str, Any]
    text: str


class SchemaJudge:
    """Judges for one application; one answer may take `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._workers = anyio.CapacityLimiter(_WORKERS)

    async def objection(self, question: Question) -> str | None:
        """Why the text does not fit, or could not be checked; None when it fits."""
        schema, text = question
        if schema == ANY_OBJECT and len(text) <= _SHORT:
            return objection(schema, text)
        async with self._workers:
            try:
                return await self._in_process(schema, text)
            except TimeoutError:
                _log.warning("schema.too_slow", seconds=self._seconds)
                return f"The answer could not be checked against the schema within {self._seconds:g} seconds."
            except Exception as error:  # what ended the process, or what the engine made of it
                _log.warning("schema.worker_failed", error=type(error).__name__)
                return "The answer could not be checked against the schema: that takes too much."

    async def _in_process(self, schema: dict[str, Any], text: str) -> str | None:
        """The time counts from when there is a process: starting one is not the schema's doing."""
        processes = anyio.CapacityLimiter(_WORKERS)  # the places are counted above
        await to_process.run_sync(make_ready, cancellable=True, limiter=processes)
        with anyio.fail_after(self._seconds):
            return await to_process.run_sync(
                judge_within, schema, text, self._seconds, cancellable=True, limiter=processes
            )
