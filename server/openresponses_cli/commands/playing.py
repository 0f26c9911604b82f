"""Plays conformance scenarios against a running server, over HTTP and WebSockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

from msgspec import Struct
from websockets.asyncio.client import ClientConnection
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus, WebSocketException
from websockets.uri import parse_uri

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
from openresponses_bridge.text import counted, printable
from openresponses_cli.commands.reports import JUnitCase, JUnitOutcome
from openresponses_server.http.client.failures import RemoteProtocolError, cause_of
from openresponses_server.http.client.pool import ConnectionPool
from openresponses_server.http.flow import BodyReader
from openresponses_server.settings import Timeouts

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
            response_id = response.get("id") if isinstance(response, dict) else None
            if isinstance(response_id, str) and 0 < len(response_id) <= _LONGEST:
                self._ids[response_id] = None

    async def delete_all(self) -> None:
        """Delete all responses, including those in progress. One that no longer exists is not an error. Stops
        when the server becomes unreachable."""
        pending = list(self._ids)
        self._ids.clear()
        while pending:
            try:
                if not await self._delete(f"/responses/{quote(pending[0], safe='')}"):
                    self.not_deleted.append(pending[0])
            except OSError:
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


ScenarioOutcome = Literal["passed", "failed", "skipped"]
_LAST_EVENTS: Final = TERMINALS | {"error"}
_JSON: Final = {"content-type": "application/json"}
_CLOSING: Final = 5.0  # seconds for a WebSocket's closing handshake
_MOST: Final = 64 * 1024 * 1024  # bytes of one answer
_UNREADABLE: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class ScenarioResult(Struct, frozen=True):
    """The result of one scenario. `message` says why it failed or was skipped. `causes` name the faults
    without their places, so that scenarios that fail because of one fault have the same cause."""

    id: str
    outcome: ScenarioOutcome
    description: str
    source: str
    message: str = ""
    level: Level = "full"
    causes: tuple[str, ...] = ()
    seconds: float = 0.0


class Unreachable(Exception):
    """The server can't be reached, or lists no model to test with."""


class TooLong(RemoteProtocolError):
    """An answer beyond the size limit."""


class WebSocket(ClientConnection):
    """A WebSocket whose connection may be lost before it is made: TLS can fail after a proxy."""

    def connection_lost(self, exc: Exception | None) -> None:
        if hasattr(self, "transport"):
            super().connection_lost(exc)


class Player:
    """Plays scenarios against the server whose API begins at `base` (`http://host:port/v1`).

    A context manager. `timeout` is the limit of one step, in seconds.
    """

    def __init__(self, base: str, headers: Mapping[str, str], timeout: float) -> None:
        self._base = base.rstrip("/")
        self._headers = dict(headers)
        self._timeout = timeout
        self._http: ConnectionPool
        self._sockets: dict[int, WebSocket] = {}
        self._stored = StoredResponses(self._send_request)

    @property
    def not_deleted(self) -> list[str]:
        """The ids of stored responses that could not be deleted."""
        return self._stored.not_deleted

    async def __aenter__(self) -> Player:
        self._http = ConnectionPool("", Timeouts(connect=self._timeout, first_byte=self._timeout))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    async def first_model(self) -> str:
        """Return the first model that the server lists. Raises Unreachable if it lists none."""
        answer = await self._first_request(HttpRequest(path="/models", method="GET"))
        listed = answer.json if isinstance(answer.json, dict) else {}
        for model in listed.get("data") or []:
            if isinstance(model, dict) and isinstance(model.get("id"), str):
                return str(model["id"])
        raise Unreachable(f"{self._base}/models lists no models: name one with --model")

    async def check_reachable(self) -> None:
        """Raises Unreachable if the server does not answer."""
        await self._first_request(HttpRequest(path="/models", method="GET"))

    async def _first_request(self, request: HttpRequest) -> ServerAnswer:
        try:
            answer = await self._send_request(request)
        except OSError as error:
            raise Unreachable(f"{self._base} can't be reached: {cause_of(error)}") from error
        if 300 <= answer.status < 400:
            raise Unreachable(f"{self._base} redirects to {answer.headers.get('location', 'nowhere')}")
        return answer

    async def play(self, scenario: Scenario, target: ServerUnderTest) -> ScenarioResult:
        """Play one scenario, then delete the responses that it has stored."""
        outcome: ScenarioOutcome = "passed"
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
        except OSError as error:
            outcome, message = "failed", f"the connection failed: {cause_of(error)}"
        except (WebSocketException, WireError) as error:
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
        return ScenarioResult(*about, message, scenario.level, causes, seconds)

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
            async with asyncio.timeout(self._timeout):
                return await self._send_message(step)
        await asyncio.sleep(step.seconds)
        return ServerAnswer(status=0)

    async def _send_request(self, request: HttpRequest) -> ServerAnswer:
        async with asyncio.timeout(self._timeout):
            return await self._exchange(request)

    async def _exchange(self, request: HttpRequest) -> ServerAnswer:
        payload = request.body
        headers = self._headers if payload is None else {**self._headers, **_JSON}
        data = b"" if payload is None else payload if isinstance(payload, bytes) else encode(payload)
        reply = await self._http.request(
            request.method, self._base + request.path, headers=headers, data=data
        )
        with closing(reply):
            reader, read = BodyReader(reply.content), bytearray()
            ends = 0
            while piece := await reader.read():
                before = max(0, len(read) - 1)  # the two line ends of a frame may arrive in two chunks
                read += piece
                if len(read) > _MOST:
                    raise TooLong(f"the answer is longer than {_MOST // 2**20} MiB")
                ends += read.count(b"\n\n", before)
                if request.leave_after is not None and ends >= request.leave_after:
                    break
        body, left = bytes(read), request.leave_after is not None
        if request.leave_after is not None:
            body = _frames(body, request.leave_after)
        return ServerAnswer(status=reply.status, headers=dict(reply.headers), body=body, left=left)

    async def _send_message(self, message: WebSocketMessage) -> ServerAnswer:
        try:
            socket = self._sockets.get(message.socket) or await self._connect(message.socket)
        except InvalidStatus as refused:
            return ServerAnswer(status=refused.response.status_code)
        except InvalidMessage as error:
            if not isinstance(error.__cause__, ValueError):  # the connection ended
                raise
            raise NotOffered("WebSocket: the upgrade is not answered in HTTP/1.1") from error
        await socket.send(encode(message.message).decode())
        messages: list[bytes] = []
        size = 0
        with suppress(ConnectionClosed):
            while not messages or _type(messages[-1]) not in _LAST_EVENTS:
                messages.append(await socket.recv(decode=False))
                size += len(messages[-1])
                if size > _MOST:
                    raise TooLong(f"the turn is longer than {_MOST // 2**20} MiB")
        return ServerAnswer(status=101, messages=messages)

    async def _connect(self, number: int) -> WebSocket:
        address = f"{self._base}/responses"
        protocol = ClientProtocol(parse_uri(address.replace("http", "ws", 1)), max_size=_MOST)
        socket = await self._http.connect(address, partial(WebSocket, protocol, close_timeout=_CLOSING))
        try:
            await socket.handshake(self._headers)
        except BaseException:
            socket.transport.abort()
            raise
        self._sockets[number] = socket
        return socket

    async def _close_sockets(self) -> None:
        for socket in self._sockets.values():
            await socket.close()
        self._sockets.clear()


async def play_all(
    scenarios: Iterable[Scenario],
    base: str,
    headers: Mapping[str, str],
    model: str | None,
    wire: WireName,
    timeout: float,
    show: Callable[[ScenarioResult], None] = lambda verdict: None,
) -> tuple[list[ScenarioResult], list[str]]:
    """Play all scenarios. Returns the verdicts, for each of which `show` is called at once, and the ids of
    stored responses that could not be deleted.

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
    """Return the base URL of the API: `/v1` is appended to an address without a path. Raises ValueError."""
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


# Reports of verdicts: failures by cause, and the cases of a JUnit report.


def failures_by_cause(verdicts: Sequence[ScenarioResult]) -> str:
    """Return each cause with the scenarios that it fails, the most frequent first; "" without failures."""
    causes: dict[str, list[str]] = {}
    for verdict in verdicts:
        for cause in verdict.causes:
            causes.setdefault(cause, []).append(verdict.id)
    lines = []
    for cause, failing in sorted(causes.items(), key=lambda found: -len(found[1])):
        scenarios = counted(len(failing), "scenario")
        lines += [f"  {printable(cause)}", f"      {scenarios}: {', '.join(failing)}"]
    return "\n".join(lines)


def junit_cases(verdicts: Iterable[ScenarioResult]) -> Iterator[JUnitCase]:
    """Yield the verdicts as cases of a JUnit report, each with its area as the class."""
    outcomes: dict[str, JUnitOutcome] = {"passed": "passed", "failed": "failure", "skipped": "skipped"}
    for each in verdicts:
        area, _, _ = each.id.partition(".")
        details = f"{each.description} [{each.source}]" if each.outcome == "failed" else ""
        yield JUnitCase(area, each.id, outcomes[each.outcome], each.message, details, each.seconds)
