"""One tool call, from its first fragment to its item.

A call waits (its state is absent) until the type of its item is known: a function or custom call until it has
a name (law E4), a shell or patch call until its arguments are whole, because only these show whether it can
be restored (law E11).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET

from openresponses_bridge.calls.identity import ToolIdentity, ToolKind
from openresponses_bridge.calls.json_text import JsonState, json_state
from openresponses_bridge.calls.streamed_arguments import (
    DIFFER,
    StreamedArguments,
    whole_within,
)
from openresponses_bridge.calls.unwrap import InputUnwrapper
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.emitter.blocks import OpenItem
from openresponses_bridge.emitter.output import Closing, Number
from openresponses_bridge.errors import StreamStateError
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.ids import prefix_of
from openresponses_bridge.protocol.items import (
    ApplyPatchCall,
    ApplyPatchOperation,
    CustomToolCall,
    FunctionCall,
    Item,
    ItemStatus,
    LocalShellAction,
    LocalShellCall,
    ShellAction,
    ShellCall,
    ToolSearchCall,
    with_extra,
)
from openresponses_bridge.state import ARGUMENTS, BlockState, Wire
from openresponses_bridge.text import SurrogateJoiner

# A model that knows only functions sends JSON arguments; the client may have declared a custom tool (free
# text) or a shell (laws E10, E11). A shape converts the model's arguments into the client's form as they
# stream.


class Shape(Protocol):
    """The form of a call's arguments on the wire. `feed` and `end` return what to send; after `end`, `cut`
    says whether the arguments stopped before they were whole, and `malformed` whether they are not JSON where
    they should be."""

    prefix: str
    """The prefix of its items' ids."""
    delta: type[Any]
    done: type[Any]
    struct: type[FunctionCall | CustomToolCall]
    malformed: bool

    def feed(self, fragment: str) -> str: ...

    def end(self, shown: str, stopped: bool) -> tuple[str, bool]:
        """Return (rest to show, cut). `stopped`: the upstream ended by itself, not at a limit."""
        ...


class JsonShape:
    """A function call: the arguments are passed on unchanged."""

    prefix = prefix_of(FunctionCall.type)
    delta = ev.FunctionCallArgumentsDelta
    done = ev.FunctionCallArgumentsDone
    struct: type[FunctionCall | CustomToolCall] = FunctionCall
    malformed = False

    def feed(self, fragment: str) -> str:
        return fragment

    def end(self, shown: str, stopped: bool) -> tuple[str, bool]:
        state = json_state(shown)
        if state is JsonState.EMPTY:
            # what clients parse must be JSON and deltas must add up (law E6)
            return ("{}", False) if stopped else ("", True)
        self.malformed = state is JsonState.MALFORMED
        return "", state is JsonState.TRUNCATED


class WrappingShape(JsonShape):
    """Free text from the model for a client that knows only functions: sent as `{"input": "…"}` as it
    streams."""

    def __init__(self) -> None:
        self._begun = False

    def feed(self, fragment: str) -> str:
        escaped = json.dumps(fragment, ensure_ascii=False)[1:-1]
        head, self._begun = ("" if self._begun else '{"input":"'), True
        return head + escaped

    def end(self, shown: str, stopped: bool) -> tuple[str, bool]:
        if not stopped:
            return "", True
        return ('"}' if self._begun else '{"input":""}'), False


class CustomShape:
    """Free text from the model for a client that declared a custom tool."""

    prefix = prefix_of(CustomToolCall.type)
    delta = ev.CustomToolCallInputDelta
    done = ev.CustomToolCallInputDone
    struct: type[FunctionCall | CustomToolCall] = CustomToolCall
    malformed = False

    def feed(self, fragment: str) -> str:
        return fragment

    def end(self, shown: str, stopped: bool) -> tuple[str, bool]:
        return "", not stopped


class UnwrappingShape(CustomShape):
    """A function's JSON for a client that declared a custom tool: its text is sent as it streams."""

    def __init__(self) -> None:
        self._unwrapper = InputUnwrapper()
        self._begun = False

    def feed(self, fragment: str) -> str:
        self._begun = self._begun or not fragment.isspace()
        return self._unwrapper.feed(fragment)

    def end(self, shown: str, stopped: bool) -> tuple[str, bool]:
        rest = self._unwrapper.close()
        # arguments that are not JSON do not show whether they are whole
        wrapped = self._begun and "raw_text" not in self._unwrapper.repairs
        return rest, self._unwrapper.truncated or not (stopped or wrapped)


# (the client declared a custom tool, the model sends free text, the wire has custom calls) → shape
SHAPES: dict[tuple[bool, bool, bool], Callable[[], Shape]] = {
    (True, True, True): CustomShape,
    (True, False, True): UnwrappingShape,
    (True, True, False): WrappingShape,
    (True, False, False): JsonShape,
    (False, True, True): CustomShape,
    (False, True, False): WrappingShape,
    (False, False, True): JsonShape,
    (False, False, False): JsonShape,
}


# Calls of shells, patches and tool searches that a model made as plain functions → the items the client
# declared them as (law E11). A call that can't be restored stays a function call.

Maker = Callable[[str, dict[str, Any], ItemStatus], Item]


def restore(kind: ToolKind, call_id: str, arguments: str, status: ItemStatus) -> Item | None:
    """Return the item of this kind with these JSON arguments, without an id; None if they don't fit it."""
    try:
        decoded = msgspec.json.decode(arguments)
        return _MAKERS[kind](call_id, decoded, status) if isinstance(decoded, dict) else None
    except (msgspec.MsgspecError, RecursionError, TypeError):
        return None


def _shell(call_id: str, arguments: dict[str, Any], status: ItemStatus) -> Item:
    commands = arguments.get("commands", arguments.get("command"))
    action = {**arguments, "commands": [commands] if isinstance(commands, str) else commands}
    return ShellCall("", call_id, msgspec.convert(action, ShellAction), status)


def _local_shell(call_id: str, arguments: dict[str, Any], status: ItemStatus) -> Item:
    command = arguments.get("command")
    argv = ["bash", "-lc", command] if isinstance(command, str) else command
    directory = arguments.get("working_directory", arguments.get("workdir"))
    action = {"env": {}, **arguments, "type": "exec", "command": argv}
    if directory is not None:
        action["working_directory"] = directory
    return LocalShellCall("", call_id, msgspec.convert(action, LocalShellAction), status)


def _apply_patch(call_id: str, arguments: dict[str, Any], status: ItemStatus) -> Item:
    operation = arguments.get("operation", arguments)
    return ApplyPatchCall("", call_id, msgspec.convert(operation, ApplyPatchOperation), status)


def _tool_search(call_id: str, arguments: dict[str, Any], status: ItemStatus) -> Item:
    return ToolSearchCall("", arguments, call_id, "client", status)


_MAKERS: dict[ToolKind, Maker] = {
    ToolKind.SHELL: _shell,
    ToolKind.LOCAL_SHELL: _local_shell,
    ToolKind.APPLY_PATCH: _apply_patch,
    ToolKind.TOOL_SEARCH: _tool_search,
}
RESTORED_KINDS = frozenset(_MAKERS)


_MOST_READINGS: Final = 64
_MOST_RAW: Final = 16_384  # characters of the received arguments that are kept as well as those shown
_BEGINNING: Final = '{"'  # arguments that begin so need no repair of their beginning


def nameless(call: str, index: int) -> StreamStateError:
    """Return the error for a call that ends before it has a name: it can't be shown at all (law E7)."""
    return StreamStateError(
        StreamStateError.INCOMPLETE_TOOL_CALL,
        f"{call}: the tool call at index {index} never got a name",
        call=call,
        index=index,
    )


def is_another(known_id: str, known_name: str, ended: bool, call_id: str, name: str) -> bool:
    """Return True if a fragment with `call_id` and `name` begins another call than the one at its index,
    whose id and name are `known_id` and `known_name`, empty while unknown. Filters that check calls before
    the machine must use the same rule."""
    if name and known_name and name != known_name:
        return True
    if call_id and known_id:
        return call_id != known_id
    return ended and bool(call_id or name)


class ToolCallBlock(OpenItem):
    """One call while it is received.

    - `index` is the upstream's, `output_index` ours once the call is announced.
    - `state` is the item's state in `state.ITEM`, `arguments` that of its arguments in `state.ARGUMENTS`.
    - `number_begun`: the call's number in the response, from 1; 0 for a whole item.
    - `explicit_end`: the upstream says when the call ends, even if its arguments look whole before.
    - `prefix`: that of its item's id.
    - `plain`: it is open and active, and its arguments are sent unchanged, unless they begin again.
    - `raw` has the arguments as received, `text` as shown to the client; for JSON they are one buffer.
    - `grown` has the indexes of the active calls that wait, or of those that are announced; None if nobody
      asks whether the call has ended. A fragment makes a call active, `may_end` makes it inactive. It has
      indexes since a call in it would refer to itself.
    """

    __slots__ = (
        "_diagnostics",
        "_inactive",
        "_read",
        "_shape",
        "_streamed",
        "arguments",
        "call_id",
        "explicit_end",
        "free_text",
        "grown",
        "identity",
        "index",
        "joiner",
        "name",
        "namespace",
        "number_begun",
        "plain",
        "prefix",
        "raw",
        "text",
        "upstream_id",
        "upstream_name",
        "write",
    )

    def __init__(
        self,
        number: Number,
        index: int,
        diagnostics: Diagnostics,
        number_begun: int = 0,
        grown: dict[int, None] | None = None,
    ) -> None:
        super().__init__(number, "")
        self.number_begun = number_begun
        self.grown = grown
        self._inactive = True
        self._read = 0
        self._shape: Shape = JsonShape()
        self._diagnostics = diagnostics
        self._streamed: StreamedArguments | None = None  # made for the first piece that must be checked
        self.prefix = self._shape.prefix
        self.plain = False
        self.index = index
        self.call_id = ""
        self.explicit_end = False
        self.upstream_id = ""
        self.upstream_name = ""
        self.name = ""
        self.namespace: str | None = None
        self.free_text = False
        self.identity: ToolIdentity | None = None
        self.arguments = BlockState.ABSENT
        self.joiner = SurrogateJoiner()
        self.raw = StringIO()
        self.text = StringIO()
        self.write = self.text.write

    @property
    def waits(self) -> bool:
        """True if the call has a name but is not announced yet."""
        return bool(self.upstream_name) and self.state is BlockState.ABSENT

    def identify(self, name: str, identity: ToolIdentity | None, wire: Wire) -> bool:
        """Set the name, and the tool that the client declared by it. Returns True if the call can be
        announced at once."""
        self.upstream_name = self.name = name
        # the published wire can't spell a namespaced name: there the model's own name is used
        if identity is not None and (wire.openai_items or identity.namespace is None):
            self.identity = identity
            self.name = identity.name
        kind = None if self.identity is None else self.identity.kind
        self._shape = SHAPES[kind is ToolKind.CUSTOM, self.free_text, wire.openai_items]()
        self.prefix = self._shape.prefix
        return not (wire.openai_items and kind in RESTORED_KINDS)

    def begin(self, arguments: str = "") -> list[Event]:
        """Emit the arguments that came before the call was announced, and these."""
        self.mark_grown()
        raw = self.raw.getvalue()
        fragment = arguments
        is_plain = arguments.startswith(_BEGINNING) and arguments.isascii() and "}" not in arguments
        if arguments and not (is_plain and not raw):
            fragment = self._whole_pieces(arguments)
        raw += fragment
        if self.free_text or type(self._shape) is JsonShape:
            self.raw = self.text
        else:
            self.raw.write(fragment)
        return self._emit(self._shape.feed(raw)) if raw else []

    def delta(self, fragment: str) -> list[Event]:
        """Append the next piece of the arguments. Returns nothing while the call waits or the piece shows
        nothing."""
        if self._inactive:
            self.mark_grown()
        return self._append(self._whole_pieces(fragment))

    def release(self) -> list[Event]:
        """Emit the arguments that were held back until more arrive, because something else follows."""
        arguments = "" if self._streamed is None else self._streamed.release()
        return self._append(arguments) if arguments else []

    def _whole_pieces(self, fragment: str) -> str:
        """Return the arguments that can be used now, of this fragment and those held back before."""
        if self.joiner.pending or not fragment.isascii():
            fragment = self.joiner.feed(fragment)
        if self.free_text or not fragment:
            return fragment
        if self._streamed is None:
            self._streamed = StreamedArguments(self._diagnostics)
        return self._streamed.feed(fragment, self.raw)

    def _append(self, fragment: str) -> list[Event]:
        streamed = self._streamed
        opened = self.state is BlockState.OPEN and type(self._shape) is JsonShape
        self.plain = opened and (streamed is None or streamed.is_plain) and self.text.tell() > 0
        if self.raw is not self.text:
            self._keep_raw(fragment)
            if self.state is BlockState.ABSENT:
                return []
        return self._emit(self._shape.feed(fragment)) if fragment else []

    def _emit(self, shown: str) -> list[Event]:
        if not shown:
            return []
        self.arguments = ARGUMENTS[self.arguments]["delta"]
        self.write(shown)
        return [self._shape.delta(self._number(), self.item_id, self.output_index, shown)]

    def mark_grown(self) -> None:
        """Mark the call as active: it received arguments, so `may_end` has to be asked again."""
        self._inactive = False
        if self.grown is not None:
            self.grown[self.index] = None

    def _keep_raw(self, fragment: str) -> None:
        """Keep the arguments as received: all of them before the call is announced, then up to `_MOST_RAW`
        characters."""
        if self.state is BlockState.ABSENT or self.raw.tell() <= _MOST_RAW:
            self.raw.write(fragment)
        elif self._streamed is not None:
            self._streamed.go_on()

    def may_end(self) -> bool:
        """Return True if the arguments are complete JSON and the upstream does not say when the call ends.
        Each character is read a bounded number of times, also for a call that grows a little before each of
        many others."""
        self._inactive, self.plain = True, False
        if self.explicit_end or not isinstance(self._shape, JsonShape):
            return False
        text = self.raw.getvalue() + ("" if self._streamed is None else self._streamed.held)
        if self._read > _MOST_READINGS * len(text):
            return False
        self._read += len(text)
        return json_state(text) is JsonState.COMPLETE

    @property
    def ended(self) -> bool:
        """True if the call accepts no more arguments."""
        return self.arguments is BlockState.SEALED

    def seal(self, stopped: bool, abandoned: bool = False) -> list[Event]:
        """End the arguments; `cut` then says whether they stopped before they were whole."""
        events = self._end_pieces()
        rest, cut = self._shape.end(self.text.getvalue(), stopped and not abandoned)
        events += self._emit(rest)
        self.cut = cut or abandoned or self._is_broken
        if self._shape.malformed and not self.cut:
            self._judge_malformed()
        self.arguments = ARGUMENTS[self.arguments]["cut" if self.cut else "done"]
        if not self.cut:
            # a cut call gets no arguments.done: clients run calls on that event (field case 25)
            text = self.text.getvalue()
            events.append(self._shape.done(self._number(), self.item_id, self.output_index, text))
        self.plain = False
        return events

    def _end_pieces(self) -> list[Event]:
        """Emit the arguments that the readers of the pieces held back."""
        events = self._append(self._whole_pieces(self.joiner.flush())) if self.joiner.pending else []
        rest = "" if self._streamed is None else self._streamed.end(self.raw)
        return events + self._append(rest) if rest else events

    def _judge_malformed(self) -> None:
        """Decide about arguments that are not JSON: they are the model's own, unless they began again after a
        part of them had been sent; then the call is incomplete (law N4)."""
        dropped = "" if self._streamed is None else self._streamed.dropped
        self.cut = whole_within(self.text.getvalue() + dropped) is not None
        self._diagnostics.warning("tool_call.arguments", DIFFER if self.cut else "not JSON, sent as they are")

    @property
    def _is_broken(self) -> bool:
        return self._streamed is not None and self._streamed.broken

    def close(self, stopped: bool, abandoned: bool = False) -> Closing:
        events = [] if self.ended else self.seal(stopped, abandoned)
        item = self.item("incomplete" if self.cut else "completed")
        self._release()
        return Closing(events, item, self.cut)

    def end_whole(self) -> None:
        """End a call that was sent at once as the item to which it was restored, or that was left out."""
        self.arguments = ARGUMENTS[self.arguments]["done"]
        self._release()

    def _release(self) -> None:
        """Release the text, which the item has from now on, so that it is in memory once (law E12)."""
        self.raw = self.text = StringIO()
        self.write = self.text.write

    def ends_cut(self, stopped: bool, abandoned: bool) -> bool:
        """Return True if this waiting call, which ends now, was cut off before it was whole."""
        self._end_pieces()
        return abandoned or self._is_broken or self._shape.end(self.raw.getvalue(), stopped)[1]

    def restored(self) -> Item | None:
        """Return the item to which this waiting call is restored, still without an id; None if that is not
        possible."""
        if self.identity is None:
            return None
        item = restore(self.identity.kind, self.call_id, self.raw.getvalue(), "completed")
        extra = self.extra_at_end or self.extra
        return item if item is None or not extra else with_extra(item, extra)

    def item(self, status: ItemStatus) -> Item:
        """Return the call as it is now, with this status."""
        namespace = (self.identity.namespace if self.identity is not None else None) or UNSET
        text = self.text.getvalue()
        extra = self.extra if status == "in_progress" else self.extra_at_end or self.extra
        return self._shape.struct(self.item_id, self.call_id, self.name, text, status, namespace, extra=extra)
