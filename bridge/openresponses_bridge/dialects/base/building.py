"""Builds the input of an upstream's request from the entries of ours, as all dialects do whose models know
functions, roles and a system prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar, Generic, TypeVar

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.json_text import WRAPPED, is_wrapped, tool_input
from openresponses_bridge.calls.presentation import CallView, OutputView, pair
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base.carried import BaseCarried
from openresponses_bridge.dialects.base.entries import Entry, before_own, views_of
from openresponses_bridge.dialects.base.fields import invalid
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.seal import Sealer

C = TypeVar("C", bound=BaseCarried)


class BaseBuilder(ABC, Generic[C]):
    """Passes the entries in order to the methods for their kinds. Calls wait in a list of the subclass for
    their outputs, wherever these are in the input: see `_answer`."""

    server: ClassVar[str]
    """The name of the upstream in errors, such as "a Gemini server"."""

    def __init__(
        self,
        entries: Sequence[Entry],
        identities: ToolIdentityMap,
        sealer: Sealer,
        carried: C,
        diagnostics: Diagnostics,
    ) -> None:
        self._entries = entries
        self._sealer = sealer
        self._carried = carried
        self._diagnostics = diagnostics
        self._before = before_own(entries, carried.items)
        self._views = views_of(entries, identities)
        # before each entry: the number of entries that are neither calls nor outputs
        self._others = [0, *accumulate(view is None for view in self._views)]
        self._answers = pair(self._views, lambda index: entries[index].param)
        self._begun = False  # whether there was any message other than system messages

    def _walk(self) -> None:
        """Handle every entry, and answer the calls that are open at the end. Raises InvalidRequestError."""
        for index, entry in enumerate(self._entries):
            view, item = self._views[index], entry.item
            if isinstance(view, CallView):
                self._call(view, index)
            elif isinstance(view, OutputView):
                self._at_output(index)
            else:
                self._item(item, index)
        self._answer(len(self._entries))

    def _item(self, item: Any, index: int) -> None:
        entry = self._entries[index]
        match item.type:
            case "message":
                self._message(item, index)
            case "reasoning":
                self._reasoning(item, index)
            case "compaction":
                self._compaction(item, index)
            case "item_reference":
                raise invalid(entry.param, f"the item {item.id!r} is not known here")
            case "additional_tools" | "tool_search_output":
                pass  # the tools that the input declares are in the request's already
            case "tool_search_call":
                self._diagnostics.ignored(entry.where, "a tool search that the server ran itself")
            case _:
                self._other(item, index)

    def _call(self, call: CallView, index: int) -> None:
        answer, where = self._answers[index], self._entries[index].where
        if answer is None:
            self._diagnostics.loss(where, "a call that was cut off and never run, left out")
            return
        arguments = tool_input(call.arguments)
        if is_wrapped(arguments, call.arguments):
            self._diagnostics.repair(f"{where}.arguments", WRAPPED)
        self._begun = True
        self._add_call(call, arguments, index, answer)

    def _at_output(self, index: int) -> None:
        """Handle the output at `index`, which follows its call directly."""
        self._answer(index)

    def _is_moved_up(self, answer: int, index: int) -> bool:
        """Return True if the output at `answer`, sent before the entry at `index`, followed something other
        than calls and outputs in the input."""
        return self._others[answer] > self._others[index]

    def _compaction(self, _item: Any, index: int) -> None:
        raise InvalidRequestError(
            InvalidRequestError.UNSUPPORTED,
            f"a compaction must be opened before it is sent to {self.server}",
            param=self._entries[index].param,
        )

    @abstractmethod
    def _add_call(self, call: CallView, arguments: dict[str, Any], index: int, answer: int) -> None:
        """Append a call with this input; its output is at `answer`."""

    @abstractmethod
    def _answer(self, index: int) -> None:
        """Answer all open calls, since the entry at `index` is not the model's."""

    @abstractmethod
    def _message(self, item: Any, index: int) -> None: ...

    @abstractmethod
    def _reasoning(self, item: Any, index: int) -> None: ...

    @abstractmethod
    def _other(self, item: Any, index: int) -> None:
        """Handle an item of any other kind: a search, an extension."""
