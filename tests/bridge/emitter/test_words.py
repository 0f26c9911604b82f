"""Text, refusal, reasoning, annotations, log probabilities, characters split between deltas."""

from typing import Any

import pytest

from openresponses_bridge.protocol.content import FileCitation, LogProb, TopLogProb, UrlCitation
from openresponses_bridge.protocol.unknown import UnknownAnnotation
from tests.support.machines import Run, plain

LONE_HIGH, LONE_LOW = "\ud83d", "\ude00"
WORDS = ["text", "refusal", "reasoning", "reasoning_summary"]


def text_of(item: dict[str, Any]) -> str:
    """The text of an item's only part."""
    (part,) = [*item.get("content", []), *item.get("summary", [])]
    text: str = part.get("text", part.get("refusal"))
    return text


# ── deltas ───────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("call", WORDS)
def test_e1_deltas_add_up_to_the_done_text_the_part_and_the_item(wire: str, call: str) -> None:
    run = Run(wire)
    pieces = ["one", " ", "zwei", "\n", "трёх", "😀", "{}"]
    for piece in pieces:
        run(call, piece)
        assert text_of(run.output[0]) == "".join(pieces[: pieces.index(piece) + 1])
    run("finish")
    events = [plain(event) for event in run.events]
    deltas = [event["delta"] for event in events if event["type"].endswith(".delta")]
    assert deltas == pieces
    (done,) = [
        event for event in events if event["type"].endswith((".done",)) and {"text", "refusal"} & set(event)
    ]
    assert done.get("text", done.get("refusal")) == "".join(pieces) == text_of(run.terminal["output"][0])


def test_e10_reasoning_has_its_wires_names(wire: str) -> None:
    run = Run(wire)
    run("reasoning", "r")
    run("finish")
    sent = {event.type for event in run.events if "reasoning" in event.type}
    infix = "reasoning" if wire == "openresponses" else "reasoning_text"
    assert sent == {f"response.{infix}.delta", f"response.{infix}.done"}


def test_e5_summary_parts_follow_the_upstreams_numbers(wire: str) -> None:
    run = Run(wire)
    for part, delta in ((0, "a"), (0, "b"), (4, "c"), (0, "d")):
        run("reasoning_summary", delta, part)
    run("finish")
    assert [part["text"] for part in run.output[0]["summary"]] == ["ab", "c", "d"]
    indexes = [event.summary_index for event in run.events if event.type.endswith("summary_part.added")]
    assert indexes == [0, 1, 2]


def test_e5_encrypted_content_of_a_reasoning_item_that_is_begun_by_it(wire: str) -> None:
    run = Run(wire)
    run("text", "a")
    run("reasoning_encrypted", "sealed")
    run("reasoning", "more")
    run("text", "b")
    assert [item["type"] for item in run.output] == ["message", "reasoning", "message"]
    assert (run.output[1]["encrypted_content"], text_of(run.output[1])) == ("sealed", "more")


def test_e8_encrypted_content_is_not_sent_for_a_reasoning_item_left_open(wire: str) -> None:
    run = Run(wire)
    run("reasoning_encrypted", "sealed")
    run("fail", "down")
    assert "encrypted_content" not in run.terminal["output"][0]


# ── characters split between deltas ──────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("call", WORDS)
def test_e1_a_character_split_between_deltas_is_joined(wire: str, call: str) -> None:
    run = Run(wire)
    run(call, "a" + LONE_HIGH)
    assert text_of(run.output[0]) == "a"
    assert run(call, "") == []
    events = run(call, LONE_LOW + "b")
    assert [event.delta for event in events] == ["😀b"]
    assert run.kinds(call, "c")[-1].endswith(".delta")
    run("finish")
    assert text_of(run.output[0]) == "a😀bc"


@pytest.mark.parametrize("call", WORDS)
@pytest.mark.parametrize("lone", [LONE_HIGH, LONE_LOW, LONE_LOW + LONE_HIGH, LONE_HIGH + LONE_HIGH])
def test_e1_half_a_character_that_stays_alone_becomes_a_replacement(wire: str, call: str, lone: str) -> None:
    run = Run(wire)
    run(call, "a" + lone)
    run("finish")
    assert text_of(run.output[0]) == "a" + "\ufffd" * len(lone)


def test_e1_half_a_character_before_other_text_becomes_a_replacement(wire: str) -> None:
    run = Run(wire)
    run("text", LONE_HIGH)
    run("text", "plain")
    run("text", LONE_HIGH)
    run("text", LONE_HIGH + LONE_LOW)
    run("finish")
    assert text_of(run.output[0]) == "\ufffdplain\ufffd😀"


def test_e1_half_a_character_alone_opens_its_block_and_shows_nothing(wire: str) -> None:
    run = Run(wire)
    assert run.kinds("text", LONE_HIGH) == ["output_item.added", "content_part.added"]
    assert text_of(run.output[0]) == ""


# ── annotations ──────────────────────────────────────────────────────────────────────────────────────
CITATION = {
    "type": "url_citation",
    "url": "https://a.example",
    "start_index": 0,
    "end_index": 1,
    "title": "t",
}


@pytest.mark.parametrize(
    "given", [CITATION, UrlCitation("https://a.example", 0, 1, "t")], ids=["mapping", "struct"]
)
def test_e5_annotations_hang_on_the_open_text(wire: str, given: Any) -> None:
    run = Run(wire)
    run("text", "a")
    assert run.kinds("annotation", given) == ["output_text.annotation.added"]
    run("text", "b")
    run("annotation", given)
    run("finish")
    sent = [plain(event) for event in run.events if event.type == "response.output_text.annotation.added"]
    assert [event["annotation_index"] for event in sent] == [0, 1]
    assert [event["annotation"] for event in sent] == [CITATION, CITATION]
    assert run.output[0]["content"][0]["annotations"] == [CITATION, CITATION]


def test_e5_an_annotation_without_text_opens_a_text_part(wire: str) -> None:
    run = Run(wire)
    assert run.kinds("annotation", CITATION) == [
        "output_item.added", "content_part.added", "output_text.annotation.added",
    ]  # fmt: skip
    assert run.kinds("text", "a") == ["output_text.delta"]
    run("finish")
    assert len(run.output) == 1


OPENAI_CITATIONS = [
    FileCitation("file_1", 3),
    {
        "type": "container_file_citation",
        "container_id": "c",
        "file_id": "f",
        "start_index": 0,
        "end_index": 1,
    },
    {"type": "file_path", "file_id": "f", "index": 0},
    UnknownAnnotation({"type": "acme:cite", "x": [1]}),
    {"type": "novel_citation", "y": None},
]


@pytest.mark.parametrize("given", OPENAI_CITATIONS, ids=lambda given: plain(given)["type"])
def test_e10_citations_that_are_not_published_leave_on_the_openai_wire_only(wire: str, given: Any) -> None:
    run = Run(wire)
    run("text", "a")
    events = run("annotation", given)
    if wire == "openai":
        assert plain(events[0])["annotation"] == plain(given)
        assert run.output[0]["content"][0]["annotations"] == [plain(given)]
    else:
        assert events == []
        assert run.notes("loss") == [f"annotation.{plain(given)['type']}"]


# ── log probabilities ────────────────────────────────────────────────────────────────────────────────
LOGPROB = {
    "token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": -1.0,
    "bytes": [98]}],
}  # fmt: skip


@pytest.mark.parametrize(
    "given", [LOGPROB, LogProb("a", -0.5, [97], [TopLogProb("b", -1.0, [98])])], ids=["mapping", "struct"]
)
def test_e3_logprobs_go_with_their_delta_the_done_event_and_the_part(wire: str, given: Any) -> None:
    run = Run(wire)
    run("text", "a", [given])
    run("text", "b")
    run("text", "c", (given, given))
    run("finish")
    events = [plain(event) for event in run.events]
    deltas = [event["logprobs"] for event in events if event["type"] == "response.output_text.delta"]
    assert deltas == [[LOGPROB], [], [LOGPROB, LOGPROB]]
    (done,) = [event["logprobs"] for event in events if event["type"] == "response.output_text.done"]
    assert done == [LOGPROB] * 3 == run.output[0]["content"][0]["logprobs"]


def test_e6_logprobs_without_text_are_sent_with_an_empty_delta(wire: str) -> None:
    run = Run(wire)
    run("text", "a")
    (event,) = run("text", "", [LOGPROB])
    assert (event.delta, plain(event)["logprobs"]) == ("", [LOGPROB])


def test_e3_case_22_parts_and_deltas_carry_their_required_defaults(wire: str) -> None:
    run = Run(wire)
    events = [plain(event) for event in run("text", "a")]
    assert events[1]["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    assert events[2]["logprobs"] == []
