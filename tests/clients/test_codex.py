"""Codex CLI over a model that has only functions: a shell command, a patch, a refusal."""

import json
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support.codex_exec import Codex
from tests.support.conversation_turns import InTurn, calls, results, said, tool_names
from tests.support.serving import serving
from tests.support.upstream import Script, ScriptedUpstream, frame, refusal

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]

PATCH = "*** Begin Patch\n*** Add File: made.txt\n+first line\n+second line\n*** End Patch\n"


@pytest.fixture
def codex(node: Path, base: str, tmp_path: Path) -> Codex:
    return Codex(node, base, tmp_path)


def test_shell_command_and_patch_through_functions(codex: Codex, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(
        calls(("call_1", "exec_command", {"cmd": "echo ran > shell.txt && echo told-by-shell"})),
        calls(("call_2", "apply_patch", {"input": PATCH})),
        said("All", " done."),
    )
    assert codex.run("Do it.") == 0
    assert (codex.work / "shell.txt").read_text() == "ran\n"
    assert (codex.work / "made.txt").read_text() == "first line\nsecond line\n"
    assert [item["text"] for item in codex.items("agent_message")] == ["All done."]
    assert {"exec_command", "apply_patch"} <= tool_names(upstream, 0)
    sent = results(upstream)
    assert "told-by-shell" in sent["call_1"]
    assert "made.txt" in sent["call_2"]


def test_shell_command_over_websocket(codex: Codex, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(
        calls(("call_1", "exec_command", {"cmd": "echo ran > shell.txt"})), said("All", " done.")
    )
    assert codex.run("Do it.", websockets=True) == 0
    assert (codex.work / "shell.txt").read_text() == "ran\n"
    assert [item["text"] for item in codex.items("agent_message")] == ["All done."]


def test_two_commands_in_parallel_for_a_model_codex_does_not_know(
    codex: Codex, upstream: ScriptedUpstream
) -> None:
    upstream.scripts = InTurn(
        calls(
            ("call_1", "exec_command", {"cmd": "echo one > one.txt"}),
            ("call_2", "exec_command", {"cmd": "echo two > two.txt"}),
        ),
        said("Both."),
    )
    assert codex.run("Do it.", model="some-model") == 0
    assert (codex.work / "one.txt").read_text() == "one\n"
    assert (codex.work / "two.txt").read_text() == "two\n"
    assert set(results(upstream)) == {"call_1", "call_2"}


def test_reasoning_is_shown(codex: Codex, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(said("Hello.", reasoning="The user greets."))
    assert codex.run("Hello.") == 0
    assert [item["text"] for item in codex.items("agent_message")] == ["Hello."]


def test_an_upstream_s_refusal_ends_the_turn(codex: Codex, upstream: ScriptedUpstream) -> None:
    upstream.scripts = InTurn(*[refusal(400, message="Too much was asked.", code="invalid_prompt")] * 5)
    assert codex.run("Hello.") != 0
    failed = [event for event in codex.events if event["type"] in ("error", "turn.failed")]
    assert "Too much was asked." in json.dumps(failed)


OVERLOADED = {"code": "server_is_overloaded", "message": "Later."}
FAILED = {
    "id": "r",
    "object": "response",
    "status": "failed",
    "model": "m",
    "output": [],
    "error": OVERLOADED,
}


@pytest.mark.parametrize(
    ("dialect", "busy"),
    [
        ("chat", refusal(503, **OVERLOADED)),
        ("chat", refusal(429, **OVERLOADED)),
        ("responses", Script([frame(type="response.failed", sequence_number=0, response=FAILED)])),
    ],
    ids=["503", "429", "in its stream"],
)
@pytest.mark.parametrize("websockets", [False, True])
def test_case_46_an_overload_is_asked_again_over(
    node: Path, tmp_path: Path, dialect: Any, busy: Script, websockets: bool
) -> None:
    with ScriptedUpstream() as upstream:
        upstream.answer = lambda received: busy
        settings = UpstreamSettings(url=upstream.url, dialect=dialect)
        with serving(Settings(store="memory://", upstreams=[settings])) as address:
            codex = Codex(node, f"{address}/v1", tmp_path)
            assert codex.run("Hello.", websockets=websockets, retries=1) != 0
    assert len(upstream.received) > 1
    assert "Selected model is at capacity" not in json.dumps(codex.events)
