"""Which call a fragment of a tool call belongs to: one resolver for all that servers send.

A good stream numbers its calls, and gives id and name with the first fragment of each. Real ones also
send whole calls in one chunk, interleave them, put two calls on one index, leave the index out, repeat
id and name or blank them, and name a call late (field cases 1-5). Every call found here gets a slot of
its own, and each guess is noted as a repair.

What decides, in this order: an id that was seen before; the index; the call that is still open.
"""

from __future__ import annotations

import re
from io import StringIO
from typing import Any, NamedTuple

import msgspec

from bridge.diagnostics import Diagnostics
from bridge.dialects.chat_completions.types import ChatFunction, ChatToolCall
from bridge.tools.json_text import JsonState, json_state
from bridge.tools.nesting import Nesting

LEGACY_INDEX = -1  # the one call of the old `function_call` field
_WHERE = "tool_calls"
_NO_FUNCTION = ChatFunction()
_LOOKED_BACK = 64  # calls among which the one that is unfinished is looked for
_SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
_BEGINNERS = frozenset("{[" + _SPACES)  # how arguments may begin
_ENDERS = frozenset("}]" + _SPACES)  # how whole arguments end
_BEGINNING = re.compile(r"\s*[{\[]")  # arguments may begin here


class Fragment(NamedTuple):
    """A fragment as the machine takes it. `id` and `name` stand only where they are first known."""

    slot: int
    id: str | None
    name: str | None
    arguments: str
    type: str


class Call:
    """One call as far as it has come, `last` the latest piece of its arguments. Its text is kept to know a
    call that comes again."""

    __slots__ = (
        "_nesting",
        "_read",
        "_text",
        "_whole",
        "id",
        "index",
        "last",
        "name",
        "slot",
        "type",
        "write",
    )

    def __init__(self, slot: int, index: int | None, kind: str) -> None:
        self.slot = slot
        self.index = index
        self.type = kind
        self.id = ""
        self.name = ""
        self._text = StringIO()
        self.write = self._text.write
        self.last = ""
        self._nesting = Nesting()
        self._read = 0  # characters that `_nesting` has seen
        self._whole = False  # as of then

    @property
    def arguments(self) -> str:
        return self._text.getvalue()

    @property
    def whole(self) -> bool:
        """Its arguments are complete JSON already; free text never is. Reads what came since it was
        asked, and all of it once, when the outermost bracket closes."""
        if self.type != "function" or not self.last.rstrip().endswith(("}", "]")):
            return False
        if self._read != self._text.tell():
            self._text.seek(self._read)
            self._nesting.feed(self._text.read())
            self._read = self._text.tell()
            self._whole = self._nesting.closed_once and json_state(self.arguments) is JsonState.COMPLETE
        return self._whole


class ToolCallResolver:
    """Fragments in upstream order → slots, numbered from 0 in order of appearance."""

    __slots__ = ("_by_id", "_by_index", "_calls", "_diagnostics")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._calls: list[Call] = []
        self._by_id: dict[str, Call] = {}
        self._by_index: dict[int | None, Call] = {}

    def continues(self, fragment: ChatToolCall, function: ChatFunction, arguments: object) -> Call | None:
        """The quick `resolve` of a call that goes on by these arguments, its id and name left out, blank or
        repeated, as most fragments are: the call, with the arguments as its `last`. None for whatever takes a
        closer look, with nothing done.
        """
        known = self._by_index.get(fragment.index)
        if known is None or not arguments or type(arguments) is not str:
            return None
        name, call_id, last = function.name, fragment.id, known.last
        if name and name != known.name:
            return None
        if call_id and self._by_id.get(call_id) is not known:
            return None
        if arguments[0] in _BEGINNERS and last and last[-1] in _ENDERS:
            return None
        known.last = arguments
        known.write(arguments)
        return known

    def resolve(self, fragment: ChatToolCall) -> Fragment | None:
        """The call that a streamed fragment belongs to; None when it says nothing, or nothing more."""
        call_id = fragment.id or ""
        name, arguments, kind = self._read(fragment)
        if not (call_id or name):
            if not arguments:
                return None
            known = self._by_index.get(fragment.index)
            if known is not None:
                return None if self._is_repeat(known, arguments) else self._take(known, "", "", arguments)
        if self._is_repeat(self._by_id.get(call_id), arguments):
            return None
        if fragment.index is None:
            self._repair("the index is missing")
        call = self._find(call_id, fragment.index, name, arguments) or self._open(fragment.index, kind)
        return self._take(call, call_id, name, arguments)

    def whole(self, fragment: ChatToolCall) -> Fragment:
        """A call out of a complete message: always one of its own."""
        name, arguments, kind = self._read(fragment)
        return self._take(self._open(None, kind), fragment.id or "", name, arguments)

    def _read(self, fragment: ChatToolCall) -> tuple[str, str, str]:
        custom = fragment.custom
        if custom is not None:
            return custom.name or "", custom.input or "", "custom"
        function = fragment.function or _NO_FUNCTION
        kind = "custom" if fragment.type == "custom" else "function"
        return function.name or "", self._text(function.arguments), kind

    def _text(self, arguments: str | dict[str, Any] | list[Any] | None) -> str:
        if isinstance(arguments, str):
            return arguments
        if arguments is None:
            return ""
        self._repair("arguments were parsed already, written as JSON text again")
        return msgspec.json.encode(arguments).decode()

    def _open(self, index: int | None, kind: str) -> Call:
        call = Call(len(self._calls), index, kind)
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _take(self, call: Call, call_id: str, name: str, arguments: str) -> Fragment:
        named = "" if call.name else name
        identified = "" if call.id else call_id
        call.name = call.name or name
        if call_id:
            call.id = call.id or call_id
            self._by_id[call_id] = call
        if arguments:
            call.last = arguments
            call.write(arguments)
        return Fragment(call.slot, identified or None, named or None, arguments, call.type)

    def _is_repeat(self, call: Call | None, arguments: str) -> bool:
        if call is None or not _starts_anew(call, arguments) or not _same_json(arguments, call.arguments):
            return False
        self._repair("the whole arguments came again, dropped")
        return True

    def _find(self, call_id: str, index: int | None, name: str, arguments: str) -> Call | None:
        if call_id:
            known = self._by_id.get(call_id)
            if known is not None:
                return self._of_id(known, index, name, arguments)
            return self._of_unseen_id(index, name, arguments)
        if index is None:
            return self._of_none(name, arguments)
        known = self._by_index.get(index)
        if known is not None:
            return self._unless_another(known, name, arguments, "two calls came on one index, kept apart")
        return self._of_unseen_index(index, name, arguments)

    def _of_id(self, known: Call, index: int | None, name: str, arguments: str) -> Call | None:
        if index is not None and index != known.index and index not in self._by_index:
            # its head stood on a busy index, its tail on its own (field case 2)
            self._by_index[index] = known
            self._repair("the index changed within a call, the id was followed")
        return self._unless_another(known, name, arguments, "two calls came under one id, kept apart")

    def _of_unseen_id(self, index: int | None, name: str, arguments: str) -> Call | None:
        known = self._by_index.get(index) if index is not None else self._last
        if known is None:
            return None
        if not known.id and not _is_another(known, name, arguments) and not _starts_anew(known, arguments):
            self._repair("the id came after the call's first fragment")
            return known
        if index is None:
            return None
        if not name and arguments and known.last and not known.whole:
            self._repair("the id changed within a call, the index was followed")
            return known
        self._repair("another id came on a busy index: another call")
        return None

    def _of_unseen_index(self, index: int, name: str, arguments: str) -> Call | None:
        last = self._last
        if name or last is None or not last.last or last.whole or arguments.lstrip().startswith("{"):
            return None
        self._by_index[index] = last
        self._repair("the index changed within a call, the open call was followed")
        return last

    def _of_none(self, name: str, arguments: str) -> Call | None:
        if name:
            return None if self._last is None or _is_another(self._last, name, arguments) else self._last
        unfinished = [call for call in self._calls[-_LOOKED_BACK:] if not call.whole]
        return unfinished[0] if len(unfinished) == 1 else self._last

    def _unless_another(self, known: Call, name: str, arguments: str, repair: str) -> Call | None:
        if not _is_another(known, name, arguments):
            return known
        self._repair(repair)
        return None

    @property
    def _last(self) -> Call | None:
        return self._calls[-1] if self._calls else None

    def _repair(self, what: str) -> None:
        self._diagnostics.repair(_WHERE, what)


def _is_another(known: Call, name: str, arguments: str) -> bool:
    """A name where one was given already: another call, unless it may be the same name repeated."""
    if not name or not known.name:
        return False
    return name != known.name or _starts_anew(known, arguments)


def _starts_anew(known: Call, arguments: str) -> bool:
    """These arguments begin where those of the call are complete already."""
    return _BEGINNING.match(arguments) is not None and known.whole


def _same_json(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.MsgspecError, RecursionError):
        return False
