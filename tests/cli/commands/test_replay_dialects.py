"""`replay` from every dialect into every other: recorded streams, recognised by their content."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from openresponses_cli.commands.cli import main
from openresponses_server.observation.recordings.dialects import DIALECTS, ENCODERS
from tests.support.shared import shared_files

RECORDED = [
    *((name, file) for name in ("chat", "anthropic", "codex", "responses") for file in shared_files(name)),
    *(("responses", file) for file in shared_files("responses-inline")),
    *(("responses", file) for file in shared_files("openresponses")),
    *(("chat", file) for file in shared_files("chat-irespdelta", "*.sse")),
]


def run(*arguments: str, stdin: bytes = b"") -> tuple[int, bytes]:
    result = CliRunner().invoke(main, arguments, input=stdin)
    return result.exit_code, result.stdout_bytes


def marked() -> list[object]:
    return [
        pytest.param(name, *file.values, id=f"{name}-{file.id}", marks=file.marks) for name, file in RECORDED
    ]


@pytest.mark.parametrize(("dialect", "capture"), marked())
def test_a_recorded_stream_replays_from_its_dialect_to_all(dialect: str, capture: Path) -> None:
    sent = {sink: run("replay", str(capture), "--to", sink) for sink in ENCODERS}
    assert {code for code, _ in sent.values()} == {0}
    assert sent["responses"] == run("replay", str(capture), "--from", dialect, "--to", "responses")
    for wire in ("responses", "openai"):
        assert run("validate", stdin=sent[wire][1]) == (0, b"")


@pytest.mark.parametrize("sink", ["anthropic", "chat", "copilot", "vscode", "openai", "responses"])
def test_what_replay_writes_it_reads_again(sink: str) -> None:
    """The text and the call survive a way out and back through each dialect."""
    capture = b"".join(
        b"data: "
        + json.dumps({"id": "c", "model": "m", "created": 5, "choices": [choice]}).encode()
        + b"\n\n"
        for choice in (
            {"index": 0, "delta": {"content": "Let me "}},
            {"index": 0, "delta": {"content": "look."}},
            {"index": 0, "delta": {"tool_calls": [_call("call_1", '{"city": ')]}},
            {"index": 0, "delta": {"tool_calls": [_call("", '"Paris"}')]}},
            {"index": 0, "delta": {}, "finish_reason": "tool_calls"},
        )
    )
    code, foreign = run("replay", "--to", sink, stdin=capture)
    assert code == 0
    code, snapshot = run(
        "replay", "--from", sink if sink in DIALECTS else "responses", "--to", "snapshot", stdin=foreign
    )
    assert code == 0
    output = json.loads(snapshot)["output"]
    assert output[0]["content"][0]["text"].strip() == "Let me look."
    assert (output[1]["name"], json.loads(output[1]["arguments"])) == ("lookup", {"city": "Paris"})


@pytest.mark.parametrize(
    "lines",
    [
        [
            {"type": "response.output_text.delta", "delta": "Hi"},
            {"type": "response.completed", "response": {}},
        ],
        [
            {"type": "agent_message_delta", "delta": "Hi"},
            {"type": "task_complete"},
        ],
        [
            {"id": "0", "msg": {"type": "agent_message_delta", "delta": "Hi"}},
            {"id": "0", "msg": {"type": "task_complete"}},
        ],
        [
            {"method": "codex/event/agent_message_delta", "params": {"msg": {"delta": "Hi"}}},
            {"method": "codex/event/task_complete", "params": {}},
        ],
        [
            {"method": "item/agentMessage/delta", "params": {"itemId": "m", "delta": "Hi"}},
            {"method": "turn/completed", "params": {"turn": {"status": "completed"}}},
        ],
    ],
)
def test_codex_is_found_in_each_of_its_generations(lines: list[object]) -> None:
    capture = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    code, snapshot = run("replay", "--to", "snapshot", stdin=capture)
    assert (code, json.loads(snapshot)["status"]) == (0, "completed")
    assert json.loads(snapshot)["output"][0]["content"][0]["text"] == "Hi"


TOOL_THEN_TEXT = b"".join(
    json.dumps(line).encode() + b"\n"
    for line in (
        {"type": "response.output_item.done", "item": {"type": "function_call", "call_id": "a", "name": "f"}},
        {"type": "response.output_text.delta", "delta": "Done."},
        {"type": "response.completed", "response": {}},
    )
)


@pytest.mark.parametrize(
    ("flags", "passes"),
    [([], False), (["--text-after-tools"], True), (["--no-text-after-tools"], False)],
)
def test_text_after_a_tool_call_goes_from_codex_to_chat_only_when_asked_for(
    flags: list[str], passes: bool
) -> None:
    code, chat = run("replay", "--to", "chat", *flags, stdin=TOOL_THEN_TEXT)
    assert (code, b"Done." in chat) == (0, passes)
    assert chat.count(b'"finish_reason":"tool_calls"') == 1
    assert chat.endswith(b"data: [DONE]\n\n")
    code, events = run("replay", "--to", "responses", *flags, stdin=TOOL_THEN_TEXT)
    assert (code, b"Done." in events) == (0, True)


@pytest.mark.parametrize(
    ("flags", "passes"),
    [([], True), (["--text-after-tools"], True), (["--no-text-after-tools"], False)],
)
def test_text_after_a_tool_call_goes_from_other_dialects_to_chat(flags: list[str], passes: bool) -> None:
    _, events = run("replay", "--to", "responses", stdin=TOOL_THEN_TEXT)
    code, chat = run("replay", "--to", "chat", *flags, stdin=events)
    assert (code, b"Done." in chat) == (0, passes)


def _call(call_id: str, arguments: str) -> dict[str, object]:
    function: dict[str, object] = {"arguments": arguments}
    if call_id:
        return {"index": 0, "id": call_id, "type": "function", "function": {"name": "lookup", **function}}
    return {"index": 0, "function": function}
