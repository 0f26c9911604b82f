"""A capture that holds several answers: each is a response of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner

from openresponses_cli.commands.cli import main

DONE = b"data: [DONE]\n\n"


def sse(*payloads: Mapping[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(payload).encode() + b"\n\n" for payload in payloads)


def chat(answer: str, text: str, **delta: Any) -> bytes:
    def chunk(finish: str | None, **said: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": said, "finish_reason": finish}
        return {"id": answer, "object": "chat.completion.chunk", "model": "m", "choices": [choice]}

    usage = {"id": answer, "model": "m", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    return sse(chunk(None, role="assistant", **delta), chunk(None, content=text), chunk("stop"), usage)


def whole_chat(answer: str, text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": answer, "object": "chat.completion", "choices": [choice]}).encode() + b"\n"


def anthropic(answer: str, text: str) -> bytes:
    return sse(
        {"type": "message_start", "message": {"id": answer, "model": "claude", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )


def whole_anthropic(answer: str, text: str) -> bytes:
    content = [{"type": "text", "text": text}]
    message = {"type": "message", "id": answer, "role": "assistant", "content": content}
    return json.dumps({**message, "stop_reason": "end_turn"}).encode() + b"\n"


def lines(*frames: Mapping[str, Any]) -> bytes:
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


def codex(turn: str, text: str, **wrapped: Any) -> bytes:
    """A turn as the app-server reports it, in both generations side by side."""

    def said(method: str, **params: Any) -> dict[str, Any]:
        message = {"method": method, "params": {"threadId": "t", "turnId": turn, **params}}
        return {"dir": "in", "msg": message} if wrapped else message

    def legacy(kind: str, **more: Any) -> dict[str, Any]:
        return said(f"codex/event/{kind}", id=turn, msg={"type": kind, **more})

    item = {"type": "agentMessage", "id": f"m_{turn}"}
    counts = {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}
    return lines(
        said("turn/started", turn={"id": turn, "status": "inProgress"}),
        legacy("task_started"),
        said("item/started", item={**item, "text": ""}),
        said("item/agentMessage/delta", itemId=item["id"], delta=text),
        legacy("agent_message_delta", delta=text),
        said("item/completed", item={**item, "text": text}),
        legacy("task_complete", last_agent_message=text),
        said("thread/tokenUsage/updated", tokenUsage={"total": counts, "last": counts}),
        said("turn/completed", turn={"id": turn, "status": "completed"}),
    )


def legacy_codex(turn: str, text: str) -> bytes:
    return lines(
        {"id": turn, "msg": {"type": "agent_message_delta", "delta": text}},
        {"id": turn, "msg": {"type": "agent_message", "message": text}},
        {"id": turn, "msg": {"type": "task_complete", "last_agent_message": text}},
    )


def proxied(text: str) -> bytes:
    return lines(
        {"type": "response.output_text.delta", "delta": text},
        {"type": "response.completed", "response": {}},
    )


TEXTS = ("One.", "Two.", "Three.")
CAPTURES = {
    "chat": chat("a", "One.") + DONE + chat("b", "Two.") + DONE + chat("c", "Three.") + DONE,
    "chat with one id for all": chat("a", "One.") + DONE + chat("a", "Two.") + DONE + chat("a", "Three."),
    "chat without [DONE]": chat("a", "One.") + chat("b", "Two.") + chat("c", "Three."),
    "whole completions": b"".join(whole_chat("a", text) for text in ("One.", "Two.", "Three.")),
    "anthropic": b"".join(anthropic(f"msg_{text}", text) for text in ("One.", "Two.", "Three.")),
    "codex": b"".join(codex(text, text) for text in TEXTS),
    "codex as it is recorded": b"".join(codex(text, text, recorded=True) for text in TEXTS),
    "codex as it was": b"".join(legacy_codex(text, text) for text in TEXTS),
    "codex through a proxy": b"".join(map(proxied, TEXTS)),
    "whole messages": b"".join(whole_anthropic("msg", text) for text in ("One.", "Two.", "Three.")),
}


@pytest.mark.parametrize("capture", CAPTURES.values(), ids=CAPTURES)
def test_each_answer_of_a_capture_is_a_response(capture: bytes) -> None:
    result = CliRunner().invoke(main, ["replay", "--to", "snapshot"], input=capture)
    responses = [json.loads(line) for line in result.stdout.splitlines()]
    texts = [response["output"][0]["content"][0]["text"] for response in responses]
    assert texts == ["One.", "Two.", "Three."]
    assert {response["status"] for response in responses} == {"completed"}
    assert len({response["id"] for response in responses}) == 3
    assert "came after the end" not in result.stderr


@pytest.mark.parametrize("name", ["chat", "chat without [DONE]", "anthropic", "codex"])
def test_several_answers_replay_to_a_valid_stream(name: str) -> None:
    replayed = CliRunner().invoke(main, ["replay"], input=CAPTURES[name])
    checked = CliRunner().invoke(main, ["validate"], input=replayed.stdout_bytes)
    assert (checked.exit_code, checked.stdout) == (0, "")


@pytest.mark.parametrize("sink", ["responses", "openai", "chat", "anthropic", "vscode", "copilot"])
@pytest.mark.parametrize("name", ["chat", "codex"])
def test_several_answers_replay_to_all_dialects_and_back(name: str, sink: str) -> None:
    """Parts of VS Code are told apart by the usage behind each answer."""
    there = CliRunner().invoke(main, ["replay", "--to", sink], input=CAPTURES[name])
    back = CliRunner().invoke(main, ["replay", "--to", "snapshot"], input=there.stdout_bytes)
    responses = [json.loads(line) for line in back.stdout.splitlines()]
    assert [response["output"][0]["content"][0]["text"] for response in responses] == list(TEXTS)
    assert {response["status"] for response in responses} == {"completed"}
    assert "came after the end" not in back.stderr


def test_a_cut_answer_is_cut_and_the_next_one_is_read() -> None:
    """Which is what a capture of two runs shows when the first one failed."""
    failed = sse({"id": "a", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "On"}}]})
    error = sse({"error": {"message": "overloaded", "code": 529}})
    result = CliRunner().invoke(
        main, ["replay", "--to", "snapshot"], input=failed + error + DONE + chat("b", "Two.")
    )
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["status"], second["status"]) == ("failed", "completed")
    assert second["output"][0]["content"][0]["text"] == "Two."


def test_chunks_with_ids_of_their_own_are_one_answer() -> None:
    """Some servers give each chunk an id, and send the role and usage after the finish reason."""

    def chunk(number: int, finish: str | None = None, **delta: Any) -> dict[str, Any]:
        return {"id": f"c{number}", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    capture = sse(
        chunk(1, role="assistant"), chunk(2, content="One."), chunk(3, "stop"), chunk(4, content="")
    )
    result = CliRunner().invoke(main, ["replay", "--to", "snapshot"], input=capture + DONE)
    (response,) = (json.loads(line) for line in result.stdout.splitlines())
    assert (response["status"], response["output"][0]["content"][0]["text"]) == ("completed", "One.")
