"""One turn: Codex's messages, up to its end or to a question for the client; and the threads between
turns."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from msgspec import Struct

from openresponses_bridge.dialects.codex import OWN, turn_paused, user_input
from openresponses_bridge.protocol.codec import encode
from openresponses_server.errors import UpstreamError
from openresponses_server.settings import CodexSettings
from openresponses_server.upstreams.codex import messages
from openresponses_server.upstreams.codex.messages import QUESTIONS, Incoming, answer, params_of, said_in
from openresponses_server.upstreams.codex.process import CodexProcess

_OURS: Final = "bridge/"  # types that only this server may send
_RESOLVED: Final = "serverRequest/resolved"
_ONE_LINE: Final = bytes.maketrans(b"\r", b" ")  # white space in JSON, but a line end in a stream of events
_MOST_QUESTIONS: Final = 64  # that wait at once


class CodexRequest(NamedTuple):
    """A question of Codex: its own id for the answer, and the request as received."""

    request_id: int | str
    method: str
    line: bytes


class CodexTurn:
    """The listener of one thread during a turn. `over`: the turn has ended; `whole`: it completed.
    `questions` are those that the client has not answered, by the ids that the client knows."""

    def __init__(self, name: str, process: CodexProcess, settings: CodexSettings) -> None:
        self._name = name
        self._process = process
        self._settings = settings
        self._lines: list[bytes] = []
        self._size = 0
        self._changed = asyncio.Event()
        self.id = ""
        self.over = False
        self.whole = False
        self._shown = False
        self.error: UpstreamError | None = None
        self.said: list[str] = []
        self.questions: dict[str, CodexRequest] = {}

    def notification_received(self, line: bytes, message: Incoming) -> None:
        turn_id = message.turn_id
        if self.over or message.method.startswith(_OURS) or message.method == _RESOLVED:
            return
        if message.method == "turn/started" and not self.id:
            self.id = turn_id
        if turn_id and self.id and turn_id != self.id:
            return
        if message.method == "item/completed" and (text := said_in(line)):
            self.said.append(text)
        self._add(line)
        if message.method == "turn/completed":
            self.over = True
            self.whole = message.status == "completed"

    def request_received(self, line: bytes, message: Incoming) -> None:
        assert message.id is not None
        question = QUESTIONS.get(message.method)
        if question is None:
            self._process.refuse(message.id)
        elif question.asks and self._settings.approvals == "ask" and len(self.questions) < _MOST_QUESTIONS:
            approval_id = f"apr_{secrets.token_hex(16)}"
            self.questions[approval_id] = CodexRequest(message.id, message.method, line)
            self._shown = False
            self._changed.set()
        else:
            accept = self._settings.approvals == "auto"
            self._process.answer(message.id, answer(message.method, params_of(line), accept=accept))

    def failed(self, error: UpstreamError) -> None:
        self.error = self.error or error
        self._changed.set()

    def _add(self, line: bytes) -> None:
        if self.error is not None:
            return
        self._lines.append(line)
        self._size += len(line)
        self._changed.set()
        if self._size > self._settings.turn_bytes:
            self.error = messages.slow_client(self._name, self._settings.turn_bytes)
            self._lines, self._size = [], 0

    @property
    def paused(self) -> bool:
        """The turn waits for an answer of its client, which has been sent the question."""
        return bool(self.questions) and self._shown and not self.over and self.error is None

    def resolve(self, approvals: dict[str, bool]) -> None:
        """Answer these questions. Unanswered ones are shown again."""
        self._shown = False
        for approval_id, accept in approvals.items():
            question = self.questions.pop(approval_id, None)
            if question is not None:
                result = answer(question.method, params_of(question.line), accept=accept)
                self._process.answer(question.request_id, result)

    def _pause(self) -> bytes:
        self._shown = True
        return turn_paused(
            (approval_id, QUESTIONS[question.method].kind, params_of(question.line))
            for approval_id, question in self.questions.items()
        )

    async def read(self, idle: float) -> bytes:
        """The received messages, as a stream of events; b"" at the end. Raises UpstreamError after everything
        before it was read."""
        while not self._lines:
            if self.error is not None:
                raise self.error
            if self.over:
                return b""
            if self.questions and not self._shown:
                self._lines.append(self._pause())
                break
            self._changed.clear()
            try:
                async with asyncio.timeout(idle):
                    await self._changed.wait()
            except TimeoutError as error:
                raise messages.silent(self._name, "say anything") from error
        lines, self._lines, self._size = self._lines, [], 0
        return b"".join(b"data: " + line.translate(_ONE_LINE) + b"\n\n" for line in lines)

    async def ended(self) -> None:
        """Wait until the turn is over or its process has ended."""
        while not self.over and self.error is None:
            await self.change()

    async def change(self) -> None:
        """Wait for a message."""
        self._changed.clear()
        await self._changed.wait()


# A request continues the thread whose history it has.  A thread's history is stored as one hash of its
# messages, without their ids, and with the assistant's consecutive messages joined into one text. A request
# whose history no thread has gets a new thread, with its history.

_ASSISTANT: Final = "assistant"


class TurnRequest(Struct):
    """A request as the dialect encodes it; see `openresponses_bridge.dialects.codex.request`."""

    model: str | None
    instructions: str | None
    history: list[dict[str, Any]]
    input: list[dict[str, Any]]
    effort: str | None
    summary: str | None
    output_schema: dict[str, Any] | None
    approvals: list[dict[str, Any]]


class ConversationDigest:
    """The digest of a conversation, in order: the history of a request, and the items after it."""

    def __init__(self, owner: str, conversation: str, request: TurnRequest) -> None:
        begun = [owner, conversation, request.model, request.instructions]
        self._hash = hashlib.sha256(encode(begun))
        self._said: list[str] = []
        self.add(request.history)

    def add(self, items: Iterable[dict[str, Any]]) -> None:
        """Add the items of a history."""
        for item in items:
            if item.get(OWN):
                continue
            role = item.get("role")
            if role == _ASSISTANT:
                self.record(part.get("text", "") for part in item["content"])
            elif role == "user":
                self._settle()
                self.add_input([user_input(part) for part in item["content"]])
            else:
                self._settle()
                self._hash.update(encode(item))

    def add_input(self, parts: Iterable[dict[str, Any]]) -> None:
        """The parts of one or more user messages, as `turn/start` has them."""
        self._settle()
        for part in parts:
            self._hash.update(encode(part))

    def record(self, texts: Iterable[str]) -> None:
        """Add what the assistant said."""
        self._said += texts

    def digest(self) -> bytes:
        """Return the digest of everything that was added."""
        self._settle()
        return self._hash.digest()

    def _settle(self) -> None:
        text = "".join(self._said).strip()
        self._said = []
        if text:
            self._hash.update(encode([_ASSISTANT, text]))


class Thread:
    """A thread of a process, and the history that it has `seen`. `turn` is the running one."""

    def __init__(self, thread_id: str, process: CodexProcess, seen: ConversationDigest, owner: str) -> None:
        self.id = thread_id
        self.process = process
        self.seen = seen
        self.owner = owner
        self.turn: CodexTurn | None = None


class IdleThreads:
    """Threads between two turns, by the digest of their history; the last used one is at the end."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._threads: OrderedDict[bytes, Thread] = OrderedDict()

    def __len__(self) -> int:
        return len(self._threads)

    def put(self, thread: Thread, state: bytes) -> list[Thread]:
        """Add a thread whose turn has ended. Returns the threads dropped for it: one with the same history,
        and the least recently used one."""
        same = self._threads.pop(state, None)
        self._threads[state] = thread
        dropped = [] if same is None else [same]
        if len(self._threads) > self._most:
            dropped.append(self._threads.popitem(last=False)[1])
        return dropped

    def pop(self, state: bytes) -> Thread | None:
        """Remove and return the thread with this history, if its process still runs."""
        thread = self._threads.pop(state, None)
        return None if thread is None or thread.process.failure is not None else thread

    def discard(self, process: CodexProcess) -> None:
        """Remove the threads of a process that has ended."""
        for state in [state for state, each in self._threads.items() if each.process is process]:
            del self._threads[state]
