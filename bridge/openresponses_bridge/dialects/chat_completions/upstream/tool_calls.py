"""Decides which call a fragment of a tool call belongs to, for all forms in which servers send calls.

A good stream numbers its calls, and sends id and name with the first fragment of each. Real streams also send
whole calls in one chunk, interleave them, put two calls on one index, leave the index out, repeat or blank id
and name, and name a call late (field cases 1-5). Every call that is found gets a slot of its own, and each
guess is reported as a repair.

These decide, in this order: an id that was seen before; the index; the call that is still open. A call that
is announced twice under one id, without arguments, may be two calls or one, as their arguments show.
"""

from __future__ import annotations

import re
from io import StringIO
from operator import attrgetter
from typing import NamedTuple

from msgspec import structs

from openresponses_bridge.calls.argument_names import name_of_arguments
from openresponses_bridge.calls.json_text import JsonState, Nesting, json_state, same_json
from openresponses_bridge.calls.streamed_arguments import is_placeholder
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.chat_completions.types import ChatFunction, ChatToolCall
from openresponses_bridge.protocol import codec

LEGACY_INDEX = -1  # of the only call, in the old `function_call` field
_WHERE = "tool_calls"
_AGAIN = "the whole arguments came again, dropped"
_NO_FUNCTION = ChatFunction()
_OF_FUNCTION = ChatFunction.__struct_fields__
_fields_beside = attrgetter(*_OF_FUNCTION)
_LONGEST_PLACEHOLDER = 16  # characters
_LOOKED_BACK = 64  # calls that are searched for the unfinished one
_SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
_BEGINNERS = frozenset("{[" + _SPACES)  # how arguments may begin
_ENDERS = frozenset("}]" + _SPACES)  # how whole arguments end
_BEGINNING = re.compile(r"\s*[{\[]")  # where arguments may begin


class Fragment(NamedTuple):
    """A fragment for the machine. `id` and `name` are set only when they become known."""

    slot: int
    id: str | None
    name: str | None
    arguments: str
    type: str


class Call:
    """One call so far; `last` is the latest fragment of its arguments. Its text is kept to detect repetition.
    `displaced`: it began on the index of another call. `announced_again`: its name was repeated without
    arguments. `again`: its whole arguments, while they are repeated; `again_size` is the number of characters
    that were repeated so far."""

    __slots__ = (
        "_nesting",
        "_read",
        "_text",
        "_whole",
        "again",
        "again_size",
        "announced_again",
        "displaced",
        "id",
        "index",
        "last",
        "name",
        "slot",
        "type",
        "write",
    )

    def __init__(self, slot: int, index: int | None, kind: str, displaced: bool) -> None:
        self.slot = slot
        self.displaced = displaced
        self.announced_again = False
        self.again = ""
        self.again_size = 0
        self.index = index
        self.type = kind
        self.id = ""
        self.name = ""
        self.last = ""
        self._begin()

    def _begin(self) -> None:
        self._text = StringIO()
        self.write = self._text.write
        self._nesting = Nesting()
        self._read = 0  # characters that `_nesting` has read
        self._whole = False  # as of those characters

    def add(self, arguments: str) -> None:
        """Append arguments. After an empty object that stands for them, they are the first."""
        if self.last and self._text.tell() <= _LONGEST_PLACEHOLDER and is_placeholder(self.arguments):
            self._begin()
        self.last = arguments
        self.write(arguments)

    @property
    def arguments(self) -> str:
        return self._text.getvalue()

    @property
    def whole(self) -> bool:
        """True if the arguments are complete JSON; never for free text. Reads the arguments since the last
        check, and all of them once when the outermost bracket closes."""
        if self.type != "function" or not self.last.rstrip().endswith(("}", "]")):
            return False
        if self._read != self._text.tell():
            self._text.seek(self._read)
            self._nesting.feed(self._text.read())
            self._read = self._text.tell()
            self._whole = self._nesting.closed_once and json_state(self.arguments) is JsonState.COMPLETE
        return self._whole


class ToolCallResolver:
    """Maps fragments, in the order of the upstream, to slots, which are numbered from 0 in order of
    appearance."""

    __slots__ = ("_announced", "_by_id", "_by_index", "_calls", "_diagnostics")

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._calls: list[Call] = []
        self._by_id: dict[str, Call] = {}
        self._by_index: dict[int | None, Call] = {}
        # indexes on which one call was announced and no arguments have come yet
        self._announced: dict[int, Call] = {}

    def find_continued(
        self, fragment: ChatToolCall, function: ChatFunction, arguments: object
    ) -> Call | None:
        """Return the call that this fragment continues, with the arguments as its `last`, if id and name are
        left out, blank or repeated, as in most fragments. None, without a change, if the fragment needs a
        closer look; then `resolve` decides."""
        known = self._by_index.get(fragment.index)
        if known is None or not arguments or type(arguments) is not str or known.again:
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
        """Return a streamed fragment with the slot of its call; None if it adds nothing."""
        index, call_id = fragment.index, fragment.id or ""
        name, arguments, kind = self._read(fragment)
        known = self._by_id.get(call_id)
        if index is not None and (known or self._announced) and self._is_announced(index, call_id, name):
            return self._begin_announced(index, arguments) if arguments else None
        call = None
        if not (call_id or name):
            if not arguments:
                return None
            known = call = self._by_index.get(index)
        if known is not None and name in ("", known.name):
            if known.again:
                return self._go_on_again(known, index, arguments)
            if self._is_repeat(known, arguments, call_id and name):
                return None
        if call is None:
            if index is None:
                self._repair("the index is missing")
            call = self._find(call_id, index, name, arguments) or self._open(index, kind)
        if call.announced_again and _starts_again(call, arguments) and not is_placeholder(call.arguments):
            return self._split(call, call.index, arguments)
        return self._append(call, call_id, name, arguments)

    def whole(self, fragment: ChatToolCall) -> Fragment | None:
        """Return a call of a complete message. It is a call of its own, unless it has no name: then it may
        have the arguments of the call before, or be no call at all (None)."""
        name, arguments, kind = self._read(fragment)
        last = self._last
        if not name and not arguments:
            self._repair("an entry without a name and arguments, left out")
            return None
        if not name and last is not None and last.name and (not last.last or is_placeholder(last.arguments)):
            self._repair("the arguments came in an entry of their own")
            return self._append(last, "", "", arguments)
        return self._append(self._open(None, kind), fragment.id or "", name, arguments)

    def _read(self, fragment: ChatToolCall) -> tuple[str, str, str]:
        custom = fragment.custom
        if custom is not None and (
            custom.name or custom.input
        ):  # servers send an empty one beside a function
            return custom.name or "", custom.input or "", "custom"
        function = fragment.function or _NO_FUNCTION
        if any(_fields_beside(fragment)):
            function = self._with_fields_beside(function, fragment)
        kind = "custom" if fragment.type == "custom" else "function"
        raw = function.arguments
        if not raw or raw == "{}":
            fields = structs.asdict(function)
            raw = fields[name_of_arguments(fields, "arguments", self._diagnostics)]
        arguments = "" if raw is None else raw
        if not isinstance(arguments, str):
            self._repair("arguments were parsed already, written as JSON text again")
            arguments = codec.encode(arguments).decode()
        return function.name or "", arguments, kind

    def _with_fields_beside(self, own: ChatFunction, fragment: ChatToolCall) -> ChatFunction:
        """Return the function of a call, with those of its fields that came beside it."""
        beside = {
            name: value
            for name in _OF_FUNCTION
            if (value := getattr(fragment, name)) and not getattr(own, name)
        }
        if not beside:
            return own
        self._repair("fields of the function came beside it")
        return structs.replace(own, **beside)

    def _open(self, index: int | None, kind: str) -> Call:
        call = Call(len(self._calls), index, kind, index in self._by_index)
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _is_announced(self, index: int, call_id: str, name: str) -> bool:
        """Return True if arguments on this index may belong to a call that also has another index: this
        fragment or an earlier one announces it here."""
        if index in self._announced:
            return True
        known = self._by_id.get(call_id) if call_id and index not in self._by_index else None
        if known is None or known.index is None or known.displaced or name != known.name or not name:
            return False
        self._announced[index] = known
        if not known.last and self._by_index.get(known.index) is known:
            self._announced[known.index] = self._by_index.pop(known.index)
        return True

    def _begin_announced(self, index: int, arguments: str) -> Fragment | None:
        """Return the first arguments on an index on which a call was announced that also has another
        index."""
        known = self._announced.pop(index)
        if self._is_repeat(known, arguments, ""):
            return None
        if known.last and (known.type == "custom" or _BEGINNING.match(arguments)):
            return self._split(known, index, arguments)
        self._by_index[index] = known
        if index != known.index:
            self._repair("the index changed within a call, the id was followed")
        return self._append(known, "", "", arguments)

    def _split(self, known: Call, index: int | None, arguments: str) -> Fragment:
        """Begin another call with the name and the id of this one."""
        self._repair("two calls came under one id, kept apart")
        return self._append(self._open(index, known.type), known.id, known.name, arguments)

    def _append(self, call: Call, call_id: str, name: str, arguments: str) -> Fragment:
        named = "" if call.name else name
        call.announced_again = call.announced_again or bool(name and not named and not arguments)
        identified = "" if call.id else call_id
        call.name = call.name or name
        if call_id:
            call.id = call.id or call_id
            self._by_id[call_id] = call
        if arguments:
            call.add(arguments)
        return Fragment(call.slot, identified or None, named or None, arguments, call.type)

    def _is_repeat(self, call: Call, arguments: str, named: str) -> bool:
        """Return whether these arguments repeat those of the call. If they are `named` with it, they may also
        be an empty object that stands for them, or their beginning: then what follows decides."""
        if not _starts_again(call, arguments):
            return False
        whole = call.arguments
        if named and arguments != whole and whole.startswith(arguments):
            call.again, call.again_size = whole, len(arguments)
            return True
        if not (same_json(arguments, whole) or (named and is_placeholder(arguments))):
            return False
        self._repair(_AGAIN)
        return True

    def _go_on_again(self, call: Call, index: int | None, arguments: str) -> Fragment | None:
        """Continue arguments that may repeat those of the call, or be those of another one."""
        whole, size = call.again, call.again_size
        if not whole.startswith(arguments, size):
            call.again = ""
            return self._split(call, index, whole[:size] + arguments)
        call.again_size = size + len(arguments)
        if call.again_size == len(whole):
            call.again = ""
            self._repair(_AGAIN)
        return None

    def _find(self, call_id: str, index: int | None, name: str, arguments: str) -> Call | None:
        if call_id:
            here = self._by_index.get(index)
            known = here if here is not None and here.id == call_id else self._by_id.get(call_id)
            if known is not None:
                return self._find_by_id(known, index, name, arguments, call_id)
            other = self._last if index is None else here
            return None if other is None else self._find_by_unseen_id(other, index, name, arguments)
        if index is None:
            return self._find_unidentified(name, arguments)
        known = self._by_index.get(index)
        if known is not None:
            if not _is_another(known, name, arguments):
                return known
            self._repair("two calls came on one index, kept apart")
            return None
        return self._find_by_unseen_index(index, name, arguments)

    def _find_by_id(
        self, known: Call, index: int | None, name: str, arguments: str, call_id: str
    ) -> Call | None:
        if _is_another(known, name, arguments, call_id):
            self._repair("two calls came under one id, kept apart")
            return None
        if index is not None and index != known.index and index not in self._by_index:
            # its beginning was on another call's index, the rest on its own (field case 2)
            self._by_index[index] = known
            self._repair("the index changed within a call, the id was followed")
        return known

    def _find_by_unseen_id(self, known: Call, index: int | None, name: str, arguments: str) -> Call | None:
        if not known.id and not _is_another(known, name, arguments) and not _starts_again(known, arguments):
            self._repair("the id came after the call's first fragment")
            return known
        if index is None:
            return None
        if not name and arguments and known.last and not known.whole:
            self._repair("the id changed within a call, the index was followed")
            return known
        self._repair("another id came on a busy index: another call")
        return None

    def _find_by_unseen_index(self, index: int, name: str, arguments: str) -> Call | None:
        last = self._last
        if name or last is None or not (last.last or last.name):
            return None
        begins = arguments.lstrip().startswith("{")
        follows = not last.last or (begins and _may_stand_for(last.arguments, arguments))
        if (last.whole or begins) and not follows:
            return None
        self._by_index[index] = last
        self._repair("the index changed within a call, the open call was followed")
        return last

    def _find_unidentified(self, name: str, arguments: str) -> Call | None:
        if name:
            return None if self._last is None or _is_another(self._last, name, arguments) else self._last
        unfinished = [call for call in self._calls[-_LOOKED_BACK:] if not call.whole]
        return unfinished[0] if len(unfinished) == 1 else self._last

    def slot_at(self, index: int | None) -> int | None:
        """Return the slot of the call at this index; None if there is none."""
        call = self._by_index.get(index)
        return None if call is None else call.slot

    def id_of(self, slot: int) -> str:
        """Return the upstream's id of a call; empty if it gave none."""
        return self._calls[slot].id

    @property
    def _last(self) -> Call | None:
        return self._calls[-1] if self._calls else None

    def _repair(self, what: str) -> None:
        self._diagnostics.repair(_WHERE, what)


def _is_another(known: Call, name: str, arguments: str, call_id: str = "") -> bool:
    """Return whether a name for a call that has one already means another call. It does not if it may be the
    same name repeated, or if an empty object under the same id stood for the arguments."""
    if not name or not known.name:
        return False
    if call_id and call_id == known.id and is_placeholder(known.arguments):
        return name != known.name
    return name != known.name or _starts_again(known, arguments)


def _starts_again(known: Call, arguments: str) -> bool:
    """Return True if these arguments begin although those of the call are complete."""
    return _BEGINNING.match(arguments) is not None and known.whole


def _may_stand_for(known: str, arguments: str) -> bool:
    """Return True if the known arguments may stand for these, which came without a name: they are an empty
    object, or the same."""
    return is_placeholder(known) or same_json(known, arguments)
