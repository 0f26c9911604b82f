"""Turns on threads on processes: started, paused, continued, interrupted."""

from __future__ import annotations

import asyncio
import shutil
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakSet

import msgspec
import structlog
from msgspec import Struct

from openresponses_bridge.dialects.codex import OWN
from openresponses_server.errors import UpstreamError
from openresponses_server.settings import CodexSettings
from openresponses_server.tasks import end_tasks
from openresponses_server.upstreams.codex import errors
from openresponses_server.upstreams.codex.messages import Named
from openresponses_server.upstreams.codex.process import CodexProcess
from openresponses_server.upstreams.codex.processes import Processes
from openresponses_server.upstreams.codex.threads import IdleThreads, Seen, Thread, TurnRequest
from openresponses_server.upstreams.codex.turns import Turn

_log = structlog.get_logger(__name__)


class _Started(Struct):
    """The result of `thread/start` and `turn/start`."""

    thread: Named = msgspec.field(default_factory=Named)
    turn: Named = msgspec.field(default_factory=Named)


class Pool:
    """All threads of one upstream."""

    def __init__(self, name: str, settings: CodexSettings, clean: Callable[[str], str]) -> None:
        self._name = name
        self._settings = settings
        self._idle = IdleThreads(settings.threads)
        self._paused: OrderedDict[str, Thread] = OrderedDict()
        self.processes = Processes(name, settings, clean, self._idle.forget)
        self._threads: WeakSet[Thread] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()

    # ── beginning ──────────────────────────────────────────────────────────────────────────────────
    async def begin(self, request: TurnRequest, owner: str, conversation: str) -> Thread:
        """A thread on which the turn runs. Raises UpstreamError, also for approvals that nobody waits for."""
        if request.approvals:
            return self._go_on(request, owner)
        thread = self._idle.take(Seen(owner, conversation, request).digest())
        if thread is not None:
            try:
                return await self._start_turn(thread, request)
            except UpstreamError:
                if thread.process.failure is None:
                    raise
                # it ended between two turns, which is nobody's loss
        thread = await self._new_thread(request, Seen(owner, conversation, request), owner)
        return await self._start_turn(thread, request)

    async def _new_thread(self, request: TurnRequest, seen: Seen, owner: str) -> Thread:
        process = await self.processes.least_busy()
        settings = self._settings
        policy = settings.approval_policy or ("never" if settings.approvals == "never" else "on-request")
        params = {
            "model": request.model,
            "cwd": self._folder(owner),
            "sandbox": settings.sandbox,
            "approvalPolicy": policy,
            "developerInstructions": request.instructions,
            "ephemeral": True,  # what was said is in our store, or nowhere
        }
        process.threads_made += 1
        found = await self._ask(process, "thread/start", params)
        if not found.thread.id or found.thread.id in process.listeners:
            raise errors.invalid(self._name, "thread/start gave no new thread")
        if request.history:
            items = [{name: each[name] for name in each if name != OWN} for each in request.history]
            await self._ask(process, "thread/inject_items", {"threadId": found.thread.id, "items": items})
        thread = Thread(found.thread.id, process, seen, owner)
        self._threads.add(thread)
        return thread

    def _folder(self, owner: str) -> str:
        """Where this key's threads work; what too many others have left is removed."""
        folders = self.processes.folders
        folder = folders.of(owner)
        for surplus in folders.surplus({owner, *(each.owner for each in self._threads)}):
            self._in_background(asyncio.to_thread(shutil.rmtree, surplus, ignore_errors=True))
        return folder

    async def _start_turn(self, thread: Thread, request: TurnRequest) -> Thread:
        process = thread.process
        turn = thread.turn = Turn(self._name, process, self._settings)
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
            found = await self._ask(process, "turn/start", params)
            if not found.turn.id or (turn.id and turn.id != found.turn.id):
                raise errors.invalid(self._name, "turn/start gave no turn")
            turn.id = found.turn.id
        except BaseException as error:
            refused = isinstance(error, UpstreamError) and error.code != UpstreamError.TIMEOUT
            # without an answer the turn may run
            self._in_background(self._forget(thread) if refused else self._interrupt(thread, turn))
            raise
        return thread

    async def _ask(self, process: CodexProcess, method: str, params: dict[str, Any]) -> _Started:
        result = await process.request(method, {k: v for k, v in params.items() if v is not None})
        try:
            return msgspec.json.decode(result, type=_Started)
        except (msgspec.DecodeError, RecursionError) as error:
            raise errors.invalid(self._name, f"its answer to {method} can't be read") from error

    def _go_on(self, request: TurnRequest, owner: str) -> Thread:
        given = {each["id"]: each["approve"] for each in request.approvals}
        found = {id: self._paused.get(id) for id in given}
        thread = next((each for each in found.values() if each is not None and each.owner == owner), None)
        if thread is None or any(each is not thread for each in found.values()):
            what = "nobody waits for the answer to this approval request: it was answered, or is too old"
            raise errors.not_asked(what)
        assert thread.turn is not None
        self._unpause(thread)
        thread.turn.resolve(given)
        return thread

    # ── leaving ────────────────────────────────────────────────────────────────────────────────────
    def leave(self, thread: Thread) -> None:
        """The client has what it gets: the thread waits for the next turn, or for an approval; a turn that
        still runs is interrupted."""
        turn = thread.turn
        assert turn is not None
        if turn.whole and turn.error is None:
            thread.process.turns_ended += 1
            thread.seen.say(turn.said)
            thread.turn = None
            thread.process.listeners.pop(thread.id, None)
            for dropped in self._idle.put(thread, thread.seen.digest()):
                self._in_background(self._drop(dropped))
        elif turn.paused:
            self._pause(thread, turn)
        else:
            self._in_background(self._interrupt(thread, turn))

    def _pause(self, thread: Thread, turn: Turn) -> None:
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
        """Nobody has answered."""
        await asyncio.sleep(self._settings.approval_seconds)
        if thread.turn is not None and any(self._paused.get(each) is thread for each in approvals):
            self._unpause(thread)
            await self._interrupt(thread, thread.turn)

    async def _interrupt(self, thread: Thread, turn: Turn) -> None:
        """End a turn, and forget its thread: what it has seen is not what its client has."""
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
        await self._forget(thread)

    async def _forget(self, thread: Thread) -> None:
        """It has no turns any more."""
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
