"""Upstreams that refuse for as long as nobody changes something: whose key is wrong, whether to ask again,
and what the operator reads of it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from openresponses_server.client import OpenResponsesClient, OpenResponsesError
from openresponses_server.errors import UpstreamError
from openresponses_server.http.flow import Sink
from openresponses_server.settings import (
    Retries,
    Settings,
    SettingsError,
    Timeouts,
    UpstreamSettings,
    load_settings,
)
from openresponses_server.settings.data_folder import ServerSealer
from openresponses_server.upstreams.dialects import CHAT
from openresponses_server.upstreams.http import HttpUpstream
from openresponses_server.upstreams.refusals import in_band_refusal
from openresponses_server.upstreams.refusals import refusal as refused_with
from openresponses_server.upstreams.routing.models import build_router
from tests.support import sdks
from tests.support.serving import call, respond, serving, stream
from tests.support.upstream import JSON, Script, ScriptedUpstream, chunk, refusal

KEY = "sk-operator-0123456789abcdef"
THEIRS = "sk-client-0123456789abcdef"
HTML = {"content-type": "text/html"}
# by the model that is asked for: what an upstream answers that waiting does not mend
LASTING = {
    "html": Script([b"<html>A portal</html>"], 200, HTML),
    "html-404": Script([b"<html>Not found</html>"], 404, HTML),
    "dialect-404": refusal(404, type="not_found_error", message="Not Found"),
    "json": Script([b'{"pong": true}'], 200, JSON),
    "moved": Script([], 302, {"location": "http://elsewhere.example/"}),
    "key": refusal(401, code="invalid_api_key", message=f"Incorrect API key provided: {KEY}"),
    "said-so": refusal(500, {"x-should-retry": "false"}, message="Not again"),
}
PASSING = {
    "html-502": Script([b"<html>Bad gateway</html>"], 502, HTML),
    "busy": refusal(429, message="Later"),
    "down": refusal(503, message="Later"),
}


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream({**LASTING, **PASSING}) as scripted:
        yield scripted


@pytest.fixture
def bridged(upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("UPSTREAM_KEY", KEY)
    given = UpstreamSettings(
        url=upstream.url, name="up", api_key_env="UPSTREAM_KEY", retries=Retries(times=1, first_wait=0.001)
    )
    with serving(Settings(upstreams=[given])) as base:
        yield base


@pytest.mark.parametrize("model", [*LASTING, *PASSING])
def test_what_waiting_does_not_mend_is_asked_once_and_says_so(
    model: str, bridged: str, upstream: ScriptedUpstream
) -> None:
    before = len(upstream.received)
    for path, body in (
        ("/v1/responses", {"input": "Hi", "stream": True}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}),
    ):
        reply = call(bridged, "POST", path, {"model": model, **body})
        assert reply.status >= 400
        assert reply.headers.get("x-should-retry") == ("false" if model in LASTING else None), path
    assert len(upstream.received) - before == (3 if model in LASTING else 6)


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_the_sdks_ask_once(sdk: str, bridged: str, upstream: ScriptedUpstream) -> None:
    before = len(upstream.received)
    if sdk == "openai":
        with (
            sdks.openai.OpenAI(base_url=f"{bridged}/v1", api_key="x") as client,
            pytest.raises(sdks.openai.APIError),
        ):
            client.responses.create(model="html", input="Hi")
    else:
        with (
            sdks.anthropic.Anthropic(base_url=bridged, api_key="x") as of_messages,
            pytest.raises(sdks.anthropic.APIError),
        ):
            of_messages.messages.create(
                model="html", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
            )
    assert len(upstream.received) - before == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, {"message": "No"}),
        (403, {"code": "permission_denied", "message": "No"}),
        (403, {}),
        (407, {"message": "No"}),
    ],
)
def test_our_key_that_is_refused_is_not_taken_for_the_client_s(
    status: int, error: dict[str, Any], bridged: str, upstream: ScriptedUpstream
) -> None:
    words = {**error, "message": f"{error['message']}: {KEY[:12]}***cdef"} if error else {}
    upstream.scripts["ours"] = refusal(status, **words)
    with capture_logs() as logged:
        reply = respond(bridged, model="ours")
    assert (reply.status, reply.error["code"]) == (400, "upstream_authentication_failed")
    assert reply.error["type"] == "server_error", "it is not the client's fault"
    assert reply.error["message"] == "the upstream up does not accept this server's key for it"
    assert KEY[:12] not in json.dumps(reply.error), "an upstream shows a part of the key"
    [line] = [line for line in logged if line["event"] == "response"]
    assert (line["status"], line["cause"]) == ("failed", f"it answered with status {status}")


IN_BAND = {
    "a status": {"code": 401},
    "a status as text": {"code": "401"},
    "a code": {"code": "invalid_api_key", "type": "invalid_request_error"},
    "Anthropic's": {"type": "authentication_error"},
    "Anthropic's 403": {"type": "permission_error"},
    "Google's": {"status": "UNAUTHENTICATED"},
}


@pytest.mark.parametrize("name", IN_BAND)
@pytest.mark.parametrize("whole", [True, False], ids=["JSON", "a frame"])
def test_our_key_that_is_refused_under_a_good_status_is_not_taken_for_the_client_s(
    name: str, whole: bool, bridged: str, upstream: ScriptedUpstream
) -> None:
    body = json.dumps({"error": {**IN_BAND[name], "message": f"Wrong key: {KEY[:12]}***cdef"}}).encode()
    begun = [chunk(content="Hel")]
    sent = Script([body], 200, JSON) if whole else Script([b"data: " + body + b"\n\n"])
    upstream.scripts["ours"] = sent
    reply = respond(bridged, model="ours")
    assert (reply.status, reply.error["code"]) == (400, "upstream_authentication_failed")
    assert reply.error["message"] == "the upstream up does not accept this server's key for it"
    if not whole:
        upstream.scripts["ours"] = Script([*begun, *sent.steps])
        error = stream(bridged, model="ours").final["error"]
        assert (error["code"], error["message"]) == (reply.error["code"], reply.error["message"])


@pytest.mark.parametrize("whole", [True, False], ids=["JSON", "a frame"])
def test_the_client_s_own_key_that_is_refused_under_a_good_status_is_said_to_be_that(
    whole: bool, upstream: ScriptedUpstream
) -> None:
    body = b'{"error": {"code": "invalid_api_key", "message": "No such key"}}'
    upstream.scripts["theirs"] = Script([body], 200, JSON) if whole else Script([b"data: %b\n\n" % body])
    given = UpstreamSettings(url=upstream.url, pass_through=True)
    with serving(Settings(upstreams=[given])) as base:
        reply = respond(base, {"authorization": f"Bearer {THEIRS}"}, model="theirs")
    assert (reply.status, reply.error["message"]) == (401, "No such key")


def test_a_key_that_is_missing_is_said_to_be(upstream: ScriptedUpstream) -> None:
    upstream.scripts["none"] = refusal(401, message="No")
    with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base:
        reply = respond(base, model="none")
    assert reply.error["message"] == "the upstream asks for a key, and this server has none for it"


def test_the_client_s_own_key_that_is_refused_is_said_to_be_that(upstream: ScriptedUpstream) -> None:
    upstream.scripts["theirs"] = refusal(401, code="invalid_api_key", message="No such key")
    given = UpstreamSettings(url=upstream.url, pass_through=True)
    with serving(Settings(upstreams=[given])) as base:
        reply = call(
            base,
            "POST",
            "/v1/responses",
            {"model": "theirs", "input": "Hi"},
            headers={"authorization": f"Bearer {THEIRS}"},
        )
    assert (reply.status, reply.error["code"], reply.error["message"]) == (
        401,
        "invalid_api_key",
        "No such key",
    )


async def test_a_client_of_ours_hears_of_its_own_key(upstream: ScriptedUpstream) -> None:
    """It is built on the same: there the key is the caller's."""
    upstream.scripts["mine"] = refusal(401, code="invalid_api_key", message="No such key")
    async with OpenResponsesClient(upstream.url, "k") as client:
        with pytest.raises(OpenResponsesError) as refused:
            async for _ in client.stream({"model": "mine", "input": "Hi"}):
                pass
    assert (refused.value.http_status, refused.value.code) == (401, "invalid_api_key")


def test_what_an_upstream_wrote_is_in_the_log_without_keys_and_bounded(
    bridged: str, upstream: ScriptedUpstream
) -> None:
    body = f'{{"error": {{"message": "x\\n\x1b[31m{KEY}", "why": "{"y" * 5000}"}}}}'
    upstream.scripts["wordy"] = Script([body.encode()], 400, JSON)
    with capture_logs() as logged:
        respond(bridged, model="wordy")
        respond(bridged, model="html")
    wordy, html = (line["said"] for line in logged if line["event"] == "upstream.refused")
    assert html == "<html>A portal</html>"
    assert wordy.startswith('{"error": {"message": "x')
    assert KEY not in wordy
    assert "[key]" in wordy
    assert len(wordy) == 500
    assert wordy.isprintable()


@pytest.mark.parametrize("status", [400, 402, 404, 409, 422, 429, 500])
def test_only_what_is_about_a_key_is_said_to_be(status: int) -> None:
    error = refused_with(status, {}, b'{"error": {"message": "m", "code": "c"}}', ours="ours")
    assert (error.http_status, error.message, error.code) == (status, "m", "c")


# ── addresses ──────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("url", "dialect", "base"),
    [
        ("http://h/v1/chat/completions", "chat", "http://h/v1"),
        ("http://h/v1/chat/completions/", None, "http://h/v1"),
        ("http://h/v1/responses", "responses", "http://h/v1"),
        ("http://h/v1/messages", "anthropic", "http://h/v1"),
        ("http://h/api", "chat", "http://h/api"),
    ],
)
def test_an_address_with_the_dialect_s_own_path_is_understood(
    url: str, dialect: str | None, base: str
) -> None:
    given = {"url": url} | ({"dialect": dialect} if dialect else {})
    [upstream] = build_router(load_settings(upstreams=[given]), ServerSealer(None)).upstreams()
    assert upstream.address == base


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"url": "http://u:pw@h/v1/messages"},
            "http://h/v1/messages is an address of the dialect anthropic: set that dialect, and http://h/v1",
        ),
        ({"url": "http://h/v1/chat/completions", "dialect": "responses"}, "an address of the dialect chat"),
        ({"profile": "localhost:11434"}, "http://localhost:11434 or https://"),
        ({"profile": "127.0.0.1:11434/v1"}, "http://127.0.0.1:11434/v1 or https://"),
        ({"profile": "api.openai.com/v1"}, "http://api.openai.com/v1 or https://"),
        ({"profile": "me:pw@api.openai.com/v1"}, "'api.openai.com/v1' is not a known provider"),
        ({"profile": "olama"}, "did you mean 'ollama'?"),
    ],
)
def test_an_address_that_can_t_be_meant_gets_a_suggestion(given: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError) as refused:
        build_router(load_settings(upstreams=[given]), ServerSealer(None))
    assert words in str(refused.value)
    assert "pw" not in str(refused.value)


# ── what clients read ──────────────────────────────────────────────────────────────────────────────────
class Rude(threading.Thread):
    """Takes a connection and answers it so."""

    def __init__(self, says: bytes) -> None:
        super().__init__(daemon=True)
        self._says = says
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def run(self) -> None:
        with self._listener:
            while True:
                taken, _ = self._listener.accept()
                with taken:
                    if not taken.recv(65536):
                        return
                    taken.sendall(self._says)

    def end(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self.join()


@pytest.mark.parametrize(
    ("scheme", "says", "words"),
    [
        ("http", b"", "it closed the connection before its answer"),
        ("http", b"SSH-2.0\r\n", "what it sent is not HTTP/1.1"),
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "is its address http:// instead of https://?"),
    ],
)
def test_clients_read_words_and_no_names_of_classes(scheme: str, says: bytes, words: str) -> None:
    rude = Rude(says)
    rude.start()
    try:
        given = UpstreamSettings(url=f"{scheme}://127.0.0.1:{rude.port}", name="up")
        with serving(Settings(upstreams=[given])) as base:
            reply = respond(base, model="m")
    finally:
        rude.end()
    assert reply.error["message"].startswith("the upstream up can't be reached: ")
    assert reply.error["message"].endswith(words)
    assert reply.error["code"] == UpstreamError.UNREACHABLE


def test_a_name_that_nobody_has_is_said_in_words() -> None:
    given = UpstreamSettings(url="http://nothing.invalid", name="up")
    with serving(Settings(upstreams=[given])) as base:
        message = respond(base, model="m").error["message"]
    assert "gaierror" not in message
    assert "name" in message.removeprefix("the upstream up can't be reached: ").lower()


class HeldBody:
    """The body of an answer that does not arrive by itself."""

    def start(self, sink: Sink) -> None:
        self.sink = sink

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@pytest.mark.parametrize("steps", range(5))
async def test_a_cancellation_while_a_refusal_arrives_is_not_lost(steps: int) -> None:
    upstream: Any = HttpUpstream("up", "http://127.0.0.1:9/v1", CHAT, Timeouts())
    body, request = HeldBody(), SimpleNamespace(clean=str, client_key=None)
    response = SimpleNamespace(status=503, headers={}, content=body)
    reading = asyncio.create_task(upstream._read_json_body(response, "application/json", request))
    while not hasattr(body, "sink"):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    body.sink.feed(b"{}")
    body.sink.end(None)
    for _ in range(steps):
        await asyncio.sleep(0)
    was_cancelled = reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled() == was_cancelled


CODEX = {"user-agent": "codex_exec/0.169.0"}


@pytest.mark.parametrize("headers", [{}, CODEX])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "Hi", "stream": True}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}),
        ("/v1beta/models/key:streamGenerateContent", {"contents": [{"parts": [{"text": "Hi"}]}]}),
        ("/v1/completions", {"prompt": "Hi"}),
    ],
)
def test_a_refused_key_of_ours_has_a_status_that_no_client_repeats(
    path: str, body: dict[str, Any], headers: dict[str, str], bridged: str
) -> None:
    """Codex repeats any but 400 and 429, Gemini CLI and the SDKs 429 and 5xx."""
    reply = call(bridged, "POST", path, {"model": "key", **body}, headers)
    assert (reply.status, reply.headers["x-should-retry"]) == (400, "false")
    assert "does not accept this server's key" in reply.body.decode()


# ── in whatever form an upstream refuses ──────────────────────────────────────────────────────────────────

WORDS = "the tide is out"


def wrapped(value: Any, forms: list[str]) -> Any:
    for form in forms:
        if form == "raw":
            value = {"error": {"message": "no", "metadata": {"raw": json.dumps(value)}}}
        elif form == "text":
            value = {"message": json.dumps(value)}
        elif form == "list":
            value = {"errors": [value]}
        elif form == "fields":
            value = {"detail": [{"loc": ["body", "n"], "msg": json.dumps(value)}]}
        elif form == "status":
            value = {"base_resp": {"status_code": 1, "status_msg": json.dumps(value)}}
        else:
            value = {form: value}
    return value


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["error", "detail", "message", "raw", "text", "list", "fields", "status"]), max_size=3
    ),
    st.sampled_from([200, 302, 400, 401, 403, 404, 413, 422, 429, 500, 503]),
    st.sampled_from(["", "data: ", "error: "]),
    st.text(max_size=40),
)
def test_the_words_come_through_masked_and_bounded_in_whatever_form(
    forms: list[str], status: int, field: str, more: str
) -> None:
    secret = "sk-0123456789abcdef"
    payload = {"error": {"message": f"{WORDS} {secret} {more}", "code": secret, "type": "t", "param": secret}}
    body = f"{field}{json.dumps(wrapped(payload, forms))}\n\n".encode()

    def clean(text: str) -> str:
        return text.replace(secret, "***")

    for ours in ("", "not ours"):
        if status == 200:
            failure = in_band_refusal(body, clean, ours)
            if failure is None and field:
                return  # a frame of a stream, whose message may be an answer's
            assert failure is not None
        else:
            failure = refused_with(status, {}, body, clean, ours)
        shown = json.dumps([failure.message, failure.code, failure.param, failure.error_type, failure.said])
        assert secret not in shown
        assert WORDS in failure.message or failure.message == ours
        assert len(failure.message) <= 2000
        assert 400 <= failure.http_status <= 599


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([400, 401, 403, 404, 429, 500]))
def test_a_body_of_any_bytes_is_a_refusal(body: bytes, status: int) -> None:
    failure = refused_with(status, {"content-type": "text/plain"}, body)
    assert failure.http_status == status
    assert failure.message
