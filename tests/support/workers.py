"""Server processes, killed without warning, and clients that record every received byte."""

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.forked import Forked
from tests.support.services import postgres_database, redis_server
from tests.support.serving import ready

CONFIG = "checkpoint_interval = 0.2\nlease = 3.0\n"
DONE = b"data: [DONE]\n\n"
_NUMBER = re.compile(rb'"sequence_number":(\d+)')


class Worker:
    """One `serve` process over the demo model. `store` and `event_log` are its addresses; the log's is the
    default if it is empty. Leases are short so that tests are."""

    def __init__(self, folder: Path, store: str, event_log: str = "", config: str = CONFIG) -> None:
        file = folder / f"worker-{os.urandom(4).hex()}.toml"
        file.write_text(config)
        self.event_log = event_log
        flags = ["--port", "0", "--config", str(file), "--store", store]
        flags += ["--event-log", event_log] if event_log else []
        self._log = file.with_suffix(".log")
        environment = {**os.environ, "XDG_DATA_HOME": str(folder)}
        with self._log.open("wb") as log:
            self._process = Forked[bytes](
                ["serve", *flags], stdout=subprocess.PIPE, stderr=log, env=environment
            )
        try:
            self.base = self._greeting()
            ready(self.base)
        except BaseException:  # including the time limit of a test
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the process without warning, as a power cut or a lack of memory would."""
        with self._process:
            self._process.kill()

    def freeze(self) -> None:
        """Stop the process without ending it: it keeps everything that it holds."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the process."""
        self._process.send_signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """Ask the worker to stop, as a deployment does; it finishes what it has begun."""
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ask the worker to stop, and wait for its end."""
        self._process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(60)
        self.kill()

    def _greeting(self) -> str:
        """Return the address in the greeting."""
        assert self._process.stdout is not None
        match = re.search(r"http://\S+", self._process.stdout.readline().decode())
        assert match is not None, self._log.read_text()
        return match[0]


@contextmanager
def working(folder: Path, store: str, event_log: str = "", config: str = CONFIG) -> Iterator[Worker]:
    """A worker, stopped at the end even after a failure."""
    worker = Worker(folder, store, event_log, config)
    try:
        yield worker
    finally:
        worker.stop()


@contextmanager
def working_together(folder: Path, count: int = 2, config: str = CONFIG) -> Iterator[list[Worker]]:
    """So many workers over one PostgreSQL and one Redis."""
    with ExitStack() as stack:
        store = stack.enter_context(postgres_database())
        event_log = stack.enter_context(redis_server())
        yield [stack.enter_context(working(folder, store, event_log, config)) for _ in range(count)]


class Reader:
    """A client on a thread that reads one stream until it ends or breaks."""

    def __init__(
        self,
        base: str,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._request = (base, method, path, body)
        self._headers = dict(headers or {})
        self.data = b""
        """All received bytes, comments too."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Return once the stream is over."""
        self._thread.join()

    @property
    def frames(self) -> list[bytes]:
        """The complete frames; a cut frame counts as not received."""
        return [each + b"\n\n" for each in self.data.split(b"\n\n")[:-1] if not each.startswith(b":")]

    @property
    def events(self) -> dict[int, bytes]:
        """The received frames by their numbers, in order."""
        frames = [each for each in self.frames if each != DONE]
        numbered = {number_of(each): each for each in frames}
        assert len(numbered) == len(frames), "a number came twice"
        return numbered

    @property
    def done(self) -> bool:
        """Whether the stream came to its end."""
        return self.data.endswith(DONE)

    @property
    def response_id(self) -> str | None:
        """The id of the response whose events these are; None until it was received."""
        return response_id_in(self.events)

    def _read(self) -> None:
        base, method, path, body = self._request
        address = urlsplit(base)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        try:
            headers = {"content-type": "application/json"} if body is not None else {}
            headers |= self._headers
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            response = connection.getresponse()
            while data := response.read1(65536):
                self.data += data
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()


class SocketReader:
    """The same client over a WebSocket, for one turn; it keeps the received frames."""

    def __init__(self, base: str, body: dict[str, object]) -> None:
        self._request = base.replace("http", "ws", 1) + "/v1/responses", {"type": "response.create", **body}
        self.events: dict[int, bytes] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Return once the connection is over."""
        self._thread.join()

    @property
    def response_id(self) -> str | None:
        """The id of the response whose events these are; None until it was received."""
        return response_id_in(self.events)

    def _read(self) -> None:
        url, message = self._request
        try:
            with connect(url, close_timeout=1) as connection:
                connection.send(json.dumps(message))
                for sent in connection:
                    assert isinstance(sent, str)
                    frame = f"event: {json.loads(sent)['type']}\ndata: {sent}\n\n".encode()
                    assert number_of(frame) not in self.events, "a number came twice"
                    self.events[number_of(frame)] = frame
        except (OSError, ConnectionClosed):
            return


def response_id_in(events: dict[int, bytes]) -> str | None:
    """The id of the response of these events; None without the first event."""
    return json.loads(events[0].split(b"data: ", 1)[1])["response"]["id"] if 0 in events else None


def number_of(frame: bytes) -> int:
    """The sequence number of an event."""
    match = _NUMBER.search(frame)
    assert match is not None, frame
    return int(match[1])


def type_of(frame: bytes) -> str:
    """The type of an event."""
    return frame.partition(b"\n")[0].removeprefix(b"event: ").decode()


def slow_stream(base: str, words: int, **more: object) -> Reader:
    """A stored stream of the demo model that has begun; 20 words a second."""
    request = {"model": "demo-slow", "input": f"{words} words", "stream": True, **more}
    reader = Reader(base, "POST", "/v1/responses", request)
    while len(reader.frames) < 5:
        time.sleep(0.02)
    return reader
