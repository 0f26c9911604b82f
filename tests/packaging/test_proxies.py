"""Real proxies, with the files of docs/deploy, in front of the server: the traffic that they pass, and that
no request or answer is mixed with that of another client."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from openresponses_server.settings import Settings
from openresponses_server.settings.files import hashed
from tests.support.debian_proxies import PROXIES, proxied
from tests.support.raw_sockets import HANDSHAKE, raw_connection
from tests.support.serving import call, serving
from tests.support.smuggling import OPEN, STOLEN, WHOLE, shapes
from tests.support.sockets import opened_socket

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(600)]
ATTACKER, VICTIM = "a key of an attacker", "a key of a victim"
VICTIMS = 3  # requests with the other key after each of the attacker's
AUTHORIZATION = {"authorization": f"Bearer {VICTIM}"}


def head_at(listener: socket.socket) -> bytes:
    """The head of the first request on the next connection that sends one; the request is answered."""
    head = b""
    while not head:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(10)
            while b"\r\n\r\n" not in head and (more := connection.recv(4096)):
                head += more
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    return head


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(Settings(api_keys=[hashed(ATTACKER), hashed(VICTIM)])) as base:
        yield base


@pytest.fixture(scope="module", params=PROXIES)
def proxy(
    request: pytest.FixtureRequest, server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with proxied(request.param, server, tmp_path_factory.mktemp(request.param)) as base:
        yield base


@pytest.mark.parametrize("hidden", [WHOLE, OPEN], ids=["whole", "open"])
def test_no_answer_reaches_another_connections_request(proxy: str, hidden: bytes) -> None:
    """With two keys: bytes that an attacker's request left on a connection to the server meet the victim's
    request."""
    number = 0
    for shape in shapes(hidden, ATTACKER):
        with raw_connection(proxy) as attacker:
            attacker.send(shape.head)
            attacker.send(shape.body)
            got = attacker.read(until=b"\r\n\r\n", seconds=0.3)
            for _ in range(VICTIMS):
                number += 1
                reply = call(proxy, "GET", f"/v1/models/victim-{number}", headers=AUTHORIZATION)
                assert reply.status == 404, (shape.name, reply)
                assert f"'victim-{number}'" in reply.error["message"], (shape.name, reply)
            got += attacker.read(until=STOLEN.encode(), seconds=0.01)
        assert b"victim" not in got, shape.name


def test_a_websocket_passes_and_what_asks_for_h2c_is_answered(proxy: str) -> None:
    with opened_socket(proxy, AUTHORIZATION) as opened:
        assert opened.turn(input="Hello").final["status"] == "completed"
    body = {"model": "demo", "input": "Hello"}
    h2c = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABkAAQAAP__"}
    for _ in range(3):
        reply = call(proxy, "POST", "/v1/responses/input_tokens", body, AUTHORIZATION | h2c)
        assert (reply.status, reply.json["object"]) == (200, "response.input_tokens")


@pytest.mark.parametrize("name", [name for name in PROXIES if name != "ingress"])
def test_no_protocol_but_websocket_is_asked_for(name: str, tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        proxied(name, f"http://127.0.0.1:{listener.getsockname()[1]}", tmp_path) as base,
    ):
        listener.settimeout(10)
        for upgrade, passes in (("h2c", False), ("x", False), ("websocketx", False), ("WebSocket", True)):
            with raw_connection(base) as client:
                client.send(HANDSHAKE.replace(b"websocket", upgrade.encode()) + b"\r\n")
                head = head_at(listener).lower()
            assert (b"\r\nupgrade: websocket\r\n" in head) == passes, (upgrade, head)
            assert head.count(b"\r\nupgrade:") == passes, (upgrade, head)


def test_what_a_proxy_adds_keeps_nobody_out(proxy: str) -> None:
    assert call(proxy, "GET", "/healthz").status == 200
    assert call(proxy, "GET", "/metrics").status == 404


@pytest.mark.parametrize("name", [name for name in PROXIES if name != "ingress"])
@pytest.mark.parametrize("path", ["/v1/routes", "/v1/%72outes", "/%6detrics"])
def test_what_operators_read_is_not_read_through_a_proxy(
    name: str, path: str, server: str, tmp_path: Path
) -> None:
    assert call(server, "GET", path, headers=AUTHORIZATION).status == 200
    with proxied(name, server, tmp_path) as base:
        assert call(base, "GET", path, headers=AUTHORIZATION).status in (403, 404)
