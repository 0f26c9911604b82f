"""The order in which items and parts open and close (laws E4, E5, E6)."""

import pytest

from openresponses_bridge.protocol.events import OutputItemAdded
from tests.support.machines import Run, plain

OPEN_TEXT = ["output_item.added", "content_part.added", "output_text.delta"]
CLOSE_TEXT = ["output_text.done", "content_part.done", "output_item.done"]
OPEN_CALL = ["output_item.added", "function_call_arguments.delta"]
CLOSE_CALL = ["function_call_arguments.done", "output_item.done"]


def reasoning(wire: str, verb: str) -> str:
    return f"reasoning.{verb}" if wire == "openresponses" else f"reasoning_text.{verb}"


# ── E4: how an item begins ───────────────────────────────────────────────────────────────────────────
EMPTY = {
    "message": {"status": "in_progress", "role": "assistant", "content": []},
    "reasoning": {"status": "in_progress", "summary": []},
    "function_call": {"status": "in_progress", "name": "f", "arguments": ""},
}


@pytest.mark.parametrize(
    ("call", "arguments", "kind"),
    [
        ("text", ("a",), "message"),
        ("refusal", ("a",), "message"),
        ("annotation", ({"type": "url_citation", "url": "u", "start_index": 0, "end_index": 0, "title": ""},),
         "message"),
        ("reasoning", ("a",), "reasoning"),
        ("reasoning_summary", ("a",), "reasoning"),
        ("reasoning_encrypted", ("a",), "reasoning"),
        ("tool_call", (0, "c", "f", "{}"), "function_call"),
    ],
)  # fmt: skip
def test_e4_first_event_of_an_item_is_added_in_progress_and_empty(
    wire: str, call: str, arguments: tuple[object, ...], kind: str
) -> None:
    first = Run(wire)(call, *arguments)[0]
    assert isinstance(first, OutputItemAdded)
    added = plain(first)
    assert added["output_index"] == 0
    item = added["item"]
    assert item["id"]
    assert item["type"] == kind
    assert {name: item[name] for name in EMPTY[kind]} == EMPTY[kind]


def test_e4_output_indexes_are_dense_in_order_of_first_appearance(wire: str) -> None:
    run = Run(wire)
    for call, *arguments in (
        ("reasoning", "r"),
        ("tool_call", 7, "a", "f", "{"),
        ("tool_call", 3, "b", "g", "{"),
        ("text", "t"),
        ("tool_call", 7, None, None, "}"),
        ("item", {"type": "acme:thing", "id": "x", "status": "completed"}),
        ("finish",),
    ):
        run(call, *arguments)
    added = [event for event in run.events if isinstance(event, OutputItemAdded)]
    assert [event.output_index for event in added] == [0, 1, 2, 3, 4]
    assert [item["type"] for item in run.output] == [
        "reasoning", "function_call", "function_call", "message", "acme:thing",
    ]  # fmt: skip


def test_e4_ids_are_unique_and_the_same_from_added_to_the_end(wire: str) -> None:
    run = Run(wire)
    for round_ in range(3):
        run("text", "a")
        run("tool_call", round_, "same", "f", "{}")
    run("finish")
    ids = [event.item.id for event in run.events if event.type == "response.output_item.added"]
    assert len(set(ids)) == len(ids) == 6
    assert [item["id"] for item in run.terminal["output"]] == ids
    call_ids = [item["call_id"] for item in run.output if item["type"] == "function_call"]
    assert call_ids == ["same", "same_2", "same_3"]
    assert run.notes("repair") == ["tool_call.id"]


def test_e4_case_05_a_call_is_added_once_its_name_is_known(wire: str) -> None:
    run = Run(wire)
    assert run("tool_call", 0, id="c") == []
    assert run("tool_call", 0, arguments='{"a"') == []
    events = run("tool_call", 0, name="f", arguments=": 1}")
    assert [plain(event).get("delta") for event in events] == [None, '{"a": 1}']
    assert plain(events[0])["item"] | {"id": ""} == {
        "type": "function_call", "id": "", "call_id": "c", "name": "f", "arguments": "",
        "status": "in_progress",
    }  # fmt: skip


# ── E5: one block of words at a time, calls side by side ─────────────────────────────────────────────
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("text", "reasoning"),
        ("reasoning", "text"),
        ("reasoning", "refusal"),
        ("refusal", "reasoning_summary"),
    ],
)
def test_e5_another_kind_closes_the_open_block_first(wire: str, first: str, second: str) -> None:
    run = Run(wire)
    run(first, "a")
    events = run.kinds(second, "b")
    assert "output_item.added" in events
    assert events.index("output_item.done") < events.index("output_item.added")
    assert [item["status"] for item in run.output] == ["completed", "in_progress"]


def test_e5_a_tool_call_closes_the_open_text(wire: str) -> None:
    run = Run(wire)
    run("text", "a")
    assert run.kinds("tool_call", 0, "c", "f", "{") == CLOSE_TEXT + OPEN_CALL


def test_e5_a_call_without_a_name_closes_nothing_yet(wire: str) -> None:
    run = Run(wire)
    run("text", "a")
    assert run("tool_call", 0, "c") == []
    assert run.kinds("text", "b") == ["output_text.delta"]


def test_e5_case_14_text_after_a_tool_call_opens_another_message(wire: str) -> None:
    run = Run(wire)
    run("text", "a")
    run("tool_call", 0, "c", "f", '{"x":1}')
    assert run.kinds("text", "b") == OPEN_TEXT
    run("finish")
    assert [item["type"] for item in run.output] == ["message", "function_call", "message"]
    assert run.machine.snapshot.output_text == "ab"


def test_e5_text_and_refusal_are_parts_of_one_message(wire: str) -> None:
    run = Run(wire)
    run("text", "a")
    assert run.kinds("refusal", "no") == [
        "output_text.done", "content_part.done", "content_part.added", "refusal.delta",
    ]  # fmt: skip
    run("text", "b")
    run("finish")
    (message,) = run.output
    assert [part.get("text", part.get("refusal")) for part in message["content"]] == ["a", "no", "b"]


def test_e5_raw_summary_and_encrypted_reasoning_share_one_item(wire: str) -> None:
    run = Run(wire)
    run("reasoning", "raw")
    run("reasoning_summary", "one", 0)
    run("reasoning", " more")
    run("reasoning_summary", "two", 1)
    run("reasoning_encrypted", "sealed")
    assert "encrypted_content" not in run.output[0]
    run("text", "answer")
    item = run.output[0]
    assert item["content"] == [{"type": "reasoning_text", "text": "raw more"}]
    assert [part["text"] for part in item["summary"]] == ["one", "two"]
    assert (item["encrypted_content"], item["status"]) == ("sealed", "completed")


def test_e5_a_second_encrypted_content_belongs_to_another_item(wire: str) -> None:
    run = Run(wire)
    run("reasoning_encrypted", "one")
    run("reasoning_encrypted", "two")
    run("finish")
    assert [item["encrypted_content"] for item in run.output] == ["one", "two"]


def test_e5_calls_are_open_side_by_side(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "a", "f", '{"x":')
    assert run.kinds("tool_call", 1, "b", "g", '{"y":') == OPEN_CALL
    assert run.kinds("tool_call", 0, arguments="1}") == ["function_call_arguments.delta"]
    run("tool_call", 1, arguments="2}")
    run("finish")
    assert [item["arguments"] for item in run.output] == ['{"x":1}', '{"y":2}']


def test_e5_another_index_ends_a_call_that_is_whole(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "a", "f", '{"x":1}')
    assert run.kinds("tool_call", 1, "b", "g", "{") == CLOSE_CALL + OPEN_CALL


def test_e5_another_index_leaves_a_call_open_that_is_not_whole(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "a", "f", '{"x":')
    run("tool_call", 1, "b", "g", "{")
    assert run.kinds("tool_call", 2, "c", "h", "{") == OPEN_CALL
    assert [item["status"] for item in run.output] == ["in_progress"] * 3


def test_e5_tool_call_done_ends_a_call_once(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "a", "f", '{"x":1}')
    assert run.kinds("tool_call_done", 0) == CLOSE_CALL
    assert run("tool_call_done", 0) == []
    assert run("tool_call", 0, arguments=" \n") == []
    assert run.notes("loss") == []
    assert run("tool_call", 0, arguments='{"x":1}') == []
    assert run.notes("loss") == ["tool_call.arguments"]


def test_e5_a_closed_index_is_free_for_another_call(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "a", "f", '{"x":1}')
    run("tool_call_done", 0)
    assert run.kinds("tool_call", 0, name="g", arguments='{"x":1}') == OPEN_CALL
    run("tool_call_done", 0)
    assert run.kinds("tool_call", 0, id="b", name="h", arguments='{"x":1}') == OPEN_CALL
    run("finish")
    assert [item["name"] for item in run.output] == ["f", "g", "h"]


def test_e5_case_01_another_id_on_a_busy_index_is_another_call(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "a", "f", '{"x":1}')
    run("tool_call", 0, "b", "f", '{"y":2}')
    run("tool_call", 0, "b", arguments="")
    run("finish")
    assert [(item["call_id"], item["arguments"]) for item in run.output] == [
        ("a", '{"x":1}'),
        ("b", '{"y":2}'),
    ]
    assert run.notes("repair") == []


def test_e5_case_01_another_id_ends_a_busy_call_that_is_not_whole(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "a", "f", '{"x":')
    run("tool_call", 0, "b", "f", '{"y":2}')
    run("finish", "tool_calls")
    assert [(item["call_id"], item["status"]) for item in run.output] == [
        ("a", "incomplete"), ("b", "completed"),
    ]  # fmt: skip
    assert run.notes("repair") == ["tool_call.index"]
    assert run.terminal["status"] == "incomplete"


def test_e5_part_done_begins_another_part_of_the_same_item(wire: str) -> None:
    run = Run(wire)
    run("text", "a")
    assert run.kinds("part_done") == ["output_text.done", "content_part.done"]
    assert run("part_done") == []
    assert run.kinds("text", "b") == ["content_part.added", "output_text.delta"]
    run("block_done")
    assert run("part_done") == []
    run("reasoning", "r")
    run("reasoning_summary", "s")
    assert run.kinds("part_done") == [
        reasoning(wire, "done"), "content_part.done", "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]  # fmt: skip
    run("reasoning", "q")
    run("reasoning_summary", "t")
    run("finish")
    message, thought = run.output
    assert [part["text"] for part in message["content"]] == ["a", "b"]
    assert [part["text"] for part in thought["content"] + thought["summary"]] == ["r", "q", "s", "t"]


def test_e5_block_done_begins_another_item(wire: str) -> None:
    run = Run(wire)
    assert run("block_done") == []
    run("text", "a")
    assert run.kinds("block_done") == CLOSE_TEXT
    assert run.kinds("text", "b") == OPEN_TEXT


# ── E6: nothing for nothing ──────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("empty", ["", None])
@pytest.mark.parametrize("call", ["text", "refusal", "reasoning", "reasoning_summary", "reasoning_encrypted"])
@pytest.mark.parametrize("open_", [False, True])
def test_e6_an_empty_delta_emits_nothing(wire: str, call: str, empty: str | None, open_: bool) -> None:
    run = Run(wire)
    if open_:
        run(call, "a")
    before = run.output
    assert run(call, empty) == []
    assert run.output == before


def test_e6_case_16_empty_reasoning_begins_no_item_before_text(wire: str) -> None:
    run = Run(wire)
    run("reasoning", "")
    assert run.kinds("text", "a") == OPEN_TEXT


def test_e6_an_empty_piece_of_arguments_emits_nothing(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "f", "{")
    assert run("tool_call", 0, arguments="") == []
    assert run("tool_call", 0, "c") == []


@pytest.mark.parametrize("nothing", ["", " \n\t"])
@pytest.mark.parametrize("end", [("tool_call_done", 0), ("finish", "tool_calls"), ("finish", None)])
def test_e6_case_06_a_call_without_arguments_gets_an_empty_object(
    wire: str, end: tuple[object, ...], nothing: str
) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "f", nothing)
    events = [plain(event) for event in run(str(end[0]), *end[1:])]
    assert [event["type"] for event in events[:3]] == [
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    assert events[0]["delta"] == "{}"
    assert events[1]["arguments"] == events[2]["item"]["arguments"] == nothing + "{}"
    assert events[2]["item"]["status"] == "completed"
