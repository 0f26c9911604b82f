"""Requests for several choices, and upstreams that fail within one."""

from __future__ import annotations

from typing import Any

from tests.support.serving import Reply, call
from tests.support.upstream import CUT, Script, chunk, refusal

PATH = "/v1/chat/completions"


TURN: Any = [{"role": "user", "content": "Hi"}]


def ask(
    base: str, headers: dict[str, str] | None = None, into: bytearray | None = None, **fields: Any
) -> Reply:
    return call(base, "POST", PATH, {"model": "m", "messages": TURN, "n": 2, **fields}, headers, into)


FAULTS: dict[str, Script] = {
    "refused": refusal(500, code="broken", message="No."),
    "cut": Script([chunk(content="half"), CUT]),
    "in band": Script([chunk(content="half"), b'data: {"error":{"code":"broken","message":"No."}}\n\n']),
}
