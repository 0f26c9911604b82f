"""What conformance scenarios had a server store, and its deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

import aiohttp

from openresponses_bridge.conformance.scenario import Answer, Ask, Say, Step

_RUNNING: Final = frozenset({400, 409, 425})  # "still in progress", as servers put it
_GONE: Final = frozenset({200, 202, 204, 404})
_TRIES: Final = 5
_PAUSE: Final = 0.2  # seconds
_LONGEST: Final = 256  # characters of an id


class StoredResponses:
    """The responses that the steps of a scenario left with the server. `ask` sends one request."""

    def __init__(self, ask: Callable[[Ask], Awaitable[Answer]]) -> None:
        self._ask = ask
        self._ids: dict[str, None] = {}
        self.left_behind: list[str] = []
        """The ids of those that could not be deleted, of all scenarios so far."""

    def note(self, step: Step, answer: Answer) -> None:
        """Remember what this step had the server store."""
        if answer.status >= 400:
            return
        if isinstance(step, Ask):
            fields = step.body if (step.method, step.path) == ("POST", "/responses") else None
        else:
            fields = step.message if isinstance(step, Say) else None
        if not isinstance(fields, dict) or fields.get("store") is False:
            return
        for response in (answer.response, *(event.get("response") for event in answer.events[:1])):
            found = response.get("id") if isinstance(response, dict) else None
            if isinstance(found, str) and 0 < len(found) <= _LONGEST:
                self._ids[found] = None

    async def clean_up(self) -> None:
        """Delete them, those that are still being made too. What is gone already, is not an error, and a
        server that can't be reached any more is not asked for the rest."""
        pending = list(self._ids)
        self._ids.clear()
        while pending:
            try:
                if not await self._delete(f"/responses/{quote(pending[0], safe='')}"):
                    self.left_behind.append(pending[0])
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
                self.left_behind += pending
                return
            del pending[0]

    async def _delete(self, path: str) -> bool:
        for _ in range(_TRIES):
            status = (await self._ask(Ask(path=path, method="DELETE"))).status
            if status not in _RUNNING:
                return status in _GONE
            await self._ask(Ask(path=f"{path}/cancel", method="POST"))
            await asyncio.sleep(_PAUSE)
        return False
