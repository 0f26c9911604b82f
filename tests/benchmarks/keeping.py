"""Measures the costs of storing in a server: its CPU for a JSON request, a short stream and a paced token,
with each store, beside `store: false` at the same server in the same run."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.benchmarks.readers import Kind, Server, kinds, serving
from tests.support.serving import call
from tests.support.upstream import Script, ScriptedUpstream, Step, chunk, text

_PACED: Final = 60  # tokens of one stream
_PAUSE: Final = 1 / 30  # seconds between two tokens


class Effort(NamedTuple):
    """The size of a round: requests of each kind, and paced streams side by side. Rounds with and without
    storing alternate, and the best of each counts."""

    requests: int
    streams: int
    rounds: int


FULL: Final = Effort(60, 40, 5)
QUICK: Final = Effort(30, 10, 2)


def run(effort: Effort) -> str:
    """The table as text: microseconds of the server's CPU for one request or token, and the ratio of that to
    the costs without storing."""
    title = "through the server, µs of its CPU: kept, and beside store: false"
    lines = [title, "-" * len(title), f"{'':<26}{'JSON request':>24}{'short stream':>24}{'paced token':>24}"]
    paced: list[Step] = [step for _ in range(_PACED) for step in (chunk(content=" token"), _PAUSE)]
    scripts: dict[str, Script | list[Script]] = {
        "short": Script(text("ok")),
        "paced": Script([*paced, *text("end")]),
    }
    with ScriptedUpstream(scripts) as upstream, tempfile.TemporaryDirectory(prefix="orb-bench-") as name:
        folder = Path(name)
        with kinds(folder) as all_kinds:
            *sqlite, shared = all_kinds
            for kind in (*sqlite, Kind("PostgreSQL, log in memory", shared.store, "memory://"), shared):
                with serving(kind, upstream.url, folder) as server:
                    cells = [_cell(*_costs(server, effort, what)) for what in _WHATS]
                lines.append(f"{kind.name:<26}" + "".join(cells))
    return "\n".join(lines)


_WHATS: Final = ("JSON request", "short stream", "paced token")


def _costs(server: Server, effort: Effort, what: str) -> tuple[float, float]:
    """The lowest seconds of CPU for one request or token: (stored, not stored)."""
    rounds = [
        (_cost(server, effort, what, True), _cost(server, effort, what, False)) for _ in range(effort.rounds)
    ]
    stored, plain = zip(*rounds, strict=True)
    return min(stored), min(plain)


def _cost(server: Server, effort: Effort, what: str, store: bool) -> float:
    """Seconds of CPU for one request or token."""
    body: dict[str, Any] = {"input": "x", "store": store, "stream": what != "JSON request"}
    if what == "paced token":
        body["model"] = "paced"
        threads = [threading.Thread(target=_ask, args=(server, body)) for _ in range(effort.streams)]
        before = _spent(server)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (_spent(server) - before) / (effort.streams * _PACED)
    body["model"] = "short"
    _ask(server, body)
    before = _spent(server)
    for _ in range(effort.requests):
        _ask(server, body)
    return (_spent(server) - before) / effort.requests


def _ask(server: Server, asked: dict[str, Any]) -> None:
    if call(server.base, "POST", "/v1/responses", asked).status != 200:
        raise RuntimeError("a request was refused")


def _spent(server: Server) -> float:
    """Seconds of CPU of all threads of the server so far, as the scheduler counts them."""
    threads = Path(f"/proc/{server.process}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


def _cell(kept: float, plain: float) -> str:
    return f"{kept * 1e6:,.0f} / {plain * 1e6:,.0f} {kept / max(plain, 1e-9):>5.2f} ×".rjust(24)
