"""Every rule has a stream that breaks only it; clean streams break no rule."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from openresponses_bridge.conformance import RULES, StreamValidator, Violation
from openresponses_bridge.conformance.registry import ENVELOPE
from openresponses_bridge.sse import Frame
from tests.support.scripts import CITATION, USAGE, Event, Script, clean_streams, everything, renumber, settle

Fed = Any  # an event as JSON, bytes, or a frame
Break = Callable[[], list[Fed]]
BROKEN: list[tuple[str, str, str, Break]] = []  # rule, wire, what is wrong, stream


def breaks(rule: str, wire: str = "openresponses") -> Callable[[Break], Break]:
    """Register a stream that breaks `rule` on `wire`; its name says how."""

    def register(stream: Break) -> Break:
        BROKEN.append((rule, wire, stream.__name__.strip("_"), stream))
        return stream

    return register


def judged(stream: list[Fed], wire: str = "openresponses") -> list[Violation]:
    validator = StreamValidator(wire)  # type: ignore[arg-type]
    for fed in stream:
        validator.feed_frame(fed) if isinstance(fed, Frame) else validator.feed(fed)
    validator.close()
    return validator.violations


def at(events: list[Event], kind: str, nth: int = 0) -> int:
    """Where the nth event of this type is (`response.` may be left out)."""
    indexes = [i for i, event in enumerate(events) if event["type"] in (kind, f"response.{kind}")]
    return indexes[nth]


def dropped(kind: str, nth: int = 0) -> list[Event]:
    events = everything()
    del events[at(events, kind, nth)]
    return renumber(events)


def repeated(kind: str, nth: int = 0) -> list[Event]:
    events = everything()
    index = at(events, kind, nth)
    events.insert(index, deepcopy(events[index]))
    return renumber(events)


def changed(kind: str, nth: int = 0, **fields: Any) -> list[Event]:
    events = everything()
    events[at(events, kind, nth)].update(fields)
    return events


def with_item(kinds: tuple[str, ...], item_type: str, **fields: Any) -> list[Event]:
    """Fields of the first item of a type changed in its added or done events; a None takes one away."""
    events = everything()
    items = [event for event in events if isinstance(event.get("item"), dict)]
    for kind in kinds:
        event = next(
            each for each in items if each["type"].endswith(kind) and each["item"]["type"] == item_type
        )
        changed_item = {**event["item"], **fields}
        event["item"] = {key: value for key, value in changed_item.items() if value is not None}
    return settle(events)


def with_response(kind: str, **fields: Any) -> list[Event]:
    events = everything()
    events[at(events, kind)]["response"].update(fields)
    return events


def with_usage(**fields: Any) -> list[Event]:
    return with_response("completed", usage=USAGE | fields)


def frames(events: list[Event], done: bool = True) -> list[Frame]:
    named = [Frame(event["type"], msgspec.json.encode(event)) for event in events]
    return [*named, Frame("", b"[DONE]")] if done else named


BOTH = ("item.added", "item.done")


# ── the stream ─────────────────────────────────────────────────────────────────────────────────────
@breaks("event.json")
def _a_line_that_is_no_json() -> list[Fed]:
    events: list[Fed] = Script().finish()
    events[2]["sequence_number"] = 3
    events.insert(2, b"oops")
    return events


@breaks("event.json")
def _a_list() -> list[Fed]:
    return [*Script().finish(), "[]"]


@breaks("event.json")
def _an_object_that_json_has_not() -> list[Fed]:
    return [*Script().finish(), {"type": "acme:beat", "sequence_number": 3, "what": object()}]


@breaks("event.json")
def _first_and_numbers_go_on_behind_it() -> list[Fed]:
    return [b"", *Script().finish()]


@breaks("schema")
def _a_required_field_is_missing() -> list[Fed]:
    events = everything()
    del events[at(events, "created")]["response"]["usage"]
    return events


@breaks("schema")
def _a_number_as_a_string() -> list[Fed]:
    return changed("output_text.delta", 1, content_index="0")


@breaks("schema")
def _a_part_that_is_null() -> list[Fed]:
    return changed("content_part.done", 1, part=None)


@breaks("schema")
def _content_that_is_no_list() -> list[Fed]:
    return with_item(("item.done",), "message", content="Hello")


@breaks("schema")
def _arguments_that_are_no_string() -> list[Fed]:
    return with_item(("item.done",), "function_call", arguments=5)


@breaks("schema")
def _an_item_without_an_index() -> list[Fed]:
    events = everything()
    del events[at(events, "output_item.added", 3)]["output_index"]
    return events


@breaks("schema")
def _an_item_without_an_id() -> list[Fed]:
    return [
        {**event, "item": {**event["item"], "id": None}} if index == 2 else event
        for index, event in enumerate(Script().calls(["{}"]).finish())
    ]


@breaks("schema")
def _half_an_emoji() -> list[Fed]:
    events = Script().message(("output_text", ["a", "HALF"])).finish()
    return [msgspec.json.encode(event).replace(b"HALF", b"\\ud83d") for event in events]


@breaks("schema")
def _an_extension_without_a_number() -> list[Fed]:
    events = everything()
    del events[at(events, "acme:beat")]["sequence_number"]
    return events


@breaks("event.unknown_type")
def _no_slug() -> list[Fed]:
    return changed("acme:beat", type="response.unheard_of")


@breaks("event.unknown_type", "any")
def _no_response_event() -> list[Fed]:
    return changed("acme:beat", type="beat")


@breaks("event.unknown_type", "openai")
def _the_published_name_on_the_other_wire() -> list[Fed]:
    return Script().reasoning(raw=["a", "b"]).finish()


@breaks("seq.start_zero")
def _from_one() -> list[Fed]:
    return [{**event, "sequence_number": number} for number, event in enumerate(everything(), 1)]


@breaks("seq.increment")
def _a_gap() -> list[Fed]:
    return [{**event, "sequence_number": number + (number > 4)} for number, event in enumerate(everything())]


@breaks("seq.increment")
def _the_same_number_twice_in_a_run_of_deltas() -> list[Fed]:
    events = Script().message(("output_text", list("abcdef"))).finish()
    return [{**event, "sequence_number": number - (number > 6)} for number, event in enumerate(events)]


@breaks("stream.first_created")
def _without_created() -> list[Fed]:
    return renumber(Script().finish()[1:])


@breaks("stream.in_progress_present")
def _without_in_progress() -> list[Fed]:
    return dropped("in_progress")


@breaks("stream.in_progress_present")
def _late_in_progress() -> list[Fed]:
    events = Script().message(("output_text", ["a"])).finish()
    return renumber([events[0], events[2], events[1], *events[3:]])


@breaks("stream.in_progress_present")
def _completed_at_once() -> list[Fed]:
    events = Script().finish()
    return renumber([events[0], events[2]])


@breaks("stream.lifecycle_order")
def _in_progress_twice() -> list[Fed]:
    return repeated("in_progress")


@breaks("stream.lifecycle_order")
def _created_again() -> list[Fed]:
    return repeated("created")


@breaks("stream.lifecycle_order")
def _queued_after_in_progress() -> list[Fed]:
    events = everything()
    return renumber([events[0], events[2], events[1], *events[3:]])


@breaks("stream.one_terminal")
def _completed_twice() -> list[Fed]:
    return repeated("completed")


@breaks("stream.after_terminal")
def _a_late_event() -> list[Fed]:
    events = everything()
    return [*events, {"type": "acme:beat", "sequence_number": len(events)}]


@breaks("error.followed_by_failed")
def _error_at_the_end() -> list[Fed]:
    return Script().fail()[:-1]


@breaks("error.followed_by_failed")
def _something_between_error_and_failed() -> list[Fed]:
    events = Script().fail()
    return renumber([*events[:3], {"type": "acme:beat"}, events[3]])


@breaks("stream.no_terminal")
def _cut() -> list[Fed]:
    return everything()[:-1]


@breaks("stream.no_terminal")
def _empty() -> list[Fed]:
    return []


@breaks("sse.event_name")
def _another_name() -> list[Fed]:
    sent = frames(everything())
    sent[12] = Frame("message", sent[12].data)
    return [*sent]


@breaks("sse.event_name")
def _no_name_in_a_run_of_deltas() -> list[Fed]:
    sent = frames(Script().message(("output_text", list("abcdef"))).finish())
    sent[7] = Frame("", sent[7].data)
    return [*sent]


@breaks("stream.done_marker")
def _no_marker() -> list[Fed]:
    return [*frames(everything(), done=False)]


@breaks("stream.after_done")
def _two_markers() -> list[Fed]:
    return [*frames(everything()), Frame("", b"[DONE]")]


@breaks("stream.after_done")
def _marker_in_a_run_of_deltas() -> list[Fed]:
    events = Script().message(("output_text", list("abcdef"))).finish()
    sent = frames(events, done=False)
    return [*sent[:-1], Frame("", b"[DONE]"), sent[-1]]


# ── items ──────────────────────────────────────────────────────────────────────────────────────────
@breaks("item.present")
def _null() -> list[Fed]:
    return changed("output_item.added", 4, item=None)


@breaks("item.present")
def _null_when_done() -> list[Fed]:
    events = everything()
    events[at(events, "output_item.done", 4)]["item"] = None
    return events


@breaks("item.has_status")
def _reasoning_without_status() -> list[Fed]:
    return with_item(BOTH, "reasoning", status=None)


@breaks("item.added_first")
def _done_alone() -> list[Fed]:
    return dropped("output_item.added", 5)


@breaks("item.added_first")
def _a_message_that_begins_with_its_part() -> list[Fed]:
    return dropped("output_item.added", 1)


@breaks("item.added_first")
def _a_call_that_begins_with_a_delta() -> list[Fed]:
    events = Script().calls(["{", "}"]).finish()
    del events[2]
    return renumber(events)


@breaks("item.added_first", "openai")
def _progress_of_an_item_nobody_added() -> list[Fed]:
    item = {"type": "web_search_call", "id": "ws_1"}
    events = Script().whole(item, "response.web_search_call.searching").finish()
    del events[2]
    return renumber(events)


@breaks("item.after_closed")
def _a_late_delta() -> list[Fed]:
    events = everything()
    late = events[at(events, "output_text.delta")]
    events.insert(at(events, "output_item.done", 1) + 1, late)
    return renumber(events)


@breaks("item.after_closed", "openai")
def _late_progress() -> list[Fed]:
    item = {"type": "web_search_call", "id": "ws_1"}
    events = Script().whole(item, "response.web_search_call.searching").finish()
    return renumber([*events[:3], events[4], events[3], events[5]])


@breaks("item.closed_once")
def _done_twice() -> list[Fed]:
    return repeated("output_item.done", 1)


@breaks("item.added_in_progress")
def _added_completed() -> list[Fed]:
    return with_item(("item.added",), "function_call", status="completed")


@breaks("item.added_empty")
def _message_with_content() -> list[Fed]:
    return with_item(("item.added",), "message", content=[{"type": "refusal", "refusal": "No"}])


@breaks("item.added_empty")
def _call_with_arguments() -> list[Fed]:
    return with_item(("item.added",), "function_call", arguments="{}")


@breaks("item.added_empty")
def _reasoning_with_summary() -> list[Fed]:
    return with_item(("item.added",), "reasoning", summary=[{"type": "summary_text", "text": "s"}])


@breaks("item.index_dense")
def _an_index_left_out() -> list[Fed]:
    return [
        {**event, "output_index": 9} if event.get("output_index") == 5 else event for event in everything()
    ]


@breaks("item.id_unique")
def _the_id_of_another() -> list[Fed]:
    return with_item(BOTH, "acme:look", id="fc_2")


@breaks("item.id_stable")
def _a_delta_of_another_id() -> list[Fed]:
    return changed("output_text.delta", 1, item_id="msg_9")


@breaks("item.id_stable")
def _done_under_another_id() -> list[Fed]:
    return with_item(("item.done",), "message", id="msg_9")


@breaks("item.id_stable")
def _an_index_nobody_has() -> list[Fed]:
    return changed("output_text.delta", 1, output_index=77)


@breaks("item.type_stable")
def _done_as_another_type() -> list[Fed]:
    return with_item(("item.done",), "acme:look", type="acme:see")


@breaks("item.closed_status")
def _done_in_progress() -> list[Fed]:
    return with_item(("item.done",), "acme:look", status="in_progress")


@breaks("item.incomplete_last")
def _an_item_after_a_cut_one() -> list[Fed]:
    script = Script().message(("output_text", ["a"]), status="incomplete").calls(["{}"])
    return script.finish("max_output_tokens")


@breaks("item.incomplete_response")
def _completed_with_a_cut_item() -> list[Fed]:
    return Script().message(("output_text", ["a"]), status="incomplete").finish()


@breaks("item.unclosed")
def _completed_with_an_open_item() -> list[Fed]:
    return dropped("output_item.done", 5)


@breaks("item.unclosed")
def _incomplete_with_an_open_message() -> list[Fed]:
    return Script().message(("output_text", ["a"]), closed=False).finish("max_output_tokens")


@breaks("message.role_assistant")
def _a_message_of_the_user() -> list[Fed]:
    return with_item(BOTH, "message", role="user")


@breaks("call.id_unique")
def _one_call_id_for_two() -> list[Fed]:
    events = everything()
    for event in events:
        if event.get("item") and event["item"].get("name"):
            event["item"]["call_id"] = "call_x"
    return settle(events)


# ── the response ───────────────────────────────────────────────────────────────────────────────────
@breaks("status.event_matches")
def _created_as_completed() -> list[Fed]:
    return with_response("created", status="completed")


@breaks("status.event_matches")
def _cancelled_is_not_published() -> list[Fed]:
    return Script().cancel()


@breaks("status.event_matches", "openai")
def _cancelled_in_success() -> list[Fed]:
    events = Script().finish()
    events[-1]["response"]["status"] = "cancelled"
    return events


@breaks("response.same_id")
def _another_id() -> list[Fed]:
    return with_response("completed", id="resp_2")


@breaks("response.same_facts")
def _another_time() -> list[Fed]:
    return with_response("completed", created_at=1_700_000_001)


@breaks("response.same_facts")
def _another_predecessor_and_not_kept() -> list[Fed]:
    return with_response("in_progress", previous_response_id="resp_0", store=False, background=True)


@breaks("usage.sum")
def _a_total_that_is_no_sum() -> list[Fed]:
    return with_usage(total_tokens=9)


@breaks("usage.sum", "any")
def _a_total_that_is_too_small_in_a_failure() -> list[Fed]:
    events = Script().fail()
    events[-1]["response"]["usage"] = {**USAGE, "total_tokens": 0}
    return events


@breaks("usage.negative")
def _fewer_than_no_tokens() -> list[Fed]:
    return with_usage(input_tokens=-3, total_tokens=2, input_tokens_details={"cached_tokens": -3})


@breaks("usage.part_of_whole")
def _more_cached_than_came_in() -> list[Fed]:
    return with_usage(input_tokens_details={"cached_tokens": 4})


@breaks("usage.part_of_whole")
def _more_reasoning_than_came_out() -> list[Fed]:
    return with_usage(output_tokens_details={"reasoning_tokens": 6})


@breaks("response.completed_at")
def _not_set() -> list[Fed]:
    return with_response("completed", completed_at=None)


@breaks("response.completed_at")
def _set_too_early() -> list[Fed]:
    return with_response("in_progress", completed_at=1)


@breaks("response.completed_after_created")
def _completed_before_it_was_created() -> list[Fed]:
    return with_response("completed", completed_at=1_699_999_999)


@breaks("response.error_iff_failed")
def _an_error_in_success() -> list[Fed]:
    return with_response("completed", error={"code": "c", "message": "m"})


@breaks("response.error_iff_failed")
def _failure_without_error() -> list[Fed]:
    events = Script().fail()
    events[-1]["response"]["error"] = None
    return events


@breaks("response.incomplete_details_iff")
def _details_of_success() -> list[Fed]:
    return with_response("completed", incomplete_details={"reason": "r"})


@breaks("response.incomplete_details_iff")
def _incomplete_without_details() -> list[Fed]:
    events = Script().finish("max_output_tokens")
    events[-1]["response"]["incomplete_details"] = None
    return events


@breaks("response.starts_empty")
def _output_from_the_start() -> list[Fed]:
    events = everything()
    events[0]["response"]["output"] = events[-1]["response"]["output"][:1]
    return events


@breaks("terminal.output_equals_items")
def _an_item_left_out() -> list[Fed]:
    events = everything()
    events[-1]["response"]["output"].pop()
    return events


@breaks("terminal.output_equals_items")
def _an_item_changed() -> list[Fed]:
    events = everything()
    events[-1]["response"]["output"][4]["seen"] = [2]
    return events


@breaks("terminal.output_equals_items")
def _another_order() -> list[Fed]:
    events = everything()
    events[-1]["response"]["output"].reverse()
    return events


@breaks("terminal.output_equals_items")
def _partial_text_of_a_failure_lost() -> list[Fed]:
    events = Script().message(("output_text", ["a", "b"]), closed=False).fail()
    events[-1]["response"]["output"][0]["content"][0]["text"] = "a"
    return events


@breaks("terminal.output_equals_items")
def _an_open_item_under_another_id() -> list[Fed]:
    events = Script().message(("output_text", ["a", "b"]), closed=False).fail()
    events[-1]["response"]["output"][0]["id"] = "msg_9"
    return events


@breaks("terminal.unclosed_incomplete")
def _an_open_item_reported_as_completed() -> list[Fed]:
    events = Script().message(("output_text", ["a", "b"]), closed=False).fail()
    events[-1]["response"]["output"][0]["status"] = "completed"
    return events


# ── content ────────────────────────────────────────────────────────────────────────────────────────
@breaks("part.backed")
def _text_without_a_part() -> list[Fed]:
    return dropped("content_part.added", 1)


@breaks("part.backed")
def _summary_without_a_part() -> list[Fed]:
    return dropped("reasoning_summary_part.added", 1)


@breaks("part.after_done")
def _text_done_twice() -> list[Fed]:
    return repeated("output_text.done")


@breaks("part.after_done")
def _part_done_twice() -> list[Fed]:
    return repeated("content_part.done", 1)


@breaks("part.done_before_closed")
def _no_text_done() -> list[Fed]:
    return dropped("output_text.done")


@breaks("part.unclosed")
def _no_part_done() -> list[Fed]:
    return dropped("content_part.done", 2)


@breaks("part.unclosed")
def _no_summary_part_done() -> list[Fed]:
    return dropped("reasoning_summary_part.done", 1)


@breaks("part.index_dense")
def _a_content_index_left_out() -> list[Fed]:
    return [
        {**event, "content_index": 7} if event.get("content_index") == 1 else event for event in everything()
    ]


@breaks("part.index_dense")
def _a_part_added_twice() -> list[Fed]:
    return repeated("content_part.added", 1)


@breaks("part.added_empty")
def _annotations_from_the_start() -> list[Fed]:
    part = {"type": "output_text", "text": "", "annotations": [CITATION], "logprobs": []}
    return changed("content_part.added", 1, part=part)


@breaks("part.added_empty")
def _text_from_the_start() -> list[Fed]:
    events = everything()
    first = at(events, "refusal.delta")
    events[at(events, "content_part.added", 2)]["part"]["refusal"] = events[first]["delta"]
    del events[first]
    return renumber(events)


@breaks("part.kind_of_item")
def _reasoning_in_a_message() -> list[Fed]:
    def respelled(value: Any) -> Any:
        if isinstance(value, list):
            return [respelled(each) for each in value]
        if not isinstance(value, dict):
            return value
        value = {key: respelled(each) for key, each in value.items()}
        if str(value.get("type")).startswith("response.refusal"):
            value["type"] = value["type"].replace("refusal", "reasoning")
            value["text"] = value.pop("refusal", "")
        elif value.get("type") == "refusal":
            value = {"type": "reasoning_text", "text": value["refusal"]}
        return value

    return [respelled(event) for event in everything()]


@breaks("part.kind_of_event")
def _text_for_a_refusal() -> list[Fed]:
    return changed("refusal.delta", type="response.output_text.delta")


@breaks("part.kind_of_event")
def _an_annotation_for_a_refusal() -> list[Fed]:
    script = Script().message(("output_text", ["a"]), ("refusal", ["b"])).finish()
    where = {"item_id": "msg_0", "output_index": 0, "content_index": 1, "annotation_index": 0}
    added = {"type": "response.output_text.annotation.added", **where, "annotation": CITATION}
    script.insert(at(script, "refusal.done"), added)
    return renumber(script)


@breaks("part.kind_stable")
def _done_as_another_part() -> list[Fed]:
    events = everything()
    part = {"type": "output_text", "text": "No.", "annotations": []}
    events[at(events, "content_part.done", 2)]["part"] = part
    events[at(events, "output_item.done", 1)]["item"]["content"][1] = part
    return settle(events)


def _with_text(text: str, *kinds: str) -> list[Event]:
    events = everything()
    if "done" in kinds:
        events[at(events, "output_text.done")]["text"] = text
    if "part" in kinds:
        events[at(events, "content_part.done", 1)]["part"]["text"] = text
    events[at(events, "output_item.done", 1)]["item"]["content"][0]["text"] = text
    return settle(events)


@breaks("delta.sum_text")
def _another_text_from_done_on() -> list[Fed]:
    return _with_text("Hello", "done", "part")


@breaks("delta.sum_text")
def _a_delta_lost() -> list[Fed]:
    return dropped("output_text.delta", 1)


@breaks("delta.sum_part")
def _another_text_from_the_part_on() -> list[Fed]:
    return _with_text("Hello", "part")


@breaks("delta.sum_item")
def _another_text_in_the_item() -> list[Fed]:
    return _with_text("Hello")


@breaks("delta.sum_item")
def _a_part_that_was_not_streamed() -> list[Fed]:
    events = everything()
    item = events[at(events, "output_item.done", 0)]["item"]
    item["summary"].append({"type": "summary_text", "text": "x"})
    return settle(events)


@breaks("delta.sum_item")
def _reasoning_without_its_content() -> list[Fed]:
    return with_item(("item.done",), "reasoning", content=None)


@breaks("annotation.index_dense")
def _an_annotation_left_out() -> list[Fed]:
    return changed("output_text.annotation.added", annotation_index=1)


@breaks("annotation.in_part")
def _another_annotation_in_the_part() -> list[Fed]:
    events = everything()
    events[at(events, "content_part.done", 1)]["part"]["annotations"] = [{**CITATION, "title": "B"}]
    return events


@breaks("call.kind_of_item", "any")
def _custom_input_for_a_function() -> list[Fed]:
    return changed("function_call_arguments.delta", type="response.custom_tool_call_input.delta")


@breaks("call.after_done")
def _arguments_done_twice() -> list[Fed]:
    return repeated("function_call_arguments.done")


@breaks("call.arguments_sum")
def _other_arguments() -> list[Fed]:
    events = everything()
    events[at(events, "function_call_arguments.done", 1)]["arguments"] = "{ }"
    events[at(events, "output_item.done", 3)]["item"]["arguments"] = "{ }"
    return settle(events)


@breaks("call.arguments_sum", "openai")
def _other_input() -> list[Fed]:
    events = Script().custom_call("a", "b").finish()
    events[at(events, "custom_tool_call_input.done")]["input"] = "c"
    events[at(events, "output_item.done")]["item"]["input"] = "c"
    return settle(events)


@breaks("call.arguments_done")
def _completed_without_arguments_done() -> list[Fed]:
    return dropped("function_call_arguments.done", 1)


@breaks("call.done_matches")
def _other_arguments_in_the_item() -> list[Fed]:
    return with_item(("item.done",), "function_call", arguments="{}")


@breaks("call.identity_stable")
def _another_name_in_the_end() -> list[Fed]:
    return with_item(("item.done",), "function_call", name="see")


@breaks("call.identity_stable")
def _another_call_id_in_the_end() -> list[Fed]:
    return with_item(("item.done",), "function_call", call_id="call_9")


@pytest.mark.parametrize(
    ("rule", "wire", "stream"),
    [pytest.param(rule, wire, stream, id=f"{rule}-{name}") for rule, wire, name, stream in BROKEN],
)
def test_a_stream_that_breaks_one_rule_shows_its_id(rule: str, wire: str, stream: Break) -> None:
    assert {violation.rule for violation in judged(stream(), wire)} == {rule}


def test_every_rule_is_broken_once() -> None:
    in_streams = {name for name, rule in RULES.items() if ENVELOPE not in rule.on}
    assert {rule for rule, *_ in BROKEN} == in_streams


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_every_rule_says_what_it_asks_and_where_that_stands(rule: Any) -> None:
    assert rule.description.endswith((".", "…", ")."))
    assert rule.source
    assert rule.on
    assert rule.check.__name__.replace("_", ".", 1) == rule.id


@pytest.mark.parametrize("wire", ["openresponses", "any"])
@pytest.mark.parametrize("stream", [pytest.param(each, id=name) for name, each in clean_streams()])
def test_clean_streams_have_no_violations(stream: list[Event], wire: str) -> None:
    assert judged(stream, wire) == []
    assert judged([*frames(stream)], wire) == []


def openai_streams() -> list[Any]:
    search = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search"}}
    progress = ("response.web_search_call.in_progress", "response.web_search_call.completed")
    return [
        pytest.param(Script().custom_call("a", "b").finish(), id="custom tool"),
        pytest.param(Script().whole(search, *progress).extension().finish(), id="hosted tool"),
        pytest.param(Script().message(("output_text", ["a"])).cancel(), id="cancelled"),
        pytest.param(Script().fail(nested=False), id="error at top level"),
        pytest.param(Script().fail(), id="error nested"),
    ]


@pytest.mark.parametrize("stream", openai_streams())
def test_openai_streams_are_clean_on_their_wire_and_on_any(stream: list[Event]) -> None:
    assert judged(stream, "openai") == []
    assert judged(stream, "any") == []
    assert judged([*frames(stream, done=False)], "openai") == []


def test_a_cancelled_response_may_say_why_or_not() -> None:
    events = Script().cancel()
    events[-1]["response"]["incomplete_details"] = {"reason": "cancelled"}
    assert judged(events, "openai") == []


def test_any_admits_hosted_tools_of_tomorrow() -> None:
    item = {"type": "teleport_call", "id": "tp_1"}
    events = Script().whole(item, "response.teleport_call.beaming").finish()
    assert judged(events, "any") == []
    assert {each.rule for each in judged(events, "openai")} == {"event.unknown_type"}


def test_calls_cut_side_by_side_are_all_incomplete() -> None:
    assert judged(Script().calls(["{"], ['{"a'], cut=True).finish("max_output_tokens")) == []


def test_a_failure_need_not_repeat_what_it_left_open() -> None:
    events = Script().calls(["{}"]).message(("output_text", ["a"]), closed=False).fail()
    events[-1]["response"]["output"].pop()
    assert judged(events) == []
