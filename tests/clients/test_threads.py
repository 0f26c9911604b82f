"""Claude Code and Anthropic's SDK for Node.js send a thread: only the new messages, or all messages once they
are told that the thread can't be continued. Their model gets all messages over every upstream (law N3)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.clients.claude_code import does_the_task
from tests.support import dialect_scripts as scripts
from tests.support.serving import call, serving
from tests.support.upstream import Received, Script, ScriptedUpstream

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]
COMMAND = "echo marked-$((40+2))"


@pytest.mark.parametrize("searches", ["", "true"], ids=["all tools", "tool search"])
@pytest.mark.parametrize("threads", ["0", "1"], ids=["whole", "thread"])
@pytest.mark.parametrize("name", ["chat", "anthropic", "gemini", "responses"])
def test_n3_claude_code_does_a_task(
    node: Path, tmp_path: Path, name: str, threads: str, searches: str
) -> None:
    def answer(asked: Received) -> Script:
        text = asked.raw.decode()
        if "marked-42" in text:
            return Script(scripts.text(name, "All done"))
        if "Do the task" in text and '"Bash"' in text:
            tool_call = ("toolu_1", "Bash", json.dumps({"command": COMMAND, "description": "Mark"}))
            return Script(scripts.call(name, tool_call))
        return Script(scripts.text(name, "ok"))

    with ScriptedUpstream() as upstream:
        upstream.answer = answer
        reached = UpstreamSettings(name=name, url=upstream.url, dialect=name)
        with serving(Settings(upstreams=[reached])) as base:
            variables = {"CLAUDE_CODE_TETHER_LIVE": threads, "ENABLE_TOOL_SEARCH": searches}
            done = does_the_task(node, tmp_path, base, "--allowedTools", "Bash", **variables)
        assert done["result"] == "All done"
        last = upstream.received[-1].raw.decode()
        assert "Do the task" in last
        assert "marked-42" in last


@pytest.mark.parametrize("name", ["chat", "anthropic", "gemini", "responses"])
def test_n3_a_tool_runner_s_model_sees_all(node: Path, name: str) -> None:
    shutil.copy(Path(__file__).parent / "js" / "tool_runner.mjs", node / "tool_runner.mjs")
    calls = [(f"call_{place}", "look", json.dumps({"place": place})) for place in "ab"]
    answers = [*(Script(scripts.call(name, each)) for each in calls), Script(scripts.text(name, "Hello"))]
    with ScriptedUpstream({"m": answers}) as upstream:
        reached = UpstreamSettings(name=name, url=upstream.url, dialect=name)
        with serving(Settings(upstreams=[reached])) as base:
            command = ["node", "tool_runner.mjs", base, "m"]
            done = subprocess.run(command, cwd=node, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr[-2000:]
            last = json.loads(done.stdout)
            response = call(base, "GET", f"/v1/responses/{last['id']}").json
        rounds = [each.raw.decode() for each in upstream.received]
    assert last["text"] == "Hello"
    assert response["previous_response_id"]
    assert [each for each in rounds if "zebra" not in each] == []
    assert ["seen a" in each for each in rounds] == [False, True, True]
