"""Where a request ends is the same to every reader of its head: nothing in a body becomes a request."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pytest

from openresponses_server.http.connection import HttpConnection
from openresponses_server.settings import Settings
from openresponses_server.settings.files import hashed
from tests.support.raw_sockets import HANDSHAKE, answer, raw_connection, request
from tests.support.serving import serving
from tests.support.smuggling import OPEN, STOLEN, WHOLE, shapes

OWN = request("/v1/models/own", method="GET")
BODY = json.dumps({"model": "demo", "input": "Hello"}).encode()
SIZED = (f"Content-Length: {len(BODY)}", "Content-Type: application/json")
UPGRADES = [
    ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
    ("Connection: upgrade", "Upgrade: x"),
    ("Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
]
# no length and no chunks by these names: what follows the head is the next request, to every reader
NEXT = {
    "a length with an underscore",
    "chunks with an underscore",
    "chunks with an underscore in HTTP/1.0",
    "a length, and chunks with an underscore",
    "chunks with a length in the trailers",
}


class Splitting(NamedTuple):
    """How the server reads what came at once: in these parts."""

    name: str
    parts: Callable[[bytes], Iterable[bytes]]


SPLITTINGS = [
    Splitting("at once", lambda data: [data]),
    Splitting("behind blank lines", lambda data: re.split(rb"(?<=\r\n\r\n)", data)),
    Splitting("byte by byte", lambda data: (data[at : at + 1] for at in range(len(data)))),
]


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with serving(Settings()) as url:
        yield url


@pytest.fixture(params=SPLITTINGS, ids=[each.name for each in SPLITTINGS])
def split(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    received = HttpConnection.data_received

    def in_parts(connection: HttpConnection, data: bytes) -> None:
        transport: Any = connection.transport
        for part in filter(None, request.param.parts(data)):
            if transport.is_closing():
                return
            if (now := transport.get_protocol()) is connection:
                received(connection, part)
            else:  # a socket was opened
                now.data_received(part)

    monkeypatch.setattr(HttpConnection, "data_received", in_parts)


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("hidden", [WHOLE, OPEN], ids=["whole", "open"])
def test_what_a_body_hides_is_no_request(base: str, hidden: bytes) -> None:
    for shape in shapes(hidden):
        if shape.name not in NEXT:
            with raw_connection(base) as client:
                client.send(shape.data + OWN)
                got = client.read(until=b"'own'")
            assert STOLEN.encode() not in got, shape.name
            assert got.replace(b" 100 Continue", b"").count(b"HTTP/1.1 ") <= 3, shape.name


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("upgrade", UPGRADES, ids=["h2c", "x", "websocket"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_post_that_asks_for_an_upgrade_is_answered_without_it(
    base: str, upgrade: tuple[str, ...], chunked: bool
) -> None:
    """As Java's HttpClient asks for h2c with each request by default."""
    if chunked:
        framing, body = (SIZED[1], "Transfer-Encoding: chunked"), b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    else:
        framing, body = SIZED, BODY
    with raw_connection(base) as client:
        client.send(request("/v1/responses/input_tokens", None, *upgrade, *framing) + body + OWN)
        got = client.read()
    status, content = answer(got)
    assert (status, content["object"]) == (200, "response.input_tokens")
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"\r\nconnection: close\r\n" in got


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("sent", [HANDSHAKE.replace(b"/v1/responses", b"/healthz") + b"\r\n"])
def test_a_handshake_where_there_is_no_socket_is_answered_as_a_request(base: str, sent: bytes) -> None:
    with raw_connection(base) as client:
        client.send(sent + OWN)
        got = client.read()
    assert answer(got)[0] == 200
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"\r\nconnection: close\r\n" in got


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize(
    "sent",
    [
        HANDSHAKE + b"Content-Length: 2\r\n\r\n{}",
        HANDSHAKE + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        HANDSHAKE.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n",
        HANDSHAKE + b"Upgrade: h2c\r\n\r\n",
    ],
    ids=["sized", "chunked", "HTTP/1.0", "two protocols"],
)
def test_what_is_not_quite_a_handshake_opens_no_socket(base: str, sent: bytes) -> None:
    with raw_connection(base) as client:
        client.send(sent + OWN)
        got = client.read()
    assert answer(got)[0] == 426
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"\r\nconnection: close\r\n" in got


def test_what_is_sent_behind_a_handshake_before_its_answer_is_refused(base: str) -> None:
    with raw_connection(base) as client:
        client.send(HANDSHAKE + b"\r\n" + OWN)
        got = client.read()
    assert answer(got)[0] == 400
    assert got.count(b"HTTP/1.1 ") == 1


def test_a_refused_handshake_is_the_last_request_of_its_connection() -> None:
    with serving(Settings(api_keys=[hashed("one")])) as keyed, raw_connection(keyed) as client:
        client.send(HANDSHAKE + b"\r\n")
        head = client.read(until=b"\r\n\r\n").lower()
        assert b" 401 " in head
        assert b"\r\nconnection: close\r\n" in head
        client.send(OWN)
        assert client.read(until=b"'own'").count(b"HTTP/1.1 ") == 0


@pytest.mark.usefixtures("split")
def test_an_answer_before_what_expects_a_100_is_the_last(base: str) -> None:
    """Its client may send the body still, or the next request in its place."""
    with raw_connection(base) as client:
        client.send(request("/nowhere", None, "Content-Length: 9", "Expect: 100-continue") + OWN)
        got = client.read()
    assert answer(got)[0] == 404
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"\r\nconnection: close\r\n" in got


def test_a_body_that_expects_a_100_is_taken_and_the_connection_goes_on(base: str) -> None:
    with raw_connection(base) as client:
        client.send(request("/v1/responses/input_tokens", None, *SIZED, "Expect: 100-continue"))
        assert b" 100 " in client.read(until=b"\r\n\r\n")
        client.send(BODY + OWN)
        got = client.read(until=b"'own'")
    assert (answer(got)[0], got.count(b"HTTP/1.1 ")) == (200, 2)


def test_http_1_0_knows_no_100(base: str) -> None:
    head = request("/v1/responses/input_tokens", None, *SIZED, "Expect: 100-continue")
    with raw_connection(base) as client:
        client.send(head.replace(b"HTTP/1.1", b"HTTP/1.0") + BODY)
        assert answer(client.read())[0] == 200


@pytest.mark.parametrize("method", ["/healthz", "*", "localhost:80"])
def test_a_tunnel_is_refused(base: str, method: str) -> None:
    with raw_connection(base) as client:
        client.send(request(method, method="CONNECT") + OWN)
        got = client.read()
    assert answer(got)[0] in (400, 404, 405)
    assert got.count(b"HTTP/1.1 ") == 1


# ── the target ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://other/healthz", "localhost", 403),
        ("http://other:80/healthz", "localhost", 403),
        ("http://localhost/healthz", "other", 200),
        ("http://[::1]:80/healthz", "other", 200),
        ("http://localhost/v1/models?a=b", "other", 200),
        ("http://localhost", "localhost", 404),
        ("http://localhost?a", "localhost", 404),
        ("http://localhost@other/healthz", "localhost", 400),
        ("http://other@localhost/healthz", "localhost", 400),
        ("http:///healthz", "localhost", 400),
        ("localhost", "localhost", 400),
    ],
)
def test_the_authority_of_a_target_counts_and_not_the_host_field(
    base: str, target: str, host: str, status: int
) -> None:
    with raw_connection(base) as client:
        client.send(request(target, method="GET").replace(b"Host: localhost", b"Host: " + host.encode()))
        status_line = client.read(until=b"\r\n\r\n")
    assert int(status_line.split(b" ", 2)[1]) == status


def test_the_authority_of_a_handshake_s_target_counts(base: str) -> None:
    for authority, status in ((b"localhost", b" 101 "), (b"other", b" 403 ")):
        with raw_connection(base) as client:
            client.send(HANDSHAKE.replace(b"/v1", b"http://" + authority + b"/v1") + b"\r\n")
            assert status in client.read(until=b"\r\n\r\n")


def test_a_request_without_a_host_is_refused(base: str) -> None:
    with raw_connection(base) as client:
        client.send(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert answer(client.read(until=b"}}"))[1]["error"]["code"] == "invalid_host"


def test_different_keys_in_one_header_are_refused() -> None:
    keys = ["alice", "bob"]
    with serving(Settings(api_keys=[hashed(key) for key in keys])) as base:
        for header in ("Authorization: Bearer ", "x-api-key: ", "x-goog-api-key: ", "api-key: "):
            for pair, status in ((keys, 401), (keys[:1] * 2, 200)):
                fields = [*(header + key for key in pair), "Connection: close"]
                with raw_connection(base) as client:
                    client.send(request("/v1/models", None, *fields, method="GET"))
                    assert answer(client.read())[0] == status


def test_two_hosts_are_refused_whatever_the_target_says(base: str) -> None:
    with raw_connection(base) as client:
        client.send(request("http://localhost/healthz", None, "Host: localhost", method="GET"))
        assert answer(client.read(until=b"}}"))[1]["error"]["code"] == "invalid_host"
