"""Tool calls: names, ids, interleaving, and what the client declared them as (laws E4, E5, E11)."""

import json
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.protocol.events import OutputItemDone
from openresponses_bridge.protocol.items import FunctionCall
from tests.support.machines import Run, plain

LONE_HIGH, LONE_LOW = "\ud83d", "\ude00"


def declared(*tools: tuple[ToolKind, str] | tuple[ToolKind, str, str]) -> ToolIdentityMap:
    identities = ToolIdentityMap()
    for tool in tools:
        identities.declare(*tool)
    return identities


def call(run: Run, name: str, arguments: str, **named: Any) -> list[str]:
    """One whole call in two fragments; the types of its events."""
    half = len(arguments) // 2
    events = run.kinds("tool_call", 0, "c", name, arguments[:half], **named)
    events += run.kinds("tool_call", 0, arguments=arguments[half:], **named)
    return events + run.kinds("tool_call_done", 0)


@pytest.mark.parametrize(
    ("pieces", "deltas"),
    [
        (['"' + LONE_HIGH, LONE_LOW + '"'], ['"', '😀"']),
        (['"' + LONE_HIGH, 'x"'], ['"', '\ufffdx"']),
        (['"é', 'x"'], ['"é', 'x"']),
        (['"' + LONE_LOW, '"'], ['"\ufffd', '"']),
    ],
)
def test_a_pair_cut_within_arguments_waits_for_its_half(
    wire: str, pieces: list[str], deltas: list[str]
) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "f")
    events = [event for piece in pieces for event in run("tool_call", 0, arguments=piece)]
    assert [event.delta for event in events] == deltas
    run("tool_call_done", 0)
    assert run.output[0]["arguments"] == "".join(deltas)


# ── ids ──────────────────────────────────────────────────────────────────────────────────────────────
def test_e4_a_call_without_an_id_gets_one(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, name="f", arguments="{}")
    assert run.output[0]["call_id"].startswith("call_")
    assert run.notes("repair") == []


def test_e4_an_id_that_comes_after_the_call_was_announced_is_ignored(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, name="f", arguments="{")
    before = run.output[0]["call_id"]
    assert run.kinds("tool_call", 0, id="late", arguments="}") == ["function_call_arguments.delta"]
    run("finish")
    assert run.output[0]["call_id"] == before
    assert run.notes("ignored") == ["tool_call.id"]


def test_e4_an_id_that_comes_before_the_name_is_used(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, arguments="{}")
    run("tool_call", 0, id="early")
    run("tool_call", 0, name="f")
    assert run.output[0]["call_id"] == "early"


def test_case_04_blank_id_and_name_continue_the_call(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "f", "{")
    assert run.kinds("tool_call", 0, "", "", "}") == ["function_call_arguments.delta"]
    assert run.kinds("tool_call", 0, None, None, None) == []
    run("finish")
    assert [item["arguments"] for item in run.output] == ["{}"]


def test_a_name_that_is_repeated_does_not_begin_another_call(wire: str) -> None:
    run = Run(wire)
    for piece in ('{"a":', "1", "}"):
        run("tool_call", 0, "c", "f", piece)
    run("finish")
    assert [(item["name"], item["arguments"]) for item in run.output] == [("f", '{"a":1}')]


@pytest.mark.parametrize(
    "ids", [["a" * 65], ["a" * 64, "a" * 64], ["a" * 64, "a" * 64, "a" * 64], ["é" * 200, LONE_HIGH * 65]]
)
def test_case_17_call_ids_fit_what_a_client_may_send_back_and_are_unique(wire: str, ids: list[str]) -> None:
    run = Run(wire)
    for index, call_id in enumerate(ids):
        run("tool_call", index, call_id, "f", "{}")
    run("item", FunctionCall("i", ids[0], "f", "{}", "completed"))
    run("finish")
    call_ids = [item["call_id"] for item in run.output]
    assert len(set(call_ids)) == len(call_ids) == len(ids) + 1
    assert all(1 <= len(call_id) <= 64 for call_id in call_ids)
    assert set(run.notes("repair")) == {"tool_call.id"}


def test_case_17_a_long_id_is_shortened_the_same_way_each_time() -> None:
    runs = [Run(), Run()]
    for run in runs:
        run("tool_call", 0, "x" * 65, "f", "{}")
    assert runs[0].output == runs[1].output


# ── names and arguments ──────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("pieces", [("{", "}"), ('{"a":1}',), ("",), ("", "{", "", "}")])
def test_e4_case_05_what_came_before_the_name_leaves_as_one_delta(wire: str, pieces: tuple[str, ...]) -> None:
    run = Run(wire)
    for piece in pieces:
        assert run("tool_call", 0, "c", arguments=piece) == []
    events = run.kinds("tool_call", 0, name="f")
    text = "".join(pieces)
    assert events == ["output_item.added"] + ["function_call_arguments.delta"] * bool(text)
    assert run.output[0]["arguments"] == text


def test_e5_case_02_interleaved_calls_keep_their_pieces_apart(wire: str) -> None:
    run = Run(wire)
    pieces: dict[int, list[str]] = {0: ['{"a"', ": 1", "}"], 1: ["[", "1", "]"], 2: ['"s', "tri", 'ng"']}
    for turn in range(3):
        for index, parts in pieces.items():
            first = {"id": f"c{index}", "name": f"f{index}"} if turn == 0 else {}
            run("tool_call", index, arguments=parts[turn], **first)
    run("finish", "tool_calls")
    assert [item["arguments"] for item in run.output] == ["".join(parts) for parts in pieces.values()]
    assert [item["name"] for item in run.output] == ["f0", "f1", "f2"]


# ── what the client declared (law E11) ───────────────────────────────────────────────────────────────
def test_e11_a_sanitised_name_is_restored(wire: str) -> None:
    identities = declared((ToolKind.FUNCTION, "my.tool"))
    (identity,) = identities
    run = Run(wire, identities=identities)
    call(run, identity.upstream_name, "{}")
    assert identity.upstream_name != "my.tool"
    assert run.output[0]["name"] == "my.tool"


def test_e11_case_35_a_namespaced_name_is_restored_where_it_has_a_spelling(wire: str) -> None:
    identities = declared((ToolKind.FUNCTION, "read", "files"))
    run = Run(wire, identities=identities)
    call(run, "files__read", "{}")
    item = run.output[0]
    if wire == "openai":
        assert (item["name"], item["namespace"]) == ("read", "files")
    else:
        assert (item["name"], item.get("namespace")) == ("files__read", None)


def test_e11_case_35_an_upstreams_own_namespace_passes(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "read", "{}", namespace="files")
    run("tool_call", 1, "d", None, "{}", namespace="files")
    run("tool_call", 1, name="write")
    expected = "files" if wire == "openai" else None
    assert [(item["name"], item.get("namespace")) for item in run.output] == [
        ("read", expected),
        ("write", expected),
    ]


CUSTOM_DELTA = "custom_tool_call_input.delta"


def test_e11_case_33_a_custom_tool_is_unwrapped_as_it_streams() -> None:
    run = Run("openai", identities=declared((ToolKind.CUSTOM, "apply")))
    run("tool_call", 0, "c", "apply", '{"inp')
    assert [event.delta for event in run("tool_call", 0, arguments='ut": "line 1\\nli')] == ["line 1\nli"]
    assert [event.delta for event in run("tool_call", 0, arguments="ne \\ud83d")] == ["ne "]
    assert [event.delta for event in run("tool_call", 0, arguments='\\ude00"}')] == ["😀"]
    assert run.kinds("finish", "tool_calls") == [
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]
    assert run.output[0] | {"id": ""} == {
        "type": "custom_tool_call", "id": "", "call_id": "c", "name": "apply", "input": "line 1\nline 😀",
        "status": "completed",
    }  # fmt: skip


def test_e11_a_custom_tool_is_a_function_with_its_wrapper_where_only_functions_are_known() -> None:
    run = Run("openresponses", identities=declared((ToolKind.CUSTOM, "apply")))
    call(run, "apply", '{"input": "x"}')
    assert (run.output[0]["type"], run.output[0]["arguments"]) == ("function_call", '{"input": "x"}')


@pytest.mark.parametrize("known", [True, False])
def test_e11_free_text_from_the_upstream_is_a_custom_call_or_gets_its_wrapper(wire: str, known: bool) -> None:
    identities = declared((ToolKind.CUSTOM, "apply")) if known else None
    run = Run(wire, identities=identities)
    text = 'say "hi"\n\\ and 😀'
    call(run, "apply", text, type="custom")
    item = run.output[0]
    if wire == "openai":
        assert (item["type"], item["input"]) == ("custom_tool_call", text)
    else:
        assert (item["type"], json.loads(item["arguments"])) == ("function_call", {"input": text})


def test_e11_free_text_without_any_text(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "apply", type="custom")
    run("finish", "tool_calls")
    item = run.output[0]
    assert item.get("input", item.get("arguments")) == ("" if wire == "openai" else '{"input":""}')
    assert item["status"] == "completed"


@pytest.mark.parametrize("text", ["", "half"])
def test_e7_free_text_that_a_limit_ended_is_cut(wire: str, text: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "apply", text, type="custom")
    events = run.kinds("finish", "length")
    assert run.output[0]["status"] == "incomplete"
    assert not any(kind.endswith(("input.done", "arguments.done")) for kind in events)


@pytest.mark.parametrize(
    ("arguments", "reason", "status", "given"),
    [
        ('{"input": "whole"}', "length", "completed", "whole"),
        ('{"input": "ha', "stop", "incomplete", "ha"),
        ('{"input": "ha', "length", "incomplete", "ha"),
        ("raw text", "stop", "completed", "raw text"),
        ("raw text", "length", "incomplete", "raw text"),
        ("", "stop", "completed", ""),
        (" ", "stop", "completed", ""),
        ("", "length", "incomplete", ""),
        (" ", "length", "incomplete", ""),
        ('{"patch": "late key"}', "length", "completed", "late key"),
    ],
)
def test_e7_e11_an_unwrapped_input_and_the_end(arguments: str, reason: str, status: str, given: str) -> None:
    run = Run("openai", identities=declared((ToolKind.CUSTOM, "apply")))
    run("tool_call", 0, "c", "apply", arguments)
    run("finish", reason)
    assert (run.output[0]["status"], run.output[0]["input"]) == (status, given)


RESTORED: list[tuple[ToolKind, str, dict[str, Any]]] = [
    (ToolKind.SHELL, '{"commands": ["ls", "pwd"], "timeout_ms": 5}',
     {"type": "shell_call", "action": {"commands": ["ls", "pwd"], "timeout_ms": 5}}),
    (ToolKind.SHELL, '{"command": "ls"}', {"type": "shell_call", "action": {"commands": ["ls"]}}),
    (ToolKind.LOCAL_SHELL, '{"command": ["ls", "-l"], "workdir": "/tmp"}',
     {"type": "local_shell_call",
      "action": {"type": "exec", "command": ["ls", "-l"], "env": {}, "working_directory": "/tmp"}}),
    (ToolKind.LOCAL_SHELL, '{"command": "ls", "env": {"A": "b"}}',
     {"type": "local_shell_call", "action": {"type": "exec", "command": ["bash", "-lc", "ls"],
      "env": {"A": "b"}}}),
    (ToolKind.APPLY_PATCH, '{"operation": {"type": "create_file", "path": "a", "diff": "+x"}}',
     {"type": "apply_patch_call", "operation": {"type": "create_file", "path": "a", "diff": "+x"}}),
    (ToolKind.APPLY_PATCH, '{"type": "delete_file", "path": "a"}',
     {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "arguments", "item"), RESTORED)
@pytest.mark.parametrize("end", [("tool_call_done", 0), ("finish", "tool_calls")], ids=["done", "finish"])
def test_e11_a_shell_or_patch_call_is_restored_once_it_is_whole(
    kind: ToolKind, arguments: str, item: dict[str, Any], end: tuple[Any, ...]
) -> None:
    run = Run("openai", identities=declared((kind, "tool")))
    assert run("tool_call", 0, "c", "tool", arguments[:10]) == []
    assert run("tool_call", 0, arguments=arguments[10:]) == []
    assert run.kinds(*end)[:2] == ["output_item.added", "output_item.done"]
    restored = {name: value for name, value in run.output[0].items() if name != "id"}
    assert restored == {**item, "call_id": "c", "status": "completed"}
    assert plain(run.events[2])["item"]["status"] == "in_progress"


@pytest.mark.parametrize(("kind", "arguments", "item"), RESTORED)
def test_e11_shell_and_patch_calls_stay_functions_where_only_functions_are_known(
    kind: ToolKind, arguments: str, item: dict[str, Any]
) -> None:
    run = Run("openresponses", identities=declared((kind, "tool")))
    call(run, "tool", arguments)
    assert (run.output[0]["type"], run.output[0]["arguments"]) == ("function_call", arguments)


@pytest.mark.parametrize("kind", [ToolKind.SHELL, ToolKind.LOCAL_SHELL, ToolKind.APPLY_PATCH])
@pytest.mark.parametrize(
    "arguments", ["{}", "[]", "5", '{"commands": 5}', "malformed", '{"command": {"a": 1}}',
    '{"operation": []}',
                  '{"commands": ["\\ud83d"]}', pytest.param("[" * 100_000, marks=pytest.mark.untraced)]
)  # fmt: skip
def test_e11_what_cant_be_restored_stays_a_function_call(kind: ToolKind, arguments: str) -> None:
    run = Run("openai", identities=declared((kind, "tool")))
    run("tool_call", 0, "c", "tool", arguments)
    run("finish", "tool_calls")
    item = run.output[0]
    assert (item["type"], item["name"], item["call_id"], item["arguments"]) == (
        "function_call",
        "tool",
        "c",
        arguments,
    )
    assert run.notes("repair") == ["tool_call.tool"]


@pytest.mark.parametrize("reason", ["length", "content_filter", "cancelled"])
def test_e7_e11_a_held_call_that_was_not_let_finish_is_not_restored(reason: str) -> None:
    run = Run("openai", identities=declared((ToolKind.SHELL, "tool")))
    run("tool_call", 0, "c", "tool", '{"command": "rm')
    run("finish", reason)
    assert (run.output[0]["type"], run.output[0]["status"]) == ("function_call", "incomplete")


def test_e8_e11_a_held_call_is_not_sent_on_failure() -> None:
    run = Run("openai", identities=declared((ToolKind.SHELL, "tool")))
    run("tool_call", 0, "c", "tool", '{"command": "ls"}')
    assert run.kinds("fail", "down") == ["error", "failed"]
    assert run.output == []


def test_e5_e11_a_held_call_closes_the_text_before_it_and_keeps_its_place() -> None:
    run = Run("openai", identities=declared((ToolKind.SHELL, "tool")))
    run("text", "before")
    assert run.kinds("tool_call", 0, "c", "tool", '{"command":') == [
        "output_text.done", "content_part.done", "output_item.done",
    ]  # fmt: skip
    run("tool_call", 0, arguments='"ls"}')
    run("text", "after")
    run("finish")
    assert [item["type"] for item in run.output] == ["message", "shell_call", "message"]


def test_e5_e11_another_call_ends_a_held_call_that_is_whole() -> None:
    run = Run("openai", identities=declared((ToolKind.SHELL, "tool")))
    run("tool_call", 0, "c", "tool", '{"command":')
    run("tool_call", 1, "d", "tool", '{"command": "pwd"}')
    run("tool_call", 0, arguments='"ls"}')
    run("tool_call", 2, "e", "f", "{}")
    run("finish")
    assert [item["call_id"] for item in run.output] == ["c", "d", "e"]


def test_e5_e11_another_id_on_the_index_of_a_held_call_ends_it() -> None:
    run = Run("openai", identities=declared((ToolKind.SHELL, "tool")))
    run("tool_call", 0, "c", "tool", '{"command":')
    run("tool_call", 0, "d", "f", "{}")
    run("finish")
    assert [(item["type"], item["status"]) for item in run.output] == [
        ("function_call", "incomplete"), ("function_call", "completed"),
    ]  # fmt: skip


def test_e11_a_held_call_takes_the_id_it_was_expected_under() -> None:
    run = Run("openai", identities=declared((ToolKind.SHELL, "tool")))
    run("expect_item", "own_1")
    run("tool_call", 0, "c", "tool", "malformed")
    run("finish")
    assert run.output[0]["id"] == "own_1"


# ── characters split between pieces ──────────────────────────────────────────────────────────────────
def test_e1_a_character_split_between_pieces_of_arguments_is_joined(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "f", '{"a":"' + LONE_HIGH)
    assert run.output[0]["arguments"] == '{"a":"'
    assert [event.delta for event in run("tool_call", 0, arguments=LONE_LOW + '"}')] == ['😀"}']
    run("finish")
    assert json.loads(run.output[0]["arguments"]) == {"a": "😀"}


def test_e1_half_a_character_in_arguments_becomes_a_replacement(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "f", f'"{LONE_LOW}{LONE_HIGH}')
    run("finish", "length")
    assert run.output[0]["arguments"] == '"\ufffd\ufffd'


def test_e11_a_character_split_in_a_held_call_is_joined() -> None:
    run = Run("openai", identities=declared((ToolKind.SHELL, "tool")))
    run("tool_call", 0, "c", "tool", '{"command": "echo ' + LONE_HIGH)
    run("tool_call", 0, arguments=LONE_LOW + '"}')
    run("finish")
    assert run.output[0]["action"]["commands"] == ["echo 😀"]


# ── E12 ──────────────────────────────────────────────────────────────────────────────────────────────
def test_e12_finished_calls_leave_their_text_to_the_item() -> None:
    run = Run()
    run("tool_call", 0, "c", "f", '"' + "x" * 10_000 + '"')
    run("tool_call_done", 0)
    assert run.machine._blocks.calls[0].text.getvalue() == ""
    done = next(event for event in run.events if isinstance(event, OutputItemDone))
    assert len(done.item.arguments) == 10_002


# ── arguments that begin again ───────────────────────────────────────────────────────────────────────
def test_n4_an_empty_object_waits_for_what_follows_it(wire: str) -> None:
    run = Run(wire)
    assert run.kinds("tool_call", 0, "c", "f", "{}") == ["output_item.added"]
    run("tool_call", 0, arguments='{"a":1}')
    run("finish")
    assert run.output[0]["arguments"] == '{"a":1}'


def test_n4_an_empty_object_keeps_its_place_before_a_text(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "f", "{}")
    assert run.kinds("text", "b")[0] == "function_call_arguments.delta"
    run("finish")
    assert run.output[0]["arguments"] == "{}"


def test_n4_what_waits_for_a_name_begins_again_too(wire: str) -> None:
    run = Run(wire)
    for piece in ("{}", '{"a":1,', '{"a":1,"b":2}'):
        run("tool_call", 0, "c", arguments=piece)
    run("tool_call", 0, name="f")
    run("finish")
    assert run.output[0]["arguments"] == '{"a":1,"b":2}'


@pytest.mark.parametrize("kind", [ToolKind.SHELL, ToolKind.CUSTOM])
def test_n4_calls_that_are_restored_begin_again_too(kind: ToolKind) -> None:
    identities = ToolIdentityMap()
    identities.declare(kind, "shell")
    field = "input" if kind is ToolKind.CUSTOM else "command"
    run = Run("openai", identities=identities)
    whole = json.dumps({field: "ls"})
    for piece in ("{}", whole[:5], whole):
        run("tool_call", 0, "c", "shell", piece)
    run("finish")
    assert run.machine.snapshot.status == "completed"
    assert "ls" in json.dumps(run.output[0])


def test_n4_two_names_at_one_index_are_two_calls(wire: str) -> None:
    run = Run(wire)
    run("tool_call", 0, "c", "f", '{"a":1}')
    run("tool_call", 0, "c", "g", '{"a":1}')
    run("finish")
    assert [item["name"] for item in run.output] == ["f", "g"]


def test_e11_a_name_with_the_models_own_tokens_is_repaired_where_its_tool_was_declared(wire: str) -> None:
    identities = ToolIdentityMap()
    identities.declare(ToolKind.FUNCTION, "look")
    run = Run(wire, identities=identities)
    run("tool_call", 0, "c", "functions.look", "{}")
    run("tool_call", 1, "d", "functions.other", "{}")
    run("finish")
    assert [item["name"] for item in run.output] == ["look", "functions.other"]
    assert run.notes("repair") == ["tool_call.name"]
