"""Law S2: any stored response streams again, from any number on, the same bytes."""

import json
import threading
import time

import pytest

from openresponses_server.settings import Settings
from tests.support.serving import call, opened, respond, serving, stream, violations
from tests.support.workers import Reader, number_of

SLOW = {"model": "demo-slow", "input": "40 words", "stream": True}


def again(base: str, response_id: str, after: int | str | None = None) -> bytes:
    path = f"/v1/responses/{response_id}?stream=true"
    reply = call(base, "GET", path if after is None else f"{path}&starting_after={after}")
    assert reply.status == 200, reply.body
    return reply.body


def tail(body: bytes, after: int) -> bytes:
    """The same stream without its first events."""
    return b"".join(frame + b"\n\n" for frame in body.split(b"\n\n")[after + 1 : -1])


@pytest.mark.parametrize("model", ["demo", "demo-failure", "demo-incomplete", "demo-cut", "demo-reasoning"])
def test_s2_ended_response_streams_again_to_the_byte(stored: str, model: str) -> None:
    first = stream(stored, model=model)
    response_id = first.events[0]["response"]["id"]
    assert again(stored, response_id) == first.body
    for after in range(len(first.events)):
        assert again(stored, response_id, after) == tail(first.body, after)


def test_case_42_resume_from_1_after_created_and_in_progress(stored: str) -> None:
    first = stream(stored, model="demo")
    resumed = again(stored, first.final["id"], 1)
    assert resumed.startswith(b"event: response.output_item.added\n")
    assert number_of(resumed) == 2


def test_s2_many_readers_of_a_live_stream_early_and_late(stored: str) -> None:
    first = Reader(stored, "POST", "/v1/responses", SLOW | {"input": "41 words"})
    while first.response_id is None:
        time.sleep(0.01)
    readers = []
    for after in (0, 1, 5, 20):
        while max(first.events) < after:
            time.sleep(0.01)
        path = f"/v1/responses/{first.response_id}?stream=true&starting_after={after}"
        readers.append((after, Reader(stored, "GET", path)))
        time.sleep(0.2)
    first.join()
    whole = b"".join(first.frames)
    for after, reader in readers:
        reader.join()
        assert b"".join(reader.frames) == tail(whole, after)


def test_s2_broken_off_and_resumed_is_one_valid_stream(stored: str) -> None:
    with opened(stored, "POST", "/v1/responses", SLOW) as response:
        seen = b""
        while seen.count(b"\n\n") < 9:
            seen += response.read1(100)
    seen = seen[: seen.rindex(b"\n\n") + 2]
    last = seen.count(b"\n\n") - 1
    response_id = json.loads(seen.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
    assert seen + again(stored, response_id, last) == again(stored, response_id)
    assert violations(call(stored, "GET", f"/v1/responses/{response_id}?stream=true")) == []


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "", "9" * 30, "٣"])
def test_number_that_is_none_is_400(stored: str, after: str) -> None:
    response_id = respond(stored, model="demo").json["id"]
    from urllib.parse import quote

    refused = call(stored, "GET", f"/v1/responses/{response_id}?stream=true&starting_after={quote(after)}")
    assert (refused.status, refused.error["param"]) == (400, "starting_after")


def test_number_beyond_the_end_is_400(stored: str) -> None:
    first = stream(stored, model="demo")
    last = first.events[-1]["sequence_number"]
    response_id = first.final["id"]
    assert again(stored, response_id, last) == b"data: [DONE]\n\n"
    refused = call(stored, "GET", f"/v1/responses/{response_id}?stream=true&starting_after={last + 1}")
    assert (refused.status, refused.error["param"]) == (400, "starting_after")


@pytest.mark.parametrize("stream_", ["true", "True", "TRUE", "1"])
def test_stream_when_it_is_true(stored: str, stream_: str) -> None:
    response_id = respond(stored, model="demo").json["id"]
    reply = call(stored, "GET", f"/v1/responses/{response_id}?stream={stream_}")
    assert reply.body == again(stored, response_id)


@pytest.mark.parametrize("stream_", ["false", "False", "FALSE", "0"])
def test_no_stream_when_it_is_false(stored: str, stream_: str) -> None:
    response = respond(stored, model="demo").json
    path = f"/v1/responses/{response['id']}?stream={stream_}"
    assert call(stored, "GET", path).json == response
    assert call(stored, "GET", f"{path}&starting_after=1").json == response


@pytest.mark.parametrize("stream_", ["", "banana", "yes", "2", "tru", "None"])
def test_stream_that_is_neither_is_400(stored: str, stream_: str) -> None:
    response_id = respond(stored, model="demo").json["id"]
    refused = call(stored, "GET", f"/v1/responses/{response_id}?stream={stream_}")
    assert (refused.status, refused.error["param"]) == (400, "stream")


@pytest.mark.parametrize("stream_", ["", "&stream=false"])
def test_number_that_is_none_is_400_without_stream_too(stored: str, stream_: str) -> None:
    response_id = respond(stored, model="demo").json["id"]
    refused = call(stored, "GET", f"/v1/responses/{response_id}?starting_after=x{stream_}")
    assert (refused.status, refused.error["param"]) == (400, "starting_after")


def test_number_beyond_a_live_run_is_400(stored: str) -> None:
    first = Reader(stored, "POST", "/v1/responses", SLOW)
    while first.response_id is None:
        time.sleep(0.01)
    path = f"/v1/responses/{first.response_id}?stream=true&starting_after=5000"
    refused = call(stored, "GET", path)
    assert (refused.status, refused.error["param"]) == (400, "starting_after")
    call(stored, "POST", f"/v1/responses/{first.response_id}/cancel")
    first.join()


def test_unknown_and_unstored_responses_are_404(stored: str) -> None:
    response_id = respond(stored, model="demo", store=False).json["id"]
    for each in (response_id, "resp_unknown"):
        assert call(stored, "GET", f"/v1/responses/{each}?stream=true").status == 404


def test_quiet_stream_is_kept_alive() -> None:
    with serving(Settings(keep_alive=0.2, checkpoint_interval=0.1)) as base:
        response_id = respond(base, model="demo-slow", input="30 words", background=True).json["id"]
        path = f"/v1/responses/{response_id}?stream=true"
        reply = call(base, "GET", path)
    assert b": keep-alive\n\n" in reply.body
    assert violations(reply) == []


def test_s4_slow_reader_holds_nobody_up(stored: str) -> None:
    """A reader of the log that does not read: the run goes on, and so do other readers."""
    response_id = respond(stored, model="demo-long", input="60000 words", background=True).json["id"]
    path = f"/v1/responses/{response_id}?stream=true"
    with opened(stored, "GET", path) as slow:
        slow.read(10)
        done = threading.Event()

        def read() -> None:
            assert call(stored, "GET", path).types[-1] == "response.completed"
            done.set()

        threading.Thread(target=read, daemon=True).start()
        assert done.wait(60)
        rest = slow.read()
    assert rest.endswith(b"data: [DONE]\n\n")
