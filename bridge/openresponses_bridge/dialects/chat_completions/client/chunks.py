"""The structs of a Chat Completions stream as we send it, and their encoding.

`types` has the structs for reading any server; these have what a client may rely on, such as `finish_reason`
on every choice, null until it is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypedDict

import msgspec
from msgspec import UNSET, Struct, UnsetType

from openresponses_bridge.dialects.base import CHAT, native_of
from openresponses_bridge.dialects.chat_completions.types import (
    ChatDelta,
    ChatFunction,
    ChatLogProbs,
    ChatUsage,
)
from openresponses_bridge.protocol import codec
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.unknown import Extensible
from openresponses_bridge.seal import Sealer

CHUNK = "chat.completion.chunk"
COMPLETION = "chat.completion"


class ChatError(Extensible, frozen=True):
    """An error, with the further fields of an upstream of this API."""

    type: str
    code: str | None
    message: str
    param: str | None


def chat_error(error: ErrorPayload) -> ChatError:
    """Return the error in the form for clients of this API."""
    return ChatError(
        error.type, error.code, error.message, error.param, extra=native_of(error, CHAT) or UNSET
    )


class ChunkChoice(Extensible, frozen=True, gc=False):
    """The addition to one of n answers; dictionaries have further fields that only clients of this API know.
    `error` is the reason why this choice failed while others continue; its finish reason is then `error`."""

    index: int
    delta: ChatDelta | dict[str, Any]
    finish_reason: str | None = None
    logprobs: ChatLogProbs | UnsetType = UNSET
    error: ChatError | UnsetType = UNSET


class StreamChunk(Extensible, frozen=True, gc=False):
    """One chunk. `created` is in Unix seconds. If usage was asked for, it is null in all chunks but the last,
    which has no choices. If a choice or its error has `extra`, so has the chunk."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: ChatUsage | dict[str, Any] | UnsetType | None = UNSET


class ErrorBody(Struct, frozen=True):
    """An error in the stream, or the body of an answer that failed."""

    error: ChatError


class Done(Struct, frozen=True):
    """The end of the stream, `[DONE]`."""


Chunk = StreamChunk | ErrorBody | Done
DONE = Done()


class AnswerMessage(Extensible, frozen=True, omit_defaults=True, kw_only=True):
    """The assistant's message of an answer that is not streamed."""

    role: str
    content: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    annotations: list[object] | UnsetType = UNSET
    tool_calls: list[object] | UnsetType = UNSET
    function_call: ChatFunction | UnsetType = UNSET
    reasoning_details: list[dict[str, Any]] | UnsetType = UNSET
    thinking_blocks: list[dict[str, Any]] | UnsetType = UNSET
    extra_content: dict[str, Any] | UnsetType = UNSET
    images: list[object] | UnsetType = UNSET
    audio: dict[str, Any] | UnsetType = UNSET


class AnswerChoice(Extensible, frozen=True):
    """One of n answers. `error` is the reason why it failed; its message is then the output so far."""

    index: int
    message: AnswerMessage
    finish_reason: str | None
    logprobs: ChatLogProbs | None = None
    error: ChatError | UnsetType = UNSET


class ChatCompletion(Extensible, frozen=True):
    """An answer that is not streamed."""

    id: str
    object: str
    created: int
    model: str
    choices: list[AnswerChoice]
    usage: ChatUsage | dict[str, Any] | UnsetType = UNSET


_encode = msgspec.json.Encoder().encode


def encode(chunks: Iterable[Chunk]) -> bytes:
    """Encode chunks as SSE frames, which have only data in this API. Half a surrogate pair is sent as an
    escape, as it was received."""
    pieces: list[bytes] = []
    for chunk in chunks:
        try:
            if isinstance(chunk, StreamChunk) and chunk.extra is UNSET:
                data = _encode(chunk)
            else:
                data = b"[DONE]" if chunk is DONE else codec.encode(chunk)
        except UnicodeEncodeError:
            data = codec.encode(chunk)
        pieces += (b"data: ", data, b"\n\n")
    return b"".join(pieces)


CustomForm = Literal["custom", "function"]
ReasoningField = Literal["reasoning_content", "reasoning", "none"]
TextAfterToolCall = Literal["pass", "drop"]


class OutboundOptions(TypedDict, total=False):
    """The options of each choice of an answer."""

    model: str | None
    reasoning_field: ReasoningField
    text_after_tool_call: TextAfterToolCall
    custom_tools: CustomForm
    legacy_functions: bool
    sealer: Sealer | None


class ChoicesOptions(OutboundOptions, total=False):
    """The same where the answer is a stream."""

    include_usage: bool


class CompletionOptions(OutboundOptions, total=False):
    """The same where it is one body."""

    choice: int
    id: str | None
    created: int | None
