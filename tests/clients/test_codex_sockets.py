"""The real Codex, thirty turns of one session, in front of an upstream with WebSockets: all turns use one
connection, and each request is sent as a difference, in a fraction of the bytes that it takes over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.codex_exec import Codex
from tests.support.serving import serving
from tests.support.socket_upstream import Call, SocketUpstream

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

TURNS = 30


def say(body: dict[str, Any]) -> list[str | Call]:
    """Call a command in each turn but the last one."""
    done = sum(item.get("type") == "function_call_output" for item in body["input"])
    if done == TURNS - 1:
        return ["All is done."]
    command = json.dumps({"cmd": f"echo turn {done}"})
    return [f"Now comes number {done}.", Call(f"call_{done}", "exec_command", command)]


@pytest.mark.parametrize("websockets", [False, True], ids=["over HTTP", "over a WebSocket"])
def test_thirty_turns_are_one_connection(node: Path, tmp_path: Path, websockets: bool) -> None:
    """This holds whether Codex itself uses HTTP or a WebSocket to reach the server."""
    with SocketUpstream(say) as upstream:
        one = UpstreamSettings(name="up", url=upstream.url, dialect="responses", websocket=True)
        with serving(Settings(store="memory://", upstreams=[one])) as base:
            codex = Codex(node, f"{base}/v1", tmp_path)
            assert codex.run("Do it thirty times.", model="unknown-model", websockets=websockets) == 0
    assert [item["text"] for item in codex.items("agent_message")][-1] == "All is done."
    assert len(upstream.turns) == TURNS
    assert upstream.received == []
    assert len(upstream.handshakes) == 1
    assert ["previous_response_id" in turn.message for turn in upstream.turns] == [False] + [True] * (
        TURNS - 1
    )
    sent, over_http = (sum(getattr(turn, name) for turn in upstream.turns) for name in ("size", "whole"))
    print(f"{sent} bytes instead of {over_http}")
    assert sent < over_http
