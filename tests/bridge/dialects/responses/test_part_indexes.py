"""Parts that servers number in more than one way: each text is sent once."""

from typing import Any

import pytest

from openresponses_bridge.dialects.responses import Inbound
from tests.support.checked_inbound import CheckedInbound

HEAD = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
PLACE = {"output_index": 0, "item_id": "msg_1"}


def message(*texts: str, status: str = "completed") -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content, "status": status}


def reasoning(*texts: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "msg_1", "summary": summary}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **PLACE, **fields}


def read(begun: dict[str, Any], ended: dict[str, Any], *events: dict[str, Any]) -> CheckedInbound:
    return CheckedInbound(
        Inbound,
        [
            {"type": "response.created", "response": {**HEAD, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": begun},
            *events,
            {"type": "response.output_item.done", "output_index": 0, "item": ended},
            {"type": "response.completed", "response": {**HEAD, "status": "completed", "output": [ended]}},
        ],
    )


def texts_of(fed: CheckedInbound, field: str = "content") -> list[str]:
    (item,) = fed.output
    return [part["text"] for part in item[field]]


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("ending", [0, 1, 2])
@pytest.mark.parametrize("beginning", [0, 1, 5])
def test_a_message_whose_only_part_is_numbered_otherwise(beginning: int, ending: int, part: int) -> None:
    fed = read(
        message(status="in_progress"),
        message("Hi there"),
        event("output_text.delta", content_index=beginning, delta="Hi"),
        event("output_text.delta", content_index=beginning, delta=" there"),
        event("output_text.done", content_index=ending, text="Hi there"),
        event("content_part.done", content_index=part, part=message("Hi there")["content"][0]),
    )
    assert (texts_of(fed), fed.status) == (["Hi there"], "completed")


@pytest.mark.parametrize("first", [-1, 0, 1])
def test_a_summary_that_begins_at_any_number(first: int) -> None:
    events = []
    for number, text in enumerate(("One", "Two"), first):
        events += [
            event("reasoning_summary_text.delta", summary_index=number, delta=text),
            event("reasoning_summary_text.done", summary_index=number, text=text),
        ]
    assert texts_of(read(reasoning(), reasoning("One", "Two"), *events), "summary") == ["One", "Two"]


def test_two_parts_with_the_same_text_stay_two() -> None:
    fed = read(
        message(status="in_progress"),
        message("Hi", "Hi"),
        event("output_text.delta", content_index=0, delta="Hi"),
        event("output_text.done", content_index=0, text="Hi"),
        event("content_part.done", content_index=0, part=message("Hi")["content"][0]),
        event("output_text.done", content_index=1, text="Hi"),
    )
    assert texts_of(fed) == ["Hi", "Hi"]


def test_a_part_that_only_the_item_has_is_sent_behind_one_numbered_otherwise() -> None:
    fed = read(
        message(status="in_progress"),
        message("Hi", "there"),
        event("output_text.delta", content_index=1, delta="Hi"),
        event("output_text.done", content_index=1, text="Hi"),
    )
    assert texts_of(fed) == ["Hi", "there"]


def test_a_whole_answer_without_a_status_is_complete() -> None:
    fed = CheckedInbound(Inbound, [{**HEAD, "output": [message("Hi")]}])
    assert (texts_of(fed), fed.status) == (["Hi"], "completed")
