"""`agent` with tools that the server runs: approvals, calls, citations, and words that mean harm."""

import io
import json
import os
import pty
import shlex
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from openresponses_agent.loop import ApprovalRequest, Citation, LoopBegun, LoopView, RoundMade, ToolCallRound
from openresponses_agent.tools.errors import CancellationToken
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_cli.agents.html import html_of
from openresponses_cli.agents.screen import (
    ConfirmationPrompt,
    OutputStream,
    Screen,
    approval_panel,
    citation_lines,
    render,
)
from openresponses_cli.commands.cli import main
from tests.support.agents import MODEL
from tests.support.document_blocks import commands
from tests.support.mcp_http import HttpPeer
from tests.support.upstream import Received, Script, ScriptedUpstream, call, chunk

FUNCTION = "mcp__weather__get_forecast"
HOSTILE = "\x1b]8;;https://evil.example\x07\x1b[2J\u202egnp.exe [bold]x[/bold] <img src=x onerror=alert(1)>"
CITED = [
    {"url": "https://example.com/rain", "title": "Rain"},
    {"url": "javascript:alert(1)", "title": HOSTILE},
    {"url": f"https://example.com/{HOSTILE}", "title": ""},
    {"url": "https://example.com/rain", "title": "Rain again"},
]


class Weather:
    """A config with an MCP server, and a model that calls its tool once and cites what it likes."""

    def __init__(self, folder: Path, upstream: ScriptedUpstream, peer: HttpPeer) -> None:
        self.upstream, self.peer, self.folder = upstream, peer, folder
        self.arguments = '{"city":"Oslo"}'
        upstream.answer = self._answer
        self.config = folder / "bridge.toml"
        self.config.write_text(
            f'mcp_private_hosts = ["{urlsplit(peer.upstream.url).netloc}"]\n'
            f'[[upstreams]]\nurl = "{upstream.url}"\nname = "{MODEL}"\nmodels = ["{MODEL}"]\n'
            f'[[mcp_servers]]\nname = "weather"\nurl = "{peer.upstream.url}/mcp"\n'
        )

    def _answer(self, received: Received) -> Script:
        messages = received.body["messages"]
        if messages[-1]["role"] != "tool":
            steps = [call(0, self.arguments, FUNCTION, "call_up_1"), chunk("tool_calls"), b"data: [DONE]\n\n"]
            return Script(steps)
        text = f"Told: {messages[-1]['content']}"
        places = {"start_index": 0, "end_index": 4}
        cites = [{"type": "url_citation", "url_citation": each | places} for each in CITED]
        return Script([chunk(content=text), chunk(annotations=cites), chunk("stop"), b"data: [DONE]\n\n"])

    def run(self, *arguments: str, task: str = "Rain?") -> Result:
        command = ["agent", task, "--config", str(self.config), "--model", MODEL]
        command += ["--folder", str(self.folder), *arguments]
        return CliRunner().invoke(main, command, env={"COLUMNS": "100"})

    @property
    def calls(self) -> list[Any]:
        return [each.body["params"]["arguments"] for each in self.peer.asked("tools/call")]


@pytest.fixture
def weather(tmp_path: Path) -> Iterator[Weather]:
    with ScriptedUpstream() as upstream, ScriptedUpstream() as behind:
        peer = HttpPeer(behind)
        tool = {"name": "get_forecast", "inputSchema": {"type": "object"}}
        peer.results["tools/list"] = {"tools": [tool]}
        peer.results["tools/call"] = {"content": [{"type": "text", "text": f"Rain {HOSTILE}"}]}
        yield Weather(tmp_path, upstream, peer)


def test_without_a_terminal_a_call_is_declined_and_it_is_said(weather: Weather) -> None:
    result = weather.run("--mcp", "weather")
    assert (result.exit_code, weather.calls) == (0, [])
    assert "asks to run this call" in result.output
    assert "Declined, since there is no terminal to ask at; --yes allows every call." in result.output
    assert "✗ Declined" in result.output
    content = weather.upstream.received[-1].body["messages"][-1]["content"]
    assert content == "This call was declined: Error: Not allowed - the user declined this call"


def test_with_yes_it_is_approved_run_and_shown(weather: Weather) -> None:
    result = weather.run("--mcp", "weather", "--yes")
    assert (result.exit_code, weather.calls) == (0, [{"city": "Oslo"}])
    for words in (
        "mcp_list_tools (run by the MCP server weather)",
        "🔧 get_forecast (run by the MCP server weather)",
        "✓ Approved",
        "✓ Complete in ",
        "[1] Rain https://example.com/rain",
        "[2] ",
        "[3] https://example.com/",
    ):
        assert words in result.output, words
    assert "[4]" not in result.output
    assert not any(sign in result.output for sign in "\x1b\x07\u202e")


def test_the_command_of_the_page(weather: Weather, monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = commands("docs/agent.md", "Tools that the server runs")
    program, *arguments = shlex.split(command)
    assert program == "openresponses-bridge"
    monkeypatch.chdir(weather.folder)
    result = CliRunner().invoke(main, [*arguments, "--yes"], env={"COLUMNS": "100"})
    assert (result.exit_code, weather.calls) == (0, [{"city": "Oslo"}])


def test_stateful_rounds_send_the_decision_alone(weather: Weather) -> None:
    result = weather.run("--mcp", "weather", "--yes", "--stateful")
    assert (result.exit_code, weather.calls) == (0, [{"city": "Oslo"}])


def test_a_failed_call_is_shown_with_its_error(weather: Weather) -> None:
    weather.peer.results["tools/call"] = {
        "content": [{"type": "text", "text": "the station is down"}],
        "isError": True,
    }
    result = weather.run("--mcp", "weather", "--yes")
    assert "✗ Failed in " in result.output
    assert "the station is down" in result.output


def test_the_limit_of_calls_is_sent_and_shown(weather: Weather) -> None:
    result = weather.run("--mcp", "weather", "--yes", "--max-tool-calls", "1")
    assert result.exit_code == 0
    assert "as often as allowed: 1 (max_tool_calls)" in result.output


def test_as_json_the_rounds_have_items_and_decisions(weather: Weather) -> None:
    result = weather.run("--mcp", "weather", "--yes", "--json")
    document = json.loads(result.stdout)
    first, second = document["toolCallRounds"]
    assert [item["type"] for item in first["items"]] == ["mcp_list_tools", "mcp_approval_request"]
    assert second["items"][0]["approval_request_id"] == first["items"][1]["id"]
    assert [each["url"] for each in second["citations"]] == [each["url"] for each in CITED[:3]]
    assert list(document["toolCallResults"]) == [f"approval_{first['items'][1]['id']}"]


def test_a_run_that_was_stopped_does_not_send_its_approval_again(weather: Weather, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    weather.run("--mcp", "weather", "--yes", "--resume", str(journal))
    lines = journal.read_bytes().splitlines(True)
    kinds = [json.loads(line)["type"] for line in lines]
    assert kinds == ["begun", "round", "calls", "result", "round", "end"]
    journal.write_bytes(b"".join(lines[:4]))  # it was approved, and the process ended
    result = weather.run("--mcp", "weather", "--yes", "--resume", str(journal), task="")
    assert (result.exit_code, len(weather.calls)) == (0, 1)
    assert "may have had its effect" in weather.upstream.received[-1].body["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mcp", "nobody"], "the config has no MCP server 'nobody' (it has: 'weather')"),
        (["--max-tool-calls", "0"], "--max-tool-calls"),
    ],
)
def test_what_is_given_wrong_is_refused(weather: Weather, arguments: list[str], words: str) -> None:
    result = weather.run(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


@pytest.mark.parametrize(("typed", "allowed"), [(b"y\n", True), (b"n\n", False), (b"\n", False)])
async def test_the_user_is_asked_at_the_terminal(
    typed: bytes, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(termios, "tcflush", lambda *_: os.write(master, typed))
        out = io.StringIO()
        screen = Screen(OutputStream(file=out, width=100))
        prompt = ConfirmationPrompt(screen, CancellationToken())
        approval = ApprovalRequest("a", "mcpr_1", "weather", "get_forecast", '{"city":"Oslo"}')
        assert await prompt.approve(approval) is allowed
    os.close(master)
    shown = out.getvalue()
    for words in ("MCP server: weather", "Tool: get_forecast", 'Arguments: {"city":"Oslo"}'):
        assert words in shown
    assert shown.endswith("Allow this call? [y/N] ")


def printed(*shown: Any) -> str:
    out = io.StringIO()
    console = OutputStream(file=out, width=100, force_terminal=True, color_system=None)
    for each in shown:
        console.print(each)
    return out.getvalue()


def test_what_is_to_be_approved_can_not_draw_lines_or_hide() -> None:
    fake = "x\nTool: harmless\nAllow this call? [y/N] "
    approval = ApprovalRequest("a", "b", fake + HOSTILE, HOSTILE, f'{{"a": "{HOSTILE}",\n\n\n"b": 1}}')
    shown = printed(approval_panel(approval))
    assert not any(sign in shown for sign in "\x1b\x07\u202e\r")
    assert "Tool: harmless" not in [line.strip("│ ") for line in shown.splitlines()]
    assert sum("Tool: " in line.strip("│ ")[:6] for line in shown.splitlines()) == 1
    assert '"b": 1' in " ".join(shown.split())


def test_arguments_that_are_not_wholly_shown_are_said_to_be() -> None:
    approval = ApprovalRequest("a", "b", "w", "t", json.dumps({"text": "x" * 1_000_000}))
    shown = printed(approval_panel(approval))
    assert len(shown) < 20_000
    assert "The arguments are longer than shown: there are 992012 more characters." in shown


def test_citations_are_bounded_and_harmless() -> None:
    many = [Citation(f"https://example.com/{number}/{'y' * 10_000}", HOSTILE * 100) for number in range(500)]
    shown = printed(*citation_lines(many))
    assert "… 450 more pages" in shown
    assert len(shown) < 50 * 4_000
    assert not any(sign in shown for sign in "\x1b\x07\u202e")


def test_the_page_of_a_run_links_to_the_web_alone() -> None:
    view = LoopView()
    item = {"type": "mcp_call", "id": "i", "server_label": HOSTILE, "name": HOSTILE, "output": HOSTILE}
    cites = [Citation(each["url"], each["title"]) for each in CITED[:3]]
    tool_round = ToolCallRound(prompt=[], response="See.", tool_calls=[], items=[item], citations=cites)
    view.entry(LoopBegun("q"))
    view.entry(RoundMade(tool_round))
    html = html_of(view)
    assert html.count("<a ") == 2
    assert html.count('rel="noopener noreferrer nofollow"') == 2
    assert 'href="javascript:' not in html
    assert "<img" not in html
    assert not any(sign in html for sign in "\x1b\x07\u202e")
    shown = printed(render(view))
    assert "\u202e" not in shown


def test_megabytes_of_a_result_are_shortened() -> None:
    view = LoopView()
    item = {"type": "mcp_call", "id": "i", "server_label": "w", "name": "t", "status": "completed"}
    view.hosted(UnknownItem({**item, "output": "x" * 3_000_000, "arguments": "y" * 1_000_000}), True)
    assert len(printed(render(view))) < 10_000
