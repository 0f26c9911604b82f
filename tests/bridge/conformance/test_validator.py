"""`StreamValidator`: what it accepts, what it reports and what it costs. `test_rules` tests the rules."""

import json
import math
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from openresponses_bridge.conformance import StreamValidator, Violation
from openresponses_bridge.protocol import content, events
from openresponses_bridge.protocol.codec import decode_event
from openresponses_bridge.sse import Frame
from tests.support.costs import assert_proportional
from tests.support.scripts import Event, Script, clean_streams, everything, renumber

Feed = Callable[[Event], Any]
WAYS: list[tuple[str, Feed]] = [
    ("mapping", lambda event: event),
    ("bytes", lambda event: json.dumps(event).encode()),
    ("text", lambda event: json.dumps(event)),
    ("struct", lambda event: decode_event(json.dumps(event))),
]


def judged(stream: list[Any]) -> list[Violation]:
    validator = StreamValidator("openresponses")
    violations = [each for event in stream for each in validator.feed(event)]
    violations += validator.close()
    assert violations == validator.violations
    return violations


def text_events(*deltas: str) -> list[Any]:
    """A text stream as structs."""
    return [decode_event(json.dumps(each)) for each in Script().message(("output_text", deltas)).finish()]


def replaced(stream: list[Any], index: int, **fields: Any) -> list[Any]:
    return [*stream[:index], msgspec.structs.replace(stream[index], **fields), *stream[index + 1 :]]


@pytest.mark.parametrize(("way", "feed"), WAYS, ids=[name for name, _ in WAYS])
@pytest.mark.parametrize("stream", [pytest.param(each, id=name) for name, each in clean_streams()])
def test_every_way_to_feed_finds_a_clean_stream_clean(stream: list[Event], way: str, feed: Feed) -> None:
    assert judged([feed(event) for event in stream]) == []


@pytest.mark.parametrize(("way", "feed"), WAYS, ids=[name for name, _ in WAYS])
def test_every_way_to_feed_finds_the_same(way: str, feed: Feed) -> None:
    stream = everything()
    del stream[7], stream[20]
    stream[30]["output_index"] = 3
    expected = judged(stream)
    assert expected
    assert judged([feed(event) for event in stream]) == expected


@pytest.mark.parametrize(("way", "feed"), WAYS[:3], ids=[name for name, _ in WAYS[:3]])
def test_raw_events_show_required_fields_that_are_missing(way: str, feed: Feed) -> None:
    stream = everything()
    del stream[-1]["response"]["temperature"]
    del stream[6]["item_id"]
    violations = judged([feed(event) for event in stream])
    assert [(each.rule, each.event_index, each.path) for each in violations] == [
        ("schema", 6, "$.item_id"),
        ("schema", len(stream) - 1, "$.response.temperature"),
    ]


@pytest.mark.parametrize(
    ("index", "fields"),
    [
        pytest.param(6, {"item_id": 5}, id="item_id"),
        pytest.param(6, {"item_id": ["msg_0"]}, id="item_id that can't be hashed"),
        pytest.param(6, {"output_index": False}, id="output_index of the right value and the wrong type"),
        pytest.param(6, {"content_index": 0.0}, id="content_index of the right value and the wrong type"),
        pytest.param(6, {"sequence_number": 6.0}, id="sequence_number of the right value and the wrong type"),
        pytest.param(6, {"delta": None}, id="delta"),
        pytest.param(6, {"delta": "\ud83d"}, id="half an emoji"),
        pytest.param(6, {"obfuscation": 3}, id="obfuscation"),
        pytest.param(6, {"logprobs": None}, id="logprobs"),
        pytest.param(6, {"logprobs": ["x"]}, id="a logprob"),
        pytest.param(2, {"output_index": "0"}, id="index of an item"),
        pytest.param(3, {"part": "text"}, id="part"),
    ],
)
def test_a_struct_with_a_value_of_a_wrong_type_is_against_the_schema(
    index: int, fields: dict[str, Any]
) -> None:
    stream = text_events("a", "b", "c")
    violations = judged(replaced(stream, index, **fields))
    assert violations[0].rule == "schema"
    assert violations[0].event_index == index
    assert violations[0].path.startswith(f"$.{next(iter(fields))}")


@pytest.mark.parametrize(
    ("index", "fields"),
    [
        pytest.param(6, {"delta": object()}, id="no JSON value"),
        pytest.param(2, {"item": {1, 2, object()}}, id="no JSON value in an item"),
    ],
)
def test_a_struct_that_can_t_be_encoded_is_no_json(index: int, fields: dict[str, Any]) -> None:
    violations = judged(replaced(text_events("a", "b", "c"), index, **fields))
    assert (violations[0].rule, violations[0].event_index) == ("event.json", index)


def test_an_infinite_number_is_no_json() -> None:
    stream = everything()
    stream[0]["response"]["temperature"] = math.inf
    assert {each.rule for each in judged(stream)} == {"schema"}
    assert judged([json.dumps(each) for each in stream])[0].rule == "event.json"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"type":NaN}', "\ud83d", "nope", b"[" * 100_000, {"x": {1j}}],
    ids=["empty", "cut", "list", "null", "no UTF-8", "NaN", "surrogate", "word", "deep", "complex"],
)
def test_whatever_is_fed_nothing_raises(data: Any) -> None:
    stream = everything()
    assert [each.rule for each in judged([*stream, data])] == ["event.json"]
    validator = StreamValidator()
    assert [each.rule for each in validator.feed(data)] == ["event.json"]


def test_a_string_of_half_an_emoji_in_json_text() -> None:
    assert [each.rule for each in judged(['"\ud83d"'])] == ["event.json", "stream.no_terminal"]


def test_deep_nesting_within_an_event_is_reported() -> None:
    deep = b'{"type":"acme:beat","sequence_number":0,"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    assert judged([deep])[0].rule in ("event.json", "stream.first_created")


@pytest.mark.parametrize("depth", [100, 400, 800, 960, 990, 5_000])
@pytest.mark.parametrize("field", ["output", "tools", "tool_choice", "metadata", "text"])
def test_nesting_of_any_depth_raises_nothing(field: str, depth: int) -> None:
    event = everything()[0]
    event["response"][field] = "HERE"
    validator = StreamValidator("openresponses")
    validator.feed(json.dumps(event).replace('"HERE"', "[" * depth + "]" * depth))
    assert validator.violations or field == "metadata"


def test_an_object_without_type_is_reported_once() -> None:
    assert [each.rule for each in judged([{}])] == [
        "schema",
        "schema",
        "stream.first_created",
        "stream.in_progress_present",
        "stream.no_terminal",
    ]


def test_after_unreadable_data_the_next_number_is_expected_one_later() -> None:
    stream: list[Any] = Script().finish()
    stream[2]["sequence_number"] = 3
    assert [each.rule for each in judged([*stream[:2], b"?", stream[2]])] == ["event.json"]


def test_a_violation_says_where_and_what_in_one_line() -> None:
    stream = everything()
    del stream[-1]["response"]["temperature"]
    (violation,) = judged(stream)
    assert isinstance(violation, Violation)
    assert violation.event_type == "response.completed"
    assert str(violation) == (
        f"schema: event {len(stream) - 1} (response.completed $.response.temperature): {violation.message}"
    )
    assert "\n" not in str(violation)
    with pytest.raises(AttributeError):
        violation.rule = "other"  # type: ignore[misc]


def test_the_end_of_the_stream_is_one_past_its_last_event() -> None:
    validator = StreamValidator()
    for event in everything()[:-1]:
        validator.feed(event)
    (violation,) = validator.close()
    assert (violation.event_index, violation.event_type) == (len(everything()) - 1, "")
    assert str(violation).startswith(f"stream.no_terminal: event {len(everything()) - 1} (end of stream)")


def test_closing_twice_reports_once() -> None:
    validator = StreamValidator()
    assert [each.rule for each in validator.close()] == ["stream.no_terminal"]
    assert validator.close() == []
    assert len(validator.violations) == 1


def test_an_unknown_wire_is_refused() -> None:
    with pytest.raises(ValueError, match="openresponses, openai, any, not 'smoke'"):
        StreamValidator("smoke")  # type: ignore[arg-type]


def test_a_frame_may_have_an_id_and_a_retry_time() -> None:
    validator = StreamValidator("openresponses")
    for event in everything():
        assert validator.feed_frame(Frame(event["type"], msgspec.json.encode(event), "7", 100)) == []
    assert validator.feed_frame(Frame("", b" [DONE] ")) == []
    assert validator.close() == []


def test_every_delta_is_summed_up_whichever_path_it_takes() -> None:
    """Runs of deltas, interleaved calls, logprobs, padding and other alphabets between them."""
    logprob = content.LogProb("b", -0.5, [98], [])
    stream = text_events("a", "b", "é", "🙂", "c")
    stream = replaced(stream, 5, logprobs=[logprob])
    stream = replaced(stream, 6, obfuscation="xx")
    assert judged(stream) == []
    spoiled = replaced(stream, 8, delta="C")
    assert [each.rule for each in judged(spoiled)] == ["delta.sum_text"]
    calls = [
        decode_event(json.dumps(each)) for each in Script().calls(list("{}  "), list('{"a" : 1}')).finish()
    ]
    assert judged(calls) == []
    deltas = [i for i, each in enumerate(calls) if isinstance(each, events.FunctionCallArgumentsDelta)]
    for index in deltas:
        rules = {each.rule for each in judged(replaced(calls, index, delta="?"))}
        assert rules == {"call.arguments_sum"}


def test_in_a_run_of_deltas_every_mistake_is_seen() -> None:
    stream = text_events(*"abcdef")
    mistakes: dict[str, dict[str, Any]] = {
        "seq.increment": {"sequence_number": 6},
        "item.id_stable": {"item_id": "msg_9"},
        "part.backed": {"content_index": 4},
    }
    for rule, fields in mistakes.items():
        assert rule in {each.rule for each in judged(replaced(stream, 7, **fields))}
    other = events.RefusalDelta(7, "msg_0", 0, 0, "d")
    assert [each.rule for each in judged([*stream[:7], other, *stream[8:]])] == ["part.kind_of_event"]


def test_a_delta_after_the_text_is_done_is_seen_though_it_looks_like_those_before() -> None:
    stream = Script().message(("output_text", ["a", "b", "b"])).finish()
    stream[6], stream[7] = stream[7], stream[6]
    assert [each.rule for each in judged(renumber(stream))] == ["delta.sum_text", "part.after_done"]


def seconds(count: int) -> float:
    head = text_events("word ")
    deltas = [events.OutputTextDelta(4 + n, "msg_0", 0, 0, "word ", []) for n in range(count)]
    best = math.inf
    for _ in range(3):
        validator = StreamValidator("openresponses")
        for event in head[:4]:
            validator.feed(event)
        feed = validator.feed
        started = time.perf_counter()
        for event in deltas:
            feed(event)
        best = min(best, time.perf_counter() - started)
        assert validator.violations == []
    return best


@pytest.mark.bench
def test_e12_a_delta_costs_the_same_however_long_the_text_is() -> None:
    per_delta = [seconds(count) / count for count in (2_000, 20_000, 200_000)]
    for shorter, longer in pairwise(per_delta):
        assert longer < 3 * shorter
    assert per_delta[-1] < 15e-6  # ten times what it takes: a busy machine passes, a slow path does not


@pytest.mark.untraced
@pytest.mark.parametrize(
    "event",
    [
        '{"type":"response.output_text.delta","sequence_number":%d,"delta":"a"}',
        '{"type":"response.output_item.added","sequence_number":%d,"output_index":%d,"item":{"type":"message"}}',
    ],
    ids=["deltas of no item", "items"],
)
def test_s10_events_cost_the_same_however_many_items_there_are(event: str) -> None:
    def cost(count: int) -> float:
        validator = StreamValidator("openresponses")
        begun = time.process_time()
        for number in range(count):
            validator.feed(event % ((number,) * event.count("%d")))
        return time.process_time() - begun

    assert_proportional(cost, 1_000, 8_000)  # where each looks at all before it: five times as much and more


def test_e12_text_is_kept_once() -> None:
    size, count = 1_000, 2_000
    head = text_events("x" * size)
    validator = StreamValidator("openresponses")
    for event in head[:4]:
        validator.feed(event)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            validator.feed(events.OutputTextDelta(4 + number, "msg_0", 0, 0, "x" * size, []))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 1.6 * size * count
