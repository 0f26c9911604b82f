"""Events → Copilot's callback chunks and completions."""

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_bridge.dialects.copilot import CallbackChunk, FinishedCompletion, Outbound, as_dict
from openresponses_bridge.dialects.copilot.types import TextPrefix
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.codec import event_from
from openresponses_bridge.protocol.content import OutputTextContent, SummaryTextContent
from openresponses_bridge.protocol.items import FunctionCall, Message, ReasoningItem
from openresponses_bridge.protocol.unknown import UnknownEvent
from tests.support.machines import Run

LOGPROB = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}


class Sent:
    """What a run's events become. Runs are on the `openai` wire, which holds the most."""

    def __init__(self, run: Run, **options: Any) -> None:
        self.outbound = Outbound(**options)
        self.chunks = [chunk for event in run.events for chunk in self.outbound.feed(event)]

    @property
    def deltas(self) -> list[dict[str, Any]]:
        return [as_dict(chunk)["delta"] for chunk in self.chunks if isinstance(chunk, CallbackChunk)]

    @property
    def completion(self) -> dict[str, Any]:
        (completion,) = [as_dict(chunk) for chunk in self.chunks if isinstance(chunk, FinishedCompletion)]
        return completion

    @property
    def losses(self) -> list[str]:
        return [case.where for case in self.outbound.diagnostics.of("loss")]


@pytest.fixture
def run() -> Run:
    return Run("openai")


def call(run: Run, *fragments: str, index: int = 0, name: str = "find", id: str = "call_a") -> None:
    run("tool_call", index, id, name)
    for fragment in fragments:
        run("tool_call", index, arguments=fragment)


# ── text ───────────────────────────────────────────────────────────────────────────────────────────
def test_text_is_sent_with_all_text_so_far(run: Run) -> None:
    run("text", "Hel")
    run("text", "lo")
    run("finish")
    sent = Sent(run)
    texts = [str(chunk.text) for chunk in sent.chunks if isinstance(chunk, CallbackChunk)]
    assert texts == ["Hel", "Hello", "Hello"]
    assert sent.deltas == [{"text": "Hel"}, {"text": "lo"}, {"text": ""}]
    assert sent.completion["solution"] == {"text": ["Hel", "lo"], "newText": []}
    assert sent.completion["reason"] == "stop"


def test_opening_gives_an_empty_delta_before_the_first_text_only(run: Run) -> None:
    run("text", "a")
    run("refusal", "b")
    run("finish")
    assert Sent(run, opening=True).deltas[:3] == [{"text": ""}, {"text": "a"}, {"text": "b"}]


def test_choices_have_their_own_index(run: Run) -> None:
    run("text", "a")
    run("finish")
    sent = Sent(run, index=2)
    assert {as_dict(chunk)["index"] for chunk in sent.chunks} == {2}


def test_logprobs_travel(run: Run) -> None:
    run("text", "a", [LOGPROB])
    assert Sent(run).deltas == [{"text": "a", "logprobs": {"content": [LOGPROB]}}]


def test_separator_goes_between_two_messages_and_not_between_two_parts(run: Run) -> None:
    run("text", "a")
    run("refusal", "b")
    run("block_done")
    run("text", "c")
    sent = Sent(run, separator="\n\n")
    assert [delta["text"] for delta in sent.deltas] == ["a", "b", "\n\n", "c"]
    assert [delta["text"] for delta in Sent(run).deltas] == ["a", "b", "c"]


def test_refusal_is_sent_as_text_and_reported(run: Run) -> None:
    run("refusal", "No.")
    sent = Sent(run)
    assert sent.deltas == [{"text": "No."}]
    assert sent.losses == ["refusal"]


def test_text_without_deltas_is_taken_from_the_done_event() -> None:
    outbound = Outbound()
    done = ev.OutputTextDone(3, "msg_1", 0, 0, "whole")
    assert [as_dict(chunk)["delta"] for chunk in outbound.feed(done)] == [{"text": "whole"}]
    assert outbound.feed(done) == []
    assert outbound.feed(ev.OutputTextDone(3, "msg_1", 0, 1, "")) == []


def test_url_citations_become_references_and_others_are_reported(run: Run) -> None:
    cited = {"type": "url_citation", "url": "https://e.org", "title": "E", "start_index": 1, "end_index": 2}
    run("annotation", cited)
    run("annotation", {"type": "file_citation", "file_id": "f", "index": 0})
    sent = Sent(run)
    (reference,) = sent.deltas[0]["copilotReferences"]
    assert reference["id"] == "https://e.org"
    assert reference["data"] == {"url": "https://e.org", "start_index": 1, "end_index": 2}
    assert reference["metadata"] == {"display_name": "E", "display_url": "https://e.org"}
    assert sent.losses == ["annotation.file_citation"]
    assert sent.outbound.feed(ev.OutputTextAnnotationAdded(9, "msg", 0, 0, 0, None)) == []


# ── thinking ───────────────────────────────────────────────────────────────────────────────────────
def test_raw_reasoning_and_summaries_are_thinking_of_one_id(run: Run) -> None:
    run("reasoning", "raw")
    run("reasoning_summary", "sum", 0)
    run("reasoning_summary", "mary", 1)
    run("reasoning_encrypted", "xyz")
    run("block_done")
    sent = Sent(run)
    thoughts = [delta["thinking"] for delta in sent.deltas]
    assert {thought.pop("id") for thought in thoughts} == {"rs_1"}
    done = {"metadata": {"vscode_reasoning_summary_part_done": True}}
    texts = [{"text": "raw"}, {"text": "\n\nsum"}, done, {"text": "\n\nmary"}, done]
    assert thoughts == [*texts, {"encrypted": "xyz"}]


def test_reasoning_that_was_not_streamed_is_sent_when_it_is_done() -> None:
    outbound = Outbound()
    item = ReasoningItem("rs_1", [SummaryTextContent("s")], encrypted_content="x")
    (chunk,) = outbound.feed(ev.OutputItemDone(4, 0, item))
    assert as_dict(chunk)["delta"]["thinking"] == {"id": "rs_1", "text": "s", "encrypted": "x"}
    assert outbound.feed(ev.OutputItemDone(5, 1, ReasoningItem("rs_2", []))) == []


# ── tool calls ─────────────────────────────────────────────────────────────────────────────────────
def test_calls_are_announced_grow_and_are_handed_over_together(run: Run) -> None:
    run("text", "Look")
    call(run, '{"a"', ":1}")
    call(run, "{}", index=1, name="open", id="call_b")
    run("finish", "tool_calls")
    sent = Sent(run)
    updates = "copilotToolCallStreamUpdates"
    assert sent.deltas[1:] == [
        {"text": " ", "beginToolCalls": [{"name": "find", "id": "call_a"}]},
        {"text": "", updates: [{"name": "find", "arguments": '{"a"', "id": "call_a"}]},
        {"text": "", updates: [{"name": "find", "arguments": '{"a":1}', "id": "call_a"}]},
        {"text": "", updates: [{"name": "open", "arguments": "{}", "id": "call_b"}]},
        {
            "text": "",
            "copilotToolCalls": [
                {"name": "find", "arguments": '{"a":1}', "id": "call_a"},
                {"name": "open", "arguments": "{}", "id": "call_b"},
            ],
        },
    ]
    assert sent.completion["reason"] == "tool_calls"
    assert sent.completion["solution"]["text"] == ["Look", " "]


def test_no_blank_before_a_call_that_comes_first(run: Run) -> None:
    call(run)
    assert Sent(run).deltas == [{"text": "", "beginToolCalls": [{"name": "find", "id": "call_a"}]}]


def test_legacy_form_gives_function_calls_only_at_the_end(run: Run) -> None:
    call(run, "{}")
    run("finish")
    sent = Sent(run, legacy_functions=True)
    functions = [{"name": "find", "arguments": "{}"}]
    assert sent.deltas == [{"text": "", "_deprecatedCopilotFunctionCalls": functions}]
    assert sent.completion["reason"] == "function_call"


def test_free_text_calls_leave_as_json(run: Run) -> None:
    run("tool_call", 0, "call_a", "patch", 'a "b"', type="custom")
    run("finish")
    (tool_call,) = Sent(run).deltas[-1]["copilotToolCalls"]
    assert tool_call["arguments"] == '{"input":"a \\"b\\""}'


def test_free_text_calls_grow_as_the_json_that_they_become() -> None:
    machine = ResponseStreamStateMachine("m", wire="openai")
    events = machine.start()
    for piece in ('a "', "b\\", "\n😀"):
        events += machine.tool_call(0, "call_a", "patch", piece, "custom")
    events += machine.finish()
    outbound = Outbound()
    deltas = [as_dict(chunk).get("delta", {}) for event in events for chunk in outbound.feed(event)]
    grown = [
        delta["copilotToolCallStreamUpdates"][0]
        for delta in deltas
        if "copilotToolCallStreamUpdates" in delta
    ]
    (whole,) = next(delta["copilotToolCalls"] for delta in deltas if "copilotToolCalls" in delta)
    shown = [update["arguments"] for update in grown]
    assert len(shown) == 4
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(shown))
    assert shown[-1] == whole["arguments"] == '{"input":"a \\"b\\\\\\n😀"}'


@pytest.mark.parametrize("reason", ["length", "stop"])
def test_case_25_a_cut_call_is_never_handed_over(run: Run, reason: str) -> None:
    call(run, '{"a":1}')
    call(run, '{"b', index=1, id="call_b")
    run("finish", reason)
    sent = Sent(run)
    assert sent.deltas[-1] == {"text": ""}
    assert sent.completion["reason"] == "length"
    assert sent.losses == ["tool_calls", *(["reason"] if reason == "stop" else [])]


def test_call_that_only_the_completed_response_holds_is_handed_over_once(run: Run) -> None:
    call(run, "{}")
    run("finish")
    outbound = Outbound()
    terminal = run.events[-1]
    chunk, completion = outbound.feed(terminal)
    assert len(as_dict(chunk)["delta"]["copilotToolCalls"]) == 1
    assert as_dict(completion)["reason"] == "tool_calls"
    assert outbound.feed(terminal) == []


def test_two_calls_under_one_call_id_are_kept_apart() -> None:
    outbound = Outbound()
    for index, arguments in enumerate(('{"a":1}', '{"a":2}', '{"a":2}')):
        item = FunctionCall(f"fc_{index}", "call_a", "find", arguments, "completed")
        outbound.feed(ev.OutputItemDone(index, index, item))
    run = Run("openai")
    run("finish")
    (handed_over, _) = outbound.feed(run.events[-1])
    calls = as_dict(handed_over)["delta"]["copilotToolCalls"]
    assert [(call["id"], call["arguments"]) for call in calls] == [
        ("call_a", '{"a":1}'),
        ("call_a_2", '{"a":2}'),
    ]


def test_arguments_of_an_unknown_call_are_left_out() -> None:
    assert Outbound().feed(ev.FunctionCallArgumentsDelta(1, "fc_9", 4, "{")) == []


# ── items and extensions ───────────────────────────────────────────────────────────────────────────
def test_compaction_phase_and_hosted_items(run: Run) -> None:
    run("item", {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"})
    run("expect_item", "", "commentary")
    run("text", "so")
    run("item", {"type": "web_search_call", "id": "ws_1", "status": "completed"})
    sent = Sent(run)
    condensed = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
    assert sent.deltas == [
        {"text": "", "contextManagement": condensed},
        {"text": "so"},
        {"text": "", "phase": "commentary"},
    ]
    assert sent.losses == ["item.web_search_call"]
    assert sent.outbound.feed(ev.OutputItemDone(9, 3, None)) == []


def test_extensions_of_ours_become_their_fields_and_others_are_ignored(run: Run) -> None:
    run("extension_event", "copilot:stateful_marker", {"value": "m1"})
    run("extension_event", "other:thing", {})
    sent = Sent(run)
    assert sent.deltas == [{"text": "", "statefulMarker": "m1"}]
    assert [case.where for case in sent.outbound.diagnostics.of("ignored")] == ["other:thing"]
    assert sent.outbound.feed(UnknownEvent({"type": "other:thing", "sequence_number": 9})) == []
    assert len(sent.outbound.diagnostics) == 1


# ── the end ────────────────────────────────────────────────────────────────────────────────────────
def test_marker_is_the_response_id_when_asked_for(run: Run) -> None:
    run("text", "a")
    run("finish")
    assert Sent(run, stateful_marker=True).deltas[-1] == {"text": "", "statefulMarker": "resp_0"}


def test_usage_has_totals_and_the_details_that_say_something(run: Run) -> None:
    run("usage", {"input_tokens": 3, "output_tokens": 2})
    run("finish")
    sent = {"completion_tokens": 2, "prompt_tokens": 3, "total_tokens": 5}
    assert Sent(run).completion["usage"] == sent
    detailed = Run("openai")
    detailed(
        "usage",
        {
            "input_tokens": 3,
            "output_tokens": 2,
            "input_tokens_details": {"cached_tokens": 1},
            "output_tokens_details": {"reasoning_tokens": 2},
        },
    )
    detailed("finish")
    details = {
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert Sent(detailed).completion["usage"] == sent | details


@pytest.mark.parametrize(
    ("wire", "reason", "expected"),
    [
        ("openai", "length", "length"),
        ("openai", "content_filter", "content_filter"),
        ("openai", "cancelled", "client-trimmed"),
        ("openresponses", "cancelled", "client-trimmed"),
    ],
)
def test_case_29_every_ending_has_its_reason(wire: str, reason: str, expected: str) -> None:
    run = Run(wire)
    run("text", "a")
    run("finish", reason)
    sent = Sent(run)
    assert sent.completion["reason"] == expected
    assert sent.deltas[-1] == {"text": ""}


def test_any_other_incomplete_reason_is_a_length_with_a_loss(run: Run) -> None:
    """Copilot takes its other reasons for errors, and drops the text."""
    run("finish", "length")
    terminal = run.events[-1]
    assert isinstance(terminal, ev.ResponseIncomplete)
    odd = ev.ResponseIncomplete(2, replace(terminal.response, incomplete_details=None))
    outbound = Outbound()
    assert as_dict(outbound.feed(odd)[-1])["reason"] == "length"
    assert [case.where for case in outbound.diagnostics.of("loss")] == ["reason"]


def test_an_error_is_reported_once_though_the_failed_response_repeats_it(run: Run) -> None:
    run("text", "par")
    run("fail", {"code": "rate_limit_exceeded", "message": "slow down", "param": "input"})
    sent = Sent(run)
    # the top-level error of this wire has a param, which stands in `identifier`
    error = {"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "agent": "openai"}
    assert sent.deltas == [{"text": "par"}, {"text": "", "copilotErrors": [error | {"identifier": "input"}]}]
    assert sent.completion["reason"] == "error"
    assert sent.completion["error"] == {"code": "rate_limit_exceeded", "message": "slow down"}


def test_failed_response_without_an_error_event_reports_its_error(run: Run) -> None:
    run("fail", {"message": "oops"})
    outbound = Outbound()
    chunk, completion = outbound.feed(run.events[-1])
    assert as_dict(chunk)["delta"]["copilotErrors"][0]["message"] == "oops"
    assert as_dict(completion)["reason"] == "error"


def test_an_error_without_a_code_is_unknown() -> None:
    event = event_from({"type": "error", "sequence_number": 1, "message": "m"})
    (chunk,) = Outbound().feed(event)
    assert as_dict(chunk)["delta"]["copilotErrors"][0]["code"] == "unknown"


def test_text_that_only_the_final_response_holds_is_sent(run: Run) -> None:
    run("text", "all")
    run("finish")
    first, last, completion = Outbound().feed(run.events[-1])
    assert as_dict(first)["delta"] == {"text": "all"}
    assert as_dict(last)["delta"] == {"text": ""}
    assert as_dict(completion)["solution"]["text"] == ["all"]


def test_case_26_a_stream_without_a_terminal_event_is_iteration_done(run: Run) -> None:
    run("text", "par")
    sent = Sent(run)
    (completion,) = sent.outbound.close()
    assert as_dict(completion)["reason"] == "Iteration Done"
    assert as_dict(completion)["requestId"]["completionId"] == "resp_0"
    assert sent.outbound.close() == []
    (nothing,) = Outbound().close()
    assert as_dict(nothing)["requestId"]["completionId"] == ""


# ── texts that grow ────────────────────────────────────────────────────────────────────────────────
def test_text_so_far_stands_for_its_string_and_does_not_follow_the_stream() -> None:
    pieces = ["a"]
    text = TextPrefix(pieces, 1)
    pieces.append("b")
    assert text == "a"
    assert text == TextPrefix(["a"], 1)
    assert text != 1
    assert hash(text) == hash("a")
    assert repr(text) == "'a'"


def test_e12_a_chunk_costs_the_same_however_long_the_text(run: Run) -> None:
    outbound = Outbound()
    chunks = [
        chunk
        for number in range(20_000)
        for chunk in outbound.feed(ev.OutputTextDelta(number, "msg_1", 0, 0, "word "))
    ]
    last = chunks[-1]
    assert isinstance(last, CallbackChunk)
    # all chunks share the pieces; only the one that is asked joins them
    assert len(str(last.text)) == 100_000


def test_items_of_other_kinds_say_nothing_when_they_are_added() -> None:
    message = Message("msg_1", "in_progress", "assistant", [OutputTextContent("", [])])
    assert Outbound().feed(ev.OutputItemAdded(2, 0, message)) == []
    second = FunctionCall("fc_2", "call_2", "open", "", "in_progress")
    outbound = Outbound()
    outbound.feed(ev.OutputItemAdded(2, 0, FunctionCall("fc_1", "call_1", "find", "", "in_progress")))
    assert outbound.feed(ev.OutputItemAdded(3, 1, second)) == []
