"""Clients of other APIs over HTTP: what each dialect's stream is there, and the form of its answers."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects import anthropic_messages, chat_completions, vscode
from openresponses_bridge.dialects.base import ClientSide, Dialect, Outbound
from openresponses_bridge.dialects.chat_completions import AnswerOptions, OutboundOptions
from openresponses_bridge.protocol import codec
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer
from openresponses_server.api.forms import KEEP_ALIVE, SSE_TYPE
from openresponses_server.runs.client import Batch
from openresponses_server.runs.translation import Translation


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
