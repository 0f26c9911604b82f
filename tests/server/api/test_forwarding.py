"""Bodies that go on as they are: what reaches the upstream, what comes back, what is counted, and attacks."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from openresponses_server.requests.forwarding import ENDPOINTS, UsageFinder
from openresponses_server.settings import Limits, Settings, Timeouts, UpstreamSettings
from tests.support.in_process import InProcess
from tests.support.serving import Reply, call, opened, serving
from tests.support.upstream import CUT, HANG, JSON, Received, Script, ScriptedUpstream, refusal
from tests.support.waiting import wait_until

ALL: Any = ["audio", "completions", "embeddings", "images", "moderations", "rerank"]
KEY, OTHER = "client-key-1", "client-key-2"
EMBEDDED = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25, 0.5]}],
    "model": "real",
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}
FORM = {"content-type": "multipart/form-data; boundary=b"}
MODEL = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n%b\r\n'
END = b"--b--\r\n"


def answer(value: Any, **headers: str) -> Script:
    return Script([json.dumps(value).encode()], 200, JSON | headers)


def settings(upstream: ScriptedUpstream, **fields: Any) -> Settings:
    known = ["whisper", "emb", "cheap"]
    ours = UpstreamSettings(url=upstream.url, name="ours", api_key="${OUR_KEY}", model="real", models=known)
    values = {"upstreams": [ours], "forwarding": ALL, "api_keys": [KEY, OTHER], **fields}
    return Settings(**values)


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedUpstream]:
    monkeypatch.setenv("OUR_KEY", "sk-ours-0123456789")
    with ScriptedUpstream() as upstream:
        for endpoint in ENDPOINTS.values():
            upstream.pages["/v1" + endpoint.path] = answer(EMBEDDED)
        yield upstream


@pytest.fixture
def base(upstream: ScriptedUpstream) -> Iterator[str]:
    with serving(keyed(settings(upstream))) as base:
        yield base


def keyed(given: Settings) -> Settings:
    """With the hashes of the keys, as they are loaded."""
    from msgspec.structs import replace

    from openresponses_server.settings.files import hashed

    return replace(given, api_keys=[hashed(key) for key in given.api_keys])


def post(base: str, path: str, body: Any, key: str = KEY, **headers: str) -> Reply:
    sent = {"authorization": f"Bearer {key}", **headers}
    return call(base, "POST", path, body, sent)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_each_endpoint_reaches_its_path_with_our_key_alone(
    base: str, upstream: ScriptedUpstream, path: str
) -> None:
    body = {"model": "emb", "input": ["é", 1.50], "x": {"y": None}}
    reply = post(base, path, body, cookie="a=b", **{"openai-organization": "o", "x-forwarded-for": "1.2.3.4"})
    assert (reply.status, reply.json) == (200, EMBEDDED)
    received = upstream.received[-1]
    assert received.path == "/v1" + ENDPOINTS[path].path
    assert received.body == {**body, "model": "real"}
    assert received.headers["authorization"] == "Bearer sk-ours-0123456789"
    assert received.headers.keys() == {
        *("host", "user-agent", "accept-encoding", "content-length", "content-type", "accept"),
        *("x-request-id", "authorization"),
    }


def test_numbers_stay_as_they_were_written(base: str, upstream: ScriptedUpstream) -> None:
    sent = b'{ "big": 12345678901234567890123, "f": 1.10, "model": "emb", "model": "cheap" }'
    assert post(base, "/v1/embeddings", sent).status == 200
    assert upstream.received[-1].raw == b'{"big":12345678901234567890123,"f":1.10,"model":"real"}'


@pytest.mark.parametrize(
    "body",
    [b'{"model":"emb","MODEL":"dear"}', b'{"model":7}', b"[]", b"{", b'{"model":"emb"' + b',"a":[' * 200],
)
def test_bodies_that_are_refused(base: str, upstream: ScriptedUpstream, body: bytes) -> None:
    reply = post(base, "/v1/embeddings", body)
    assert reply.status == 400
    assert reply.error["type"] == "invalid_request_error"
    assert upstream.received == []


@pytest.mark.parametrize("first", [True, False], ids=["model first", "model last"])
@pytest.mark.parametrize("size", [10, 3_000_000])
def test_forms_arrive_with_the_upstreams_model(
    base: str, upstream: ScriptedUpstream, first: bool, size: int
) -> None:
    file = FILE % bytes(at % 251 for at in range(size))
    body = (MODEL + file if first else file + MODEL) + END
    for sent in (body, gzip.compress(body, 1)):
        extra = {} if sent is body else {"content-encoding": "gzip"}
        assert post(base, "/v1/audio/transcriptions", sent, **FORM, **extra).status == 200
        assert upstream.received[-1].raw == body.replace(b"whisper", b"real")
        assert upstream.received[-1].headers["content-type"] == FORM["content-type"]


def test_second_model_in_a_large_form_never_reaches_an_upstream_whole(
    base: str, upstream: ScriptedUpstream
) -> None:
    body = MODEL + FILE % bytes(3_000_000) + MODEL + END
    reply = post(base, "/v1/audio/transcriptions", body, **FORM)
    assert (reply.status, reply.error["param"]) == (400, "model")
    assert upstream.received == []


def test_stream_passes_and_its_usage_counts(base: str, upstream: ScriptedUpstream) -> None:
    frames = [
        b'data: {"choices":[{"text":"a"}],"usage":null}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}\n\n',
        b"data: [DONE]\n\n",
    ]
    upstream.pages["/v1/completions"] = Script(frames)
    reply = post(base, "/v1/completions", {"model": "emb", "prompt": "x", "suffix": "y", "stream": True})
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.body == b"".join(frames)
    report = call(base, "GET", "/v1/usage", headers={"authorization": f"Bearer {KEY}"}).json
    assert (report["requests"], report["input_tokens"], report["output_tokens"]) == (1, 7, 3)
    other = call(base, "GET", "/v1/usage", headers={"authorization": f"Bearer {OTHER}"}).json
    assert other["requests"] == 0
    assert b'openresponses_bridge_tokens_total{kind="input",model="real",upstream="ours"} 7.0' in (
        call(base, "GET", "/metrics", headers={"authorization": f"Bearer {KEY}"}).body
    )


def test_token_quota_counts_forwarded_requests_of_its_own_key_only(upstream: ScriptedUpstream) -> None:
    spent = {**EMBEDDED, "usage": {"prompt_tokens": 5000, "total_tokens": 5000}}
    upstream.pages["/v1/embeddings"] = answer(spent)
    limits = Limits(tokens_per_minute_per_key=100, requests_per_minute_per_key=100)
    with serving(keyed(settings(upstream, limits=limits))) as base:
        first = post(base, "/v1/embeddings", {"model": "emb", "input": "x"})
        assert (first.status, first.headers["x-ratelimit-limit-tokens"]) == (200, "100")
        refused = post(base, "/v1/embeddings", {"model": "emb", "input": "x"})
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert post(base, "/v1/embeddings", {"model": "emb", "input": "x"}, OTHER).status == 200


def test_upstreams_refusal_keeps_its_shape_without_our_key(base: str, upstream: ScriptedUpstream) -> None:
    upstream.pages["/v1/embeddings"] = refusal(
        422, {"set-cookie": "a=b"}, message="no: sk-ours-0123456789", type="t", code="c"
    )
    reply = post(base, "/v1/embeddings", {"model": "emb"})
    assert (reply.status, reply.error["type"], reply.error["code"]) == (422, "t", "c")
    assert b"sk-ours" not in reply.body
    assert "set-cookie" not in reply.headers


def test_headers_of_the_answer_are_by_an_allow_list(base: str, upstream: ScriptedUpstream) -> None:
    headers = {
        **{"content-type": "audio/mpeg", "content-disposition": 'attachment; filename="a.mp3"'},
        **{"set-cookie": "a=b", "location": "https://evil.example", "openai-organization": "ours"},
        **{"access-control-allow-origin": "*", "connection": "x-y", "x-y": "1"},
    }
    upstream.pages["/v1/audio/speech"] = Script([b"\xff\xfb" * 50_000], 201, headers)
    reply = post(base, "/v1/audio/speech", {"model": "emb", "input": "x"})
    assert (reply.status, reply.body) == (200, b"\xff\xfb" * 50_000)
    assert reply.headers["content-type"] == "audio/mpeg"
    assert reply.headers["content-disposition"] == 'attachment; filename="a.mp3"'
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert not {"set-cookie", "location", "openai-organization", "access-control-allow-origin", "x-y"} & (
        reply.headers.keys()
    )


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/xhtml+xml", "text/javascript"])
def test_pages_are_refused(base: str, upstream: ScriptedUpstream, kind: str) -> None:
    upstream.pages["/v1/audio/speech"] = Script([b"<script>"], 200, {"content-type": kind})
    reply = post(base, "/v1/audio/speech", {"model": "emb"})
    assert (reply.status, reply.error["code"]) == (502, "upstream_invalid_response")


def test_odd_type_becomes_bytes(base: str, upstream: ScriptedUpstream) -> None:
    upstream.pages["/v1/audio/speech"] = Script([b"x"], 200, {"content-type": "a/b;\tx=\x01y\x80"})
    reply = post(base, "/v1/audio/speech", {"model": "emb"})
    assert reply.headers["content-type"] == "application/octet-stream"


def test_failover_before_the_first_byte_with_the_other_upstreams_model(
    base: str, upstream: ScriptedUpstream
) -> None:
    with ScriptedUpstream() as second:
        second.pages["/v1/embeddings"] = answer(EMBEDDED)
        upstream.pages["/v1/embeddings"] = refusal(503, message="down")
        two = [
            UpstreamSettings(
                url=upstream.url, name="a", model="real", models=["emb"], failover=["c", "b/there"]
            ),
            UpstreamSettings(url=second.url, name="b", models=["there"]),
            UpstreamSettings(url=second.url, name="c", models=["never"], dialect="anthropic"),
        ]
        with serving(keyed(settings(upstream, upstreams=two))) as base:
            reply = post(base, "/v1/embeddings", {"model": "emb", "input": "x"})
            assert reply.status == 200
            assert [each.model for each in second.received] == ["there"]
            assert "a" in reply.headers["openresponses-tried"]


def test_large_form_is_not_sent_twice(upstream: ScriptedUpstream) -> None:
    upstream.pages["/v1/audio/transcriptions"] = refusal(503, message="down")
    two = [
        UpstreamSettings(url=upstream.url, name="a", models=["whisper"], failover=["b"]),
        UpstreamSettings(url=upstream.url, name="b", models=["other"]),
    ]
    with serving(keyed(settings(upstream, upstreams=two))) as base:
        body = MODEL + FILE % bytes(3_000_000) + END
        assert post(base, "/v1/audio/transcriptions", body, **FORM).status == 503
        assert len(upstream.received) == 1


@pytest.mark.parametrize("dialect", ["anthropic", "gemini"])
def test_upstream_without_the_endpoint_is_named(upstream: ScriptedUpstream, dialect: str) -> None:
    other = UpstreamSettings(url=upstream.url, name="other", dialect=dialect)
    with serving(keyed(settings(upstream, upstreams=[other]))) as base:
        reply = post(base, "/v1/embeddings", {"model": "emb"})
        assert (reply.status, reply.error["code"]) == (404, "endpoint_not_served")
        assert "other" in reply.error["message"]
        assert dialect in reply.error["message"]
    assert upstream.received == []


def test_demo_model_has_none_and_what_bills_otherwise_is_off(demo: str) -> None:
    assert call(demo, "POST", "/v1/embeddings", {"model": "demo"}).error["code"] == "endpoint_not_served"
    for path in ("/v1/images/generations", "/v1/audio/speech"):
        assert call(demo, "POST", path, {"model": "demo"}).error["code"] == "endpoint_off"


@pytest.mark.parametrize("path", ["/v1/images/../responses", "/v1/embeddings/..%2fmodels", "/v1/audio/x"])
def test_other_paths_reach_nothing(base: str, upstream: ScriptedUpstream, path: str) -> None:
    assert post(base, path, {"model": "emb"}).status in (404, 405)
    assert upstream.received == []


def test_header_smuggling_does_not_reach_the_upstream(base: str, upstream: ScriptedUpstream) -> None:
    sent = {"model": "emb\r\nx-evil: 1", "input": "x"}
    assert post(base, "/v1/embeddings", sent).status == 404
    hostile = "multipart/form-data; boundary=a\tx"
    assert post(base, "/v1/images/edits", b"--a", **{"content-type": hostile}).status == 400
    assert upstream.received == []


def test_bodies_beyond_the_limit(upstream: ScriptedUpstream) -> None:
    with serving(keyed(settings(upstream, max_body_bytes=1_000_000))) as base:
        large = MODEL + FILE % bytes(2_000_000) + END
        bomb = gzip.compress(large)
        assert len(bomb) < 10_000
        assert post(base, "/v1/images/edits", bomb, **FORM, **{"content-encoding": "gzip"}).status == 413
        assert post(base, "/v1/images/edits", large, **FORM).status == 413
        body = gzip.compress(b'{"model":"emb","input":"' + b"x" * 2_000_000 + b'"}')
        assert post(base, "/v1/embeddings", body, **{"content-encoding": "gzip"}).status == 413
    assert upstream.received == []


def cut_off(base: str, path: str) -> bytes:
    """What arrives of an answer that is cut."""
    head = {"authorization": f"Bearer {KEY}"}
    with opened(base, "POST", path, {"model": "emb"}, head) as response:
        assert response.status == 200
        try:
            whole = response.read()
        except Exception as error:
            return bytes(getattr(error, "partial", b""))
    raise AssertionError(f"the answer had an end: {whole[-80:]!r}")


@pytest.mark.parametrize(
    "script",
    [Script([b"x" * 1000, 0.05, CUT], 200, {"content-type": "audio/mpeg"})],
    ids=["chunked"],
)
def test_cut_answer_is_cut_for_the_client(base: str, upstream: ScriptedUpstream, script: Script) -> None:
    upstream.pages["/v1/audio/speech"] = script
    assert cut_off(base, "/v1/audio/speech").startswith(b"xxx")
    assert post(base, "/v1/embeddings", {"model": "emb"}).status == 200


def test_cut_stream_ends_with_an_error(base: str, upstream: ScriptedUpstream) -> None:
    upstream.pages["/v1/completions"] = Script([b'data: {"choices":[]}\n\ndata: {"ch', 0.05, CUT])
    reply = post(base, "/v1/completions", {"model": "emb", "stream": True})
    last = reply.body.rpartition(b"data: ")[2]
    assert json.loads(last)["error"]["code"] == "upstream_disconnected"


def test_answers_without_an_end_are_cut(upstream: ScriptedUpstream) -> None:
    upstream.pages["/v1/audio/speech"] = Script([b"x" * 65536] * 200, 200, {"content-type": "audio/mpeg"})
    upstream.pages["/v1/embeddings"] = Script([b"{", HANG], 200, JSON)
    limits, timeouts = Limits(output_bytes=1_000_000), Timeouts(total=0.7)
    with serving(keyed(settings(upstream, limits=limits, timeouts=timeouts))) as base:
        assert len(cut_off(base, "/v1/audio/speech")) <= 1_000_000
        cut_off(base, "/v1/embeddings")


def test_compressed_answer_is_given_plain_and_a_bomb_is_cut(upstream: ScriptedUpstream) -> None:
    head = {"content-type": "audio/mpeg", "content-encoding": "gzip"}
    upstream.pages["/v1/audio/speech"] = Script([gzip.compress(b"x" * 500_000)], 200, head)
    with serving(keyed(settings(upstream, limits=Limits(output_bytes=1_000_000)))) as base:
        reply = post(base, "/v1/audio/speech", {"model": "emb"})
        assert reply.body == b"x" * 500_000
        assert "content-encoding" not in reply.headers
        upstream.pages["/v1/audio/speech"] = Script([gzip.compress(bytes(50_000_000), 1)], 200, head)
        assert len(cut_off(base, "/v1/audio/speech")) <= 1_000_000


def test_client_that_leaves_cancels_the_upstream(base: str, upstream: ScriptedUpstream) -> None:
    upstream.pages["/v1/audio/speech"] = Script([b"x", HANG], 200, {"content-type": "audio/mpeg"})
    with opened(base, "POST", "/v1/audio/speech", {"model": "emb"}, {"authorization": f"Bearer {KEY}"}):
        pass
    gone(upstream.received[-1])


def test_client_that_leaves_before_the_answer_cancels_the_upstream(
    base: str, upstream: ScriptedUpstream
) -> None:
    upstream.pages["/v1/embeddings"] = Script([], 200, JSON, before=HANG)
    with socket.create_connection((urlsplit(base).hostname, urlsplit(base).port)) as client:
        body = b'{"model":"emb"}'
        head = f"POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
        client.sendall(
            f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        )
        client.sendall(body)
        wait_until(lambda: bool(upstream.received))
    gone(upstream.received[-1])


def test_client_that_leaves_within_its_form_has_left(base: str, upstream: ScriptedUpstream) -> None:
    upstream.pages["/v1/images/edits"] = Script([], 200, JSON, before=HANG)
    head = b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nemb\r\n'
    form = (
        head + b'--b\r\ncontent-disposition: form-data; name="image"; filename="a"\r\n\r\n' + b"x" * 600_000
    )
    with capture_logs() as lines:
        with socket.create_connection((urlsplit(base).hostname, urlsplit(base).port)) as client:
            line = f"POST /v1/images/edits HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
            kind = f"content-type: {FORM['content-type']}\r\ncontent-length: {len(form) + 9}\r\n\r\n"
            connected = len(upstream.connections)
            client.sendall((line + kind).encode() + form)
            wait_until(lambda: len(upstream.connections) > connected)
        wait_until(lambda: any(line["event"] == "response" for line in lines))
    (line,) = [line for line in lines if line["event"] == "response"]
    assert (line["log_level"], line["status"], line["code"]) == ("info", "cancelled", "client_left")


def gone(received: Received) -> None:
    wait_until(lambda: received.gone_at is not None)


def test_slow_client_slows_its_upstream(upstream: ScriptedUpstream) -> None:
    total = 64 * 1024 * 1024
    upstream.pages["/v1/audio/speech"] = Script(
        [bytes(65536)] * (total // 65536), 200, {"content-type": "audio/mpeg"}
    )
    with serving(keyed(settings(upstream)), send_buffer=65536) as base:
        with opened(
            base, "POST", "/v1/audio/speech", {"model": "emb"}, {"authorization": f"Bearer {KEY}"}
        ) as response:
            received = upstream.received[-1]
            before = -1
            while before != received.sent:  # until nothing moves any more
                before = received.sent
                time.sleep(0.3)
            assert received.sent < total // 2
            assert len(response.read(1_000_000)) == 1_000_000
        gone(received)


def test_slow_upstream_slows_its_client(upstream: ScriptedUpstream) -> None:
    """An upstream that reads nothing: the upload stops, instead of filling the memory, and is given up."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    deaf = UpstreamSettings(url=url, name="deaf", timeouts=Timeouts(first_byte=2.0))
    configuration = settings(upstream, upstreams=[deaf], max_body_bytes=1 << 30)
    total = 256 * 1024 * 1024
    with listener, serving(keyed(configuration)) as base:
        address = urlsplit(base)
        with socket.create_connection((address.hostname, address.port)) as client:
            client.settimeout(0.5)
            lines = [
                "POST /v1/audio/transcriptions HTTP/1.1",
                "host: localhost",
                f"authorization: Bearer {KEY}",
                f"content-type: {FORM['content-type']}",
                f"content-length: {total}",
            ]
            client.sendall("\r\n".join([*lines, "", ""]).encode() + MODEL + FILE.partition(b"%b")[0])
            sent = 0
            try:
                while sent < total // 4:
                    sent += client.send(bytes(65536))
            except TimeoutError:
                pass  # nothing more is taken
            assert sent < total // 4
            client.settimeout(60)
            assert client.recv(64).startswith(b"HTTP/1.1 504")


def test_early_answer_to_an_upload(upstream: ScriptedUpstream) -> None:
    """An upstream that answers before it has read the body, and closes."""

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"error":{"message":"too large"}}'
        writer.write(b"HTTP/1.1 413 No\r\ncontent-type: application/json\r\n")
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        await reader.read(1)

    from tests.support.listening import listening

    async def main() -> Reply:
        async with listening(answering) as port:
            early = UpstreamSettings(url=f"http://127.0.0.1:{port}", name="early")
            with serving(keyed(settings(upstream, upstreams=[early]))) as base:
                body = MODEL + FILE % bytes(3_000_000) + END
                return await asyncio.to_thread(post, base, "/v1/images/edits", body, **FORM)

    reply = asyncio.run(main())
    assert (reply.status, reply.error["message"]) == (413, "too large")


ECHO = b",".join([b'{"document":{"usage":{"total_tokens":1},"text":"' + b"x" * 90_000 + b'"}}'] * 5)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (json.dumps(EMBEDDED).encode(), (5, 0)),
        (b'{"usage":{"total_tokens":9},"results":[]}', (9, 0)),
        (b'{"results":[],"meta":{"tokens":{"input_tokens":4,"output_tokens":1}}}', (4, 1)),
        (b'{"usage":{"prompt_tokens":8,"total_tokens":8},"data":"' + b"x" * 500_000 + b'"}', (8, 0)),
        (b'{"data":"' + b"x" * 500_000 + b'","usage": {"input_tokens":2,"output_tokens":3}}', (2, 3)),
        (b'{"text":"\\"usage\\":{\\"prompt_tokens\\":1}' + b"x" * 200_000 + b'"}', None),
        (b'{"usage":{"prompt_tokens":-5,"completion_tokens":"x","total_tokens":true}}', (0, 0)),
        (b'{"usage":{"prompt_tokens":1e400}}', (10**12, 0)),
        # what an answer repeats of its request is no count of its own
        (b'{"usage":{"total_tokens":9},"results":[' + ECHO + b"]}", (9, 0)),
        (b'{"results":[' + ECHO + b'],"usage":{"total_tokens":9}}', (9, 0)),
        (b'{"results":[{"document":{"usage":{"total_tokens":1}}}]}', None),
        (
            b'{"results":[{"document":{"usage":{"total_tokens":1}}}],"meta":{"tokens":{"input_tokens":4}}}',
            (4, 0),
        ),
        (b'"usage":{' * 50_000, None),
        (b'"usage":' + b'{"a":' * 50_000, None),
        (b"", None),
    ],
)
@pytest.mark.parametrize("size", [1 << 30, 4096])
def test_usage_is_found(data: bytes, expected: tuple[int, int] | None, size: int) -> None:
    finder = UsageFinder()
    for start in range(0, len(data), size):
        finder.feed(data[start : start + size])
    usage = finder.usage()
    assert (usage and (usage.input_tokens, usage.output_tokens)) == expected


def test_usage_finder_keeps_little_of_gigabytes() -> None:
    finder = UsageFinder()
    piece = bytes(1 << 20)
    for _ in range(200):
        finder.feed(piece)
    assert len(finder._first) + len(finder._last) < 300_000


def test_concurrent_requests_are_limited(upstream: ScriptedUpstream) -> None:
    upstream.pages["/v1/embeddings"] = Script([], 200, JSON, before=HANG)
    with serving(keyed(settings(upstream, limits=Limits(concurrent_per_key=1)))) as base:
        waiting = threading.Thread(target=lambda: post(base, "/v1/embeddings", {"model": "emb"}), daemon=True)
        waiting.start()
        wait_until(lambda: bool(upstream.received))
        reply = post(base, "/v1/embeddings", {"model": "emb"})
        assert (reply.status, reply.error["code"]) == (429, "too_many_concurrent_requests")


def test_without_a_key_nothing_is_forwarded(upstream: ScriptedUpstream) -> None:
    app = InProcess(keyed(settings(upstream)))
    try:
        for path in ENDPOINTS:
            assert app.call("POST", path, {"model": "emb"}).status == 401
    finally:
        app.close()
    assert upstream.received == []
