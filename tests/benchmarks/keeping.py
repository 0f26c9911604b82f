"""What keeping costs through the server: its CPU for a JSON request, a short stream and a paced token, with
each store, beside `store: false` at the same server in the same run.
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.benchmarks.readers import Server, kinds, serving
from tests.support.serving import call
from tests.support.upstream import Script, ScriptedUpstream, Step, chunk, text

_TICK: Final = os.sysconf("SC_CLK_TCK")
_PACED: Final = 60  # tokens of one stream
_PAUSE: Final = 1 / 30  # seconds between two of them


class Effort(NamedTuple):
    """How many requests of each kind, and paced streams side by side."""

    requests: int
    streams: int


FULL: Final = Effort(200, 40)
QUICK: Final = Effort(40, 10)


def run(effort: Effort) -> str:
    """The table as text: microseconds of the server's CPU for one, and how many times that is without
    storing."""
    title = "through the server, µs of its CPU: kept, and beside store: false"
    lines = [title, "-" * len(title), f"{'':<26}{'JSON request':>20}{'short stream':>20}{'paced token':>20}"]
    paced: list[Step] = [step for _ in range(_PACED) for step in (chunk(content=" token"), _PAUSE)]
    scripts: dict[str, Script | list[Script]] = {
        "short": Script(text("ok")),
        "paced": Script([*paced, *text("end")]),
    }
    with ScriptedUpstream(scripts) as upstream, tempfile.TemporaryDirectory(prefix="orb-bench-") as name:
        folder = Path(name)
        with kinds(folder) as found:
            for kind in found:
                with serving(kind, upstream.url, folder) as server:
                    cells = [
                        _cell(_cost(server, effort, what, True), _cost(server, effort, what, False))
                        for what in _WHATS
                    ]
                lines.append(f"{kind.name:<26}" + "".join(cells))
    return "\n".join(lines)


_WHATS: Final = ("JSON request", "short stream", "paced token")


def _cost(server: Server, effort: Effort, what: str, store: bool) -> float:
    """Seconds of CPU for one."""
    asked: dict[str, Any] = {"input": "x", "store": store, "stream": what != "JSON request"}
    if what == "paced token":
        asked["model"] = "paced"
        threads = [threading.Thread(target=_ask, args=(server, asked)) for _ in range(effort.streams)]
        before = _spent(server)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (_spent(server) - before) / (effort.streams * _PACED)
    asked["model"] = "short"
    _ask(server, asked)
    before = _spent(server)
    for _ in range(effort.requests):
        _ask(server, asked)
    return (_spent(server) - before) / effort.requests


def _ask(server: Server, asked: dict[str, Any]) -> None:
    if call(server.base, "POST", "/v1/responses", asked).status != 200:
        raise RuntimeError("a request was refused")


def _spent(server: Server) -> float:
    """Seconds of CPU so far, of all its threads."""
    fields = Path(f"/proc/{server.process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def _cell(kept: float, plain: float) -> str:
    return f"{kept * 1e6:,.0f} / {plain * 1e6:,.0f} {kept / max(plain, 1e-9):>5.2f} ×".rjust(20)
