"""One turn as it is read: what Codex says of it, up to its end or to a question for the client."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final, NamedTuple

from openresponses_bridge.dialects.codex import turn_paused
from openresponses_server.errors import UpstreamError
from openresponses_server.settings import CodexSettings
from openresponses_server.upstreams.codex import errors
from openresponses_server.upstreams.codex.approvals import QUESTIONS, answer
from openresponses_server.upstreams.codex.messages import Incoming, params_of, said_in
from openresponses_server.upstreams.codex.process import CodexProcess

_OURS: Final = "bridge/"  # what only we may say
_RESOLVED: Final = "serverRequest/resolved"
_ONE_LINE: Final = bytes.maketrans(b"\r", b" ")  # within JSON a white space, in a stream of events an end
_MOST_QUESTIONS: Final = 64  # that wait at once


class Question(NamedTuple):
    """What Codex waits for: its own id for the answer, and the request as it came."""

    request_id: int | str
    method: str
    line: bytes


class Turn:
    """A listener of one thread, from the turn's start to its end. `over` when Codex has ended it, `whole`
    when by itself; `questions` are those that its client has not answered, by the ids that it knows."""

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
        self.questions: dict[str, Question] = {}

    # ── from Codex ─────────────────────────────────────────────────────────────────────────────────
    def heard(self, line: bytes, message: Incoming) -> None:
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

    def asked(self, line: bytes, message: Incoming) -> None:
        assert message.id is not None
        question = QUESTIONS.get(message.method)
        if question is None:
            self._process.refuse(message.id)
        elif question.asks and self._settings.approvals == "ask" and len(self.questions) < _MOST_QUESTIONS:
            approval_id = f"apr_{secrets.token_hex(16)}"
            self.questions[approval_id] = Question(message.id, message.method, line)
            self._shown = False
            self._changed.set()
        else:
            accept = self._settings.approvals == "auto"
            self._process.answer(message.id, answer(message.method, params_of(line), accept=accept))

    def lost(self, error: UpstreamError) -> None:
        self.error = self.error or error
        self._changed.set()

    def _add(self, line: bytes) -> None:
        if self.error is not None:
            return
        self._lines.append(line)
        self._size += len(line)
        self._changed.set()
        if self._size > self._settings.turn_bytes:
            self.error = errors.slow_client(self._name, self._settings.turn_bytes)
            self._lines, self._size = [], 0

    # ── for the client ─────────────────────────────────────────────────────────────────────────────
    @property
    def paused(self) -> bool:
        """It waits for its client, which knows what for."""
        return bool(self.questions) and self._shown and not self.over and self.error is None

    def resolve(self, approvals: dict[str, bool]) -> None:
        """Answer these questions. Those that are left are shown again."""
        self._shown = False
        for approval_id, accept in approvals.items():
            asked = self.questions.pop(approval_id, None)
            if asked is not None:
                given = answer(asked.method, params_of(asked.line), accept=accept)
                self._process.answer(asked.request_id, given)

    def _pause(self) -> bytes:
        self._shown = True
        return turn_paused(
            (approval_id, QUESTIONS[asked.method].kind, params_of(asked.line))
            for approval_id, asked in self.questions.items()
        )

    async def read(self, idle: float) -> bytes:
        """What has come, as a stream of events; b"" at the end. Raises UpstreamError, after what came before
        it has been taken."""
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
                raise errors.silent(self._name, "say anything") from error
        lines, self._lines, self._size = self._lines, [], 0
        return b"".join(b"data: " + line.translate(_ONE_LINE) + b"\n\n" for line in lines)

    async def ended(self) -> None:
        """Wait until it is over or lost."""
        while not self.over and self.error is None:
            await self.change()

    async def change(self) -> None:
        """Wait until something has come."""
        self._changed.clear()
        await self._changed.wait()
