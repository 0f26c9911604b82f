"""Law S8: a `serve` that is asked to stop. What has begun is finished; a second signal hurries it; what is
cut off has an end that says so; the process ends whatever its store does."""

import gzip
import http.client
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from sqlalchemy import make_url
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from openresponses_server.serving.server import held_signals
from openresponses_server.store.endings import RESTARTED
from tests.support.processes import QUIET, base_of, ended, started
from tests.support.services import own_postgres
from tests.support.serving import call, ready, respond
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, text
from tests.support.waiting import wait_until
from tests.support.workers import Reader, slow_stream, type_of

TERM, INT = signal.SIGTERM, signal.SIGINT


@contextmanager
def serving(folder: Path, *flags: str, grace: float = 0.3) -> Iterator[tuple[subprocess.Popen[str], str]]:
    config = folder / "stopping.toml"
    config.write_text(f"[limits]\ngrace = {grace}\n")
    with started("--config", str(config), *flags, folder=folder) as process:
        yield process, base_of(process)


def test_s8_what_has_begun_is_finished(tmp_path: Path) -> None:
    """By a server that takes nothing new meanwhile."""
    may_end = threading.Event()
    script = Script([chunk(content="Hello"), may_end.is_set, *text(" there")])
    with ScriptedUpstream({"m": script}) as upstream, serving(tmp_path, "--upstream", upstream.url) as served:
        process, base = served
        reader = Reader(base, "POST", "/v1/responses", {"model": "m", "input": "x", "stream": True})
        wait_until(lambda: b"Hello" in reader.data)
        process.send_signal(TERM)
        ready(base, status=503)
        refused = respond(base, model="m")
        assert (refused.status, refused.error["code"]) == (503, "service_unavailable")
        assert refused.headers["connection"] == "close"
        assert call(base, "GET", "/healthz").status == 200
        may_end.set()
        reader.join()
        assert type_of(reader.frames[-2]) == "response.completed"
        assert reader.done
        ended(process)


@pytest.mark.parametrize(
    ("signals", "store"), [([INT], "memory://"), ([TERM, TERM], "sqlite:"), ([TERM, INT, INT], "memory://")]
)
def test_s8_what_is_hurried_fails(tmp_path: Path, signals: list[signal.Signals], store: str) -> None:
    with serving(tmp_path, "--store", store) as (process, base):
        reader = slow_stream(base, 20_000)
        first, *others = signals
        process.send_signal(first)
        if others:
            ready(base, status=503)  # two that come before it has looked are one
        for number in others:
            process.send_signal(number)
        reader.join()
        assert type_of(reader.frames[-2]) == "response.failed"
        assert reader.done
        ended(process)


def test_s8_what_takes_longer_than_the_drain_time_is_cut_off(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain", "1s") as (process, base):
        reader = slow_stream(base, 20_000)
        process.send_signal(TERM)
        reader.join()
        assert type_of(reader.frames[-2]) == "response.failed"
        ended(process)


def test_s8_websockets_finish_their_turn_and_are_closed(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, base):
        address = base.replace("http", "ws") + "/v1/responses"
        with connect(address) as idle, connect(address) as busy:
            busy.send('{"type": "response.create", "model": "demo-slow", "input": "20 words"}')
            while "output_text.delta" not in busy.recv():
                pass
            process.send_signal(TERM)
            assert "shutting down" in str(idle.recv())
            with pytest.raises(ConnectionClosedError) as closed:
                idle.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
            while "response.completed" not in busy.recv():
                pass
            assert "shutting down" in str(busy.recv())
        ended(process)


def test_s8_a_background_stream_that_waits_at_the_cut_is_sent_what_became_of_it(tmp_path: Path) -> None:
    """It got 200, and no event of its response has come: it is sent the id, under which the next server makes
    it."""
    config = tmp_path / "narrow.toml"
    config.write_text("[limits]\ngrace = 0.3\nconcurrent = 1\n")
    with started("--config", str(config), folder=tmp_path) as process:
        base = base_of(process)
        slow_stream(base, 20_000)
        request = {"model": "demo", "input": "x", "stream": True, "background": True}
        waiting = Reader(base, "POST", "/v1/responses", request)
        while ready(base).json["waiting"] == 0:
            time.sleep(0.02)
        process.send_signal(INT)
        waiting.join()
        ended(process)
    assert type_of(waiting.frames[0]) == "error"
    assert b'"code":"service_unavailable"' in waiting.frames[0]
    match = re.search(rb"resp_\w+", waiting.frames[0])
    assert match is not None
    with started(folder=tmp_path) as process:
        base = base_of(process)
        whole = Reader(base, "GET", f"/v1/responses/{match[0].decode()}?stream=true")
        whole.join()
    assert type_of(whole.frames[-2]) == "response.completed"


@pytest.mark.parametrize("store", ["sqlite:", "memory://"])
def test_s8_a_background_response_that_shows_nothing_at_the_cut_is_the_next_servers(
    tmp_path: Path, store: str
) -> None:
    """With a store in memory there is no next server that has it: it fails."""
    with ScriptedUpstream({"m": [Script([HANG]), Script(text("Hello"))]}) as upstream:
        config = tmp_path / "silent.toml"
        config.write_text(f'[limits]\ngrace = 0.3\n[[upstreams]]\nurl = "{upstream.url}"\n')
        flags = ("--config", str(config), "--store", store)
        with started(*flags, folder=tmp_path) as process:
            base = base_of(process)
            response_id = respond(base, model="m", background=True).json["id"]
            while not upstream.received:
                time.sleep(0.02)
            process.send_signal(INT)
            output = ended(process)
        if store == "memory://":
            assert '"status":"failed","code":"service_unavailable"' in output
            return
        assert '"event":"response"' not in output
        with started(*flags, folder=tmp_path) as process:
            whole = Reader(base_of(process), "GET", f"/v1/responses/{response_id}?stream=true")
            whole.join()
    types = [type_of(each) for each in whole.events.values()]
    assert types[:3] == ["response.created", "response.in_progress", RESTARTED]
    assert types[-1] == "response.completed"


def test_s8_it_ends_in_time_when_its_store_swallows_everything(tmp_path: Path) -> None:
    """A network that drops packets: connections stay open and nothing comes back."""
    with ExitStack() as stack:
        postgres = stack.enter_context(own_postgres())
        hole = stack.enter_context(swallowing(postgres.url))
        address = make_url(f"{postgres.url}/test").set(
            drivername="postgresql+psycopg", host="127.0.0.1", port=hole.port
        )
        url = address.render_as_string(hide_password=False)
        process, base = stack.enter_context(serving(tmp_path, "--store", url))
        reader = slow_stream(base, 30_000)
        hole.swallow()
        time.sleep(0.5)
        process.send_signal(INT)
        process.communicate()
        reader.join()
        # What can't be stored has failed for its client, and an end says so.
        assert type_of(reader.frames[-2]) == "response.failed"
        assert reader.frames[-1].strip() == b"data: [DONE]"


LARGE = gzip.compress(
    b'{"model":"demo","input":[{"role":"system","content":"%b"},{"role":"user","content":"Hello"}]}'
    % (b"\\u00e9" * 2_000_000)
)


@pytest.mark.parametrize("number", [TERM, INT])
def test_s8_what_waits_for_a_thread_is_refused_as_what_is_new(tmp_path: Path, number: signal.Signals) -> None:
    """Bodies of which each keeps a thread busy for a second."""
    with ExitStack() as stack:
        process, base = stack.enter_context(serving(tmp_path, "--store", "memory://"))
        address = urlsplit(base)
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        connections = []
        for _ in range(16):
            connection = http.client.HTTPConnection(address.hostname or "", address.port)
            stack.callback(connection.close)
            connection.request("POST", "/v1/responses", LARGE, headers)
            connections.append(connection)
        assert connections[0].getresponse().status == 200
        process.send_signal(number)
        answers = [each.getresponse() for each in connections[1:]]
        refused = [each for each in answers if each.status != 200]
        assert refused
        for each in refused:
            assert (each.status, each.headers["connection"]) == (503, "close")
            assert b'"code":"service_unavailable"' in each.read()
        ended(process)


STUCK = """
import asyncio, signal, socket, threading
from openresponses_server.api.app import create_app
from openresponses_server.tasks import on_thread
from openresponses_server.serving.server import Server
from openresponses_server.settings import Settings

class Stuck(Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        begun, loop = asyncio.Event(), asyncio.get_running_loop()
        def work():
            loop.call_soon_threadsafe(begun.set)
            threading.Event().wait()
        self.task = asyncio.create_task(on_thread(work))
        await begun.wait()
        signal.raise_signal(signal.SIGTERM)

settings = Settings()
listener = socket.create_server(("127.0.0.1", 0))
Stuck(create_app(settings), settings, shared=False).run(sockets=[listener])
"""


def test_s8_a_thread_that_computes_on_does_not_hold_the_process() -> None:
    gone = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True)
    assert gone.returncode == 0, gone.stderr
    assert not [word for word in (*QUIET, "not_closed") if word in gone.stderr], gone.stderr


class Hole:
    """Passes bytes between its clients and a server, until it swallows them."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._swallows = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        self._swallows = True

    def close(self) -> None:
        for each in [self._listener, *self._open]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # which ends the call of a thread, as closing does not
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            if self._swallows:
                continue
            server = socket.create_connection(self._server)
            self._open.append(server)
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if not self._swallows:
                    target.sendall(data)
        except OSError:
            return


@contextmanager
def swallowing(url: str) -> Iterator[Hole]:
    address = make_url(url)
    hole = Hole((address.host or "127.0.0.1", address.port or 5432))
    try:
        yield hole
    finally:
        hole.close()


def test_signals_that_were_held_are_held_no_longer_however_the_server_ended() -> None:
    """What is held is inherited by each process that this one starts."""

    def held() -> set[int]:
        return {TERM, INT} & signal.pthread_sigmask(signal.SIG_BLOCK, ())

    with held_signals() as release_signals:
        assert held() == {TERM, INT}
        release_signals()
        assert held() == set()
    with suppress(SystemExit), held_signals():
        raise SystemExit
    assert held() == set()
