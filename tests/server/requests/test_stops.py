"""Stop sequences over every kind of upstream, for clients of every surface."""

import json
from typing import Any

import pytest

from tests.support import dialect_scripts as scripts
from tests.support.dialect_scripts import DIALECTS
from tests.support.serving import Reply, call
from tests.support.upstream import HANG, Script, ScriptedUpstream

_TURN = [{"role": "user", "content": "Count."}]
SURFACES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "Count.", "stop": ["ND", "END"]},
    "/v1/chat/completions": {"messages": _TURN, "stop": ["ND", "END"]},
    "/v1/messages": {"messages": _TURN, "max_tokens": 100, "stop_sequences": ["ND", "END"]},
}
every = pytest.mark.parametrize("dialect", DIALECTS)
everywhere = pytest.mark.parametrize("path", SURFACES)


def ask(base: str, path: str, model: str, stream: bool, **fields: Any) -> Reply:
    return call(base, "POST", path, {**SURFACES[path], "model": model, "stream": stream, **fields})


def frames(reply: Reply) -> list[Any]:
    lines = reply.body.decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def ending(path: str, reply: Reply, stream: bool) -> tuple[str, Any, Any]:
    """(text, how it ended, the sequence if the surface has a place for it)."""
    payloads = frames(reply) if stream else [reply.json]
    if path == "/v1/responses":
        response = payloads[-1]["response"] if stream else payloads[0]
        content = [part for item in response["output"] for part in item["content"]]
        text = "".join(part["text"] for part in content)
        if stream:
            assert text == "".join(each["delta"] for each in payloads if each["type"].endswith("text.delta"))
        return text, response["status"], response.get("openresponses-bridge:stop_sequence")
    if path == "/v1/messages":
        if not stream:
            (message,) = payloads
            text = "".join(block["text"] for block in message["content"])
            return text, message["stop_reason"], message["stop_sequence"]
        text = "".join(each["delta"]["text"] for each in payloads if each["type"] == "content_block_delta")
        (end,) = [each["delta"] for each in payloads if each["type"] == "message_delta"]
        return text, end["stop_reason"], end["stop_sequence"]
    choices = [each["choices"][0] for each in payloads if each["choices"]]
    text = "".join(each["delta" if stream else "message"].get("content") or "" for each in choices)
    return text, choices[-1]["finish_reason"], None


ENDED = {
    "/v1/responses": ("one, ", "completed", "END"),
    "/v1/chat/completions": ("one, ", "stop", None),
    "/v1/messages": ("one, ", "stop_sequence", "END"),
}


@every
@everywhere
@pytest.mark.parametrize("stream", [True, False])
def test_a_response_ends_before_the_sequence_though_its_upstream_goes_on(
    many: str, upstream: ScriptedUpstream, dialect: str, path: str, stream: bool
) -> None:
    model = f"{dialect}-wild"
    steps = scripts.text(dialect, "one, ", "E", "N", "D", " and more")
    at = next(at for at, step in enumerate(steps) if b"and more" in bytes(step))  # type: ignore[arg-type]
    upstream.scripts[model] = Script([*steps[:at], HANG])
    reply = ask(many, path, model, stream)
    assert reply.status == 200
    assert "openresponses-losses" not in reply.headers
    assert ending(path, reply, stream) == ENDED[path]
    sent = upstream.last(model).body
    named = {"chat": "stop", "anthropic": "stop_sequences"}.get(dialect, "")
    hidden = dialect == "responses" or (dialect == "chat" and path == "/v1/messages")
    assert sent.get(named) == (None if hidden else ["ND", "END"])
    assert "stop" not in sent or dialect == "chat"


@every
@everywhere
def test_token_counts_that_come_with_the_sequence_are_kept(
    many: str, upstream: ScriptedUpstream, dialect: str, path: str
) -> None:
    model = f"{dialect}-quick"
    upstream.scripts[model] = Script([b"".join(map(bytes, scripts.text(dialect, "one, END.")))])  # type: ignore[arg-type]
    reply = ask(many, path, model, stream=False)
    assert ending(path, reply, stream=False) == ENDED[path]
    assert reply.json["usage"].get("estimated", False) is False


@everywhere
def test_the_sequence_that_anthropic_met_is_named(many: str, upstream: ScriptedUpstream, path: str) -> None:
    body = {"type": "message", "id": "m", "model": "m", "role": "assistant", "usage": {}} | {
        "content": [{"type": "text", "text": "one, "}], "stop_reason": "stop_sequence", "stop_sequence": "END"
    }  # fmt: skip
    upstream.scripts["anthropic-met"] = Script(scripts.named(json.dumps(body).encode()))
    assert ending(path, ask(many, path, "anthropic-met", stream=False), stream=False) == ENDED[path]


@everywhere
def test_an_upstream_that_breaks_after_the_sequence_has_done_enough(
    many: str, upstream: ScriptedUpstream, path: str
) -> None:
    broken = b"".join(map(bytes, scripts.text("chat", "one, END.")[:2])) + b"data: {]\n\n"  # type: ignore[arg-type]
    upstream.scripts["chat-broken"] = Script([broken])
    for stream in (True, False):
        assert ending(path, ask(many, path, "chat-broken", stream), stream) == ENDED[path]


@everywhere
def test_sequences_that_are_too_long_together_are_refused(many: str, path: str) -> None:
    name = "stop_sequences" if path == "/v1/messages" else "stop"
    reply = ask(many, path, "chat-text", stream=False, **{name: ["a" * 2000, "b" * 2097]})
    assert reply.status == 400
    assert f"{name}: 4097 characters in all; the limit is 4096" in reply.json["error"]["message"]
