"""The steps of tools that Google runs ↔ items.

A call and its result are two steps but one item: a search, code that was run, a call of an MCP server's tool.
Any other step is an item of its own. An item has the steps that it was made of, so that they are sent back
unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from openresponses_bridge.calls.json_text import tool_input
from openresponses_bridge.dialects.base import (
    RUN_CALL,
    SEARCH_CALL,
    code_run,
    extension,
    object_in,
    searched,
)
from openresponses_bridge.dialects.interactions.types import CALLS, SLUG, STEPS, Json
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.hosted import kind_of, work_of
from openresponses_bridge.protocol.unknown import UnknownItem

_SEARCH: Final = "google_search_call"
_CODE: Final = "code_execution_call"
_MCP: Final = "mcp_server_tool_call"
_MCP_CALL: Final = "mcp_call"


class HostedSteps:
    """Reads the steps of a list in order, and joins a result to the call directly before it."""

    __slots__ = ("_call",)

    def __init__(self) -> None:
        self._call: Json | None = None

    def step(self, step: Json) -> list[UnknownItem]:
        """Read the next step. Returns the items that it completes."""
        call, self._call = self._call, None
        kind = step.get("type")
        if call is not None and _answers(step, call):
            return [_item(call, step)]
        before = [] if call is None else [_item(call)]
        if kind in CALLS:
            self._call = step
            return before
        return [*before, _item(step)]

    def end(self) -> list[UnknownItem]:
        """Return the item of a call without a result after it."""
        call, self._call = self._call, None
        return [] if call is None else [_item(call)]


def _answers(step: Json, call: Json) -> bool:
    is_result = step.get("type") == CALLS[call["type"]]
    return is_result and step.get("call_id") in (None, "", call.get("id"))


def _item(*steps: Json) -> UnknownItem:
    call, result = steps[0], steps[1] if len(steps) > 1 else {}
    kind = call["type"]
    named = call.get("id")
    fields: Json = {"type": extension(SLUG, kind), "id": "", "status": "completed", STEPS: list(steps)}
    failed = result.get("is_error") is True
    arguments = object_in(call, "arguments")
    if kind == _SEARCH:
        queries = _texts(arguments.get("queries"))
        action: Json = {"type": "search", "query": queries[0] if queries else ""}
        fields |= {"type": SEARCH_CALL, "action": action | ({"queries": queries} if queries[1:] else {})}
    elif kind == _CODE:
        printed = result.get("result")
        logs = [{"type": "logs", "logs": printed}] if isinstance(printed, str) else []
        code = arguments.get("code")
        fields |= {"type": RUN_CALL, "code": code if isinstance(code, str) else "", "outputs": logs}
    elif kind == _MCP:
        output = result.get("result")
        fields |= {
            "type": _MCP_CALL,
            "server_label": _text(call.get("server_name")),
            "name": _text(call.get("name")),
            "arguments": encode(arguments).decode(),
            "output": output if isinstance(output, str) else encode(output).decode() if steps[1:] else None,
            "error": None,
        }
    if failed:
        fields["status"] = "failed"
    return UnknownItem(fields | ({"id": named} if isinstance(named, str) else {}))


def steps_of(item: Any) -> list[Json] | None:
    """Return the steps of an item: those that it was made of, or others that mean the same. None if this API
    has no steps for the item."""
    if not isinstance(item, UnknownItem):
        return None
    own_steps = item.raw.get(STEPS)
    if isinstance(own_steps, list) and own_steps and all(isinstance(each, dict) for each in own_steps):
        return own_steps
    search = searched(item)
    if search is not None and search.kind == "search":
        queries = search.query.split(" / ") if search.query else []
        return _made(item, _SEARCH, {"arguments": {"queries": queries}}, [], failed=search.failed)
    if (ran := code_run(item)) is not None:
        call: Json = {"arguments": {"language": "python", "code": ran.code}}
        return _made(item, _CODE, call, ran.output, failed=ran.failed)
    work = work_of(item) if kind_of(item) == _MCP_CALL else None
    if work is None:
        return None
    arguments = work.input if isinstance(work.input, str) else "{}"
    called = {"name": work.name, "server_name": work.server_label}
    output = work.error or work.result or ""
    steps = _made(item, _MCP, called | {"arguments": tool_input(arguments)}, output)
    steps[1] |= called
    return steps


def _made(item: UnknownItem, kind: str, call: Json, result: Any, *, failed: bool = False) -> list[Json]:
    answer: Json = {"type": CALLS[kind], "call_id": item.id, "result": result}
    return [{"type": kind, "id": item.id} | call, answer | ({"is_error": True} if failed else {})]


def _texts(value: Any) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
