"""Copilot's callback chunks, bare deltas and completions → events."""

from functools import partial
from typing import Any

import pytest

from openresponses_bridge.dialects.copilot import Inbound
from openresponses_bridge.dialects.copilot.dialect import DIALECT
from tests.support.checked_inbound import CheckedInbound, Frame

STOP = {"reason": "stop", "index": 0}


def delta(**fields: Any) -> Frame:
    return {"text": "", "index": 0, "delta": {"text": "", **fields}}


def fed(*frames: Frame, **options: Any) -> CheckedInbound:
    return CheckedInbound(partial(Inbound, **options), frames)


def calls_of(stream: CheckedInbound) -> list[tuple[str, str, str]]:
    return [
        (item["call_id"], item["name"], item["arguments"])
        for item in stream.output
        if item["type"] == "function_call"
    ]


def grown(arguments: str, id: str = "call_a", name: str = "find") -> Frame:
    return delta(copilotToolCallStreamUpdates=[{"id": id, "name": name, "arguments": arguments}])


def whole(*calls: dict[str, Any]) -> Frame:
    return delta(copilotToolCalls=list(calls))


CALL = {"id": "call_a", "name": "find", "arguments": '{"a":1}'}


# ── frames ─────────────────────────────────────────────────────────────────────────────────────────
def test_wrapped_and_bare_deltas_are_read() -> None:
    stream = fed({"text": "Hel", "index": 0, "delta": {"text": "Hel"}}, {"text": "lo"}, STOP)
    assert stream.response.output_text == "Hello"
    assert stream.status == "completed"


def test_other_choices_are_left_out_and_reported() -> None:
    other = {"text": "b", "index": 1, "delta": {"text": "b"}}
    stream = fed({"text": "a"}, other, other, {**STOP, "index": 1}, STOP)
    assert stream.response.output_text == "a"
    assert stream.notes("loss") == ["choices: only choice 0 is translated"]
    assert fed(other, {**STOP, "index": 1}, index=1).response.output_text == "b"


def test_frames_after_the_end_are_ignored() -> None:
    stream = fed({"text": "a"}, STOP, {"text": "b"})
    assert stream.response.output_text == "a"
    assert stream.notes("ignored") == ["frame: came after the end"]


def test_a_started_machine_is_not_started_again() -> None:
    stream = CheckedInbound(Inbound, close=False)
    stream.run("start")
    assert stream.feed({"text": "a"})[0] == "output_item.added"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"{", "upstream_invalid_json"),
        (b"[1]", "upstream_invalid_shape"),
        (b'"text"', "upstream_invalid_shape"),
    ],
)
def test_unreadable_frames_fail_the_response(frame: bytes, code: str) -> None:
    stream = fed({"text": "a"}, frame)
    assert stream.status == "failed"
    assert stream.error[0] == code


def test_unknown_fields_are_noted_once_per_name() -> None:
    stream = fed(delta(spin=1), delta(spin=2), STOP)
    assert stream.notes("ignored") == ["delta.spin: unknown field"]


# ── text ───────────────────────────────────────────────────────────────────────────────────────────
def test_e6_empty_text_emits_nothing() -> None:
    stream = CheckedInbound(Inbound, close=False)
    assert stream.feed(delta()) == ["created", "in_progress"]
    assert stream.feed({"text": ""}) == []
    assert stream.feed({"text": 7}) == []


def test_logprobs_are_read_as_far_as_they_go() -> None:
    sent = {"content": [{"token": "é", "logprob": -1, "top_logprobs": [{"token": "e"}, 3]}, "x"]}
    stream = fed(delta(text="é", logprobs=sent) | {"text": "é"}, STOP)
    (probability,) = stream.output[0]["content"][0]["logprobs"]
    assert probability["bytes"] == [195, 169]
    assert probability["top_logprobs"] == [{"token": "e", "logprob": 0.0, "bytes": [101]}]
    assert fed(delta(text="a", logprobs=3), STOP).response.output_text == "a"


def test_the_blank_before_the_first_call_is_copilots_own() -> None:
    begun = {"text": " ", "beginToolCalls": [{"name": "find", "id": "call_a"}]}
    stream = fed({"text": "Look"}, begun, whole(CALL))
    assert stream.response.output_text == "Look"
    assert fed({"text": " "}, STOP).response.output_text == " "


# ── thinking ───────────────────────────────────────────────────────────────────────────────────────
def test_case_30_thinking_blocks_are_distinguished_by_their_ids() -> None:
    stream = fed(
        delta(thinking={"id": "t1", "text": "one"}),
        delta(thinking={"id": "t1", "text": [" and", " a half"]}),
        delta(thinking={"id": "t1", "encrypted": "x1"}),
        delta(thinking={"id": "t2", "text": "two"}),
        delta(thinking={"id": "t2", "encrypted": "x2"}),
        delta(text="so"),
        STOP,
    )
    first, second, message = stream.output
    assert first["content"][0]["text"] == "one and a half"
    assert (first["encrypted_content"], second["encrypted_content"]) == ("x1", "x2")
    assert message["type"] == "message"


def test_thinking_may_be_a_text_by_itself() -> None:
    stream = fed(delta(thinking="hm"), delta(thinking={"metadata": {"x": 1}}), delta(thinking="!"), STOP)
    assert stream.output[0]["content"][0]["text"] == "hm!"


# ── tool calls ─────────────────────────────────────────────────────────────────────────────────────
def test_accumulated_arguments_become_deltas() -> None:
    stream = fed(
        delta(beginToolCalls=[{"name": "find", "id": "call_a"}]),
        grown('{"a"'),
        grown('{"a":1}'),
        whole(CALL),
        {"reason": "tool_calls", "index": 0},
    )
    deltas = [event.delta for event in stream.events if event.type.endswith("arguments.delta")]  # type: ignore[union-attr]
    assert deltas == ['{"a"', ":1}"]
    assert calls_of(stream) == [("call_a", "find", '{"a":1}')]


def test_case_07_what_was_not_streamed_follows_at_the_end() -> None:
    stream = fed(grown('{"a"'), whole(CALL))
    assert calls_of(stream) == [("call_a", "find", '{"a":1}')]
    assert stream.status == "completed"
    assert calls_of(fed(whole(CALL))) == [("call_a", "find", '{"a":1}')]
    assert calls_of(fed(grown('{"a":1}'), whole({**CALL, "arguments": ""}))) == [
        ("call_a", "find", '{"a":1}')
    ]


def test_arguments_that_change_keep_what_was_streamed() -> None:
    stream = fed(grown('{"a":1}'), whole({**CALL, "arguments": '{"b":2}'}))
    assert calls_of(stream) == [("call_a", "find", '{"a":1}')]
    assert stream.notes("loss") == ["tool_calls.arguments: differ from the streamed ones, which are kept"]


def test_a_call_sent_again_is_left_out() -> None:
    assert len(calls_of(fed(whole(CALL), whole(CALL), grown('{"a":1}')))) == 1


def test_two_calls_of_one_name_are_two() -> None:
    stream = fed(grown("{}", "call_a"), grown("{}", "call_b"), whole({**CALL, "arguments": "{}"}))
    assert [call[0] for call in calls_of(stream)] == ["call_a", "call_b"]


def test_case_05_a_beginning_without_an_id_waits_for_it() -> None:
    stream = CheckedInbound(Inbound, close=False)
    assert stream.feed(delta(beginToolCalls=[{"name": "find"}])) == ["created", "in_progress"]
    stream.feed(whole(CALL))
    stream.close()
    assert calls_of(stream) == [("call_a", "find", '{"a":1}')]


def test_legacy_function_calls_have_no_ids_and_are_each_a_call() -> None:
    functions = [{"name": "find", "arguments": "{}"}, {"name": "find", "arguments": '{"b":2}'}]
    stream = fed(delta(_deprecatedCopilotFunctionCalls=functions), {"reason": "function_call", "index": 0})
    assert [(name, arguments) for _, name, arguments in calls_of(stream)] == [
        ("find", "{}"),
        ("find", '{"b":2}'),
    ]
    assert stream.status == "completed"


def test_a_call_without_a_name_is_lost_and_reported() -> None:
    stream = fed(whole({"id": "call_a", "arguments": "{}"}), delta(copilotToolCalls="x"))
    assert (stream.status, stream.output) == ("incomplete", [])
    assert stream.notes("loss") == ["tool_call: never got a name"]
    nameless = fed(delta(beginToolCalls=[{"id": "a"}]), grown("{}", "b", ""), implied_end=True)
    assert (nameless.status, nameless.output) == ("incomplete", [])
    later = fed(delta(beginToolCalls=[{"id": "a"}]), grown("{}", "a", "find"), implied_end=True)
    assert (later.status, [name for _, name, _ in calls_of(later)]) == ("completed", ["find"])


def test_case_25_a_call_cut_short_is_incomplete() -> None:
    stream = fed(grown('{"a'), {"reason": "length", "index": 0})
    assert stream.output[0]["status"] == "incomplete"
    assert stream.status == "incomplete"


# ── references and extensions ──────────────────────────────────────────────────────────────────────
def test_references_with_an_address_are_citations_and_others_pass_whole() -> None:
    cited = {"type": "web", "id": "1", "data": {"url": "https://e.org", "title": "E", "end_index": 4}}
    shown = {"type": "web", "id": "2", "metadata": {"display_url": "https://f.org", "display_name": "F"}}
    other = {"type": "file", "id": "3", "data": {"path": "a"}, "metadata": 4}
    stream = fed(delta(text="text", copilotReferences=[cited, shown, other]), STOP)
    first, second = stream.output[0]["content"][0]["annotations"]
    assert (first["url"], first["title"], first["end_index"]) == ("https://e.org", "E", 4)
    assert (second["url"], second["title"]) == ("https://f.org", "F")
    assert stream.extensions("copilot:references") == [{"value": [other]}]
    alone = fed(delta(text="text", copilotReferences=[cited, "x"]), STOP)
    assert alone.extensions("copilot:references") == []


def test_fields_without_an_event_travel_as_extensions() -> None:
    fields = {
        "statefulMarker": "m1",
        "ipCitations": [{"citations": {"url": "u", "license": "MIT", "snippet": "s"}}],
        "codeVulnAnnotations": [{"details": {"type": "t", "description": "d"}}],
        "copilotConfirmation": {"title": "t", "message": "m", "confirmation": {}},
        "contextManagement": {"applied_edits": []},
        "retryReason": "copyright",
    }
    stream = fed(delta(**fields), STOP)
    assert stream.extensions("copilot:stateful_marker") == [{"value": "m1"}]
    assert sum(event.type.startswith("copilot:") for event in stream.events) == len(fields)


# ── the end ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("reason", "status", "details"),
    [
        ("stop", "completed", None),
        ("DONE", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
        ("client-trimmed", "incomplete", "cancelled"),
    ],
)
def test_case_23_reasons_keep_their_meaning(reason: str, status: str, details: str | None) -> None:
    response = fed({"text": "a"}, {"reason": reason, "index": 0}).response
    assert response.status == status
    assert (response.incomplete_details and response.incomplete_details.reason) == details


def test_case_26_iteration_done_is_a_cut() -> None:
    assert fed({"text": "a"}, {"reason": "Iteration Done"}).error[0] == "upstream_cut"
    assert fed().error[0] == "upstream_cut"


def test_implied_end_takes_the_return_for_a_stop() -> None:
    assert fed({"text": "a"}, implied_end=True).status == "completed"


def test_case_27_errors_keep_their_code_and_message() -> None:
    first = {"type": "error", "code": "quota", "message": "no more", "agent": "x", "identifier": "input"}
    stream = fed(delta(copilotErrors=[first, {"message": "again"}]))
    assert stream.error == ("quota", "no more")
    assert stream.notes("loss") == ["copilotErrors: only the first error is reported"]
    assert fed(delta(copilotErrors=[]), STOP).status == "completed"


def test_server_error_completion_fails() -> None:
    assert fed({"reason": "error", "error": {"message": "m", "code": "c"}}).error == ("c", "m")
    assert fed({"reason": "error"}).error[0] == "server_error"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 6}, (3, 2, 5, 0, 0)),
        ({"input_tokens": 3}, (3, 0, 3, 0, 0)),
        ({"completion_tokens": -2, "prompt_tokens_details": {"cached_tokens": 1}}, (0, 0, 0, 0, 0)),
        ({"output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}}, (0, 2, 2, 0, 1)),
        ({"prompt_tokens": "many", "completion_tokens_details": 3}, None),
        (7, None),
    ],
)
def test_usage_in_either_spelling(usage: Any, expected: tuple[int, ...] | None) -> None:
    for stream in (fed(delta(usage=usage), STOP), fed({**STOP, "usage": usage})):
        sent = stream.response.usage
        counts = sent and (
            sent.input_tokens,
            sent.output_tokens,
            sent.total_tokens,
            sent.input_tokens_details.cached_tokens,
            sent.output_tokens_details.reasoning_tokens,
        )
        assert counts == expected


def test_a_completion_alone_reports_its_text() -> None:
    completion = {"reason": "stop", "solution": {"text": ["Hel", "lo"], "newText": []}}
    assert fed(completion).response.output_text == "Hello"
    assert fed({"reason": "stop", "solution": 3}).output == []


@pytest.mark.parametrize(
    ("text", "added", "index", "begins"),
    [("a", "a", 0, True), ("ab", "b", 0, False), ("a", "a", 1, False)],
)
def test_an_answer_begins_with_a_delta_that_is_all_its_text(
    text: str, added: str, index: int, begins: bool
) -> None:
    frame = {"text": text, "index": index, "delta": {"text": added}}
    assert DIALECT.capture.begins(frame, None) is begins


def test_arguments_that_were_parsed_already_are_the_same() -> None:
    assert calls_of(fed(whole({**CALL, "arguments": {"a": 1}}), STOP)) == calls_of(fed(whole(CALL), STOP))
