"""Law S4: an answered response is released at once, not at the next garbage collection."""

import asyncio
import gc
import json
import random
import weakref
from typing import Any

import pytest
from websockets.sync.client import connect

from openresponses_server.api.app import create_app
from openresponses_server.runs.run import Run
from openresponses_server.settings import Settings, UpstreamSettings
from tests.load import clients
from tests.load.model import Connection, Said
from tests.load.results import Recording
from tests.load.wire import Connections
from tests.support.cyclic_garbage import garbage
from tests.support.serving import call, running, serving
from tests.support.upstream import CUT, RESET, Script, ScriptedUpstream, refusal, text
from tests.support.waiting import wait_until


async def answered(app: Any, **asked: Any) -> bytes:
    """The body of an answer; the client stays until it is over."""
    body = json.dumps({"model": "demo", "input": "Hello", **asked}).encode()
    requests = iter([{"type": "http.request", "body": body, "more_body": False}])
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        event = next(requests, None)
        return event if event is not None else await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    path = {"path": "/v1/responses", "raw_path": b"/v1/responses", "root_path": "", "query_string": b""}
    ends = {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http", "http_version": "1.1"}
    await app({"type": "http", "method": "POST", "headers": headers, **path, **ends}, receive, send)
    assert sent[0]["status"] == 200
    return b"".join(message["body"] for message in sent[1:])


def noted_runs(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Any]]:
    """Of each run from now on, and what belongs to it alone."""
    references: list[weakref.ref[Any]] = []
    begin = Run.__init__

    def noted(run: Run, *given: Any, **more: Any) -> None:
        begin(run, *given, **more)
        references.extend(map(weakref.ref, (run, run.translation)))

    monkeypatch.setattr(Run, "__init__", noted)
    return references


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_s4_nothing_of_a_response_stays_when_it_was_answered(
    monkeypatch: pytest.MonkeyPatch, store: bool, stream: bool
) -> None:
    references = noted_runs(monkeypatch)
    app = create_app(Settings(checkpoint_interval=0.05))
    async with app.router.lifespan_context(app):
        gc.disable()
        try:
            assert b"completed" in await answered(app, store=store, stream=stream)
            while any(each() is not None for each in references):
                await asyncio.sleep(0.01)
        finally:
            gc.enable()
    assert len(references) == 2


@pytest.mark.parametrize("kind", clients.KINDS)
async def test_s4_nothing_stays_of_a_response_to_any_kind_of_client(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nor to one that leaves or cancels, over an upstream."""
    references = noted_runs(monkeypatch)
    upstream = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}/v1"
    with serving(Settings(upstreams=[UpstreamSettings(url=url)], checkpoint_interval=0.05)) as base:
        connections = Connections(int(base.rpartition(":")[2]), keeps=False)
        gc.disable()
        try:
            result = await clients.run(
                kind, clients.Place(connections, random.Random(1), []), Said(1, 20, 10)
            )
            ended = result.judged() if isinstance(result, Recording) else result
            assert ended.outcome in ("completed", "incomplete", "left")
            while any(each() is not None for each in references):
                await asyncio.sleep(0.01)
        finally:
            gc.enable()
    upstream.close()
    assert references


@pytest.mark.parametrize("kind", clients.KINDS)
async def test_s4_nothing_of_any_kind_of_request_waits_for_the_collector(kind: str) -> None:
    """Under load it runs rarely: what waits for it becomes many megabytes a minute."""
    upstream = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}/v1"
    with serving(Settings(upstreams=[UpstreamSettings(url=url)], checkpoint_interval=0.05)) as base:
        connections = Connections(int(base.rpartition(":")[2]), keeps=False)
        place = clients.Place(connections, random.Random(1), [])
        await clients.run(kind, place, Said(1, 20, 10))  # which loads what the first one needs
        await asyncio.to_thread(wait_until, lambda: running(base) == 0)
        with garbage() as left:
            for seed in range(3):
                await clients.run(kind, place, Said(seed, 20, 10))
            await asyncio.to_thread(wait_until, lambda: running(base) == 0)
    upstream.close()
    assert [each for each in left if "openresponses_" in each or "/anyio/" in each] == []


BEGUN = text("a", "b")[:2]
FAILURES = {
    "cut": Script([*BEGUN, CUT]),
    "cut at once": Script([CUT]),
    "reset": Script([*BEGUN, RESET]),
    "ended too early": Script(BEGUN),
    "no JSON": Script([*BEGUN, b"data: {nope\n\n"]),
    "an error in the stream": Script([*BEGUN, b'data: {"error": {"message": "x"}}\n\n']),
    "refused": refusal(429, message="Busy"),
    "refused for good": refusal(400, message="No"),
}


REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "stream": ("/v1/responses", {"input": "x", "stream": True}),
    "whole": ("/v1/responses", {"input": "x"}),
    "a stream that is not stored": ("/v1/responses", {"input": "x", "stream": True, "store": False}),
    "whole, not stored": ("/v1/responses", {"input": "x", "store": False}),
    "in the background": ("/v1/responses", {"input": "x", "background": True}),
    "Chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    "forwarded": ("/v1/embeddings", {"input": "x"}),
    "WebSocket": ("/v1/responses", {"type": "response.create", "input": "x"}),
}


def ask(base: str, kind: str) -> None:
    """Make one request, and wait for the end of its answer."""
    path, body = REQUESTS[kind]
    request = {"model": "m", **body}
    if kind != "WebSocket":
        call(base, "POST", path, request)
        return
    with connect(base.replace("http", "ws") + path) as socket:
        socket.send(json.dumps(request))
        while json.loads(socket.recv())["type"] not in ("error", "response.failed"):
            pass


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("failure", FAILURES)
def test_s4_nothing_of_a_failed_response_waits_for_the_collector(failure: str, kind: str) -> None:
    """An error refers to the frames in which it was raised, and they to it."""
    with ScriptedUpstream() as upstream:
        upstream.scripts["m"] = FAILURES[failure]
        upstreams = [UpstreamSettings(url=upstream.url)]
        with serving(
            Settings(upstreams=upstreams, forwarding=["embeddings"], checkpoint_interval=0.05)
        ) as base:
            for times in (1, 3):  # the first loads what it needs
                with garbage() as left:
                    for _ in range(times):
                        ask(base, kind)
                    wait_until(lambda: running(base) == 0)
    assert [each for each in left if "openresponses_" in each or "/anyio/" in each] == []
