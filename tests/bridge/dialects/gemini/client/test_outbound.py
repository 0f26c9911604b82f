"""Events → the chunks that a client of `generateContent` gets, and whole answers."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import envelope_in, open_reasoning
from openresponses_bridge.dialects.gemini import (
    Candidates,
    Inbound,
    Outbound,
    answer,
    encode_sse,
    error_body,
    from_gemini,
)
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.content import UrlCitation
from openresponses_bridge.protocol.events import ErrorEvent
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import ErrorPayload
from openresponses_bridge.protocol.unknown import UnknownItem
from openresponses_bridge.seal import Sealer
from tests.support.machines import machine, plain
from tests.support.model_scripts import SCRIPTS, played
from tests.support.scale import FACTOR

Json = dict[str, Any]
SEALER = Sealer()


def sent(data: bytes) -> list[Json]:
    """The chunks of a stream."""
    frames = data.decode().split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: ") for frame in frames)
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def add_up(chunks: list[Json]) -> Json:
    """The answer in a stream's chunks: parts follow one another, texts and thoughts of the same kind are
    joined."""
    whole: Json = {}
    parts: list[Json] = []
    for chunk in chunks:
        for name, value in chunk.items():
            if name != "candidates":
                whole[name] = value
        for candidate in chunk.get("candidates", ()):
            for part in candidate.get("content", {}).get("parts", ()):
                if part == {"text": ""}:
                    continue
                if (
                    parts
                    and {*part} <= {"text", "thought"}
                    and {*parts[-1]} - {"thoughtSignature"} == {*part}
                ):
                    parts[-1]["text"] += part["text"]
                else:
                    parts.append(dict(part))
            content = {**({"parts": parts} if parts else {}), "role": "model"}
            whole["candidates"] = [{**candidate, "content": content}]
    return whole


class Sent:
    """Machine calls, and the stream that they become."""

    def __init__(self, wire: str = "openai", **options: Any) -> None:
        self.machine = machine(wire)
        self.outbound = Outbound(SEALER, **options)
        self.chunks: list[Json] = []
        self("start")

    def __call__(self, call: str, *arguments: Any, **named: Any) -> list[Json]:
        events = getattr(self.machine, call)(*arguments, **named)
        chunks = sent(encode_sse([chunk for event in events for chunk in self.outbound.feed(event)]))
        self.chunks += chunks
        return chunks

    def end(self, reason: str | None = None) -> Json:
        self("finish", reason)
        assert self.outbound.close() == []
        return add_up(self.chunks)

    @property
    def parts(self) -> list[Json]:
        joined_parts: list[Json] = add_up(self.chunks)["candidates"][0]["content"].get("parts", [])
        return joined_parts

    def lost(self) -> list[str]:
        return [case.where for case in self.outbound.diagnostics if case.kind == "loss"]


def test_text_comes_piece_by_piece_and_the_end_has_the_counts() -> None:
    run = Sent()
    assert [chunk["candidates"][0]["content"] for chunk in run("text", "Hel") + run("text", "lo")] == [
        {"parts": [{"text": "Hel"}], "role": "model"},
        {"parts": [{"text": "lo"}], "role": "model"},
    ]
    details = {"input_tokens_details": {"cached_tokens": 2}, "output_tokens_details": {"reasoning_tokens": 3}}
    run("usage", {"input_tokens": 9, "output_tokens": 7, "total_tokens": 16, **details})
    assert run.end("stop") == {
        "candidates": [
            {"content": {"parts": [{"text": "Hello"}], "role": "model"}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {
            "promptTokenCount": 9,
            "candidatesTokenCount": 4,
            "totalTokenCount": 16,
            "cachedContentTokenCount": 2,
            "thoughtsTokenCount": 3,
        },
        "modelVersion": "m",
        "responseId": "resp_0",
    }


def test_the_last_chunk_has_a_part_unless_nothing_was_said() -> None:
    run, silent = Sent(), Sent()
    run("tool_call", 0, id="a", name="f", arguments="{}")
    run.end("tool_calls")
    silent.end("length")
    contents = [each.chunks[-1]["candidates"][0]["content"] for each in (run, silent)]
    assert contents == [{"parts": [{"text": ""}], "role": "model"}, {"role": "model"}]


def test_calls_come_whole_and_in_their_order() -> None:
    run = Sent()
    assert run("tool_call", 0, id="a", name="f", arguments='{"x"') == []
    assert run("tool_call", 1, id="b", name="g", arguments="{}") == []
    assert run("tool_call_done", 1) == []
    run("tool_call", 0, arguments=":1}")
    run("tool_call_done", 0)
    run.end("tool_calls")
    assert run.parts == [
        {"functionCall": {"id": "a", "name": "f", "args": {"x": 1}}},
        {"functionCall": {"id": "b", "name": "g", "args": {}}},
    ]


def test_a_call_that_was_cut_is_left_out() -> None:
    run = Sent()
    run("text", "So")
    run("tool_call", 0, id="a", name="f", arguments='{"x')
    ended = run.end("length")
    assert (run.parts, ended["candidates"][0]["finishReason"]) == ([{"text": "So"}], "MAX_TOKENS")
    assert run.lost() == ["item.function_call"]


@pytest.mark.parametrize("thoughts", [True, False])
def test_thoughts_are_sent_where_they_are_wanted(thoughts: bool) -> None:
    run = Sent(thoughts=thoughts)
    run("reasoning_summary", "Hm.")
    run("text", "So")
    run.end("stop")
    assert run.parts == [*([{"text": "Hm.", "thought": True}] if thoughts else []), {"text": "So"}]
    assert run.lost() == []


@pytest.mark.parametrize("follows", ["a call", "text", "nothing"])
def test_another_upstream_s_reasoning_is_the_signature_of_what_follows(follows: str) -> None:
    run = Sent()
    run("reasoning_summary", "Hm.")
    run("reasoning_encrypted", "opaque")
    if follows == "a call":
        run("tool_call", 0, id="a", name="f", arguments="{}")
    elif follows == "text":
        run("text", "So")
    run.end("stop")
    thought, *parts = run.parts
    assert thought == {"text": "Hm.", "thought": True}
    (part,) = parts
    envelope = envelope_in(part["thoughtSignature"])
    assert envelope is not None
    (reasoning,) = open_reasoning(SEALER, envelope)
    assert ([part.text for part in reasoning.summary], reasoning.encrypted_content) == (["Hm."], "opaque")
    assert part.get("text", "") == ("So" if follows == "text" else "")


def test_what_a_client_sends_back_of_it_is_the_same_item() -> None:
    run = Sent()
    run("reasoning_summary", "Hm.")
    run("reasoning_encrypted", "opaque")
    run("tool_call", 0, id="a", name="f", arguments="{}")
    run.end("stop")
    result = {"functionResponse": {"id": "a", "name": "f", "response": {"output": "o"}}}
    # Gemini CLI keeps no thoughts
    parts = [part for part in run.parts if "thought" not in part]
    contents = [
        {"parts": [{"text": "Hi"}]},
        {"role": "model", "parts": parts},
        {"role": "user", "parts": [result]},
    ]
    items: Any = from_gemini({"contents": contents}, SEALER)[0].input
    assert [item.type for item in items] == ["message", "reasoning", "function_call", "function_call_output"]
    assert (items[1].encrypted_content, items[1].summary[0].text) == ("opaque", "Hm.")


@pytest.mark.parametrize(
    ("reason", "finish"), [("stop", "STOP"), ("length", "MAX_TOKENS"), ("content_filter", "SAFETY")]
)
def test_ends(reason: str, finish: str) -> None:
    run = Sent()
    run("text", "So")
    assert run.end(reason)["candidates"][0]["finishReason"] == finish


def test_an_answer_that_was_filtered_before_its_text_is_no_blocked_prompt() -> None:
    run = Sent()
    run("refusal", "Not this.")
    ended = run.end("content_filter")
    (candidate,) = ended["candidates"]
    assert (candidate["finishReason"], candidate["finishMessage"]) == ("SAFETY", "Not this.")
    assert "promptFeedback" not in ended


def test_a_refusal_in_the_model_s_words_is_text() -> None:
    run = Sent()
    run("refusal", "I won't.")
    ended = run.end("stop")
    assert run.parts == [{"text": "I won't."}]
    assert ended["candidates"][0]["finishReason"] == "STOP"
    assert run.lost() == ["refusal"]


@pytest.mark.parametrize(
    ("code", "status", "named"),
    [
        ("rate_limit_exceeded", 429, "RESOURCE_EXHAUSTED"),
        ("RESOURCE_EXHAUSTED", 429, "RESOURCE_EXHAUSTED"),
        ("503", 503, "UNAVAILABLE"),
        ("UNAVAILABLE", 503, "UNAVAILABLE"),
        ("DEADLINE_EXCEEDED", 504, "DEADLINE_EXCEEDED"),
        ("upstream_cut", 502, "UNAVAILABLE"),
        ("context_length_exceeded", 400, "INVALID_ARGUMENT"),
        ("unheard_of", 500, "INTERNAL"),
        ("", 500, "INTERNAL"),
    ],
)
def test_a_failure_is_an_error_in_a_frame(code: str, status: int, named: str) -> None:
    run = Sent()
    run("text", "So")
    events = run.machine.fail(ErrorPayload("server_error", code, "That is why.", None))
    data = encode_sse([chunk for event in events for chunk in run.outbound.feed(event)])
    error = {"code": status, "message": "That is why.", "status": named, "details": []}
    assert sent(data) == [{"error": error}]
    assert run.outbound.close() == []


def test_a_failure_that_google_has_a_finish_reason_for() -> None:
    run = Sent()
    run("fail", ErrorPayload("server_error", "malformed_function_call", "It can't be read.", None))
    (candidate,) = add_up(run.chunks)["candidates"]
    assert (candidate["finishReason"], candidate["finishMessage"]) == (
        "MALFORMED_FUNCTION_CALL",
        "It can't be read.",
    )


def test_events_that_end_early_are_an_error() -> None:
    outbound = Outbound()
    assert outbound.feed(ErrorEvent(0, ErrorPayload("x", "429", "Slower.", None))) == []
    assert plain(outbound.close()[0])["error"]["code"] == 429
    assert plain(Outbound().close()[0])["error"]["status"] == "UNAVAILABLE"


def test_a_cancelled_response_is_an_error() -> None:
    run = Sent()
    run("cancel")
    assert run.chunks[-1]["error"]["status"] == "CANCELLED"


def test_citations_count_bytes() -> None:
    run = Sent()
    run("text", "Zürich is in Switzerland.")
    run("annotation", UrlCitation("https://a.example", 0, 6, "A"))
    grounding = run.end("stop")["candidates"][0]["groundingMetadata"]
    assert grounding == {
        "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}],
        "groundingSupports": [
            {"segment": {"startIndex": 0, "endIndex": 7, "text": "Zürich"}, "groundingChunkIndices": [0]}
        ],
    }


def test_images_and_parts_of_google_s_own_tools() -> None:
    run = Sent()
    run(
        "item",
        UnknownItem({"type": "image_generation_call", "id": "i", "status": "completed", "result": "AA=="}),
    )
    code = {"executableCode": {"code": "1"}, "thoughtSignature": "c2ln"}
    run(
        "item", UnknownItem({"type": "gemini:executableCode", "id": "e", "status": "completed", "part": code})
    )
    run("item", UnknownItem({"type": "file_search_call", "id": "w", "status": "completed"}))
    run.end("stop")
    assert run.parts == [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}, code]
    assert run.lost() == ["item.file_search_call"]


@pytest.mark.parametrize("name", [name for name, steps in SCRIPTS.items() if ("cut",) not in steps])
def test_a_whole_answer_is_the_fold_of_its_stream(name: str) -> None:
    play = played(SCRIPTS[name], "openai")
    outbound = Outbound(SEALER)
    chunks = [chunk for event in play.events for chunk in outbound.feed(event)] + outbound.close()
    streamed = add_up(sent(encode_sse(chunks)))
    diagnostics = Diagnostics()
    response = play.machine.snapshot
    whole = plain(answer([response], SEALER, diagnostics=diagnostics))
    if "error" in streamed:
        assert whole == {"error": streamed["error"]}
    else:
        assert whole == streamed


def test_several_candidates_share_a_stream() -> None:
    machines = [ResponseStreamStateMachine("m", CreateResponse()) for _ in range(3)]
    candidates = Candidates(3, SEALER, id="resp_0")
    chunks: list[Any] = []
    for number, each in enumerate(machines):
        events = each.start() + each.text(f"{number}")
        each.usage({"input_tokens": 2, "output_tokens": 1, "total_tokens": 3})
        events += each.fail("broken") if number == 2 else each.finish("stop")
        chunks += [chunk for event in events for chunk in candidates.feed(number, event)]
    sent_chunks = sent(encode_sse(chunks + candidates.close()))
    by_index = {}
    for chunk in sent_chunks:
        for candidate in chunk.get("candidates", ()):
            by_index.setdefault(candidate["index"], []).append(candidate)
    assert [by_index[number][0]["content"]["parts"] for number in range(3)] == [
        [{"text": f"{n}"}] for n in range(3)
    ]
    assert [by_index[number][-1]["finishReason"] for number in range(3)] == ["STOP", "STOP", "OTHER"]
    assert {chunk["responseId"] for chunk in sent_chunks} == {"resp_0"}
    assert sent_chunks[-1]["usageMetadata"]["promptTokenCount"] == 6
    whole = plain(answer([each.snapshot for each in machines], SEALER))
    assert [each["finishReason"] for each in whole["candidates"]] == ["STOP", "STOP", "OTHER"]
    assert whole["usageMetadata"]["totalTokenCount"] == 9


def test_candidates_that_all_failed_are_an_error() -> None:
    machines = [ResponseStreamStateMachine("m", CreateResponse()) for _ in range(2)]
    candidates = Candidates(2, SEALER)
    for number, each in enumerate(machines):
        for event in each.start() + each.fail(ErrorPayload("x", "429", f"No {number}.", None)):
            candidates.feed(number, event)
    assert plain(candidates.close()[-1])["error"]["message"] == "No 0."
    assert plain(answer([each.snapshot for each in machines], SEALER))["error"]["code"] == 429


@pytest.mark.parametrize("status", [*range(400, 432), 451, 499, *range(500, 505), 529, 599])
def test_every_status_has_a_canonical_name(status: int) -> None:
    error = error_body(status, "m", "contents[0]", "17")["error"]
    assert error["status"].isupper()
    assert [detail["@type"].rpartition(".")[2] for detail in error["details"]] == ["BadRequest", "RetryInfo"]


_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
_ARGUMENTS = st.dictionaries(_TEXT, st.none() | st.booleans() | st.integers(-9, 9) | _TEXT, max_size=2)
_SIGNATURE = st.binary(min_size=1, max_size=9).map(lambda data: b64encode(data).decode())
_PART = st.one_of(
    st.fixed_dictionaries({"text": _TEXT}),
    st.fixed_dictionaries({"text": _TEXT, "thought": st.just(True)}),
    st.fixed_dictionaries({"text": st.just(""), "thoughtSignature": _SIGNATURE}),
    st.fixed_dictionaries(
        {
            "functionCall": st.fixed_dictionaries(
                {"id": st.just(""), "name": st.just("f"), "args": _ARGUMENTS}
            )
        },
        optional={"thoughtSignature": _SIGNATURE},
    ),
    st.fixed_dictionaries(
        {"executableCode": st.fixed_dictionaries({"language": st.just("PYTHON"), "code": _TEXT})},
        optional={"thoughtSignature": _SIGNATURE},
    ),
)


def numbered(parts: list[Json]) -> list[Json]:
    """The parts with ids of calls. A signature alone follows text: elsewhere it has no place of its own. What
    follows it is no more text of the answer, behind which it would stand: that has been sent by then."""
    result: list[Json] = []
    for number, part in enumerate(parts):
        before = result[-1] if result else {}
        if part.get("text") == "" and ("text" not in before or "thought" in before):
            continue
        if before.get("text") == "" and "text" in part and "thought" not in part:
            continue
        call = (
            {"functionCall": {**part["functionCall"], "id": f"c{number}"}} if "functionCall" in part else {}
        )
        result.append({**part, **call})
    return result


@settings(max_examples=20 * FACTOR)
@given(parts=st.lists(_PART, max_size=7).map(numbered), finish=st.sampled_from(["STOP", "MAX_TOKENS"]))
def test_gemini_to_events_to_gemini_is_the_identity(parts: list[Json], finish: str) -> None:
    stream = machine("openai")
    inbound, outbound = Inbound(stream, SEALER), Outbound(SEALER)
    frames: list[Json] = [
        {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}]} for part in parts
    ]
    last = {"candidates": [{"content": {"role": "model"}, "finishReason": finish, "index": 0}]}
    events = [event for frame in [*frames, last] for event in inbound.feed(encode(frame))] + inbound.close()
    chunks = [chunk for event in events for chunk in outbound.feed(event)] + outbound.close()
    back = add_up(sent(encode_sse(chunks)))
    assert back["candidates"] == add_up([*frames, last])["candidates"]
    assert list(outbound.diagnostics) == []
    assert plain(answer([stream.snapshot], SEALER)) == back
