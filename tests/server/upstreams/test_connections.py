"""A pooled connection that its server has closed: the request is made once more, on a new one, if nothing of
an answer came on the old one."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from openresponses_server.settings import Settings, Timeouts, UpstreamSettings
from tests.support.serving import Reply, call, respond, serving, stream
from tests.support.upstream import text

STALE = "openresponses_server.http.client.pool._STALE_SECONDS"
ANSWER = b"".join(step for step in text("Hi") if isinstance(step, bytes))
STREAM = b"content-type: text/event-stream\r\n"


class Closing:
    """An upstream whose connections take one request. What each does with a second one, and the first ones
    if `new_too`, is `how`: bytes are sent before it closes, "reset" resets, "hang" says nothing."""

    def __init__(self, how: bytes | str = b"", *, new_too: bool = False) -> None:
        self.how = how
        self.new_too = new_too
        self.requests: list[tuple[int, str, bytes]] = []
        self.connections = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number, taken = self.connections, 0
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) and (taken := taken + 1):
                length = next(
                    (
                        int(line[15:])
                        for line in head.split(b"\r\n")
                        if line.lower().startswith(b"content-length:")
                    ),
                    0,
                )
                body = await reader.readexactly(length)
                self.requests.append((number, head.split(b" ")[0].decode(), body))
                if taken > 1 or (self.new_too and number > 1):
                    await self._end(writer)
                    return
                self._answer(writer, head)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _end(self, writer: asyncio.StreamWriter) -> None:
        if self.how == "reset":
            writer.transport.abort()
        elif self.how == "hang":
            await asyncio.sleep(60)
        else:
            assert isinstance(self.how, bytes)
            writer.write(self.how)
            await writer.drain()

    @staticmethod
    def _answer(writer: asyncio.StreamWriter, head: bytes) -> None:
        listed = head.startswith(b"GET")
        body = json.dumps({"data": [{"id": "m"}]}).encode() if listed else ANSWER
        kind = b"content-type: application/json\r\n" if listed else STREAM
        writer.write(b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n%b" % (kind, len(body), body))


@contextmanager
def bridged(upstream: Closing, first_byte: float = 60.0) -> Iterator[str]:
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(upstream.handle, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    port = server.sockets[0].getsockname()[1]
    try:
        settings = UpstreamSettings(url=f"http://127.0.0.1:{port}", name="closing")
        timeouts = Timeouts(connect=60.0, first_byte=first_byte, idle=60.0, total=60.0)
        with serving(Settings(upstreams=[settings], timeouts=timeouts)) as base:
            yield base
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        server.close()
        loop.run_until_complete(asyncio.sleep(0.01))  # in which what was closed is let go of
        loop.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine does meanwhile, a connection that is closed at once was closed before."""
    monkeypatch.setattr(STALE, 3600.0)


def answers(base: str, times: int, input: str = "Hello") -> list[Reply]:
    return [respond(base, model="m", store=False, input=input) for _ in range(times)]


@pytest.mark.parametrize("how", [b"", "reset"], ids=["closed", "reset"])
def test_a_request_on_a_dead_pooled_connection_is_made_once_more(how: bytes | str) -> None:
    upstream = Closing(how)
    with bridged(upstream) as base:
        replies = answers(base, 6)
        assert [reply.status for reply in replies] == [200] * 6
        assert stream(base, model="m").final["status"] == "completed"
    bodies = [body for _, _, body in upstream.requests]
    repeated = len(bodies) - 7
    assert repeated >= 3
    assert upstream.connections == 7 - repeated + repeated
    assert all(json.loads(body)["model"] == "m" for body in bodies)


@pytest.mark.parametrize("how", [b"", "reset"], ids=["closed", "reset"])
@pytest.mark.parametrize("words", ["Hello", "word " * 100_000], ids=["small", "large"])
def test_a_request_that_its_server_had_for_long_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, how: bytes | str, words: str
) -> None:
    """It may have acted on it: a model may have answered, and be paid for."""
    monkeypatch.setattr(STALE, -1.0)
    upstream = Closing(how)
    with bridged(upstream) as base:
        expected = 1
        while (reply := answers(base, 1, words)[0]).status == 200:  # on a new connection
            expected += 1
        assert (reply.status, reply.error["code"]) == (502, "upstream_unreachable")
        assert "seconds after the request, before its answer" in reply.error["message"]
        assert len(upstream.requests) == expected
        # a question that changes nothing is asked again
        assert respond(base, model="m", store=False).status == 200
        assert [each["id"] for each in call(base, "GET", "/v1/models").json["data"]] == ["m"]


def test_a_large_body_is_sent_once_more_from_its_beginning() -> None:
    """It leaves in pieces, with its length and not chunked: some servers know only that."""
    upstream = Closing(b"")
    words = "word " * 500_000
    with bridged(upstream) as base:
        assert [reply.status for reply in answers(base, 4, input=words)] == [200] * 4
    bodies = [json.loads(body) for _, _, body in upstream.requests]
    assert len(bodies) > 4
    assert all(body["messages"][0]["content"] == words for body in bodies)


def test_a_new_connection_that_dies_is_the_upstream_s_failure() -> None:
    upstream = Closing(b"", new_too=True)
    with bridged(upstream) as base:
        first, second = answers(base, 2)
        assert first.status == 200
        assert (second.status, second.error["code"]) == (502, "upstream_unreachable")
        assert len(upstream.requests) == 3, "once on the dead one, once on a new one, not again"
        third = respond(base, model="m", store=False)
        assert third.status == 502
        assert len(upstream.requests) == 4, "a new one is not tried twice"


@pytest.mark.parametrize(
    "how",
    [b"H", b"HTTP/1.1 200 OK\r\ncontent-", b"HTTP/1.1 200 OK\r\n" + STREAM + b"\r\n", b"nonsense\r\n\r\n"],
)
def test_once_a_byte_has_come_it_is_not_asked_again(how: bytes) -> None:
    upstream = Closing(how)
    with bridged(upstream) as base:
        first, second = answers(base, 2)
        assert first.status == 200
        assert second.status == 502
    assert len(upstream.requests) == 2


def test_silence_is_not_death() -> None:
    upstream = Closing("hang")
    with bridged(upstream, first_byte=3.0) as base:
        first, second = answers(base, 2)
        assert first.status == 200
        assert (second.status, second.error["code"]) == (504, "upstream_timeout")
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("new_too", [False, True])
def test_the_list_of_models_is_asked_for_once_more_too(new_too: bool) -> None:
    upstream = Closing(b"", new_too=new_too)
    with bridged(upstream) as base:
        assert respond(base, model="m", store=False).status == 200
        listed = call(base, "GET", "/v1/models").json["data"]
    assert [each["id"] for each in listed] == ([] if new_too else ["m"])
    assert [method for _, method, _ in upstream.requests] == ["POST", "GET", "GET"]
