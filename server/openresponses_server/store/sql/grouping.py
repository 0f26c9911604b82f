"""Writes that wait at the same moment go to the database in one transaction: a commit, and with PostgreSQL a
round trip and most of the work on both sides, costs about the same for one write as for many."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from openresponses_server.store.base import WRITTEN_TOGETHER
from openresponses_server.store.sql.writes import Write

_BYTES: Final = 4 * 1024 * 1024  # of their data together, unless one alone has more

Transaction = Callable[[Sequence[Write]], Awaitable[Sequence[bool]]]
"""Runs these writes in one transaction; returns for each whether it found its row. Raises what it raises for
any of them, and then none is written."""


class _Waiting(NamedTuple):
    write: Write
    done: asyncio.Future[bool]


class GroupedWrites:
    """Groups of writes, each a transaction that `run` runs, `at_once` of them at a time."""

    def __init__(self, run: Transaction, at_once: int) -> None:
        self._run = run
        self._at_once = at_once
        self._waiting: deque[_Waiting] = deque()
        self._is_due = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def execute(self, write: Write) -> bool:
        """Write it with what others write meanwhile; returns whether it found its row, and raises what is
        wrong with it alone. A write whose caller is cancelled before its transaction begins is left out."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(write, loop.create_future())
        self._waiting.append(waiting)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._begin)  # once all that run now have said what they write
        return await waiting.done

    def _begin(self) -> None:
        self._is_due = False
        while len(self._tasks) < self._at_once and (group := self._next_group()):
            task = asyncio.create_task(self._write(group))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._begin()

    def _next_group(self) -> list[_Waiting]:
        """The next writes that may share a transaction: not two of one response."""
        group: dict[str, _Waiting] = {}
        size = 0
        while self._waiting and len(group) < WRITTEN_TOGETHER:
            each = self._waiting[0]
            if not each.done.done():
                size += each.write.size
                if group and (size > _BYTES or each.write.response_id in group):
                    break
                group[each.write.response_id] = each
            self._waiting.popleft()
        return list(group.values())

    async def _write(self, group: list[_Waiting]) -> None:
        task = asyncio.current_task()
        assert task is not None

        def leave(_done: asyncio.Future[bool]) -> None:
            if all(each.done.done() for each in group):
                task.cancel()  # nobody waits for it any more

        for each in group:
            each.done.add_done_callback(leave)
        try:
            await self._write_together(group)
        finally:
            for each in group:
                each.done.cancel()  # those that have no result by now

    async def _write_together(self, group: list[_Waiting]) -> None:
        try:
            found = await self._run([each.write for each in group])
        except Exception as error:
            if len(group) > 1:  # one of them may be to blame
                await asyncio.gather(*(self._write_together([each]) for each in group))
            elif not group[0].done.done():
                group[0].done.set_exception(error)
            return
        for each, was_found in zip(group, found, strict=True):
            if not each.done.done():
                each.done.set_result(was_found)
