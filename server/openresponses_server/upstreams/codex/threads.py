"""Which thread of Codex a request goes on with: the one that has seen what the request says came before.

A conversation is known by what both sides have seen of it, whatever brought its history: a client, a
`previous_response_id`, a conversation. What a thread has seen is kept as one hash, of the messages without
their ids, in which what the assistant says in several messages is one text. A thread is never taken for a
history that it has not seen: such a request gets a new one, with its history.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from openresponses_bridge.dialects.codex import OWN, user_input
from openresponses_bridge.protocol.codec import encode
from openresponses_server.upstreams.codex.process import CodexProcess
from openresponses_server.upstreams.codex.turns import Turn

_ASSISTANT: Final = "assistant"


class TurnRequest(Struct):
    """What the dialect makes of a request; see `openresponses_bridge.dialects.codex.request`."""

    model: str | None
    instructions: str | None
    history: list[dict[str, Any]]
    input: list[dict[str, Any]]
    effort: str | None
    summary: str | None
    output_schema: dict[str, Any] | None
    approvals: list[dict[str, Any]]


class Seen:
    """What was seen of a conversation, in order: the history of a request, and what follows."""

    def __init__(self, owner: str, conversation: str, request: TurnRequest) -> None:
        begun = [owner, conversation, request.model, request.instructions]
        self._hash = hashlib.sha256(encode(begun))
        self._said: list[str] = []
        self.add(request.history)

    def add(self, items: Iterable[dict[str, Any]]) -> None:
        """Items of a history."""
        for item in items:
            if item.get(OWN):
                continue
            role = item.get("role")
            if role == _ASSISTANT:
                self.say(part.get("text", "") for part in item["content"])
            elif role == "user":
                self._settle()
                self.add_input([user_input(part) for part in item["content"]])
            else:
                self._settle()
                self._hash.update(encode(item))

    def add_input(self, parts: Iterable[dict[str, Any]]) -> None:
        """The parts of a user's messages, as a turn starts with them: of several messages or of one."""
        self._settle()
        for part in parts:
            self._hash.update(encode(part))

    def say(self, texts: Iterable[str]) -> None:
        """What the assistant said."""
        self._said += texts

    def digest(self) -> bytes:
        """All of it."""
        self._settle()
        return self._hash.digest()

    def _settle(self) -> None:
        said = "".join(self._said).strip()
        self._said = []
        if said:
            self._hash.update(encode([_ASSISTANT, said]))


class Thread:
    """A thread of a process, and what it has `seen`. `turn` is the one that runs."""

    def __init__(self, thread_id: str, process: CodexProcess, seen: Seen, owner: str) -> None:
        self.id = thread_id
        self.process = process
        self.seen = seen
        self.owner = owner
        self.turn: Turn | None = None


class IdleThreads:
    """Threads between two turns by what they have seen, the one that was used last at the end."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._threads: OrderedDict[bytes, Thread] = OrderedDict()

    def __len__(self) -> int:
        return len(self._threads)

    def put(self, thread: Thread, state: bytes) -> list[Thread]:
        """Its turn has ended. Those that are dropped for it: one that has seen the same, and the one that was
        not used for the longest time."""
        same = self._threads.pop(state, None)
        self._threads[state] = thread
        dropped = [] if same is None else [same]
        if len(self._threads) > self._most:
            dropped.append(self._threads.popitem(last=False)[1])
        return dropped

    def take(self, state: bytes) -> Thread | None:
        """The one that has seen this, if its process still runs. It is not idle any more."""
        found = self._threads.pop(state, None)
        return None if found is None or found.process.failure is not None else found

    def forget(self, process: CodexProcess) -> None:
        """The process has ended."""
        for state in [state for state, each in self._threads.items() if each.process is process]:
            del self._threads[state]
