"""What stands between us and an upstream: proxies, authorities of one's own, client certificates, sockets;
and which of them is named when it fails."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from structlog.testing import capture_logs

from openresponses_bridge.seal import Sealer
from openresponses_server.errors import UpstreamError
from openresponses_server.http.client.body import FairScheduler
from openresponses_server.http.client.connect_options import (
    ConnectOptions,
    ConnectOptionsError,
    TlsOptions,
    tls_context,
)
from openresponses_server.http.client.connection import ClientConnection, request_target_of
from openresponses_server.http.client.failures import ConnectionLost
from openresponses_server.http.client.proxies import NoProxyList, Proxy, environment_proxy
from openresponses_server.http.flow import BodyReader
from openresponses_server.settings import Settings, SettingsError, UpstreamSettings, load_settings
from openresponses_server.upstreams.base import UpstreamRequest
from openresponses_server.upstreams.targets import configured, secrets_of
from tests.support.certificates import Authority
from tests.support.listening import listening
from tests.support.scripted_proxy import ScriptedProxy
from tests.support.serving import PATIENT
from tests.support.upstream import text

ANSWER = b"".join(step for step in text("Hi") if isinstance(step, bytes))
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
PASSWORD = "pä:ss w/rd?#@!"
USER = f"me:{PASSWORD}"
QUOTED = "me:p%C3%A4%3Ass%20w%2Frd%3F%23%40%21"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*VARIABLES, "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    tls_context.cache_clear()
    yield
    tls_context.cache_clear()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Path:
    return authority.certificate("server")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "another authority")


def server_tls(certificate: Path, clients: Authority | None = None) -> ssl.SSLContext:
    """With `clients`, who has to vouch for those that ask."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    if clients is not None:
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(clients.file)
    return tls


class Model:
    """An upstream that answers; `heads` are those of its requests."""

    def __init__(self) -> None:
        self.heads: list[str] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            body = next(line for line in head.split("\r\n") if line.startswith("content-length:"))
            await reader.readexactly(int(body.partition(":")[2]))
            kind = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
            writer.write(kind % len(ANSWER) + ANSWER)
            await writer.drain()


async def ask(given: UpstreamSettings, times: int = 1) -> list[bytes]:
    upstream = configured(given, Settings(timeouts=PATIENT), Sealer(b"k" * 32)).upstream
    answers = []
    try:
        for _ in range(times):
            pieces = []
            async with upstream.open(UpstreamRequest("/chat/completions", b"{}", "r")) as reply:
                reader = BodyReader(reply)
                while piece := await reader.read():
                    pieces.append(piece)
            answers.append(b"".join(pieces))
    finally:
        await upstream.close()
    return answers


def run(
    loop: str,
    use: Callable[[int], Awaitable[Any]],
    tls: ssl.SSLContext | None = None,
    proxy: ScriptedProxy | None = None,
    model: Model | None = None,
    proxy_tls: ssl.SSLContext | None = None,
) -> Any:
    """What `use` gives over a model at this port of 127.0.0.1 and, by the name of `model.example`, behind the
    proxy."""

    async def over() -> Any:
        async with AsyncExitStack() as stack:
            port = await stack.enter_async_context(listening((model or Model()).handle, tls))
            if proxy is not None:
                names = ("model.example", "127.0.0.1", "localhost")
                proxy.hosts |= {f"{host}:{port}": port for host in names}
                await stack.enter_async_context(proxy.listening(proxy_tls))
            return await use(port)

    def quiet(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), OSError):  # the servers' side of a handshake that failed
            raise AssertionError(context)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.get_loop().set_exception_handler(quiet)
        return runner.run(over())


def failed(loop: str, *args: Any, **more: Any) -> UpstreamError:
    with pytest.raises(UpstreamError) as refused:
        run(loop, *args, **more)
    return refused.value


# ── proxies ────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_upstream_is_reached_through_a_proxy_that_asks_who_we_are(
    loop: str, scheme: str, authority: Authority, certificate: Path
) -> None:
    proxy, model = ScriptedProxy(user=USER), Model()

    def over(port: int) -> Awaitable[Any]:
        settings = UpstreamSettings(
            url=f"{scheme}://model.example:{port}/v1",
            proxy=f"http://{QUOTED}@127.0.0.1:{proxy.port}",
            ca_file=str(authority.file) if scheme == "https" else None,
        )
        return ask(settings, times=2)

    tls = server_tls(certificate) if scheme == "https" else None
    assert run(loop, over, tls, proxy, model) == [ANSWER] * 2
    assert len(proxy.passed) == 1, "the second request goes over the same connection"
    assert len(model.heads) == 2
    line = proxy.passed[0].split("\r\n")[0]
    assert line.startswith("CONNECT model.example:" if scheme == "https" else "POST http://model.example:")
    if scheme == "https":
        assert not any("proxy-authorization" in head for head in model.heads), "the tunnel's other end"


def test_a_proxy_may_speak_tls_itself(loop: str, authority: Authority, certificate: Path) -> None:
    proxy = ScriptedProxy(user=USER)

    def over(port: int) -> Awaitable[Any]:
        at = f"https://{QUOTED}@localhost:{proxy.port}"
        return ask(
            UpstreamSettings(url=f"https://model.example:{port}/v1", proxy=at, ca_file=str(authority.file))
        )

    tls = server_tls(certificate)
    assert run(loop, over, tls, proxy, proxy_tls=server_tls(certificate)) == [ANSWER]


@pytest.mark.parametrize(
    ("says", "user", "words", "permanent"),
    [
        (b"", "other:user", "the proxy does not accept the user and password", True),
        (b"HTTP/1.1 403 No\r\n\r\n", "", "the proxy refuses to connect to it (status 403)", True),
        (b"HTTP/1.1 503 Later\r\n\r\n", "", "the proxy refuses to connect to it (status 503)", False),
        (
            b"HTTP/1.1 100 Continue\r\n\r\n" * 3000 + b"HTTP/1.1 503 Later\r\n\r\n",
            "",
            "the proxy refuses to connect to it (status 503)",
            False,
        ),
        (b"SSH-2.0-x\r\n\r\n", "", "what answers at the proxy's address is not a proxy", True),
        (b"\x15\x03\x01\x00\x02\x02\x46", "", "what answers at the proxy's address is not a proxy", True),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 5000, "", "is not a proxy", True),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "", "is not a proxy", True),
        (b"HTTP/1.1 200 OK\r\n", "", "the proxy closed the connection before its answer", False),
    ],
)
def test_a_proxy_that_makes_no_tunnel_is_named_and_its_password_is_not(
    loop: str, says: bytes, user: str, words: str, permanent: bool, certificate: Path
) -> None:
    proxy = ScriptedProxy(user=user, says=says)
    with capture_logs() as logged:
        error = failed(
            loop,
            lambda port: ask(
                UpstreamSettings(
                    url=f"https://model.example:{port}/v1", proxy=f"http://{QUOTED}@127.0.0.1:{proxy.port}"
                )
            ),
            server_tls(certificate),
            proxy,
        )
    assert words in error.message
    assert str(proxy.port) in error.cause
    assert str(proxy.port) not in error.message, "where the operator's proxy is, is not the client's matter"
    assert (error.permanent, error.headers.get("x-should-retry") == "false") == (permanent, permanent)
    shown = json.dumps([error.message, error.cause, error.said, logged], ensure_ascii=False, default=str)
    assert not any(secret in shown for secret in (PASSWORD, QUOTED, *Proxy(f"http://{QUOTED}@h").secrets))


def test_a_proxy_that_asks_for_a_user_is_not_taken_for_an_upstream_that_does(loop: str) -> None:
    """The request itself goes to it: its answer comes where the upstream's would."""
    proxy = ScriptedProxy(user=USER)
    error = failed(
        loop,
        lambda port: ask(
            UpstreamSettings(url=f"http://model.example:{port}", proxy=f"http://127.0.0.1:{proxy.port}")
        ),
        proxy=proxy,
    )
    assert (error.http_status, error.code) == (502, "upstream_unreachable")
    assert error.message.endswith("the proxy asks for a user and password")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_not_there_is_said_to_be_it(loop: str, scheme: str) -> None:
    settings = UpstreamSettings(url=f"{scheme}://model.example/v1", proxy="http://127.0.0.1:9")
    error = failed(loop, lambda _: ask(settings))
    assert error.message.endswith("the proxy can't be reached")
    assert error.cause == "the proxy http://127.0.0.1:9 can't be reached: Connection refused"


def test_what_comes_through_a_tunnel_before_its_connection_is_made_ends_it(loop: str) -> None:
    """It may come together with the end of the handshake; nothing was asked yet."""

    class Transport(asyncio.Transport):
        aborted = False

        def abort(self) -> None:
            self.aborted = True

    async def over(_: int) -> bool:
        connection = ClientConnection(FairScheduler(), lambda _each: None, lambda _each: None)
        connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        connection.connection_made(transport := Transport())
        assert connection.is_closing
        with pytest.raises(ConnectionLost):
            await connection.request(b"", b"", 1)
        return transport.aborted

    assert run(loop, over) is True


ORIGINS = {
    "http": "http://model.example/v1",
    "https": "https://model.example:8443/v1",
    "name": "https://localhost/v1",
    "below": "http://a.localhost/v1",
    "v4": "http://127.0.0.1:11434/v1",
    "v6": "http://[::1]:11434/v1",
}


@pytest.mark.parametrize(
    ("given", "through"),
    [
        ({"HTTP_PROXY": "http://p:1"}, {"http": "p:1"}),
        ({"https_proxy": "http://p:1"}, {"https": "p:1"}),
        ({"ALL_PROXY": "p:1"}, {"http": "p:1", "https": "p:1"}),
        ({"ALL_PROXY": "p:1", "HTTPS_PROXY": "q:2"}, {"http": "p:1", "https": "q:2"}),
        ({"HTTPS_PROXY": "p:1", "https_proxy": "q:2"}, {"https": "q:2"}),
        ({"HTTPS_PROXY": "p:1", "https_proxy": ""}, {}),
        ({"HTTP_PROXY": "p:1", "REQUEST_METHOD": "GET"}, {}),  # a client's header `Proxy` under CGI
        ({"ALL_PROXY": "p:1", "NO_PROXY": "model.example:8443"}, {"http": "p:1"}),
        ({"ALL_PROXY": "p:1", "no_proxy": "other,.example"}, {}),
        ({"ALL_PROXY": "p:1", "NO_PROXY": "*"}, {}),
        ({}, {}),
    ],
)
def test_the_environment_names_proxies_and_never_for_this_machine(
    given: dict[str, str], through: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    proxies = {name: environment_proxy(request_target_of(url).origin) for name, url in ORIGINS.items()}
    assert {name: proxy.address for name, proxy in proxies.items() if proxy} == {
        name: f"http://{at}" for name, at in through.items()
    }
    for url in ORIGINS.values():
        assert ConnectOptions(proxy="none").proxy_of(request_target_of(url).origin) is None
        named = ConnectOptions(proxy="http://mine:3").proxy_of(request_target_of(url).origin)
        assert named is not None, "one that is asked for by name counts for this machine too"


@pytest.mark.parametrize(
    ("listed", "url", "excepted"),
    [
        ("example.com", "http://example.com", True),
        ("example.com", "http://api.example.com", True),
        (".example.com", "http://api.example.com", True),
        ("*.example.com", "http://api.example.com", True),
        ("EXAMPLE.com.", "http://API.Example.COM./", True),
        ("example.com", "http://notexample.com", False),
        ("example.com", "http://example.com.evil.org", False),
        ("example.com:8443", "https://example.com:8443", True),
        ("example.com:8443", "https://example.com", False),
        ("example.com:443", "https://example.com", True),
        ("bücher.example", "http://xn--bcher-kva.example", True),
        ("10.0.0.0/8", "http://10.200.3.4", True),
        ("10.0.0.1/8", "http://10.200.3.4", True),
        ("10.0.0.0/8", "http://11.0.0.1", False),
        ("10.0.0.0/8", "http://10.example.com", False),
        ("10.1.2.3", "http://10.1.2.3:99", True),
        ("10.1.2.3:98", "http://10.1.2.3:99", False),
        ("fd00::/8", "http://[fd00::1]:99", True),
        ("[fd00::1]:99", "http://[fd00::1]:99", True),
        ("[fd00::1]:98", "http://[fd00::1]:99", False),
        ("10.0.0.0/8", "http://[::ffff:10.0.0.1]", True),
        ("a b\tc,,x.example", "http://x.example", True),
        ("*", "http://x.example", True),
        ("x*", "http://xy", False),
        (":80,[,::::,a..b\udcff", "http://x.example", False),
        ("", "http://x.example", False),
    ],
)
def test_no_proxy_excepts_names_addresses_and_networks(listed: str, url: str, excepted: bool) -> None:
    assert NoProxyList(listed).has(request_target_of(url).origin) is excepted


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"])
@pytest.mark.parametrize(
    "value", ["socks5://me:s3cr3t@h:1", "http://me:s3cr3t#x@h:1", "http://me:s3cr3t", "http://me:s3cr3t@h/x"]
)
def test_a_proxy_that_can_t_be_used_is_refused_at_the_start_without_its_password(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To go past it would send to the net what is to go through it."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as refused:
        configured(UpstreamSettings(url="https://model.example"), Settings(), Sealer(b"k" * 32))
    assert variable in str(refused.value)
    assert "s3cr3t" not in str(refused.value)
    configured(UpstreamSettings(url="https://localhost"), Settings(), Sealer(b"k" * 32))
    with pytest.raises(SettingsError) as refused:
        configured(UpstreamSettings(url="https://localhost", proxy=value), Settings(), Sealer(b"k" * 32))
    assert "s3cr3t" not in str(refused.value)
    assert refused.value.at == ".proxy"


def test_no_settings_object_holds_a_proxy_s_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to worker processes, and is printed."""
    monkeypatch.setenv("PROXY_PASSWORD", "s3cr3t-s3cr3t-s3cr3t")
    config = tmp_path / "c.toml"
    config.write_text('[[upstreams]]\nurl = "https://m.example"\nproxy = "http://me:${PROXY_PASSWORD}@p:1"\n')
    settings = load_settings(config)
    assert "s3cr3t" not in repr(settings)
    assert "s3cr3t-s3cr3t-s3cr3t" in secrets_of(settings), "so that traces are cleaned of it"
    assert "s3cr3t" not in repr(Proxy("http://me:s3cr3t@h"))


# ── certificates ───────────────────────────────────────────────────────────────────────────────────────
def test_an_authority_of_one_s_own_is_trusted_instead_of_the_others(
    loop: str, authority: Authority, stranger: Authority, certificate: Path
) -> None:
    def at(port: int, file: Path | None) -> UpstreamSettings:
        return UpstreamSettings(
            url=f"https://localhost:{port}/v1", ca_file=None if file is None else str(file)
        )

    tls = server_tls(certificate)
    assert run(loop, lambda port: ask(at(port, authority.file)), tls) == [ANSWER]
    for file, named in ((stranger.file, str(stranger.file)), (None, "ca_file names others")):
        error = failed(loop, lambda port, file=file: ask(at(port, file)), tls)
        assert error.message.endswith("its certificate is not accepted")
        assert error.cause.startswith("its certificate is not accepted: ")
        assert named in error.cause
        assert "pem" not in error.message
        assert error.headers["x-should-retry"] == "false"


def test_ssl_cert_file_is_named_where_it_does_not_help(
    loop: str,
    authority: Authority,
    stranger: Authority,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    tls = server_tls(certificate)

    def over(port: int) -> Awaitable[Any]:
        return ask(UpstreamSettings(url=f"https://localhost:{port}/v1"))

    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    assert run(loop, over, tls) == [ANSWER]
    for file, state in ((stranger.file, "(SSL_CERT_FILE)"), (tmp_path / "gone", "which can't be read")):
        tls_context.cache_clear()
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        error = failed(loop, over, tls)
        assert str(file) in error.cause
        assert state in error.cause


@pytest.mark.skipif(ssl.OPENSSL_VERSION_INFO < (3,), reason="other words")
def test_the_system_s_own_store_is_asked_where_that_is_wanted(loop: str, certificate: Path) -> None:
    pytest.importorskip("truststore")
    options: dict[str, Any] = {"verify": "system"}
    error = failed(
        loop,
        lambda port: ask(UpstreamSettings(url=f"https://localhost:{port}/v1", **options)),
        server_tls(certificate),
    )
    assert "the trusted authorities are those of the system" in error.cause


def test_a_certificate_that_is_not_checked_is_warned_of(loop: str, certificate: Path) -> None:
    with capture_logs() as logged:
        assert run(
            loop,
            lambda port: ask(
                UpstreamSettings(url=f"https://127.0.0.1:{port}/v1", name="lax", verify=False), times=2
            ),
            server_tls(certificate),
        ) == [ANSWER, ANSWER]
    warned = [line for line in logged if line["event"] == "upstream.certificate_not_verified"]
    assert [(line["upstream"], line["log_level"]) for line in warned] == [("lax", "warning")]


class Asking(threading.Thread):
    """A server that asks for a client's certificate and says why it refuses one: asyncio's servers close
    before their alert has gone out."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(daemon=True)
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._is_over = False

    def __enter__(self) -> Asking:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        socket.create_connection(("127.0.0.1", self.port)).close()
        self.join()
        self._listener.close()

    def run(self) -> None:
        while True:
            taken, _ = self._listener.accept()
            with taken, taken.dup() as bare:
                if self._is_over:
                    return
                try:
                    with self._tls.wrap_socket(taken, server_side=True) as secured:
                        secured.recv(65536)
                        kind = (
                            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
                        )
                        secured.sendall(kind + ANSWER)
                        with suppress(OSError):
                            secured.unwrap()
                except ssl.SSLError:
                    bare.shutdown(socket.SHUT_WR)
                    with suppress(OSError):
                        while bare.recv(65536):
                            pass


@pytest.mark.parametrize("through", [False, True], ids=["direct", "proxy"])
@pytest.mark.parametrize(
    ("version", "missing"),
    [
        (ssl.TLSVersion.TLSv1_2, "it ends the TLS handshake; it may ask for a client certificate"),
        (ssl.TLSVersion.TLSv1_3, "it asks for a client certificate"),
    ],
)
def test_a_client_certificate_is_shown_and_its_refusal_is_said(
    loop: str,
    version: ssl.TLSVersion,
    missing: str,
    through: bool,
    authority: Authority,
    stranger: Authority,
    certificate: Path,
) -> None:
    tls = server_tls(certificate, clients=authority)
    tls.maximum_version = version
    mine = authority.certificate("mine", apart=True)
    forged = stranger.certificate("forged")
    both = {"client_cert": str(mine), "client_key": str(mine.with_suffix(".key"))}
    with Asking(tls) as server:
        proxy = ScriptedProxy({f"localhost:{server.port}": server.port}) if through else None

        def over(**given: str) -> Callable[[int], Awaitable[Any]]:
            def asked(_: int) -> Awaitable[Any]:
                at = {"proxy": f"http://127.0.0.1:{proxy.port}"} if proxy else {}
                url = f"https://localhost:{server.port}/v1"
                return ask(UpstreamSettings(url=url, ca_file=str(authority.file), **at, **given))

            return asked

        assert run(loop, over(**both), proxy=proxy) == [ANSWER]
        refused = failed(loop, over(client_cert=str(forged)), proxy=proxy)
        assert refused.cause == "it refuses the client certificate"
        none = failed(loop, over(), proxy=proxy)
        assert none.cause == missing
        assert (refused.permanent, none.permanent) == (True, True)


def test_a_client_certificate_that_can_t_be_used_is_refused_at_the_start(
    authority: Authority, tmp_path: Path
) -> None:
    apart = authority.certificate("apart", apart=True)
    locked = authority.certificate("locked", password="a password")
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    for options, at, words in (
        ({"client_cert": str(tmp_path / "gone")}, ".client_cert", "No such file"),
        ({"client_cert": str(apart)}, ".client_cert", "does not contain the certificate and its key"),
        ({"client_cert": str(apart), "client_key": str(empty)}, ".client_key", "which belong together"),
        ({"client_cert": str(locked)}, ".client_key", "the key is encrypted"),
        ({"client_key": str(apart)}, ".client_key", "needs a client_cert"),
        ({"ca_file": str(empty)}, ".ca_file", "does not contain certificates"),
        ({"ca_file": str(tmp_path / "gone")}, ".ca_file", "No such file"),
        ({"ca_file": str(apart), "verify": False}, ".ca_file", "verify must be true"),
        ({"proxy": "http://p:1", "socket": "/s"}, ".proxy", "are mutually exclusive"),
    ):
        with pytest.raises(SettingsError, match=words) as refused:
            configured(UpstreamSettings(url="https://m.example", **options), Settings(), Sealer(b"k" * 32))  # type: ignore[arg-type]
        assert refused.value.at == at
    with pytest.raises(ConnectOptionsError, match="https://"):
        ConnectOptions(TlsOptions(client_cert=str(apart))).check(request_target_of("http://m.example").origin)


@pytest.mark.parametrize("through", [False, True], ids=["direct", "proxy"])
def test_tls_where_none_is_spoken_says_so(loop: str, through: bool) -> None:
    proxy = ScriptedProxy() if through else None

    async def says(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
        await writer.drain()

    model = Model()
    model.handle = says  # type: ignore[method-assign]

    def over(port: int) -> Awaitable[Any]:
        at = {"proxy": f"http://127.0.0.1:{proxy.port}"} if proxy else {}
        return ask(UpstreamSettings(url=f"https://localhost:{port}/v1", **at))

    error = failed(loop, over, proxy=proxy, model=model)
    assert error.message.endswith("it does not speak TLS there: is its address http:// instead of https://?")
    assert error.headers["x-should-retry"] == "false"


def test_no_tls_where_it_is_spoken_says_so(loop: str) -> None:
    async def says(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x15\x03\x03\x00\x02\x02\x16")  # OpenSSL's answer to what is not TLS
        await writer.drain()

    model = Model()
    model.handle = says  # type: ignore[method-assign]
    error = failed(loop, lambda port: ask(UpstreamSettings(url=f"http://127.0.0.1:{port}/v1")), model=model)
    assert error.cause == "it speaks TLS there: is its address https:// instead of http://?"


# ── sockets ────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("way", ["address", "field"])
def test_an_upstream_may_be_behind_a_unix_socket(
    loop: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    path, model = tmp_path / "model.sock", Model()
    settings = UpstreamSettings(url=f"unix:{path}")
    if way == "field":
        settings = UpstreamSettings(url="http://model.example/api/v3", socket=str(path))

    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await model.handle(reader, writer)

    async def over(_: int) -> Any:
        server = await asyncio.start_unix_server(handle, path)
        try:
            return await ask(settings, times=2)
        finally:
            server.close()
            for writer in writers:  # not every version of Python closes them
                writer.close()
                await writer.wait_closed()

    assert run(loop, over) == [ANSWER, ANSWER]
    line, host = ("/v1", "localhost") if way == "address" else ("/api/v3", "model.example")
    assert model.heads[0].startswith(f"POST {line}/chat/completions HTTP/1.1\r\nhost: {host}\r\n")
    upstream = configured(settings, Settings(), Sealer(b"k" * 32)).upstream
    assert upstream.address == f"unix:{path}"


def test_a_socket_that_is_not_there_is_said_to_be_it(loop: str, tmp_path: Path) -> None:
    gone, old = tmp_path / "gone.sock", tmp_path / "old.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(old))
    missing = failed(loop, lambda _: ask(UpstreamSettings(url=f"unix:{gone}")))
    assert missing.cause == f"the socket {gone}: No such file or directory"
    assert missing.message.endswith("its socket does not exist")
    unheard = failed(loop, lambda _: ask(UpstreamSettings(url=f"unix:{old}")))
    assert unheard.cause == f"the socket {old}: Connection refused"
    assert str(tmp_path) not in unheard.message


def test_paths_of_a_file_are_those_beside_it(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[[upstreams]]\nurl = "unix:m.sock"\nca_file = "ca.pem"\n')
    [upstream] = load_settings(config).upstreams
    assert (upstream.url, upstream.ca_file) == (f"unix:{tmp_path}/m.sock", f"{tmp_path}/ca.pem")
