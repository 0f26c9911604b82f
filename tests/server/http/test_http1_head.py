"""The head of a request to an upstream."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from openresponses_server.http.client.connection import request_head, request_target_of
from openresponses_server.http.client.failures import LocalProtocolError


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nx: y", "a\rb", "a\0b"])
def test_a_header_can_t_begin_another_one(value: str) -> None:
    with pytest.raises(LocalProtocolError):
        request_head("POST", request_target_of("http://h/"), {"authorization": value}, 0)
    with pytest.raises(LocalProtocolError):
        request_head("POST", request_target_of("http://h/"), {value: "x"}, 0)


@pytest.mark.parametrize(
    ("url", "line", "host"),
    [
        ("http://h", "/", "h"),
        ("http://H:80/v1/a b", "/v1/a%20b", "h"),
        ("https://h:8443/v1%2Fä\r\n", "/v1%2F%C3%A4", "h:8443"),
        ("http://[::1]:99/x?y=1", "/x?y=1", "[::1]:99"),
        ("http://bücher.example/", "/", "xn--bcher-kva.example"),
    ],
)
def test_an_address_is_written_as_http_wants_it(url: str, line: str, host: str) -> None:
    head = request_head("GET", request_target_of(url), {}, 0).decode("ascii").split("\r\n")
    assert head[0] == f"GET {line} HTTP/1.1"
    assert head[1] == f"host: {host}"


def test_a_user_in_the_address_is_shown_to_the_server() -> None:
    assert ("authorization", "Basic dTpwOnc=") in request_target_of("http://u:p%3Aw@h/").headers


@pytest.mark.parametrize(
    "url", ["h", "ftp://h/", "http://", "http://h:99999/", "http://[::1/", "http://a..b\udcff/"]
)
def test_what_is_no_address_can_t_be_asked(url: str) -> None:
    with pytest.raises(LocalProtocolError):
        request_target_of(url)


def test_headers_of_the_settings_replace_our_own() -> None:
    headers = {"User-Agent": "me", "Accept-Encoding": "gzip", "Host": "virtual", "Authorization": "Bearer k"}
    lines = request_head("POST", request_target_of("http://u:p@h/v1"), headers, 3).decode().split("\r\n")
    assert lines == [
        "POST /v1 HTTP/1.1",
        "content-length: 3",
        *(f"{name}: {value}" for name, value in headers.items()),
        "",
        "",
    ]


def test_what_an_upstream_sees_of_a_request_without_headers() -> None:
    own = f"host: h:8080\r\nuser-agent: openresponses-bridge/{version('openresponses-bridge')}\r\n"
    head = request_head("GET", request_target_of("http://h:8080/v1/models"), {}, 0)
    assert head.decode() == f"GET /v1/models HTTP/1.1\r\n{own}accept-encoding: identity\r\n\r\n"
