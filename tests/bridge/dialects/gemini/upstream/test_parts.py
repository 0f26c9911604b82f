"""What becomes of each part, also of hostile ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openresponses_bridge.dialects.base import native_of
from openresponses_bridge.dialects.gemini.upstream.arguments import DEEPEST
from tests.support.gemini import CheckedGemini, chunk, parts_of

STOP = chunk(finish="STOP")
SIGNED = {"thoughtSignature": "CvgCAb4+9vup"}


def outputs(*parts: Any, finish: str = "STOP") -> list[Any]:
    return CheckedGemini([chunk(*parts), chunk(finish=finish)], wire="openai").output


def test_thoughts_are_summaries_and_texts_are_one_message() -> None:
    thought, message = outputs(
        {"text": "Hm", "thought": True}, {"text": "m.", "thought": True}, {"text": "Hi"}, {"text": "!"}
    )
    assert [part["text"] for part in thought["summary"]] == ["Hmm."]
    assert message["content"][0]["text"] == "Hi!"


def test_parallel_calls_have_the_signature_of_the_first_before_them() -> None:
    calls = [{"functionCall": {"name": name, "args": {}, "id": name}} for name in ("a", "b")]
    fed = CheckedGemini([chunk(calls[0] | SIGNED, calls[1]), STOP], wire="openai")
    assert [item["type"] for item in fed.output] == ["reasoning", "function_call", "function_call"]
    assert fed.returned() == [calls[0] | SIGNED, calls[1]]


def test_a_call_is_one_delta_and_one_end() -> None:
    fed = CheckedGemini([chunk({"functionCall": {"name": "f", "args": {"a": [1.5, None, "x"]}}}), STOP])
    kinds = [event.type for event in fed.events if "function_call_arguments" in event.type]
    assert kinds == ["response.function_call_arguments.delta", "response.function_call_arguments.done"]
    assert json.loads(fed.output[0]["arguments"]) == {"a": [1.5, None, "x"]}


def test_an_image_is_an_item_that_goes_back_with_its_signature() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0="}} | SIGNED
    fed = CheckedGemini([chunk({"text": "Here:"}, image), STOP], wire="openai")
    assert [item["type"] for item in fed.output] == ["message", "reasoning", "image_generation_call"]
    assert (fed.output[2]["result"], fed.output[2]["output_format"]) == ("iVBORw0=", "png")
    assert fed.returned() == [{"text": "Here:"}, image]


@pytest.mark.parametrize(
    "part",
    [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "a", "args": {"some_name": {"deep_name": 1}}}},
        {"toolResponse": {"toolType": "FILE_SEARCH", "response": {"a_b": 1}}},
        {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
        {"fileData": {"fileUri": "gs://bucket/file"}},
    ],
    ids=lambda part: next(iter(part)),
)
def test_what_only_gemini_has_goes_back_as_it_came(part: dict[str, Any]) -> None:
    fed = CheckedGemini([chunk(part | SIGNED, part), STOP])
    assert [item["type"] for item in fed.output] == [f"gemini:{next(iter(part))}"] * 2
    assert fed.returned() == [part | SIGNED, part]


def partial(*pieces: Any, goes_on: bool = True) -> bytes:
    call = {"partialArgs": list(pieces)} | ({"willContinue": True} if goes_on else {})
    return chunk({"functionCall": call})


def piece(path: str, **value: Any) -> dict[str, Any]:
    return {"jsonPath": path, **value}


BEGUN = chunk({"functionCall": {"name": "f", "id": "a", "willContinue": True}})


@pytest.mark.parametrize("end", [[chunk({"functionCall": {}})], []], ids=["ended", "not ended"])
def test_arguments_in_pieces_are_built(end: list[bytes]) -> None:
    frames = [
        partial(piece("$.operations[0].price", numberValue=0.5)),
        partial(piece("$.operations[0].name", stringValue="Te", willContinue=True)),
        partial(piece("$.operations[0].name", stringValue="st")),
        partial(piece("$.operations[1].on", boolValue=True), piece("$['a key'].x", nullValue="NULL_VALUE")),
        partial(piece('$["b"]', stringValue="")),
    ]
    (call,) = CheckedGemini([BEGUN, *frames, *end, STOP]).output
    assert (call["call_id"], call["status"]) == ("a", "completed")
    built = {"operations": [{"price": 0.5, "name": "Test"}, {"on": True}], "a key": {"x": None}, "b": ""}
    assert json.loads(call["arguments"]) == built


@pytest.mark.parametrize("empty", [chunk({"text": ""}), chunk({"text": "", "thought": True}), chunk({})])
def test_a_part_that_says_nothing_ends_no_call(empty: bytes) -> None:
    pieces = [
        partial(piece("$.a", stringValue="x", willContinue=True)),
        empty,
        partial(piece("$.a", stringValue="y")),
    ]
    (call,) = CheckedGemini([BEGUN, empty, *pieces, empty, chunk({"functionCall": {}}), STOP]).output
    assert (call["call_id"], call["status"], call["arguments"]) == ("a", "completed", '{"a":"xy"}')


@pytest.mark.parametrize(
    "wrong",
    [
        piece("$.list[999999999]", numberValue=1),
        piece("$.list[1]", numberValue=1),
        piece("$" + ".a" * (DEEPEST + 1), numberValue=1),
        piece("$" + "[0]" * 5_000, numberValue=1),
        piece("$..a", numberValue=1),
        piece("a.b", numberValue=1),
        piece("$", numberValue=1),
        piece("$.s.x", numberValue=1),
        {"jsonPath": 7, "numberValue": 1},
        {"numberValue": 1},
        7,
        None,
    ],
)
def test_a_piece_without_a_place_cuts_the_call(wrong: Any) -> None:
    fed = CheckedGemini([BEGUN, partial(piece("$.s", stringValue="kept")), partial(wrong), STOP])
    call = fed.output[0]
    assert (call["status"], json.loads(call["arguments"])["s"]) == ("incomplete", "kept")
    assert fed.notes("loss") == ["functionCall.partialArgs: a piece has no place in the arguments"]


def test_a_call_is_ended_by_what_follows_it() -> None:
    other = {"functionCall": {"name": "g", "args": {"b": 2}}}
    fed = CheckedGemini(
        [BEGUN, partial(piece("$.a", numberValue=1)), chunk(other), BEGUN, chunk({"text": "x"}), STOP]
    )
    called = [(item["name"], item["arguments"]) for item in fed.output if item["type"] == "function_call"]
    assert called == [("f", '{"a":1}'), ("g", '{"b":2}'), ("f", "{}")]


ODD: list[Any] = [None, 7, 1.5, True, "x", [], [[]], {}, {"a": {}}, ["x", 7, None, {}], "\ud83d"]


CANDIDATE = "candidates.0"
PLACES = [
    *("candidates", CANDIDATE, f"{CANDIDATE}.content", f"{CANDIDATE}.content.parts"),
    f"{CANDIDATE}.content.parts.0",
    *(
        f"{CANDIDATE}.content.parts.0.{name}"
        for name in ("text", "thought", "thoughtSignature", "functionCall", "inlineData", "unheardOf")
    ),
    *(
        f"{CANDIDATE}.content.parts.0.functionCall.{name}"
        for name in ("id", "name", "args", "partialArgs", "willContinue", "unheardOf")
    ),
    *(
        f"{CANDIDATE}.{name}"
        for name in ("index", "finishMessage", "groundingMetadata", "citationMetadata", "logprobsResult")
    ),
    *(f"{CANDIDATE}.logprobsResult.{name}" for name in ("chosenCandidates", "chosenCandidates.0")),
    *(f"{CANDIDATE}.groundingMetadata.{name}" for name in ("groundingChunks", "groundingSupports.0")),
    *("usageMetadata", "usageMetadata.promptTokenCount", "promptFeedback", "promptFeedback.blockReason"),
    *("error", "error.code", "error.message", "error.status"),
]


def at(path: str, value: Any) -> Any:
    """An answer with this value at a path."""
    for step in reversed(path.split(".")):
        value = [value] if step.isdigit() else {step: value}
    return value


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("path", PLACES)
def test_odd_types_break_nothing(path: str, odd: Any) -> None:
    """`CheckedGemini` holds every event to the laws."""
    for wire in ("openai", "openresponses"):
        fed = CheckedGemini([chunk({"text": "A"}), at(path, odd), STOP], wire=wire)
        assert fed.status in ("completed", "failed", "incomplete")


def test_halves_of_a_pair_in_two_chunks_are_one_character() -> None:
    halves = [
        json.dumps({"candidates": [{"content": {"parts": [{"text": half}]}}]}) for half in "\ud83d\ude42"
    ]
    fed = CheckedGemini([half.encode() for half in halves] + [STOP])
    assert fed.response.output_text == "🙂"


@pytest.mark.untraced
def test_thousands_of_parts_and_calls_are_read() -> None:
    calls = [{"functionCall": {"name": "f", "id": f"c{n}", "args": {"n": n}}} | SIGNED for n in range(1_000)]
    texts: list[Any] = [{"text": str(n), "thought": n % 2 == 0} | SIGNED for n in range(1_000)]
    texts = [part if part["thought"] else {k: v for k, v in part.items() if k != "thought"} for part in texts]
    frames = [chunk(*calls, *texts), STOP]
    assert CheckedGemini(frames).returned() == parts_of(frames)


def test_deep_arguments_are_kept_or_the_answer_fails() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = {"a": deep}
    (call,) = outputs({"functionCall": {"name": "f", "args": {"deep": deep}}})
    assert json.loads(call["arguments"]) == {"deep": deep}
    nested = b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":%b%b}}]}}]}'
    fed = CheckedGemini([nested % (b'{"a":' * 50_000, b"}" * 50_000), STOP])
    assert fed.status == "failed"


def test_other_candidates_are_losses() -> None:
    fed = CheckedGemini([chunk({"text": "A"}), chunk({"text": "B"}, index=1), STOP])
    assert fed.response.output_text == "A"
    assert fed.notes("loss") == ["candidates: candidate 1 of several, only the first is kept"]


def test_log_probabilities_come_with_the_text() -> None:
    token = {"token": "Hi", "logProbability": -0.1, "tokenId": 1}
    result = {"chosenCandidates": [token], "topCandidates": [{"candidates": [token, {"token": "Ho"}]}]}
    (message,) = CheckedGemini([chunk({"text": "Hi"}, logprobsResult=result), STOP], wire="openai").output
    (logprob,) = message["content"][0]["logprobs"]
    assert (logprob["token"], logprob["logprob"], len(logprob["top_logprobs"])) == ("Hi", -0.1, 1)


def test_sources_are_at_characters_though_they_are_told_in_bytes() -> None:
    text = "é🙂 Paris is it."
    start, stop = (len(text[:at].encode()) for at in (3, 8))
    grounding = {
        "groundingChunks": [
            {"web": {"uri": "https://a.example", "title": "A"}},
            {"web": {"uri": "file:///x"}},
        ],
        "groundingSupports": [
            {"segment": {"startIndex": start, "endIndex": stop}, "groundingChunkIndices": [0, 1, 7]},
            {"segment": {"startIndex": 3, "endIndex": 10_000}, "groundingChunkIndices": [0]},
        ],
    }
    fed = CheckedGemini(
        [chunk({"text": text}), chunk(finish="STOP", groundingMetadata=grounding)], wire="openai"
    )
    (cited,) = fed.output[0]["content"][0]["annotations"]
    assert text[cited["start_index"] : cited["end_index"]] == "Paris"
    assert fed.notes("loss") == []
    assert native_of(fed.response, "gemini")["groundingMetadata"] == grounding


def test_objects_in_the_places_of_arrays_are_the_only_ones_of_them() -> None:
    candidate = {"content": {"role": "model", "parts": {"text": "Hi"}}, "finishReason": "STOP"}
    fed = CheckedGemini([json.dumps({"candidates": candidate}).encode()])
    assert (fed.status, fed.response.output_text) == ("completed", "Hi")
