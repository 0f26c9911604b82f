"""The loop from a question to its answer: ask the model, run the tools that it calls, ask again.

Sans-IO: `ToolCallingLoop.run` yields actions and receives their outcomes. It records entries, from which a
loop can be resumed, also after a crash.
"""

from openresponses_agent.loop.answer import (
    AnswerReader,
    FinishedCallback,
    HostedCallback,
    ModelAnswer,
    ModelFailure,
)
from openresponses_agent.loop.journal import (
    CallEnded,
    CallsBegun,
    JournalError,
    LimitRaised,
    LoopBegun,
    LoopEnded,
    LoopEntry,
    LoopState,
    RoundMade,
    decode_entries,
    encode_entry,
)
from openresponses_agent.loop.loop import (
    Action,
    AskApproval,
    AskModel,
    AskUser,
    LoopEnd,
    LoopError,
    LoopResult,
    RunToolCalls,
    ToolCallingLoop,
    ToolCallLimitBehavior,
)
from openresponses_agent.loop.view import LoopView, RoundView, ToolResultElement, ToolStatus
from openresponses_agent.prompt.context import (
    ApprovalRequest,
    Citation,
    ThinkingDataItem,
    ToolCall,
    ToolCallRound,
)

__all__ = [
    "Action",
    "AnswerReader",
    "ApprovalRequest",
    "AskApproval",
    "AskModel",
    "AskUser",
    "CallEnded",
    "CallsBegun",
    "Citation",
    "FinishedCallback",
    "HostedCallback",
    "JournalError",
    "LimitRaised",
    "LoopBegun",
    "LoopEnd",
    "LoopEnded",
    "LoopEntry",
    "LoopError",
    "LoopResult",
    "LoopState",
    "LoopView",
    "ModelAnswer",
    "ModelFailure",
    "RoundMade",
    "RoundView",
    "RunToolCalls",
    "ThinkingDataItem",
    "ToolCall",
    "ToolCallLimitBehavior",
    "ToolCallRound",
    "ToolCallingLoop",
    "ToolResultElement",
    "ToolStatus",
    "decode_entries",
    "encode_entry",
]
