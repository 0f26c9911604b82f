"""Chat Completions chunks → events: the output, its order and its end."""

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.chat_completions import Inbound
from openresponses_bridge.dialects.chat_completions.carried import open_carried
from openresponses_bridge.errors import ToolError
from openresponses_bridge.protocol.content import LogProb, RefusalContent, TopLogProb, UrlCitation
from openresponses_bridge.protocol.items import Message, ReasoningItem
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.seal import Sealer
from openresponses_bridge.state import ResponseStreamPhase
from tests.support.chat import DONE, calls, chunk, completion, frame, new_machine, part, run, stopped

TEXT = [chunk(role="assistant", content=""), chunk(content="Hel"), chunk(content="lo")]
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


# ── the way through ────────────────────────────────────────────────────────────────────────────────
def test_text_is_sent_piece_by_piece() -> None:
    ran = stopped(*TEXT)
    assert ran.types == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert ran.response.output_text == "Hello"
    assert not list(ran.inbound.diagnostics)


def test_first_frame_starts_the_machine_and_only_once() -> None:
    machine = new_machine()
    inbound = Inbound(machine)
    assert [event.type for event in inbound.feed(TEXT[0])] == ["response.created", "response.in_progress"]
    assert inbound.feed(TEXT[0]) == []


def test_machine_may_have_been_started_before() -> None:
    machine = new_machine()
    machine.start()
    assert len(Inbound(machine).feed(TEXT[1])) == 3


def test_e6_empty_delta_emits_nothing() -> None:
    empty = [
        chunk(),
        chunk(content=""),
        chunk(content=None, reasoning_content="", refusal="", tool_calls=[], function_call=None),
        chunk(reasoning_content=None, reasoning="", reasoning_text="", reasoning_details=[], annotations=[]),
        frame(choices=[{"index": 0, "delta": None}]),
        frame(choices=[{"index": 0}]),
        frame(choices=[]),
        frame(choices=None, usage=USAGE),
    ]
    ran = run(*empty, close=False)
    assert ran.types == ["response.created", "response.in_progress"]


def test_one_chunk_says_everything_in_the_order_of_thought() -> None:
    ran = stopped(
        chunk(
            content="Look.",
            reasoning_content="Hm.",
            refusal="No.",
            tool_calls=[part("{}", name="f", id="c", index=0)],
        )
    )
    message = ran.output[1]
    assert [item.type for item in ran.output] == ["reasoning", "message", "function_call"]
    assert isinstance(message, Message)
    assert [content.type for content in message.content] == ["output_text", "refusal"]


def test_refusal_is_sent_as_such() -> None:
    ran = stopped(chunk(refusal=""), chunk(refusal="I "), chunk(refusal="can't."))
    assert [line for line in ran.sent if line.startswith("refusal")] == ["refusal 0 I ", "refusal 0 can't."]
    assert isinstance(ran.output[0], Message)
    assert ran.output[0].content == [RefusalContent("I can't.")]


# ── content as parts ───────────────────────────────────────────────────────────────────────────────
def test_content_parts_are_read_by_type() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "H"}, {"type": "text", "text": "m."}]},
        {"type": "reasoning", "text": " So."},
        {"type": "text", "text": "Yes"},
        ".",
        {"type": "refusal", "refusal": "But no."},
        {"type": "text"},
        {"type": "image_url", "image_url": {"url": "data:,"}},
        7,
    ]
    ran = stopped(chunk(content=parts))
    assert [item.type for item in ran.output] == ["reasoning", "message"]
    assert isinstance(ran.output[0], ReasoningItem)
    assert ran.output[0].content[0].text == "Hm. So."  # type: ignore[union-attr, index]
    assert ran.response.output_text == "Yes."
    assert ran.losses == ["content: a part of type image_url", "content: a part of type int"]


# ── reasoning ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_text"])
def test_reasoning_by_any_name_is_raw_reasoning_case_31(name: str) -> None:
    ran = stopped(chunk(**{name: "Hm"}), chunk(**{name: "."}), chunk(content="Yes."))
    assert [line for line in ran.sent if line.startswith("reasoning")] == ["reasoning 0 Hm", "reasoning 0 ."]
    assert [item.type for item in ran.output] == ["reasoning", "message"]


def test_reasoning_under_two_names_is_said_once() -> None:
    ran = stopped(chunk(reasoning_content="Hm.", reasoning="Hm."))
    assert [line for line in ran.sent if line.startswith("reasoning")] == ["reasoning 0 Hm."]


def test_reasoning_details_are_distinguished() -> None:
    details = [
        {"type": "reasoning.summary", "summary": "In short.", "index": 0},
        {"type": "reasoning.text", "text": "Hm.", "signature": "c2ln"},
        {"type": "reasoning.encrypted", "data": "b3BhcXVl"},
        {"type": "reasoning.other"},
    ]
    ran = stopped(chunk(reasoning="Hm.", reasoning_details=details))
    item = ran.output[0]
    assert isinstance(item, ReasoningItem)
    assert [part.text for part in item.content] == ["Hm."]  # type: ignore[union-attr]
    assert [part.text for part in item.summary] == ["In short."]  # type: ignore[union-attr]
    carried = open_carried(Sealer(), item.encrypted_content)
    assert carried is not None
    assert carried.details == details
    assert ran.losses == []


def test_reasoning_field_counts_when_its_details_are_opaque() -> None:
    details = [{"type": "reasoning.encrypted", "data": "b3BhcXVl"}]
    item = stopped(chunk(reasoning="Hm.", reasoning_details=details)).output[0]
    assert isinstance(item, ReasoningItem)
    assert item.content[0].text == "Hm."  # type: ignore[union-attr, index]
    carried = open_carried(Sealer(), item.encrypted_content)
    assert carried is not None
    assert carried.details == details


def test_opaque_reasoning_is_encrypted_content() -> None:
    item = stopped(chunk(reasoning_text="Hm.", reasoning_opaque="b3BhcXVl")).output[0]
    assert isinstance(item, ReasoningItem)
    assert item.encrypted_content == "b3BhcXVl"


# ── log probabilities ──────────────────────────────────────────────────────────────────────────────
def token(text: str | None, logprob: float | None = -0.5, **rest: Any) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, **rest}


def of_text(ran: Any) -> list[LogProb]:
    return ran.output[0].content[0].logprobs  # type: ignore[no-any-return]


def test_logprobs_go_with_their_text() -> None:
    logprob = token("Ja", bytes=[74, 97], top_logprobs=[token("Ja", bytes=[74, 97]), token("Né", -2.0)])
    ran = stopped(chunk(content="Ja", logprobs={"content": [logprob], "refusal": None}), chunk(content="."))
    alternatives = [TopLogProb("Ja", -0.5, [74, 97]), TopLogProb("Né", -2.0, [78, 195, 169])]
    assert of_text(ran) == [LogProb("Ja", -0.5, [74, 97], alternatives)]
    deltas = [event for event in ran.events if event.type == "response.output_text.delta"]
    assert [len(event.logprobs) for event in deltas] == [1, 0]  # type: ignore[union-attr, arg-type]


def test_logprobs_without_bytes_or_alternatives_are_filled() -> None:
    ran = stopped(chunk(content="é", logprobs={"content": [token("é", bytes=None, top_logprobs=None)]}))
    assert of_text(ran) == [LogProb("é", -0.5, [195, 169], [])]


def test_logprobs_wait_for_their_text() -> None:
    ran = stopped(
        chunk(content="", logprobs={"content": [token("\\xf0")]}),
        chunk(content="🙂", logprobs={"content": [token("\\x9f")]}),
        chunk(content="."),
    )
    assert [each.token for each in of_text(ran)] == ["\\xf0", "\\x9f"]


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "Hm."},
        {"content": "<think>Hm."},
        {"content": "", "tool_calls": [part("{}", name="f", id="c", index=0)]},
        {"content": ""},
    ],
)
def test_logprobs_of_no_visible_text_are_a_loss(delta: dict[str, Any]) -> None:
    ran = stopped(chunk(**delta, logprobs={"content": [token("x")]}))
    assert ran.losses == ["logprobs: not of visible text"]
    assert ran.status == "completed"


def test_logprobs_that_say_nothing_are_left_out() -> None:
    nothing = {"content": [token(None), token("x", None)]}
    ran = stopped(chunk(content="x", logprobs=nothing), chunk(content="y", logprobs={"content": None}))
    assert of_text(ran) == []
    assert ran.losses == ["logprobs: a token without its log probability"]


# ── citations and what has no place ────────────────────────────────────────────────────────────────
def test_url_citations_become_annotations() -> None:
    nested = {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 3, "content": "…"}
    flat = {"type": "url_citation", "url": "https://b.example"}
    ran = stopped(
        chunk(content="See."),
        chunk(annotations=[{"type": "url_citation", "url_citation": nested}, flat]),
    )
    expected = [UrlCitation("https://a.example", 0, 3, "A"), UrlCitation("https://b.example", 0, 0, "")]
    assert ran.output[0].content[0].annotations == expected  # type: ignore[union-attr, index]


def test_what_has_no_place_is_a_loss() -> None:
    ran = stopped(
        chunk(content="See.", annotations=[{"type": "file_citation"}, {"type": "url_citation"}]),
        chunk(images=[{"type": "image_url"}]),
        frame(choices=[{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}], citations=["u"]),
    )
    assert ran.losses == [
        "annotations: a citation of type file_citation",
        "annotations: a citation of type url_citation",
        "delta.images: an image that is not within the answer",
        "citations: a list of sources without their places in the text",
    ]


def test_first_of_n_choices_is_kept() -> None:
    two = [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]
    ran = stopped(frame(choices=two), chunk("stop", index=1, content="c"))
    assert ran.response.output_text == "a"
    assert ran.losses == ["choices: choice 1 of n, only the first is kept"]


# ── usage ──────────────────────────────────────────────────────────────────────────────────────────
USAGES: dict[str, tuple[dict[str, Any], Usage]] = {
    "openai": (
        USAGE
        | {
            "prompt_tokens_details": {"cached_tokens": 1},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
        Usage.of(3, 2, cached_tokens=1, reasoning_tokens=2),
    ),
    "deepseek": (USAGE | {"prompt_cache_hit_tokens": 1}, Usage.of(3, 2, cached_tokens=1)),
    "moonshot": (
        USAGE | {"cached_tokens": 1, "prompt_tokens_details": None},
        Usage.of(3, 2, cached_tokens=1),
    ),
    "perplexity": (USAGE | {"reasoning_tokens": 1}, Usage.of(3, 2, reasoning_tokens=1)),
    "xai": (
        USAGE | {"total_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}},
        Usage.of(3, 6, reasoning_tokens=4),
    ),
    "odd total": (USAGE | {"total_tokens": 7}, Usage.of(3, 2)),
    "no total": ({"prompt_tokens": 3, "completion_tokens": 2}, Usage.of(3, 2)),
    "texts": ({"prompt_tokens": "3", "completion_tokens": 2.0, "total_tokens": "5"}, Usage.of(3, 2)),
    "empty": ({}, Usage.of(0, 0)),
}


@pytest.mark.parametrize("name", USAGES)
def test_usage_in_its_own_chunk_after_the_finish_reason(name: str) -> None:
    usage, expected = USAGES[name]
    ran = run(*TEXT, chunk("stop"), frame(choices=[], usage=usage), DONE)
    assert ran.response.usage == expected


WHOLE = {"index": 0, "delta": {}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    "last",
    [
        frame(choices=[WHOLE], usage=USAGE),
        frame(choices=[WHOLE | {"usage": USAGE}]),
        frame(choices=[WHOLE], x_groq={"id": "r", "usage": USAGE}),
        frame(choices=[{"index": 0, "delta": {"content": "!"}, "finish_reason": "stop"}], usage=USAGE),
    ],
    ids=["beside the choices", "in the choice", "groq", "with text"],
)
def test_usage_with_the_finish_reason(last: bytes) -> None:
    assert run(*TEXT, last, frame(choices=[], usage=None), DONE).response.usage == Usage.of(3, 2)


def test_usage_that_grows_with_each_chunk_counts_at_its_last() -> None:
    growing = [
        frame(choices=[{"index": 0, "delta": {"content": "x"}}], usage=USAGE | {"completion_tokens": count})
        for count in (1, 2, 3)
    ]
    ran = run(*growing, chunk("stop"), DONE)
    assert ran.response.usage == Usage.of(3, 3)
    assert ran.response.output_text == "xxx"


def test_usage_of_a_failed_stream_is_reported() -> None:
    ran = run(*TEXT, frame(choices=[], usage=USAGE), frame(error="gone"))
    assert (ran.status, ran.response.usage) == ("failed", Usage.of(3, 2))


# ── the end ────────────────────────────────────────────────────────────────────────────────────────
ENDINGS = {
    "stop": ("completed", None),
    "STOP": ("completed", None),
    "tool_calls": ("completed", None),
    "length": ("incomplete", "max_output_tokens"),
    "max_tokens": ("incomplete", "max_output_tokens"),
    "model_context_window_exceeded": ("incomplete", "max_output_tokens"),
    "content_filter": ("incomplete", "content_filter"),
    "sensitive": ("incomplete", "content_filter"),
}


@pytest.mark.parametrize("reason", ENDINGS)
def test_e7_finish_reasons(reason: str) -> None:
    ran = run(*TEXT, chunk(reason), DONE)
    details = ran.response.incomplete_details
    assert (ran.status, details and details.reason) == ENDINGS[reason]


def test_finish_waits_for_done_or_close() -> None:
    machine = new_machine()
    inbound = Inbound(machine)
    for data in (*TEXT, chunk("stop")):
        inbound.feed(data)
    assert machine.phase is ResponseStreamPhase.IN_PROGRESS
    assert inbound.feed(DONE)[-1].type == "response.completed"
    assert inbound.close() == []


def test_close_ends_a_stream_without_done() -> None:
    assert run(*TEXT, chunk("stop")).status == "completed"


def test_blank_finish_reasons_are_none() -> None:
    ran = run(*TEXT, chunk(""), chunk("null"), chunk("stop"), chunk("null"), DONE)
    assert (ran.status, ran.ignored) == ("completed", [])


def test_first_finish_reason_counts() -> None:
    ran = run(*TEXT, chunk("length"), chunk("LENGTH"), chunk("stop"), DONE)
    assert ran.status == "incomplete"
    assert ran.ignored == ["finish_reason: a second one, which differs from the first"]


def test_done_without_finish_reason_is_a_stop_with_a_repair() -> None:
    ran = run(*TEXT, DONE)
    assert ran.status == "completed"
    assert ran.repairs == ["finish_reason: missing, taken as stop"]


def test_done_without_finish_reason_or_output_is_a_failure() -> None:
    ran = run(chunk(role="assistant"), DONE)
    assert ran.status == "failed"
    assert ran.error == ("upstream_empty", "the upstream ended without output or finish reason")


def test_finish_reason_without_output_completes_empty() -> None:
    ran = run(chunk("stop"), DONE)
    assert (ran.status, ran.output) == ("completed", [])


@pytest.mark.parametrize(
    "reason",
    ["error", "network_error", "insufficient_system_resource", "abort", "MALFORMED_FUNCTION_CALL"],
)
def test_finish_reasons_that_are_failures(reason: str) -> None:
    ran = run(*TEXT, chunk(reason), frame(choices=[], usage=USAGE), DONE)
    assert (ran.status, ran.error[0]) == ("failed", reason.lower())
    assert ran.response.usage == Usage.of(3, 2)
    assert ran.response.output_text == "Hello"


def test_error_of_a_choice_is_the_failure() -> None:
    failed = {
        "index": 0,
        "delta": {"content": ""},
        "finish_reason": "error",
        "error": {"code": 502, "message": "x"},
    }
    ran = run(*TEXT, frame(choices=[failed]), DONE)
    assert ran.error == ("502", "x")


def test_frames_after_the_end_are_ignored() -> None:
    ran = stopped(*TEXT)
    assert ran.inbound.feed(chunk(content="more")) == []
    assert ran.inbound.feed(DONE) == []
    assert ran.inbound.close() == []
    assert [str(case) for case in ran.inbound.diagnostics] == ["ignored: frame: came after the end (×2)"]


def test_text_after_the_finish_reason_still_counts() -> None:
    assert run(chunk("stop", content="a"), chunk(content="b"), DONE).response.output_text == "ab"


def test_empty_frames_are_ignored() -> None:
    ran = run(b"", *TEXT, b" \n", chunk("stop"), b" [DONE] ")
    assert (ran.status, ran.ignored) == ("completed", ["frame: empty"])


def test_frames_of_unknown_kind_are_ignored() -> None:
    ran = run(b'{"type":"ping"}', *TEXT, chunk("stop"), DONE)
    assert (ran.status, ran.ignored) == ("completed", ["frame: no choices, usage or error in it"])


# ── whole completions ──────────────────────────────────────────────────────────────────────────────
def test_whole_completion() -> None:
    call = {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    body = json.loads(
        completion("tool_calls", content="Let me see.", reasoning_content="Hm.", tool_calls=[call])
    )
    ran = run(json.dumps(body | {"usage": USAGE}).encode())
    assert [item.type for item in ran.output] == ["reasoning", "message", "function_call"]
    assert ran.calls == [("call_a", "f", '{"x":1}')]
    assert (ran.status, ran.response.usage) == ("completed", Usage.of(3, 2))


def test_whole_completion_without_finish_reason() -> None:
    ran = run(completion(None, content="<think>Hm.</think>Hi."))
    assert (ran.status, ran.response.output_text) == ("completed", "Hi.")
    assert ran.repairs == ["finish_reason: missing, taken as stop"]


def test_whole_completion_that_was_cut() -> None:
    ran = run(completion("length", content="Hi"))
    assert (ran.status, ran.output[0].status) == ("incomplete", "incomplete")


def test_message_beside_a_delta_is_its_repetition() -> None:
    both = {"index": 0, "delta": {"content": "lo"}, "message": {"content": "Hello"}, "finish_reason": None}
    assert stopped(TEXT[1], frame(choices=[both])).response.output_text == "Hello"


# ── frames that are not what they should be ────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"choices":[{"delta":{"conte', "upstream_invalid_json"),
        (b"<html>Bad Gateway</html>", "upstream_invalid_json"),
        (b"\xff\xfe", "upstream_invalid_json"),
        (b'{"choices":[{"delta":{"content":"\xff"}}]}', "upstream_invalid_json"),
        (b'{"x":' * 5000, "upstream_invalid_json"),
        (b"7", "upstream_invalid_shape"),
        (b"[]", "upstream_invalid_shape"),
        (b"null", "upstream_invalid_shape"),
    ],
)
def test_broken_frame_is_a_failure_that_names_it(data: bytes, code: str) -> None:
    ran = run(*TEXT, data, chunk("stop"), DONE)
    assert ran.status == "failed"
    assert ran.error[0] == code
    assert ran.error[1].startswith("frame 4 of the upstream's stream: ")
    assert ran.response.output_text == "Hello"


def test_halves_of_a_surrogate_pair_are_joined() -> None:
    ran = stopped(
        rb'{"choices":[{"index":0,"delta":{"content":"\ud83d"}}]}',
        rb'{"choices":[{"index":0,"delta":{"content":"\ude42!"}}]}',
    )
    assert ran.response.output_text == "🙂!"


def test_lone_surrogate_in_a_logprob_token() -> None:
    ran = stopped(
        rb'{"choices":[{"index":0,"delta":{"content":"x"},'
        rb'"logprobs":{"content":[{"token":"\ud83d","logprob":-1}]}}]}'
    )
    assert of_text(ran) == [LogProb("?", -1.0, [63], [])]


def test_fields_of_another_type_are_read_or_reported() -> None:
    odd = {
        "index": "0",
        "delta": {
            "content": 5,
            "reasoning": {"text": "?"},
            "tool_calls": [None, {"index": "0", "id": 7, "function": {"name": "f", "arguments": True}}],
        },
        "logprobs": {"content": [{"token": "5", "logprob": "-1", "bytes": ["53", None, "x"]}]},
    }
    ran = stopped(frame(choices=[odd, "?"], usage=[]))
    assert ran.response.output_text == "5"
    assert ran.calls == [("7", "f", "{}")]
    assert of_text(ran) == [LogProb("5", -1.0, [53], [])]
    assert "chunk.choices[].delta.content: read a number as a string" in ran.repairs
    assert ran.losses == [
        "chunk.choices[].delta.reasoning: can't be read: an object",
        "chunk.choices[].delta.tool_calls[]: can't be read: null",
        "chunk.choices[].delta.tool_calls[].function.arguments: can't be read: a boolean",
        "chunk.choices[].logprobs.content[].bytes[]: can't be read: null",
        "chunk.choices[].logprobs.content[].bytes[]: can't be read: a string",
        "chunk.choices[]: can't be read: a string",
        "chunk.usage: can't be read: an array",
    ]


def test_counts_that_are_no_whole_numbers_are_a_loss() -> None:
    ran = run(
        *TEXT, chunk("stop"), frame(choices=[], usage={"prompt_tokens": 1.5, "completion_tokens": "1e999"})
    )
    assert ran.response.usage == Usage.of(0, 0)
    assert ran.losses == [
        "chunk.usage.prompt_tokens: can't be read: a number",
        "chunk.usage.completion_tokens: can't be read: a string",
    ]


# ── the machine says no ────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "data",
    [chunk(content="x"), chunk(reasoning="x"), chunk(refusal="x"), calls(part("{}", name="f", index=0))],
)
def test_frames_after_a_cancel_are_ignored(data: bytes) -> None:
    machine = new_machine()
    inbound = Inbound(machine)
    inbound.feed(TEXT[1])
    machine.cancel()
    assert inbound.feed(data) == []
    assert inbound.feed(data) == []
    assert inbound.close() == []
    assert machine.snapshot.status != "failed"


@pytest.mark.parametrize("last", [chunk("stop"), DONE, frame(error="gone"), chunk("error")])
def test_endings_after_a_cancel_are_ignored(last: bytes) -> None:
    machine = new_machine()
    inbound = Inbound(machine)
    inbound.feed(TEXT[1])
    machine.cancel()
    assert inbound.feed(last) == []
    assert inbound.close() == []


def test_machine_that_ended_before_the_first_frame() -> None:
    machine = new_machine()
    machine.start()
    machine.cancel()
    inbound = Inbound(machine)
    assert inbound.feed(TEXT[1]) == []


def test_lying_upstream_ends_as_failure_and_keeps_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine refuses within a chunk, the events before it in the chunk are not lost."""
    machine = new_machine()
    inbound = Inbound(machine)

    def too_large(*arguments: Any) -> None:
        raise ToolError(ToolError.ARGUMENTS_TOO_LARGE, "too large")

    monkeypatch.setattr(machine, "tool_call", too_large)
    events = inbound.feed(chunk(content="x", tool_calls=[part("{}", name="f", id="c", index=0)]))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]
    assert machine.snapshot.error is not None
    assert machine.snapshot.error.code == "bridge.tools.arguments_too_large"


# ── the quick way is a way like any other ──────────────────────────────────────────────────────────
EXTRAS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "role": {"role": "assistant"},
    "nulls": {"role": None, "refusal": None, "tool_calls": None, "reasoning_content": None},
    "empties": {"refusal": "", "tool_calls": [], "reasoning_content": ""},
    "unknown": {"whatever": {"a": [1]}},
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_text_is_sent_the_same_whatever_stands_beside_it(extra: str) -> None:
    ran = stopped(*(chunk(content=f"w{number} ", **EXTRAS[extra]) for number in range(50)))
    plain = stopped(*(chunk(content=f"w{number} ") for number in range(50)))
    # an unknown field is kept for clients of the same API, beside the events' own fields
    sent, expected = (
        [(type(each), getattr(each, "delta", None)) for each in which.events] for which in (ran, plain)
    )
    assert sent == expected


def test_text_and_reasoning_by_turns_keep_their_order() -> None:
    turns = [(chunk(reasoning="r"), chunk(content="t"), chunk(content="t")) for _ in range(40)]
    ran = stopped(*(data for turn in turns for data in turn))
    assert [item.type for item in ran.output] == ["reasoning", "message"] * 40
    assert ran.response.output_text == "tt" * 40
