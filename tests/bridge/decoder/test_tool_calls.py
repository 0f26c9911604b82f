"""Tool calls as parts: each once and whole, at the first of three events that can confirm it (laws D1–D5)."""

import itertools
import sys
from collections.abc import Callable
from typing import Any

import pytest

from openresponses_bridge.calls.coercion import READ_JSON, READ_SCALARS
from openresponses_bridge.decoder import namespace_call_id, strip_call_id
from openresponses_bridge.decoder.part_decoder import UNREADABLE_CALL
from openresponses_bridge.decoder.tool_calls import unique_call_id
from openresponses_bridge.protocol.codec import event_from
from tests.support.vscode_parts import (
    Decoded,
    Raw,
    added,
    arguments_delta,
    arguments_done,
    completed,
    created,
    done,
    function,
    kinds,
    said,
    text_delta,
)

ARGUMENTS = '{"city":"Oslo"}'
UNREADABLE = "are not JSON, the call is not emitted"
CALL = ("gw-call_0", "look", {"city": "Oslo"})


def stream(*middle: Raw, **response: Any) -> list[Raw]:
    return [created(), *middle, completed(**response)]


# ── the three places ───────────────────────────────────────────────────────────────────────────────────


def test_emitted_at_arguments_done() -> None:
    decoded = Decoded(
        [created(), added(function()), arguments_delta('{"city":'), arguments_delta('"Oslo"}')], False
    )
    assert decoded.parts == []
    assert kinds(decoded.feed(arguments_done(ARGUMENTS))) == ["ToolCall"]
    assert decoded.calls == [CALL]
    assert decoded.feed(done(function(0, ARGUMENTS))) == []
    assert kinds(decoded.feed(completed(function(0, ARGUMENTS)))) == ["Data"]
    assert decoded.result.finish_reason == "tool-calls"


def test_emitted_at_item_done_when_arguments_done_is_missing() -> None:
    decoded = Decoded([added(function()), arguments_delta(ARGUMENTS)], False)
    assert decoded.parts == []
    decoded.feed(done(function(0, ARGUMENTS)))
    assert decoded.calls == [CALL]


def test_emitted_from_the_completed_response_when_both_are_missing() -> None:
    decoded = Decoded([created(), completed(function(0, ARGUMENTS))])
    assert decoded.calls == [CALL]
    assert decoded.result.finish_reason == "tool-calls"


PLACES = [
    set(places) for n in (1, 2, 3) for places in itertools.combinations(("arguments", "item", "final"), n)
]


@pytest.mark.parametrize("with_deltas", [True, False])
@pytest.mark.parametrize(
    ("places", "with_added"),
    [(places, known) for places in PLACES for known in (True, False) if known or places != {"arguments"}],
)
def test_exactly_once_from_any_of_the_places(places: set[str], with_added: bool, with_deltas: bool) -> None:
    events = [created()]
    events += [added(function())] if with_added else []
    events += [arguments_delta(ARGUMENTS[:4]), arguments_delta(ARGUMENTS[4:])] if with_deltas else []
    events += [arguments_done(ARGUMENTS)] if "arguments" in places else []
    events += [done(function(0, ARGUMENTS))] if "item" in places else []
    events += [completed(*[function(0, ARGUMENTS)] if "final" in places else [])]
    assert Decoded(events).calls == [CALL]


def test_gap_1_an_unannounced_call_waits_for_its_item() -> None:
    decoded = Decoded([created(), arguments_delta(ARGUMENTS), arguments_done(ARGUMENTS)], False)
    assert decoded.parts == []
    assert "arguments.done" in decoded.notes("warning")
    decoded.feed(done(function(0, "")))
    assert decoded.calls == [CALL]


def test_case_05_a_late_name_is_the_right_one() -> None:
    decoded = Decoded(
        [added(function(name="")), arguments_done(ARGUMENTS), done(function(0, ARGUMENTS))], False
    )
    assert decoded.calls == [CALL]


def test_a_call_without_a_name_is_never_emitted() -> None:
    decoded = Decoded(stream(done(function(0, ARGUMENTS, name=""))))
    assert decoded.calls == []
    assert decoded.notes("loss")["tool_call"] == "has no name, not emitted"
    assert decoded.result.finish_reason == "stop"


def test_an_item_without_a_type_is_known_by_call_id_and_name() -> None:
    item = function(0, ARGUMENTS)
    del item["type"]
    assert Decoded(stream(added(item), done(item))).calls == [CALL]


def test_what_is_open_and_whole_counts_when_the_completed_response_names_no_output() -> None:
    events = [
        added(function(0)),
        arguments_delta(ARGUMENTS, 0),
        added(function(1), 1),
        added(function(2), 2),
        arguments_delta('{"cut":', 2),
        arguments_delta("{}", 3),
    ]
    decoded = Decoded(stream(*events))
    assert decoded.calls == [CALL, ("gw-call_1", "look", {})]
    assert "tool_call" in decoded.notes("loss")
    assert Decoded([*events, completed(function(9, "{}"))]).calls == [("gw-call_9", "look", {})]


def test_interleaved_parallel_calls_each_get_their_own_arguments() -> None:
    events = [added(function(0)), added(function(1), 1)]
    for one, other in zip('{"n":10}', '{"n":20}', strict=True):
        events += [arguments_delta(one, 0), arguments_delta(other, 1)]
    events += [arguments_done("", 1), arguments_done("", 0)]
    assert Decoded(stream(*events)).calls == [
        ("gw-call_0", "look", {"n": 10}),
        ("gw-call_1", "look", {"n": 20}),
    ]


# ── calls side by side leave in the order in which they began ──────────────────────────────────────────
SIDE_BY_SIDE = [added(function(0)), added(function(1), 1), added(function(2), 2)]
LATER = [arguments_done("{}", 2), done(function(1, "{}"), 1)]
IN_ORDER = [(f"gw-call_{index}", "look", {}) for index in range(3)]


def test_a_call_waits_for_those_that_began_before_it() -> None:
    decoded = Decoded([created(), *SIDE_BY_SIDE, *LATER], False)
    assert decoded.calls == []
    assert kinds(decoded.feed(arguments_done("{}", 0))) == ["ToolCall"] * 3
    assert decoded.calls == IN_ORDER


def test_nobody_waits_for_a_call_that_is_cut() -> None:
    decoded = Decoded([created(), *SIDE_BY_SIDE, *LATER], False)
    decoded.feed(done(function(0, '{"a":', status="incomplete")))
    assert decoded.calls == IN_ORDER[1:]


@pytest.mark.parametrize(
    "end",
    [
        completed(),
        completed(status="incomplete"),
        completed(status="failed"),
        {"type": "error", "message": "x"},
    ],
    ids=["completed", "incomplete", "failed", "an error"],
)
def test_whole_calls_leave_at_the_end_whatever_became_of_the_first(end: Raw) -> None:
    """As they did before any of them waited; the error comes last."""
    decoded = Decoded([created(), *SIDE_BY_SIDE, *LATER, end])
    # a completed response vouches for the first one too
    assert decoded.calls == IN_ORDER[0 if end["type"] == "response.completed" else 1 :]
    assert "Text" not in kinds(decoded.parts[:2])


def test_whole_calls_leave_when_the_stream_is_cut() -> None:
    assert Decoded([created(), *SIDE_BY_SIDE, *LATER]).calls == IN_ORDER[1:]


def test_a_fragment_without_a_name_holds_nobody_back() -> None:
    decoded = Decoded([created(), arguments_delta("{", 7, "stray"), added(function(1), 1)], False)
    assert kinds(decoded.feed(arguments_done("{}", 1))) == ["ToolCall"]


def test_many_calls_that_wait_cost_in_line_with_their_number() -> None:
    """Counted in the calls of the heap and of the aggregator, not in seconds."""

    def steps(count: int) -> int:
        counted = 0

        def count_one(*_: object) -> None:
            nonlocal counted
            counted += 1

        events = [added(function(index), index) for index in range(count)]
        events += [arguments_done("{}", index) for index in reversed(range(count))]
        decoded = Decoded(events[:count], False)
        sys.setprofile(count_one)
        try:
            for event in events[count:]:
                decoded.feed(event)
        finally:
            sys.setprofile(None)
        assert [call_id for call_id, _, _ in decoded.calls] == [f"gw-call_{index}" for index in range(count)]
        return counted

    assert steps(800) < 6 * steps(200)


def test_text_around_calls_keeps_its_place() -> None:
    events = [text_delta("Let me "), added(function(1), 1), text_delta("check."), arguments_done("{}", 1)]
    assert kinds(Decoded(stream(*events)).parts) == ["Text", "Text", "ToolCall", "Data"]


# ── who is who ─────────────────────────────────────────────────────────────────────────────────────────


def test_rotating_item_ids_are_followed_by_output_index() -> None:
    events = [
        added(function(0, item_id="a")),
        arguments_delta(ARGUMENTS, 0, "b"),
        arguments_done("", 0, "c"),
        done(function(0, ARGUMENTS, item_id="d")),
        completed(function(0, ARGUMENTS, item_id="e")),
    ]
    assert Decoded(events).calls == [CALL]


def test_a_call_whose_ids_all_rotate_is_still_one() -> None:
    events = [
        added(function(0, item_id="a", call_id="call_0")),
        arguments_done(ARGUMENTS, 0, "b"),
        done(function(0, ARGUMENTS, item_id="c", call_id="call_c")),
        completed(function(0, '{ "city": "Oslo" }', item_id="d", call_id="call_d")),
    ]
    assert Decoded(events).calls == [CALL]


def test_positions_of_the_final_output_need_not_be_output_indexes() -> None:
    events = [
        *(added(function(index), index) for index in (1, 2)),
        *(arguments_done(f'{{"n":{index}}}', index) for index in (1, 2)),
        *(done(function(index, f'{{"n":{index}}}'), index) for index in (1, 2)),
        completed(function(1, '{"n":1}'), function(2, '{"n":2}')),
    ]
    assert [name for name, *_ in Decoded(events).calls] == ["gw-call_1", "gw-call_2"]


def test_case_01_two_calls_at_one_index_are_two() -> None:
    events = [
        added(function(0, item_id="a", call_id="call_a")),
        added(function(0, item_id="b", call_id="call_b")),
        arguments_delta('{"n":1}', 0, "a"),
        arguments_delta('{"n":2}', 0, "b"),
        done(function(0, "", item_id="a", call_id="call_a")),
        done(function(0, "", item_id="b", call_id="call_b")),
    ]
    assert Decoded(stream(*events)).calls == [
        ("gw-call_a", "look", {"n": 1}),
        ("gw-call_b", "look", {"n": 2}),
    ]


def test_a_call_announced_again_under_another_item_is_dropped() -> None:
    events = [
        done(function(0, ARGUMENTS)),
        done(function(1, '{ "city": "Oslo" }', call_id="call_0"), 1),
        done(function(0, "{}", item_id="fc_0", call_id="call_0")),
    ]
    decoded = Decoded(stream(*events))
    assert decoded.calls == [CALL]
    assert decoded.notes("repair") == {"tool_call": "announced again, dropped"}


@pytest.mark.parametrize(
    "other",
    [function(1, '{"city":"Rome"}', call_id="call_0"), function(1, ARGUMENTS, call_id="call_0", name="find")],
)
def test_a_different_call_with_a_used_call_id_gets_one_of_its_own(other: Raw) -> None:
    decoded = Decoded(stream(done(function(0, ARGUMENTS)), done(other, 1)))
    assert [call_id for call_id, *_ in decoded.calls] == ["gw-call_0", "gw-call_0_2"]
    assert decoded.notes("repair") == {"tool_call.call_id": "used for two calls, made unique"}


def test_the_same_call_under_two_call_ids_is_two() -> None:
    events = stream(done(function(0, ARGUMENTS)), done(function(1, ARGUMENTS), 1))
    assert [call_id for call_id, *_ in Decoded(events).calls] == ["gw-call_0", "gw-call_1"]


def test_calls_without_any_id_get_one() -> None:
    events = [done(function(index, f'{{"n":{index}}}', item_id="", call_id=""), index) for index in (0, 1)]
    assert [call_id for call_id, *_ in Decoded(stream(*events)).calls] == ["gw-call_0", "gw-call_1"]


def test_the_item_id_stands_in_for_a_missing_call_id() -> None:
    assert Decoded(stream(done(function(0, "{}", call_id="")))).calls[0][0] == "gw-fc_0"


@pytest.mark.parametrize(("source", "expected"), [("call_id", "gw-call_0"), ("item_id", "gw-fc_0")])
def test_the_source_of_ids_is_an_option(source: str, expected: str) -> None:
    assert Decoded(stream(done(function(0, "{}"))), call_id_source=source).calls[0][0] == expected


# ── arguments ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "value", "repair"),
    [
        ("", {}, None),
        (" \n", {}, None),
        ("{}", {}, None),
        ('{"a": [1, null, "é"]}', {"a": [1, None, "é"]}, None),
        ('{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}, None),
        ('{"emoji": "\\ud83d\\ude42"}', {"emoji": "🙂"}, None),
        ('{"half": ["\\ud83d", 1, {"\\ud83d": true}]}', {"half": ["�", 1, {"�": True}]}, None),
        ("null", {}, "arguments are null, replaced by {}"),
        ("[1]", {"input": [1]}, "arguments are not an object but list, wrapped"),
        ('"Oslo"', {"input": "Oslo"}, "arguments are not an object but str, wrapped"),
        ("7", {"input": 7}, "arguments are not an object but int, wrapped"),
        ('"{\\"a\\":1}"', {"a": 1}, "arguments were JSON within a JSON string"),
    ],
)
def test_arguments_become_an_object(arguments: str, value: Any, repair: str | None) -> None:
    decoded = Decoded(stream(done(function(0, arguments))))
    assert decoded.calls == [("gw-call_0", "look", value)]
    assert decoded.notes("repair").get("tool_call.arguments") == repair


NOT_JSON = ["not json", '{"a": NaN}', '{"a":1}}', '{"city":"Os', "[" * 100_000, "{'a': 1}", '{"a":1}{"a":2}']
ENDINGS: dict[str, Callable[[str], list[Raw]]] = {
    "arguments done": lambda text: [added(function()), arguments_delta(text), arguments_done(text)],
    "item done": lambda text: [done(function(0, text))],
    "both": lambda text: [added(function()), arguments_done(text), done(function(0, text))],
    "completed": lambda text: [],
}


LOOK = {
    "type": "function",
    "name": "look",
    "description": None,
    "strict": None,
    "parameters": {
        "type": "object",
        "properties": {
            "startLine": {"type": "integer"},
            "deep": {"type": "boolean"},
            "edits": {"type": "array"},
            "content": {"type": "string"},
        },
    },
}


@pytest.mark.parametrize("where", ["first", "last", "both"])
def test_texts_in_the_input_are_read_as_the_declared_schema_wants_them(where: str) -> None:
    text = '{"startLine":"1","deep":"true","edits":"[1]","content":"[1]"}'
    first, last = created(), completed(function(0, text))
    if where != "last":
        first["response"]["tools"] = [LOOK]
    last["response"]["tools"] = [LOOK] if where != "first" else []
    events = [arguments_delta(text), arguments_done(text)] if where != "last" else []
    decoded = Decoded([first, *([added(function())] if events else []), *events, last])
    read = {"startLine": 1, "deep": True, "edits": [1], "content": "[1]"}
    assert decoded.calls == [("gw-call_0", "look", read)]
    noted = [each.what for each in decoded.result.diagnostics if each.kind == "repair"]
    assert noted == [READ_SCALARS, READ_JSON]


def test_input_of_a_tool_that_was_not_declared_stays_as_it_is() -> None:
    first = created()
    first["response"]["tools"] = [{**LOOK, "name": "other"}, {"type": "custom", "name": "look"}]
    decoded = Decoded([first, done(function(0, '{"startLine":"1"}')), completed()])
    assert decoded.calls == [("gw-call_0", "look", {"startLine": "1"})]


def test_arguments_that_are_not_json_are_repaired_with_the_option() -> None:
    broken, cut = function(0, "{'a': 1,}"), function(1, '{"a": [1')
    decoded = Decoded([created(), done(broken), done(cut, 1), completed(broken, cut)], repair=True)
    assert decoded.calls == [("gw-call_0", "look", {"a": 1})]
    assert decoded.notes("repair")["tool_call.arguments"] == "arguments were not JSON and were repaired"
    assert decoded.notes("loss")["tool_call.arguments"] == UNREADABLE


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("text", NOT_JSON, ids=range(len(NOT_JSON)))
def test_arguments_that_are_not_json_are_no_call(text: str, ending: str, named: bool) -> None:
    """A host would run the tool, with arguments that the model did not give."""
    output = [function(0, text)] if named or ending == "completed" else []
    decoded = Decoded([created(), *ENDINGS[ending](text), completed(*output)])
    assert decoded.calls == []
    assert decoded.result.finish_reason == "stop"
    assert decoded.notes("loss")["tool_call.arguments"] == UNREADABLE
    assert decoded.text == f"**Note:** {UNREADABLE_CALL}"


def test_beside_a_call_that_can_be_run_nothing_is_said_to_the_user() -> None:
    decoded = Decoded(stream(done(function(0, "not json")), done(function(1, ARGUMENTS), 1)))
    assert [call_id for call_id, *_ in decoded.calls] == ["gw-call_1"]
    assert (decoded.result.finish_reason, decoded.text) == ("tool-calls", "")


def test_half_characters_of_two_deltas_are_joined() -> None:
    events = [
        added(function()),
        arguments_delta('{"e":"\ud83d'),
        arguments_delta('\ude42"}'),
        arguments_done(""),
    ]
    assert Decoded(stream(*events)).calls == [("gw-call_0", "look", {"e": "🙂"})]


def test_case_06_no_arguments_are_an_empty_object() -> None:
    assert Decoded(stream(added(function()), arguments_done(""))).calls == [("gw-call_0", "look", {})]


def test_case_07_only_arguments_done() -> None:
    assert Decoded(stream(added(function()), arguments_done(ARGUMENTS))).calls == [CALL]


def test_case_07_an_empty_done_after_deltas_keeps_them() -> None:
    events = [added(function()), arguments_delta(ARGUMENTS), arguments_done("")]
    assert Decoded(stream(*events)).calls == [CALL]
    assert Decoded(stream(*events[:2], done(function(0, "")))).calls == [CALL]


def test_case_08_an_empty_delta_is_accepted() -> None:
    events = [added(function()), arguments_delta(""), arguments_delta(ARGUMENTS), arguments_done("")]
    assert Decoded(stream(*events)).calls == [CALL]


def test_the_done_event_counts_over_the_deltas() -> None:
    events = [added(function()), arguments_delta('{"city":"Rome"}'), arguments_done(ARGUMENTS)]
    assert Decoded(stream(*events)).calls == [CALL]


def test_arguments_may_be_whole_when_announced() -> None:
    assert Decoded(stream(added(function(0, ARGUMENTS)), done(function(0, "")))).calls == [CALL]


# ── calls that must not run ────────────────────────────────────────────────────────────────────────────


def test_case_25_an_incomplete_call_is_never_emitted() -> None:
    cut = function(0, '{"city":"Os', status="incomplete")
    events = [added(function()), arguments_delta('{"city":"Os'), done(cut)]
    decoded = Decoded([*events, completed(cut, status="incomplete")])
    assert decoded.calls == []
    assert decoded.notes("loss")["tool_call"] == "incomplete, not emitted"


def test_case_25_cut_arguments_wait_for_their_item() -> None:
    events = [added(function()), arguments_delta('{"city":"Os'), arguments_done('{"city":"Os')]
    assert Decoded([*events, done(function(0, '{"city":"Os', status="incomplete"))]).calls == []
    sent_whole = Decoded([*events, done(function(0, '{"city":"Os'))])
    assert sent_whole.calls == []
    assert sent_whole.notes("loss")["tool_call.arguments"] == UNREADABLE
    said_whole = Decoded([*events, done(function(0, ARGUMENTS)), completed()])
    assert said_whole.calls == [CALL]
    assert not said_whole.notes("loss")


@pytest.mark.parametrize("status", ["incomplete", "failed", "cancelled"])
def test_only_a_completed_response_vouches_for_its_calls(status: str) -> None:
    ended = completed(function(0, ARGUMENTS), status=status)
    ended["type"] = "response.incomplete" if status == "cancelled" else ended["type"]
    assert Decoded([created(), added(function()), arguments_delta(ARGUMENTS), ended]).calls == []


def test_a_completed_response_does_not_vouch_for_an_incomplete_call() -> None:
    assert Decoded(stream(output=[function(0, ARGUMENTS, status="incomplete")])).calls == []


def test_pending_calls_are_dropped_at_a_premature_end() -> None:
    decoded = Decoded([created(), added(function()), arguments_delta(ARGUMENTS)])
    assert decoded.calls == []
    assert decoded.notes("loss") == {"tool_call": "the stream ended before the call was whole, not emitted"}


# ── bounds ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "last",
    [
        arguments_delta("x" * 100),
        arguments_done("x" * 100),
        done(function(0, "x" * 100)),
        added(function(1, "x" * 100), 1),
        completed(function(0, "x" * 100), function(1, "{}")),
    ],
)
def test_too_many_arguments_end_the_stream_with_a_clear_error(last: Raw) -> None:
    decoded = Decoded([created(), added(function())], False, max_argument_bytes=99)
    decoded.feed(last)
    assert decoded.result.finish_reason == "error"
    assert decoded.result.error is not None
    assert decoded.result.error.code == "bridge.tools.arguments_too_large"
    assert "99 bytes" in decoded.text
    for after in (arguments_done("{}"), done(function(0, "{}")), completed(function(0, "{}"))):
        assert decoded.feed(after) == []
    assert decoded.decoder.close() == []
    assert decoded.calls == []


# ── other kinds of calls ───────────────────────────────────────────────────────────────────────────────

CUSTOM = {"type": "custom_tool_call", "id": "ctc_0", "call_id": "call_0", "name": "sql", "input": ""}
INPUT = 'SELECT "a" -- {'


@pytest.mark.parametrize("place", ["input.done", "item.done", "final"])
def test_a_custom_call_carries_its_text_as_input(place: str) -> None:
    whole = CUSTOM | {"input": INPUT, "status": "completed"}
    events = [added(CUSTOM), said("custom_tool_call_input.delta", delta=INPUT[:3], item_id="ctc_0")]
    events += [said("custom_tool_call_input.delta", delta=INPUT[3:], item_id="ctc_0")]
    events += {
        "input.done": [said("custom_tool_call_input.done", input=INPUT)],
        "item.done": [done(whole)],
        "final": [completed(whole)],
    }[place]
    assert Decoded(events).calls == [("gw-call_0", "sql", {"input": INPUT})]


def test_custom_calls_can_be_left_out() -> None:
    events = stream(added(CUSTOM), said("custom_tool_call_input.done", input=INPUT), done(CUSTOM))
    decoded = Decoded(events, custom_tools=False)
    assert decoded.calls == []
    assert decoded.notes("loss")["custom_tool_call"] == "left out by option"


@pytest.mark.parametrize("arguments", [{"query": "x"}, '{"query":"x"}'])
def test_a_tool_search_is_the_clients_when_it_says_so(arguments: Any) -> None:
    search = {"type": "tool_search_call", "id": "ts_0", "call_id": "call_0", "arguments": arguments}
    decoded = Decoded(stream(done(search | {"execution": "client"})))
    assert decoded.calls == [("gw-call_0", "tool_search", {"query": "x"})]
    assert Decoded(stream(done(search | {"execution": "server"}))).calls == []
    assert Decoded(stream(done(search))).calls == []


# ── ids there and back ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("call_id", ["call_1", "gw-call_1", "", "gw-"])
def test_the_prefix_comes_off_again(call_id: str) -> None:
    assert strip_call_id(namespace_call_id(call_id)) == call_id
    assert strip_call_id(namespace_call_id(call_id, "x-"), "x-") == call_id


def test_an_id_of_another_provider_stays() -> None:
    assert strip_call_id("toolu_1") == "toolu_1"


def test_the_prefix_is_an_option() -> None:
    assert Decoded(stream(done(function(0, "{}"))), call_id_prefix="").calls[0][0] == "call_0"


def test_unique_ids_keep_within_the_length_that_apis_take() -> None:
    taken = {"a" * 64, "b" * 70, "c"}
    assert unique_call_id("d", taken) == "d"
    assert unique_call_id("c", taken | {"c_2"}) == "c_3"
    assert unique_call_id("a" * 64, taken) == "a" * 62 + "_2"
    assert unique_call_id("b" * 70, taken) == "b" * 68 + "_2"


def test_feeding_structs_is_feeding_json() -> None:
    events = [event_from(event) for event in stream(done(function(0, ARGUMENTS)))]
    assert Decoded(events).calls == [CALL]
