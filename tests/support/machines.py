"""A machine under test, whose ids and times are the same in each run.

Each call through `Run` is checked for the laws E1 (the accumulated events equal the snapshot), E2 (numbers)
and E3 (the published schema, if the shared folder is there), and for the grammar of the stream
(`StreamValidator`), so that a test of one law also fails when another is broken.
"""

import json
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.decoder.accumulator import ResponseAccumulator
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.state import PUBLISHED_EVENTS, PUBLISHED_ITEMS
from tests.support.schema import event_violations
from tests.support.shared import shared_root

CLOCK = 1_700_000_000
WIRES = ("openresponses", "openai")


def counting_ids() -> Callable[[str], str]:
    """Returns the ids `msg_1`, `fc_2` … in the order of calls."""
    numbers = count(1)
    return lambda prefix: f"{prefix}_{next(numbers)}"


def machine(
    wire: str = "openresponses",
    request: CreateResponse | None = None,
    identities: ToolIdentityMap | None = None,
    unknown_fields: bool = True,
) -> ResponseStreamStateMachine:
    """A machine of model `m` whose ids and times are the same each time."""
    return ResponseStreamStateMachine(
        model="m",
        request=request,
        response_id="resp_0",
        ids=counting_ids(),
        clock=lambda: CLOCK,
        tool_identities=identities,
        wire=wire,
        unknown_fields=unknown_fields,
    )


def plain(value: Any) -> Any:
    """A protocol value as the JSON value that is sent."""
    return json.loads(encode(value))


def same(one: Any, other: Any) -> bool:
    """Whether two protocol values are the same JSON value; equal bytes are not decoded."""
    return encode(one) == encode(other) or plain(one) == plain(other)


def kinds(events: Iterable[Event]) -> list[str]:
    """The types of events, without the prefix `response.`, which most have."""
    return [event.type.removeprefix("response.") for event in events]


class Run:
    """A machine, its events, and the checks of each event. `ignoring` names the rules of the validator
    that the calls of this run break on purpose; without `schema`, the slow check against the schema is
    left out."""

    def __init__(
        self,
        wire: str = "openresponses",
        request: CreateResponse | None = None,
        identities: ToolIdentityMap | None = None,
        started: bool = True,
        ignoring: frozenset[str] = frozenset(),
        schema: bool = True,
    ) -> None:
        self.machine = machine(wire, request, identities)
        self.events: list[Event] = []
        self.accumulator = ResponseAccumulator()
        self.validator = StreamValidator(self.machine.wire)  # type: ignore[arg-type]
        self.ignoring = ignoring
        self.schema = schema and self.machine.wire == "openresponses" and shared_root() is not None
        if started:
            self("start")

    def __call__(self, call: str, *arguments: Any, **named: Any) -> list[Event]:
        """Call a method of the machine, check the events that it caused, and return them."""
        events: list[Event] = getattr(self.machine, call)(*arguments, **named) or []
        for event in events:
            self._check(event)
        if self.events:
            assert same(self.accumulator.response, self.machine.snapshot), f"E1 after {call}"
        return events

    def kinds(self, call: str, *arguments: Any, **named: Any) -> list[str]:
        """The types of the events that a call causes."""
        return kinds(self(call, *arguments, **named))

    @property
    def output(self) -> list[Any]:
        """The snapshot's items, as JSON."""
        output: list[Any] = plain(self.machine.snapshot)["output"]
        return output

    @property
    def terminal(self) -> Any:
        """The response of the last event, as JSON."""
        return plain(self.events[-1])["response"]

    def notes(self, kind: str) -> list[str]:
        """The places of the machine's diagnostics of this kind."""
        return [case.where for case in self.machine.diagnostics if case.kind == kind]

    def _check(self, event: Event) -> None:
        assert event.sequence_number == len(self.events), "E2"
        self.events.append(event)
        self.accumulator.feed(event)
        broken = [each for each in self.validator.feed(event) if each.rule not in self.ignoring]
        assert not broken, [str(each) for each in broken]
        if self.schema and event.type in PUBLISHED_EVENTS:
            raw = without_extensions(plain(event))
            assert not (violations := event_violations(raw)), ("E3", violations, raw)


def without_extensions(event: Any) -> Any:
    """The event without the items and tools of extensions: the specification allows them, but the schema does
    not have them."""
    item = event.get("item")
    if item and item["type"] not in PUBLISHED_ITEMS:
        return event | {"item": None}
    response = event.get("response")
    if response is None:
        return event
    output = [item for item in response["output"] if item["type"] in PUBLISHED_ITEMS]
    tools = [tool for tool in response["tools"] if tool["type"] == "function"]
    return event | {"response": response | {"output": output, "tools": tools}}
