"""The demo model behind the interface of an upstream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from itertools import islice
from typing import Any, Final

from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.sse import DONE, encode_data
from openresponses_server.errors import UpstreamError
from openresponses_server.http.flow import TaskSource
from openresponses_server.upstreams.base import UpstreamReply, UpstreamRequest
from openresponses_server.upstreams.catalog import ReportedModel
from openresponses_server.upstreams.demo.behaviours import (
    BEHAVIOURS,
    STOP,
    Behaviour,
    DemoTurn,
    Step,
    behaviour_of,
    read_turn,
)

MODELS: Final = ("demo", *(f"demo-{name}" for name in BEHAVIOURS), "demo-overloaded")
_OVERLOADED: Final = "demo-overloaded"
_CREATED: Final = 1_767_225_600  # the same in each answer, as everything here
_FRAMES_PER_READ: Final = 32
_MOST_STOPS: Final = 16  # sequences: the whole text is looked through for each


class DemoUpstream:
    """Answers by rule. The model `demo-overloaded` refuses with status 429, as a busy server would."""

    name = "demo"
    address = "built in"
    forwards = False

    def open(self, request: UpstreamRequest) -> AbstractAsyncContextManager[UpstreamReply]:
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: UpstreamRequest) -> AsyncIterator[UpstreamReply]:
        turn = read_turn(decode_json(request.body))
        if turn.model == _OVERLOADED:
            raise UpstreamError(
                429, "The demo model is overloaded as asked.", headers={"retry-after": "1"}, cause="as asked"
            )
        if len(turn.stop) > _MOST_STOPS:
            what = f"The demo model takes at most {_MOST_STOPS} stop sequences."
            raise UpstreamError(400, what, error_type="invalid_request_error", param="stop", cause=what)
        behaviour = behaviour_of(turn)
        with closing(_reply(_frames(turn, behaviour), behaviour.pause)) as reply:
            yield reply

    def prewarm(self, request: UpstreamRequest) -> None:
        return None

    def clean(self, text: str, client_key: str | None = None) -> str:
        return text

    def key_refused(self, client_key: str | None = None) -> str:
        return ""

    def account(self, client_key: str | None = None) -> str:
        return self.name

    async def models(self) -> list[ReportedModel]:
        return list(map(ReportedModel, MODELS))

    async def close(self) -> None:
        return None


def _reply(frames: Iterator[bytes], pause: float) -> TaskSource:
    """Return a reply with these frames, with so many seconds before each, or several at once."""

    async def read() -> bytes:
        await asyncio.sleep(pause)
        return b"".join(islice(frames, 1 if pause else _FRAMES_PER_READ))

    return TaskSource(read)


def _frames(turn: DemoTurn, behaviour: Behaviour) -> Iterator[bytes]:
    """The stream of a Chat Completions server."""
    reason = None
    spent = 0
    yield _frame(turn, {"delta": {"role": "assistant", "content": ""}})
    for step in _steps(turn, behaviour):
        if "error" in step:
            yield encode_data(encode(step))
            return
        reason = step.get("finish_reason")
        if reason is None and turn.max_tokens is not None and spent >= turn.max_tokens:
            reason, step = "length", {"finish_reason": "length"}
        spent += reason is None
        yield _frame(turn, step)
        if reason is not None:
            break
    if reason is None:
        return
    if turn.usage:
        yield _chunk(turn, choices=[], usage=_usage(turn, spent))
    yield DONE


def _steps(turn: DemoTurn, behaviour: Behaviour) -> Iterator[Step]:
    """Yield the steps of the behaviour, its text up to the first of the turn's stop sequences."""
    if turn.stop:
        text = "".join(step.get("delta", {}).get("content", "") for step in behaviour.play(turn))
        positions = [at for sequence in turn.stop if (at := text.find(sequence)) >= 0]
        if positions:
            return _stopped(behaviour.play(turn), min(positions))
    return behaviour.play(turn)


def _stopped(steps: Iterator[Step], left: int) -> Iterator[Step]:
    """The steps with the first characters of their text, which is longer than these."""
    for step in steps:
        piece = step.get("delta", {}).get("content", "")
        if len(piece) > left:
            break
        left -= len(piece)
        yield step
    if left:
        yield {"delta": {"content": piece[:left]}}
    yield STOP


def _frame(turn: DemoTurn, step: dict[str, Any]) -> bytes:
    choice = {"index": 0, "delta": step.get("delta", {}), "finish_reason": step.get("finish_reason")}
    return _chunk(turn, choices=[choice])


def _chunk(turn: DemoTurn, **fields: Any) -> bytes:
    head = {"id": "chatcmpl-demo", "object": "chat.completion.chunk", "created": _CREATED}
    return encode_data(encode(head | {"model": turn.model} | fields))


def _usage(turn: DemoTurn, spent: int) -> dict[str, int]:
    """Words stand for tokens."""
    return {
        "prompt_tokens": turn.prompt_words,
        "completion_tokens": spent,
        "total_tokens": turn.prompt_words + spent,
    }
