"""The Gemini API over HTTP: its paths, its keys, its errors, and what becomes of a key in an address."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from openresponses_server.settings import Settings, Tracing, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support import dialect_scripts as scripts
from tests.support.serving import Reply, call, serving
from tests.support.upstream import CUT, JSON, Script, ScriptedUpstream

HELLO: Any = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
KEY = "secret-key-of-a-client"
DIALECTS = ("chat", "anthropic", "responses")


def post(base: str, method: str, body: Any = None, model: str = "demo", **headers: str) -> Reply:
    path = f"/v1beta/models/{model}:{method}"
    return call(base, "POST", path, HELLO if body is None else body, {**headers})


def sent(data: bytes) -> list[Any]:
    frames = [frame for frame in data.decode().split("\n\n") if frame]
    assert all(frame.startswith("data: ") for frame in frames)
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def texts(chunks: list[Any], index: int = 0) -> str:
    candidates = [each for chunk in chunks for each in chunk.get("candidates", ()) if each["index"] == index]
    return "".join(part["text"] for each in candidates for part in each["content"].get("parts", ()))


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    with serving(Settings(store="memory://", api_keys=[hashed(KEY)])) as base:
        yield base


@pytest.mark.parametrize("version", ["v1beta", "v1"])
def test_one_answer(demo: str, version: str) -> None:
    reply = call(demo, "POST", f"/{version}/models/demo:generateContent", HELLO)
    assert reply.status == 200
    assert texts([reply.json]) == "You said: Hello"
    assert reply.json["candidates"][0]["finishReason"] == "STOP"
    assert reply.json["modelVersion"] == "demo"


def test_a_stream_of_events_and_a_stream_as_an_array(demo: str) -> None:
    events = post(demo, "streamGenerateContent?alt=sse")
    assert events.headers["content-type"].startswith("text/event-stream")
    array = post(demo, "streamGenerateContent")
    assert array.headers["content-type"].startswith("application/json")
    assert texts(sent(events.body)) == texts(json.loads(array.body)) == "You said: Hello"
    assert len(sent(events.body)) == len(json.loads(array.body)) > 2


@pytest.mark.parametrize(
    "method", ["generateContent", "streamGenerateContent", "streamGenerateContent?alt=sse"]
)
def test_several_candidates(demo: str, method: str) -> None:
    reply = post(demo, method, {**HELLO, "generationConfig": {"candidateCount": 2}})
    whole = reply.json if method == "generateContent" else None
    chunks = [whole] if whole else sent(reply.body) if "sse" in method else json.loads(reply.body)
    assert [texts(chunks, index) for index in (0, 1)] == ["You said: Hello"] * 2
    assert len({chunk["responseId"] for chunk in chunks}) == 1
    assert sum("usageMetadata" in chunk for chunk in chunks) == 1


def test_tokens_are_counted_of_either_body(demo: str) -> None:
    one, two = post(demo, "countTokens"), post(demo, "countTokens", {"generateContentRequest": HELLO})
    assert one.json == two.json
    assert one.json["totalTokens"] > 0


def test_the_list_of_models_and_one_of_them(demo: str) -> None:
    page = call(demo, "GET", "/v1beta/models?pageSize=2").json
    assert [model["name"] for model in page["models"]] == ["models/demo", "models/demo-text"]
    more = call(demo, "GET", f"/v1beta/models?pageSize=1000&pageToken={page['nextPageToken']}").json
    assert more["models"]
    assert "nextPageToken" not in more
    assert call(demo, "GET", "/v1beta/models/demo").json == page["models"][0]
    missing = call(demo, "GET", "/v1beta/models/nothing")
    assert (missing.status, missing.json["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("header", ["x-goog-api-key", "x-goog-api-client"])
def test_google_s_clients_get_the_models_of_v1_in_their_form(demo: str, header: str) -> None:
    beta, stable = (call(demo, "GET", f"/{each}/models", headers={header: "k"}) for each in ("v1beta", "v1"))
    assert stable.json == beta.json
    assert call(demo, "GET", "/v1/models/demo", headers={header: "k"}).json["name"] == "models/demo"
    missing = call(demo, "GET", "/v1/models/nothing", headers={header: "k"})
    assert missing.json["error"]["status"] == "NOT_FOUND"
    assert "data" in call(demo, "GET", "/v1/models").json
    assert (
        "data"
        in call(demo, "GET", "/v1/models", headers={"x-goog-api-key": "k", "authorization": "Bearer k"}).json
    )


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "named"),
    [
        ("POST", "/v1beta/models/nothing:generateContent", HELLO, 404, "NOT_FOUND"),
        ("POST", "/v1beta/models/demo:generateContent", {}, 400, "INVALID_ARGUMENT"),
        ("POST", "/v1beta/models/demo:generateContent", b"{", 400, "INVALID_ARGUMENT"),
        ("POST", "/v1beta/models/demo:unheardOf", HELLO, 405, "INVALID_ARGUMENT"),
        ("POST", "/v1beta/models/:generateContent", HELLO, 404, "NOT_FOUND"),
        ("POST", "/v1beta/nothing", HELLO, 404, "NOT_FOUND"),
        ("DELETE", "/v1beta/models/demo:generateContent", None, 405, "INVALID_ARGUMENT"),
        ("GET", "/v1beta/models?pageToken=x", None, 400, "INVALID_ARGUMENT"),
        ("POST", "/v1/models/nothing:countTokens", HELLO, 404, "NOT_FOUND"),
    ],
)
def test_refusals_are_in_google_s_form(
    demo: str, method: str, path: str, body: Any, status: int, named: str
) -> None:
    reply = call(demo, method, path, body)
    error = reply.json["error"]
    assert (reply.status, error["code"], error["status"]) == (status, status, named)
    assert set(error) == {"code", "message", "status", "details"}
    assert error["message"]


@pytest.mark.parametrize(
    "model", ["a/b", "a:b", "llama3:8b", "ü b", "a%2Fb", "x:generateContent", "..", "a?b"]
)
def test_a_model_of_any_name_reaches_its_upstream(upstream: ScriptedUpstream, many: str, model: str) -> None:
    name = f"chat-{model}"
    upstream.scripts[name] = Script(scripts.text("chat", "Yes"))
    reply = post(many, "generateContent", model=quote(name, safe="/:"))
    assert texts([reply.json]) == "Yes"
    assert upstream.received[-1].body["model"] == name


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [True, False])
def test_calls_over_each_dialect(many: str, upstream: ScriptedUpstream, dialect: str, stream: bool) -> None:
    name = f"{dialect}-calls"
    calls = (("call_1", "f", '{"a": 1}'), ("call_2", "g", '{"b": 2}'))
    upstream.scripts[name] = Script(scripts.call(dialect, *calls))
    declared = [{"name": name, "parameters": {"type": "OBJECT"}} for name in ("f", "g")]
    body = {**HELLO, "tools": [{"functionDeclarations": declared}]}
    reply = post(many, "streamGenerateContent?alt=sse" if stream else "generateContent", body, model=name)
    chunks = sent(reply.body) if stream else [reply.json]
    parts = [
        part
        for chunk in chunks
        for each in chunk["candidates"]
        for part in each["content"].get("parts", ())
        if "functionCall" in part
    ]
    assert [part["functionCall"] for part in parts] == [
        {"id": "call_1", "name": "f", "args": {"a": 1}},
        {"id": "call_2", "name": "g", "args": {"b": 2}},
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_s5_an_upstream_s_refusal(many: str, upstream: ScriptedUpstream, dialect: str) -> None:
    name = f"{dialect}-refuses"
    body = scripts.refusal_body(dialect, "rate_limit_error", None, "That is why.")
    upstream.scripts[name] = Script([body], 429, JSON | {"retry-after": "17"})
    for method in ("generateContent", "streamGenerateContent", "streamGenerateContent?alt=sse"):
        reply = post(many, method, model=name)
        error = reply.json["error"]
        assert (reply.status, error["status"], error["message"]) == (
            429,
            "RESOURCE_EXHAUSTED",
            "That is why.",
        )
        assert error["details"][-1]["retryDelay"] == "17s"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_is_cut_ends_with_an_error(many: str, upstream: ScriptedUpstream, dialect: str) -> None:
    name = f"{dialect}-cut"
    upstream.scripts[name] = Script([*scripts.piece(dialect), CUT])
    events = sent(post(many, "streamGenerateContent?alt=sse", model=name).body)
    array = json.loads(post(many, "streamGenerateContent", model=name).body)
    for chunks in (events, array):
        assert texts(chunks[:-1]) == "Hel"
        assert chunks[-1]["error"]["code"] >= 500
    assert post(many, "generateContent", model=name).status >= 500


def test_keys_in_each_place(locked: str) -> None:
    assert post(locked, "generateContent").status == 401
    for headers in ({"x-goog-api-key": KEY}, {"x-api-key": KEY}, {"authorization": f"Bearer {KEY}"}):
        assert post(locked, "generateContent", **headers).status == 200
    for query in (f"?key={KEY}", f"?alt=json&key={KEY}", f"?key={KEY}&key={KEY}", f"?%6Bey={quote(KEY)}"):
        assert post(locked, f"generateContent{query}").status == 200


def test_a_key_in_a_header_counts_before_one_in_the_address(locked: str) -> None:
    assert post(locked, "generateContent?key=wrong", **{"x-goog-api-key": KEY}).status == 200
    assert post(locked, f"generateContent?key={KEY}", **{"x-goog-api-key": "wrong"}).status == 401
    assert post(locked, f"generateContent?key={KEY}", authorization="Bearer wrong").status == 401


def test_two_keys_in_an_address_are_refused(locked: str) -> None:
    for query in (f"?key={KEY}&key=other", f"?key=other&key={KEY}", f"?key=&key={KEY}"):
        reply = post(locked, f"generateContent{query}")
        assert (reply.status, reply.json["error"]["status"]) == (401, "UNAUTHENTICATED")


def test_no_other_surface_takes_a_key_from_its_address(locked: str) -> None:
    assert call(locked, "GET", f"/v1/models?key={KEY}").status == 401
    assert call(locked, "POST", f"/v1/responses?key={KEY}", {"model": "demo", "input": "x"}).status == 401


def test_a_key_in_an_address_is_nowhere_written(tmp_path: Any, capfd: pytest.CaptureFixture[str]) -> None:
    traces = tmp_path / "traces"
    settings = Settings(store="memory://", api_keys=[hashed(KEY)], trace=Tracing(folder=str(traces)))
    with serving(settings) as base:
        post(base, f"generateContent?key={KEY}&alt=sse")
        post(base, f"streamGenerateContent?alt=sse&%6bey={KEY}")
        post(base, f"generateContent?key={KEY}&key=other")
        metrics = call(base, "GET", "/metrics", headers={"x-goog-api-key": KEY}).body
    written = b"".join(path.read_bytes() for path in traces.rglob("*") if path.is_file())
    assert b"generateContent" in written
    for place in (written, metrics, "".join(capfd.readouterr()).encode()):
        assert KEY.encode() not in place


DETAILS = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "A_REASON", "domain": "a"}]


@pytest.fixture(scope="module")
def google(upstream: ScriptedUpstream) -> Iterator[str]:
    reached = UpstreamSettings(name="g", url=upstream.url, dialect="gemini", models=["gemini-*"])
    with serving(Settings(store="memory://", upstreams=[reached])) as base:
        yield base


@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent?alt=sse"])
def test_n1_what_google_says_of_an_error_comes_back(
    google: str, upstream: ScriptedUpstream, method: str
) -> None:
    error = {"code": 400, "status": "FAILED_PRECONDITION", "message": "Not here.", "details": DETAILS}
    upstream.scripts["gemini-refuses"] = Script([json.dumps({"error": error}).encode()], 400, JSON)
    reply = post(google, method, model="gemini-refuses")
    assert (reply.status, reply.json["error"]) == (400, error)


@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent?alt=sse"])
def test_n1_what_google_says_besides_its_answer_comes_back(
    google: str, upstream: ScriptedUpstream, method: str
) -> None:
    ratings = [{"category": "HARM_CATEGORY_HATE_SPEECH", "probability": "LOW"}]
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 1, "trafficType": "ON_DEMAND"}
    candidate = {"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP", "safetyRatings": ratings}
    event = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3-001"}
    upstream.scripts["gemini-says"] = Script([f"data: {json.dumps(event)}\n\n".encode()])
    reply = post(google, method, {**HELLO, "labels": {"a": "b"}}, "gemini-says")
    chunks = sent(reply.body) if "stream" in method else [reply.json]
    assert chunks[-1]["candidates"][0]["safetyRatings"] == ratings
    assert chunks[-1]["usageMetadata"]["trafficType"] == "ON_DEMAND"
    assert {chunk["modelVersion"] for chunk in chunks} == {"gemini-3-001"}
    assert upstream.last("gemini-says").body["labels"] == {"a": "b"}
    assert "openresponses-losses" not in reply.headers
