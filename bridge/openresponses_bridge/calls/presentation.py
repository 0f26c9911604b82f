"""Calls of the client's tools and their outputs in the form of function calls, for models that know functions
only.

There is one struct for calls and one for outputs; each dialect writes them in its own format.
`ToolIdentityMap` has the original tools, so that the conversion back is exact (law E11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from openresponses_bridge.calls.declarations import tools_of
from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.calls.unwrap import wrap_input
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.tools import NamespaceTool
from openresponses_bridge.protocol.unknown import Unknown

_SEARCH: Final = ToolKind.TOOL_SEARCH.value


class CallView(NamedTuple):
    """A call in the history as a function call: `arguments` is JSON text, whole unless the call was `cut`;
    `item_id` is the item's own id, "" if it has none."""

    call_id: str
    name: str
    arguments: str
    cut: bool = False
    item_id: str = ""


class OutputView(NamedTuple):
    """The output of a call: text, or parts in the protocol's own structs."""

    call_id: str
    output: str | list[Any]
    failed: bool = False


def call_view(item: Any, identities: ToolIdentityMap) -> CallView | None:
    """Return a call of any kind as a function call; None if the item is not a call that a client answers."""
    make = _CALLS.get(item.type)
    view = None if make is None or isinstance(item, Unknown) else make(item, identities)
    if view is None:
        return None
    cut = getattr(item, "status", None) == "incomplete"
    return CallView(view.call_id, view.name, view.arguments, cut, item.id or "")


def called_name(name: str, namespace: str | None, identities: ToolIdentityMap) -> str:
    """Return the upstream's name of the tool of a call in the history. The published wire has no namespaces,
    so calls there have the upstream's own name and are sent back with it."""
    upstream = identities.upstream_name(name, namespace)
    return name if upstream not in identities and name in identities else upstream


def output_view(item: Any, identities: ToolIdentityMap) -> OutputView | None:
    """Return a tool's answer of any kind; None for other items. Clients name the call by `call_id`, else by
    `id` (field case 40)."""
    view = _OUTPUTS.get(item.type)
    return None if view is None or isinstance(item, Unknown) else view(item, identities)


def _function_call(item: Any, identities: ToolIdentityMap) -> CallView:
    name = called_name(item.name, item.namespace or None, identities)
    return CallView(item.call_id, name, item.arguments if item.arguments.strip() else "{}")


def _custom_call(item: Any, identities: ToolIdentityMap) -> CallView:
    name = called_name(item.name, item.namespace or None, identities)
    return CallView(item.call_id, name, wrap_input(item.input))


def _action_call(kind: ToolKind, field: str) -> Callable[[Any, ToolIdentityMap], CallView]:
    def view(item: Any, identities: ToolIdentityMap) -> CallView:
        arguments = dict(msgspec.to_builtins(getattr(item, field)))
        if kind is ToolKind.LOCAL_SHELL:
            arguments.pop("type", None)  # always `exec`, which says nothing to a model
        return CallView(item.call_id, identities.upstream_name(kind.value), encode(arguments).decode())

    return view


def _search_call(item: Any, identities: ToolIdentityMap) -> CallView | None:
    if not item.call_id:
        return None  # run by the server, so that nobody answers it
    arguments = item.arguments if isinstance(item.arguments, str) else encode(item.arguments).decode()
    return CallView(item.call_id, identities.upstream_name(_SEARCH), arguments or "{}")


def _output(item: Any, _identities: ToolIdentityMap) -> OutputView:
    failed = getattr(item, "status", None) in ("failed", "incomplete")
    return OutputView(item.call_id or item.id or "", item.output or "", failed)


def _shell_output(item: Any, _identities: ToolIdentityMap) -> OutputView:
    printed = item.output if isinstance(item.output, str) else encode(item.output).decode()
    return OutputView(item.call_id, printed)


def _search_output(item: Any, identities: ToolIdentityMap) -> OutputView | None:
    """Return the tools that were found, by the names with which the model can call them."""
    if not item.call_id:
        return None
    names = [name for tool in tools_of(item) for name in _found(tool, identities)]
    return OutputView(item.call_id, encode({"tools": names}).decode())


def _found(tool: Any, identities: ToolIdentityMap) -> list[str]:
    if isinstance(tool, NamespaceTool):
        return [identities.upstream_name(member.name, tool.name) for member in tool.tools]
    return [identities.upstream_name(tool.name)] if hasattr(tool, "name") else []


_CALLS: Final[dict[str, Callable[[Any, ToolIdentityMap], CallView | None]]] = {
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
    "shell_call": _action_call(ToolKind.SHELL, "action"),
    "local_shell_call": _action_call(ToolKind.LOCAL_SHELL, "action"),
    "apply_patch_call": _action_call(ToolKind.APPLY_PATCH, "operation"),
    "tool_search_call": _search_call,
}
_OUTPUTS: Final[dict[str, Callable[[Any, ToolIdentityMap], OutputView | None]]] = {
    "function_call_output": _output,
    "custom_tool_call_output": _output,
    "local_shell_call_output": _output,
    "apply_patch_call_output": _output,
    "shell_call_output": _shell_output,
    "tool_search_output": _search_output,
}


CALL_TYPES: Final = frozenset(_CALLS)
"""The types of items that are calls for a client to answer."""
OUTPUT_TYPES: Final = frozenset(_OUTPUTS)
"""The types of items that are answers to them."""


# A request whose calls and outputs are not paired is refused (field cases 40, 45): upstreams refuse it with
# messages about things that the client does not know, or loop for ever.

View = CallView | OutputView | None


def pair(views: Sequence[View], param: Callable[[int], str]) -> dict[int, int | None]:
    """Return index of each call → index of its output, among `views` (in which None is an item that is
    neither).

    An output answers the first call before it with its id that is not answered yet, so that an id may be used
    again in a later turn; clients name the call by `call_id`, else by its item's id. A call that was cut off,
    and so never run, may have no output: the index is None. `param` names the field at an index. Raises
    InvalidRequestError (`unpaired_tool_call`) with that name.
    """
    answers, calls = _answers(views, param)
    for index, call in calls:
        if index not in answers:
            if not call.cut:
                raise _unpaired(f"no tool output answers the call {call.call_id!r}", param(index))
            answers[index] = None
    return answers


def unanswered(views: Sequence[View], param: Callable[[int], str]) -> list[int]:
    """Return the indexes of the calls that `pair` refuses for having no output. Raises InvalidRequestError
    for an output without its call."""
    answers, calls = _answers(views, param)
    return [index for index, call in calls if index not in answers and not call.cut]


def _answers(
    views: Sequence[View], param: Callable[[int], str]
) -> tuple[dict[int, int | None], list[tuple[int, CallView]]]:
    """Return (index of a call → index of its output, all calls with their indexes)."""
    answers: dict[int, int | None] = {}
    waiting: dict[str, deque[int]] = {}
    all_calls: list[tuple[int, CallView]] = []
    for index, view in enumerate(views):
        if isinstance(view, CallView):
            all_calls.append((index, view))
            for key in {view.call_id, view.item_id} - {""}:
                waiting.setdefault(key, deque()).append(index)
        elif isinstance(view, OutputView):
            calls = waiting.get(view.call_id, deque())
            while calls and calls[0] in answers:
                calls.popleft()
            if not calls:
                raise _unpaired(f"no tool call before it has the call_id {view.call_id!r}", param(index))
            answers[calls.popleft()] = index
    return answers, all_calls


def _unpaired(message: str, param: str) -> InvalidRequestError:
    return InvalidRequestError(InvalidRequestError.UNPAIRED_CALL, message, param=param)
