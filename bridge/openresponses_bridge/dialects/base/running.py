"""Code that the upstream runs in a container: the tool in OpenAI's terms, and what was run."""

from __future__ import annotations

from typing import Final, NamedTuple

from openresponses_bridge.protocol.hosted import CodeInterpreterCall, view
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.unknown import UnknownItem, UnknownTool

RUN_CALL: Final = "code_interpreter_call"
"""In the types of the item and of the events that show its progress."""
RUN_OUTPUTS: Final = f"{RUN_CALL}.outputs"
"""The value of `include` that asks for what the code printed."""


def run_tool() -> UnknownTool:
    """Return the tool with which a model runs code in a new container."""
    return UnknownTool({"type": "code_interpreter", "container": {"type": "auto"}})


class RunCode(NamedTuple):
    """A piece of code and what it printed. `others` is the number of its outputs without text; `container` is
    the id of its container, "" if it has none."""

    code: str
    output: str
    failed: bool
    others: int
    container: str


def code_run(item: Item) -> RunCode | None:
    """Return the code that such an item ran; None for any other item."""
    call = view(item) if isinstance(item, UnknownItem) else None
    if not isinstance(call, CodeInterpreterCall):
        return None
    outputs = call.outputs or []
    logs = [each["logs"] for each in outputs if isinstance(each.get("logs"), str)]
    others = len(outputs) - len(logs)
    return RunCode(
        call.code or "", "".join(logs), call.status != "completed", others, call.container_id or ""
    )
