"""Three upstreams with two keys each fail in turn, in every way, while clients use two workers, one of which
is killed in between: nobody sees a failure while one route works, no route gets a request while its limit
lasts, and sessions stay on their route when all of them work."""

import asyncio
import json
import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from msgspec import Struct, field

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.services import redis_server
from tests.support.serving import serving
from tests.support.upstream import (
    CUT,
    HANG,
    JSON,
    RESET,
    Received,
    Script,
    ScriptedUpstream,
    frame,
    refusal,
    text,
)
from tests.support.workers import Worker

LIMITED = 3  # seconds in the upstream's `retry-after`
KNOWN = 2.0  # seconds after which all workers are sure to know the limit
FAULTS: dict[str, Callable[[], Script]] = {
    "cut": lambda: Script([CUT]),
    "reset": lambda: Script([RESET]),
    "cut after an empty frame": lambda: Script([frame(choices=[]), CUT]),
    "slow": lambda: Script([], before=HANG),
    "401": lambda: refusal(401, message="x"),
    "402": lambda: refusal(402, message="x"),
    "403": lambda: refusal(403, code="unsupported_country_region_territory", message="x"),
    "404": lambda: refusal(404, code="model_not_found", message="x"),
    "408": lambda: refusal(408, message="x"),
    "429": lambda: refusal(429, {"retry-after": str(LIMITED)}, message="x"),
    "500": lambda: refusal(500, message="x"),
    "503": lambda: refusal(503, message="x"),
    "a lying 200": lambda: Script([b'data: {"error": {"code": "server_is_overloaded", "message": "x"}}\n\n']),
    "HTML": lambda: Script([b"<html>"], 200, {"content-type": "text/html"}),
    "an error in JSON": lambda: Script(
        [b'{"error": {"code": "overloaded_error", "message": "x"}}'], 200, JSON
    ),
    "nothing": lambda: Script([]),
}
Place = tuple[str, str]


class Chaos:
    """The upstreams, and the fault of each of their keys. A silent upstream does not answer within `silence`
    seconds; a working one does."""

    def __init__(self, seed: int, silence: float, stack: ExitStack) -> None:
        self.random = random.Random(seed)
        self.silence = silence
        self.overlap = LIMITED + 2 * silence  # seconds for which two routes work before one of them fails
        tag = os.urandom(4).hex()
        self.keys = ["sk-one-0123456789-abcd", "sk-two-0123456789-efgh"]
        self.upstreams = {f"{name}-{tag}": stack.enter_context(ScriptedUpstream()) for name in "abc"}
        self.places: list[Place] = [(name, key) for name in self.upstreams for key in self.keys]
        self.faults: dict[Place, str] = {}
        self.limited: dict[Place, float] = {}  # when the last limit began
        self.asked_while_limited: dict[Place, Counter[str]] = defaultdict(Counter)
        self.too_early: list[tuple[Place, str, float]] = []
        self.seen: Counter[str] = Counter()
        for name, upstream in self.upstreams.items():
            upstream.answer = self._answers(name)

    def _answers(self, name: str) -> Callable[[Received], Script]:
        def answer(received: Received) -> Script:
            place = (name, received.headers["authorization"].removeprefix("Bearer "))
            client, now = str(received.body.get("user", "")), time.monotonic()
            since = now - self.limited.get(place, -1e9)
            if KNOWN < since < LIMITED - 0.1:
                self.too_early.append((place, client, since))
            received.body.clear()
            fault = self.faults.get(place, "")
            self.seen[fault] += 1
            if not fault:
                return Script(text(f"{self.places.index(place)}"))
            if fault == "429" and since > LIMITED:
                self.limited[place] = now
            return FAULTS[fault]()

        return answer

    def run(self, seconds: float, stop: threading.Event) -> None:
        """Break all routes but one; while the working route changes, two of them work."""
        end, whole, kinds = time.monotonic() + seconds, self.random.choice(self.places), list(FAULTS)
        while time.monotonic() < end and not stop.is_set():
            self.random.shuffle(kinds)
            for place, fault in zip((each for each in self.places if each != whole), kinds, strict=False):
                self.faults[place] = fault
            if stop.wait(1.0):
                break
            whole = self.random.choice([each for each in self.places if each != whole])
            self.faults.pop(whole)
            if stop.wait(self.overlap):
                break
        self.faults.clear()

    def settings(self) -> list[dict[str, Any]]:
        quick = {"connect": 5.0, "first_byte": self.silence, "idle": 10.0, "total": 60.0}
        return [
            {
                "name": name,
                "url": upstream.url,
                "models": ["m"],
                "api_keys": [f"${{CHAOS_{key[3:6].upper()}}}" for key in self.keys],
                "timeouts": quick,
                "weight": weight,
                "circuit": {"failures": 3, "seconds": 1.0},
            }
            for weight, (name, upstream) in enumerate(self.upstreams.items(), 1)
        ]


class Found(Struct):
    """The results of the clients."""

    answered: int = 0
    failures: list[str] = field(default_factory=list)
    stayed: int = 0
    turns: int = 0


async def ask(base: str, body: dict[str, Any]) -> str:
    """The text of the answer. Raises OSError if the worker is gone, and AssertionError for a failure."""
    parts, data = urlsplit(base), json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(
            b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)
        )
        answer = await reader.read()
    finally:
        writer.close()
    if not answer:
        raise ConnectionResetError
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    assert status == 200, (status, rest[:300])
    if body["stream"]:
        if b"response.failed" not in rest and b"[DONE]" not in rest:
            raise ConnectionResetError
        assert b"response.completed" in rest, rest.partition(b'"error":')[2][:300]
        rest = rest.partition(b'"delta":"')[2].partition(b'"')[0]
        return rest.decode()
    if b'"status"' not in rest:
        raise ConnectionResetError
    response = json.loads(rest)
    assert response["status"] == "completed", response["error"]
    return str(response["output"][0]["content"][0]["text"])


async def client(name: str, bases: list[str], found: Found, over: Callable[[], bool], pause: float) -> None:
    turn, before = hash(name), ""
    while not over():
        turn += 1
        body = {"model": "m", "input": "Hi", "user": name, "store": False, "stream": bool(turn % 2)}
        if turn % 4:  # the other requests belong to no session
            body["prompt_cache_key"] = name
        base, began = bases[turn % len(bases)], time.monotonic()
        try:
            place = await ask(base, body)
        except OSError:  # the worker is gone: use another one, as a balancer would
            if base in bases and len(bases) > 1:
                bases.remove(base)
            continue
        except AssertionError as error:
            found.failures.append(f"{name} after {time.monotonic() - began:.1f} s: {error}")
            continue
        found.answered += 1
        if turn % 4:
            if before:
                found.turns += 1
                found.stayed += place == before
            before = place
        await asyncio.sleep(pause)


def play(
    chaos: Chaos, bases: list[str], kill: Callable[[], None], clients: int, well: float, ill: float
) -> None:
    """All routes work for some seconds, then they fail in turn, and one worker is killed in the middle of
    that. On a busy machine each of the two lasts until more has been answered than there are clients."""
    calm, rough, stop = Found(), Found(), threading.Event()
    pause = clients / 150

    async def phase(found: Found, seconds: float) -> None:
        end = time.monotonic() + seconds

        def is_over() -> bool:
            is_enough = min(found.turns, found.answered) > clients or bool(found.failures)
            return is_enough and time.monotonic() > end

        names = [f"client-{number}" for number in range(clients)]
        await asyncio.gather(*(client(each, bases, found, is_over, pause) for each in names))

    asyncio.run(phase(calm, well))
    assert calm.failures == []
    assert calm.stayed >= 0.95 * calm.turns, (calm.stayed, calm.turns)
    conductor = threading.Thread(target=chaos.run, args=(ill, stop), daemon=True)
    killer = threading.Timer(ill / 2, kill)
    conductor.start()
    killer.start()
    try:
        asyncio.run(phase(rough, ill))
    finally:
        stop.set()
        conductor.join()
        killer.cancel()
    print(
        f"{calm.answered} and {rough.answered} answers, {calm.stayed}/{calm.turns} stayed, {dict(chaos.seen)}"
    )
    wrong = [*rough.failures, *map(str, chaos.too_early)]
    assert wrong == [], "\n".join((f"{len(rough.failures)}, {len(chaos.too_early)}", *wrong[:20]))


@pytest.fixture
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAOS_ONE", "sk-one-0123456789-abcd")
    monkeypatch.setenv("CHAOS_TWO", "sk-two-0123456789-efgh")


@pytest.mark.usefixtures("_keys")
def test_nobody_sees_a_failure_while_one_route_is_whole() -> None:
    """This takes a few seconds, with both workers in this process."""
    with ExitStack() as stack:
        log = stack.enter_context(redis_server())
        chaos = Chaos(1, 2.0, stack)
        upstreams = msgspec.convert(chaos.settings(), list[UpstreamSettings])
        settings = Settings(upstreams=upstreams, balance="round_robin", event_log=log)
        second = stack.enter_context(stopped_early(settings))
        first = stack.enter_context(serving(settings))
        play(chaos, [first, second.base], second.stop, clients=12, well=1.5, ill=10.0)


class Stoppable(Struct):
    base: str
    stop: Callable[[], None]


@contextmanager
def stopped_early(settings: Settings) -> Iterator[Stoppable]:
    """A server that can be stopped before the context ends."""
    with ExitStack() as stack:
        base = stack.enter_context(serving(settings))
        yield Stoppable(base, stack.close)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("_keys")
def test_ten_minutes_of_chaos(tmp_path: Path) -> None:
    seconds = float(os.environ.get("CHAOS_SECONDS", "600"))
    with ExitStack() as stack:
        log = stack.enter_context(redis_server())
        chaos = Chaos(random.randrange(1 << 30), 4.0, stack)
        config = 'balance = "round_robin"\n' + "".join(
            _toml(each) for each in msgspec.to_builtins(chaos.settings())
        )
        workers = [Worker(tmp_path, "memory://", log, config) for _ in range(2)]
        stack.callback(workers[0].kill)
        killed = threading.Event()

        def kill() -> None:
            killed.set()
            workers[1].kill()

        try:
            bases = [each.base for each in workers]
            play(chaos, bases, kill, clients=200, well=seconds / 10, ill=seconds * 0.9)
        finally:
            if not killed.is_set():
                workers[1].kill()


def _toml(upstream: dict[str, Any]) -> str:
    lines = ["[[upstreams]]"]
    for name, value in upstream.items():
        if isinstance(value, dict):
            inner = ", ".join(f"{each} = {json.dumps(number)}" for each, number in value.items())
            lines.append(f"{name} = {{ {inner} }}")
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"
