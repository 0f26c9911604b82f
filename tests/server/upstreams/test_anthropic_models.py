"""`/v1/models` for clients of Anthropic's API: its shape, its pages, its errors; with Anthropic's own SDK."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from openresponses_server.settings import Capabilities, Settings, UpstreamSettings
from tests.support import sdks
from tests.support.in_process import InProcess
from tests.support.serving import Reply

NAMES = [f"model-{number:02}" for number in range(25)]
DATED = "claude-sonnet-4-5-20250929"
ANTHROPIC = [(b"anthropic-version", b"2023-06-01")]


@pytest.fixture(scope="module")
def app() -> Iterator[InProcess]:
    upstream = UpstreamSettings(url="http://127.0.0.1:9", models=[*NAMES, DATED])
    limits = Capabilities(context_window=1000, max_output_tokens=100)
    running = InProcess(Settings(upstreams=[upstream], models={"model-00": limits}))
    yield running
    running.close()


def listed(app: InProcess, query: str = "", path: str = "/v1/models") -> Reply:
    return app.call("GET", path + query, headers=ANTHROPIC)


def test_model_in_anthropics_shape(app: InProcess) -> None:
    first = listed(app).json["data"][0]
    assert first == {
        "type": "model",
        "id": "model-00",
        "display_name": "model-00",
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 900,
        "max_tokens": 100,
    }
    assert listed(app, path="/v1/models/model-00").json == first
    unknown = listed(app, path="/v1/models/model-01").json
    assert (unknown["max_input_tokens"], unknown["max_tokens"]) == (None, None)
    assert listed(app, path=f"/v1/models/{DATED}").json["created_at"] == "2025-09-29T00:00:00Z"


@pytest.mark.parametrize(
    ("query", "first", "count", "more"),
    [
        ("", 0, 20, True),
        ("?limit=3", 0, 3, True),
        ("?limit=1000", 0, 26, False),
        ("?after_id=model-02&limit=2", 3, 2, True),
        ("?after_id=model-23", 24, 2, False),
        ("?before_id=model-02", 0, 2, False),
        ("?before_id=model-10&limit=4", 6, 4, True),
        ("?after_id=model-02&before_id=model-05", 3, 2, False),
        ("?after_id=model-05&before_id=model-02", 0, 0, False),
    ],
)
def test_pages(app: InProcess, query: str, first: int, count: int, more: bool) -> None:
    every = [*NAMES, DATED]
    page = listed(app, query).json
    ids = [model["id"] for model in page["data"]]
    assert ids == every[first : first + count]
    assert page["has_more"] is more
    assert (page["first_id"], page["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=99999", "limit=", "limit=²"])
def test_wrong_limit_is_refused_in_anthropics_shape(app: InProcess, query: str) -> None:
    refused = app.call("GET", f"/v1/models?{query}".encode(), headers=ANTHROPIC)
    assert refused.status == 400
    assert refused.json["error"]["type"] == "invalid_request_error"
    assert "limit" in refused.json["error"]["message"]


@pytest.mark.parametrize("query", ["?after_id=nobody", "?before_id=nobody"])
def test_unknown_place_is_refused(app: InProcess, query: str) -> None:
    refused = listed(app, query)
    assert (refused.status, refused.json["type"]) == (400, "error")
    assert query[1:].partition("=")[0] in refused.json["error"]["message"]


def test_unknown_model_is_anthropics_not_found(app: InProcess) -> None:
    missing = listed(app, path="/v1/models/nobody")
    assert (missing.status, missing.json["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ([], "list"),
        ([(b"authorization", b"Bearer k")], "list"),
        ([(b"authorization", b"Bearer k"), (b"x-api-key", b"k")], "list"),
        ([(b"x-api-key", b"k")], None),
        ([(b"authorization", b"Bearer k"), *ANTHROPIC], None),
    ],
)
def test_headers_say_who_asks(app: InProcess, headers: list[tuple[bytes, bytes]], kind: str | None) -> None:
    answer = app.call("GET", "/v1/models", headers=headers).json
    assert answer.get("object") == kind
    assert ("has_more" in answer) is (kind is None)


def test_anthropics_sdk_lists_pages_and_retrieves(demo: str) -> None:
    with sdks.anthropic.Anthropic(base_url=demo, api_key="none", max_retries=0) as client:
        every = [model.id for model in client.models.list(limit=1)]
        assert every == [model.id for model in client.models.list()]
        assert "demo" in every
        one = client.models.retrieve("demo")
        assert (one.type, one.id, one.lifecycle) == ("model", "demo", "active")
        with pytest.raises(sdks.anthropic.NotFoundError):
            client.models.retrieve("nobody")
        counted = client.messages.count_tokens(
            model="demo",
            system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            messages=[{"role": "user", "content": "How many tokens are in this sentence?"}],
            tools=[{"name": "f", "input_schema": {"type": "object"}}],
            thinking={"type": "adaptive"},
        )
        assert counted.input_tokens > 10
