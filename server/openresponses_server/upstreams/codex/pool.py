"""Turns on threads on processes: started, paused, continued, interrupted."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import msgspec
import structlog
from msgspec import Struct

from openresponses_bridge.dialects.codex import OWN
from openresponses_server.errors import UpstreamError
from openresponses_server.settings import CodexSettings
from openresponses_server.settings.data_folder import data_folder, make_private
from openresponses_server.tasks import end_tasks
from openresponses_server.upstreams.codex import messages
from openresponses_server.upstreams.codex.messages import ObjectWithId, RefusedError, UndeliveredError
from openresponses_server.upstreams.codex.process import CodexProcess
from openresponses_server.upstreams.codex.turns import (
    CodexTurn,
    ConversationDigest,
    IdleThreads,
    Thread,
    TurnRequest,
)

# What a command writes is read by later turns in its folder (`AGENTS.md` instructs all of them), so keys do
# not share a folder, unless the settings name one. The folders are in the data folder, since
# `workspace-write` lets every command write to `/tmp` too.

_PREFIX = "openresponses-codex-"


class Folders:
    """The folders in which Codex works. `shared` is the one in the settings; otherwise each key has one, and
    `most` are kept for keys without a thread."""

    def __init__(self, shared: str | None, most: int) -> None:
        self._shared = None if shared is None else str(Path(shared).expanduser())
        self._most = most
        self._made: Path | None = None
        self._of: OrderedDict[str, str] = OrderedDict()

    @property
    def of_processes(self) -> str:
        """The folder in which a process is started. Raises OSError if it can't be created."""
        return self._shared or str(self._root())

    def of(self, owner: str) -> str:
        """The folder of this key's threads; empty for the first. Raises OSError if it can't be created."""
        if self._shared is not None:
            return self._shared
        if owner not in self._of:
            self._of[owner] = tempfile.mkdtemp(dir=self._root())
        self._of.move_to_end(owner)
        return self._of[owner]

    def surplus(self, in_use: Collection[str]) -> list[str]:
        """The folders to remove: those of the keys that were served least recently and have none in use."""
        idle = [owner for owner in self._of if owner not in in_use]
        return [self._of.pop(owner) for owner in idle[: max(0, len(self._of) - self._most)]]

    def close(self) -> None:
        """Remove all created folders."""
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)
            self._made = None
            self._of.clear()

    def _root(self) -> Path:
        if self._made is None:
            try:
                folder = tempfile.mkdtemp(prefix=_PREFIX, dir=make_private(data_folder()))
            except OSError:  # a server without its own data folder
                folder = tempfile.mkdtemp(prefix=_PREFIX)
            self._made = Path(folder)
        return self._made


_FIRST_WAIT: Final = 0.5  # seconds, doubled by each failure that follows
_LONGEST_WAIT: Final = 30.0
_MOST_THREADS: Final = 500  # made by one process before it is replaced: it never frees a thread
_log = structlog.get_logger(__name__)


class Processes:
    """Starts processes when they are needed and restarts them with a delay after a failure.

    There are at most as many as the settings say, except for retired ones that finish their turns. `ended` is
    called with each process that can't be used any more. `folders` are the working directories of their
    threads.
    """

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
        self._stopping: set[asyncio.Task[None]] = set()
        self._starting = asyncio.Lock()
        self._failures = 0
        self._not_before = 0.0
        self.folders = Folders(settings.cwd, settings.threads)
        self._closed = False

    async def least_busy(self) -> CodexProcess:
        """A process for a new thread. Raises UpstreamError if none can be started."""
        self._sweep()
        free = [each for each in self._running if not each.listeners]
        if free or len(self._running) >= self._settings.processes:
            return min(self._running, key=lambda each: len(each.listeners))
        async with self._starting:
            self._sweep()
            if len(self._running) >= self._settings.processes:
                return min(self._running, key=lambda each: len(each.listeners))
            return await self._start()

    async def _start(self) -> CodexProcess:
        now = asyncio.get_running_loop().time()
        if self._closed:
            raise messages.not_started(self._name, "the server is stopping")
        if now < self._not_before:
            cause = "it failed a moment ago and is started again later"
            raise messages.not_started(self._name, cause, self._not_before - now)
        process = CodexProcess(self._name, self._settings, self.folders.of_processes, self._clean)
        try:
            await process.start()
        except UpstreamError:
            self._put_off()
            raise
        self._running.append(process)
        return process

    def _put_off(self, *, at_once: bool = False) -> None:
        """Delay the start of the next process; with `at_once` not the first time."""
        wait = min(_FIRST_WAIT * 2**self._failures, _LONGEST_WAIT)
        wait = 0.0 if at_once and not self._failures else wait
        self._failures = min(self._failures + 1, 16)
        self._not_before = asyncio.get_running_loop().time() + wait

    def _sweep(self) -> None:
        """Remove processes that have ended, and retire those that have made enough threads. No request waits
        until they are stopped, nor keeps them from it by leaving."""
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
            task = asyncio.create_task(process.stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    def retire(self, process: CodexProcess) -> None:
        """Retire the process: it gets no new threads, and ends with its last turn."""
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
        await asyncio.gather(*(each.stop() for each in processes), *self._stopping)
        await asyncio.to_thread(self.folders.close)


class _Started(Struct):
    """The result of `thread/start` and `turn/start`."""

    thread: ObjectWithId = msgspec.field(default_factory=ObjectWithId)
    turn: ObjectWithId = msgspec.field(default_factory=ObjectWithId)


class Pool:
    """All threads of one upstream."""

    def __init__(self, name: str, settings: CodexSettings, clean: Callable[[str], str]) -> None:
        self._name = name
        self._settings = settings
        self._idle = IdleThreads(settings.threads)
        self._paused: OrderedDict[str, Thread] = OrderedDict()
        self.processes = Processes(name, settings, clean, self._idle.discard)
        self._threads: WeakSet[Thread] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, request: TurnRequest, owner: str, conversation: str) -> Thread:
        """A thread that runs the turn. Raises UpstreamError, also for answers to approvals that nobody waits
        for."""
        if request.approvals:
            return self._go_on(request, owner)
        thread = self._idle.pop(ConversationDigest(owner, conversation, request).digest())
        if thread is not None:
            with suppress(UndeliveredError):  # it ended between two turns, so no turn is lost
                return await self._start_turn(thread, request)
        thread = await self._new_thread(request, ConversationDigest(owner, conversation, request), owner)
        return await self._start_turn(thread, request)

    async def _new_thread(self, request: TurnRequest, seen: ConversationDigest, owner: str) -> Thread:
        process = await self.processes.least_busy()
        settings = self._settings
        policy = settings.approval_policy or ("never" if settings.approvals == "never" else "on-request")
        params = {
            "model": request.model,
            "cwd": self._folder(owner),
            "sandbox": settings.sandbox,
            "approvalPolicy": policy,
            "developerInstructions": request.instructions,
            "ephemeral": True,  # conversations are in the server's store only
        }
        process.threads_made += 1
        result = await self._ask(process, "thread/start", params)
        if not result.thread.id or result.thread.id in process.listeners:
            raise messages.invalid(self._name, "thread/start gave no new thread")
        if request.history:
            items = [{name: each[name] for name in each if name != OWN} for each in request.history]
            await self._ask(process, "thread/inject_items", {"threadId": result.thread.id, "items": items})
        thread = Thread(result.thread.id, process, seen, owner)
        self._threads.add(thread)
        return thread

    def _folder(self, owner: str) -> str:
        """The working directory of this key's threads; removes folders of keys beyond the limit."""
        folders = self.processes.folders
        folder = folders.of(owner)
        for surplus in folders.surplus({owner, *(each.owner for each in self._threads)}):
            self._in_background(asyncio.to_thread(shutil.rmtree, surplus, ignore_errors=True))
        return folder

    async def _start_turn(self, thread: Thread, request: TurnRequest) -> Thread:
        process = thread.process
        turn = thread.turn = CodexTurn(self._name, process, self._settings)
        process.listeners[thread.id] = turn
        thread.seen.add_input(request.input)
        params = {
            "threadId": thread.id,
            "input": request.input,
            "model": request.model,
            "effort": request.effort,
            "summary": request.summary,
            "outputSchema": request.output_schema,
        }
        try:
            result = await self._ask(process, "turn/start", params)
            if not result.turn.id or (turn.id and turn.id != result.turn.id):
                raise messages.invalid(self._name, "turn/start gave no turn")
            turn.id = result.turn.id
        except BaseException as error:
            # otherwise the turn may run
            is_known = isinstance(error, UndeliveredError | RefusedError)
            self._in_background(self._close_thread(thread) if is_known else self._interrupt(thread, turn))
            if isinstance(error, UpstreamError) and not is_known:
                raise messages.unknown(error) from error
            raise
        return thread

    async def _ask(self, process: CodexProcess, method: str, params: dict[str, Any]) -> _Started:
        result = await process.request(method, {k: v for k, v in params.items() if v is not None})
        try:
            return msgspec.json.decode(result, type=_Started)
        except (msgspec.DecodeError, RecursionError) as error:
            raise messages.invalid(self._name, f"its answer to {method} can't be read") from error

    def _go_on(self, request: TurnRequest, owner: str) -> Thread:
        approvals = {each["id"]: each["approve"] for each in request.approvals}
        threads = {id: self._paused.get(id) for id in approvals}
        thread = next((each for each in threads.values() if each is not None and each.owner == owner), None)
        if thread is None or any(each is not thread for each in threads.values()):
            what = "nobody waits for the answer to this approval request: it was answered, or is too old"
            raise messages.not_asked(what)
        assert thread.turn is not None
        self._unpause(thread)
        thread.turn.resolve(approvals)
        return thread

    def leave(self, thread: Thread) -> None:
        """The client's response is complete: the thread waits for the next turn or for an approval; a turn
        that still runs is interrupted."""
        turn = thread.turn
        assert turn is not None
        if turn.whole and turn.error is None:
            thread.process.turns_ended += 1
            thread.seen.record(turn.said)
            thread.turn = None
            thread.process.listeners.pop(thread.id, None)
            for dropped in self._idle.put(thread, thread.seen.digest()):
                self._in_background(self._drop(dropped))
        elif turn.paused:
            self._pause(thread, turn)
        else:
            self._in_background(self._interrupt(thread, turn))

    def _pause(self, thread: Thread, turn: CodexTurn) -> None:
        for approval_id in turn.questions:
            self._paused[approval_id] = thread
        self._in_background(self._give_up(thread, tuple(turn.questions)))
        waiting = {id(each): each for each in self._paused.values()}
        if len(waiting) > self._settings.threads:
            oldest = next(iter(waiting.values()))
            self._unpause(oldest)
            assert oldest.turn is not None
            self._in_background(self._interrupt(oldest, oldest.turn))

    def _unpause(self, thread: Thread) -> None:
        for approval_id in [key for key, each in self._paused.items() if each is thread]:
            del self._paused[approval_id]

    async def _give_up(self, thread: Thread, approvals: tuple[str, ...]) -> None:
        """Interrupt a turn whose approvals were not answered in time."""
        await asyncio.sleep(self._settings.approval_seconds)
        if thread.turn is not None and any(self._paused.get(each) is thread for each in approvals):
            self._unpause(thread)
            await self._interrupt(thread, thread.turn)

    async def _interrupt(self, thread: Thread, turn: CodexTurn) -> None:
        """End a turn and close its thread: its history differs from the client's."""
        process = thread.process
        try:
            async with asyncio.timeout(self._settings.stop_seconds):
                turn.resolve(dict.fromkeys(turn.questions, False))
                while not turn.id and not turn.over and turn.error is None:
                    await turn.change()
                if turn.id and not turn.over:
                    await process.request("turn/interrupt", {"threadId": thread.id, "turnId": turn.id})
                await turn.ended()
        except (TimeoutError, UpstreamError):
            if process.failure is None:
                _log.warning("codex.not_interrupted", upstream=self._name, pid=process.pid)
                self.processes.retire(process)
        await self._close_thread(thread)

    async def _close_thread(self, thread: Thread) -> None:
        """Release a thread that runs no more turns."""
        thread.process.listeners.pop(thread.id, None)
        await self._drop(thread)

    async def _drop(self, thread: Thread) -> None:
        if thread.process.failure is None:
            try:
                await thread.process.request("thread/unsubscribe", {"threadId": thread.id})
            except UpstreamError as error:
                _log.info("codex.thread_not_dropped", upstream=self._name, cause=error.cause)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all processes, and with them all turns."""
        await end_tasks(list(self._tasks))
        await self.processes.close()


class TurnSlots:
    """Limits the turns that run at once, in sum and per key. The others wait in a queue, in order; a key that
    has all its turns lets others pass."""

    def __init__(self, name: str, settings: CodexSettings) -> None:
        self._name = name
        self._settings = settings
        self._acquired: Counter[str] = Counter()
        self._queue: OrderedDict[asyncio.Future[None], str] = OrderedDict()

    @asynccontextmanager
    async def acquire(self, owner: str) -> AsyncIterator[None]:
        """Acquire a slot for one turn. Raises UpstreamError if the queue is full, or the wait takes too
        long."""
        await self._wait_for_slot(owner)
        try:
            yield
        finally:
            self._acquired[owner] -= 1
            if not self._acquired[owner]:
                del self._acquired[owner]
            self._wake_waiting()

    def _is_free(self, owner: str) -> bool:
        settings = self._settings
        # without keys all clients are one owner
        of_key = settings.turns_per_key if owner else settings.turns
        return self._acquired.total() < settings.turns and self._acquired[owner] < of_key

    async def _wait_for_slot(self, owner: str) -> None:
        if self._is_free(owner):
            self._acquired[owner] += 1
            return
        mine = sum(each == owner for each in self._queue.values())
        share = max(1, self._settings.queue // 2) if owner else self._settings.queue
        if len(self._queue) >= self._settings.queue or mine >= share:
            raise messages.busy(self._name, key=mine >= share > 0 and bool(owner))
        waiting = asyncio.get_running_loop().create_future()
        self._queue[waiting] = owner
        try:
            async with asyncio.timeout(self._settings.queue_seconds):
                await waiting
        except BaseException as error:
            if self._queue.pop(waiting, None) is None and not waiting.cancelled():
                self._acquired[owner] -= 1  # it got a slot at that very moment
                self._wake_waiting()
            if isinstance(error, TimeoutError):
                raise messages.busy(self._name, key=False) from error
            raise

    def _wake_waiting(self) -> None:
        for waiting, owner in list(self._queue.items()):
            if self._acquired.total() >= self._settings.turns:
                return
            if self._is_free(owner) and not waiting.done():
                del self._queue[waiting]
                self._acquired[owner] += 1
                waiting.set_result(None)
