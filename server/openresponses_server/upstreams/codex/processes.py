"""The processes: started when they are needed, again when they have ended, and not too often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from openresponses_server.errors import UpstreamError
from openresponses_server.settings import CodexSettings
from openresponses_server.upstreams.codex import errors
from openresponses_server.upstreams.codex.folders import Folders
from openresponses_server.upstreams.codex.process import CodexProcess

_FIRST_WAIT: Final = 0.5  # seconds, doubled by each failure that follows
_LONGEST_WAIT: Final = 30.0
_MOST_THREADS: Final = 500  # made by one process, after which another takes its place: it forgets none
_log = structlog.get_logger(__name__)


class Processes:
    """At most so many as the settings say, those aside that only finish their turns. `ended` is called with
    each that can't be used any more. `folders` are those in which their threads work."""

    def __init__(
        self,
        name: str,
        settings: CodexSettings,
        clean: Callable[[str], str],
        ended: Callable[[CodexProcess], None],
    ) -> None:
        self._name = name
        self._settings = settings
        self._clean = clean
        self._ended = ended
        self._running: list[CodexProcess] = []
        self._retired: list[CodexProcess] = []
        self._starting = asyncio.Lock()
        self._failures = 0
        self._not_before = 0.0
        self.folders = Folders(settings.cwd, settings.threads)
        self._closed = False

    async def least_busy(self) -> CodexProcess:
        """One for a new thread. Raises UpstreamError when none can be started."""
        await self._sweep()
        free = [each for each in self._running if not each.listeners]
        if free or len(self._running) >= self._settings.processes:
            return min(self._running, key=lambda each: len(each.listeners))
        async with self._starting:
            await self._sweep()
            if len(self._running) >= self._settings.processes:
                return min(self._running, key=lambda each: len(each.listeners))
            return await self._start()

    async def _start(self) -> CodexProcess:
        now = asyncio.get_running_loop().time()
        if self._closed:
            raise errors.not_started(self._name, "the server is stopping")
        if now < self._not_before:
            cause = "it failed a moment ago and is started again later"
            raise errors.not_started(self._name, cause, self._not_before - now)
        process = CodexProcess(self._name, self._settings, self.folders.of_processes, self._clean)
        try:
            await process.start()
        except UpstreamError:
            self._put_off()
            raise
        self._running.append(process)
        return process

    def _put_off(self, *, at_once: bool = False) -> None:
        """Start the next one later, the first time `at_once` if that is said."""
        wait = min(_FIRST_WAIT * 2**self._failures, _LONGEST_WAIT)
        wait = 0.0 if at_once and not self._failures else wait
        self._failures = min(self._failures + 1, 16)
        self._not_before = asyncio.get_running_loop().time() + wait

    async def _sweep(self) -> None:
        """Take out what has ended, and retire what has made enough threads."""
        dead = [each for each in self._running if each.failure is not None]
        self._running = [each for each in self._running if each.failure is None]
        for process in dead:
            if process.turns_ended:
                self._failures, self._not_before = 0, 0.0
            else:
                self._put_off(at_once=True)  # it has never finished anything
            self._ended(process)
        for process in [each for each in self._running if each.threads_made >= _MOST_THREADS]:
            self.retire(process)
        done = [each for each in self._retired if not each.listeners or each.failure is not None]
        self._retired = [each for each in self._retired if each not in done]
        for process in dead + done:
            await process.stop()

    def retire(self, process: CodexProcess) -> None:
        """It gets no new threads, and ends with its last turn."""
        if process in self._running:
            self._running.remove(process)
            self._retired.append(process)
            self._ended(process)
            _log.info("codex.retired", upstream=self._name, pid=process.pid)

    async def close(self) -> None:
        """End all of them."""
        self._closed = True
        async with self._starting:
            processes = [*self._running, *self._retired]
            self._running, self._retired = [], []
        await asyncio.gather(*(each.stop() for each in processes))
        await asyncio.to_thread(self.folders.close)
