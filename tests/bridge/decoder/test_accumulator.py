"""`ResponseAccumulator`: any legal order, any terminal event, and streams of servers that leave something out
(law E1)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.protocol.codec import event_from
from openresponses_bridge.protocol.response import Response
from tests.support.machines import plain
from tests.support.scripts import clean_streams
from tests.support.vscode_parts import (
    Raw,
    added,
    arguments_delta,
    arguments_done,
    citation,
    completed,
    created,
    done,
    function,
    message,
    output_text,
    reasoning,
    said,
    text_delta,
)

STREAMS = dict(clean_streams())
OPEN: dict[str, Any] = {"status": "in_progress"}
CUSTOM = {"type": "custom_tool_call", "id": "ctc_0", "call_id": "call_0", "name": "sql", "input": "", **OPEN}
LOGPROB = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}


class Folded:
    """The fold of events given as JSON."""

    def __init__(self, *events: Raw) -> None:
        self.accumulator = ResponseAccumulator()
        self.feed(*events)

    def feed(self, *events: Raw) -> "Folded":
        for event in events:
            self.accumulator.feed(event_from(event))
        return self

    @property
    def response(self) -> Response:
        assert self.accumulator.response is not None
        return self.accumulator.response

    @property
    def output(self) -> list[Any]:
        """The output as JSON, without what is of no interest here."""
        return [_plain(item) for item in plain(self.response)["output"]]

    @property
    def first(self) -> Any:
        return self.output[0]


def _plain(item: Any) -> Any:
    parts = [*item.get("content", []), *item.get("summary", [])]
    for part in parts:
        for name in ("annotations", "logprobs"):
            if not part.get(name):
                part.pop(name, None)
    return item


def text_item(text: str, status: str = "in_progress", item_id: str = "it_0") -> Any:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "id": item_id, "status": status, "role": "assistant", "content": content}


# ── clean streams ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", STREAMS)
def test_e1_a_clean_stream_folds_to_its_terminal_response(name: str) -> None:
    events = STREAMS[name]
    before = Folded(*events[:-1])
    response = events[-1]["response"]
    if response["status"] != "failed":
        assert plain(before.response)["output"] == response["output"]
    assert plain(before.feed(events[-1]).response) == response


def test_nothing_before_any_event() -> None:
    assert ResponseAccumulator().response is None


def test_live_text_shows_while_it_is_open() -> None:
    folded = Folded(*STREAMS["text"][:5])
    assert folded.first["content"] == [{"type": "output_text", "text": "a"}]
    assert folded.response.output_text == "a"
    assert folded.feed(STREAMS["text"][5]).response.output_text == "ab"


def test_a_response_that_was_given_out_does_not_change_any_more() -> None:
    cited = said("output_text.annotation.added", annotation=citation(), annotation_index=0)
    folded = Folded(
        created(), added(message(id="it_0", **OPEN)), text_delta("a") | {"logprobs": [LOGPROB]}, cited
    )
    early = folded.response
    written = plain(early)
    folded.feed(text_delta("b") | {"logprobs": [LOGPROB]}, cited, done(message(output_text("c"), id="it_0")))
    assert plain(early) == written


@given(st.lists(st.sampled_from(STREAMS["everything"]), max_size=60))
def test_no_order_of_events_makes_it_raise(events: list[Raw]) -> None:
    folded = Folded()
    for event in events:
        folded.feed(event)
        assert plain(folded.accumulator.response) is not ...


# ── the parts of a stream ──────────────────────────────────────────────────────────────────────────────

DELTAS: dict[str, tuple[list[Raw], str, Any]] = {
    "refusal": (
        [said("refusal.delta", delta="n"), said("refusal.delta", delta="o")],
        "content",
        [{"type": "refusal", "refusal": "no"}],
    ),
    "reasoning": (
        [said("reasoning.delta", delta="h"), said("reasoning.delta", delta="m")],
        "content",
        [{"type": "reasoning_text", "text": "hm"}],
    ),
    "reasoning_text": (
        [said("reasoning_text.delta", delta="h"), said("reasoning_text.delta", delta="m")],
        "content",
        [{"type": "reasoning_text", "text": "hm"}],
    ),
    "reasoning_summary_text": (
        [said("reasoning_summary_text.delta", delta="h"), said("reasoning_summary_text.delta", delta="m")],
        "summary",
        [{"type": "summary_text", "text": "hm"}],
    ),
    "reasoning_summary": (
        [said("reasoning_summary.delta", delta="h"), said("reasoning_summary.delta", delta={"text": "m"})],
        "summary",
        [{"type": "summary_text", "text": "hm"}],
    ),
    "function_call_arguments": ([arguments_delta("{"), arguments_delta("}")], "arguments", "{}"),
    "custom_tool_call_input": (
        [said("custom_tool_call_input.delta", delta="a"), said("custom_tool_call_input.delta", delta="b")],
        "input",
        "ab",
    ),
}
FIELD = {"refusal": "refusal", "function_call_arguments": "arguments", "custom_tool_call_input": "input"}


@pytest.mark.parametrize("kind", DELTAS)
def test_deltas_without_added_make_up_their_item(kind: str) -> None:
    deltas, field, expected = DELTAS[kind]
    folded = Folded(*deltas)
    assert folded.first[field] == expected
    assert folded.first["status"] == "in_progress"
    assert folded.first["id"] == deltas[0]["item_id"]


@pytest.mark.parametrize("kind", DELTAS)
def test_done_without_deltas_makes_up_its_part(kind: str) -> None:
    _, field, expected = DELTAS[kind]
    whole = expected if isinstance(expected, str) else expected[0][FIELD.get(kind, "text")]
    assert Folded(said(f"{kind}.done", **{FIELD.get(kind, "text"): whole})).first[field] == expected


@pytest.mark.parametrize("kind", DELTAS)
def test_done_counts_over_deltas_unless_it_is_empty(kind: str) -> None:
    deltas, field, expected = DELTAS[kind]
    name = FIELD.get(kind, "text")
    assert Folded(*deltas, said(f"{kind}.done", **{name: ""})).first[field] == expected
    whole = Folded(*deltas, said(f"{kind}.done", **{name: "X"})).first[field]
    assert whole == "X" or whole[0][name] == "X"


def test_text_done_counts_over_deltas_unless_it_is_empty() -> None:
    assert Folded(text_delta("a"), said("output_text.done", text="ab")).first == text_item("ab")
    assert Folded(text_delta("a"), said("output_text.done", text="")).first == text_item("a")


def test_part_events_frame_and_replace_text() -> None:
    part = output_text("")
    folded = Folded(said("content_part.added", part=part), text_delta("a"))
    assert folded.first == text_item("a")
    folded.feed(said("content_part.added", part=part))
    assert folded.first == text_item("a"), "announced twice"
    folded.feed(said("content_part.done", part=part))
    assert folded.first == text_item("a"), "a finished part without its text"
    folded.feed(said("content_part.done", part=output_text("ab", citation())))
    assert folded.first["content"][0]["annotations"] == [citation()]
    assert folded.response.output_text == "ab"
    assert Folded(said("content_part.done", part=output_text("x"))).first == text_item("x")


def test_summary_part_events_frame_and_replace_text() -> None:
    empty, whole = ({"type": "summary_text", "text": text} for text in ("", "ab"))
    folded = Folded(said("reasoning_summary_part.added", part=empty))
    assert folded.first["summary"] == [empty]
    folded.feed(said("reasoning_summary_text.delta", delta="a"))
    assert folded.first["summary"][0]["text"] == "a"
    assert folded.feed(said("reasoning_summary_part.done", part=whole)).first["summary"] == [whole]
    assert Folded(said("reasoning_summary_part.done", part=whole)).first["summary"] == [whole]


def test_a_raw_reasoning_part_makes_up_a_reasoning_item() -> None:
    part = {"type": "reasoning_text", "text": "hm"}
    for verb in ("added", "done"):
        item = Folded(said(f"content_part.{verb}", part=part)).first
        assert (item["type"], item["content"]) == ("reasoning", [part])


def test_parts_come_in_the_order_of_their_index() -> None:
    events = [text_delta("b", content_index=1), text_delta("a", content_index=0)]
    assert [part["text"] for part in Folded(*events).first["content"]] == ["a", "b"]


def test_parts_of_other_kinds_are_kept_whole() -> None:
    odd = {"type": "acme:picture", "url": "x"}
    image = {"type": "input_image", "image_url": None, "detail": "auto"}
    events = [said("content_part.added", part=odd), said("content_part.added", part=image, content_index=1)]
    folded = Folded(*events, text_delta("x"), text_delta("y", content_index=1))
    assert folded.first["content"] == [odd, image]


def test_annotations_are_appended() -> None:
    cited = [citation(title=title) for title in "AB"]
    events = [said("output_text.annotation.added", annotation=each, annotation_index=0) for each in cited]
    nothing = said("output_text.annotation.added", annotation=None, annotation_index=0)
    folded = Folded(text_delta("a"), *events, nothing)
    assert folded.first["content"][0]["annotations"] == cited
    assert Folded(nothing).accumulator.response is None


def test_logprobs_are_gathered_and_replaced_by_those_of_done() -> None:
    delta = text_delta("a") | {"logprobs": [LOGPROB]}
    folded = Folded(delta, delta)
    assert folded.first["content"][0]["logprobs"] == [LOGPROB, LOGPROB]
    folded.feed(said("output_text.done", text="aa", logprobs=[]))
    assert len(folded.first["content"][0]["logprobs"]) == 2
    folded.feed(said("output_text.done", text="aa", logprobs=[LOGPROB]))
    assert folded.first["content"][0]["logprobs"] == [LOGPROB]


def test_half_characters_of_two_deltas_are_joined() -> None:
    events = [
        text_delta("a\ud83d"),
        text_delta("\ude42"),
        arguments_delta("\ud83d", 1),
        arguments_delta("\ude42", 1),
    ]
    folded = Folded(*events)
    assert (folded.response.output_text, folded.output[1]["arguments"]) == ("a🙂", "🙂")
    assert Folded(text_delta("\ud83d")).response.output_text == "\ufffd"


# ── items ──────────────────────────────────────────────────────────────────────────────────────────────


def test_an_announcement_after_its_deltas_keeps_them() -> None:
    events = [arguments_delta("{}", 0, "fc_x"), added(function(0, "", **OPEN))]
    assert Folded(*events).first == function(0, "{}", **OPEN)
    assert Folded(text_delta("a"), added(message(id="it_0", **OPEN))).first == text_item("a")
    assert (
        Folded(said("reasoning.delta", delta="a"), added(reasoning(**OPEN))).first["content"][0]["text"]
        == "a"
    )


def test_an_announcement_of_another_kind_wins_over_a_guess() -> None:
    assert Folded(text_delta("a"), added(function(0, "", **OPEN))).first == function(0, "", **OPEN)


def test_an_item_announced_twice_is_one() -> None:
    events = [
        added(function(0, "", **OPEN)),
        arguments_delta("{"),
        added(function(0, "", **OPEN)),
        arguments_delta("}"),
    ]
    assert Folded(*events).output == [function(0, "{}", **OPEN)]


def test_rotating_ids_are_followed_by_output_index() -> None:
    events = [
        added(message(id="a", **OPEN)),
        said("content_part.added", item_id="b", part=output_text("")),
        said("output_text.delta", item_id="c", delta="x"),
        said("output_text.delta", item_id="d", delta="y"),
        said("output_text.done", item_id="e", text="xy"),
        done(message(output_text("xy"), id="f")),
    ]
    assert Folded(*events).output == [text_item("xy", "completed", "f")]


def test_case_01_items_that_share_an_index_are_distinguished_by_id() -> None:
    events = [
        added(function(0, "", item_id="a", **OPEN)),
        added(function(0, "", item_id="b", **OPEN)),
        arguments_delta("1", 0, "a"),
        arguments_delta("2", 0, "b"),
    ]
    folded = Folded(*events)
    assert [item["arguments"] for item in folded.output] == ["1", "2"]
    folded.feed(done(function(0, "", item_id="b")), done(function(0, "", item_id="a")))
    assert folded.output == [function(0, "1", item_id="a"), function(0, "2", item_id="b")]


def test_finished_items_that_share_an_index_are_both_kept() -> None:
    items = [function(0, "1", item_id="a"), function(0, "2", item_id="b"), message(output_text("x"))]
    folded = Folded(*(done(item) for item in items))
    assert folded.output == [*items[:2], text_item("x", "completed", "msg_0")]
    kinds = Folded(added(function(0, "", **OPEN)), done(message(output_text("x")))).output
    assert [item["type"] for item in kinds] == ["function_call", "message"]


def test_case_12_the_output_is_in_the_order_of_its_indexes() -> None:
    folded = Folded(text_delta("b", 1), arguments_delta("{}", 0))
    assert [item["type"] for item in folded.output] == ["function_call", "message"]


def test_a_finished_item_keeps_what_it_comes_back_without() -> None:
    assert Folded(text_delta("a"), done(message(id="it_0"))).first == text_item("a", "completed")
    events = [
        added(function(0, "", **OPEN)),
        arguments_delta("{}"),
        done(function(0, "", call_id="", name="")),
    ]
    assert Folded(*events).first == function(0, "{}")
    events = [said("reasoning.delta", delta="a"), said("reasoning_summary_text.delta", delta="b")]
    item = Folded(*events, done(reasoning(id="it_0", status="completed"))).first
    assert (item["content"][0]["text"], item["summary"][0]["text"]) == ("a", "b")


def test_nothing_changes_a_finished_item() -> None:
    item = message(output_text("a"), id="it_0")
    folded = Folded(done(item), text_delta("x"), said("output_text.done", text="y"))
    assert folded.first == text_item("a", "completed")
    call = Folded(done(function(0, "{}")), arguments_delta("x"), arguments_done("y"))
    assert call.first == function(0, "{}")


def test_items_without_ids_are_distinguished_by_index() -> None:
    events = [added(function(n, "", item_id="", **OPEN), n) for n in (0, 1)]
    events += [said("function_call_arguments.delta", n, "", delta=str(n)) for n in (0, 1)]
    assert [item["arguments"] for item in Folded(*events).output] == ["0", "1"]


def test_items_without_a_struct_are_kept_whole() -> None:
    searching = {"type": "web_search_call", "id": "ws", "status": "in_progress", "action": {"deep": [1]}}
    item = searching | {"status": "completed"}
    folded = Folded(added(searching), text_delta("x"), {"type": "response.web_search_call.searching"})
    assert folded.output == [searching]
    assert folded.feed(done(item)).output == [item]
    compaction = {"type": "compaction", "id": "c", "encrypted_content": "x"}
    assert Folded(added(compaction)).output == [compaction]


def test_a_missing_item_is_ignored() -> None:
    events = [
        {"type": f"response.output_item.{verb}", "output_index": 0, "item": None}
        for verb in ("added", "done")
    ]
    assert Folded(*events).accumulator.response is None


# ── the response ───────────────────────────────────────────────────────────────────────────────────────


def test_without_created_the_response_has_zero_values() -> None:
    response = Folded(text_delta("a")).response
    assert (response.id, response.model, response.status, response.tools) == ("", "", "in_progress", [])


def test_the_latest_lifecycle_event_is_the_base() -> None:
    folded = Folded(created(status="queued"), text_delta("a"))
    folded.feed({"type": "response.in_progress", "response": {"id": "resp_1", "status": "in_progress"}})
    assert (folded.response.status, folded.response.output_text) == ("in_progress", "a")


def test_a_base_with_output_is_gone_on_from() -> None:
    begun = message(output_text("a"), id="it_0", **OPEN)
    folded = Folded(
        created(output=[begun, function(1, "{", **OPEN)]), text_delta("b"), arguments_delta("}", 1)
    )
    assert (folded.first, folded.output[1]["arguments"]) == (text_item("ab"), "{}")
    folded.feed(created(output=[message(output_text("late"))]))
    assert folded.response.output_text == "ab"


@pytest.mark.parametrize(
    ("kind", "status", "item_status"),
    [
        ("completed", "completed", "completed"),
        ("incomplete", "incomplete", "incomplete"),
        ("failed", "failed", "incomplete"),
    ],
)
def test_a_terminal_event_without_output_keeps_what_was_streamed(
    kind: str, status: str, item_status: str
) -> None:
    hosted = {"type": "web_search_call", "id": "ws", "status": "in_progress"}
    events = [created(), text_delta("a"), done(function(1, "{}"), 1), added(hosted, 2), added(reasoning(), 3)]
    folded = Folded(*events, {"type": f"response.{kind}"})
    assert folded.response.status == status
    assert (folded.response.id, folded.response.model) == ("resp_1", "m")
    assert folded.output == [text_item("a", item_status), function(1, "{}"), hosted, reasoning()]


def test_a_terminal_event_has_the_last_word_and_nothing_follows_it() -> None:
    folded = Folded(created(), text_delta("a"), completed(message(output_text("b")), id="resp_2"))
    assert (folded.response.output_text, folded.response.id) == ("b", "resp_2")
    written = plain(folded.response)
    folded.feed(text_delta("c"), created(), completed(), {"type": "error", "message": "late"})
    assert plain(folded.response) == written


def test_a_terminal_event_alone_is_the_response() -> None:
    assert Folded(completed(message(output_text("b")))).response.output_text == "b"
    assert Folded({"type": "response.failed"}).response.status == "failed"


def test_another_spelling_of_the_end_is_the_end() -> None:
    assert Folded(text_delta("a"), {"type": "response.done", "response": {}}).response.status == "completed"


def test_an_error_alone_changes_nothing_but_is_kept() -> None:
    folded = Folded({"type": "error", "code": "quota", "message": "pay up", "param": None})
    assert folded.accumulator.response is None
    assert folded.accumulator.error is not None
    assert (folded.accumulator.error.code, folded.accumulator.error.message) == ("quota", "pay up")
    folded.feed(
        created(), {"type": "error", "error": {"type": "x", "code": None, "message": "m", "param": None}}
    )
    assert folded.response.error is None
    folded.feed(completed(status="failed", error={"code": "quota", "message": "pay up"}))
    assert folded.response.error is not None


def test_custom_calls_are_folded() -> None:
    events = [added(CUSTOM), said("custom_tool_call_input.delta", item_id="ctc_0", delta="SELECT")]
    assert Folded(*events).first == CUSTOM | {"input": "SELECT"}


@pytest.mark.parametrize(
    "event", [{"type": "acme:beat"}, {"type": "response.sparkle.delta", "delta": "x"}, {}]
)
def test_unknown_events_are_ignored(event: Raw) -> None:
    assert Folded(event).accumulator.response is None
    assert Folded(text_delta("a"), event).response.output_text == "a"
