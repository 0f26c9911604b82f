"""The end of an upstream's stream, or its absence, and the end of the response (laws E7, E8, field cases
23–29)."""

from typing import Any

import pytest

from openresponses_bridge.dialects.responses import Inbound
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.codec import encode
from tests.support.damaged_responses import (
    CheckedResponses,
    Json,
    added,
    argue,
    call,
    created,
    done,
    ended,
    message,
    response,
    say,
)
from tests.support.machines import WIRES, plain
from tests.support.scripts import Script

HALF = [created(), added(message()), say("Hel")]


def errors(fed: CheckedResponses) -> list[Json]:
    """Each error that was sent, wherever its fields are."""
    sent = [event for event in fed.events if isinstance(event, ev.ErrorEvent)]
    return [plain(event.payload) for event in sent]


# ── errors ─────────────────────────────────────────────────────────────────────────────────────────────────
NESTED = {
    "type": "error",
    "error": {"type": "rate", "code": "slow_down", "message": "Wait", "param": "input"},
}
FLAT = {"type": "error", "code": "slow_down", "message": "Wait", "param": "input"}
FAILED = ended("failed", error={"code": "slow_down", "message": "Wait"})


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("after", [[], [FAILED]], ids=["alone", "then failed"])
@pytest.mark.parametrize(
    "error", [NESTED, FLAT, {**FLAT, "type": "response.error"}], ids=["nested", "flat", "named"]
)
def test_an_error_is_reported_once_in_either_shape(error: Json, after: list[Json], wire: str) -> None:
    fed = CheckedResponses([*HALF, error, *after], wire)
    assert fed.status == "failed"
    assert fed.error == ("slow_down", "Wait")
    assert [(each["code"], each["param"]) for each in errors(fed)] == [("slow_down", "input")]
    assert fed.texts == ["Hel"]
    assert fed.output[0]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"type": "error", "error": "It broke."}, "It broke."),
        ({"type": "error", "error": ""}, "the upstream reported an error without a message"),
        ({"type": "error", "error": {}}, "the upstream reported an error without a message"),
        ({"type": "error"}, "the upstream reported an error without a message"),
        ({"type": "error", "code": "x", "message": None}, "the upstream reported an error without a message"),
    ],
)
def test_an_error_in_another_shape_still_says_what_it_says(error: Json, message: str) -> None:
    fed = CheckedResponses([*HALF, error])
    assert fed.status == "failed"
    assert [each["message"] for each in errors(fed)] == [message]


def test_the_first_error_counts() -> None:
    fed = CheckedResponses([*HALF, NESTED, {**FLAT, "message": "Again"}])
    assert [each["message"] for each in errors(fed)] == ["Wait"]
    assert errors(fed)[0]["type"] == "rate"


def test_failed_alone_makes_the_error() -> None:
    fed = CheckedResponses([*HALF, FAILED])
    assert [each["code"] for each in errors(fed)] == ["slow_down"]
    assert fed.error == ("slow_down", "Wait")


def test_failed_without_a_reason_still_failed() -> None:
    fed = CheckedResponses([created(), ended("failed")])
    assert fed.error == ("server_error", "the upstream failed")


def test_failed_before_anything_else_is_known_by_its_response() -> None:
    fed = CheckedResponses([FLAT, FAILED])
    assert fed.response.id == "resp_u"
    assert fed.error == ("slow_down", "Wait")


def test_an_error_alone_ends_with_the_stream() -> None:
    fed = CheckedResponses([FLAT], close=False)
    assert fed.events == []
    assert fed.close() == ["created", "in_progress", "error", "failed"]


def test_completed_after_an_error_is_no_success() -> None:
    assert CheckedResponses([*HALF, FLAT, ended("completed", message("Hello"))]).status == "failed"


def test_what_a_failed_response_had_finished_is_kept_and_what_it_had_not_is_not_run() -> None:
    fed = CheckedResponses([created(), ended("failed", message("Hi"), call('{"a":', status="incomplete"))])
    assert fed.texts == ["Hi"]
    assert fed.calls == []
    assert fed.status == "failed"


# ── cuts and lies ──────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("frames", [[], [created()], HALF, [*HALF, b"[DONE]"]], ids=len)
def test_case_26_no_terminal_event_is_a_failure(frames: list[Any]) -> None:
    fed = CheckedResponses(frames)
    assert fed.status == "failed"
    assert fed.error == ("upstream_cut", "the upstream's stream ended before its response did")


@pytest.mark.parametrize("data", [b'{"type":', b"\xff\xfe", b"[]", b"NaN", b"plain text"])
def test_broken_json_is_a_failure_that_names_the_frame(data: bytes) -> None:
    fed = CheckedResponses([*HALF, data, say("lo")])
    assert fed.status == "failed"
    code, text = fed.error
    assert code == "upstream_invalid"
    assert text.startswith("frame 4 of the upstream's stream: ")
    assert fed.texts == ["Hel"]


def test_broken_json_first_is_a_failure_as_well() -> None:
    assert CheckedResponses([b"{"]).error[0] == "upstream_invalid"


def test_frames_after_the_end_are_ignored() -> None:
    end = ended("completed", message("Hel"))
    fed = CheckedResponses([*HALF, end, say("more"), b"{", {"type": "acme:beat"}, FLAT, end, b"[DONE]", b""])
    assert fed.status == "completed"
    assert fed.texts == ["Hel"]
    assert "frame: came after the end (×3)" in [
        str(case).partition(": ")[2] for case in fed.inbound.diagnostics
    ]


def test_closing_twice_is_closing_once() -> None:
    fed = CheckedResponses([*HALF, ended("completed", message("Hel"))])
    assert fed.inbound.close() == []
    assert fed.notes("ignored") == []


def test_empty_frames_and_done_marks_are_nothing() -> None:
    fed = CheckedResponses(
        [created(), b"", b"  ", b"[DONE]", b" [DONE]\n", added(message()), say("Hi"), ended()]
    )
    assert fed.texts == ["Hi"]
    assert "frame: empty" in fed.notes("ignored")


@pytest.mark.parametrize("sent", [[], [done(call("{}", name=""), 1)]], ids=["left open", "done"])
def test_a_call_that_never_got_a_name_is_left_out_alone(sent: list[Json]) -> None:
    frames = [created(), added(message()), say("Hi"), added(call(name=""), 1), argue("{}", 1), *sent]
    fed = CheckedResponses([*frames, ended()])
    assert fed.status == "incomplete"
    assert fed.notes("loss") == ["tool_call: never got a name"]
    assert fed.texts == ["Hi"]


# ── not completed ──────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter", "steered", None])
def test_case_23_incomplete_keeps_its_reason(reason: str | None, wire: str) -> None:
    details = {"incomplete_details": {"reason": reason}} if reason else {}
    fed = CheckedResponses(
        [*HALF, ended("incomplete", message("Hello", status="incomplete"), **details)], wire
    )
    assert fed.status == "incomplete"
    assert fed.response.incomplete_details is not None
    assert fed.response.incomplete_details.reason == (reason or "unknown")
    assert fed.texts == ["Hello"]
    assert fed.output[0]["status"] == "incomplete"


@pytest.mark.parametrize("arguments", ['{"a":', "{}", ""])
@pytest.mark.parametrize("status", ["incomplete", "completed"])
def test_case_25_a_call_that_is_incomplete_is_never_whole(arguments: str, status: str) -> None:
    cut = call(arguments, status="incomplete")
    frames = [created(), added(call()), *([argue(arguments)] if arguments else []), done(cut)]
    fed = CheckedResponses([*frames, ended(status, cut)])
    assert fed.status == "incomplete"
    assert fed.output[0]["status"] == "incomplete"
    assert not any(isinstance(event, ev.FunctionCallArgumentsDone) for event in fed.events)


def test_case_25_arguments_that_end_early_are_cut_whatever_upstream_says() -> None:
    fed = CheckedResponses([created(), added(call()), argue('{"a":'), done(call('{"a":')), ended()])
    assert fed.status == "incomplete"
    assert fed.output[0]["status"] == "incomplete"


@pytest.mark.parametrize("streamed", [True, False])
def test_completed_with_an_incomplete_item_is_incomplete(streamed: bool) -> None:
    cut = message("Hel", status="incomplete")
    fed = CheckedResponses([*(HALF if streamed else [created()]), done(cut), ended("completed", cut)])
    assert fed.status == "incomplete"
    assert fed.output[0]["status"] == "incomplete"
    assert "response.completed: an item in it is incomplete, ended as incomplete" in fed.repairs


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_where_event_and_status_differ_the_worse_counts(status: str) -> None:
    """Some servers end every stream with response.completed."""
    end = ended("completed", message("Hel")) | {"response": response(status, output=[message("Hel")])}
    fed = CheckedResponses([*HALF, end])
    assert fed.status == status
    assert f"response.completed: ended as {status}, the status of its response" in fed.repairs


def test_a_status_that_lags_behind_its_event_is_overruled() -> None:
    fed = CheckedResponses([*HALF, {"type": "response.completed", "response": response("in_progress")}])
    assert fed.status == "completed"


def test_an_event_that_is_worse_than_its_status_counts() -> None:
    assert (
        CheckedResponses([*HALF, {"type": "response.failed", "response": response("completed")}]).status
        == "failed"
    )


CANCELS = {
    "by reason": ended("incomplete", incomplete_details={"reason": "cancelled"}),
    "by status": {"type": "response.incomplete", "response": response("cancelled")},
    "as completed": {"type": "response.completed", "response": response("cancelled")},
    "by its own event": {"type": "response.cancelled", "response": response("cancelled")},
    "spelled otherwise": {"type": "response.canceled", "response": response("canceled")},
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("end", CANCELS.values(), ids=CANCELS)
def test_case_29_cancelled_is_distinguished(end: Json, wire: str) -> None:
    fed = CheckedResponses([*HALF, end], wire)
    assert fed.status == {"openresponses": "incomplete", "openai": "cancelled"}[wire]
    assert fed.texts == ["Hel"]
    assert fed.output[0]["status"] == "incomplete"


def test_done_is_a_terminal_event_as_well() -> None:
    fed = CheckedResponses([*HALF, {"type": "response.done", "response": response("completed")}])
    assert fed.status == "completed"
    assert "response.done: read as response.completed" in fed.repairs


# ── what else passes ───────────────────────────────────────────────────────────────────────────────────────
def test_unknown_events_are_noted_once_per_type() -> None:
    beats = [{"type": "keepalive"}, {"type": "codex.rate_limits", "left": 3}]
    fed = CheckedResponses([*beats, created(), *beats, added(message()), say("Hi"), *beats, ended()])
    assert fed.texts == ["Hi"]
    assert fed.response.id == "resp_u"
    ignored = [case for case in fed.inbound.diagnostics if case.kind == "ignored"]
    assert [(case.where, case.times) for case in ignored] == [("keepalive", 3), ("codex.rate_limits", 3)]


def test_extension_events_pass() -> None:
    beat = {"type": "acme:beat", "left": 3}
    fed = CheckedResponses([beat, created(), beat, ended()])
    assert fed.extensions("acme:beat") == [{"left": 3}]
    assert "acme:beat: unknown event" in fed.notes("ignored")


def test_an_extension_whose_name_is_none_is_ignored() -> None:
    fed = CheckedResponses([created(), {"type": "not: a name"}, ended()])
    assert fed.status == "completed"
    assert "not: a name: unknown event" in fed.notes("ignored")


SEARCH: Json = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}
STEPS = ["response.web_search_call.in_progress", "response.web_search_call.searching"]


@pytest.mark.parametrize("wire", WIRES)
def test_progress_of_hosted_tools_passes(wire: str) -> None:
    steps = [{"type": step, "output_index": 0, "item_id": "ws_1", "query": "q"} for step in STEPS]
    search = {**SEARCH, "status": "completed", "action": {"type": "search", "query": "q"}}
    fed = CheckedResponses([created(), added(SEARCH), *steps, done(search), ended("completed", search)], wire)
    slug = {"openresponses": "openai:", "openai": ""}[wire]
    for step in STEPS:
        assert fed.extensions(slug + step) == [{"query": "q", "output_index": 0, "item_id": "ws_1"}]
    assert fed.output == [{**search, "type": slug + "web_search_call"}]


def test_progress_is_found_by_id_where_the_index_is_missing() -> None:
    fed = CheckedResponses(
        [created(), added(SEARCH), {"type": STEPS[0], "item_id": "ws_1"}, ended()], "openai"
    )
    assert len(fed.extensions(STEPS[0])) == 1


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", ["response.audio.delta", "response.audio.transcript.done"])
def test_events_of_openai_that_are_of_no_item_pass(kind: str, wire: str) -> None:
    fed = CheckedResponses([created(), {"type": kind, "delta": "UklG"}, ended()], wire)
    slug = {"openresponses": "openai:", "openai": ""}[wire]
    assert fed.extensions(slug + kind) == [{"delta": "UklG"}]
    assert fed.notes("loss") == []


def test_an_unknown_event_of_the_response_that_says_something_is_a_loss_once() -> None:
    unknown = {"type": "response.video.delta", "output_index": 0, "delta": "AAAA"}
    late = {"type": "response.code_interpreter_call_code.delta", "item_id": "ci_9", "delta": "1+1"}
    fed = CheckedResponses([created(), *[unknown, late] * 3, ended()])
    lost = [case for case in fed.inbound.diagnostics if case.kind == "loss"]
    assert [(case.where, case.times) for case in lost] == [(unknown["type"], 3), (late["type"], 3)]


def test_progress_of_nothing_is_ignored() -> None:
    step = {"type": STEPS[0], "output_index": 3, "item_id": "ws_9"}
    fed = CheckedResponses([created(), step, ended()], "openai")
    assert fed.extensions(STEPS[0]) == []
    assert f"{STEPS[0]}: unknown event" in fed.notes("ignored")


@pytest.mark.parametrize("first", [SEARCH, {**SEARCH, "id": ""}])
def test_hosted_items_keep_apart_though_their_ids_do_not(first: Json) -> None:
    frames = [created(), added(first, 0), added(first, 1)]
    frames += [{"type": STEPS[0], "output_index": 1}, done({**first, "status": "completed"}, 0)]
    frames += [done({**first, "status": "completed", "id": "other"}, 1)]
    fed = CheckedResponses([*frames, ended()], "openai")
    assert [item["status"] for item in fed.output] == ["completed", "completed"]
    assert len({item["id"] for item in fed.output}) == 2
    assert fed.status == "completed"


def test_a_hosted_item_that_was_not_announced_comes_whole() -> None:
    fed = CheckedResponses([created(), done({**SEARCH, "status": "completed"}), ended()], "openai")
    assert [item["id"] for item in fed.output] == ["ws_1"]


def test_words_between_a_hosted_items_beginning_and_end_are_messages_of_their_own() -> None:
    search = {**SEARCH, "status": "completed"}
    frames = [created(), added(message(), 0), say("a"), added(SEARCH, 1), say("b"), done(search, 1), say("c")]
    fed = CheckedResponses(
        [*frames, done(message("abc"), 0), ended("completed", message("abc"), search)], "openai"
    )
    assert fed.texts == ["a", "b", "c"]


def test_sub_streams_of_a_namespace_keep_it() -> None:
    spaced = call("{}", namespace="agents")
    fed = CheckedResponses([created(), added({**spaced, "arguments": ""}), done(spaced), ended()], "openai")
    assert fed.output[0]["namespace"] == "agents"


@pytest.mark.parametrize("wire", WIRES)
def test_custom_calls_pass(wire: str) -> None:
    events = Script().custom_call("SEL", "ECT").finish()
    fed = CheckedResponses(events, wire)
    expected = {"openresponses": '{"input":"SELECT"}', "openai": "SELECT"}[wire]
    assert fed.calls == [("call_c", "sql", expected)]


def test_a_failure_without_a_type_keeps_its_usage_and_output() -> None:
    """The frame's event name says what it is; its error does not make it an event of errors."""
    machine = ResponseStreamStateMachine(model="m")
    inbound = Inbound(machine)
    error = {"code": "rate_limit_exceeded", "message": "Slow down."}
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    failed = {"id": "resp_1", "object": "response", "status": "failed", "output": []}
    inbound.feed(encode({"response": failed | {"status": "in_progress"}}), "response.created")
    inbound.feed(encode({"response": failed | {"error": error, "usage": usage}}), "response.failed")
    assert machine.snapshot.status == "failed"
    assert machine.snapshot.error is not None
    assert machine.snapshot.error.code == "rate_limit_exceeded"
    assert machine.snapshot.usage is not None
    assert machine.snapshot.usage.total_tokens == 7
