"""The kinds of clients in a load. Each asks for a text that it knows, and reports the result."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from openresponses_bridge.sse import SSEDecoder
from tests.load.model import Said
from tests.load.results import TERMINAL, Recorder, Recording, Result, misreported
from tests.load.wire import TIMEOUT, Broken, Connections
from tests.support.serving import output_text

_POLL: Final = 1.0  # seconds between two requests for the state of a background response
_AGAIN: Final = 0.25  # seconds before a client whose connection broke continues
_TRIES: Final = 40  # attempts of a client whose connection breaks each time


class Place(NamedTuple):
    """The server's address; `sealed` has compactions that clients have kept."""

    connections: Connections
    chance: random.Random
    sealed: list[dict[str, Any]]


Client = Callable[[Place, Said], Awaitable[Result | Recording]]


def _whole(response: dict[str, Any], said: Said, first: float) -> Result:
    status, text = response["status"], output_text(response)
    return Result(status, first, misreported(status, text, said), response["id"], text, is_stored=True)


def _responses(said: Said, **more: Any) -> dict[str, Any]:
    return {"model": "said", "input": said.request, **more}


async def stream(place: Place, said: Said) -> Result | Recording:
    """A stored stream, read to its end."""
    return await _streamed(place, said, store=True)


async def unstored(place: Place, said: Said) -> Result | Recording:
    """A stream that is not stored."""
    return await _streamed(place, said, store=False)


async def _streamed(place: Place, said: Said, *, store: bool) -> Result | Recording:
    recorder = Recorder(said, is_stored=store)
    body = _responses(said, stream=True, store=store)
    try:
        async with place.connections.asked("POST", "/v1/responses", body) as answer:
            if answer.status != 200:
                return _refused(answer.status)
            async for data in answer.pieces():
                recorder.feed(data)
    except Broken:
        return await _resumed(place, recorder) if store else recorder.recording()
    return recorder.recording(is_whole=True)


def _refused(status: int) -> Result:
    wrong = "" if status in (408, 429, 500, 502, 503, 504) else f"refused with {status}"
    return Result(f"refused {status}", wrong=wrong)


async def _resumed(place: Place, recorder: Recorder) -> Result | Recording:
    """Continue at the event after the last one, again each time the connection breaks."""
    for _ in range(_TRIES):
        position = recorder.position()
        if position.status or not position.response_id:
            break
        path = f"/v1/responses/{position.response_id}?stream=true&starting_after={position.last}"
        try:
            async with place.connections.asked("GET", path) as answer:
                if answer.status == 200:
                    async for data in answer.pieces():
                        recorder.feed(data)
                    return recorder.recording(is_whole=True)
                if answer.status == 404:
                    return Result("lost", recorder.first, "a response that was begun is not there")
        except Broken:
            pass
        await asyncio.sleep(_AGAIN)
    return recorder.recording()


async def resume(place: Place, said: Said) -> Result | Recording:
    """A stored stream that the client leaves after some events and then continues."""
    recorder = Recorder(said, is_stored=True)
    after = place.chance.randrange(1, said.length + 3)
    body = _responses(said, stream=True, store=True, background=place.chance.random() < 0.5)
    try:
        async with place.connections.asked("POST", "/v1/responses", body) as answer:
            if answer.status != 200:
                return _refused(answer.status)
            async for data in answer.pieces():
                recorder.feed(data)
                if recorder.count > after:
                    break
    except Broken:
        pass
    return await _resumed(place, recorder)


async def whole(place: Place, said: Said) -> Result:
    """A whole answer."""
    begun = time.monotonic()
    async with place.connections.asked("POST", "/v1/responses", _responses(said)) as answer:
        response = await answer.json()
        if answer.status != 200:
            return _refused(answer.status)
    return _whole(response, said, time.monotonic() - begun)


async def sealed(place: Place, said: Said) -> Result:
    """A turn after a sealed compaction: a new one, or one that was made at any earlier time."""
    begun = time.monotonic()
    if not place.sealed or place.chance.random() < 0.5:
        async with place.connections.asked("POST", "/v1/responses/compact", _responses(said)) as answer:
            compacted = await answer.json()
            if answer.status != 200:
                return _refused(answer.status)
        place.sealed.append(compacted["output"][-1])
    behind = [place.chance.choice(place.sealed), {"role": "user", "content": said.request}]
    body = _responses(said, store=False) | {"input": behind}
    async with place.connections.asked("POST", "/v1/responses", body) as answer:
        response = await answer.json()
        if answer.status != 200:
            return _refused(answer.status)
    return _whole(response, said, time.monotonic() - begun)._replace(is_stored=False)


async def _queued(place: Place, said: Said) -> Result:
    """A response in the background, as it was queued, or its refusal."""
    begun = time.monotonic()
    async with place.connections.asked("POST", "/v1/responses", _responses(said, background=True)) as answer:
        response = await answer.json()
        if answer.status != 200:
            return _refused(answer.status)
    return Result(response["status"], time.monotonic() - begun, response_id=response["id"])


async def background(place: Place, said: Said) -> Result:
    """A response in the background; the client asks for its state until it has ended."""
    queued = await _queued(place, said)
    return await _polled(place, said, queued) if queued.response_id else queued


async def _polled(place: Place, said: Said, queued: Result) -> Result:
    response_id, first = queued.response_id, queued.first
    until = time.monotonic() + 60 + said.length * said.pause / 1000
    while time.monotonic() < until:
        try:
            async with place.connections.asked("GET", f"/v1/responses/{response_id}") as answer:
                response = await answer.json()
                if answer.status == 404:
                    return Result("lost", first, "a response that was begun is not there", response_id)
                if answer.status == 200 and response["status"] in TERMINAL:
                    return _whole(response, said, first)
        except Broken:
            pass
        await asyncio.sleep(_POLL)
    return Result("unended", first, "a response in the background does not end", response_id)


async def cancel(place: Place, said: Said) -> Result:
    """A response in the background that the client cancels at any point."""
    queued = await _queued(place, said)
    if not queued.response_id:
        return queued
    await asyncio.sleep(place.chance.uniform(0.0, said.length * said.pause / 1000))
    try:
        async with place.connections.asked("POST", f"/v1/responses/{queued.response_id}/cancel") as answer:
            await answer.body()
    except Broken:
        pass
    return await _polled(place, said, queued)


async def leave(place: Place, said: Said) -> Result | Recording:
    """A stream that is not stored, and that the client leaves at any point."""
    recorder = Recorder(said)
    after = place.chance.randrange(said.length + 3)
    body = _responses(said, stream=True, store=False)
    async with place.connections.asked("POST", "/v1/responses", body) as answer:
        if answer.status != 200:
            return _refused(answer.status)
        async for data in answer.pieces():
            recorder.feed(data)
            if recorder.count > after:
                break
    return recorder.recording(has_left=True)


async def websocket(place: Place, said: Said) -> Result | Recording:
    """A turn over a WebSocket."""
    recorder = Recorder(said, is_framed=False)
    try:
        async with connect(
            f"ws://127.0.0.1:{place.connections.port}/v1/responses",
            additional_headers={"authorization": "Bearer load"},
            compression=None,
            open_timeout=60,
            close_timeout=1,
            ping_interval=None,
        ) as socket:
            await socket.send(json.dumps({"type": "response.create", **_responses(said, store=False)}))
            while True:
                message = await asyncio.wait_for(socket.recv(decode=False), TIMEOUT)
                event = json.loads(message)
                if event["type"] == "error":
                    return Result(f"refused {event.get('status')}")
                recorder.feed_event(message)
                if event["type"].removeprefix("response.") in TERMINAL:
                    return recorder.recording(is_whole=True)
    except (WebSocketException, OSError):
        return recorder.recording()


async def chat(place: Place, said: Said) -> Result:
    """A stream over Chat Completions."""
    body = {"model": "said", "messages": [{"role": "user", "content": said.request}], "stream": True}
    texts: list[str] = []
    ends: list[str] = []

    def read(event: dict[str, Any]) -> None:
        if "error" in event:
            ends.append("failed")
        for choice in event.get("choices", ()):
            texts.append(choice["delta"].get("content") or "")
            if choice["finish_reason"]:
                ends.append("completed" if choice["finish_reason"] == "stop" else choice["finish_reason"])

    return await _other(place, "/v1/chat/completions", body, said, texts, ends, read)


async def messages(place: Place, said: Said) -> Result:
    """A stream over Anthropic's Messages."""
    body = {
        "model": "said",
        "max_tokens": 10_000,
        "messages": [{"role": "user", "content": said.request}],
        "stream": True,
    }
    texts: list[str] = []
    ends: list[str] = []

    def read(event: dict[str, Any]) -> None:
        if event["type"] == "content_block_delta":
            texts.append(event["delta"].get("text", ""))
        elif event["type"] == "error":
            ends.append("failed")
        elif event["type"] == "message_stop":
            ends.append("completed")

    return await _other(place, "/v1/messages", body, said, texts, ends, read)


async def vscode(place: Place, said: Said) -> Result:
    """VS Code's parts, one per line; unless there is an error, the end of the body is the end of the
    answer."""
    body = {"model": "said", "messages": [{"role": 1, "content": said.request}]}
    texts: list[str] = []
    ends: list[str] = []
    begun, first, rest = time.monotonic(), 0.0, b""
    try:
        async with place.connections.asked("POST", "/vscode/v1/chat?errors=line", body) as answer:
            if answer.status != 200:
                return _refused(answer.status)
            async for data in answer.pieces():
                first = first or time.monotonic() - begun
                *lines, rest = (rest + data).split(b"\n")
                for line in filter(None, lines):
                    _read_part(json.loads(line), texts, ends)
        ends = ends or ["completed"]
    except Broken:
        pass
    return _ended(said, texts, ends, first)


def _read_part(part: dict[str, Any], texts: list[str], ends: list[str]) -> None:
    if "error" in part:
        ends.append("failed")
    elif part["type"] == "LanguageModelTextPart":
        texts.append(part["value"])


async def _other(
    place: Place,
    path: str,
    body: dict[str, Any],
    said: Said,
    texts: list[str],
    ends: list[str],
    read: Callable[[dict[str, Any]], None],
) -> Result:
    frames = SSEDecoder()
    begun, first = time.monotonic(), 0.0
    try:
        async with place.connections.asked("POST", path, body) as answer:
            if answer.status != 200:
                return _refused(answer.status)
            async for data in answer.pieces():
                for frame in frames.feed(data):
                    first = first or time.monotonic() - begun
                    if frame.data != b"[DONE]":
                        read(json.loads(frame.data))
    except Broken:
        pass
    return _ended(said, texts, ends, first)


def _ended(said: Said, texts: list[str], ends: list[str], first: float) -> Result:
    outcome = ends[-1] if ends else "broken"
    return Result(outcome, first, misreported(outcome, "".join(texts), said))


KINDS: Final[dict[str, Client]] = {
    each.__name__: each
    for each in (
        stream,
        unstored,
        whole,
        sealed,
        websocket,
        background,
        resume,
        cancel,
        leave,
        chat,
        messages,
        vscode,
    )
}


async def run(kind: str, place: Place, said: Said) -> Result | Recording:
    """Run one request of this kind; the result is `broken` if the connection fails at its beginning."""
    try:
        return await KINDS[kind](place, said)
    except Broken:
        return Result("broken")
    except TimeoutError:
        return Result("silent", wrong="nothing came for a minute")
