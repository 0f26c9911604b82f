"""The input of a request as a list of entries with their places, and which output answers which call.

Chat servers refuse a call without its answer and an answer without its call, so both are refused here,
with the place of the odd one (field case 45).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bridge.diagnostics import Diagnostics
from bridge.dialects.chat_completions.tool_items import CALLS, OUTPUTS, call_key, output_key
from bridge.errors import InvalidRequestError
from bridge.protocol.input_items import InputItem, MessageParam
from bridge.protocol.items import Item

AnyItem = InputItem | Item


class Entry(NamedTuple):
    """One item; `param` names its place for errors, `where` for diagnostics."""

    item: AnyItem
    param: str
    where: str


def entries_of(given: str | Sequence[AnyItem] | None, history: Iterable[AnyItem]) -> list[Entry]:
    """Earlier turns' items, then the request's own. Faults of earlier ones are laid to the link."""
    earlier = [Entry(item, "previous_response_id", f"history[{index}]") for index, item in enumerate(history)]
    if isinstance(given, str):
        return [*earlier, Entry(MessageParam("user", given), "input", "input")]
    own = (Entry(item, f"input[{index}]", f"input[{index}]") for index, item in enumerate(given or ()))
    return [*earlier, *own]


def pair(entries: Sequence[Entry], diagnostics: Diagnostics) -> dict[int, int | None]:
    """Position of each client-side call → position of its output, None for a call that was cut.

    Raises InvalidRequestError `unpaired_tool_call`. An output is found by its call's `call_id`, else by
    its item id (field case 40).
    """
    waiting: dict[str, list[int]] = {}
    answers: dict[int, int | None] = {}
    for position, entry in enumerate(entries):
        kind = type(entry.item)
        if kind in CALLS:
            for key in call_key(entry.item):
                waiting.setdefault(key, []).append(position)
        elif kind in OUTPUTS and (key := output_key(entry.item)):
            open_calls = [call for call in waiting.get(key, ()) if call not in answers]
            if not open_calls:
                raise _unpaired(entry, f"no tool call has the call_id {key!r} that this output names")
            answers[open_calls[0]] = position
    for position, entry in enumerate(entries):
        if type(entry.item) in CALLS and position not in answers and call_key(entry.item):
            if getattr(entry.item, "status", None) != "incomplete":
                raise _unpaired(entry, f"no tool output found for the call {call_key(entry.item)[0]!r}")
            diagnostics.loss(entry.where, "a call that was cut and never run, left out")
            answers[position] = None
    return answers


def _unpaired(entry: Entry, message: str) -> InvalidRequestError:
    return InvalidRequestError(InvalidRequestError.UNPAIRED_CALL, message, param=entry.param)
