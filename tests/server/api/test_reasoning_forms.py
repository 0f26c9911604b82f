"""An upstream's reasoning in two forms: the answer in one body is what the stream gives."""

import json
from typing import Any

import pytest

from tests.support.serving import Reply, call
from tests.support.upstream import Script, ScriptedUpstream

TURN = [{"role": "user", "content": "Hi"}]
FORMS = {
    "content": ("reasoning_text", "content_index"),
    "summary": ("reasoning_summary_text", "summary_index"),
}


def upstream_of(first: str, second: str) -> Script:
    response = {"id": "resp_u", "created_at": 1, "model": "up", "status": "in_progress", "output": []}
    item = {"type": "reasoning", "id": "rs", "summary": []}
    frames: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
    ]
    for form in (first, second):
        kind, index = FORMS[form]
        where = {"item_id": "rs", "output_index": 0, index: 0}
        frames.append({"type": f"response.{kind}.delta", **where, "delta": f"the {form}"})
    text = {"item_id": "m", "output_index": 1, "content_index": 0, "delta": "4"}
    frames += [
        {"type": "response.output_text.delta", **text},
        {"type": "response.completed", "response": {**response, "status": "completed"}},
    ]
    return Script([f"data: {json.dumps(frame)}\n\n".encode() for frame in frames])


def chat_streamed(reply: Reply) -> str:
    deltas = [
        choice["delta"] for event in reply.events for choice in event["choices"] if choice["index"] == 0
    ]
    return "".join(delta.get("reasoning_content") or "" for delta in deltas)


def messages_streamed(reply: Reply) -> str:
    return "".join(event.get("delta", {}).get("thinking", "") for event in reply.events)


def chat_whole(reply: Reply) -> str:
    return str(reply.json["choices"][0]["message"]["reasoning_content"])


def messages_whole(reply: Reply) -> str:
    return "".join(block.get("thinking", "") for block in reply.json["content"])


SURFACES: dict[str, tuple[str, dict[str, Any], Any, Any]] = {
    "chat": ("/v1/chat/completions", {}, chat_streamed, chat_whole),
    "choices": ("/v1/chat/completions", {"n": 2}, chat_streamed, chat_whole),
    "messages": ("/v1/messages", {"max_tokens": 99}, messages_streamed, messages_whole),
}


@pytest.mark.parametrize("order", [("content", "summary"), ("summary", "content")])
@pytest.mark.parametrize("surface", SURFACES)
def test_reasoning_in_two_forms_is_the_same_streamed_and_whole(
    many: str, upstream: ScriptedUpstream, surface: str, order: tuple[str, str]
) -> None:
    path, more, streamed, whole = SURFACES[surface]
    upstream.scripts["responses-thinks"] = upstream_of(*order)
    body = {"model": "responses-thinks", "messages": TURN, **more}
    expected = f"the {order[0]}"
    assert whole(call(many, "POST", path, body)) == expected
    assert streamed(call(many, "POST", path, {**body, "stream": True})) == expected
