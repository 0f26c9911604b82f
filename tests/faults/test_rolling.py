"""Law S8: rolling restarts under load, during which no stream and no request fails."""

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import pytest

from tests.support.processes import base_of, children, started
from tests.support.services import postgres_database, redis_server
from tests.support.serving import call, respond
from tests.support.waiting import wait_until
from tests.support.workers import Reader, type_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

RESTARTS = 20
CLIENTS = 6
WORDS = 60  # three seconds: longer than the value of `limits.grace` here


@contextmanager
def stores(kind: str, folder: Path) -> Iterator[tuple[str, str]]:
    """The store and the event log, by kind."""
    with ExitStack() as stack:
        if kind == "sqlite":
            yield f"sqlite:///{folder}/s.sqlite3", "memory://"
        else:
            yield stack.enter_context(postgres_database()), stack.enter_context(redis_server())


class Load:
    """Clients that ask for streams, one after another, every second one in the background, as long as the
    context lasts. The context always waits for their threads, also after an error. `ends` counts how the
    streams ended."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._stopped = threading.Event()
        self.ends: Counter[str] = Counter()
        self.ids: list[str] = []
        self._threads = [threading.Thread(target=self._ask, args=(n,), daemon=True) for n in range(CLIENTS)]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for each in self._threads:
            each.join()
            assert not each.is_alive(), "a client does not stop"

    def _ask(self, number: int) -> None:
        request = {"model": "demo-slow", "input": f"{WORDS + number} words", "stream": True}
        while not self._stopped.is_set():
            reader = Reader(self._base, "POST", "/v1/responses", {**request, "background": bool(number % 2)})
            reader.join()
            self.ends[type_of(reader.frames[-2]) if reader.done else f"broken {reader.data[-200:]!r}"] += 1
            if reader.response_id is not None:
                self.ids.append(reader.response_id)


@pytest.mark.parametrize("kind", ["sqlite", "postgres and redis"])
def test_s8_no_stream_fails_in_twenty_rolling_restarts(tmp_path: Path, kind: str) -> None:
    config = tmp_path / "rolling.toml"
    config.write_text("[limits]\ngrace = 0.5\n")
    with ExitStack() as stack:
        store, log = stack.enter_context(stores(kind, tmp_path))
        flags = ("--config", str(config), "--store", store, "--event-log", log, "--workers", "2")
        process = stack.enter_context(started(*flags, folder=tmp_path))
        log_lines: list[str] = []
        assert process.stderr is not None
        reading = threading.Thread(target=lambda: log_lines.extend(process.stderr or []), daemon=True)
        reading.start()
        base = base_of(process)
        wait_until(lambda: call(base, "GET", "/readyz").status == 200)
        with Load(base) as load:
            for _ in range(RESTARTS):
                before = children(process.pid)
                process.send_signal(signal.SIGHUP)
                wait_until(lambda: not children(process.pid) & before)  # noqa: B023
                assert respond(base, model="demo").status == 200
        assert set(load.ends) == {"response.completed"}, load.ends
        for response_id in load.ids:
            response = call(base, "GET", f"/v1/responses/{response_id}").json
            assert response["status"] == "completed", response
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        reading.join()
        print(f"{kind}: {RESTARTS} restarts, {sum(load.ends.values())} streams, {dict(load.ends)}")
    bad = [line for line in log_lines if "Traceback" in line or _level(line) == "error"]
    assert not bad, bad[:5]


def _level(line: str) -> str:
    try:
        return str(json.loads(line).get("level"))
    except ValueError:
        return ""
