"""Conversations that end where a server accepts no end: with the assistant's text, or with calls that were
interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import CallView, unanswered
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base.entries import Entry, views_of
from openresponses_bridge.protocol import input_items as params

CONTINUE: Final = "Continue."
"""The user's message after an assistant's text that the model does not continue by itself."""
CONTINUED: Final = f"ended with the assistant's, a user's {CONTINUE!r} added"
"""The reason for that message, for diagnostics."""
UnansweredCalls = Literal["refuse", "answer"]

_NO_OUTPUT: Final = "[no output: the call was interrupted]"


def with_answers(
    entries: Sequence[Entry], identities: ToolIdentityMap, diagnostics: Diagnostics
) -> list[Entry]:
    """Return the entries, with an output for each call that has none, after the calls beside it. Raises
    InvalidRequestError for an output without its call."""
    views = views_of(entries, identities)
    missing = frozenset(unanswered(views, lambda index: entries[index].param))
    if not missing:
        return list(entries)
    result: list[Entry] = []
    answers: list[Entry] = []
    for index, entry in enumerate(entries):
        if not isinstance(views[index], CallView):
            result += answers
            answers = []
        result.append(entry)
        if index in missing:
            diagnostics.repair(entry.where, "a call without an output, answered that there is none")
            answers.append(replace(entry, item=_ANSWERS[entry.item.type](entry.item)))
    return result + answers


def _shell_answer(call: Any) -> params.ShellCallOutputParam:
    printed = {"stdout": "", "stderr": _NO_OUTPUT, "outcome": {"type": "exit", "exit_code": 1}}
    return params.ShellCallOutputParam(call.call_id, [printed])


_ANSWERS: Final[dict[str, Callable[[Any], params.InputItem]]] = {
    "function_call": lambda call: params.FunctionCallOutputParam(call.call_id, _NO_OUTPUT),
    "custom_tool_call": lambda call: params.CustomToolCallOutputParam(call.call_id, _NO_OUTPUT),
    "shell_call": _shell_answer,
    "local_shell_call": lambda call: params.LocalShellCallOutputParam(_NO_OUTPUT, call.call_id),
    "apply_patch_call": lambda call: params.ApplyPatchCallOutputParam(
        call.call_id, _NO_OUTPUT, status="failed"
    ),
    "tool_search_call": lambda call: params.ToolSearchOutputParam([], call.call_id, "client"),
}
