"""Claude Code's requests beyond plain messages: in auto mode it asks for a verdict on each action, which only
an upstream of its own API gives, and it searches for tools before it calls them."""

import json
import sys
from pathlib import Path

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.clients.claude_code import does_the_task
from tests.support import anthropic
from tests.support import dialect_scripts as scripts
from tests.support.serving import serving
from tests.support.shared import REPOSITORY
from tests.support.upstream import Received, Script, ScriptedUpstream

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]
RUN = {"command": 'python3 -c \'print("marked-" + str(40 + 2)); open("ran", "w")\'', "description": "Mark"}
CALL = ("toolu_1", "Bash", json.dumps(RUN))
WEATHER = REPOSITORY / "tests" / "support" / "mcp_weather.py"
DESCRIBED = '"city"'
"""A text that only the tool's definition contains."""
SERVED = ["chat", "anthropic", "gemini", "responses"]


def judged(outcome: str) -> Script:
    """A call, and the verdict of Anthropic's server on it."""
    verdict = {"type": "evaluated", "outcome": outcome, "explanation": "It says so."}
    status = {"type": "available", "tool_uses": {CALL[0]: verdict}}
    ended = {"stop_reason": "tool_use", "stop_sequence": None}
    ended |= {"safeguard_results": [{"type": "dangerous_tool_use", "status": status}]}
    end = anthropic.frame("message_delta", delta=ended, usage={"output_tokens": 9})
    frames = [*anthropic.tool(0, *CALL), end, anthropic.frame("message_stop")]
    return Script(scripts.named(anthropic.start(), *frames))


def has_bash(asked: Received) -> bool:
    """Return whether the request is for the task, and not one of the small requests that it sends besides."""
    return '"Bash"' in asked.raw.decode() and "Do the task" in asked.raw.decode()


@pytest.mark.parametrize("outcome", ["not_flagged", "flagged"])
def test_auto_mode_runs_what_anthropic_s_server_allows(node: Path, tmp_path: Path, outcome: str) -> None:
    """The request for a verdict has its beta header, and the verdict comes back under the call's own id."""

    def answer(asked: Received) -> Script:
        if not has_bash(asked):
            return Script(scripts.text("anthropic", "ok"))
        return (
            Script(scripts.text("anthropic", "All done"))
            if "tool_result" in str(asked.body)
            else judged(outcome)
        )

    with ScriptedUpstream() as upstream:
        upstream.answer = answer
        reached = UpstreamSettings(name="a", url=upstream.url, dialect="anthropic")
        with serving(Settings(upstreams=[reached])) as base:
            done = does_the_task(node, tmp_path, base, "--permission-mode", "auto")
        first, *_, last = filter(has_bash, upstream.received)
    assert first.body["safeguards"][0]["type"] == "dangerous_tool_use"
    assert "dangerous-tool-use" in first.headers["anthropic-beta"]
    assert done["result"] == "All done"
    assert (tmp_path / "ran").exists() is (outcome == "not_flagged")
    assert ("marked-42" in last.raw.decode()) is (outcome == "not_flagged")


@pytest.mark.parametrize("name", [each for each in SERVED if each != "anthropic"])
def test_auto_mode_runs_nothing_that_nobody_judged(node: Path, tmp_path: Path, name: str) -> None:
    """Without a verdict, Claude Code itself says that it did not run the action."""
    with ScriptedUpstream() as upstream:
        upstream.answer = lambda asked: Script(
            scripts.call(name, CALL) if has_bash(asked) else scripts.text(name, "ok")
        )
        reached = UpstreamSettings(name=name, url=upstream.url, dialect=name)
        with serving(Settings(upstreams=[reached])) as base:
            done = does_the_task(node, tmp_path, base, "--permission-mode", "auto", "--max-turns", "3")
    assert not (tmp_path / "ran").exists()
    assert done["is_error"]


@pytest.mark.parametrize("name", SERVED)
def test_a_tool_that_is_kept_back_is_searched_for_and_called(node: Path, tmp_path: Path, name: str) -> None:
    """The model is offered the tool after the search, and gets the tool's output."""
    tool = "mcp__weather__get_forecast"

    def answer(asked: Received) -> Script:
        text = asked.raw.decode()
        if not has_bash(asked):
            return Script(scripts.text(name, "ok"))
        if "Rain in Lima" in text:
            return Script(scripts.text(name, "All done"))
        call = ("toolu_2", tool, json.dumps({"city": "Lima"}))
        if "toolu_1" not in text:
            call = ("toolu_1", "ToolSearch", json.dumps({"query": f"select:{tool}"}))
        return Script(scripts.call(name, call))

    servers = {"weather": {"command": sys.executable, "args": [str(WEATHER)]}}
    flags = ("--mcp-config", json.dumps({"mcpServers": servers}), "--allowedTools", tool)
    with ScriptedUpstream() as upstream:
        upstream.answer = answer
        reached = UpstreamSettings(name=name, url=upstream.url, dialect=name)
        with serving(Settings(upstreams=[reached])) as base:
            done = does_the_task(node, tmp_path, base, *flags, "--max-turns", "4", ENABLE_TOOL_SEARCH="true")
        rounds = [json.dumps(each.body) for each in upstream.received if has_bash(each)]
    assert done["result"] == "All done"
    assert [DESCRIBED in each for each in rounds] == [False, True, True]
