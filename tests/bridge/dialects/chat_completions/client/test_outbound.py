"""Events → Chat Completions chunks, one thing at a time."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.chat_completions import Choices, Outbound, completion, completions, encode
from openresponses_bridge.dialects.chat_completions.client.completion import Folding
from openresponses_bridge.dialects.chat_completions.types import ChatChunk
from openresponses_bridge.emitter import ResponseStreamStateMachine
from openresponses_bridge.emitter.finished import events_of
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Message
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.protocol.unknown import UnknownPart
from tests.support.chat import new_machine
from tests.support.chat_folds import Folded, Json, chunks

Call = tuple[Any, ...]
USAGE = {
    "input_tokens": 3,
    "output_tokens": 5,
    "input_tokens_details": {"cached_tokens": 1},
    "output_tokens_details": {"reasoning_tokens": 2},
}
CITATION = {
    "type": "url_citation",
    "url": "https://a.example",
    "start_index": 0,
    "end_index": 2,
    "title": "A",
}


def perform(*calls: Call, wire: str = "openai") -> tuple[list[Event], ResponseStreamStateMachine]:
    """The events of these machine calls."""
    machine = new_machine(wire=wire)
    events = machine.start()
    for name, *arguments in calls:
        events += getattr(machine, name)(*arguments)
    return events, machine


class Sent:
    """What an outbound made of a machine's events."""

    def __init__(
        self, *calls: Call, wire: str = "openai", end: Call | None = ("finish", "stop"), **options: Any
    ):
        events, self.machine = perform(*calls, *([end] if end else []), wire=wire)
        self.outbound = Outbound(**options)
        data = b"".join(encode(self.outbound.feed(event)) for event in events)
        self.chunks = chunks(data + encode(self.outbound.close()))

    @property
    def deltas(self) -> list[Json]:
        return [chunk["choices"][0]["delta"] for chunk in self.chunks if chunk.get("choices")]

    @property
    def folded(self) -> Folded:
        return Folded(self.chunks)

    @property
    def losses(self) -> list[str]:
        return [f"{case.where}: {case.what}" for case in self.outbound.diagnostics.of("loss")]


# ── words ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_role_comes_first_then_the_text_then_the_reason() -> None:
    sent = Sent(("text", "Hel"), ("text", "lo"))
    assert sent.deltas == [{"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"}, {}]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in sent.chunks]
    assert reasons == [None, None, None, "stop"]


def test_every_chunk_says_whose_it_is() -> None:
    for chunk in Sent(("text", "Hi")).chunks:
        assert {name: chunk[name] for name in ("id", "object", "created", "model")} == {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1000,
            "model": "m",
        }
        assert "usage" not in chunk


def test_what_is_given_goes_before_what_the_response_says() -> None:
    chunk = Sent(("text", "Hi"), id="chatcmpl-x", created=7, model="alias", choice=2).chunks[0]
    assert (chunk["id"], chunk["created"], chunk["model"]) == ("chatcmpl-x", 7, "alias")
    assert chunk["choices"][0]["index"] == 2


def test_an_answer_without_a_word_still_has_a_role_and_an_end() -> None:
    assert Sent().deltas == [{"role": "assistant", "content": ""}, {}]


def test_an_answer_that_begins_with_a_call_has_no_content() -> None:
    assert Sent(("tool_call", 0, "c", "look", "{}")).deltas[0] == {"role": "assistant"}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_reasoning_goes_where_it_is_wanted(field: Any, wire: str) -> None:
    sent = Sent(("reasoning", "hm"), ("text", "Hi"), reasoning_field=field, wire=wire)
    assert sent.deltas[1:3] == [{field: "hm"}, {"content": "Hi"}]
    assert sent.losses == []


def test_reasoning_that_is_not_wanted_is_a_loss() -> None:
    sent = Sent(("reasoning", "hm"), ("reasoning_summary", "s"), ("text", "Hi"), reasoning_field="none")
    assert sent.folded.words["reasoning"] == ""
    assert "reasoning: left out, as asked" in sent.losses


def test_summaries_are_sent_as_reasoning() -> None:
    sent = Sent(
        ("reasoning_summary", "On", 0), ("reasoning_summary", "e", 0), ("reasoning_summary", "Two", 1)
    )
    assert sent.folded.words["reasoning"] == "One\n\nTwo"
    assert sent.losses == ["reasoning.summary: sent as reasoning"]


def test_a_summary_beside_the_reasoning_is_left_out() -> None:
    sent = Sent(("reasoning", "hm"), ("reasoning_summary", "Short"))
    assert sent.folded.words["reasoning"] == "hm"
    assert sent.losses == ["reasoning.summary: left out beside the reasoning itself"]


def test_a_summary_that_is_not_wanted_is_reported_once() -> None:
    assert Sent(("reasoning_summary", "s"), reasoning_field="none").losses == [
        "reasoning: left out, as asked"
    ]


def test_encrypted_reasoning_is_a_loss() -> None:
    assert Sent(("reasoning_encrypted", "x")).losses == ["reasoning.encrypted_content: can't be expressed"]


def test_a_refusal_is_one() -> None:
    sent = Sent(("refusal", "No"), ("refusal", "."))
    assert sent.deltas[1:3] == [{"refusal": "No"}, {"refusal": "."}]
    assert sent.folded.finish_reason == "stop"


def test_log_probabilities_go_along() -> None:
    token = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
    other = {**token, "top_logprobs": [{"token": "Ho", "logprob": -2.0, "bytes": [72, 111]}]}
    sent = Sent(("text", "Hi", [token]), ("text", "Hi", [other]))
    assert sent.folded.logprobs == [token, other]
    assert "logprobs" not in sent.chunks[0]["choices"][0]


def test_citations_count_in_the_whole_content() -> None:
    sent = Sent(("text", "One "), ("block_done",), ("text", "Two"), ("annotation", CITATION))
    (annotation,) = sent.folded.annotations
    assert annotation == {
        "type": "url_citation",
        "url_citation": {"url": "https://a.example", "title": "A", "start_index": 4, "end_index": 6},
    }


def test_a_citation_before_any_text_counts_from_there() -> None:
    (annotation,) = Sent(("annotation", CITATION), ("text", "Hi")).folded.annotations
    assert annotation["url_citation"]["start_index"] == 0


def test_other_citations_are_a_loss() -> None:
    sent = Sent(("text", "Hi"), ("annotation", {"type": "file_citation", "file_id": "f", "index": 0}))
    assert sent.losses == ["annotation.file_citation: has no form in a chunk"]


def test_a_null_citation_is_a_loss() -> None:
    outbound = Outbound()
    assert outbound.feed(ev.OutputTextAnnotationAdded(0, "m", 0, 0, 0, None)) == []
    assert [case.where for case in outbound.diagnostics] == ["annotation.None"]


def test_a_phase_is_a_loss() -> None:
    sent = Sent(("expect_item", "m", "commentary"), ("text", "Hi"))
    assert sent.losses == ["message.phase: can't be expressed"]


# ── calls ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_calls_have_dense_indexes_and_say_id_and_name_once() -> None:
    sent = Sent(
        ("reasoning", "hm"),
        ("text", "Hi"),
        ("tool_call", 4, "c4", "look", '{"a'),
        ("tool_call", 7, "c7", "peek", "{"),
        ("tool_call", 4, None, None, '":1}'),
        ("tool_call", 7, None, None, "}"),
    )
    fragments = [delta["tool_calls"][0] for delta in sent.deltas if "tool_calls" in delta]
    assert fragments[0] == {
        "index": 0,
        "id": "c4",
        "type": "function",
        "function": {"name": "look", "arguments": ""},
    }
    assert fragments[1] == {"index": 0, "function": {"arguments": '{"a'}}
    assert [fragment["index"] for fragment in fragments] == [0, 0, 1, 1, 0, 1]
    assert sent.folded.message["calls"] == [("c4", "look", '{"a":1}'), ("c7", "peek", "{}")]
    assert sent.folded.finish_reason == "tool_calls"


def test_custom_calls_are_custom_there_as_well() -> None:
    sent = Sent(("tool_call", 0, "c", "sql", "SEL", "custom"), ("tool_call", 0, None, None, "ECT"))
    fragments = [delta["tool_calls"][0] for delta in sent.deltas if "tool_calls" in delta]
    assert fragments == [
        {"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": ""}},
        {"index": 0, "custom": {"input": "SEL"}},
        {"index": 0, "custom": {"input": "ECT"}},
    ]


def test_custom_calls_are_functions_for_clients_that_know_nothing_else() -> None:
    text = 'SELECT "a"\n\\ é🙂'
    calls: list[Call] = [("tool_call", 0, "c", "sql", None, "custom")]
    calls += [("tool_call", 0, None, None, sign) for sign in text]
    ((_, name, arguments),) = Sent(*calls, custom_tools="function").folded.message["calls"]
    assert name == "sql"
    assert json.loads(arguments) == {"input": text}


def test_a_wrapped_call_that_was_cut_is_not_closed() -> None:
    sent = Sent(
        ("tool_call", 0, "c", "sql", "SEL", "custom"), end=("finish", "length"), custom_tools="function"
    )
    assert sent.folded.message["calls"] == [("c", "sql", '{"input":"SEL')]
    assert sent.folded.finish_reason == "length"


def test_a_namespace_is_a_loss() -> None:
    sent = Sent(("tool_call", 0, "c", "peek", "{}", "function", "files"))
    assert sent.losses == ["tool_calls.namespace: can't be expressed"]


@pytest.mark.parametrize(
    ("item", "name", "arguments"),
    [
        (
            {"type": "shell_call", "action": {"commands": ["ls"]}, "status": "completed"},
            "shell",
            {"commands": ["ls"]},
        ),
        (
            {
                "type": "apply_patch_call",
                "operation": {"type": "delete_file", "path": "a"},
                "status": "completed",
            },
            "apply_patch",
            {"type": "delete_file", "path": "a"},
        ),
    ],
)
def test_shells_and_patches_are_function_calls(item: Json, name: str, arguments: Json) -> None:
    sent = Sent(("item", {"id": "i", "call_id": "c", **item}))
    ((call_id, called, text),) = sent.folded.message["calls"]
    assert (call_id, called, json.loads(text)) == ("c", name, arguments)
    assert sent.folded.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "file_search_call", "id": "fs", "status": "completed"},
        {"type": "compaction", "id": "cmp", "encrypted_content": "x"},
    ],
)
def test_hosted_items_are_a_loss(item: Json) -> None:
    sent = Sent(("item", item), ("text", "Hi"))
    assert sent.losses == [f"item.{item['type']}: has no form in a chunk"]
    assert sent.folded.message == {"content": "Hi", "calls": [], "finish_reason": "stop"}


def test_a_shell_call_that_was_cut_is_not_run() -> None:
    item = {
        "type": "shell_call",
        "id": "i",
        "call_id": "c",
        "action": {"commands": ["rm"]},
        "status": "incomplete",
    }
    sent = Sent(("item", item))
    assert sent.folded.message["calls"] == []
    assert sent.losses == [
        "item.shell_call: has no form in a chunk",
        "finish_reason: incomplete for incomplete_item, reported as length",
    ]


def test_fragments_of_nobodys_call_are_nothing() -> None:
    outbound = Outbound()
    assert outbound.feed(ev.FunctionCallArgumentsDelta(0, "f", 3, "{}")) == []
    assert outbound.feed(ev.OutputItemDone(0, 3, None)) == []
    assert outbound.feed(ev.OutputItemAdded(0, 3, None)) == []


def test_extensions_are_ignored_once_per_type() -> None:
    sent = Sent(("extension_event", "acme:beat", {}), ("extension_event", "acme:beat", {}))
    assert [str(case) for case in sent.outbound.diagnostics] == [
        "ignored: acme:beat: has no form in a chunk (×2)"
    ]


# ── text after a call (seeds/003) ──────────────────────────────────────────────────────────────────────────
AFTER: list[Call] = [
    ("text", "Let me see."),
    ("tool_call", 0, "c", "look", "{}"),
    ("text", "I looked."),
    ("annotation", CITATION),
    ("refusal", "No."),
    ("reasoning", "hm"),
]


def test_text_after_a_call_passes() -> None:
    folded = Sent(*AFTER).folded
    assert folded.words == {"content": "Let me see.I looked.", "refusal": "No.", "reasoning": "hm"}
    assert len(folded.annotations) == 1


def test_text_after_a_call_is_dropped_where_clients_cannot_take_it() -> None:
    sent = Sent(*AFTER, text_after_tool_call="drop")
    assert sent.folded.words == {"content": "Let me see.", "refusal": "", "reasoning": "hm"}
    assert sent.folded.annotations == []
    assert sent.folded.message["calls"] == [("c", "look", "{}")]
    assert sent.losses == [
        "content: text after a tool call was dropped",
        "refusal: text after a tool call was dropped",
    ]


# ── ends ───────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("reason", "finish"), [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter")]
)
def test_why_it_ended(reason: str, finish: str) -> None:
    assert Sent(("text", "Hi"), end=("finish", reason)).folded.finish_reason == finish


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_complete_calls_do_not_hide_that_the_answer_was_cut(reason: str) -> None:
    calls = [("tool_call", 0, "c", "look", "{}"), ("tool_call_done", 0)]
    assert Sent(*calls, end=("finish", reason)).folded.finish_reason == reason


def test_case_25_only_complete_calls_finish_as_tool_calls() -> None:
    sent = Sent(("tool_call", 0, "c", "look", '{"a'), end=("finish", "tool_calls"))
    assert sent.folded.finish_reason == "length"


def test_an_unusual_reason_is_reported_as_length() -> None:
    events, machine = perform(("text", "Hi"))
    events += machine.finish("steered", incomplete=True)
    outbound = Outbound()
    sent = chunks(b"".join(encode(outbound.feed(event)) for event in events) + encode(outbound.close()))
    assert Folded(sent).finish_reason == "length"
    assert [str(case) for case in outbound.diagnostics] == [
        "loss: finish_reason: incomplete for steered, reported as length"
    ]


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_cancelled_is_an_error(wire: str) -> None:
    folded = Sent(("text", "Hi"), end=("cancel",), wire=wire).folded
    assert folded.finish_reason is None
    assert folded.error is not None
    assert folded.error["code"] == "cancelled"


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_a_failure_is_reported_once_and_ends_the_stream(wire: str) -> None:
    error = {"type": "rate", "code": "slow_down", "message": "Wait", "param": "input"}
    sent = Sent(("text", "Hi"), end=("fail", error), wire=wire)
    assert [chunk["error"]["code"] for chunk in sent.chunks if "error" in chunk] == ["slow_down"]
    assert sent.chunks[-1]["error"]["message"] == "Wait"
    assert sent.folded.finish_reason is None


def test_a_failed_response_without_its_error_event_is_an_error() -> None:
    events, _ = perform(("fail", {"code": "slow_down", "message": "Wait"}))
    outbound = Outbound()
    outbound.feed(events[0])
    (error,) = outbound.feed(events[-1])
    assert json.loads(encode([error])[6:])["error"]["code"] == "slow_down"


def test_a_stream_that_ends_before_its_response_is_an_error() -> None:
    sent = Sent(("text", "Hi"), end=None)
    assert sent.chunks[-1]["error"]["code"] == "upstream_cut"


def test_nothing_follows_the_end() -> None:
    sent = Sent(("text", "Hi"))
    late = ev.OutputTextDelta(9, "m", 0, 0, "late")
    assert sent.outbound.feed(late) == []


def test_events_that_say_what_others_say_give_nothing() -> None:
    events, _ = perform(("text", "Hi"), ("finish", "stop"))
    outbound = Outbound()
    silent = [event.type for event in events if not outbound.feed(event)]
    assert "response.output_text.done" in silent
    assert "response.created" in silent


# ── usage ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_usage_comes_last_and_only_when_asked() -> None:
    sent = Sent(("text", "Hi"), ("usage", USAGE), include_usage=True)
    assert [chunk["usage"] for chunk in sent.chunks[:-1]] == [None, None, None]
    assert sent.chunks[-1]["choices"] == []
    assert sent.chunks[-1]["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert Sent(("text", "Hi"), ("usage", USAGE)).folded.usage is None


def test_usage_that_nobody_knows_is_not_made_up() -> None:
    assert Sent(("text", "Hi"), include_usage=True).folded.usage is None


# ── several choices ────────────────────────────────────────────────────────────────────────────────────────
def several(*answers: list[Call], **options: Any) -> tuple[list[Json], Choices]:
    choices = Choices(len(answers), id="chatcmpl-n", created=5, **options)
    streams = [perform(*answer)[0] for answer in answers]
    data = b""
    for turn in range(max(map(len, streams))):
        for choice, events in enumerate(streams):
            if turn < len(events):
                data += encode(choices.feed(choice, events[turn]))
    return chunks(data + encode(choices.close())), choices


def test_choices_share_a_stream_and_keep_apart() -> None:
    sent, choices = several(
        [("text", "One"), ("usage", USAGE), ("finish", "stop")],
        [("tool_call", 0, "c", "look", "{}"), ("usage", USAGE), ("finish", "stop")],
        [("text", "Th"), ("text", "ree"), ("reasoning_encrypted", "x"), ("finish", "length")],
        include_usage=True,
    )
    messages = [Folded(sent, choice).message for choice in range(3)]
    assert messages[0] == {"content": "One", "calls": [], "finish_reason": "stop"}
    assert messages[1] == {"calls": [("c", "look", "{}")], "finish_reason": "tool_calls"}
    assert messages[2] == {"content": "Three", "calls": [], "finish_reason": "length"}
    assert {(chunk["id"], chunk["created"]) for chunk in sent} == {("chatcmpl-n", 5)}
    assert [chunk["usage"]["total_tokens"] for chunk in sent if chunk["usage"]] == [16]
    assert sent[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert [case.where for case in choices.diagnostics] == ["reasoning.encrypted_content"]


def test_choices_without_usage_end_with_their_reasons() -> None:
    sent, _ = several([("text", "One"), ("finish", "stop")], [("finish", "stop")])
    assert [Folded(sent, choice).finish_reason for choice in range(2)] == ["stop", "stop"]


def failed_choices(sent: list[Json]) -> dict[int, str]:
    """The code of each choice that failed."""
    within = [choice for chunk in sent for choice in chunk.get("choices", ()) if "error" in choice]
    assert all(choice["finish_reason"] == "error" and choice["delta"] == {} for choice in within)
    return {choice["index"]: choice["error"]["code"] for choice in within}


def test_an_error_of_one_choice_ends_that_one() -> None:
    sent, choices = several(
        [("usage", USAGE), ("fail", {"code": "slow", "message": "Wait"})],
        [("text", "a"), ("text", "b"), ("usage", USAGE), ("finish", "stop")],
        include_usage=True,
    )
    assert failed_choices(sent) == {0: "slow"}
    assert not any("error" in chunk for chunk in sent)
    assert Folded(sent, 1).message["content"] == "ab"
    assert sent[-1]["usage"]["total_tokens"] == 16, "what failed was paid for too"
    assert choices.feed(1, ev.OutputTextDelta(0, "m", 0, 0, "late")) == []


def test_choices_begin_in_their_order_whichever_speaks_first() -> None:
    """OpenAI's SDK folds a stream into a list of choices and fails at one that comes before its turn."""
    choices = Choices(3, id="c", created=5)
    data = b"".join(encode(choices.feed(2, event)) for event in perform(("text", "Hi"))[0])
    sent = chunks(data + b"data: [DONE]\n\n")
    assert [choice["index"] for piece in sent for choice in piece["choices"]] == [0, 1, 2, 2]
    assert [piece["choices"][0]["delta"] for piece in sent] == [{"role": "assistant"}] * 3 + [
        {"content": "Hi"}
    ]
    assert {piece["model"] for piece in sent} == {"m"}


def test_errors_of_all_choices_are_an_error_of_the_answer() -> None:
    sent, _ = several(
        [("text", "a"), ("fail", {"code": "slow", "message": "Wait"})], [("cancel",)], include_usage=True
    )
    assert failed_choices(sent) == {0: "slow", 1: "cancelled"}
    assert sent[-1]["error"]["code"] == "slow"


def test_a_choice_that_never_ended_is_an_error() -> None:
    sent, _ = several([("text", "One"), ("finish", "stop")], [("text", "Two")])
    assert failed_choices(sent) == {1: "upstream_cut"}
    assert Folded(sent, 0).finish_reason == "stop"


def joined(*answers: list[Call], **options: Any) -> Json:
    """The same, not streamed."""
    reply = completions([perform(*answer)[1].snapshot for answer in answers], id="c", created=5, **options)
    body: Json = json.loads(encode([reply])[6:])  # type: ignore[list-item]
    return body


def test_choices_that_are_not_streamed() -> None:
    losses = Diagnostics()
    answer = joined(
        [("text", "One"), ("usage", USAGE), ("finish", "stop")],
        [
            ("text", "Tw"),
            ("tool_call", 0, "c", "look", '{"a":'),
            ("fail", {"code": "slow", "message": "Wait"}),
        ],
        [("tool_call", 0, "c", "look", "{}"), ("usage", USAGE), ("finish", "stop")],
        diagnostics=losses,
    )
    one, two, three = answer["choices"]
    assert [each["index"] for each in answer["choices"]] == [0, 1, 2]
    assert (one["message"]["content"], one["finish_reason"]) == ("One", "stop")
    assert (two["message"]["content"], two["finish_reason"], two["error"]["code"]) == ("Tw", "error", "slow")
    assert "tool_calls" not in two["message"], "a call that was cut is not run"
    assert three["finish_reason"] == "tool_calls"
    assert answer["usage"]["total_tokens"] == 16
    assert [case.where for case in losses] == ["tool_calls"]
    assert joined([("cancel",)], [("fail", {"code": "slow", "message": "W"})])["error"]["code"] == "cancelled"


# ── function_call, the older form ──────────────────────────────────────────────────────────────────────────
TWO_CALLS: list[Call] = [
    ("tool_call", 0, "c0", "look", '{"a"'),
    ("tool_call", 1, "c1", "run", '{"b":2}'),
    ("tool_call", 0, None, None, ":1}"),
    ("finish", "tool_calls"),
]


def test_a_client_of_functions_gets_the_first_call() -> None:
    sent = Sent(*TWO_CALLS, end=None, legacy_functions=True)
    assert [delta for delta in sent.deltas if delta] == [
        {"role": "assistant"},
        {"function_call": {"name": "look", "arguments": ""}},
        {"function_call": {"arguments": '{"a"'}},
        {"function_call": {"arguments": ":1}"}},
    ]
    assert sent.chunks[-1]["choices"][0]["finish_reason"] == "function_call"
    assert [(case.where, case.times) for case in sent.outbound.diagnostics] == [("function_call", 1)]


def test_a_client_of_functions_gets_the_same_whole() -> None:
    losses = Diagnostics()
    _, machine = perform(*TWO_CALLS)
    choice = whole(machine.snapshot, legacy_functions=True, diagnostics=losses)["choices"][0]
    assert choice["message"]["function_call"] == {"name": "look", "arguments": '{"a":1}'}
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "function_call"
    assert [case.where for case in losses] == ["function_call"]


def test_free_text_for_a_client_of_functions_is_a_function() -> None:
    calls: list[Call] = [("tool_call", 0, "c", "sql", 'SELECT "a"', "custom"), ("finish", "stop")]
    choice = whole(perform(*calls)[1].snapshot, legacy_functions=True)["choices"][0]
    assert json.loads(choice["message"]["function_call"]["arguments"]) == {"input": 'SELECT "a"'}


def test_what_calls_nothing_ends_as_it_does_for_others() -> None:
    sent = Sent(("text", "Hi"), legacy_functions=True)
    assert sent.chunks[-1]["choices"][0]["finish_reason"] == "stop"
    cut = Sent(("tool_call", 0, "c", "look", '{"a"'), end=("finish", "length"), legacy_functions=True)
    assert cut.chunks[-1]["choices"][0]["finish_reason"] == "length"


# ── not streamed ───────────────────────────────────────────────────────────────────────────────────────────
FULL: list[Call] = [
    ("reasoning", "hm"),
    ("text", "Let me "),
    ("text", "see", [{"token": "see", "logprob": -1.0, "bytes": [115], "top_logprobs": []}]),
    ("annotation", CITATION),
    ("refusal", "No."),
    ("tool_call", 0, "c0", "look", '{"a":1}'),
    ("tool_call", 1, "c1", "sql", "SELECT", "custom"),
    ("item", {"type": "web_search_call", "id": "ws", "status": "completed"}),
    ("usage", USAGE),
]


def whole(response: Response, **options: Any) -> Json:
    answer: Json = json.loads(encode([completion(response, **options)])[6:])  # type: ignore[list-item]
    return answer


def test_an_answer_that_is_not_streamed() -> None:
    _, machine = perform(*FULL, ("finish", "stop"))
    answer = whole(machine.snapshot)
    message = answer["choices"][0]["message"]
    assert answer["object"] == "chat.completion"
    assert message["content"] == "Let me see"
    assert message["refusal"] == "No."
    assert message["reasoning_content"] == "hm"
    assert message["annotations"][0]["url_citation"]["url"] == "https://a.example"
    assert message["tool_calls"] == [
        {"id": "c0", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}},
        {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "SELECT"}},
    ]
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["choices"][0]["logprobs"]["content"][0]["token"] == "see"
    assert answer["usage"]["total_tokens"] == 8


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reasoning_field": "reasoning"},
        {"reasoning_field": "none"},
        {"text_after_tool_call": "drop"},
        {"custom_tools": "function"},
        {"choice": 3, "id": "chatcmpl-x", "created": 9, "model": "alias"},
    ],
    ids=str,
)
def test_the_whole_answer_is_the_stream_folded(options: Json, wire: str) -> None:
    """The non-streamed answer equals the streamed one (law E1)."""
    calls = [*FULL, ("text", "after"), ("reasoning_summary", "Short"), ("finish", "stop")]
    events, machine = perform(*calls, wire=wire)
    outbound = Outbound(**{**options, "include_usage": True})
    folding = Folding()
    for event in events:
        for chunk in outbound.feed(event):
            folding.feed(chunk)  # type: ignore[arg-type]
    streamed = json.loads(encode([folding.completion])[6:])  # type: ignore[list-item]
    assert whole(machine.snapshot, **options) == streamed


def test_the_official_types_accept_the_answer() -> None:
    from openai.types.chat import ChatCompletion

    _, machine = perform(*FULL, ("finish", "stop"))
    ChatCompletion.model_validate(whole(machine.snapshot, custom_tools="function"), strict=True)


def test_an_answer_of_words_only_has_no_calls() -> None:
    _, machine = perform(("text", "Hi"), ("finish", "stop"))
    message = whole(machine.snapshot)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "Hi", "refusal": None}


def test_an_answer_of_calls_only_has_no_content() -> None:
    _, machine = perform(("tool_call", 0, "c", "look", "{}"), ("finish", "stop"))
    assert whole(machine.snapshot)["choices"][0]["message"]["content"] is None


def test_case_25_a_whole_answer_leaves_out_calls_that_were_cut() -> None:
    _, machine = perform(("text", "Hi"), ("tool_call", 0, "c", "look", '{"a'), ("finish", "length"))
    diagnostics = Diagnostics()
    answer = whole(machine.snapshot, diagnostics=diagnostics)
    assert "tool_calls" not in answer["choices"][0]["message"]
    assert answer["choices"][0]["finish_reason"] == "length"
    assert [str(case) for case in diagnostics] == ["loss: tool_calls: a call that was cut off is left out"]


def test_the_losses_of_a_whole_answer_are_reported() -> None:
    _, machine = perform(("reasoning_encrypted", "x"), ("text", "Hi"), ("finish", "stop"))
    diagnostics = Diagnostics()
    whole(machine.snapshot, diagnostics=diagnostics)
    assert [case.where for case in diagnostics] == ["reasoning.encrypted_content"]


def test_parts_of_another_kind_say_nothing_there() -> None:
    _, machine = perform(("text", "Hi"), ("finish", "stop"))
    (item,) = machine.snapshot.output
    assert isinstance(item, Message)
    odd = replace(item, content=[UnknownPart({"type": "sparkle"}), *item.content])
    answer = whole(replace(machine.snapshot, output=[odd]))
    assert answer["choices"][0]["message"]["content"] == "Hi"


def test_a_failed_response_is_an_error_body() -> None:
    _, machine = perform(("text", "Hi"), ("fail", {"code": "slow", "message": "Wait"}))
    assert whole(machine.snapshot)["error"]["code"] == "slow"


def test_a_response_that_has_not_ended_is_no_answer() -> None:
    _, machine = perform(("text", "Hi"))
    with pytest.raises(KeyError):
        list(events_of(machine.snapshot))


def test_nothing_folds_to_nothing() -> None:
    with pytest.raises(ValueError, match="no chunk"):
        _ = Folding().completion


def test_fields_without_a_value_are_not_sent() -> None:
    chunk = ChatChunk(id="c", object="chat.completion.chunk", created=1, model="m", choices=[])
    sent = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[]}\n\n'
    assert encode([chunk]) == sent
