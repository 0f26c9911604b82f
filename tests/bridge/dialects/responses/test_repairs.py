"""Mistakes of other servers: the stream that results is valid and whole, and each repair is reported."""

from typing import Any

import pytest

from tests.support.damaged_responses import (
    CheckedResponses,
    Json,
    added,
    argue,
    call,
    created,
    delta,
    done,
    ended,
    message,
    reasoning,
    response,
    say,
    whole,
)
from tests.support.machines import WIRES, plain
from tests.support.scripts import USAGE, everything

BEGUN = "response.output_item.added: missing, added"
REST = "had more than its deltas, the rest was sent"


# ── numbers ────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("renumber", "repair"),
    [
        (lambda at: {}, "sequence_number: missing, assigned"),
        (lambda at: {"sequence_number": -at}, "sequence_number: missing, assigned"),
        (lambda at: {"sequence_number": 100 - at}, "sequence_number: does not increase, renumbered"),
        (lambda at: {"sequence_number": 7}, "sequence_number: does not increase, renumbered"),
        (lambda at: {"sequence_number": at * 2}, "sequence_number: has gaps, renumbered"),
        (lambda at: {"sequence_number": at + 1}, "sequence_number: has gaps, renumbered"),
    ],
    ids=["missing", "negative", "descending", "constant", "with gaps", "from one"],
)
def test_case_18_numbers_are_ours_whatever_they_were(renumber: Any, repair: str) -> None:
    events = [{k: v for k, v in event.items() if k != "sequence_number"} for event in everything()]
    fed = CheckedResponses(event | renumber(at) for at, event in enumerate(events))
    assert repair in fed.repairs
    assert fed.status == "completed"
    assert fed.output == everything()[-1]["response"]["output"]


def test_a_clean_stream_needs_no_repair() -> None:
    fed = CheckedResponses(everything())
    assert fed.repairs == []
    assert fed.notes("warning") == []


# ── spellings ──────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", ["reasoning", "reasoning_text"])
def test_raw_reasoning_under_each_name(kind: str, wire: str) -> None:
    item = reasoning("hmm.")
    frames = [created(), added(reasoning()), delta(kind, "hm", id="rs_u"), delta(kind, "m.", id="rs_u")]
    frames += [whole(kind, "text", "hmm.", id="rs_u"), done(item), ended("completed", item)]
    fed = CheckedResponses(frames, wire)
    name = {"openresponses": "reasoning.delta", "openai": "reasoning_text.delta"}[wire]
    assert [event.type for event in fed.events].count(f"response.{name}") == 2
    assert fed.output[0]["content"] == item["content"]
    assert not any("done" in repair for repair in fed.repairs)


@pytest.mark.parametrize("kind", ["reasoning_summary", "reasoning_summary_text"])
def test_summaries_under_each_name(kind: str) -> None:
    item = reasoning(summary=["One."])
    frames = [created(), added(reasoning()), delta(kind, "One", id="rs_u"), delta(kind, ".", id="rs_u")]
    frames += [whole(kind, "text", "One.", id="rs_u"), done(item), ended("completed", item)]
    fed = CheckedResponses(frames)
    assert fed.output[0]["summary"] == item["summary"]
    respelled = "response.reasoning_summary.delta: read as response.reasoning_summary_text.delta"
    assert (respelled in fed.repairs) == (kind == "reasoning_summary")


def test_an_older_summary_event_wraps_its_text() -> None:
    wrapped = delta("reasoning_summary", "", id="rs_u") | {"delta": {"type": "summary_text", "text": "One."}}
    fed = CheckedResponses([created(), added(reasoning()), wrapped, ended()])
    assert fed.output[0]["summary"][0]["text"] == "One."


def test_summary_parts_and_raw_parts_keep_apart() -> None:
    item = reasoning("a", "b", summary=["One", "Two"], status="completed")
    frames = [created(), added(reasoning())]
    for index, text in enumerate(["One", "Two"]):
        frames.append(delta("reasoning_summary_text", text, id="rs_u", summary_index=index))
    frames += [delta("reasoning", text, id="rs_u", content_index=at) for at, text in enumerate("ab")]
    fed = CheckedResponses([*frames, done(item), ended("completed", item)])
    assert fed.output == [item]
    assert "output_index: items interleave, the rest of one became another item" not in fed.repairs


# ── type ───────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_missing_type_is_the_frames_name() -> None:
    fed = CheckedResponses([created()], close=False)
    assert fed.named("response.output_text.delta", b'{"item_id":"m","output_index":0,"delta":"Hi"}')
    assert "type: missing, taken from the frame's event name" in fed.repairs
    fed.feed(ended())
    assert fed.texts == ["Hi"]


@pytest.mark.parametrize(
    "error", ["It broke.", {"code": 500, "message": "It broke.", "type": "server_error"}]
)
def test_an_error_without_a_type_is_the_error(error: Any) -> None:
    fed = CheckedResponses([created(), {"error": error}])
    assert fed.response.error.message == "It broke."
    assert "type: missing, an error by its fields" in fed.repairs


def test_without_any_type_a_frame_is_ignored() -> None:
    fed = CheckedResponses([created(), {"delta": "Hi"}, {"type": None}, ended()])
    assert "event: unknown event" in fed.notes("ignored")
    assert fed.output == []


# ── ids and indexes ────────────────────────────────────────────────────────────────────────────────────────
def test_ids_that_rotate_leave_one_item_with_the_first_id() -> None:
    rotated = [say(text, id=f"msg_{number}") for number, text in enumerate(["Hel", "lo"])]
    last = [done(message("Hello", id="msg_8")), ended("completed", message("Hello", id="msg_9"))]
    fed = CheckedResponses([created(), added(message(id="msg_a")), *rotated, *last])
    assert [item["id"] for item in fed.output] == ["msg_a"]
    assert fed.texts == ["Hello"]
    assert "item_id: changed within an item, the index was followed" in fed.repairs


def test_ids_that_rotate_on_calls() -> None:
    frames = [created(), added(call(id="a", call_id="c1"))]
    frames += [argue("{", id="b"), argue("}", id="c"), done(call("{}", id="d", call_id="c1"))]
    fed = CheckedResponses([*frames, ended("completed", call("{}", id="e", call_id="c1"))])
    assert fed.calls == [("c1", "look", "{}")]


def test_a_wrong_index_with_a_right_id_is_found_by_the_id() -> None:
    frames = [created(), added(reasoning(summary=["x"]), 0), added(message(), 1), say("Hi", at=0)]
    fed = CheckedResponses(
        [*frames, say("!", at=7), done(message("Hi!"), 1), ended("completed", message("Hi!"))]
    )
    assert fed.texts == ["Hi!"]
    repair = "response.output_text.delta output_index: names another item, found by its id"
    assert repair in fed.repairs


@pytest.mark.parametrize("lists", [True, False], ids=["listed at the end", "not listed"])
def test_two_items_that_only_end_under_one_id_are_two(lists: bool) -> None:
    calls = [call("{}", call_id="c1"), call('{"a":1}', call_id="c2", name="find")]
    texts = [message("One"), message("Two")]
    frames = [done(item, at) for at, item in enumerate([*calls, *texts])]
    fed = CheckedResponses([created(), *frames, ended("completed", *([*calls, *texts] if lists else []))])
    assert fed.calls == [("c1", "look", "{}"), ("c2", "find", '{"a":1}')]
    assert fed.texts == ["One", "Two"]


def test_one_item_that_ends_twice_is_one() -> None:
    """Also at another index, where nothing but the index differs."""
    frames = [
        done(item, at) for at, item in enumerate([call("{}"), call("{}"), message("Hi"), message("Hi")])
    ]
    fed = CheckedResponses([created(), *frames, ended()])
    assert fed.calls == [("call_u", "look", "{}")]
    assert fed.texts == ["Hi"]


def test_case_10_one_index_for_two_items() -> None:
    """reasoning and its call both on index 0: Codex loops on such a stream."""
    frames = [created(), added(reasoning()), delta("reasoning", "hm", id="rs_u"), done(reasoning("hm"))]
    frames += [added(call()), argue("{}"), done(call("{}")), ended("completed", reasoning("hm"), call("{}"))]
    fed = CheckedResponses(frames)
    assert [item["type"] for item in fed.output] == ["reasoning", "function_call"]
    assert "output_index: used for two items, renumbered" in fed.repairs
    assert fed.calls == [("call_u", "look", "{}")]


def test_words_that_an_item_cannot_hold_belong_to_another() -> None:
    fed = CheckedResponses(
        [created(), added(reasoning()), say("Hi", id="msg_x"), ended("completed", message("Hi"))]
    )
    assert fed.texts == ["Hi"]
    assert BEGUN in fed.repairs


def test_two_items_side_by_side_follow_each_other() -> None:
    frames = [created(), added(message(id="a"), 0), added(message(id="b"), 1)]
    frames += [say("1", 0, "a"), say("2", 1, "b"), say("3", 0, "a")]
    frames += [done(message("13", id="a"), 0), done(message("2", id="b"), 1)]
    fed = CheckedResponses([*frames, ended("completed", message("13", id="a"), message("2", id="b"))])
    assert fed.texts == ["1", "2", "3"]
    assert "output_index: items interleave, the rest of one became another item" in fed.repairs


def test_text_that_goes_on_after_a_whole_item_is_in_another_item() -> None:
    frames = [created(), added(message(id="a"), 0), say("1", 0, "a"), done(message("2", id="b"), 1)]
    frames += [say("3", 0, "a"), done(message("13", id="a"), 0), ended()]
    fed = CheckedResponses(frames)
    assert fed.texts == ["1", "2", "3"]
    assert "output_index: items interleave, the rest of one became another item" in fed.repairs


def test_text_and_calls_interleaved_by_index() -> None:
    frames = [created(), added(message(), 0), say("Let me "), added(call(), 1), argue("{", 1)]
    frames += [say("see"), argue("}", 1), done(message("Let me see"), 0), done(call("{}"), 1)]
    fed = CheckedResponses([*frames, ended("completed", message("Let me see"), call("{}"))])
    assert [item["type"] for item in fed.output] == ["message", "function_call", "message"]
    assert fed.texts == ["Let me ", "see"]
    assert fed.calls == [("call_u", "look", "{}")]


def test_case_12_items_announced_out_of_order_are_numbered_as_they_appear() -> None:
    frames = [created(), added(message(), 1), say("Hi", 1), done(message("Hi"), 1)]
    frames += [added(reasoning(), 0), delta("reasoning", "hm", id="rs_u"), done(reasoning("hm"), 0)]
    fed = CheckedResponses([*frames, ended("completed", reasoning("hm"), message("Hi"))])
    assert [item["type"] for item in fed.output] == ["message", "reasoning"]


def test_calls_side_by_side_keep_apart() -> None:
    first, second = call('{"a":1}', "fc_1", "c1"), call('{"b":2}', "fc_2", "c2")
    frames = [created(), added(call(id="fc_1", call_id="c1"), 0), added(call(id="fc_2", call_id="c2"), 1)]
    frames += [argue('{"a"', 0, "fc_1"), argue('{"b"', 1, "fc_2"), argue(":1}", 0, "fc_1")]
    frames += [argue(":2}", 1, "fc_2"), done(second, 1), done(first, 0), ended("completed", first, second)]
    assert CheckedResponses(frames).calls == [("c1", "look", '{"a":1}'), ("c2", "look", '{"b":2}')]


# ── events left out ────────────────────────────────────────────────────────────────────────────────────────
def test_text_without_its_item_announced() -> None:
    fed = CheckedResponses(
        [created(), say("Hi"), say("!"), done(message("Hi!")), ended("completed", message("Hi!"))]
    )
    assert fed.texts == ["Hi!"]
    assert fed.output[0]["id"] == "msg_u"
    assert fed.repairs.count(BEGUN) == 1


def test_a_call_without_its_item_announced_says_its_arguments_once() -> None:
    frames = [created(), argue('{"a"'), argue(":1}"), done(call('{"a":1}')), ended()]
    fed = CheckedResponses(frames)
    assert fed.calls == [("call_u", "look", '{"a":1}')]
    assert BEGUN in fed.repairs


def test_an_item_announced_after_its_first_words() -> None:
    fed = CheckedResponses(
        [created(), argue('{"a"'), added(call()), argue(":1}"), done(call('{"a":1}')), ended()]
    )
    assert fed.calls == [("call_u", "look", '{"a":1}')]
    assert "response.output_item.added: came after the item's first text" in fed.repairs


def test_an_item_announced_twice_begins_once() -> None:
    frames = [created(), added(message()), say("Hi"), added(message()), say("!"), done(message("Hi!"))]
    fed = CheckedResponses([*frames, ended("completed", message("Hi!"))])
    assert fed.texts == ["Hi!"]
    assert "response.output_item.added: sent twice" in fed.notes("ignored")


def test_case_16_parts_are_opened_where_the_upstream_opened_none() -> None:
    fed = CheckedResponses([created(), added(message()), say("Hi"), ended("completed", message("Hi"))])
    types = [event.type.removeprefix("response.") for event in fed.events]
    assert types[2:5] == ["output_item.added", "content_part.added", "output_text.delta"]


def test_done_events_left_out_are_made_up() -> None:
    frames = [created(), added(message(), 0), say("Hi"), added(call(), 1), argue("{}", 1)]
    fed = CheckedResponses([*frames, ended("completed", message("Hi"), call("{}"))])
    assert fed.texts == ["Hi"]
    assert fed.calls == [("call_u", "look", "{}")]
    assert fed.status == "completed"


def test_only_items_done_are_enough() -> None:
    items = [reasoning("hm", encrypted_content="sealed"), message("Hi"), call("{}")]
    fed = CheckedResponses([created(), *(done(item, at) for at, item in enumerate(items)), ended()])
    assert [item["type"] for item in fed.output] == ["reasoning", "message", "function_call"]
    assert fed.output[0]["encrypted_content"] == "sealed"


@pytest.mark.parametrize("first", [[], [created()]])
@pytest.mark.parametrize("wire", WIRES)
def test_a_terminal_event_alone_is_enough(first: list[Json], wire: str) -> None:
    annotated = message("Hi")
    citation = {
        "type": "url_citation",
        "url": "https://a.example",
        "start_index": 0,
        "end_index": 2,
        "title": "A",
    }
    annotated["content"][0]["annotations"] = [citation]
    output = [reasoning("hm", summary=["s"]), annotated, call("{}")]
    fed = CheckedResponses([*first, ended("completed", *output, usage=USAGE)], wire)
    assert [item["type"] for item in fed.output] == ["reasoning", "message", "function_call"]
    assert fed.output[1]["content"][0]["annotations"] == [citation]
    assert fed.response.usage is not None
    assert fed.response.usage.output_tokens == 5
    assert fed.response.id == "resp_u"
    assert ("response.created: missing, added" in fed.repairs) == (not first)


def test_terminal_items_are_matched_where_the_output_leaves_some_out() -> None:
    """The reasoning is not in the final output, and all ids have changed."""
    frames = [created(), added(reasoning(), 0), delta("reasoning", "hm", id="rs_u")]
    frames += [added(message(), 1), say("Hi", 1)]
    fed = CheckedResponses([*frames, ended("completed", message("Hi there", id="msg_x"))])
    assert fed.texts == ["Hi there"]
    assert fed.output[0]["content"][0]["text"] == "hm"


def test_a_call_in_the_output_is_known_by_its_call_id() -> None:
    frames = [created(), added(call(id="x", call_id="c1"), 0), argue("{}", 0, "x")]
    frames += [added(call(id="y", call_id="c2"), 1), argue("{}", 1, "y")]
    fed = CheckedResponses([*frames, ended("completed", call("{}", "q", "c2"), call("{}", "r", "c1"))])
    assert [each[0] for each in fed.calls] == ["c1", "c2"]


# ── done events that say more, less or something else ──────────────────────────────────────────────────────
@pytest.mark.parametrize("by", ["text", "part", "item", "output"])
def test_case_07_a_done_event_that_holds_more_gives_the_rest_once(by: str) -> None:
    finished = message("Hello")
    where = {"item_id": "msg_u", "output_index": 0, "content_index": 0}
    sent: dict[str, Json] = {
        "text": whole("output_text", "text", "Hello"),
        "part": {"type": "response.content_part.done", **where, "part": finished["content"][0]},
        "item": done(finished),
        "output": ended("completed", finished),
    }
    order = list(sent)
    frames = [created(), added(message()), say("Hel")]
    fed = CheckedResponses([*frames, *(sent[each] for each in order[order.index(by) :])])
    assert fed.texts == ["Hello"]
    assert fed.repairs.count(f"text done: {REST}") == 1


@pytest.mark.parametrize("by", ["arguments", "item", "output"])
def test_case_07_a_call_sent_at_its_end_only(by: str) -> None:
    sent = {
        "arguments": whole("function_call_arguments", "arguments", '{"a":1}', id="fc_u"),
        "item": done(call('{"a":1}')),
        "output": ended("completed", call('{"a":1}')),
    }
    order = list(sent)
    fed = CheckedResponses([created(), added(call()), *(sent[each] for each in order[order.index(by) :])])
    assert fed.calls == [("call_u", "look", '{"a":1}')]
    deltas = [event for event in fed.events if event.type == "response.function_call_arguments.delta"]
    assert len(deltas) == 1


def test_case_07_empty_done_events_after_deltas_keep_the_deltas() -> None:
    frames = [created(), added(message(), 0), say("Hi"), whole("output_text", "text", "")]
    frames += [done(message(), 0), added(call(), 1), argue('{"a":1}', 1)]
    frames += [whole("function_call_arguments", "arguments", "", 1, "fc_u"), done(call(""), 1), ended()]
    fed = CheckedResponses(frames)
    assert fed.texts == ["Hi"]
    assert fed.calls == [("call_u", "look", '{"a":1}')]
    assert fed.notes("warning") == []


def test_a_done_event_that_says_something_else_is_not_believed() -> None:
    frames = [created(), added(message()), say("Hello"), whole("output_text", "text", "Goodbye, all")]
    fed = CheckedResponses([*frames, done(message("Good")), ended("completed", message("Goodbye, all"))])
    assert fed.texts == ["Hello"]
    assert "text done: differs from its deltas, which are kept" in fed.notes("warning")


def test_arguments_that_differ_at_the_end_are_not_believed() -> None:
    fed = CheckedResponses([created(), added(call()), argue('{"a":1}'), done(call('{"b":2,"c":3}')), ended()])
    assert fed.calls == [("call_u", "look", '{"a":1}')]
    assert "call done: differs from its deltas, which are kept" in fed.notes("warning")


@pytest.mark.parametrize("by", ["arguments", "item", "output"])
@pytest.mark.parametrize("deltas", [['":1}'], ["a", '":1}'], ["}"]])
def test_deltas_that_lack_their_beginning_wait_for_the_whole(deltas: list[str], by: str) -> None:
    sent = {
        "arguments": whole("function_call_arguments", "arguments", '{"a":1}', id="fc_u"),
        "item": done(call('{"a":1}')),
        "output": ended("completed", call('{"a":1}')),
    }
    order = list(sent)
    frames = [created(), added(call()), *(argue(each) for each in deltas)]
    fed = CheckedResponses([*frames, *(sent[each] for each in order[order.index(by) :])])
    assert fed.calls == [("call_u", "look", '{"a":1}')]
    assert f"call done: {REST}" in fed.repairs


@pytest.mark.parametrize(
    "end",
    [
        [done(call("")), ended()],
        [done(call('look 7"')), ended()],
        [done(call('{"b":2}')), ended()],
        [ended()],
        [ended("incomplete", call("", status="incomplete"))],
        [ended("incomplete")],
        [ended("failed")],
    ],
)
def test_deltas_that_no_whole_arguments_end_with_are_sent_as_they_came(end: list[Json]) -> None:
    fed = CheckedResponses([created(), added(call()), argue("look "), argue('7"'), *end])
    assert fed.calls == [("call_u", "look", 'look 7"')]


HALF = (
    b'{"type":"response.output_text.delta","item_id":"msg_u","output_index":0,"content_index":0,"delta":"%s"}'
)


def test_an_emoji_split_over_deltas_is_no_difference() -> None:
    frames: list[Any] = [created(), added(message()), HALF % b"a\\ud83d", HALF % b"\\ude42!"]
    fed = CheckedResponses([*frames, done(message("a🙂!")), ended("completed", message("a🙂!"))])
    assert fed.texts == ["a🙂!"]
    assert fed.notes("warning") == []


def test_case_06_an_empty_arguments_done_does_not_end_a_call_that_is_sent_later() -> None:
    frames = [created(), added(call()), whole("function_call_arguments", "arguments", "", id="fc_u")]
    fed = CheckedResponses([*frames, done(call('{"a":1}')), ended()])
    assert fed.calls == [("call_u", "look", '{"a":1}')]


def test_case_06_a_call_without_arguments_is_an_empty_object() -> None:
    fed = CheckedResponses([created(), added(call()), done(call("")), ended("completed", call(""))])
    assert fed.calls == [("call_u", "look", "{}")]


@pytest.mark.parametrize("deltas", [[], ['{"a":1}'], ['{"a"', ":1}"]])
def test_arguments_that_stand_in_added_count_once(deltas: list[str]) -> None:
    frames = [created(), added(call('{"a":1}')), *(argue(each) for each in deltas)]
    fed = CheckedResponses([*frames, done(call("")), ended()])
    assert fed.calls == [("call_u", "look", '{"a":1}')]


def test_arguments_that_begin_in_added_go_on_in_the_deltas() -> None:
    fed = CheckedResponses([created(), added(call('{"a"')), argue(":1}"), done(call('{"a":1}')), ended()])
    assert fed.calls == [("call_u", "look", '{"a":1}')]


def test_case_05_a_name_that_comes_with_the_end() -> None:
    nameless = added(call(name="", call_id=""))
    fed = CheckedResponses(
        [created(), nameless, argue("{}"), done(call("{}")), ended("completed", call("{}"))]
    )
    assert fed.calls == [("call_u", "look", "{}")]


def test_case_08_an_empty_delta_gives_nothing() -> None:
    frames = [created(), added(message()), say(""), say("Hi"), say(""), added(call(), 1), argue("", 1)]
    fed = CheckedResponses([*frames, argue("{}", 1), ended("completed", message("Hi"), call("{}"))])
    deltas = [plainly.delta for plainly in fed.events if plainly.type.endswith("delta")]  # type: ignore[union-attr]
    assert deltas == ["Hi", "{}"]


def test_case_14_words_after_an_items_end_are_another_item() -> None:
    frames = [created(), added(message()), say("Hi"), done(message("Hi")), say(" there")]
    fed = CheckedResponses([*frames, ended("completed", message("Hi"))])
    assert fed.texts == ["Hi", " there"]


# ── what parts carry ───────────────────────────────────────────────────────────────────────────────────────
CITATION = {
    "type": "url_citation",
    "url": "https://a.example",
    "start_index": 0,
    "end_index": 2,
    "title": "A",
}


def cited(*annotations: Json | None) -> Json:
    finished = message("Hi")
    finished["content"][0]["annotations"] = [each for each in annotations if each]
    return finished


def cite(annotation: Json | None, number: int = 0) -> Json:
    where = {"item_id": "msg_u", "output_index": 0, "content_index": 0}
    return {
        "type": "response.output_text.annotation.added",
        **where,
        "annotation_index": number,
        "annotation": annotation,
    }


@pytest.mark.parametrize("sent", [0, 1, 2])
def test_citations_come_once_wherever_they_stood(sent: int) -> None:
    other = {**CITATION, "title": "B"}
    frames = [created(), added(message()), say("Hi"), *map(cite, [CITATION, other][:sent])]
    fed = CheckedResponses(
        [*frames, done(cited(CITATION, other)), ended("completed", cited(CITATION, other))]
    )
    assert fed.output[0]["content"][0]["annotations"] == [CITATION, other]
    assert ("annotation: came in the finished part only" in fed.repairs) == (sent < 2)


def test_a_null_citation_is_ignored() -> None:
    fed = CheckedResponses(
        [created(), added(message()), say("Hi"), cite(None), done(cited(CITATION)), ended()]
    )
    assert "response.output_text.annotation.added: null annotation" in fed.notes("ignored")
    assert fed.output[0]["content"][0]["annotations"] == [CITATION]


def test_log_probabilities_of_a_text_sent_whole_are_kept() -> None:
    token = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
    frames = [created(), added(message()), whole("output_text", "text", "Hi", logprobs=[token])]
    fed = CheckedResponses([*frames, ended("completed", message("Hi"))])
    assert fed.output[0]["content"][0]["logprobs"] == [token]


def test_refusals_and_texts_are_parts_of_one_message() -> None:
    parts = [{"type": "output_text", "text": "Hm", "annotations": []}, {"type": "refusal", "refusal": "No."}]
    frames = [created(), added(message()), say("Hm"), delta("refusal", "No", content_index=1)]
    frames += [whole("refusal", "refusal", "No.", content_index=1), done(message(content=parts))]
    fed = CheckedResponses([*frames, ended("completed", message(content=parts))])
    assert [part["type"] for part in fed.output[0]["content"]] == ["output_text", "refusal"]
    assert fed.texts == ["HmNo."]


def test_two_text_parts_stay_two() -> None:
    frames = [created(), added(message()), say("a"), say("b", content_index=1), done(message("a", "b"))]
    fed = CheckedResponses([*frames, ended("completed", message("a", "b"))])
    assert [part["text"] for part in fed.output[0]["content"]] == ["a", "b"]


def test_a_message_keeps_its_phase() -> None:
    frames = [created(), added(message(phase="commentary")), say("Hi"), ended()]
    assert CheckedResponses(frames).output[0]["phase"] == "commentary"


def test_parts_of_an_unusual_type_are_reported_as_what_they_hold() -> None:
    odd = message(content=[{"type": "text", "text": "Hi"}, {"type": "sparkle", "glow": 1}])
    fed = CheckedResponses([created(), done(odd), ended()])
    assert fed.texts == ["Hi"]
    assert "output_item.content: a part of type sparkle" in fed.notes("loss")


def test_a_part_of_another_kind_of_item_is_a_loss() -> None:
    odd = message("Hi")
    odd["content"].append({"type": "summary_text", "text": "s"})
    fed = CheckedResponses([created(), added(message()), say("Hi"), done(odd), ended()])
    assert "output_item.content: a part of type summary_text" in fed.notes("loss")


def test_unknown_parts_end_without_a_word() -> None:
    where = {"item_id": "msg_u", "output_index": 0, "content_index": 0}
    begun = {"type": "response.content_part.added", **where, "part": {"type": "sparkle"}}
    ending = {"type": "response.content_part.done", **where, "part": {"type": "sparkle"}}
    assert CheckedResponses([created(), begun, ending, ended()]).output == []


def test_encrypted_reasoning_without_words_is_an_item() -> None:
    item = reasoning(encrypted_content="sealed", status="completed")
    fed = CheckedResponses([created(), added(reasoning()), done(item), ended("completed", item)])
    assert fed.output == [item]


def test_encrypted_reasoning_that_comes_late_is_not_lost() -> None:
    frames = [created(), added(reasoning(), 0), delta("reasoning", "hm", id="rs_u"), added(message(), 1)]
    frames += [say("Hi", 1), done(reasoning("hm", encrypted_content="sealed"), 0), done(message("Hi"), 1)]
    fed = CheckedResponses([*frames, ended()])
    assert [item.get("encrypted_content") for item in fed.output] == [None, None, "sealed"]
    assert "encrypted_content: came late, sent in an item of its own" in fed.repairs


def test_a_message_that_is_not_the_assistants_is_no_output() -> None:
    fed = CheckedResponses(
        [created(), added(message(role="user")), done(message("Hi", role="user")), ended()]
    )
    assert fed.output == []
    assert "output_item: a message of the user's" in fed.notes("ignored")


def test_an_item_without_type_is_no_output() -> None:
    fed = CheckedResponses([created(), added({"id": "x"}), done({"id": "x"}), added({}, 1), ended()])
    assert fed.output == []
    assert "output_item: without a type" in fed.notes("ignored")


def test_an_item_event_without_item_says_nothing() -> None:
    nothing = {"type": "response.output_item.added", "output_index": 0, "item": None}
    fed = CheckedResponses([created(), nothing, {**nothing, "type": "response.output_item.done"}, ended()])
    assert fed.output == []


def test_the_missing_fields_of_a_response_are_one_repair() -> None:
    fed = CheckedResponses([created(), ended()])
    assert fed.repairs.count("response: required fields missing, filled") == 1
    assert fed.run.events[0].response.created_at == 1_700_000_000  # type: ignore[union-attr]


def test_a_response_that_does_not_say_who_it_is_gets_our_facts() -> None:
    fed = CheckedResponses([{"type": "response.created", "response": {}}, ended()])
    assert (fed.response.id, fed.response.model) == ("resp_0", "m")
    assert fed.response.created_at > 0


def test_without_adopt_the_response_stays_ours() -> None:
    fed = CheckedResponses([created(), added(message()), say("Hi"), ended()], adopt=False)
    assert (fed.response.id, fed.response.model) == ("resp_0", "m")
    assert fed.output[0]["id"] == "msg_u"


def test_queued_counts_as_begun() -> None:
    queued = {"type": "response.queued", "response": response("queued")}
    fed = CheckedResponses([{**created(), "response": response("queued")}, queued, ended()])
    assert [event.type for event in fed.events][:2] == ["response.created", "response.in_progress"]


@pytest.mark.parametrize("kind", ["reasoning", "reasoning_summary_text", "refusal"])
def test_case_16_empty_words_open_nothing(kind: str) -> None:
    assert CheckedResponses([created(), delta(kind, "", id="x"), say("", id="y"), ended()]).output == []


def test_reasoning_announced_after_its_first_words() -> None:
    frames = [
        created(),
        delta("reasoning", "h", id=""),
        added(reasoning(id="")),
        delta("reasoning", "m", id=""),
    ]
    fed = CheckedResponses([*frames, done(reasoning("hm", id="")), ended("completed", reasoning("hm"))])
    assert [item["content"][0]["text"] for item in fed.output] == ["hm"]


def test_an_item_that_was_not_done_makes_room_on_its_index() -> None:
    frames = [created(), added(message()), say("Hi"), added(call()), argue("{}"), done(call("{}"))]
    fed = CheckedResponses([*frames, say("!"), ended("completed", message("Hi!"), call("{}"))])
    assert fed.texts == ["Hi", "!"]
    assert fed.calls == [("call_u", "look", "{}")]


def test_words_without_id_are_found_by_their_index() -> None:
    fed = CheckedResponses(
        [created(), added(message()), say("Hi", id=""), done(message("Hi", id="")), ended()]
    )
    assert fed.texts == ["Hi"]
    assert not any("item_id" in repair for repair in fed.repairs)


def part_done(part: Json, at: int = 0) -> Json:
    where = {"item_id": "msg_u", "output_index": at, "content_index": 0}
    return {"type": "response.content_part.done", **where, "part": part}


def test_a_citation_after_its_part_has_ended_is_a_loss() -> None:
    frames = [created(), added(message()), say("Hi"), part_done(message("Hi")["content"][0])]
    fed = CheckedResponses([*frames, done(cited(CITATION)), ended("completed", cited(CITATION))])
    assert fed.output[0]["content"][0]["annotations"] == []
    assert "annotation: came after the end of its part" in fed.notes("loss")


def test_a_part_that_ends_while_another_item_is_open_ends_nothing() -> None:
    frames = [created(), added(message(), 0), say("Hi"), added(call(), 1), argue("{", 1)]
    fed = CheckedResponses([*frames, part_done(message("Hi")["content"][0]), argue("}", 1), ended()])
    assert fed.calls == [("call_u", "look", "{}")]


def test_raw_reasoning_that_ends_before_its_summary() -> None:
    ended_raw = part_done({"type": "reasoning_text", "text": "a"}) | {"item_id": "rs_u"}
    frames = [created(), added(reasoning()), delta("reasoning", "a", id="rs_u")]
    frames += [delta("reasoning_summary_text", "On", id="rs_u"), ended_raw]
    frames += [
        delta("reasoning_summary_text", "e", id="rs_u"),
        done(reasoning("a", summary=["One"])),
        ended(),
    ]
    fed = CheckedResponses(frames)
    assert fed.output[0]["summary"] == [{"type": "summary_text", "text": "One"}]
    assert fed.output[0]["content"] == [{"type": "reasoning_text", "text": "a"}]


# ── repetitions ────────────────────────────────────────────────────────────────────────────────────────────
AGAIN = "sequence_number: seen before, the event is not read again"


@pytest.mark.parametrize("overlap", [1, 5, 32])
def test_events_that_come_again_are_read_once(overlap: int) -> None:
    events = everything()
    fed = CheckedResponses([*events[:35], *events[35 - overlap :]])
    assert fed.repairs.count(AGAIN) == 1
    assert fed.output == events[-1]["response"]["output"]


@pytest.mark.parametrize("numbered", [{}, {"sequence_number": 0}, {"sequence_number": 1}])
def test_the_same_delta_twice_is_two_deltas(numbered: Json) -> None:
    """Unless its number says that it is one."""
    stream = [
        created(),
        added(message()),
        say("ha"),
        say("ha"),
        say("ha"),
        ended("completed", message("hahaha")),
    ]
    fed = CheckedResponses([event | numbered for event in stream])
    sent = [plain(event)["delta"] for event in fed.events if event.type == "response.output_text.delta"]
    assert sent == ["ha", "ha", "ha"]
