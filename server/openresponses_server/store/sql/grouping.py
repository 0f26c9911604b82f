"""Sends what waits at the same moment to the database together: writes in one transaction, look-ups in one
round trip. A commit, and most of the work on both sides, cost about the same for one as for many. A busy
process also returns to a connection late, so that with one call at a time it would do less the busier it
is."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from openresponses_server.store.base import WRITTEN_TOGETHER
from openresponses_server.store.sql.writes import Write
from openresponses_server.tasks import cancel_until_done

_BYTES: Final = 4 * 1024 * 1024  # bytes of a group of writes, unless a single one has more
Q = TypeVar("Q")
R = TypeVar("R")


class _Waiting(NamedTuple, Generic[Q, R]):
    asked: Q
    done: asyncio.Future[R]


class Grouped(Generic[Q, R]):
    """Groups of at most `most` requests, up to `at_once` of them at a time. `run` runs a group and returns
    the result of each request. If it raises, nothing in the group was done, and each request is run alone."""

    def __init__(self, run: Callable[[Sequence[Q]], Awaitable[Sequence[R]]], at_once: int, most: int) -> None:
        self._run = run
        self._at_once = at_once
        self._most = most
        self._waiting: deque[_Waiting[Q, R]] = deque()
        self._is_due = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def execute(self, request: Q) -> R:
        """Run the request together with others that are made meanwhile. Returns its result, and raises an
        error of this request only. If its caller is cancelled before its group begins, it is left out."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting[Q, R](request, loop.create_future())
        self._waiting.append(waiting)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._begin)  # after all callbacks that are ready have made their requests
        return await waiting.done

    def _begin(self) -> None:
        self._is_due = False
        while len(self._tasks) < self._at_once and (group := self._next_group()):
            task = asyncio.create_task(self._run_group(group))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._begin()

    def _next_group(self) -> list[_Waiting[Q, R]]:
        group: list[_Waiting[Q, R]] = []
        may_join = self._joining()
        while self._waiting and len(group) < self._most:
            each = self._waiting[0]
            if not each.done.done():
                if not may_join(each.asked):
                    break
                group.append(each)
            self._waiting.popleft()
        return group

    def _joining(self) -> Callable[[Q], bool]:
        """Return a function that is called with one request after the other and decides whether it may join a
        new group; the first may."""
        return lambda _asked: True

    async def _run_group(self, group: list[_Waiting[Q, R]]) -> None:
        task = asyncio.current_task()
        assert task is not None

        waiting = len(group)

        def leave(_done: asyncio.Future[R]) -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                cancel_until_done(task)  # nobody waits for it any more

        for each in group:
            each.done.add_done_callback(leave)
        try:
            await self._run_together(group)
        finally:
            for each in group:
                each.done.cancel()  # those that have no result yet

    async def _run_together(self, group: list[_Waiting[Q, R]]) -> None:
        try:
            results = await self._run([each.asked for each in group])
        except Exception as error:
            if len(group) > 1:  # one of them may be to blame
                await asyncio.gather(*(self._run_together([each]) for each in group))
            elif not group[0].done.done():
                group[0].done.set_exception(error)
            return
        for each, came in zip(group, results, strict=True):
            if not each.done.done():
                each.done.set_result(came)


class GroupedWrites(Grouped[Write, bool]):
    """Writes, each group in one transaction. The result of a write is whether it found its row."""

    def __init__(self, run: Callable[[Sequence[Write]], Awaitable[Sequence[bool]]], at_once: int) -> None:
        super().__init__(run, at_once, WRITTEN_TOGETHER)

    def _joining(self) -> Callable[[Write], bool]:
        """Return a function that keeps two writes of one response out of the same group."""
        names: set[str] = set()
        size = 0

        def may_join(write: Write) -> bool:
            nonlocal size
            size += write.size
            if names and (size > _BYTES or write.response_id in names):
                return False
            names.add(write.response_id)
            return True

        return may_join
