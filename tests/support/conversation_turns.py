"""The scripts of a Chat upstream for the turns of one conversation."""

import json
from typing import Any

from tests.support.upstream import DONE, Script, ScriptedUpstream, call, chunk, frame

_USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


class InTurn(dict[str, Script]):
    """Scripts for consecutive requests, whatever model each names."""

    def __init__(self, *scripts: Script) -> None:
        super().__init__()
        self.left = list(scripts)

    def get(self, key: str, default: Any = None, /) -> Any:
        return self.left.pop(0) if self.left else default


def calls(*wanted: tuple[str, str, Any]) -> Script:
    """A turn of calls, (call id, function, arguments) each, whose arguments arrive in three pieces."""
    steps = [chunk(role="assistant", content=None)]
    for index, (call_id, name, arguments) in enumerate(wanted):
        text = json.dumps(arguments)
        third = len(text) // 3 + 1
        steps.append(call(index, "", name, call_id))
        steps += [call(index, text[at : at + third]) for at in range(0, len(text), third)]
    return Script([*steps, chunk("tool_calls"), frame(choices=[], usage=_USAGE), DONE])


def said(*pieces: str, reasoning: str = "", finish_reason: str = "stop") -> Script:
    """A turn of text, with reasoning before it."""
    steps = [chunk(role="assistant", content="")]
    steps += [chunk(reasoning_content=reasoning)] if reasoning else []
    steps += [chunk(content=piece) for piece in pieces]
    return Script([*steps, chunk(finish_reason), frame(choices=[], usage=_USAGE), DONE])


def tool_names(upstream: ScriptedUpstream, request: int = -1) -> set[str]:
    """The names of the functions that a request offered to the upstream's model."""
    return {tool["function"]["name"] for tool in upstream.received[request].body.get("tools", [])}


def results(upstream: ScriptedUpstream, request: int = -1) -> dict[str, str]:
    """Return the output of each tool by its call id, as that request sent it to the upstream's model."""
    messages = upstream.received[request].body["messages"]
    return {each["tool_call_id"]: each["content"] for each in messages if each["role"] == "tool"}
