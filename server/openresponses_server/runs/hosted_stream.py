"""The calls of hosted tools in an answer: kept back from the machine, with the end of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct, field

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.emitter.arguments import usage_of
from openresponses_bridge.emitter.failures import outcome
from openresponses_bridge.emitter.held_calls import CallHoldingFilter, HeldCall
from openresponses_bridge.emitter.stopping import STOP_SEQUENCE
from openresponses_bridge.emitter.stream import CallFragment, ItemHoldingFilter, ResponseStream
from openresponses_bridge.protocol.content import LogProb
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.hosted import PROGRESS_EVENTS
from openresponses_bridge.protocol.ids import prefix_of
from openresponses_bridge.protocol.items import FunctionCall, Item
from openresponses_bridge.protocol.usage import Usage, latest
from openresponses_bridge.random_ids import random_id
from openresponses_server.hosted.base import HostedCall, HostedTool
from openresponses_server.runs.answers import AnswerLog
from openresponses_server.runs.schema_workers import SchemaCheck

_MOST_ARGUMENTS: Final = 1_000_000  # characters of a call; what follows is dropped, so that it is malformed


class HostedNames(Struct, frozen=True):
    """The functions of hosted tools that one request shows the model."""

    tools: Mapping[str, tuple[HostedTool, str]]
    """The name that the model is shown → the tool, and the name that the tool itself has for it."""
    identities: ToolIdentityMap
    excluded: frozenset[str] = frozenset()
    """Those that this request does not offer the model: they run only for calls that were approved before."""

    def find(self, upstream_name: str) -> str | None:
        """The shown name of the function that the model calls by this name; None for a client's."""
        identity = self.identities.resolve(upstream_name)
        if identity is not None:
            ours = identity.kind is ToolKind.FUNCTION and identity.namespace is None
            return identity.name if ours and self._is_called(identity.name) else None
        return upstream_name if self._is_called(upstream_name) else None

    def _is_called(self, name: str) -> bool:
        return name in self.tools and name not in self.excluded


class CallsToRun(NamedTuple):
    """The calls of hosted tools in one answer, by the names that the model was shown."""

    calls: list[HostedCall]


class Condensed(NamedTuple):
    """The summary of a conversation, or why there is none. One of the two is empty."""

    summary: str
    why: str = ""


Unsettled = SchemaCheck | CallsToRun | Condensed
"""What must happen before a response can end: a judgement, calls to run, or a continuation."""


class EndHolder(Protocol):
    """Keeps back the end of the output while there is a `question`, until `settle` is called, with the
    judge's objection or None, and returns the last events."""

    @property
    def question(self) -> Unsettled | None: ...

    def settle(self, objection: str | None) -> list[Event]: ...


class AnswerHolder(EndHolder, Protocol):
    """Checks an answer against its format."""

    def corrected(self, objection: str) -> list[Any] | None:
        """The items that ask for another answer instead of this one, which failed with this objection; None
        if this one is final."""
        ...


class _KeptCall(Struct):
    """The name of a hosted function, as the model was shown it, and the arguments of a call of it."""

    name: str
    pieces: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, piece: str) -> None:
        if self.size <= _MOST_ARGUMENTS:
            self.pieces.append(piece)
            self.size += len(piece)


class HostedStream(CallHoldingFilter, ItemHoldingFilter):
    """Keeps back the calls of hosted tools, and the end of an answer that has some: `question` then has the
    calls. `judged` is the filter behind it that may have a question of its own."""

    def __init__(
        self, stream: ResponseStream, names: HostedNames, judged: AnswerHolder | None, answers: AnswerLog
    ) -> None:
        super().__init__(stream)
        self._names = names
        self._judged = judged
        self._answers = answers
        self._kept: dict[HeldCall, _KeptCall] = {}  # in order
        self._asked: CallsToRun | Condensed | None = None
        self._reason: str | None = None
        self._deferred: str | None = None
        self._opening: Sequence[Mapping[str, Any]] = ()

    @property
    def question(self) -> Unsettled | None:
        if self._asked is not None:
            return self._asked
        return None if self._judged is None else self._judged.question

    def settle(self, objection: str | None) -> list[Event]:
        """End the response: the calls were answered and nothing is asked again, or it was judged."""
        if self._asked is not None:
            self._asked = None
            return super().finish(self._reason)
        return [] if self._judged is None else self._judged.settle(objection)

    def corrected(self, objection: str) -> list[Any] | None:
        """As in `AnswerHolder`."""
        return None if self._judged is None else self._judged.corrected(objection)

    def open_with(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Begin the output with these whole items."""
        self._opening = items

    def condensed(self, summary: Condensed, usage: Usage | None) -> None:
        """The answer was the summary of a conversation, or should have been one."""
        self._asked, self._answers.reported = summary, usage

    def next_answer(self) -> None:
        """Begin another answer."""
        super().next_answer()
        self._asked = None
        self._expected = None
        self._answers.reported = None

    def start(self) -> list[Event]:
        events = super().start()
        for item in self._opening:
            events += self._whole(item)
        if self._opening:
            super().next_answer()  # the model's begins behind them
        return events

    def _whole(self, item: Mapping[str, Any]) -> list[Event]:
        kind = str(item["type"])
        began = f"response.{kind}.in_progress"
        if began not in PROGRESS_EVENTS:
            return self.run_item(item)[0]
        empty = {name: [] if isinstance(value, list) else value for name, value in item.items()}
        events, item_id = self.announce_item(empty)
        events += super().item_event(item_id, began, {})
        verb = "failed" if item.get("error") else "completed"
        events += super().item_event(item_id, f"response.{kind}.{verb}", {})
        return events + super().item({**item, "id": item_id})

    # What the rounds add to the output; it does not pass through the filters before this one.
    def run_item(self, item: Mapping[str, Any]) -> tuple[list[Event], str]:
        """A whole item of the server's own, which may have an id; its events and its id."""
        item_id = str(item.get("id") or random_id(prefix_of(str(item["type"]))))
        return super().item({**item, "id": item_id}), item_id

    def announce_item(self, item: Mapping[str, Any]) -> tuple[list[Event], str]:
        """An item that `super().item` with its id completes, and that may have one; its events and its id."""
        item_id = str(item.get("id") or random_id(prefix_of(str(item["type"]))))
        return self._stream.item_added({**item, "id": item_id}), item_id

    def complete_item(self, item: Mapping[str, Any]) -> list[Event]:
        """The announced item with this id is done."""
        return super().item(item)

    # What comes from the upstream.
    def _keeps(self, call: HeldCall, type: str, namespace: str | None) -> bool:
        name = self._names.find(call.name) if type == "function" and not namespace else None
        if name is None:
            return False
        self._expected = None
        self._kept[call] = _KeptCall(name)
        return True

    def _keep(self, call: HeldCall, fragment: CallFragment) -> list[Event]:
        self._kept[call].add(fragment.arguments or "")
        return []

    def _pass(self, index: int, fragment: CallFragment) -> list[Event]:
        return self._flush() + super()._pass(index, fragment)

    def item(self, item: Item | Mapping[str, Any]) -> list[Event]:
        call = _whole_call(item)
        name = None if call is None else self._names.find(call.name)
        if call is None or name is None:
            return self._flush() + super().item(item)
        self.require("item")
        self._expected = None
        self._kept[HeldCall(call.call_id)] = _KeptCall(name, [call.arguments])
        return []

    def text(self, delta: str, logprobs: Sequence[LogProb | Mapping[str, Any]] | None = None) -> list[Event]:
        return self._flush() + super().text(delta, logprobs)

    def annotation(self, annotation: Any) -> list[Event]:
        return self._flush() + super().annotation(annotation)

    def usage(self, usage: Usage | Mapping[str, Any]) -> list[Event]:
        """Within one answer the last report counts; `AnswerLog.settle` makes the sum over all."""
        self.require("usage")
        self._answers.reported = latest(self._answers.reported, usage_of(usage, self.diagnostics))
        return super().usage(usage)

    def defer_finish(self, reason: str | None) -> list[Event]:
        self._deferred = reason
        return super().defer_finish(reason)

    def finish(self, reason: str | None = None, *, incomplete: bool = False) -> list[Event]:
        """Finish like the machine, unless there are calls to run. Those of an answer that was cut are not
        run."""
        self.require("finish")
        events = self._pass_nameless()
        calls, self._kept = self._kept, {}
        cut = incomplete or outcome(reason or self._deferred)[0] is not None
        if not calls or cut or reason == STOP_SEQUENCE:
            return events + super().finish(reason, incomplete=incomplete)
        self._reason = reason
        self._asked = CallsToRun(
            [HostedCall(call.id, each.name, "".join(each.pieces)) for call, each in calls.items()]
        )
        return events


def _whole_call(item: Item | Mapping[str, Any]) -> FunctionCall | None:
    if isinstance(item, FunctionCall):
        return None if item.namespace else item
    if not isinstance(item, Mapping) or item.get("type") != "function_call" or item.get("namespace"):
        return None
    fields = [item.get(name) for name in ("call_id", "name", "arguments")]
    if not all(isinstance(each, str) for each in fields):
        return None
    call_id, name, arguments = map(str, fields)
    return FunctionCall("", call_id, name, arguments, "completed")
