"""Captures of Gemini's answers: streams, arrays, and what Code Assist and Gemini CLI wrap in `response`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.gemini.dialect import DIALECT
from openresponses_bridge.emitter import ResponseStreamStateMachine

CAPTURE = DIALECT.capture


def chunk(text: str, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "gemini-x", **fields}


SAID = [chunk("Hel"), chunk("lo", "STOP", usageMetadata={"promptTokenCount": 2, "candidatesTokenCount": 3})]


@pytest.mark.parametrize(
    "frames",
    [
        SAID,
        [{"response": each, "traceId": "t"} for each in SAID],
        [{"method": "generateContentStream", "response": SAID}],
        [SAID],
    ],
    ids=["chunks", "Code Assist", "Gemini CLI", "an array"],
)
def test_each_form_says_the_same(frames: list[Any]) -> None:
    machine = ResponseStreamStateMachine("m")
    inbound = CAPTURE.inbound(machine)
    for each in frames:
        inbound.feed(json.dumps(each).encode())
        if isinstance(each, dict):
            assert CAPTURE.recognises(each)
            assert CAPTURE.head(each) == ("gemini-x", None)
    assert isinstance(frames[-1], list) or CAPTURE.concludes(frames[-1])
    inbound.close()
    assert machine.snapshot.status == "completed"
    assert machine.snapshot.output[0].content[0].text == "Hello"
    assert machine.snapshot.usage is not None
    assert machine.snapshot.usage.total_tokens == 5


def test_another_answer_begins_behind_a_finish_reason_or_with_another_id() -> None:
    whole = {"response": SAID}
    assert CAPTURE.begins(SAID[0], None)
    assert CAPTURE.begins(whole, whole)
    assert not CAPTURE.begins(SAID[1], SAID[0])
    first, other = chunk("a", responseId="1"), chunk("b", responseId="2")
    assert CAPTURE.begins(other, first)
    assert not CAPTURE.begins(first, first)


def test_an_answer_that_was_blocked_has_ended() -> None:
    assert CAPTURE.concludes({"promptFeedback": {"blockReason": "SAFETY"}})
    assert not CAPTURE.concludes({"promptFeedback": {}, "candidates": ["?"]})


@pytest.mark.parametrize("odd", [{"response": "text"}, {"response": []}, {"response": [1]}, {}])
def test_other_objects_are_not_an_answer(odd: dict[str, Any]) -> None:
    assert not CAPTURE.recognises(odd)
    assert not CAPTURE.concludes(odd)
