"""`OpenResponsesClient` against servers that answer, refuse, break off and lie."""

import asyncio
import gzip
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from openresponses_bridge import CreateResponse, Event, InvalidRequestError, decode_request
from openresponses_bridge.decoder import LanguageModelTextPart, Part, process_stream
from openresponses_bridge.protocol.events import ErrorEvent, ResponseCompleted, ResponseCreated
from openresponses_server.client import OpenResponsesClient, OpenResponsesError, is_plain_id
from openresponses_server.errors import UpstreamError
from openresponses_server.settings import Retries, Settings
from tests.support import dialect_scripts as made
from tests.support.serving import PATIENT, serving
from tests.support.upstream import CUT, HANG, JSON, RESET, Script, ScriptedUpstream, Step
from tests.support.waiting import until

KEY = "sk-client-0123456789abcdef"
HASTY = replace(PATIENT, first_byte=0.5, idle=0.5)
SWIFT = Retries(times=2, first_wait=0.01)
TEXT = made.text("responses", "Hel", "lo")
T = TypeVar("T")


@pytest.fixture
def scripted() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as server:
        yield server


def run(base: str, work: Callable[[OpenResponsesClient], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        arguments = {"timeouts": PATIENT, "retries": SWIFT, **options}
        async with OpenResponsesClient(base, KEY, **arguments) as client:
            return await work(client)

    return asyncio.run(main())


async def read(client: OpenResponsesClient, request: Any, cancel: asyncio.Event | None = None) -> list[Event]:
    return [event async for event in client.stream(request, cancel)]


def asked(base: str, request: Any, **options: Any) -> list[Event]:
    return run(base, lambda client: read(client, request), **options)


def failed(base: str, model: str = "m", **options: Any) -> tuple[OpenResponsesError, list[Event]]:
    """The error in which a stream ends, and the events before it."""
    before: list[Event] = []

    async def work(client: OpenResponsesClient) -> None:
        async for event in client.stream({"model": model, "input": "Hi"}):
            before.append(event)

    with pytest.raises(OpenResponsesError) as caught:
        run(base, work, **options)
    assert KEY not in str(caught.value)
    return caught.value, before


def said(events: list[Event]) -> str:
    return "".join(getattr(event, "delta", "") for event in events if event.type.endswith("text.delta"))


# ── answers ────────────────────────────────────────────────────────────────────────────────────────────
def test_events_of_a_server_up_to_the_terminal_one(scripted: ScriptedUpstream) -> None:
    scripted.scripts["m"] = Script([*TEXT, HANG])
    events = asked(scripted.url, CreateResponse(model="m", input="Hi", store=False))
    assert (said(events), type(events[-1])) == ("Hello", ResponseCompleted)
    sent = scripted.last("m")
    assert sent.path == "/v1/responses"
    assert (sent.body["stream"], sent.body["store"]) == (True, False)
    assert sent.headers["authorization"] == f"Bearer {KEY}"


def test_a_request_may_be_json_and_goes_out_as_it_is(scripted: ScriptedUpstream) -> None:
    scripted.scripts["m"] = Script(TEXT)
    asked(scripted.url.removesuffix("/v1"), {"model": "m", "input": [], "odd": {"a": 1}, "stream": False})
    assert scripted.last("m").body == {"model": "m", "input": [], "odd": {"a": 1}, "stream": True}


def test_against_this_server_stored_and_gone_on_from() -> None:
    with serving(Settings(store="memory:")) as base:
        first = asked(base, CreateResponse(model="demo", input="One"))[-1]
        assert isinstance(first, ResponseCompleted)
        more = CreateResponse(model="demo", input="Two", previous_response_id=first.response.id)
        again = asked(base, more)[-1]
        assert isinstance(again, ResponseCompleted)
        assert again.response.previous_response_id == first.response.id
        assert again.response.output_text == "You said: Two\nBefore that you said: One"
        listed = run(base, lambda client: client.models())
        assert "demo" in {model.id for model in listed}


def test_a_whole_answer_is_its_terminal_event(scripted: ScriptedUpstream) -> None:
    whole = {"object": "response", "id": "resp_1", "status": "completed", "model": "m", "output": []}
    scripted.scripts["m"] = Script([json.dumps(whole, indent=1).encode()], headers=JSON)
    (event,) = asked(scripted.url, {"model": "m", "input": "Hi"})
    assert isinstance(event, ResponseCompleted)
    assert event.response.id == "resp_1"


def test_an_event_may_have_its_type_in_the_frame_alone(scripted: ScriptedUpstream) -> None:
    frame = b'event: response.output_text.delta\ndata: {"delta": "a"}\n\n'
    scripted.scripts["m"] = Script([b": hello\n\n", frame, b"data:{}\n\n", *TEXT[-2:]])
    assert said(asked(scripted.url, {"model": "m"})) == "a"


def test_parts_of_any_server(scripted: ScriptedUpstream) -> None:
    scripted.scripts["m"] = Script(TEXT)
    parts: list[Part] = []

    class Shown:
        def report(self, part: Part, /) -> None:
            parts.append(part)

    result = run(scripted.url, lambda client: process_stream(client.stream({"model": "m"}), Shown()))
    assert "".join(part.value for part in parts if isinstance(part, LanguageModelTextPart)) == "Hello"
    assert result.usage is not None
    assert result.usage.total_tokens == 5


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────────
def test_from_response_reads_every_shape() -> None:
    openai = {"error": {"type": "t", "code": "c", "message": "No.", "param": "input"}}
    error = OpenResponsesError.from_response(422, {"retry-after": "7"}, json.dumps(openai).encode())
    assert (error.http_status, error.error_type, error.code, error.message) == (422, "t", "c", "No.")
    assert (error.param, error.retry_after, error.is_passing) == ("input", 7.0, False)
    for body in (b'{"error":"No."}', b'{"detail":"No."}', b'[{"error":{"message":"No."}}]'):
        assert OpenResponsesError.from_response(429, {}, body).message == "No."
    for body in (b"", b"<html>", b"\xff\xfe", b"[]", b"null", b'{"error":[]}', b"[" * 100_000):
        error = OpenResponsesError.from_response(503, {}, body)
        assert (error.http_status, error.code, error.is_passing) == (503, "service_unavailable", True)
        assert len(error.message) < 200
    assert OpenResponsesError.from_response(302, {"location": "http://else.where/"}, b"").http_status == 502
    long = json.dumps({"error": {"message": "x" * 10**6, "code": "y" * 10**6}}).encode()
    error = OpenResponsesError.from_response(400, {}, long)
    assert (len(error.message) <= 2000, len(error.code) <= 200) == (True, True)
    hidden = OpenResponsesError.from_response(401, {}, KEY.encode(), lambda text: text.replace(KEY, "…"))
    assert KEY not in hidden.message


def test_refusals_keep_their_meaning_and_lasting_ones_are_not_asked_again(scripted: ScriptedUpstream) -> None:
    refused = {"type": "invalid_request_error", "code": "no", "message": f"No, {KEY}.", "param": "input"}
    body = {"error": refused}
    scripted.scripts["m"] = Script([json.dumps(body).encode()], 400, JSON)
    error, before = failed(scripted.url)
    assert (error.http_status, error.code, error.param, before) == (400, "no", "input", [])
    assert len(scripted.received) == 1


BUSY = Script([b'{"error": {"message": "later"}}'], 503, JSON)
BROKEN: dict[str, Script] = {
    "busy": BUSY,
    "empty": Script([]),
    "cut": Script([CUT]),
    "reset": Script([RESET]),
    "comments alone": Script([b": hello\n\n"]),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_fails_before_any_event_is_asked_again(scripted: ScriptedUpstream, kind: str) -> None:
    scripted.scripts["m"] = [BROKEN[kind], BROKEN[kind], Script(TEXT)]
    assert said(asked(scripted.url, {"model": "m"})) == "Hello"
    assert len(scripted.received) == 3
    scripted.received.clear()
    scripted.scripts["m"] = BROKEN[kind]
    failed(scripted.url)
    assert len(scripted.received) == 3


@pytest.mark.parametrize("end", [[], [CUT], [RESET]], ids=["ended", "cut", "reset"])
def test_what_fails_after_an_event_is_not_asked_again(scripted: ScriptedUpstream, end: list[Step]) -> None:
    scripted.scripts["m"] = Script([*made.piece("responses"), 0.05, *end])
    error, before = failed(scripted.url)
    assert (error.http_status, error.code, said(before)) == (502, UpstreamError.DISCONNECTED, "Hel")
    assert len(scripted.received) == 1


def test_how_long_the_server_wants_to_be_left_alone_is_kept(scripted: ScriptedUpstream) -> None:
    slow = Script([b"{}"], 429, {**JSON, "retry-after": "900"})
    scripted.scripts["m"] = slow
    error, _ = failed(scripted.url)
    assert (error.retry_after, len(scripted.received)) == (900.0, 1)


@pytest.mark.parametrize("steps", [[HANG], [TEXT[0], HANG]], ids=["before any event", "after one"])
def test_silence_is_an_error_and_not_asked_again(scripted: ScriptedUpstream, steps: list[Step]) -> None:
    scripted.scripts["m"] = Script(steps)
    error, _ = failed(scripted.url, timeouts=HASTY)
    assert (error.http_status, error.code, error.is_passing) == (504, UpstreamError.TIMEOUT, False)
    assert len(scripted.received) == 1


def test_a_server_that_drips_is_ended_by_the_total_time(scripted: ScriptedUpstream) -> None:
    scripted.scripts["m"] = Script([step for _ in range(200) for step in (b": drip\n\n", 0.05)])
    error, _ = failed(scripted.url, timeouts=replace(PATIENT, total=0.6))
    assert error.code == UpstreamError.TIMEOUT


def test_a_server_that_is_not_there(scripted: ScriptedUpstream) -> None:
    error, _ = failed("http://127.0.0.1:9", retries=Retries())
    assert (error.http_status, error.code) == (502, UpstreamError.UNREACHABLE)
    with pytest.raises(ValueError, match="not an http"):
        OpenResponsesClient("ftp://example.org")


def test_models_that_are_not_listed(scripted: ScriptedUpstream) -> None:
    with pytest.raises(OpenResponsesError) as caught:
        run(scripted.url, lambda client: client.models())
    assert caught.value.http_status == 404
    scripted.models = ["one"]
    assert [model.id for model in run(scripted.url, lambda client: client.models())] == ["one"]


def test_an_error_event_is_an_event_and_then_the_end(scripted: ScriptedUpstream) -> None:
    frame = b'data: {"type": "error", "error": {"message": "No.", "code": "c", "type": "t"}}\n\n'
    scripted.scripts["m"] = Script([TEXT[0], frame])
    events = asked(scripted.url, {"model": "m"})
    assert isinstance(events[-1], ErrorEvent)
    scripted.scripts["m"] = Script([b'data: {"error": {"message": "No.", "code": 400}}\n\n'])
    error, _ = failed(scripted.url)
    assert (error.http_status, error.message) == (400, "No.")


def test_a_request_that_can_not_be_sent() -> None:
    output = {"type": "function_call_output", "call_id": "c", "output": "1"}
    wrong = decode_request(json.dumps({"model": "m", "input": [output]}).encode())
    with pytest.raises(InvalidRequestError):
        asked("http://127.0.0.1:9", CreateResponse(input="Hi"))
    with pytest.raises(InvalidRequestError):
        asked("http://127.0.0.1:9", wrong)


# ── hostile servers ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_s10_redirects_are_not_followed_and_the_key_stays(scripted: ScriptedUpstream, status: int) -> None:
    with ScriptedUpstream() as elsewhere:
        scripted.scripts["m"] = Script([], status, {"location": f"{elsewhere.url}/responses"})
        error, _ = failed(scripted.url, retries=Retries())
        assert (error.http_status, elsewhere.connections) == (502, [])


def test_s8_an_answer_is_bounded(scripted: ScriptedUpstream) -> None:
    piece = b'data: {"type": "x:y", "data": "' + b"z" * 50_000 + b'"}\n\n'
    scripted.scripts["m"] = Script([piece] * 800)
    error, before = failed(scripted.url, most_bytes=200_000)
    assert error.code == UpstreamError.TOO_LONG
    assert len(before) <= 4
    assert scripted.last("m").sent < 30_000_000  # the buffers of both sockets hold some


def test_s8_a_frame_without_end_is_bounded(scripted: ScriptedUpstream) -> None:
    scripted.scripts["m"] = Script([b"data: " + b"z" * 10**6] * 20)
    error, _ = failed(scripted.url)
    assert error.code == "bridge.sse.frame_too_large"


def test_s8_a_compressed_bomb_is_bounded(scripted: ScriptedUpstream) -> None:
    bomb = gzip.compress(b"data: " + b"z" * 10**8)
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    scripted.scripts["m"] = Script([bomb], headers=headers)
    error, _ = failed(scripted.url, retries=Retries())
    assert error.http_status == 502


NO_EVENTS = [b"{", b"[]", b"5", b"\xff", b"[" * 10_000, b'{"type": "response.created", "response": 5}']


@pytest.mark.parametrize("payload", NO_EVENTS, ids=range(len(NO_EVENTS)))
def test_a_frame_that_is_no_event(scripted: ScriptedUpstream, payload: bytes) -> None:
    scripted.scripts["m"] = Script([b"data: " + payload + b"\n\n"])
    error, _ = failed(scripted.url, retries=Retries())
    assert error.http_status == 502


def test_a_page_is_no_answer(scripted: ScriptedUpstream) -> None:
    scripted.scripts["m"] = Script([b"<html>Sign in</html>"], headers={"content-type": "text/html"})
    error, _ = failed(scripted.url, retries=Retries())
    assert (error.http_status, error.code) == (502, UpstreamError.INVALID_RESPONSE)


# ── cancelling ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "script",
    [
        Script([HANG]),
        Script([TEXT[0], HANG]),
        Script(TEXT, before=HANG),
        Script([b"{}"], 503, {**JSON, "retry-after": "4"}),
    ],
    ids=["silent", "begun", "not answered", "waiting to ask again"],
)
def test_cancelling_ends_the_stream_and_the_connection(scripted: ScriptedUpstream, script: Script) -> None:
    scripted.scripts["m"] = script

    async def work(client: OpenResponsesClient) -> None:
        cancel = asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, cancel.set)
        events = await read(client, {"model": "m"}, cancel)
        assert len(events) <= 2

    run(scripted.url, work, timeouts=PATIENT)
    assert [each.path for each in scripted.received].count("/v1/responses") == 1
    if script.status == 200:
        while scripted.last("m").gone_at is None:
            time.sleep(0.01)


def test_a_request_that_is_cancelled_already_is_not_sent(scripted: ScriptedUpstream) -> None:
    async def work(client: OpenResponsesClient) -> list[Event]:
        cancel = asyncio.Event()
        cancel.set()
        return await read(client, {"model": "m"}, cancel)

    assert run(scripted.url, work) == []
    assert scripted.received == []


def test_leaving_the_stream_closes_the_connection(scripted: ScriptedUpstream) -> None:
    scripted.scripts["m"] = Script([TEXT[0], HANG])

    async def work(client: OpenResponsesClient) -> None:
        events = client.stream({"model": "m"})
        await anext(events)
        await events.aclose()
        await until(lambda: scripted.last("m").gone_at is not None)

    run(scripted.url, work)


def test_what_the_server_keeps_is_cancelled_there(scripted: ScriptedUpstream) -> None:
    scripted.scripts["m"] = Script([TEXT[0], HANG])

    async def work(client: OpenResponsesClient) -> str:
        cancel = asyncio.Event()
        seen = ""
        async for event in client.stream({"model": "m"}, cancel):
            seen = event.response.id if isinstance(event, ResponseCreated) else seen
            cancel.set()
        return seen

    response_id = run(scripted.url, work)
    assert response_id
    assert [each.path for each in scripted.received][1:] == [f"/v1/responses/{response_id}/cancel"]


PATHS = ["", "../models", "a/b", "a?b", "a#b", "a%2fb", "ä", "x" * 200, "..", " "]


@pytest.mark.parametrize("response_id", PATHS, ids=range(len(PATHS)))
def test_s10_an_id_that_is_a_path_is_not_asked_for(response_id: str) -> None:
    assert not is_plain_id(response_id)


def test_a_reader_that_leaves_after_cancelling_cancels_too(scripted: ScriptedUpstream) -> None:
    scripted.scripts["m"] = Script([*made.piece("responses"), HANG])

    async def work(client: OpenResponsesClient) -> None:
        cancel = asyncio.Event()
        events = client.stream({"model": "m"}, cancel)
        await anext(events)
        cancel.set()
        await events.aclose()

    run(scripted.url, work)
    assert scripted.received[-1].path.endswith("/cancel")
