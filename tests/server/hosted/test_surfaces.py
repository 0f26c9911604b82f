"""Searches that the server runs, for clients of every surface; the settings of such tools as they are
shown."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from openresponses_server.commands.cli import main
from tests.server.hosted.test_web_search import SEARCH, calling, searching, searxng
from tests.support.serving import call, stream
from tests.support.sockets import opened_socket
from tests.support.upstream import Script, ScriptedUpstream, text

__all__ = ["searching", "searxng"]


def test_a_search_on_a_websocket(searching: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = [calling("web_search", '{"query":"x"}'), Script(text("Well."))]
    with opened_socket(searching) as socket:
        turn = socket.turn(model="m", input="x", tools=SEARCH)
    assert [item["type"] for item in turn.final["output"]] == ["web_search_call", "message"]


@pytest.mark.parametrize("streamed", [True, False])
def test_a_search_of_a_chat_client(searching: str, upstream: ScriptedUpstream, streamed: bool) -> None:
    upstream.scripts["m"] = [calling("web_search", '{"query":"x"}'), Script(text("Well."))]
    messages = [{"role": "user", "content": "x"}]
    body = {"model": "m", "messages": messages, "web_search_options": {}, "stream": streamed}
    reply = call(searching, "POST", "/v1/chat/completions", body)
    assert reply.status == 200
    assert b"Well." in reply.body
    assert b"tool_calls" not in reply.body.replace(b'"tool_calls":null', b"")
    assert "rain" in str(upstream.received[-1].body["messages"][-1])


@pytest.mark.parametrize("streamed", [True, False])
def test_a_search_of_a_messages_client(searching: str, upstream: ScriptedUpstream, streamed: bool) -> None:
    upstream.scripts["m"] = [calling("web_search", '{"query":"x"}'), Script(text("Well."))]
    tools = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]
    messages = [{"role": "user", "content": "x"}]
    body = {"model": "m", "max_tokens": 9, "messages": messages, "tools": tools, "stream": streamed}
    reply = call(searching, "POST", "/v1/messages", body)
    assert reply.status == 200
    assert b"Well." in reply.body
    assert b"server_tool_use" in reply.body
    assert b"end_turn" in reply.body


def test_a_search_may_have_a_most_of_uses(searching: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = [*[calling("web_search", '{"query":"x"}')] * 2, Script(text("Well."))]
    final = stream(searching, model="m", tools=[{"type": "web_search", "max_uses": 1}]).final
    assert [item["status"] for item in final["output"]] == ["completed", "failed", "completed"]


def test_settings_are_shown_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from openresponses_bridge.tools import ToolRegistry\nregistry = ToolRegistry()\n"
    )
    config = tmp_path / "c.toml"
    config.write_text(
        '[web_search]\nprovider = "brave"\napi_key = "hidden"\n[[functions]]\nmodule = "mine.py"\n'
    )
    for flags in ([], ["--all"]):
        shown = CliRunner().invoke(main, ["config", "check", str(config), *flags])
        assert shown.exit_code == 0, shown.output
        assert "[[functions]]" in shown.output
        assert "hidden" not in shown.output
    config.write_text('[web_search]\nprovider = "searxng"\n')
    wrong = CliRunner().invoke(main, ["config", "check", str(config)])
    assert wrong.exit_code == 1
    assert "web_search" in wrong.output
