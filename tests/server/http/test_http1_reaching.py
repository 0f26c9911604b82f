"""How an upstream is reached: by name or number, over TLS, and what is said when it is not."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from openresponses_server.errors import UpstreamError
from openresponses_server.http.client.pool import tls_context
from openresponses_server.http.flow import BodyReader
from openresponses_server.upstreams.base import UpstreamRequest
from openresponses_server.upstreams.dialects import CHAT
from openresponses_server.upstreams.http import HttpUpstream
from tests.support.serving import PATIENT
from tests.support.upstream import text

ANSWER = b"".join(step for step in text("Hi") if isinstance(step, bytes))
REFUSED = {"Connection refused"}
UNKNOWN = {
    "Name or service not known",
    "Temporary failure in name resolution",
}  # the second without a network
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `localhost` and 127.0.0.1, its own authority, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return path


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch, certificate: Path) -> Iterator[None]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls_context.cache_clear()
    yield
    tls_context.cache_clear()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(ANSWER) + ANSWER)
        await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass  # the handshake was refused
    finally:
        writer.close()


async def _asked(url: str) -> bytes:
    upstream = HttpUpstream("m", url, CHAT, PATIENT)
    try:
        async with upstream.open(UpstreamRequest("/chat/completions", b"{}", "r")) as reply:
            reader = BodyReader(reply)
            pieces = []
            while piece := await reader.read():
                pieces.append(piece)
            return b"".join(pieces)
    finally:
        await upstream.close()


def _run(loop: str, certificate: Path | None, use: Callable[[int], Awaitable[Any]]) -> Any:
    async def over() -> Any:
        tls = None
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
        server = await asyncio.start_server(_answer, "127.0.0.1", 0, ssl=tls)
        try:
            return await use(server.sockets[0].getsockname()[1])
        finally:
            server.close()
            await asyncio.sleep(0.05)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(over())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.usefixtures("trusted")
def test_an_upstream_is_asked_over_tls(loop: str, host: str, certificate: Path) -> None:
    assert _run(loop, certificate, lambda port: _asked(f"https://{host}:{port}/v1")) == ANSWER


@pytest.mark.parametrize("loop", LOOPS)
def test_a_certificate_that_nobody_vouches_for_is_not_accepted(loop: str, certificate: Path) -> None:
    with pytest.raises(UpstreamError) as refused:
        _run(loop, certificate, lambda port: _asked(f"https://localhost:{port}/v1"))
    assert refused.value.cause.startswith("its certificate is not accepted: self-signed certificate")


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.usefixtures("trusted")
def test_a_certificate_for_another_name_is_not_accepted(
    loop: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openresponses_server.http.client.pool.Connector._look_up", _at_home)
    with pytest.raises(UpstreamError) as refused:
        _run(loop, certificate, lambda port: _asked(f"https://elsewhere.example:{port}/v1"))
    assert "its certificate is not accepted: Hostname mismatch" in refused.value.cause


async def _at_home(_reaching: object, _host: str, port: int) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_name_s_next_address_is_tried_when_one_refuses(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(_reaching: object, _host: str, port: int) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.9", port)),
            *await _at_home(None, "", port),
        ]

    monkeypatch.setattr("openresponses_server.http.client.pool.Connector._look_up", look_up)
    assert _run(loop, None, lambda port: _asked(f"http://two.example:{port}/v1")) == ANSWER


@pytest.mark.parametrize("loop", LOOPS)
def test_a_name_is_looked_up_once_for_all_who_ask(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    async def look_up(_reaching: object, host: str, port: int) -> list[Any]:
        looked.append(host)
        await asyncio.sleep(0.05)
        return await _at_home(None, "", port)

    async def ask(port: int) -> list[bytes]:
        upstream = HttpUpstream("m", f"http://one.example:{port}/v1", CHAT, PATIENT)

        async def once() -> bytes:
            async with upstream.open(UpstreamRequest("/chat/completions", b"{}", "r")) as reply:
                reader = BodyReader(reply)
                return await reader.read()

        try:
            return await asyncio.gather(*(once() for _ in range(5)))
        finally:
            await upstream.close()

    monkeypatch.setattr("openresponses_server.http.client.pool.Connector._look_up", look_up)
    assert _run(loop, None, ask) == [ANSWER] * 5
    assert looked == ["one.example"]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("url", "causes"),
    [
        ("http://127.0.0.1:9/v1", REFUSED),
        ("http://localhost:9/v1", REFUSED),
        ("http://nothing.invalid/v1", UNKNOWN),
    ],
)
def test_what_is_not_reached_says_why(loop: str, url: str, causes: set[str]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner, pytest.raises(UpstreamError) as refused:
        runner.run(_asked(url))
    assert refused.value.code == "upstream_unreachable"
    assert refused.value.cause in causes
