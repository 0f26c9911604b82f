"""Requests of the Interactions API whose handler is cancelled at each of its awaits: nothing stays held, and
what was stored is whole or gone."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.settings import Limits, Settings
from tests.support.in_process import InProcess

PATH = "/v1/interactions"
HELLO: dict[str, Any] = {"model": "demo", "input": "Hello"}


@pytest.fixture
def app() -> Iterator[InProcess]:
    """With one run, and one reader, at a time: whatever stays held shows at the next request."""
    server = InProcess(Settings(store="memory://", limits=Limits(concurrent=1, readers=1)))
    yield server
    server.close()


async def cancelled(app: InProcess, method: str, target: str, body: dict[str, Any], steps: int) -> bool:
    """Cancel the handler of a request after so many turns of the loop; True if it had ended before."""
    received = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1:8080"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
    }

    async def receive() -> Any:
        if received:
            return received.pop()
        return await asyncio.get_running_loop().create_future()

    async def send(_message: Any) -> None:
        await asyncio.sleep(0)

    handler = asyncio.ensure_future(app.app(scope, receive, send))  # type: ignore[arg-type]
    for _ in range(steps):
        await asyncio.sleep(0)
    ended = handler.done()
    handler.cancel()
    await asyncio.wait([handler])
    return ended


REQUESTS = {
    "whole": ("POST", "", HELLO),
    "stream": ("POST", "", {**HELLO, "stream": True}),
    "background": ("POST", "", {**HELLO, "background": True}),
    "background stream": ("POST", "", {**HELLO, "background": True, "stream": True}),
    "get": ("GET", "/{id}", {}),
    "stream again": ("GET", "/{id}?stream=true&last_event_id=2.0", {}),
    "cancel": ("POST", "/{id}/cancel", {}),
    "delete": ("DELETE", "/{id}", {}),
}


@pytest.mark.parametrize("asked", REQUESTS)
def test_one_that_is_cancelled_holds_nothing(app: InProcess, asked: str) -> None:
    method, target, body = REQUESTS[asked]
    steps, ended = 0, False
    while not ended:
        assert steps < 10_000
        first = app.call("POST", PATH, HELLO).json
        where = PATH + target.replace("{id}", first["id"])
        ended = app.run(cancelled(app, method, where, body, steps))
        steps += 1
        again = app.call("GET", f"{PATH}/{first['id']}?stream=true")
        assert again.status in ((200, 404) if asked == "delete" else (200,))
        while (reply := app.call("POST", PATH, HELLO)).status == 429:
            assert "background" in asked  # which goes on
        assert reply.status == 200
    assert steps > 1
