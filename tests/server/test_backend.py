"""`openresponses_server.backend`: an iterator of one's own under Starlette, whatever it and its client do."""

import asyncio
import json
import logging
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import iterate_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message

from openresponses_bridge import CreateResponse, HttpError
from openresponses_bridge.backend import Output, ToolCall
from openresponses_bridge.errors import LocalError
from openresponses_server.backend import BackendResponse, endpoint
from tests.support.event_streams import events_of, violations
from tests.support.serving import call, opened, serving_app
from tests.support.waiting import until, wait_until

ASKED = {"model": "m", "input": "Hello"}
STREAMED = ASKED | {"stream": True}


class Client:
    """Calls an application as a server does. It leaves when `leaves` is set, or with `after` bytes; each
    write waits for `reads`."""

    def __init__(self, body: Any = STREAMED, *, after: int | None = None, headers: Any = ()) -> None:
        self._pieces = [body if isinstance(body, bytes) else json.dumps(body).encode()]
        self._after = after
        self._headers = [(b"content-type", b"application/json"), *headers]
        self.leaves = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.messages: list[Message] = []
        self.breaks: Exception | None = None
        self._size = 0

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]

    async def _receive(self) -> Message:
        if self._pieces:
            return {"type": "http.request", "body": self._pieces.pop(), "more_body": False}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.reads.wait()
        if self.breaks is not None:
            raise self.breaks
        self.messages.append(message)
        self._size += len(message.get("body", b""))
        if self._after is not None and self._size > self._after:
            self.leaves.set()

    async def ask(self, app: ASGIApp) -> "Client":
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": self._headers,
            "query_string": b"",
        }
        await app(scope, self._receive, self._send)
        return self


def served(generate: Any, **options: Any) -> ASGIApp:
    return Route("/", endpoint(generate, **options), methods=["POST"]).app


Ending = Callable[[], Awaitable[None]]


class Model:
    """Yields these, and then waits for ever if `stays`; notes how it was ended."""

    def __init__(
        self, *outputs: Any, stays: bool = False, ending: Callable[[], Awaitable[None]] | None = None
    ):
        self._outputs = outputs
        self._stays = stays
        self._ending = ending
        self.begun = False
        self.ended: list[str] = []

    async def __call__(self, _request: CreateResponse) -> AsyncIterator[Output]:
        self.begun = True
        try:
            for output in self._outputs:
                if isinstance(output, BaseException):
                    raise output
                yield output
            if self._stays:
                await anyio.sleep_forever()
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        else:
            self.ended.append("")
        finally:
            if self._ending is not None:
                await self._ending()
                self.ended.append("cleaned up")


async def test_a_stream_and_a_whole_answer() -> None:
    model = Model("Hello, ", "world.")
    client = await Client().ask(served(model))
    assert (client.status, client.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert client.headers["cache-control"] == "no-store"
    assert violations(client.body) == []
    assert [message["more_body"] for message in client.messages[1:]] == [True, True, False]
    whole = await Client(ASKED).ask(served(model))
    assert (whole.status, whole.headers["content-length"]) == (200, str(len(whole.body)))
    assert json.loads(whole.body)["output"][0]["content"][0]["text"] == "Hello, world."
    assert model.ended == ["", ""]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat", {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}),
        (
            "anthropic",
            {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "stream": True},
        ),
    ],
)
async def test_another_api_on_another_route(path: Any, body: Any) -> None:
    client = await Client(body).ask(served(Model("Hi"), dialect=path))
    assert client.body.endswith(b"[DONE]\n\n" if path == "chat" else b'{"type":"message_stop"}\n\n')
    refused = await Client({}).ask(served(Model("Hi"), dialect=path))
    assert (refused.status, refused.error["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    ("body", "headers", "status", "param"),
    [
        (b"{", [], 400, None),
        ({"input": 5}, [], 400, "input"),
        (b"x" * 2_000, [], 413, None),
        (ASKED, [(b"content-length", b"2000")], 413, None),
        (ASKED, [(b"content-encoding", b"gzip")], 415, None),
        (b'{"input":' + b"[" * 500 + b"]" * 500 + b"}", [], 400, None),
    ],
)
async def test_what_can_t_be_read_is_refused(body: Any, headers: Any, status: int, param: str | None) -> None:
    model = Model("Hi")
    client = await Client(body, headers=headers).ask(served(model, max_body=1_500))
    assert (client.status, client.error["param"], model.ended) == (status, param, [])


async def test_a_web_page_can_t_send_a_form() -> None:
    client = Client(ASKED)
    client._headers = [(b"content-type", b"text/plain")]
    await client.ask(served(Model("Hi")))
    assert (client.status, client.error["code"]) == (415, "unsupported_media_type")


async def test_a_client_that_leaves_while_it_sends_is_not_answered() -> None:
    client = Client()
    client._pieces.clear()
    client.leaves.set()
    model = Model("Hi")
    await client.ask(served(model))
    assert (client.status, model.ended) == (400, [])


@pytest.mark.parametrize("body", [ASKED, STREAMED], ids=["whole", "streamed"])
async def test_a_failure_before_the_first_output_is_an_http_error(body: Any) -> None:
    busy = HttpError(429, "Too fast.", headers={"retry-after": "3"})
    client = await Client(body).ask(served(Model(busy)))
    assert (client.status, client.headers["retry-after"]) == (429, "3")
    assert client.error["message"] == "Too fast."
    assert (await Client(body).ask(served(Model(5)))).status == 500
    assert (await Client(body).ask(served(lambda _request: None))).status == 500


@pytest.mark.parametrize(
    "error",
    [
        OSError("secret"),
        TimeoutError(),
        asyncio.CancelledError(),
        KeyError("x"),
        SystemExit(0),
        KeyboardInterrupt(),
        BaseExceptionGroup("", [KeyboardInterrupt()]),
    ],
)
async def test_a_failure_in_mid_stream_is_the_response_s(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that looks as if the client had left, or as if somebody had cancelled."""
    model = Model("Hi", error)
    client = await Client().ask(served(model))
    assert violations(client.body) == []
    assert events_of(client.body)[-1]["response"]["error"]["message"] == "The server failed."
    assert client.messages[-1]["more_body"] is False
    assert type(error).__name__ in caplog.text
    whole = await Client(ASKED).ask(served(model))
    assert (whole.status, json.loads(whole.body)["status"]) == (200, "failed")


@pytest.mark.parametrize("body", [ASKED, STREAMED], ids=["whole", "streamed"])
async def test_a_client_that_leaves_ends_a_silent_model(body: Any) -> None:
    model = Model("Hi", stays=True)
    client = Client(body)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.ask, served(model))
        await until(lambda: model.begun)
        assert model.ended == []
        client.leaves.set()
    assert model.ended == ["CancelledError"]
    assert all(message.get("more_body", True) for message in client.messages), "nothing is dressed as an end"


async def test_a_client_that_leaves_ends_a_talking_model_and_waits_for_its_cleaning_up() -> None:
    async def clean_up() -> None:
        await anyio.sleep(0.05)

    model = Model(*["a"] * 100_000, ending=clean_up)
    client = await Client(after=5_000).ask(served(model))
    assert model.ended == ["GeneratorExit", "cleaned up"]
    assert len(client.body) < 1_000_000, "it is noticed within a turn"


@pytest.mark.untraced
@pytest.mark.parametrize("body", [ASKED, STREAMED], ids=["whole", "streamed"])
async def test_a_model_that_never_waits_leaves_turns_to_others(body: Any) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await anyio.sleep(0)
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        await Client(body).ask(served(Model(*["a"] * 100_000)))
        tasks.cancel_scope.cancel()
    assert turns > 5


class Stubborn:
    """An iterator that is not a generator: it takes cancellations for its own, and goes on."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed = 0

    def __aiter__(self) -> "Stubborn":
        return self

    async def __anext__(self) -> Output:
        self.asked += 1
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            return "still here"
        return "a"

    async def aclose(self) -> None:
        await asyncio.sleep(0.01)
        self.closed += 1


async def test_a_model_that_swallows_its_cancellation_ends_all_the_same() -> None:
    model = Stubborn()
    client = await Client(after=1_000).ask(served(lambda _request: model))
    assert model.closed == 1
    assert model.asked < 20
    assert client.messages[-1]["more_body"] is True


async def test_a_model_that_does_not_end_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("openresponses_server.backend.exchange._CLOSE_SECONDS", 0.05)
    model = Model(*["a"] * 100_000, ending=anyio.sleep_forever)
    await Client(after=1_000).ask(served(model))
    assert "did not end within 0.05 seconds" in caplog.text


async def test_a_client_that_does_not_read_holds_its_model_back_and_is_given_up() -> None:
    yielded = 0

    async def model(_request: CreateResponse) -> AsyncIterator[Output]:
        nonlocal yielded
        while True:
            yielded += 1
            yield "a"

    client = Client()
    client.reads.clear()
    await client.ask(served(model, send_timeout=0.1, keep_alive=0.01))
    assert yielded == 1
    assert client.messages == []


@pytest.mark.parametrize("body", [ASKED, STREAMED, b"{"], ids=["whole", "streamed", "refused"])
@pytest.mark.parametrize("error", [ConnectionResetError(), anyio.BrokenResourceError()], ids=repr)
async def test_a_connection_that_breaks_is_a_client_that_left(body: Any, error: Exception) -> None:
    client = Client(body)
    client.breaks = error
    response = BackendResponse(client._pieces[0], Model("Hi"))
    await client.ask(response)
    assert client.messages == []


@pytest.mark.parametrize(("outputs", "status", "seconds"), [(["Hi"], 200, 2.0), ([], 504, 0.05)])
async def test_a_model_has_its_time(outputs: Any, status: int, seconds: float) -> None:
    model = Model(*outputs, stays=True)
    client = await Client().ask(served(model, timeout=seconds))
    assert (client.status, model.ended) == (status, ["CancelledError"])
    error = events_of(client.body)[-1]["response"]["error"] if outputs else client.error
    assert (error["code"], error["message"]) == (
        "timeout",
        f"The model did not finish within {seconds:g} seconds.",
    )


async def test_a_silent_model_keeps_its_connection_alive() -> None:
    async def model(_request: CreateResponse) -> AsyncIterator[Output]:
        await anyio.sleep(0.2)
        yield "Hi"
        await anyio.sleep(0.2)

    client = await Client().ask(served(model, keep_alive=0.05))
    assert violations(client.body) == []
    assert client.messages[1]["body"].startswith(b"event: response.created"), (
        "it begins before the model does"
    )
    assert client.body.count(b": keep-alive\n\n") >= 2
    whole = await Client(ASKED).ask(served(model, keep_alive=0.05))
    assert len(whole.messages) == 2


async def test_a_failure_after_keep_alives_is_part_of_the_stream() -> None:
    async def model(_request: CreateResponse) -> AsyncIterator[Output]:
        await anyio.sleep(0.1)
        raise HttpError(429, "Too fast.")
        yield ""

    client = await Client().ask(served(model, keep_alive=0.02))
    assert client.status == 200
    assert violations(client.body) == []
    assert events_of(client.body)[-1]["type"] == "response.failed"


async def test_a_response_out_of_a_handler_of_one_s_own() -> None:
    ran: list[str] = []

    async def handler(request: Request) -> Response:
        response = BackendResponse(await request.json(), Model("Hi"))
        response.headers["x-own"] = "yes"
        response.headers["cache-control"] = "private"
        response.background = BackgroundTask(ran.append, "afterwards")
        return response

    client = await Client().ask(Route("/", handler, methods=["POST"]).app)
    assert (client.headers["x-own"], client.headers["cache-control"]) == ("yes", "private")
    assert [name for name, _value in client.messages[0]["headers"]].count(b"cache-control") == 1
    assert violations(client.body) == []
    assert ran == ["afterwards"]


async def test_an_iterator_that_is_not_async_goes_through_threads() -> None:
    client = await Client().ask(
        served(lambda request: iterate_in_threadpool(["Hello, ", str(request.model)]))
    )
    assert violations(client.body) == []
    assert b'"text":"Hello, m"' in client.body


async def test_an_error_of_the_server_s_own_is_not_hidden() -> None:
    async def broken(_message: Message) -> None:
        raise RuntimeError("a middleware's mistake")

    client = Client()
    client._send = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="mistake"):
        await client.ask(served(Model("Hi")))


async def forgot_to_yield(_request: CreateResponse) -> str:
    return "Hello"


def plain(_request: CreateResponse) -> Iterator[Output]:
    yield "Hello"


async def hello(_request: CreateResponse) -> AsyncIterator[Output]:
    yield "Hello"


class Forgetful:
    async def __call__(self, _request: CreateResponse) -> str:
        return "Hello"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            lambda: hello(CreateResponse()),
            "async_generator: give the function itself, without calling it",
        ),
        (lambda: plain(CreateResponse()), "not generator: give the function itself, without calling it"),
        (lambda: forgot_to_yield(CreateResponse()), "not coroutine"),
        (lambda: None, "not NoneType"),
        (lambda: "Hello", "not str"),
        (lambda: forgot_to_yield, "gave an `async def` without `yield`, expected an async iterator"),
        (lambda: partial(forgot_to_yield), "gave an `async def` without `yield`"),
        (Forgetful, "gave an `async def` without `yield`"),
        (lambda: plain, "gave a `def` with `yield`, expected an async iterator"),
    ],
)
def test_what_can_t_answer_one_request_after_the_other_is_refused_at_the_start(
    given: Callable[[], Any], says: str
) -> None:
    with pytest.raises(LocalError, match=re.escape(says)):
        endpoint(given())


async def test_each_kind_of_function_answers_again_and_again() -> None:
    class Kept:
        def __init__(self, request: CreateResponse) -> None:
            self._outputs = hello(request)

        def __aiter__(self) -> AsyncIterator[Output]:
            return self._outputs

    functions: list[Any] = [hello, partial(hello), lambda request: hello(request), Kept, Model("Hello")]
    for generate in functions:
        respond = served(generate)
        for _ in range(2):
            assert b'"text":"Hello"' in (await Client(ASKED).ask(respond)).body


async def test_the_log_of_a_wrong_output_names_its_line(caplog: pytest.LogCaptureFixture) -> None:
    async def model(_request: CreateResponse) -> AsyncIterator[Any]:
        yield 5

    assert (await Client().ask(served(model))).status == 500
    written = logging.Formatter().format(caplog.records[-1])
    assert f'File "{__file__}", line {model.__code__.co_firstlineno + 1}, in model' in written


@pytest.mark.parametrize(
    ("outputs", "warning"),
    [
        ((), "output: completed without any"),
        ((ToolCall("gone", {}),), "tool_call.name: not a tool of the request"),
        ((ToolCall("look", "not json"),), "tool_call.arguments: not JSON, sent as they are"),
    ],
    ids=["no output", "undeclared", "not JSON"],
)
@pytest.mark.parametrize("body", [ASKED, STREAMED], ids=["whole", "streamed"])
async def test_what_completes_oddly_is_a_warning(
    outputs: Any, warning: str, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    client = await Client(body | {"tools": tools}).ask(served(Model(*outputs)))
    assert client.status == 200
    (record,) = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "openresponses_bridge.backend")
    assert record.getMessage().endswith(f": warning: {warning}")


def test_many_clients_of_a_real_server_of_which_some_leave() -> None:
    model = Model(*["word "] * 2_000, ToolCall("f", {}))
    app = Starlette(routes=[Route("/v1/responses", endpoint(model), methods=["POST"])])
    with serving_app(app) as base:
        for _ in range(5):
            with opened(base, "POST", "/v1/responses", STREAMED) as response:
                assert response.read(100)
        reply = call(base, "POST", "/v1/responses", STREAMED)
    assert violations(reply.body) == []
    assert model.ended.count("") >= 1


@pytest.mark.parametrize("body", [ASKED, STREAMED], ids=["whole", "streamed"])
def test_a_client_that_leaves_is_noticed_behind_a_middleware(body: Any) -> None:
    async def passed_on(request: Request, following: Callable[[Request], Awaitable[Response]]) -> Response:
        return await following(request)

    model = Model("Hi", stays=True)
    app = Starlette(
        routes=[Route("/", endpoint(model), methods=["POST"])],
        middleware=[Middleware(GZipMiddleware), Middleware(BaseHTTPMiddleware, dispatch=passed_on)],
    )
    with serving_app(app) as base:
        address = urlsplit(base)
        with socket.create_connection((str(address.hostname), address.port or 0)) as connection:
            text = json.dumps(body).encode()
            head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: "
            connection.sendall(head.encode() + str(len(text)).encode() + b"\r\n\r\n" + text)
            wait_until(lambda: model.begun)
        wait_until(lambda: bool(model.ended))
    # it is cancelled, or closed if it has just yielded
    assert model.ended in (["CancelledError"], ["GeneratorExit"])


async def test_a_small_body_of_millions_of_values_is_refused_before_it_is_decoded() -> None:
    body = b'{"input":"a","metadata":[' + b"[]," * 2_000_000 + b"[]]}"
    for app in (served(Model("Hi")), BackendResponse(body, Model("Hi"))):
        client = await Client(body).ask(app)
        assert (client.status, "more values than the limit" in client.error["message"]) == (400, True)


def test_options_are_checked_when_they_are_given() -> None:
    with pytest.raises(
        LocalError,
        match="chat, responses, anthropic, interactions, gemini, bedrock-invoke, bedrock, vscode, not 'open'",
    ):
        endpoint(Model("Hi"), dialect="open")
    with pytest.raises(LocalError, match="there is no option 'keepalive'"):
        endpoint(Model("Hi"), keepalive=5)  # type: ignore[call-arg]
    with pytest.raises(LocalError, match="keep_alive must be a number of seconds above 0"):
        endpoint(Model("Hi"), keep_alive=0)
    for wrong in ("10", 0, -1.0, True, float("nan")):
        with pytest.raises(LocalError, match="timeout must be a number of seconds above 0, not "):
            endpoint(Model("Hi"), timeout=wrong)  # type: ignore[arg-type]
    endpoint(Model("Hi"), timeout=None)
    for most in ("10", 0, True):
        with pytest.raises(LocalError, match="max_body must be a number of bytes above 0, not "):
            endpoint(Model("Hi"), max_body=most)  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="max_output must be a number of bytes above 0, not '5'"):
        endpoint(Model("Hi"), max_output="5")  # type: ignore[arg-type]


def test_a_client_that_reads_nothing_holds_back_a_model_that_never_waits() -> None:
    yielded = 0

    async def model(_request: CreateResponse) -> AsyncIterator[Output]:
        nonlocal yielded
        while True:
            yielded += 1
            yield "a" * 1_000

    with serving_app(Starlette(routes=[Route("/", endpoint(model), methods=["POST"])])) as base:
        with opened(base, "POST", "/", STREAMED):
            previous = -1
            while previous != yielded:
                previous = yielded
                time.sleep(0.3)
        assert 0 < previous < 20_000, "no more than what buffers on the way take"


def test_it_brings_nothing_of_the_service_with_it() -> None:
    code = (
        "import openresponses_server.backend, sys\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    foreign = {"httptools", "sqlalchemy", "alembic", "uvicorn", "structlog", "click", "rich", "sse_starlette"}
    assert {"starlette", "anyio", "msgspec"} <= set(loaded.split())
    assert not foreign & set(loaded.split())
