"""Tool-calling loops under test, with models that answer from a script and tools that return their input."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from openresponses_agent.loop import (
    Action,
    AskApproval,
    AskModel,
    AskUser,
    LoopEntry,
    LoopResult,
    LoopState,
    RoundMade,
    RunToolCalls,
    ToolCall,
    ToolCallingLoop,
    encode_entry,
)
from openresponses_agent.prompt import PromptContext, PromptRenderer
from openresponses_agent.tools.errors import ToolFailureEncountered, ToolInvocationError
from openresponses_agent.tools.registry import Tool, ToolCallOutcome
from openresponses_agent.tools.results import LanguageModelToolResult
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.errors import BridgeError, HttpError
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.usage import Usage
from tests.support.machines import counting_ids

TOOLS = [
    Tool(
        name,
        f"Does {name}",
        {"type": "object", "properties": {"value": {"type": "string"}}},
        lambda given: "",
    )
    for name in ("look", "change")
]
PARALLEL = frozenset({"look"})


class Answer(Struct, frozen=True):
    """One scripted answer of a model."""

    text: str = ""
    calls: Sequence[tuple[str, str, Any]] = ()
    """(call id, name, input) of each call."""
    reason: str | None = None
    """The finish reason."""
    thinking: str = ""
    usage: Usage | None = None
    cut: bool = False
    """The stream ends before the answer does."""
    error: BridgeError | None = None
    """The failure that takes the place of an answer."""
    marker: str | None = None


def events_of(answer: Answer) -> Iterator[Event]:
    """The events of the answer."""
    machine = ResponseStreamStateMachine("m", ids=counting_ids(), clock=lambda: 0)
    yield from machine.start()
    if answer.thinking:
        yield from machine.reasoning(answer.thinking)
    for piece in answer.text.split(" ") if answer.text else ():
        yield from machine.text(piece if piece == answer.text.split(" ")[0] else f" {piece}")
    for index, (call_id, name, raw) in enumerate(answer.calls):
        arguments = raw if isinstance(raw, str) else json.dumps(raw)
        yield from machine.tool_call(index, call_id, name, arguments[:5])
        yield from machine.tool_call(index, arguments=arguments[5:])
    if answer.marker is not None:
        yield from machine.extension_event("copilot:stateful_marker", {"value": answer.marker})
    if answer.usage is not None:
        machine.usage(answer.usage)
    if not answer.cut:
        yield from machine.finish(answer.reason or ("tool_calls" if answer.calls else "stop"))


def read(action: AskModel, answer: Answer) -> Any:
    """Return the outcome of a request to a model that gives this answer."""
    reader = action.reader()
    if answer.error is not None:
        return reader.fail(answer.error)
    for event in events_of(answer):
        if not reader.feed(event):
            break
    return reader.close()


def succeed(call: ToolCall) -> ToolCallOutcome:
    """The result of a tool that works."""
    return ToolCallOutcome(LanguageModelToolResult.of(f"did {call.name} {call.arguments}"))


def failing(call: ToolCall) -> ToolCallOutcome:
    """The result of a tool that fails."""
    failure = ToolFailureEncountered(call.name, ToolInvocationError("it broke"), 0)
    return ToolCallOutcome(LanguageModelToolResult.failure("Error: Tool failed - it broke"), failure)


class Driven(Struct):
    """A loop that was driven to its end, with its entries, actions and result."""

    loop: ToolCallingLoop
    entries: list[LoopEntry]
    ran: list[str] = field(default_factory=list)
    """The ids of the calls that were run."""
    actions: list[Action] = field(default_factory=list)
    result: LoopResult | None = None

    @property
    def prompts(self) -> list[AskModel]:
        return [action for action in self.actions if isinstance(action, AskModel)]

    def drive(
        self,
        answers: Iterable[Answer],
        run: Callable[[ToolCall], ToolCallOutcome | None] = succeed,
        consents: Iterable[bool] = (),
        most: int = 500,
    ) -> LoopResult:
        """Drive the loop to its end. A call whose outcome is None is not reported. It is an error if there
        are too few answers."""
        coming, allowed = iter(answers), iter(consents)
        steps, outcome = self.loop.run(), None
        for _ in range(most):
            try:
                action = steps.send(outcome)
            except StopIteration as end:
                self.result = end.value
                return self.result
            self.actions.append(action)
            outcome = None
            if isinstance(action, AskModel):
                outcome = read(action, next(coming))
            elif isinstance(action, AskUser | AskApproval):
                outcome = next(allowed)
            else:
                self._run(action, run)
        raise AssertionError("the loop does not end")

    def _run(self, action: RunToolCalls, run: Callable[[ToolCall], ToolCallOutcome | None]) -> None:
        for call in action.calls:
            self.ran.append(call.id)
            outcome = run(call)
            if outcome is not None:
                self.loop.call_ended(call.id, outcome)


def driven(
    query: str = "Do it",
    entries: Iterable[LoopEntry] = (),
    renderer: PromptRenderer | None = None,
    context: PromptContext | None = None,
    **options: Any,
) -> Driven:
    """A loop that continues after these entries."""
    history = list(entries)
    context = context or PromptContext(system=["You are a test."], query=query, tools=TOOLS)
    loop = ToolCallingLoop(
        context,
        renderer or PromptRenderer(),
        state=LoopState(history),
        record=history.append,
        parallel=PARALLEL.__contains__,
        clock=lambda: 1_700_000_000.5,
        **options,
    )
    return Driven(loop, history)


def lines(entries: Iterable[LoopEntry]) -> bytes:
    """The entries as lines of a journal, in the order in which they are written."""
    written, last = b"", None
    for entry in entries:
        written += encode_entry(entry, last)
        last = entry if isinstance(entry, RoundMade) else last
    return written


def overloaded() -> BridgeError:
    """A temporary failure."""
    return HttpError(503, "too busy", code="server_is_overloaded")
