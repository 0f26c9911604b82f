"""One `codex app-server` process: started, initialised once, sent requests, and ended together with its
children."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec
import structlog

from openresponses_bridge.dialects.codex import is_known
from openresponses_bridge.protocol.codec import encode
from openresponses_server.errors import UpstreamError
from openresponses_server.processes import (
    NOT_FOUND,
    ChildProcess,
    LineSplitter,
    LineTooLong,
    LineWriter,
    OversizedLine,
    inherited_environment,
    log_stderr,
)
from openresponses_server.settings import CodexSettings
from openresponses_server.settings.files import expanded
from openresponses_server.upstreams.codex import messages
from openresponses_server.upstreams.codex.messages import (
    METHOD_NOT_FOUND,
    Incoming,
    UndeliveredError,
    answer,
    incoming,
    params_of,
)

_PASSED: Final = ("CODEX_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME")


def environment_of(settings: CodexSettings) -> dict[str, str]:
    """The environment of the process."""
    own = {"CODEX_HOME": settings.home} if settings.home is not None else {}
    return {
        **inherited_environment(*_PASSED),
        **own,
        **{name: expanded(value) for name, value in settings.env.items()},
    }


def command_of(settings: CodexSettings) -> list[str]:
    """The command line."""
    return [settings.path, "app-server", *settings.args]


_log = structlog.get_logger(__name__)
_READ: Final = 256 * 1024
_UNREAD: Final = 64 * 1024 * 1024  # written bytes that the process has not read
_MOST_KINDS: Final = 1000  # of notifications; further ones are not logged
_LONGEST_KIND: Final = 100
_THREAD: Final = re.compile(rb'(?<!\\)"threadId"\s*:\s*"([^"\\]{1,200})"')
_CLIENT: Final = {"name": "openresponses_bridge", "title": "openresponses-bridge", "version": "1"}


class ThreadListener(Protocol):
    """The receiver of one thread's lines."""

    def notification_received(self, line: bytes, message: Incoming) -> None:
        """A notification arrived."""
        ...

    def request_received(self, line: bytes, message: Incoming) -> None:
        """A request arrived; answer it with `CodexProcess.answer`."""
        ...

    def failed(self, error: UpstreamError) -> None:
        """The process has ended, or a message is lost."""
        ...


class CodexProcess:
    """A running process. `listeners` are its threads by their ids."""

    def __init__(self, name: str, settings: CodexSettings, cwd: str, clean: Callable[[str], str]) -> None:
        self._name = name
        self._settings = settings
        self._cwd = cwd
        self._clean = clean
        self.listeners: dict[str, ThreadListener] = {}
        self.threads_made = 0
        self.turns_ended = 0
        self.failure: UpstreamError | None = None
        """Why the process can't be used any more; None while it can."""
        self.ready = False
        self._waiting: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._last_id = 0
        self._unreadable = 0
        self._kinds: set[str] = set()  # of received notifications
        self._child: ChildProcess | None = None
        self._writer: LineWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def start(self) -> None:
        """Start and initialise the process. Raises UpstreamError, and then has ended it."""
        try:
            await self._spawn()
            params = {"clientInfo": _CLIENT, "capabilities": None}
            await self.request("initialize", params, self._settings.start_seconds)
            self._write({"method": "initialized"})
            self.ready = True
        except UpstreamError as error:
            await self.stop()
            raise messages.not_started(self._name, error.cause) from error
        except BaseException:
            await self.stop()
            raise

    async def _spawn(self) -> None:
        try:
            child = self._child = await ChildProcess.start(
                command_of(self._settings), environment_of(self._settings), self._cwd
            )
        except OSError as error:
            raise messages.not_started(self._name, error.strerror or type(error).__name__) from error
        self._writer = LineWriter(child, _UNREAD)
        self._tasks = [
            asyncio.create_task(self._listen(child)),
            asyncio.create_task(log_stderr(child.stderr, "codex.stderr", self._clean, upstream=self._name)),
        ]
        _log.info("codex.started", upstream=self._name, pid=child.pid)

    async def request(self, method: str, params: dict[str, Any], seconds: float | None = None) -> msgspec.Raw:
        """Send a request; returns its result. Raises UpstreamError if Codex refuses, ends, or does not answer
        in time, and UndeliveredError if it did not get the request."""
        self._last_id += 1
        number = self._last_id
        future: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._write({"id": number, "method": method, "params": params})
            async with asyncio.timeout(self._settings.answer_seconds if seconds is None else seconds):
                return await future
        except TimeoutError as error:
            raise messages.silent(self._name, f"answer {method}") from error
        except _RpcError as error:
            raise messages.refused(self._name, method, self._clean(error.message)) from error
        finally:
            del self._waiting[number]

    def answer(self, request_id: int | str, result: Any) -> None:
        """Answer a request of Codex."""
        with suppress(UndeliveredError):
            self._write({"id": request_id, "result": result})

    def _write(self, message: dict[str, Any]) -> None:
        """Raises UndeliveredError if the process does not get the message."""
        assert self._writer is not None
        if self.failure is None:
            try:
                if self._writer.write(encode(message) + b"\n"):
                    return
                raise messages.undelivered(self._name, "it has not read what it was sent before")
            except TimeoutError:
                self._fail(messages.silent(self._name, "read what was written to it"))
            except BrokenPipeError:
                if not self.ready:
                    return  # why it ended is known in a moment
                self._fail(messages.ended(self._name, "its process has ended"))
        raise messages.undelivered(self._name, self.failure.cause if self.failure is not None else "")

    async def _listen(self, child: ChildProcess) -> None:
        lines = LineSplitter(self._settings.line_bytes)
        try:
            while data := await child.stdout.read(_READ):
                for line in lines.feed(data):
                    if isinstance(line, OversizedLine):
                        self._lose(line)
                    else:
                        self._dispatch(line)
        except LineTooLong:
            self._fail(messages.invalid(self._name, "it wrote a line without end"))
            return
        code = await child.wait(self._settings.stop_seconds)
        how = "it closed its output" if code is None else f"its process ended with code {code}"
        if code == NOT_FOUND:
            how = "its program was not found"
        self._fail(messages.ended(self._name, how))

    def _lose(self, line: OversizedLine) -> None:
        """Fail what this line was for, and nothing else."""
        error = messages.invalid(
            self._name, f"it wrote a line of more than {self._settings.line_bytes} bytes"
        )
        _log.warning("codex.oversized_line", upstream=self._name, pid=self.pid)
        future = self._waiting.get(line.answered) if isinstance(line.answered, int) else None
        if future is not None and not future.done():
            future.set_exception(error)
        threads = {each.decode(errors="replace") for end in line for each in _THREAD.findall(end)}
        for listener in [self.listeners[each] for each in threads if each in self.listeners]:
            listener.failed(error)

    def _dispatch(self, line: bytes) -> None:
        message = incoming(line)
        if message is None:
            self._unreadable += 1
            if self._unreadable == 1:
                _log.warning("codex.unreadable_line", upstream=self._name, bytes=len(line))
        elif not message.method:
            self._receive_response(message)
        elif message.id is not None:
            self._receive_request(line, message)
        else:
            self._log_unknown_kind(message.method)
            listener = self.listeners.get(message.thread_id)
            if listener is not None:
                listener.notification_received(line, message)

    def _log_unknown_kind(self, method: str) -> None:
        """Log each unknown kind of notification once: Codex is newer than the table of kinds."""
        kind = method[:_LONGEST_KIND]
        if kind in self._kinds or len(self._kinds) >= _MOST_KINDS:
            return
        self._kinds.add(kind)
        if not is_known(method):
            _log.info("codex.unknown_notification", upstream=self._name, method=self._clean(kind))

    def _receive_response(self, message: Incoming) -> None:
        future = self._waiting.get(message.id) if isinstance(message.id, int) else None
        if future is None or future.done():
            return
        if message.error is not None:
            future.set_exception(_RpcError(message.error.message))
        else:
            future.set_result(message.result)

    def _receive_request(self, line: bytes, message: Incoming) -> None:
        """Answer every request: an unanswered one would block its turn for ever."""
        assert message.id is not None
        listener = self.listeners.get(message.thread_id)
        if listener is not None:
            listener.request_received(line, message)
            return
        accept = self._settings.approvals == "auto"
        result = answer(message.method, params_of(line), accept=accept)
        if result is None:
            self.refuse(message.id)
        else:
            self.answer(message.id, result)

    def refuse(self, request_id: int | str) -> None:
        """Refuse a request of a kind that the server does not support."""
        error = {"code": METHOD_NOT_FOUND, "message": "this client does not answer it"}
        with suppress(UndeliveredError):
            self._write({"id": request_id, "error": error})

    def _fail(self, error: UpstreamError) -> None:
        """Mark the process as unusable and fail everything that waits for it."""
        if self.failure is not None:
            return
        self.failure = error
        _log.warning("codex.ended", upstream=self._name, pid=self.pid, cause=error.cause)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        for listener in list(self.listeners.values()):
            listener.failed(error)
        self._kill()

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    async def stop(self) -> None:
        """End the process and its children: close its input, then kill them."""
        if self._child is None:
            return
        if self.failure is None:
            self.failure = messages.ended(self._name, "it was stopped")
            for listener in list(self.listeners.values()):
                listener.failed(self.failure)
        await self._child.stop(self._settings.stop_seconds, self._tasks)


class _RpcError(Exception):
    """An answer that is an error."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
