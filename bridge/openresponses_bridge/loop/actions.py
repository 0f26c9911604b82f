"""What a loop wants done, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from openresponses_bridge.errors import BridgeError, LocalError
from openresponses_bridge.loop.answer import AnswerReader
from openresponses_bridge.prompt.renderer import BuildPromptResult
from openresponses_bridge.prompt.rounds import ToolCall, ToolCallResults, ToolCallRound
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.tools.invocation import TokenizationOptions


class ToolCallLimitBehavior(StrEnum):
    """What to do when the limit of rounds is reached: ask the user whether to go on, or stop."""

    CONFIRM = "confirm"
    STOP = "stop"


class LoopEnd(StrEnum):
    """Why a loop ended."""

    DONE = "done"  # the model answered without calling tools
    TRIMMED = "trimmed"  # the callback stopped the reading
    INCOMPLETE = "incomplete"  # the answer was cut by a limit or a filter
    LIMIT = "tool_call_limit"
    CANCELLED = "cancelled"
    EMPTY = "empty"  # the model said nothing, twice
    EMPTY_PROMPT = "empty_prompt"  # there was nothing to ask
    FAILED = "failed"


class LoopError(LocalError):
    """The loop was used wrongly: an outcome that fits no action, a limit below 1."""

    INVALID = "bridge.loop.invalid_use"


class Ended(Exception):
    """Leaves the rounds from wherever it is raised."""

    def __init__(self, end: LoopEnd, message: str, error: BridgeError | None = None) -> None:
        super().__init__(message)
        self.end, self.message, self.error = end, message, error


class AskModel(NamedTuple):
    """Send the prompt (`bridge.prompt.create_…_request_body` makes bodies of it) and feed the answer's events
    to a `reader()`. The outcome is what that reader's `close` or `fail` gives.

    `attempt` counts from 0; the request is due after `delay` seconds. `stateful_marker` is what the model's
    server gave with the last round.
    """

    prompt: BuildPromptResult
    stateful_marker: str | None
    round_index: int
    attempt: int
    delay: float
    reader: Callable[[], AnswerReader]


class RunToolCalls(NamedTuple):
    """Run these calls, side by side where they are several. Each is reported by `call_ended` when it has
    ended; the outcome of the action is None. A call that was not reported counts as cancelled.

    `tokenization_options` say how much of each result the next prompt has room for; None: there is no limit.
    """

    calls: list[ToolCall]
    tokenization_options: TokenizationOptions | None = None


class AskUser(NamedTuple):
    """Ask the user this question. The outcome is whether the answer was yes."""

    question: str


Action = AskModel | RunToolCalls | AskUser


class LoopResult(NamedTuple):
    """How a loop ended. `response` is the text of the last answer, `message` says in words why it ended other
    than with an answer, `error` what failed. `usage` is the sum over all rounds, None when no model reported
    any."""

    end: LoopEnd
    response: str
    message: str
    error: BridgeError | None
    tool_call_rounds: list[ToolCallRound]
    tool_call_results: ToolCallResults
    usage: Usage | None

    def as_json(self) -> dict[str, Any]:
        """`{"toolCallRounds", "toolCallResults", "end", "response"}`, with `message`, `error` and `usage`
        where there are some."""
        error = self.error and {"code": self.error.code, "message": self.error.message}
        more = {"message": self.message, "error": error, "usage": self.usage}
        made: dict[str, Any] = msgspec.to_builtins(
            {
                "toolCallRounds": self.tool_call_rounds,
                "toolCallResults": self.tool_call_results,
                "end": self.end,
                "response": self.response,
                **{name: value for name, value in more.items() if value},
            }
        )
        return made
