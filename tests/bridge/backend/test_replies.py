"""`reply` and `async_reply`: a whole HTTP answer from a body and an iterator, also from one that fails."""

import gc
import inspect
import json
import logging
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from openresponses_bridge import CreateResponse, HttpError
from openresponses_bridge.backend import AsyncReply, Finish, Output, Reply, ToolCall, async_reply, reply
from tests.support.event_streams import events_of, violations

ASKED = {"model": "m", "input": "Hello"}
STREAMED = ASKED | {"stream": True}
Script = Callable[[CreateResponse], Iterator[Output]]


class Read:
    """An answer, read to its end: `ended` says whether the model's iterator was closed."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes, ended: int) -> None:
        self.status, self.headers, self.body, self.ended = status, headers, body, ended

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]


class Model:
    """A script as an iterator that is not a generator, and counts how often it was closed."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.closed = 0

    def __call__(self, request: CreateResponse) -> "Model":
        self._outputs = self._script(request)
        return self

    def __iter__(self) -> "Model":
        return self

    def __next__(self) -> Output:
        return next(self._outputs)

    def close(self) -> None:
        self.closed += 1

    def __aiter__(self) -> "Model":
        return self

    async def __anext__(self) -> Output:
        for output in self._outputs:
            return output
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed += 1


async def plain(body: Any, script: Script, **options: Any) -> Read:
    model = Model(script)
    answer = reply(body, model, **options)
    return Read(answer.status, answer.headers, b"".join(answer.body), model.closed)


async def awaited(body: Any, script: Script, **options: Any) -> Read:
    model = Model(script)
    answer = await async_reply(body, model, **options)
    return Read(answer.status, answer.headers, b"".join([piece async for piece in answer.body]), model.closed)


both = pytest.mark.parametrize("ask", [plain, awaited])


def hello(request: CreateResponse) -> Iterator[Output]:
    yield "Hello, "
    yield f"{request.model}."


def failing_at_once(_request: CreateResponse) -> Iterator[Output]:
    raise HttpError(429, "Too fast.", headers={"retry-after": "3"})
    yield ""


def failing_when_called(_request: CreateResponse) -> Iterator[Output]:
    raise OSError("secret")


def failing_later(_request: CreateResponse) -> Iterator[Output]:
    yield "Hel"
    raise OSError("secret")


def yielding_rubbish(_request: CreateResponse) -> Iterator[Any]:
    yield 5


@both
async def test_a_stream_and_a_whole_answer(ask: Any) -> None:
    streamed = await ask(STREAMED, hello)
    assert (streamed.status, streamed.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert violations(streamed.body) == []
    assert events_of(streamed.body)[-1]["response"]["output"][0]["content"][0]["text"] == "Hello, m."
    assert streamed.ended == 1
    whole = await ask(json.dumps(ASKED), hello)
    assert (whole.status, whole.headers["content-type"], whole.ended) == (200, "application/json", 1)
    assert json.loads(whole.body)["status"] == "completed"


@both
@pytest.mark.parametrize("asked", [ASKED, STREAMED], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("script", "status", "message"),
    [
        (failing_at_once, 429, "Too fast."),
        (failing_when_called, 500, "The server failed."),
        (yielding_rubbish, 500, "The server failed."),
        (lambda _request: iter(["Hi", None][1:]), 500, "The server failed."),
    ],
)
async def test_a_model_that_fails_before_it_says_anything_is_an_http_error(
    ask: Any, asked: Any, script: Any, status: int, message: str
) -> None:
    answer = await ask(asked, script)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert answer.error["message"] == message
    assert b"secret" not in answer.body
    assert answer.headers.get("retry-after") == ("3" if status == 429 else None)
    assert answer.ended == (script is not failing_when_called)


@both
async def test_a_model_that_fails_later_fails_its_response(ask: Any) -> None:
    streamed = await ask(STREAMED, failing_later)
    assert (streamed.status, violations(streamed.body)) == (200, [])
    assert events_of(streamed.body)[-1]["type"] == "response.failed"
    assert b"secret" not in streamed.body
    whole = await ask(ASKED, failing_later)
    assert (whole.status, json.loads(whole.body)["status"]) == (200, "failed")
    assert streamed.ended == whole.ended == 1


@both
async def test_a_body_that_can_t_be_read_never_reaches_the_model(ask: Any) -> None:
    def never(_request: CreateResponse) -> Iterator[Output]:
        raise AssertionError

    answer = await ask({"input": 3, "stream": True}, never)
    assert (answer.status, answer.error["param"]) == (400, "input")
    other = await ask({"max_tokens": 3}, never, dialect="anthropic")
    assert (other.status, json.loads(other.body)["type"]) == (400, "error")


@pytest.mark.parametrize("given", [None, 5, {"text": "a"}, lambda _request: None, int])
async def test_what_is_not_iterated_over_is_an_internal_failure(
    given: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert reply(ASKED, given).status == 500
    assert (await async_reply(ASKED, given)).status == 500
    assert len(caplog.records) == 2
    assert all(record.exc_info for record in caplog.records)


async def test_a_coroutine_is_named_as_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    async def forgot_to_yield(_request: CreateResponse) -> str:
        return "Hello"

    assert (await async_reply(ASKED, forgot_to_yield)).status == 500  # type: ignore[arg-type]
    assert "a backend gave coroutine, expected an async iterator" in caplog.text
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a coroutine that is never awaited
        assert reply(ASKED, forgot_to_yield).status == 500  # type: ignore[arg-type]
        gc.collect()
    assert "a backend gave coroutine, expected an iterator that is not async" in caplog.text


def number(_request: CreateResponse) -> Iterator[Any]:
    yield "Hi"
    yield 5  # the wrong one


def delegating(request: CreateResponse) -> Iterator[Any]:
    yield from number(request)


async def async_number(_request: CreateResponse) -> AsyncIterator[Any]:
    yield "Hi"
    yield Finish("lenght")  # type: ignore[arg-type]  # the wrong one


@pytest.mark.parametrize("asked", [ASKED, STREAMED], ids=["whole", "streamed"])
@pytest.mark.parametrize("script", [number, delegating, async_number])
async def test_the_log_of_a_wrong_output_names_the_line_that_yielded_it(
    asked: Any, script: Any, caplog: pytest.LogCaptureFixture
) -> None:
    if script is async_number:
        body = b"".join([piece async for piece in (await async_reply(asked, script)).body])
    else:
        body = b"".join(reply(asked, script).body)
    assert b"failed" in body
    assert __file__.encode() not in body, "that is for the log alone"
    written = script if script is async_number else number
    lines, first = inspect.getsourcelines(written)
    line = first + next(index for index, text in enumerate(lines) if "# the wrong one" in text)
    assert f'File "{__file__}", line {line}, in {written.__name__}' in shown(caplog.records[-1])


def test_an_iterator_without_lines_is_named_by_its_class(caplog: pytest.LogCaptureFixture) -> None:
    reply(ASKED, Model(yielding_rubbish))
    assert f"{__name__}.Model" in shown(caplog.records[-1])


def shown(record: logging.LogRecord) -> str:
    return logging.Formatter().format(record)


async def test_an_iterator_may_be_given_as_it_is_and_is_closed_when_it_is_not_asked() -> None:
    assert reply(ASKED, iter(["Hello"])).status == 200
    model = Model(hello)(CreateResponse(model="m"))
    refused: list[Reply | AsyncReply] = [reply(b"{", iter(model))]

    async def outputs() -> AsyncIterator[Output]:
        yield ToolCall("f", {})

    iterator = outputs()
    refused.append(await async_reply(b"{", iterator))
    assert [each.status for each in refused] == [400, 400]
    with pytest.raises(StopAsyncIteration):
        await anext(iterator)


async def test_closing_a_body_early_closes_the_model() -> None:
    model, other = Model(hello), Model(hello)
    body = reply(STREAMED, model).body
    pieces = iter(body)
    assert (next(pieces)[:23], model.closed) == (b"event: response.created", 0)
    body.close()
    body.close()
    later = (await async_reply(STREAMED, other)).body
    await later.aclose()
    assert (model.closed, other.closed) == (1, 1)


@both
async def test_what_an_iterator_raises_when_it_is_closed_is_logged(
    ask: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: Model) -> None:
        raise OSError("broken")

    monkeypatch.setattr(Model, "close", broken)
    monkeypatch.setattr(Model, "aclose", broken)
    answer = await ask(STREAMED, hello)
    assert violations(answer.body) == []
    assert "failed when it was closed" in caplog.text


async def test_pieces_leave_one_by_one_and_the_model_is_asked_for_no_more_than_is_read() -> None:
    count = 0

    def model(_request: CreateResponse) -> Iterator[Output]:
        nonlocal count
        while True:
            count += 1
            yield "a"

    pieces = iter(reply(STREAMED, model).body)
    for expected in range(1, 20):
        next(pieces)
        assert count == expected


@pytest.mark.untraced
async def test_a_hundred_thousand_outputs_cost_what_they_are() -> None:
    count = 100_000

    def model(_request: CreateResponse) -> Iterator[Output]:
        for _ in range(count):
            yield "word "

    sizes = [len(piece) for piece in reply(STREAMED, model).body]
    assert len(sizes) == count + 1
    assert max(sizes[1:-1]) < 400, "no piece grows with what went before"
