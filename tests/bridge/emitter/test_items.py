"""Whole items, items that are announced, progress of items, extensions (laws E4, E10)."""

from typing import Any

import pytest

from openresponses_bridge.protocol import content as ct
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.unknown import UnknownItem
from tests.support.machines import WIRES, Run, plain

CITATION = ct.UrlCitation("u", 0, 1, "t")
FILE = ct.FileCitation("f", 0)
LOGPROB = ct.LogProb("a", -0.5, [97], [])


def shown(run: Run) -> dict[str, Any]:
    """The one item, without what is empty."""
    (item,) = run.output
    return {name: value for name, value in item.items() if value != []}


# ── whole items ──────────────────────────────────────────────────────────────────────────────────────
def test_e4_a_whole_message_gives_the_events_of_a_streamed_one(wire: str) -> None:
    parts: list[Any] = [
        ct.OutputTextContent("a", [CITATION], [LOGPROB]), ct.RefusalContent("no"), ct.OutputTextContent("",
        []),
        ct.RefusalContent(""),
    ]  # fmt: skip
    run = Run(wire)
    assert run.kinds("item", it.Message("m1", "completed", "assistant", parts, "commentary")) == [
        "output_item.added",
        "content_part.added", "output_text.delta", "output_text.annotation.added",
        "output_text.done", "content_part.done",
        "content_part.added", "refusal.delta", "refusal.done", "content_part.done",
        "content_part.added", "output_text.done", "content_part.done",
        "content_part.added", "refusal.done", "content_part.done",
        "output_item.done",
    ]  # fmt: skip
    (message,) = run.output
    assert (message["id"], message["phase"], message["status"]) == ("m1", "commentary", "completed")
    assert [part.get("text", part.get("refusal")) for part in message["content"]] == ["a", "no", "", ""]
    assert plain(run.events[2])["item"] == message | {"status": "in_progress", "content": []}


def test_e10_a_whole_message_leaves_citations_out_that_are_not_published(wire: str) -> None:
    run = Run(wire)
    run("item", it.Message("m", "completed", "assistant", [ct.OutputTextContent("a", [FILE, CITATION])]))
    expected = [plain(FILE), plain(CITATION)] if wire == "openai" else [plain(CITATION)]
    assert run.output[0]["content"][0]["annotations"] == expected
    assert run.notes("loss") == ([] if wire == "openai" else ["annotation.file_citation"])


def test_e4_a_whole_reasoning_item(wire: str) -> None:
    run = Run(wire)
    summary: list[Any] = [
        ct.SummaryTextContent("one"),
        ct.SummaryTextContent(""),
        ct.SummaryTextContent("three"),
    ]
    content: list[Any] = [ct.ReasoningTextContent("raw "), ct.TextContent("text"), ct.RefusalContent("none")]
    run("item", it.ReasoningItem("r1", summary, content, "sealed"))
    assert shown(run) == {
        "type": "reasoning", "id": "r1", "status": "completed", "encrypted_content": "sealed",
        "content": [{"type": "reasoning_text", "text": "raw text"}],
        "summary": [{"type": "summary_text", "text": text} for text in ("one", "", "three")],
    }  # fmt: skip


def test_e4_a_reasoning_item_with_nothing_in_it(wire: str) -> None:
    run = Run(wire)
    assert run.kinds("item", it.ReasoningItem("r1", [])) == ["output_item.added", "output_item.done"]
    assert shown(run) == {"type": "reasoning", "id": "r1", "status": "completed"}


@pytest.mark.parametrize(("arguments", "events"), [
    ('{"a":1}', ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
                 "output_item.done"]),
    ("", ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
     "output_item.done"]),
])  # fmt: skip
def test_e4_a_whole_function_call(wire: str, arguments: str, events: list[str]) -> None:
    run = Run(wire)
    assert run.kinds("item", it.FunctionCall("f1", "c1", "f", arguments, "completed", "space")) == events
    expected = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "f", "status": "completed",
                "arguments": arguments or "{}"}  # fmt: skip
    assert shown(run) == (expected | {"namespace": "space"} if wire == "openai" else expected)


def test_e10_a_whole_custom_call(wire: str) -> None:
    run = Run(wire)
    run("item", it.CustomToolCall("f1", "c1", "f", 'free "text"'))
    item = shown(run)
    if wire == "openai":
        assert (item["type"], item["input"]) == ("custom_tool_call", 'free "text"')
    else:
        assert (item["type"], item["arguments"]) == ("function_call", '{"input":"free \\"text\\""}')


CUT: list[Any] = [
    it.Message("m", "incomplete", "assistant", [ct.OutputTextContent("a", [])]),
    it.ReasoningItem("r", [], status="incomplete"),
    it.FunctionCall("f", "c", "f", "{}", "incomplete"),
    it.CustomToolCall("f", "c", "f", "x", "incomplete"),
    it.ShellCall("s", "c", it.ShellAction(["ls"]), "incomplete"),
    UnknownItem({"type": "acme:thing", "id": "u", "status": "incomplete"}),
]


@pytest.mark.parametrize("item", CUT, ids=lambda item: item.type)
def test_e7_an_incomplete_item_makes_the_response_incomplete(wire: str, item: Any) -> None:
    run = Run(wire)
    run("item", item)
    assert run.kinds("finish", "stop") == ["output_item.done", "incomplete"]
    assert [each["status"] for each in run.output] == ["incomplete"]
    is_call = isinstance(item, it.FunctionCall | it.CustomToolCall)
    reason = "incomplete_tool_call" if is_call else "incomplete_item"
    assert run.terminal["incomplete_details"] == {"reason": reason}


PLAIN: list[Any] = [
    it.ShellCall("i", "c", it.ShellAction(["ls"])),
    it.LocalShellCall("i", "c", it.LocalShellAction(["ls"], {})),
    it.ApplyPatchCall("i", "c", it.ApplyPatchOperation("delete_file", "a")),
    it.ToolSearchCall("i", {"q": "x"}),
    it.ToolSearchOutput("i", [{"type": "function", "name": "f"}]),
    UnknownItem({"type": "web_search_call", "id": "i", "status": "completed", "action": {"type": "search"}}),
    UnknownItem({"type": "mcp_list_tools", "id": "i", "server_label": "s", "tools": []}),
    UnknownItem({"type": "acme:thing", "id": "i", "deep": {"nested": [None]}}),
]


@pytest.mark.parametrize("item", PLAIN, ids=lambda item: item.type)
def test_e10_items_that_are_openais_only_carry_a_slug_on_the_openresponses_wire(wire: str, item: Any) -> None:
    run = Run(wire)
    assert run.kinds("item", item) == ["output_item.added", "output_item.done"]
    raw = plain(item)
    if wire == "openresponses":
        kind = raw["type"] if ":" in raw["type"] else f"openai:{raw['type']}"
        raw |= {"type": kind, "status": "completed"}
    elif not isinstance(item, UnknownItem):
        raw |= {"status": "completed"}
    assert run.output == [raw]


@pytest.mark.parametrize(
    "item",
    [
        it.CompactionItem("i", "sealed"),
        it.FunctionCallOutput("i", "c", "text", "completed"),
        it.FunctionCallOutput("i", "c", [ct.InputTextContent("a")], "completed"),
    ],
    ids=["compaction", "output", "output_parts"],
)
def test_e10_published_items_pass_on_both_wires(wire: str, item: Any) -> None:
    run = Run(wire)
    run("item", item)
    assert run.output == [plain(item)]


@pytest.mark.parametrize("status", ["failed", "completed"])
def test_e7_a_hosted_tools_own_failure_is_kept(wire: str, status: str) -> None:
    run = Run(wire)
    run("item", {"type": "mcp_call", "id": "i", "status": status})
    assert run.output[0]["status"] == status
    assert run.kinds("finish", "stop") == ["completed"]


def test_e4_an_id_that_is_taken_is_replaced(wire: str) -> None:
    run = Run(wire)
    for _ in range(3):
        run("item", UnknownItem({"type": "acme:a", "id": "x"}))
    run("item", it.CompactionItem("x", "sealed"))
    run("item", it.Message("x", "completed", "assistant", []))
    assert [item["id"] for item in run.output] == ["x", "x_2", "x_3", "x_4", "x_5"]


def test_e4_an_item_without_an_id_gets_one(wire: str) -> None:
    run = Run(wire)
    run("item", {"type": "acme:a"})
    run("item", {"type": "message", "content": [{"type": "output_text", "text": "hi"}]})
    assert all(item["id"] for item in run.output)
    assert run.machine.snapshot.output_text == "hi"
    assert "item.message.content[0].annotations" in run.notes("repair")


SHELL = {"type": "shell_call", "action": {"commands": ["ls"]}, "status": "completed"}


@pytest.mark.parametrize(
    "given", [SHELL, {"type": "acme:call", "status": "completed"}], ids=["known", "other"]
)
def test_e4_no_two_calls_have_one_call_id_whatever_kind_they_are(wire: str, given: dict[str, Any]) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "f", "{}")
    for number in range(2):
        run("item", {**given, "id": f"sh_{number}", "call_id": "c"})
    run("item", {**given, "id": "sh_3", "call_id": "d" * 65})
    first, second, third, long = (item["call_id"] for item in run.output)
    assert (first, second, third) == ("c", "c_2", "c_3")
    assert long.startswith("call_")
    assert run.notes("repair").count("tool_call.id") == 2  # one for each kind of repair


def test_e4_an_announced_call_is_sent_whole_under_its_call_id(wire: str) -> None:
    run = Run(wire)
    run("item", {**SHELL, "id": "sh_1", "call_id": "c"})
    run("item_added", {**SHELL, "id": "sh_2", "call_id": "c"})
    run("item", {**SHELL, "id": "sh_2", "call_id": "c"})
    run("item_added", {"type": "acme:call", "id": "a"})  # says its call_id when it is done
    run("item", {"type": "acme:call", "id": "a", "call_id": "c"})
    assert [item["call_id"] for item in run.output] == ["c", "c_2", "c_3"]


def test_e4_an_output_repeats_the_call_id_that_its_call_got(wire: str) -> None:
    run = Run(wire)
    for number, call_id in enumerate(("c", "c", "d" * 65)):
        run("item", {**SHELL, "id": f"sh_{number}", "call_id": call_id})
        run("item", it.FunctionCallOutput(f"o_{number}", call_id, "text", "completed"))
    ids = [item["call_id"] for item in run.output]
    assert ids[::2] == ids[1::2]
    assert ids[:4] == ["c", "c", "c_2", "c_2"]


def test_e4_an_item_may_have_its_call_id_as_its_id(wire: str) -> None:
    run = Run(wire)
    run("item", {**SHELL, "id": "c", "call_id": "c"})
    run("item", it.FunctionCall("d", "d", "f", "{}", "completed"))
    assert [(item["id"], item["call_id"]) for item in run.output] == [("c", "c"), ("d", "d")]


def test_e4_a_server_s_own_search_has_a_call_id_only_where_it_has_one(wire: str) -> None:
    run = Run(wire)
    for item_id in ("t", "u"):
        run("item", {"type": "tool_search_call", "id": item_id, "call_id": None, "status": "completed"})
    assert not any(item.get("call_id") for item in run.output)


def test_e5_a_whole_item_closes_the_text_and_calls_that_are_whole(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "f", "{}")
    run("tool_call", 1, "d", "f", "{")
    run("text", "a")
    run("item", {"type": "acme:a", "id": "x"})
    assert [item.get("status") for item in run.output[:3]] == ["completed", "in_progress", "completed"]


# ── announced items and their progress ───────────────────────────────────────────────────────────────
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}


def test_e4_an_announced_item_is_sent_whole_under_its_index(wire: str) -> None:
    run = Run(wire)
    run("text", "a")
    assert run.kinds("item_added", SEARCH)[-1] == "output_item.added"
    (event,) = run("item_event", "ws_1", "response.web_search_call.searching", {"query": "q", "type": "x"})
    slug = "openai:" if wire == "openresponses" else ""
    assert plain(event) == {
        "type": f"{slug}response.web_search_call.searching", "sequence_number": event.sequence_number,
        "query": "q", "item_id": "ws_1", "output_index": 1,
    }  # fmt: skip
    run("text", "b")
    assert run.kinds("item", {**SEARCH, "status": "completed", "action": {}}) == [
        "output_text.done", "content_part.done", "output_item.done", "output_item.done",
    ]  # fmt: skip
    assert run.output[1] == {**SEARCH, "type": f"{slug}web_search_call", "status": "completed", "action": {}}
    run("finish")
    assert run.terminal["status"] == "completed"


def test_e10_progress_of_an_extension_keeps_its_name(wire: str) -> None:
    run = Run(wire)
    run("item_added", {"type": "acme:job", "id": "j"})
    (event,) = run("item_event", "j", "acme:job.progress", {"percent": 5})
    assert event.type == "acme:job.progress"


@pytest.mark.parametrize("kind", ["response.new_tool.going", "response.output_t\ufeffext.delta", "odd"])
def test_e10_progress_under_a_name_that_no_wire_has_is_an_extension(wire: str, kind: str) -> None:
    run = Run(wire)
    run("item_added", {"type": "new_tool", "id": "j"})
    (event,) = run("item_event", "j", kind, {"percent": 5})
    assert event.type == "openai:" + kind.replace("\ufeff", "_")


def test_e7_an_announced_item_that_is_never_sent_whole_was_cut(wire: str) -> None:
    run = Run(wire)
    run("item_added", SEARCH)
    assert run.kinds("finish", "stop") == ["output_item.done", "incomplete"]
    assert run.output[0]["status"] == "incomplete"


def test_e8_an_announced_item_is_incomplete_after_a_failure(wire: str) -> None:
    run = Run(wire)
    run("item_added", SEARCH)
    run("fail", "down")
    assert run.output[0]["status"] == "incomplete"


def test_e4_an_item_announced_without_an_id_is_known_by_the_one_it_got(wire: str) -> None:
    run = Run(wire)
    run("item_added", {"type": "acme:job"})
    item_id = run.output[0]["id"]
    run("item_event", item_id, "acme:job.progress", {})
    run("item", {"type": "acme:job", "id": item_id, "status": "completed"})
    assert len(run.output) == 1


def test_e4_an_item_announced_under_a_taken_id_is_known_by_its_own(wire: str) -> None:
    run = Run(wire)
    run("item", it.CompactionItem("x", "sealed"))
    run("item_added", {"type": "acme:job", "id": "x"})
    (event,) = run("item_event", "x", "acme:job.progress", {})
    assert plain(event)["item_id"] == run.output[1]["id"] == "x_2"
    run("item", {"type": "acme:job", "id": "x", "status": "completed"})
    assert [item["id"] for item in run.output] == ["x", "x_2"]


# ── expected ids ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("call", "arguments"),
    [("text", ("a",)), ("reasoning", ("r",)), ("tool_call", (0, "c", "f", "{}"))],
)
def test_e4_case_17_the_next_item_takes_the_id_it_is_expected_under(
    wire: str, call: str, arguments: tuple[Any, ...]
) -> None:
    run = Run(wire)
    assert run("expect_item", "up_1", "final_answer") == []
    run(call, *arguments)
    run("block_done")
    run("text", "another")
    assert run.output[0]["id"] == "up_1"
    assert run.output[1]["id"] != "up_1"
    assert run.output[0].get("phase") == ("final_answer" if call == "text" else None)


def test_e4_an_expected_id_that_is_taken_is_replaced(wire: str) -> None:
    run = Run(wire)
    for _ in range(2):
        run("expect_item", "up_1")
        run("text", "a")
        run("block_done")
    assert [item["id"] for item in run.output] == ["up_1", "up_1_2"]


# ── extension events ─────────────────────────────────────────────────────────────────────────────────
def test_e2_an_extension_event_is_numbered_and_can_not_forge_its_head(wire: str) -> None:
    run = Run(wire)
    (event,) = run(
        "extension_event", "acme:note.v1", {"a": [1], "type": "response.completed", "sequence_number": 99}
    )
    assert plain(event) == {"type": "acme:note.v1", "sequence_number": 2, "a": [1]}
    assert run.kinds("finish") == ["completed"]


@pytest.mark.parametrize("wire", WIRES)
def test_reasoning_may_be_announced_before_it_has_words(wire: str) -> None:
    run = Run(wire)
    run("text", "Hm")
    announced = run.kinds("item_added", {"type": "reasoning", "id": "up_1", "summary": []})
    assert announced == ["output_text.done", "content_part.done", "output_item.done", "output_item.added"]
    run("reasoning_summary", "Short")
    run("reasoning_encrypted", "sealed")
    run("finish")
    assert (run.output[1]["id"], run.output[1]["encrypted_content"]) == ("up_1", "sealed")


def test_each_announced_reasoning_item_is_one_of_its_own() -> None:
    run = Run()
    for _ in range(2):
        run("item_added", {"type": "reasoning", "id": "up_1", "summary": []})
    run("finish")
    assert [item["id"] for item in run.output] == ["up_1", "up_1_2"]
