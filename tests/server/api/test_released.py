"""Law S4: a response that has been answered is let go of at once, not when garbage is looked for next."""

import asyncio
import gc
import json
import weakref
from typing import Any

import pytest

from openresponses_server.api.app import create_app
from openresponses_server.runs.run import Run
from openresponses_server.settings import Settings


async def answered(app: Any, **asked: Any) -> bytes:
    """The body of an answer; the client stays until it is over."""
    body = json.dumps({"model": "demo", "input": "Hello", **asked}).encode()
    requests = iter([{"type": "http.request", "body": body, "more_body": False}])
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        found = next(requests, None)
        return found if found is not None else await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    path = {"path": "/v1/responses", "raw_path": b"/v1/responses", "root_path": "", "query_string": b""}
    ends = {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http", "http_version": "1.1"}
    await app({"type": "http", "method": "POST", "headers": headers, **path, **ends}, receive, send)
    assert sent[0]["status"] == 200
    return b"".join(message["body"] for message in sent[1:])


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_s4_nothing_of_a_response_stays_when_it_was_answered(
    monkeypatch: pytest.MonkeyPatch, store: bool, stream: bool
) -> None:
    made: list[weakref.ref[Any]] = []
    begin = Run.__init__

    def noted(run: Run, *given: Any, **more: Any) -> None:
        begin(run, *given, **more)
        made.extend(map(weakref.ref, (run, run.translation)))

    monkeypatch.setattr(Run, "__init__", noted)
    app = create_app(Settings(checkpoint_interval=0.05))
    async with app.router.lifespan_context(app):
        gc.disable()
        try:
            assert b"completed" in await answered(app, store=store, stream=stream)
            async with asyncio.timeout(60):
                while any(each() is not None for each in made):
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()
    assert len(made) == 2
