"""The proxies that companies run, in front of an upstream: squid and tinyproxy, where they are installed."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from openresponses_bridge.seal import Sealer
from openresponses_server.errors import UpstreamError
from openresponses_server.http.flow import BodyReader
from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.upstreams.base import UpstreamRequest
from openresponses_server.upstreams.targets import configured
from tests.support.certificates import Authority
from tests.support.listening import listening
from tests.support.serving import PATIENT
from tests.support.upstream import text
from tests.support.waiting import wait_until

ANSWER = b"".join(step for step in text("Hi") if isinstance(step, bytes))
USER = "me"
# what each lets a password have, and the same in an address
PASSWORDS = {
    "tinyproxy": ("a-password.of_some-length", "a%2Dpassword.of_some-length"),
    "squid": ("pa:ss/w0rd-of-some-length", "pa%3Ass%2Fw0rd-of-some-length"),
}
TINYPROXY = """
Port {port}
Listen 127.0.0.1
Timeout 60
Allow 127.0.0.1
BasicAuth {user} {password}
LogFile "{folder}/log"
PidFile "{folder}/pid"
"""
SQUID = """
http_port 127.0.0.1:{port}
pid_filename none
cache deny all
cache_log {folder}/cache.log
access_log none
coredump_dir {folder}
shutdown_lifetime 0 seconds
auth_param basic program {helper} {folder}/users
acl known proxy_auth REQUIRED
http_access allow known
http_access deny all
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _program(name: str) -> str:
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        pytest.skip(f"{name} is not installed: apt-get install {name}")
    return path


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: _listens(port) or process.poll() is not None)
            assert process.poll() is None, "the proxy has ended"
            yield
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="module", params=["tinyproxy", "squid"])
def proxy(request: pytest.FixtureRequest) -> Iterator[tuple[int, str]]:
    """Its port, and the password that it asks for as an address has it."""
    program, port = _program(request.param), _free_port()
    password, quoted = PASSWORDS[request.param]
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)  # squid leaves root for a user of its own, who may not look into pytest's
        values = {"port": port, "folder": folder, "user": USER, "password": password}
        if request.param == "tinyproxy":
            folder.joinpath("conf").write_text(TINYPROXY.format(**values))
            command = [program, "-d", "-c", str(folder / "conf")]
        else:
            helper = next(iter(sorted(Path("/usr").glob("lib*/squid/basic_ncsa_auth"))), None)
            if helper is None:
                pytest.skip("squid is installed without basic_ncsa_auth")
            folder.joinpath("users").write_text(f"{USER}:{_hashed(password)}\n")
            folder.joinpath("conf").write_text(SQUID.format(helper=helper, **values))
            command = [program, "-N", "-f", str(folder / "conf")]
        with _running(command, port):
            yield port, quoted


def _hashed(password: str) -> str:
    """As Apache's `htpasswd` writes it."""
    result = subprocess.run(
        ["openssl", "passwd", "-apr1", password], check=True, capture_output=True, text=True
    )
    return result.stdout.strip()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2)
        kind = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
        writer.write(kind % len(ANSWER) + ANSWER)
        await writer.drain()


async def _answers(given: UpstreamSettings) -> list[bytes]:
    upstream = configured(given, Settings(timeouts=PATIENT), Sealer()).upstream
    answers = []
    try:
        for _ in range(2):
            async with upstream.open(UpstreamRequest("/chat/completions", b"{}", "r")) as reply:
                reader = BodyReader(reply)
                pieces = []
                while piece := await reader.read():
                    pieces.append(piece)
                answers.append(b"".join(pieces))
    finally:
        await upstream.close()
    return answers


def _asked(scheme: str, user: str, proxy: int, authority: Authority) -> list[bytes]:
    async def over() -> list[bytes]:
        tls = None
        if scheme == "https":
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(authority.certificate("server"))
        async with listening(_answer, tls) as port:
            settings = UpstreamSettings(
                url=f"{scheme}://127.0.0.1:{port}/v1",
                proxy=f"http://{user}127.0.0.1:{proxy}",
                ca_file=str(authority.file),
            )
            return await _answers(settings)

    return asyncio.run(over())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_upstream_behind_a_real_proxy_answers(
    scheme: str, proxy: tuple[int, str], authority: Authority
) -> None:
    assert _asked(scheme, f"{USER}:{proxy[1]}@", proxy[0], authority) == [ANSWER, ANSWER]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("", "asks for a user and password"),
        (f"{USER}:another-of-some-length@", "does not accept the user and password"),
    ],
)
def test_a_real_proxy_that_refuses_is_named(
    scheme: str, user: str, words: str, proxy: tuple[int, str], authority: Authority
) -> None:
    with pytest.raises(UpstreamError) as refused:
        _asked(scheme, user, proxy[0], authority)
    message = f"{refused.value.message} {refused.value.cause}"
    assert "another-of-some-length" not in message
    if scheme == "http" and proxy[1] == PASSWORDS["tinyproxy"][1] and user:
        return  # it answers 401, as an upstream would, and may close before that is read
    assert refused.value.message.endswith(f"the proxy {words}")
    assert refused.value.cause == f"the proxy http://127.0.0.1:{proxy[0]} {words}"
