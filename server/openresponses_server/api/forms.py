"""The form of an answer, and the one that needs no translation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, cast

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message, Receive, Scope, Send

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects import anthropic_messages, chat_completions, vscode
from openresponses_bridge.dialects.base import ClientSide, Dialect, Outbound
from openresponses_bridge.dialects.chat_completions import AnswerOptions, OutboundOptions
from openresponses_bridge.protocol import codec
from openresponses_bridge.protocol.codec import encode, encode_sse
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer
from openresponses_bridge.sse import DONE, encode_comment
from openresponses_server.runs.client_stream import Batch
from openresponses_server.runs.translation import Translation

SSE_TYPE: Final = b"text/event-stream; charset=utf-8"
KEEP_ALIVE: Final = encode_comment("keep-alive")


class Form(Protocol):
    """One answer of one surface. `stream_type` is the content type of a stream, `keep_alive` the bytes that
    keep the connection alive while a model thinks; `one_form` says that there is one place for reasoning, so
    that of its forms `whole` is given the first."""

    stream_type: bytes
    keep_alive: bytes
    one_form: bool

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        """The bytes for the events of one read; `ended` says that they are the last."""
        ...

    def whole(self, response: Response) -> bytes | None:
        """The body for a response that has ended; None when the surface can only call it an error."""
        ...


class ResponseForm:
    """The protocol's own: events, `[DONE]` last."""

    stream_type = SSE_TYPE
    keep_alive = KEEP_ALIVE
    one_form = False

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        frames = encode_sse(batch.events) if batch.frames is None else batch.frames
        return frames + DONE if ended else frames

    def whole(self, response: Response) -> bytes | None:
        return encode(response)


# Clients of other APIs over HTTP: what each dialect's stream is there, and the form of its answers.


class Surface(NamedTuple):
    """One dialect. `stream_type` is the content type of a stream, `keep_alive` the bytes that keep the
    connection alive while a model thinks."""

    dialect: Dialect
    stream_type: bytes = SSE_TYPE
    keep_alive: bytes = KEEP_ALIVE

    @property
    def side(self) -> ClientSide:
        """The dialect as its clients speak it."""
        assert self.dialect.client is not None
        return self.dialect.client

    def request(self, body: bytes, sealer: Sealer) -> tuple[CreateResponse, Diagnostics]:
        """A client's request as ours, and what was lost. Raises InvalidRequestError with `param`."""
        assert self.side.request is not None
        return self.side.request(body, sealer)


CHAT: Final = Surface(chat_completions.DIALECT)
MESSAGES: Final = Surface(anthropic_messages.DIALECT, keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n')
PARTS: Final = Surface(vscode.DIALECT, b"application/jsonl; charset=utf-8", b"\n")


class ForeignForm:
    """The answer of one surface, through this outbound; the sealer is the one of the response's reasoning."""

    one_form = True

    def __init__(self, surface: Surface, outbound: Outbound[Any], sealer: Sealer) -> None:
        self.stream_type = surface.stream_type
        self.keep_alive = surface.keep_alive
        self._outbound = outbound
        self._encode = surface.side.encode
        self._whole = surface.side.whole
        self._sealer = sealer

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        chunks = [chunk for event in batch.events for chunk in self._outbound.feed(event)]
        return self._encode([*chunks, *self._outbound.close()] if ended else chunks)

    def whole(self, response: Response) -> bytes | None:
        if self._whole is None:
            raise NotImplementedError("this surface always streams")
        return self._whole(response, self._sealer)


class ChatForm(ForeignForm):
    """An answer of one choice to a client of Chat Completions, with what it wants of the form. What becomes
    of text after tool calls is the upstream's, and known when that has accepted."""

    def __init__(self, options: AnswerOptions, sealer: Sealer, translation: Translation) -> None:
        self._translation = translation
        self._options = options
        self._begun = False
        super().__init__(CHAT, chat_completions.Outbound(), sealer)

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        if not self._begun:
            self._begun = True
            self._outbound = chat_completions.Outbound(
                include_usage=self._options.include_usage, **chat_options(self._options, self._translation)
            )
        return super().streamed(batch, ended)

    def whole(self, response: Response) -> bytes | None:
        answer = chat_completions.completion(response, **chat_options(self._options, self._translation))
        return codec.encode(answer) if isinstance(answer, chat_completions.ChatCompletion) else None


def chat_options(options: AnswerOptions, translation: Translation) -> OutboundOptions:
    """How each choice of an answer leaves, by what its client and its upstream want."""
    return {
        "legacy_functions": options.legacy_functions,
        "text_after_tool_call": "pass" if translation.text_after_tools else "drop",
    }


# The stream of a stored response, whose pieces may be cut anywhere.

_BLANK_LINE: Final = b"\n\n"


class StoredStream(EventSourceResponse):
    """Sends the pieces as they come, and comments between two frames while none come: `beat` is such a
    comment, `end` what a frame ends with."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        headers: Mapping[str, str],
        keep_alive: float,
        kind: bytes = SSE_TYPE,
        beat: bytes = KEEP_ALIVE,
        end: bytes = _BLANK_LINE,
    ) -> None:
        self._beat, self._end = beat, end
        super().__init__(
            pieces,
            headers=headers,
            media_type=kind.decode().partition(";")[0],
            ping=keep_alive,
            ping_message_factory=cast(Callable[[], ServerSentEvent], lambda: beat),  # bytes will do
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, _between_frames(send, self._beat, self._end))


def _between_frames(send: Send, beat: bytes, end: bytes) -> Send:
    """The same, one message after the other, without the comments that would come within a frame."""
    turn, between = anyio.Lock(), True

    async def in_turn(message: Message) -> None:
        nonlocal between
        async with turn:  # what waits for a slow client must not be overtaken
            body = message.get("body", b"")
            if body == beat:
                if not between:
                    return
            elif body:
                between = body.endswith(end)
            await send(message)

    return in_turn
