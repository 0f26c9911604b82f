"""The kinds of clients of a load. Each knows the text that it has to receive, and says how it went."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.sse import SSEDecoder
from tests.load.model import Said
from tests.load.wire import Broken, asked
from tests.support.serving import output_text

_TERMINAL: Final = frozenset({"completed", "failed", "incomplete", "cancelled"})
_POLL: Final = 0.25  # seconds between two looks at a background response
_TRIES: Final = 40  # of what a client does again when its connection breaks


class Result(NamedTuple):
    """How one request went: `outcome` is the status of a response, `left`, or `refused 429`, `broken`;
    `wrong` says what must never be. `first` is seconds to the first event or to the whole answer, `text` what
    came, and `is_stored` says whether this end is to be found again."""

    outcome: str
    first: float = 0.0
    wrong: str = ""
    response_id: str = ""
    text: str = ""
    is_stored: bool = False


class Place(NamedTuple):
    """Where to ask; `sealed` are compactions that clients have kept."""

    port: int
    chance: random.Random
    sealed: list[dict[str, Any]]


Client = Callable[[Place, Said], Awaitable[Result]]


class Events:
    """The events of one response, checked as they come."""

    def __init__(self, text_of: Said) -> None:
        self._said = text_of
        self._frames = SSEDecoder()
        self._validator = StreamValidator()
        self._begun = time.monotonic()
        self.text: list[str] = []
        self.first = 0.0
        self.last = -1
        self.response_id = ""
        self.status = ""

    def feed(self, data: bytes) -> None:
        """Bytes of a stream."""
        for frame in self._frames.feed(data):
            self._validator.feed_frame(frame)
            if frame.data != b"[DONE]":
                self._read(json.loads(frame.data))

    def feed_event(self, data: str) -> None:
        """One event of a WebSocket."""
        self._validator.feed(data)
        self._read(json.loads(data))

    def cut(self) -> None:
        """What follows comes over another connection."""
        self._frames = SSEDecoder()

    def _read(self, event: dict[str, Any]) -> None:
        self.first = self.first or time.monotonic() - self._begun
        self.last = event.get("sequence_number", self.last)
        if event["type"] == "response.output_text.delta":
            self.text.append(event["delta"])
        response = event.get("response")
        if isinstance(response, dict):
            self.response_id = response["id"]
            if response["status"] in _TERMINAL:
                self.status = response["status"]

    def result(self) -> Result:
        """After the end."""
        if self.status:
            self._validator.close()
        wrong = "; ".join(map(str, self._validator.violations[:3]))
        text = "".join(self.text)
        if not wrong and self.status:
            wrong = misreported(self.status, text, self._said)
        return Result(self.status or "broken", self.first, wrong, self.response_id, text)

    def stored(self) -> Result:
        """After the end, of a response that is stored."""
        return self.result()._replace(is_stored=bool(self.status))


def misreported(status: str, text: str, said: Said) -> str:
    """What is wrong with a response of this status and text: completed ones have all of it, and others a
    beginning."""
    if status == "completed" and text != said.text:
        return f"completed with {text[-40:]!r} for {said.text[-40:]!r}"
    return "" if said.text.startswith(text) else f"{status} with {text[-60:]!r}"


def _whole(response: dict[str, Any], said: Said, first: float) -> Result:
    status, text = response["status"], output_text(response)
    return Result(status, first, misreported(status, text, said), response["id"], text, is_stored=True)


def _responses(said: Said, **more: Any) -> dict[str, Any]:
    return {"model": "said", "input": said.request, **more}


async def stream(place: Place, said: Said) -> Result:
    """A stored stream, read to its end."""
    return await _streamed(place, said, store=True)


async def unstored(place: Place, said: Said) -> Result:
    """A stream that is not stored."""
    return await _streamed(place, said, store=False)


async def _streamed(place: Place, said: Said, **more: Any) -> Result:
    events = Events(said)
    try:
        async with asked(
            place.port, "POST", "/v1/responses", _responses(said, stream=True, **more)
        ) as answer:
            if answer.status != 200:
                return _refused(answer.status)
            async for data in answer.pieces():
                events.feed(data)
    except Broken:
        if more["store"] and events.response_id:
            return await _resumed(place, events)
    return events.stored() if more["store"] else events.result()


def _refused(status: int) -> Result:
    wrong = "" if status in (408, 429, 500, 502, 503, 504) else f"refused with {status}"
    return Result(f"refused {status}", wrong=wrong)


async def _resumed(place: Place, events: Events) -> Result:
    """Continue at the event after the last, as often as that breaks."""
    for _ in range(_TRIES):
        events.cut()
        path = f"/v1/responses/{events.response_id}?stream=true&starting_after={events.last}"
        try:
            async with asked(place.port, "GET", path) as answer:
                if answer.status == 200:
                    async for data in answer.pieces():
                        events.feed(data)
                    return events.stored()
                if answer.status == 404:
                    return Result("lost", events.first, "a response that was begun is not there")
        except Broken:
            pass
        await asyncio.sleep(_POLL)
    return events.result()


async def resume(place: Place, said: Said) -> Result:
    """A stored stream that the client leaves after some events, and continues."""
    events = Events(said)
    after = place.chance.randrange(1, said.length + 3)
    try:
        body = _responses(said, stream=True, store=True, background=place.chance.random() < 0.5)
        async with asked(place.port, "POST", "/v1/responses", body) as answer:
            if answer.status != 200:
                return _refused(answer.status)
            async for data in answer.pieces():
                events.feed(data)
                if events.last >= after and events.response_id:
                    break
    except Broken:
        pass
    if events.status or not events.response_id:
        return events.stored()
    return await _resumed(place, events)


async def whole(place: Place, said: Said) -> Result:
    """An answer in one piece."""
    begun = time.monotonic()
    async with asked(place.port, "POST", "/v1/responses", _responses(said)) as answer:
        response = await answer.json()
        if answer.status != 200:
            return _refused(answer.status)
    return _whole(response, said, time.monotonic() - begun)


async def sealed(place: Place, said: Said) -> Result:
    """A turn behind a sealed compaction: a new one, or one that was made at any time before."""
    begun = time.monotonic()
    if not place.sealed or place.chance.random() < 0.5:
        async with asked(place.port, "POST", "/v1/responses/compact", _responses(said)) as answer:
            compacted = await answer.json()
            if answer.status != 200:
                return _refused(answer.status)
        place.sealed.append(compacted["output"][-1])
    behind = [place.chance.choice(place.sealed), {"role": "user", "content": said.request}]
    body = _responses(said, store=False) | {"input": behind}
    async with asked(place.port, "POST", "/v1/responses", body) as answer:
        response = await answer.json()
        if answer.status != 200:
            return _refused(answer.status)
    return _whole(response, said, time.monotonic() - begun)._replace(is_stored=False)


async def _queued(place: Place, said: Said) -> Result:
    """A response in the background, as it was queued, or its refusal."""
    begun = time.monotonic()
    async with asked(place.port, "POST", "/v1/responses", _responses(said, background=True)) as answer:
        response = await answer.json()
        if answer.status != 200:
            return _refused(answer.status)
    return Result(response["status"], time.monotonic() - begun, response_id=response["id"])


async def background(place: Place, said: Said) -> Result:
    """A response in the background, which is asked for until it has ended."""
    queued = await _queued(place, said)
    return await _polled(place, said, queued) if queued.response_id else queued


async def _polled(place: Place, said: Said, queued: Result) -> Result:
    response_id, first = queued.response_id, queued.first
    until = time.monotonic() + 60 + said.length * said.pause / 1000
    while time.monotonic() < until:
        try:
            async with asked(place.port, "GET", f"/v1/responses/{response_id}") as answer:
                response = await answer.json()
                if answer.status == 404:
                    return Result("lost", first, "a response that was begun is not there", response_id)
                if answer.status == 200 and response["status"] in _TERMINAL:
                    return _whole(response, said, first)
        except Broken:
            pass
        await asyncio.sleep(_POLL)
    return Result("unended", first, "a response in the background does not end", response_id)


async def cancel(place: Place, said: Said) -> Result:
    """A response in the background that is cancelled at any point."""
    queued = await _queued(place, said)
    if not queued.response_id:
        return queued
    await asyncio.sleep(place.chance.uniform(0.0, said.length * said.pause / 1000))
    try:
        async with asked(place.port, "POST", f"/v1/responses/{queued.response_id}/cancel") as answer:
            await answer.body()
    except Broken:
        pass
    return await _polled(place, said, queued)


async def leave(place: Place, said: Said) -> Result:
    """A stream that is not stored, of which the client leaves at any point."""
    events = Events(said)
    after = place.chance.randrange(said.length + 3)
    body = _responses(said, stream=True, store=False)
    async with asked(place.port, "POST", "/v1/responses", body) as answer:
        if answer.status != 200:
            return _refused(answer.status)
        async for data in answer.pieces():
            events.feed(data)
            if events.last >= after:
                break
    found = events.result()
    return found if events.status else found._replace(outcome="left")


async def websocket(place: Place, said: Said) -> Result:
    """A turn over a WebSocket."""
    events = Events(said)
    try:
        async with connect(
            f"ws://127.0.0.1:{place.port}/v1/responses",
            additional_headers={"authorization": "Bearer load"},
            compression=None,
            open_timeout=60,
            close_timeout=1,
        ) as socket:
            await socket.send(json.dumps({"type": "response.create", **_responses(said, store=False)}))
            while not events.status:
                message = await asyncio.wait_for(socket.recv(decode=True), 60)
                event = json.loads(message)
                if event["type"] == "error":
                    return Result(f"refused {event.get('status')}")
                events.feed_event(str(message))
    except (WebSocketException, OSError):
        pass
    return events.result()


async def chat(place: Place, said: Said) -> Result:
    """Chat Completions, streamed."""
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
    """Anthropic's Messages, streamed."""
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
    """VS Code's parts, a line each; without an error the end of the body is that of the answer."""
    body = {"model": "said", "messages": [{"role": 1, "content": said.request}]}
    texts: list[str] = []
    ends: list[str] = []
    begun, first, rest = time.monotonic(), 0.0, b""
    try:
        async with asked(place.port, "POST", "/vscode/v1/chat?errors=line", body) as answer:
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
        async with asked(place.port, "POST", path, body) as answer:
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


async def run(kind: str, place: Place, said: Said) -> Result:
    """One request of this kind; what breaks at its beginning is `broken`."""
    try:
        return await KINDS[kind](place, said)
    except Broken:
        return Result("broken")
    except TimeoutError:
        return Result("silent", wrong="nothing came for a minute")
