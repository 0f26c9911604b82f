"""Agents that an upstream runs side by side: the text of each stays one item, however their deltas alternate
(law E5)."""

from __future__ import annotations

from typing import Any

import pytest

from openresponses_bridge.dialects.responses import Inbound
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.state import TERMINAL_PHASES
from tests.support.checked_inbound import CheckedInbound
from tests.support.machines import machine, plain

Json = dict[str, Any]
HEAD: Json = {"id": "resp_9", "object": "response", "created_at": 1, "model": "m", "output": []}


def agent(number: int) -> Json:
    return {"agent": {"agent_name": f"agent-{number}"}}


def message(number: int, *texts: str, **more: Any) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []} for text in texts]
    status = "completed" if texts else "in_progress"
    head = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": status}
    return {**head, "content": content, **(more or agent(number))}


def added(number: int, **more: Any) -> Json:
    return {"type": "response.output_item.added", "output_index": number, "item": message(number, **more)}


def delta(number: int, text: str) -> Json:
    place = {"item_id": f"msg_{number}", "output_index": number, "content_index": 0}
    return {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []}


def done(number: int, text: str, **more: Any) -> Json:
    return {
        "type": "response.output_item.done",
        "output_index": number,
        "item": message(number, text, **more),
    }


def stream(*events: Json, ends: Json | None = None) -> list[bytes]:
    begun = {"type": "response.created", "response": {**HEAD, "status": "in_progress"}}
    frames = [begun, *events, *([ends] if ends else [])]
    return [encode({**frame, "sequence_number": number}) for number, frame in enumerate(frames)]


def completed(*items: Json) -> Json:
    return {"type": "response.completed", "response": {**HEAD, "status": "completed", "output": [*items]}}


def fed(frames: list[bytes]) -> list[tuple[str, str]]:
    """(the id, the text) of each message."""
    output = CheckedInbound(Inbound, frames).output
    return [(item["id"], "".join(part["text"] for part in item["content"])) for item in output]


def said_by(*texts: str) -> list[tuple[str, str]]:
    return [(f"msg_{number}", text) for number, text in enumerate(texts)]


TURNS = [added(0), delta(0, "a1 "), added(1), delta(1, "b1 "), delta(0, "a2 "), delta(1, "b2 ")]
WHOLE = completed(message(0, "a1 a2 "), message(1, "b1 b2 "))


@pytest.mark.parametrize("first", [0, 1])
def test_e5_the_texts_of_two_agents_stay_whole(first: int) -> None:
    texts = ["a1 a2 ", "b1 b2 "]
    ended = [done(each, texts[each]) for each in (first, 1 - first)]
    assert fed(stream(*TURNS, *ended, ends=WHOLE)) == said_by(*texts)


def test_e5_what_never_ended_is_sent_with_the_end_of_the_response() -> None:
    assert fed(stream(*TURNS, ends=WHOLE)) == said_by("a1 a2 ", "b1 b2 ")


def test_e5_what_waits_when_a_stream_is_cut_is_sent() -> None:
    stream_ = machine("openai")
    inbound = Inbound(stream_)
    for frame in stream(*TURNS):
        inbound.feed(frame)
    inbound.close()
    assert [item["content"][0]["text"] for item in plain(stream_.snapshot)["output"]] == ["a1 a2 ", "b1 b2 "]
    assert stream_.snapshot.status == "failed"


def test_e5_an_agent_goes_on_while_another_one_waits() -> None:
    turns = [*TURNS, done(0, "a1 a2 "), delta(1, "b3 "), added(2), delta(2, "c"), done(1, "b1 b2 b3 ")]
    texts = ["a1 a2 ", "b1 b2 b3 ", "c"]
    ends = completed(*(message(number, text) for number, text in enumerate(texts)))
    assert fed(stream(*turns, done(2, "c"), ends=ends)) == said_by(*texts)


def test_e5_items_of_one_agent_and_of_none_do_not_wait() -> None:
    for more in (agent(0), {"phase": "commentary"}):
        turns = [added(0, **more), delta(0, "a1 "), added(1, **more), delta(1, "b1 ")]
        stream_ = machine("openai")
        inbound = Inbound(stream_)
        sent = [plain(event) for frame in stream(*turns) for event in inbound.feed(frame)]
        assert sent[-1]["delta"] == "b1 "


@pytest.mark.parametrize("limit", ["_MOST_BYTES", "_MOST_ITEMS"])
def test_s10_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(f"openresponses_bridge.dialects.responses.agents.{limit}", 1)
    stream_ = machine("openai")
    inbound = Inbound(stream_)
    others = [frame for number in range(1, 9) for frame in (added(number), delta(number, "b"))]
    for frame in stream(added(0), delta(0, "a"), *others, delta(0, "c")):
        inbound.feed(frame)
    assert len(inbound._items.agents.waiting) <= 1
    inbound.close()
    assert stream_.phase in TERMINAL_PHASES
    texts = [item["content"][0]["text"] for item in plain(stream_.snapshot)["output"]]
    assert sorted(texts) == ["a", *["b"] * 8, "c"]
