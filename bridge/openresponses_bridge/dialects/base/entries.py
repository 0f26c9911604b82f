"""The input of a request as a list of entries with their places, for every dialect, and what reading it
finds: the tools that it declares, the calls and their outputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.calls.declarations import TOOL_BEARERS, DeclaredTool, located, tools_of
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import CALL_TYPES, OUTPUT_TYPES, View, call_view, output_view
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.ids import free_id
from openresponses_bridge.protocol.input_items import InputItem, MessageParam, items_of
from openresponses_bridge.protocol.items import Item
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.unknown import Unknown

AnyItem = InputItem | Item
HISTORY: Final = "previous_response_id"  # what is wrong in earlier turns is reported as wrong with the link
_INPUT: Final = "input"


class Entry(Struct, frozen=True):
    """One item; `param` is its place in errors, `where` in diagnostics."""

    item: AnyItem
    param: str
    where: str

    def at(self, field: str) -> str:
        """Return the path of a field of the item, such as `input[0].content`. Items of earlier turns and a
        text input have no fields in the client's request."""
        return self.param if self.param in (HISTORY, _INPUT) else f"{self.param}.{field}"


TOOL_CHANGES: Final = frozenset({"anthropic:tool_addition", "anthropic:tool_removal"})
"""The types of Anthropic's items that change which tools are offered from there on."""


def entries_of(
    request: CreateResponse, history: Iterable[AnyItem], *, tool_changes: bool = False
) -> list[Entry]:
    """Return the items of earlier turns, then the request's own. Without `tool_changes`, items that change
    the tools are left out, since the request's tools follow them."""
    entries: list[Entry] = []
    for index, item in enumerate(history):
        entries.append(Entry(item, HISTORY, f"history[{index}]"))
    whole = isinstance(request.input, str)
    for index, item in enumerate(items_of(request.input)):
        if item.type in TOOL_CHANGES and not tool_changes:
            continue
        place = _INPUT if whole else f"{_INPUT}[{index}]"
        entries.append(Entry(item, place, place))
    return entries


def before_own(entries: Sequence[Entry], own: int) -> int | None:
    """Return the number of entries of earlier turns; None if the request's own are not `own`, since places
    that were counted among that number are invalid then."""
    earlier = sum(entry.param == HISTORY for entry in entries)
    return earlier if len(entries) - earlier == own else None


def active_tools(request: CreateResponse, entries: Iterable[Entry]) -> list[DeclaredTool]:
    """Return the request's tools, followed by those that its input declares, in order."""
    tools = located(request.tools, "tools") if request.tools else []
    for entry in entries:
        if entry.item.type in TOOL_BEARERS:
            tools += located(tools_of(entry.item), f"{entry.where}.tools")
    return tools


_FEWEST: Final = 2  # entries; a call that recurs, or an output that is sent again, needs more


def settled_calls(entries: Sequence[Entry], diagnostics: Diagnostics) -> Sequence[Entry]:
    """Return the entries with each call under an id of its own, and each output once.

    Agents number their calls in each turn anew (`terminal:0`), which upstreams that look for ids in the whole
    conversation refuse or mix up: a later call with the id, and its output, get the first free one. Clients
    that keep a history in addition to `previous_response_id` repeat outputs of calls in earlier turns: one
    that is the same is left out. Both are repairs; other outputs without a call are left for `pair` to
    refuse.
    """
    if len(entries) <= _FEWEST:
        return entries
    taken: dict[str, int] = {}
    waiting: dict[str, _Unanswered] = {}
    turn = 0
    answered: dict[str, Any] = {}  # in earlier turns
    settled: list[Entry] = []
    for entry in entries:
        item: Any = entry.item
        turn += getattr(item, "role", None) == "user"
        is_call, is_output = item.type in CALL_TYPES, item.type in OUTPUT_TYPES
        if isinstance(item, Unknown) or not (is_call or is_output) or not item.call_id:
            settled.append(entry)
        elif is_call:
            call = _Waiting(free_id(taken, item.call_id))
            taken[call.call_id] = 1
            for name in {item.call_id, item.id or ""} - {""}:
                waiting.setdefault(name, _Unanswered()).add(call, turn)
            settled.append(_renamed(entry, call.call_id, diagnostics))
        else:
            known = waiting.get(item.call_id)
            answers = None if known is None else known.next()
            if answers is not None:
                if entry.param == HISTORY:
                    answered[item.call_id] = getattr(item, "output", item)
                unchanged = answers.call_id == item.call_id or item.call_id not in taken
                settled.append(entry if unchanged else _renamed(entry, answers.call_id, diagnostics))
            elif item.call_id in answered and answered[item.call_id] == getattr(item, "output", item):
                diagnostics.repair(entry.where, "its call already has an output, left out")
            else:
                settled.append(entry)
    return settled


class _Waiting:
    """A call under its own id, and whether it has an output."""

    __slots__ = ("answered", "call_id")

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.answered = False


class _Unanswered:
    """Calls of one name that wait for outputs. The oldest since the user's last message comes first, since
    earlier calls were given up."""

    __slots__ = ("_earlier", "_latest", "_turn")

    def __init__(self) -> None:
        self._turn = 0
        self._latest: deque[_Waiting] = deque()
        self._earlier: deque[_Waiting] = deque()

    def add(self, call: _Waiting, turn: int) -> None:
        if turn != self._turn:
            self._earlier += self._latest
            self._latest, self._turn = deque(), turn
        self._latest.append(call)

    def next(self) -> _Waiting | None:
        """Return the call that the next output answers; None if there is none."""
        for calls in (self._latest, self._earlier):
            while calls:
                call = calls.popleft()
                if not call.answered:
                    call.answered = True
                    return call
        return None


def _renamed(entry: Entry, call_id: str, diagnostics: Diagnostics) -> Entry:
    item: Any = entry.item
    if item.call_id == call_id:
        return entry
    diagnostics.repair(f"{entry.where}.call_id", "used by an earlier call, made unique")
    return replace(entry, item=replace(item, call_id=call_id))


def views_of(entries: Iterable[Entry], identities: ToolIdentityMap) -> list[View]:
    """Return each entry as a function call or its output; None for any other entry."""
    views: list[View] = []
    for entry in entries:
        item = entry.item
        is_message = type(item) is MessageParam  # as most are
        views.append(None if is_message else call_view(item, identities) or output_view(item, identities))
    return views
