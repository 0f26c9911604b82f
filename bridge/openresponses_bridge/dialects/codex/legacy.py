"""The older notifications, `codex/event/<name>`, and the still older ones of the plain protocol.

Codex sends the same in two spellings there, side by side: with an item's id and without
(`agent_message_content_delta` and `agent_message_delta`), whole by item and whole by text. The spelling that
comes first is used.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from openresponses_bridge.dialects.codex.turn import SLUG, TurnEmitter, approval
from openresponses_bridge.dialects.codex.types import (
    Notification,
    count_of,
    list_of,
    object_of,
    snake,
    text_of,
)
from openresponses_bridge.protocol.events import Event

_COMMAND = SLUG + "command_execution"
_FILES = SLUG + "file_change"
_MCP = SLUG + "mcp_tool_call"
_SEARCH = SLUG + "web_search"

_BOOKKEEPING = frozenset({"type", "call_id", "turn_id", "thread_id"})
_Handler = Callable[["Legacy", dict[str, Any]], list[Event]]


def _once(what: str, spelling: str, handler: _Handler) -> _Handler:
    """Return a handler of one spelling of something that has several."""
    return lambda legacy, body: handler(legacy, body) if legacy.is_first_spelling(what, spelling) else []


class Legacy:
    """Reads the older generation into the turn."""

    def __init__(self, turn: TurnEmitter) -> None:
        self._turn = turn
        self._spellings: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._part = 0
        self._said = False

    def read(self, said: Notification) -> list[Event]:
        """Read one notification that has a handler."""
        return self.handlers[said.name](self, said.body)

    def is_first_spelling(self, what: str, spelling: str) -> bool:
        """Return True if this spelling came before the others."""
        return self._spellings.setdefault(what, spelling) == spelling

    # One message and one reasoning item are open at a time, each identified by the first id that came for it.
    def _id(self, what: str, item_id: Any) -> str:
        return self._ids.setdefault(what, text_of(item_id))

    def _message(self, body: dict[str, Any]) -> list[Event]:
        self._said = True
        return self._turn.message(self._id("message", body.get("item_id")), text_of(body.get("delta")))

    def _whole(self, upstream_id: Any, text: str) -> list[Event]:
        self._said = True
        item_id = self._id("message", upstream_id)
        del self._ids["message"]
        return self._turn.message_done(item_id, text)

    def _message_whole(self, body: dict[str, Any]) -> list[Event]:
        return self._whole("", text_of(body.get("message")))

    def _raw(self, body: dict[str, Any]) -> list[Event]:
        return self._turn.reasoning(self._id("reasoning", body.get("item_id")), text_of(body.get("delta")))

    def _summary(self, body: dict[str, Any]) -> list[Event]:
        item_id, part = self._id("reasoning", body.get("item_id")), body.get("summary_index")
        number = self._part if part is None else count_of(part)
        return self._turn.summary(item_id, text_of(body.get("delta")), number)

    def _section_break(self, body: dict[str, Any]) -> list[Event]:
        self._part = count_of(body.get("summary_index"))
        return []

    def _reasoning_whole(self, upstream_id: Any, summary: list[str], raw: list[str]) -> list[Event]:
        item_id = self._id("reasoning", upstream_id)
        del self._ids["reasoning"]
        self._part = 0
        return self._turn.reasoning_done(item_id, summary, raw)

    def _summary_whole(self, body: dict[str, Any]) -> list[Event]:
        return self._reasoning_whole("", [text_of(body.get("text"))], [])

    def _raw_whole(self, body: dict[str, Any]) -> list[Event]:
        return self._reasoning_whole("", [], [text_of(body.get("text"))])

    def _item_started(self, body: dict[str, Any]) -> list[Event]:
        item = object_of(body.get("item"))
        if item.get("type") != "AgentMessage":
            return []
        return self._turn.message_begin(self._id("message", item.get("id")), item.get("phase"))

    def _item_completed(self, body: dict[str, Any]) -> list[Event]:
        item = object_of(body.get("item"))
        kind = item.get("type")
        if kind == "AgentMessage" and self.is_first_spelling("message", "item_completed"):
            pieces = [text_of(object_of(part).get("text")) for part in list_of(item.get("content"))]
            return self._whole(item.get("id"), "".join(pieces) or text_of(item.get("text")))
        if kind == "Reasoning" and self.is_first_spelling("reasoning", "item_completed"):
            summary = [text_of(text) for text in list_of(item.get("summary_text"))]
            raw = [text_of(text) for text in list_of(item.get("raw_content"))]
            return self._reasoning_whole(item.get("id"), summary, raw)
        return []

    def _begin(self, kind: str, body: dict[str, Any]) -> list[Event]:
        return self._turn.hosted_begin(kind, text_of(body.get("call_id")), _plain(body))

    def _done(self, kind: str, body: dict[str, Any], outcome: str) -> list[Event]:
        return self._turn.hosted_done(kind, text_of(body.get("call_id")), outcome, _plain(body))

    def _output(self, body: dict[str, Any]) -> list[Event]:
        call_id = text_of(body.get("call_id"))
        return self._turn.hosted_output(call_id, text_of(body.get("chunk")), encoded=True)

    def _command_begin(self, body: dict[str, Any]) -> list[Event]:
        return self._begin(_COMMAND, _command(body))

    def _command_end(self, body: dict[str, Any]) -> list[Event]:
        outcome = "completed" if body.get("exit_code") == 0 else "failed"
        return self._done(_COMMAND, _command(body), outcome)

    def _patch_begin(self, body: dict[str, Any]) -> list[Event]:
        return self._begin(_FILES, _patch(body))

    def _patch_end(self, body: dict[str, Any]) -> list[Event]:
        return self._done(_FILES, _patch(body), "completed" if body.get("success") else "failed")

    def _approval(self, kind: str, body: dict[str, Any]) -> list[Event]:
        return approval(self._turn, kind, body.get("call_id"), body)

    def _usage(self, body: dict[str, Any]) -> list[Event]:
        info = object_of(body.get("info"))
        return self._turn.usage(info) if info else []

    def _stream_error(self, _: dict[str, Any]) -> list[Event]:
        self._turn.diagnostics.warning("error", "the upstream failed and tries again")
        return []

    def _task_complete(self, body: dict[str, Any]) -> list[Event]:
        last = "" if self._said else text_of(body.get("last_agent_message"))
        return self._turn.message("", last) + self._turn.finish()

    handlers: ClassVar[Mapping[str, _Handler]] = {
        "item_started": _item_started,
        "item_completed": _item_completed,
        "exec_command_begin": _command_begin,
        "exec_command_output_delta": _output,
        "exec_command_end": _command_end,
        "patch_apply_begin": _patch_begin,
        "patch_apply_end": _patch_end,
        "mcp_tool_call_begin": lambda self, body: self._begin(_MCP, body),
        "mcp_tool_call_end": lambda self, body: self._done(_MCP, body, "completed"),
        "web_search_begin": lambda self, body: self._begin(_SEARCH, body),
        "web_search_end": lambda self, body: self._done(_SEARCH, body, "completed"),
        "exec_approval_request": lambda self, body: self._approval("exec", body),
        "apply_patch_approval_request": lambda self, body: self._approval("apply_patch", body),
        "token_count": _usage,
        "agent_reasoning_section_break": _section_break,
        "error": lambda self, body: self._turn.fail(body),
        "stream_error": _stream_error,
        "turn_aborted": lambda self, _body: self._turn.cancel(),
        "task_complete": _task_complete,
    } | {
        spelling: _once(what, spelling, handler)
        for spelling, what, handler in (
            ("agent_message_content_delta", "text", _message),
            ("agent_message_delta", "text", _message),
            ("agent_message", "message", _message_whole),
            ("reasoning_content_delta", "summary", _summary),
            ("agent_reasoning_delta", "summary", _summary),
            ("reasoning_raw_content_delta", "raw", _raw),
            ("agent_reasoning_raw_content_delta", "raw", _raw),
            ("agent_reasoning", "reasoning", _summary_whole),
            ("agent_reasoning_raw_content", "reasoning", _raw_whole),
        )
    }


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    return {snake(name): value for name, value in body.items() if name not in _BOOKKEEPING}


def _command(body: dict[str, Any]) -> dict[str, Any]:
    """Return a command's facts in the app-server's form: one line, milliseconds, one output."""
    fields = {name: value for name, value in body.items() if name not in _COMMAND_TWINS}
    argv, duration = body.get("command"), object_of(body.get("duration"))
    if isinstance(argv, list):
        fields["command"] = shlex.join(text_of(word) for word in argv)
    if duration:
        seconds, nanos = count_of(duration.get("secs")), count_of(duration.get("nanos"))
        fields["duration_ms"] = seconds * 1000 + nanos // 10**6
    if "aggregated_output" not in fields and "stdout" in body:
        fields["aggregated_output"] = text_of(body.get("stdout")) + text_of(body.get("stderr"))
    return fields


_COMMAND_TWINS = frozenset({"parsed_cmd", "stdout", "stderr", "formatted_output", "duration"})


def _patch(body: dict[str, Any]) -> dict[str, Any]:
    """Return a patch's facts in the app-server's form: a list of changes."""
    changes = [
        {
            "path": path,
            "kind": {"type": text_of(object_of(change).get("type"))},
            "diff": text_of(object_of(change).get("unified_diff") or object_of(change).get("content")),
        }
        for path, change in object_of(body.get("changes")).items()
    ]
    return {**body, "changes": changes}
