"""Plays conformance scenarios against a running server, over HTTP and WebSockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import aiohttp
from aiohttp import ClientSession, ClientTimeout, ClientWebSocketResponse, WSMsgType
from msgspec import Struct

from openresponses_bridge.conformance.published import WireName
from openresponses_bridge.conformance.registry import TERMINALS
from openresponses_bridge.conformance.scenario import (
    Broken,
    HttpRequest,
    Level,
    NotOffered,
    Scenario,
    ServerAnswer,
    ServerUnderTest,
    Step,
    WebSocketMessage,
)
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.text import printable

# Responses that scenarios store are deleted afterwards.

_RUNNING: Final = frozenset({400, 409, 425})  # statuses for "still in progress" on various servers
_GONE: Final = frozenset({200, 202, 204, 404})
_TRIES: Final = 5
_PAUSE: Final = 0.2  # seconds
_LONGEST: Final = 256  # characters of an id


class StoredResponses:
    """The responses that a scenario has stored on the server. `send_request` sends one request."""

    def __init__(self, send_request: Callable[[HttpRequest], Awaitable[ServerAnswer]]) -> None:
        self._send_request = send_request
        self._ids: dict[str, None] = {}
        self.not_deleted: list[str] = []
        """The ids that could not be deleted, of all scenarios so far."""

    def record(self, step: Step, answer: ServerAnswer) -> None:
        """Record the ids of responses that this step has stored."""
        if answer.status >= 400:
            return
        if isinstance(step, HttpRequest):
            fields = step.body if (step.method, step.path) == ("POST", "/responses") else None
        else:
            fields = step.message if isinstance(step, WebSocketMessage) else None
        if not isinstance(fields, dict) or fields.get("store") is False:
            return
        for response in (answer.response, *(event.get("response") for event in answer.events[:1])):
            found = response.get("id") if isinstance(response, dict) else None
            if isinstance(found, str) and 0 < len(found) <= _LONGEST:
                self._ids[found] = None

    async def delete_all(self) -> None:
        """Delete all responses, also those in progress. One that no longer exists is not an error. Stops when
        the server becomes unreachable."""
        pending = list(self._ids)
        self._ids.clear()
        while pending:
            try:
                if not await self._delete(f"/responses/{quote(pending[0], safe='')}"):
                    self.not_deleted.append(pending[0])
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
                self.not_deleted += pending
                return
            del pending[0]

    async def _delete(self, path: str) -> bool:
        for _ in range(_TRIES):
            status = (await self._send_request(HttpRequest(path=path, method="DELETE"))).status
            if status not in _RUNNING:
                return status in _GONE
            await self._send_request(HttpRequest(path=f"{path}/cancel", method="POST"))
            await asyncio.sleep(_PAUSE)
        return False


Outcome = Literal["passed", "failed", "skipped"]
_LAST_EVENTS: Final = TERMINALS | {"error"}
_JSON: Final = {"content-type": "application/json"}
_MOST: Final = 64 * 1024 * 1024  # bytes of one answer
_UNREADABLE: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class Verdict(Struct, frozen=True):
    """The result of one scenario. `message` says why it failed or was skipped. `causes` name the faults
    without their places, so that scenarios that fail because of one fault have the same cause."""

    id: str
    outcome: Outcome
    description: str
    source: str
    message: str = ""
    level: Level = "full"
    causes: tuple[str, ...] = ()
    seconds: float = 0.0


class Unreachable(Exception):
    """The server can't be reached, or lists no model to test with."""


class TooLong(OSError):
    """An answer beyond the size limit."""


class Player:
    """Plays scenarios against the server whose API begins at `base` (`http://host:port/v1`).

    A context manager. `timeout` is the limit of one step, in seconds.
    """

    def __init__(self, base: str, headers: Mapping[str, str], timeout: float) -> None:
        self._base = base.rstrip("/")
        self._headers = dict(headers)
        self._timeout = timeout
        self._http: ClientSession
        self._sockets: dict[int, ClientWebSocketResponse] = {}
        self._stored = StoredResponses(self._send_request)

    @property
    def not_deleted(self) -> list[str]:
        """The ids of stored responses that could not be deleted."""
        return self._stored.not_deleted

    async def __aenter__(self) -> Player:
        limit = ClientTimeout(total=self._timeout)
        self._http = ClientSession(timeout=limit, headers=self._headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    async def first_model(self) -> str:
        """The first model that the server lists. Raises Unreachable when it lists none."""
        answer = await self._first_request(HttpRequest(path="/models", method="GET"))
        listed = answer.json if isinstance(answer.json, dict) else {}
        for model in listed.get("data") or []:
            if isinstance(model, dict) and isinstance(model.get("id"), str):
                return str(model["id"])
        raise Unreachable(f"{self._base}/models lists no model: say which with --model")

    async def check_reachable(self) -> None:
        """Raises Unreachable if the server does not answer."""
        await self._first_request(HttpRequest(path="/models", method="GET"))

    async def _first_request(self, request: HttpRequest) -> ServerAnswer:
        try:
            return await self._send_request(request)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = str(error) or type(error).__name__
            raise Unreachable(f"{self._base} can't be reached: {why}") from error

    async def play(self, scenario: Scenario, target: ServerUnderTest) -> Verdict:
        """Play one scenario, then delete the responses that it has stored."""
        outcome: Outcome = "passed"
        message = ""
        causes: tuple[str, ...] = ()
        begun = perf_counter()
        try:
            await self._run_steps(scenario, target)
        except NotOffered as reason:
            outcome, message = "skipped", str(reason)
        except Broken as reason:
            outcome, message, causes = "failed", str(reason), reason.causes
        except TimeoutError:
            outcome, message = "failed", f"no answer within {self._timeout:g} seconds"
        except TooLong as error:
            outcome, message = "failed", str(error)
        except (aiohttp.ClientError, OSError, WireError) as error:
            outcome, message = "failed", f"the connection failed: {error}"
        except _UNREADABLE as error:
            # a step accessed something that the answer does not have
            outcome, message = "failed", f"the answer can't be read: {type(error).__name__}: {error}"
        seconds = round(perf_counter() - begun, 3)
        await self._close_sockets()
        await self._stored.delete_all()
        if outcome == "failed" and not causes:
            causes = (message,)
        about = (scenario.id, outcome, scenario.description, scenario.source)
        return Verdict(*about, message, scenario.level, causes, seconds)

    async def _run_steps(self, scenario: Scenario, target: ServerUnderTest) -> None:
        steps = scenario.play(target)
        with suppress(StopIteration):
            step = next(steps)
            while True:
                answer = await self._run_step(step)
                self._stored.record(step, answer)
                step = steps.send(answer)

    async def _run_step(self, step: Step) -> ServerAnswer:
        if isinstance(step, HttpRequest):
            return await self._send_request(step)
        if isinstance(step, WebSocketMessage):
            return await asyncio.wait_for(self._send_message(step), self._timeout)
        await asyncio.sleep(step.seconds)
        return ServerAnswer(status=0)

    async def _send_request(self, request: HttpRequest) -> ServerAnswer:
        body = (
            request.body if isinstance(request.body, bytes) or request.body is None else encode(request.body)
        )
        headers = _JSON if body is not None else {}
        async with self._http.request(
            request.method, self._base + request.path, data=body, headers=headers
        ) as reply:
            fields = {name.lower(): value for name, value in reply.headers.items()}
            read = bytearray()
            ends = 0
            async for piece in reply.content.iter_any():
                before = max(0, len(read) - 1)  # the two line ends of a frame may arrive in two chunks
                read += piece
                if len(read) > _MOST:
                    raise TooLong(f"the answer is longer than {_MOST // 2**20} MiB")
                ends += read.count(b"\n\n", before)
                if request.leave_after is not None and ends >= request.leave_after:
                    reply.close()
                    break
            body = bytes(read)
            if request.leave_after is None:
                return ServerAnswer(status=reply.status, headers=fields, body=body)
            return ServerAnswer(
                status=reply.status, headers=fields, body=_frames(body, request.leave_after), left=True
            )

    async def _send_message(self, message: WebSocketMessage) -> ServerAnswer:
        try:
            socket = self._sockets.get(message.socket) or await self._connect(message.socket)
        except aiohttp.WSServerHandshakeError as refused:
            return ServerAnswer(status=refused.status)
        await socket.send_str(encode(message.message).decode())
        messages: list[bytes] = []
        size = 0
        async for received in socket:
            if received.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                break
            data = received.data.encode() if isinstance(received.data, str) else received.data
            messages.append(data)
            size += len(data)
            if size > _MOST:
                raise TooLong(f"the turn is longer than {_MOST // 2**20} MiB")
            if _type(data) in _LAST_EVENTS:
                break
        return ServerAnswer(status=101, messages=messages)

    async def _connect(self, number: int) -> ClientWebSocketResponse:
        address = self._base.replace("http", "ws", 1) + "/responses"
        socket = await self._http.ws_connect(address, max_msg_size=_MOST)
        self._sockets[number] = socket
        return socket

    async def _close_sockets(self) -> None:
        for socket in self._sockets.values():
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                await asyncio.wait_for(socket.close(), 5)
        self._sockets.clear()


async def play_all(
    scenarios: Iterable[Scenario],
    base: str,
    headers: Mapping[str, str],
    model: str | None,
    wire: WireName,
    timeout: float,
    show: Callable[[Verdict], None] = lambda verdict: None,
) -> tuple[list[Verdict], list[str]]:
    """Play all scenarios; the verdicts, for each of which `show` is called at once, and the ids of stored
    responses that could not be deleted.

    `base` is the base URL of the API; without a `model` the first that the server lists is used; `timeout` is
    the limit of one step, in seconds. Raises Unreachable.
    """
    verdicts = []
    async with Player(base, headers, timeout) as player:
        if model is None:
            model = await player.first_model()
        else:
            await player.check_reachable()
        target = ServerUnderTest(model, wire)
        for scenario in scenarios:
            verdicts.append(await player.play(scenario, target))
            show(verdicts[-1])
        return verdicts, player.not_deleted


def api_base(url: str) -> str:
    """The base URL of the API: `/v1` is appended to an address without a path. Raises ValueError."""
    address = urlsplit(url if "://" in url else f"http://{url}")
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError(f"URL is not an http address: {url}")
    return f"{address.scheme}://{address.netloc}{address.path.rstrip('/') or '/v1'}"


def _frames(body: bytes, count: int) -> bytes:
    """The first `count` frames."""
    return b"".join(frame + b"\n\n" for frame in body.split(b"\n\n")[:-1][:count])


def _type(data: bytes) -> Any:
    try:
        event = decode_json(data)
    except WireError:
        return None  # the scenario reports the error
    return event.get("type") if isinstance(event, dict) else None


# Reports of verdicts: failures by cause, and JUnit XML.


def failures_by_cause(verdicts: Sequence[Verdict]) -> str:
    """Each cause with the scenarios that it fails, the most frequent first; "" without failures."""
    causes: dict[str, list[str]] = {}
    for verdict in verdicts:
        for cause in verdict.causes:
            causes.setdefault(cause, []).append(verdict.id)
    lines = []
    for cause, failing in sorted(causes.items(), key=lambda found: -len(found[1])):
        scenarios = "scenario" if len(failing) == 1 else "scenarios"
        lines += [f"  {printable(cause)}", f"      {len(failing)} {scenarios}: {', '.join(failing)}"]
    return "\n".join(lines)


def junit_report(name: str, verdicts: Sequence[Verdict]) -> bytes:
    """A JUnit report: one suite of this name, one case per scenario with its area as the class."""
    counts = {
        "tests": str(len(verdicts)),
        "failures": str(sum(each.outcome == "failed" for each in verdicts)),
        "errors": "0",
        "skipped": str(sum(each.outcome == "skipped" for each in verdicts)),
        "time": f"{sum(each.seconds for each in verdicts):.3f}",
    }
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", {"name": printable(name), **counts})
    for verdict in verdicts:
        area, _, _ = verdict.id.partition(".")
        about = {"classname": area, "name": verdict.id, "time": f"{verdict.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", about)
        message = {"message": printable(verdict.message)}  # XML does not allow control characters
        if verdict.outcome == "failed":
            failure = ElementTree.SubElement(case, "failure", message)
            failure.text = f"{verdict.description} [{verdict.source}]"
        elif verdict.outcome == "skipped":
            ElementTree.SubElement(case, "skipped", message)
    ElementTree.indent(suites)
    report: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return report + b"\n"
