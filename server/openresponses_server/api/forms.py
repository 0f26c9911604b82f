"""How each surface encodes a response, as a stream or as one body."""

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
from openresponses_server.runs.client import Batch
from openresponses_server.runs.pipeline import Translation

SSE_TYPE: Final = b"text/event-stream; charset=utf-8"
KEEP_ALIVE: Final = encode_comment("keep-alive")


class SurfaceForm(Protocol):
    """Encodes one response for one surface."""

    stream_type: bytes
    """The content type of a stream."""
    keep_alive: bytes
    """What is sent while there are no events."""
    single_reasoning_form: bool
    """The surface has one field for reasoning: `whole` is given the first of its forms only."""

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        """The bytes for the events of one read; `ended` marks the last ones."""
        ...

    def whole(self, response: Response) -> bytes | None:
        """The body for a response that has ended; None when the surface can only report an error."""
        ...


class ResponseForm:
    """The Responses API: events, `[DONE]` last."""

    stream_type = SSE_TYPE
    keep_alive = KEEP_ALIVE
    single_reasoning_form = False

    def streamed(self, batch: Batch, ended: bool) -> bytes:
        frames = encode_sse(batch.events) if batch.frames is None else batch.frames
        return frames + DONE if ended else frames

    def whole(self, response: Response) -> bytes | None:
        return encode(response)


class Surface(NamedTuple):
    """An API of another dialect over HTTP."""

    dialect: Dialect
    stream_type: bytes = SSE_TYPE
    keep_alive: bytes = KEEP_ALIVE

    @property
    def side(self) -> ClientSide:
        """The dialect as its clients speak it."""
        assert self.dialect.client is not None
        return self.dialect.client

    def request(self, body: bytes, sealer: Sealer) -> tuple[CreateResponse, Diagnostics]:
        """Translate a client's request; its losses. Raises InvalidRequestError with `param`."""
        assert self.side.request is not None
        return self.side.request(body, sealer)


CHAT: Final = Surface(chat_completions.DIALECT)
MESSAGES: Final = Surface(anthropic_messages.DIALECT, keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n')
PARTS: Final = Surface(vscode.DIALECT, b"application/jsonl; charset=utf-8", b"\n")


class DialectForm:
    """Encodes a response with an outbound of its dialect. `sealer` seals reasoning."""

    single_reasoning_form = True

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


class ChatForm(DialectForm):
    """Encodes a response of one choice for Chat Completions. The outbound is made with the first events:
    whether text after tool calls is sent depends on the upstream that has accepted."""

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
    """The options of the outbound, by the client's request and the upstream's traits."""
    return {
        "legacy_functions": options.legacy_functions,
        "text_after_tool_call": "pass" if translation.text_after_tools else "drop",
    }


# The stream of a stored response, in chunks that may end within a frame.

_BLANK_LINE: Final = b"\n\n"


class StoredStream(EventSourceResponse):
    """Sends the pieces as they come, and comments between two frames while none come: `keepalive` is such a
    comment, `end` what a frame ends with."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        headers: Mapping[str, str],
        keep_alive: float,
        kind: bytes = SSE_TYPE,
        keepalive: bytes = KEEP_ALIVE,
        end: bytes = _BLANK_LINE,
    ) -> None:
        self._keepalive, self._end = keepalive, end
        super().__init__(
            pieces,
            headers=headers,
            media_type=kind.decode().partition(";")[0],
            ping=keep_alive,
            ping_message_factory=cast(Callable[[], ServerSentEvent], lambda: keepalive),  # bytes will do
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(
            scope, receive, _drop_keepalives_within_frames(send, self._keepalive, self._end)
        )


def _drop_keepalives_within_frames(send: Send, keepalive: bytes, end: bytes) -> Send:
    """`send`, serialized, and without keep-alives that would come within a frame."""
    lock, between = anyio.Lock(), True

    async def send_in_order(message: Message) -> None:
        nonlocal between
        async with lock:  # what waits for a slow client must not be overtaken
            body = message.get("body", b"")
            if body == keepalive:
                if not between:
                    return
            elif body:
                between = body.endswith(end)
            await send(message)

    return send_in_order
