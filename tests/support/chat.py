"""Chat Completions frames for inbounds, and short forms of the results."""

import json
from itertools import count
from typing import Any, NamedTuple

from openresponses_bridge.dialects.chat_completions import ChatOptions, Inbound
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import FunctionCall, Item
from openresponses_bridge.protocol.response import Response

DONE = b"[DONE]"


def frame(**fields: Any) -> bytes:
    """A chunk with these fields in addition to the usual ones."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return json.dumps(head | fields).encode()


def chunk(finish: str | None = None, *, index: int = 0, logprobs: Any = None, **delta: Any) -> bytes:
    """A chunk of one choice with this delta."""
    choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
    return frame(choices=[choice])


def calls(*fragments: dict[str, Any]) -> bytes:
    """A chunk with these fragments of tool calls."""
    return chunk(tool_calls=list(fragments))


def part(
    arguments: Any = None, *, name: str | None = None, id: str | None = None, **rest: Any
) -> dict[str, Any]:
    """A fragment of a tool call without the fields that are None."""
    function = {"name": name, "arguments": arguments}
    known = {field: value for field, value in function.items() if value is not None}
    return {**({} if id is None else {"id": id}), "function": known, **rest}


def completion(finish: str | None = "stop", **message: Any) -> bytes:
    """A whole completion of one choice."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return frame(object="chat.completion", choices=[choice])


def new_machine(**options: Any) -> ResponseStreamStateMachine:
    """A machine with counted ids and a clock that stands still."""
    numbers = count(1)
    return ResponseStreamStateMachine(
        model="m", ids=lambda prefix: f"{prefix}_{next(numbers)}", clock=lambda: 1000.0, **options
    )


class Ran(NamedTuple):
    """A stream that an inbound has read: its events, its machine, its inbound."""

    events: list[Event]
    machine: ResponseStreamStateMachine
    inbound: Inbound

    @property
    def response(self) -> Response:
        return self.machine.snapshot

    @property
    def status(self) -> str:
        return self.response.status

    @property
    def error(self) -> tuple[str, str]:
        """(code, message) of a failed response."""
        assert self.response.error is not None
        return self.response.error.code, self.response.error.message

    @property
    def output(self) -> list[Item]:
        return self.response.output

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """(call_id, name, arguments) of each function call."""
        return [
            (item.call_id, item.name, item.arguments) for item in self.output if type(item) is FunctionCall
        ]

    @property
    def sent(self) -> list[str]:
        """The events between the first two and the terminal one, each described in words."""
        return [describe(event) for event in self.events[2:-1]]

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    @property
    def repairs(self) -> list[str]:
        return [f"{case.where}: {case.what}" for case in self.inbound.diagnostics.of("repair")]

    @property
    def losses(self) -> list[str]:
        return [f"{case.where}: {case.what}" for case in self.inbound.diagnostics.of("loss")]

    @property
    def ignored(self) -> list[str]:
        return [f"{case.where}: {case.what}" for case in self.inbound.diagnostics.of("ignored")]


def run(
    *frames: bytes,
    think_tags: bool = True,
    close: bool = True,
    reading: ChatOptions | None = None,
    **options: Any,
) -> Ran:
    """Feed these frames to a new machine and check the sequence numbers (law E2). `reading` are the options
    of the upstream."""
    machine = new_machine(**options)
    inbound = Inbound(machine, options=reading or ChatOptions(think="tagged" if think_tags else "off"))
    events = [event for data in frames for event in inbound.feed(data)]
    if close:
        events += inbound.close()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return Ran(events, machine, inbound)


def stopped(*frames: bytes, finish: str = "stop", **options: Any) -> Ran:
    """The same as `run`, with a finish reason and `[DONE]` after the frames."""
    return run(*frames, chunk(finish), DONE, **options)


_DELTAS: dict[Any, str] = {
    ev.OutputTextDelta: "text",
    ev.RefusalDelta: "refusal",
    ev.ReasoningDelta: "reasoning",
    ev.ReasoningSummaryTextDelta: "summary",
    ev.FunctionCallArgumentsDelta: "arguments",
    ev.CustomToolCallInputDelta: "input",
}


def describe(event: Any) -> str:
    """Describe an event: `added 0 function_call call_a get`, `arguments 0 {"x`, `done 0 completed`, or its
    type."""
    kind: Any = type(event)
    if kind in _DELTAS:
        return f"{_DELTAS[kind]} {event.output_index} {event.delta}"
    if kind is ev.OutputItemAdded:
        item = event.item
        facts = [item.type, getattr(item, "call_id", ""), getattr(item, "name", "")]
        return f"added {event.output_index} {' '.join(filter(None, facts))}"
    if kind is ev.OutputItemDone:
        return f"done {event.output_index} {event.item.status}"
    if kind is ev.FunctionCallArgumentsDone:
        return f"whole {event.output_index} {event.arguments}"
    return str(event.type)
