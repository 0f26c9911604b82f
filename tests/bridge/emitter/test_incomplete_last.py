"""Nothing is added after an incomplete item; whole items precede it while it is still open."""

from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.unknown import UnknownItem
from tests.support.machines import Run, plain

CUT, WHOLE = '{"command":', '{"command":"ls"}'
ENDS: list[tuple[Any, ...]] = [
    ("finish", "length"),
    ("finish", "tool_calls"),
    ("finish", "stop"),
    ("finish", "content_filter"),
    ("finish",),
    ("cancel",),
]


def shells(*names: str) -> ToolIdentityMap:
    identities = ToolIdentityMap()
    for name in names:
        identities.declare(ToolKind.SHELL, name)
    return identities


def nothing_added_late(run: Run) -> bool:
    done_incomplete = False
    for event in map(plain, run.events):
        if event["type"] == "response.output_item.added" and done_incomplete:
            return False
        if event["type"] == "response.output_item.done":
            done_incomplete = done_incomplete or event["item"]["status"] == "incomplete"
    return True


def statuses(run: Run) -> list[tuple[str, str]]:
    return [(item["type"], item["status"]) for item in run.terminal["output"]]


@pytest.mark.parametrize("end", ENDS, ids=str)
def test_e7_a_held_call_that_was_cut_before_a_text_is_added_before_anything_ends(
    end: tuple[Any, ...],
) -> None:
    run = Run("openai", identities=shells("shell"))
    run("tool_call", 0, "c0", "shell", CUT)
    run("text", "hi")
    run(*end)
    assert nothing_added_late(run)
    stopped = end in [("finish",), ("finish", "tool_calls"), ("finish", "stop")]
    assert statuses(run) == [
        ("message", "completed" if stopped else "incomplete"), ("function_call", "incomplete"),
    ]  # fmt: skip


@pytest.mark.parametrize("end", [end for end in ENDS if end != ("cancel",)], ids=str)
@pytest.mark.parametrize("whole", [0, 1, 2])
def test_e7_whole_calls_that_were_held_come_before_those_that_were_cut(
    end: tuple[Any, ...], whole: int
) -> None:
    run = Run("openai", identities=shells("shell"))
    for index in range(3):
        run("tool_call", index, f"c{index}", "shell", WHOLE if index == whole else CUT)
    run(*end)
    assert nothing_added_late(run)
    assert statuses(run) == [
        ("shell_call", "completed"), ("function_call", "incomplete"), ("function_call", "incomplete"),
    ]  # fmt: skip


@pytest.mark.parametrize("end", ENDS, ids=str)
def test_e7_a_cut_call_of_each_kind_side_by_side(end: tuple[Any, ...]) -> None:
    run = Run("openai", identities=shells("shell", "other"))
    run("tool_call", 0, "c0", "f", '{"a":')
    run("tool_call", 1, "c1", "shell", CUT)
    run("tool_call", 2, "c2", "g", '{"a":')
    run("tool_call", 3, "c3", "other", CUT)
    run(*end)
    assert nothing_added_late(run)
    assert statuses(run) == [("function_call", "incomplete")] * 4


def test_e5_a_held_call_that_was_whole_ends_the_text_before_it() -> None:
    run = Run("openai", identities=shells("shell"))
    run("tool_call", 0, "c0", "shell", CUT)
    run("text", "hi")
    run("tool_call", 0, arguments='"ls"}')
    run("finish", "length")
    assert nothing_added_late(run)
    assert statuses(run) == [("message", "completed"), ("shell_call", "completed")]
    assert run.terminal["incomplete_details"] == {"reason": "max_output_tokens"}


def test_e8_nothing_of_a_cancelled_response_is_whole() -> None:
    run = Run("openai", identities=shells("shell"))
    for index, arguments in enumerate((WHOLE, CUT)):
        run("tool_call", index, f"c{index}", "shell", arguments)
    run("cancel")
    assert nothing_added_late(run)
    assert run.terminal["status"] == "cancelled"
    # the second call began when the first was whole
    assert statuses(run) == [("shell_call", "completed"), ("function_call", "incomplete")]


INCOMPLETE: list[Any] = [
    it.Message("m", "incomplete", "assistant", [ct.OutputTextContent("a", [])]),
    it.ReasoningItem("r", [], [ct.ReasoningTextContent("t")], "sealed", "incomplete"),
    it.FunctionCall("f", "c", "f", "{}", "incomplete"),
    it.FunctionCall("f", "c", "f", "{", "completed"),
    it.CustomToolCall("f", "c", "f", "x", "incomplete"),
    it.ShellCall("s", "c", it.ShellAction(["ls"]), "incomplete"),
    UnknownItem({"type": "acme:thing", "id": "u", "status": "incomplete", "x": [1]}),
]


@pytest.mark.parametrize("item", INCOMPLETE, ids=[f"{n}-{item.type}" for n, item in enumerate(INCOMPLETE)])
@pytest.mark.parametrize("end", [*ENDS, ("fail", "down")], ids=str)
@pytest.mark.untraced
def test_e7_what_comes_after_an_incomplete_item_is_added_before_that_is_done(
    wire: str, item: Any, end: tuple[Any, ...]
) -> None:
    run = Run(wire)
    assert "output_item.done" not in run.kinds("item", item)
    run("text", "more")
    run("tool_call", 0, "c1", "f", "{}")
    run(*end)
    assert nothing_added_late(run)
    assert run.terminal["output"][0]["status"] == "incomplete"
    assert run.terminal["status"] != "completed"
    assert run.terminal["output"][1]["content"][0]["text"] == "more"
    if item.type == "reasoning" and end[0] != "fail":
        assert run.terminal["output"][0]["encrypted_content"] == "sealed"


@pytest.mark.parametrize("item", INCOMPLETE, ids=[f"{n}-{item.type}" for n, item in enumerate(INCOMPLETE)])
def test_e7_an_incomplete_item_takes_nothing_more(wire: str, item: Any) -> None:
    run = Run(wire)
    run("item", item)
    before = run.output[0]
    run("text", "more")
    run("tool_call", 0, "c1", "f", "{}")
    run("item", {"type": "message", "id": item.id, "content": []})
    assert run.output[0] == before
    run("finish", "stop")
    assert run.terminal["output"][0] == run.output[0]
    assert {name: run.output[0][name] for name in before} == before | {"status": "incomplete"}


def test_e7_an_announced_item_that_is_incomplete_has_no_more_progress(wire: str) -> None:
    run = Run(wire)
    run("item_added", {"type": "web_search_call", "id": "w", "status": "in_progress"})
    run("item", {"type": "web_search_call", "id": "w", "status": "incomplete", "query": "q"})
    with pytest.raises(Exception, match="announced and open"):
        run("item_event", "w", "response.web_search_call.searching", {})
    run("text", "more")
    run("finish", "stop")
    assert nothing_added_late(run)
    assert [item["status"] for item in run.output] == ["incomplete", "completed"]
    assert run.output[0]["query"] == "q"
