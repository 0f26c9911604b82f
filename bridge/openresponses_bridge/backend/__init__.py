"""A backend of your own: a request's body and an iterator over your model's output give an answer for any
client. Sans-IO; `openresponses_server.backend` has the HTTP response for Starlette and FastAPI."""

from openresponses_bridge.backend.answer import Answer, AnswerHead, AnswerOptions, chat_request, refusal
from openresponses_bridge.backend.outputs import (
    Finish,
    FinishReason,
    Output,
    Reasoning,
    ReasoningSummary,
    Refusal,
    ToolCall,
    ToolCallDelta,
)
from openresponses_bridge.backend.replies import AsyncReply, Reply, async_reply, reply
from openresponses_bridge.protocol.content import UrlCitation
from openresponses_bridge.protocol.usage import Usage

__all__ = [
    "Answer",
    "AnswerHead",
    "AnswerOptions",
    "AsyncReply",
    "Finish",
    "FinishReason",
    "Output",
    "Reasoning",
    "ReasoningSummary",
    "Refusal",
    "Reply",
    "ToolCall",
    "ToolCallDelta",
    "UrlCitation",
    "Usage",
    "async_reply",
    "chat_request",
    "refusal",
    "reply",
]
