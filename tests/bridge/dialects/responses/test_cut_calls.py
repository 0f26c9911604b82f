"""A call that upstream did not finish is never a whole one, whatever its arguments look like (law E7)."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.damaged_responses import (
    CheckedResponses,
    Json,
    added,
    argue,
    call,
    created,
    done,
    ended,
    message,
    reasoning,
)

IN_PROGRESS: Json = {"status": "in_progress"}
LENGTH: Json = {"incomplete_details": {"reason": "max_output_tokens"}}


def first(arguments: str = "", **fields: Any) -> Json:
    return call(arguments, "fc_a", "call_a", **fields)


def second(arguments: str = "", **fields: Any) -> Json:
    return call(arguments, "fc_b", "call_b", **fields)


def ends(fed: CheckedResponses) -> list[tuple[str, str]]:
    return [(item.get("arguments", item.get("input", "")), item["status"]) for item in fed.output]


@pytest.mark.parametrize("id", ["fc_a", ""])
@pytest.mark.parametrize("arguments", ["{}", '{"a":1}', "[]"])
@pytest.mark.parametrize("order", ["before the second ends", "after it", "with the response"])
def test_a_call_that_another_follows_is_open_until_upstream_ends_it(
    arguments: str, order: str, id: str
) -> None:
    cut = call(arguments, id, "call_a", status="incomplete")
    begun = [created(), added({**cut, "arguments": "", **IN_PROGRESS}), argue(arguments, 0, id)]
    other = [added(second(**IN_PROGRESS), 1), argue('{"b":2}', 1, "fc_b")]
    whole = second('{"b":2}')
    middle = {
        "before the second ends": [done(cut), done(whole, 1)],
        "after it": [done(whole, 1), done(cut)],
        "with the response": [done(whole, 1)],
    }[order]
    fed = CheckedResponses([*begun, *other, *middle, ended("incomplete", cut, whole, **LENGTH)])
    assert fed.status == "incomplete"
    assert ends(fed) == [(arguments, "incomplete"), ('{"b":2}', "completed")]
    if order != "with the response":
        contradicting = CheckedResponses([*begun, *other, *middle, ended()])
        assert (contradicting.status, ends(contradicting)) == ("incomplete", ends(fed))


def test_a_call_that_upstream_never_ends_ends_with_a_response_that_is_complete() -> None:
    begun = [created(), added(first(**IN_PROGRESS)), argue("{}", 0, "fc_a"), added(second(**IN_PROGRESS), 1)]
    fed = CheckedResponses([*begun, argue("{}", 1, "fc_b"), ended()])
    assert (fed.status, ends(fed)) == ("completed", [("{}", "completed")] * 2)


SILENT: dict[str, Json] = {
    "function call": first(**IN_PROGRESS),
    "with arguments": first("{}", **IN_PROGRESS),
    "custom call": {
        "type": "custom_tool_call",
        "id": "ct",
        "call_id": "c",
        "name": "p",
        "input": "",
        **IN_PROGRESS,
    },
    "message": message("Hel", **IN_PROGRESS),
    "reasoning": reasoning("hm", **IN_PROGRESS),
    "summary": reasoning(summary=["hm"], **IN_PROGRESS),
    "search": {"type": "web_search_call", "id": "ws", **IN_PROGRESS},
}


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("item", SILENT.values(), ids=SILENT)
def test_an_item_in_progress_within_an_incomplete_response_is_incomplete(item: Json, streamed: bool) -> None:
    end = ended("incomplete", item, **LENGTH)
    fed = CheckedResponses(
        [created(), end] if streamed else [{**end["response"], "object": "response"}], "openai"
    )
    assert fed.status == "incomplete"
    assert [(each["type"], each["status"]) for each in fed.output] == [(item["type"], "incomplete")]
    payload = "input" if item["type"] == "custom_tool_call" else "arguments"
    assert fed.output[0].get(payload) == item.get(payload), "nothing is made up"


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("listed", [True, False])
def test_a_call_that_is_done_in_progress_ends_with_the_response(announced: bool, listed: bool) -> None:
    item = first(**IN_PROGRESS)
    begun = [created(), *([added(item)] if announced else []), done(item)]
    output = [item] if listed else []
    cut = CheckedResponses([*begun, ended("incomplete", *output, **LENGTH)])
    assert ends(cut) == [("", "incomplete")]
    whole = CheckedResponses([*begun, ended("completed", *output)])
    assert (whole.status, ends(whole)) == ("completed", [("{}", "completed")])
    assert "response.output_item.done: of a call in progress, which stays open" in whole.repairs


STATUSES = st.sampled_from(["completed", "incomplete", "in_progress"])


@given(
    st.lists(st.tuples(STATUSES, st.sampled_from(["", "{}", '{"a":1}', '{"a'])), min_size=1, max_size=3),
    st.sampled_from(["completed", "incomplete"]),
    st.data(),
)
def test_whatever_the_order_a_call_is_whole_only_if_upstream_says_so(
    calls: list[tuple[str, str]], ending: str, data: st.DataObject
) -> None:
    items = [call(text, f"fc_{at}", f"call_{at}", status=said) for at, (said, text) in enumerate(calls)]
    waiting = [
        [
            added({**item, "arguments": "", **IN_PROGRESS}, at),
            *([argue(item["arguments"], at, item["id"])] if item["arguments"] else []),
            *([done(item, at)] if item["status"] != "in_progress" else []),
        ]
        for at, item in enumerate(items)
    ]
    frames = [created()]
    while any(waiting):
        frames.append(data.draw(st.sampled_from([each for each in waiting if each])).pop(0))
    fed = CheckedResponses([*frames, ended(ending, *items, **(LENGTH if ending == "incomplete" else {}))])
    for said, sent in itertools.product(items, fed.output):
        if said["call_id"] == sent["call_id"] and sent["status"] == "completed":
            assert said["status"] == "completed" or (ending, said["status"]) == ("completed", "in_progress")
            assert said["arguments"] != '{"a'
    assert len(fed.output) == len(items)
    if any(item["status"] == "incomplete" for item in items):
        assert fed.status == "incomplete"
