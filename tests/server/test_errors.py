"""Every refused request has its status, type, code and param, in one shape."""

import http.client
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.serving import call, respond
from tests.support.upstream import ScriptedUpstream

INVALID = "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b"nonsense", "invalid_json", None),
        (b"\xff\xfe", "invalid_json", None),
        (b"[]", "invalid_json", None),
        (b'"text"', "invalid_json", None),
        (b'{"model": "demo", "input": NaN}', "invalid_json", None),
        (b"[" * 100_000, "invalid_json", None),
        ({"model": 7}, "invalid_value", "model"),
        ({"model": "demo", "input": 7}, "invalid_value", "input"),
        ({"model": "demo", "input": [7]}, "invalid_value", "input[0]"),
        ({"model": "demo", "input": [{"role": "user"}]}, "invalid_value", "input[0].content"),
        ({"model": "demo", "input": [{"role": "wizard", "content": "x"}]}, "invalid_value", "input[0].role"),
        ({"model": "demo", "stream": "yes"}, "invalid_value", "stream"),
        ({"model": "demo", "temperature": "hot"}, "invalid_value", "temperature"),
        ({"model": "demo", "max_output_tokens": 1}, "invalid_value", "max_output_tokens"),
        ({"model": "demo", "tools": [{"type": "function"}]}, "invalid_value", "tools[0].name"),
        ({"model": "demo", "tool_choice": "perhaps"}, "invalid_value", "tool_choice"),
        ({"model": "demo", "metadata": {"a": 1}}, "invalid_value", "metadata[...]"),
        (
            {"model": "demo", "input": "x", "background": True, "store": False},
            "invalid_value",
            "background",
        ),
        ({"input": "x"}, "missing_required_parameter", "model"),
        (
            {"model": "demo", "input": "x", "previous_response_id": "resp_unknown"},
            "previous_response_not_found",
            "previous_response_id",
        ),
    ],
    ids=str,
)
def test_malformed_request_is_400_with_param(demo: str, body: Any, code: str, param: str | None) -> None:
    reply = call(demo, "POST", "/v1/responses", body)
    assert reply.status == 400
    assert reply.headers["content-type"] == "application/json"
    assert "x-request-id" in reply.headers
    error = reply.error
    assert set(error) == {"type", "code", "message", "param"}
    assert (error["type"], error["code"]) == (INVALID, code)
    assert error["param"] == param
    assert error["message"]


def test_unknown_model_is_404(demo: str) -> None:
    reply = respond(demo, model="gpt-unheard-of")
    assert reply.status == 404
    assert reply.error["type"] == INVALID
    assert reply.error["code"] == "model_not_found"
    assert reply.error["param"] == "model"
    assert call(demo, "GET", "/v1/models/gpt-unheard-of").error["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
        ("PUT", "/v1/responses", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("PATCH", "/v1/responses/resp_1", 405, "method_not_allowed"),
        ("GET", "/v1/responses/resp_unknown", 404, "response_not_found"),
        ("GET", "/v1/responses/resp_unknown?stream=true", 404, "response_not_found"),
        ("DELETE", "/v1/responses/resp_unknown", 404, "response_not_found"),
    ],
)
def test_paths_and_methods_that_are_not_served(
    demo: str, method: str, path: str, status: int, code: str
) -> None:
    reply = call(demo, method, path)
    assert reply.status == status
    assert reply.error["code"] == code
    if status == 405:
        assert reply.headers["allow"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_wrong_content_type_is_415(demo: str, kind: str) -> None:
    reply = call(demo, "POST", "/v1/responses", b'{"model": "demo"}', {"content-type": kind})
    assert reply.status == 415
    assert reply.error["code"] == "unsupported_media_type"


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.api+json"])
def test_kinds_of_json_are_accepted(demo: str, kind: str) -> None:
    assert (
        call(demo, "POST", "/v1/responses", b'{"model": "demo", "input": "x"}', {"content-type": kind}).status
        == 200
    )


def test_s8_body_too_large_is_413_by_its_length_and_by_its_bytes(bridged: str) -> None:
    big = b'{"model": "demo", "input": "' + b"x" * 120_000 + b'"}'
    sent = call(bridged, "POST", "/v1/responses", big)
    assert (sent.status, sent.error["code"]) == (413, "request_too_large")
    address = urlsplit(bridged)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    connection.request(
        "POST",
        "/v1/responses",
        iter([big[:50_000], big[50_000:]]),
        {"content-type": "application/json"},
        encode_chunked=True,
    )
    assert connection.getresponse().status == 413
    connection.close()


def test_internal_error_is_500_without_a_traceback(
    bridged: str, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr("openresponses_server.api.responses.decode_request", broken)
    reply = respond(bridged, model="x")
    assert reply.status == 500
    assert reply.error == {
        "type": "server_error",
        "code": "internal_error",
        "message": "The server failed.",
        "param": None,
    }
    assert "x-request-id" in reply.headers


def test_answers_and_errors_to_anthropics_clients_carry_the_id_they_read(demo: str) -> None:
    turn = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}
    for body in ({**turn, "model": "demo"}, {**turn, "model": "nobody"}, b"{"):
        reply = call(demo, "POST", "/v1/messages", body)
        assert reply.headers["request-id"] == reply.headers["x-request-id"]
    assert "request-id" not in call(demo, "GET", "/v1/models").headers
