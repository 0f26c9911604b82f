"""Reasoning as parts, in every spelling (laws D1–D9)."""

from typing import Any

import pytest
from msgspec import UNSET

from openresponses_bridge.decoder import LanguageModelThinkingPart
from tests.support.vscode_parts import (
    Decoded,
    Raw,
    added,
    completed,
    created,
    done,
    function,
    kinds,
    message,
    output_text,
    reasoning,
    said,
    text_delta,
)

ENDED = {"vscode_reasoning_done": True}
SPELLINGS = {
    "reasoning": "content",
    "reasoning_text": "content",
    "reasoning_summary_text": "summary",
    "reasoning_summary": "summary",
}


def thought(delta: str, index: int = 0, item_id: str = "rs_0", **where: int) -> Raw:
    return said("reasoning.delta", index, item_id, delta=delta, **where)


def summed(delta: str, part: int = 0, index: int = 0) -> Raw:
    return said("reasoning_summary_text.delta", index, "rs_0", delta=delta, summary_index=part)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_a_delta_is_thinking(spelling: str) -> None:
    decoded = Decoded([said(f"{spelling}.delta", item_id="rs_0", delta=text) for text in ("a", "b")], False)
    assert decoded.parts == [LanguageModelThinkingPart("a", "rs_0"), LanguageModelThinkingPart("b", "rs_0")]
    assert decoded.notes("ignored") == {}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_a_done_reports_what_was_not_streamed(spelling: str) -> None:
    whole = said(f"{spelling}.done", item_id="rs_0", text="ab")
    assert Decoded([whole], False).thinking == "ab"
    assert (
        Decoded(
            [said(f"{spelling}.delta", delta="a"), said(f"{spelling}.delta", delta="b"), whole], False
        ).thinking
        == "ab"
    )


def test_an_older_delta_wraps_its_text() -> None:
    assert Decoded([said("reasoning_summary.delta", delta={"text": "a"})], False).thinking == "a"
    assert (
        Decoded(
            [said("reasoning_summary.delta", delta={"type": "summary_text", "text": "b"})], False
        ).thinking
        == "b"
    )


@pytest.mark.parametrize("place", ["content_part.done", "item.done", "final"])
def test_raw_reasoning_without_deltas_is_sent_whole(place: str) -> None:
    part = {"type": "reasoning_text", "text": "hm"}
    item = reasoning(content=[part])
    event = {
        "content_part.done": said("content_part.done", item_id="rs_0", part=part),
        "item.done": done(item),
        "final": completed(item),
    }[place]
    assert Decoded([created(), event, completed(item)]).thinking == "hm"


@pytest.mark.parametrize("place", ["summary_part.done", "item.done", "final"])
def test_a_summary_without_deltas_is_sent_whole(place: str) -> None:
    event = {
        "summary_part.done": said("reasoning_summary_part.done", part={"type": "summary_text", "text": "hm"}),
        "item.done": done(reasoning("hm")),
        "final": completed(reasoning("hm")),
    }[place]
    assert Decoded([event, completed(reasoning("hm"))]).thinking == "hm"


def test_an_item_is_not_sent_again_after_deltas() -> None:
    assert Decoded([summed("hm"), done(reasoning("hm")), completed(reasoning("hm"))]).thinking == "hm"


def test_an_empty_summary_says_nothing() -> None:
    decoded = Decoded([summed(""), done(reasoning()), done(reasoning(""), 1), completed(reasoning())])
    assert kinds(decoded.parts) == ["Data"]


def test_a_part_of_another_kind_in_a_reasoning_item_says_nothing() -> None:
    odd = reasoning(content=[{"type": "acme:thought", "x": 1}])
    assert Decoded([done(odd), completed()]).thinking == ""
    assert Decoded([said("reasoning_summary_part.done", part={"type": "acme:x"}), completed()]).thinking == ""


def test_summary_parts_stand_apart_and_their_ends_are_sent() -> None:
    ends = [
        said("reasoning_summary_part.done", summary_index=n, part={"type": "summary_text", "text": t})
        for n, t in enumerate(("ab", "c"))
    ]
    decoded = Decoded([summed("a"), summed("b"), ends[0], summed("c", 1), ends[1], completed()])
    assert decoded.thinking == "ab\n\nc"
    marker = LanguageModelThinkingPart("", "rs_0", {"vscode_reasoning_summary_part_done": True})
    assert decoded.parts.count(marker) == 2


def test_the_end_of_an_empty_summary_part_is_not_sent() -> None:
    end = said("reasoning_summary_part.done", summary_index=0, part={"type": "summary_text", "text": ""})
    assert kinds(Decoded([end, completed(reasoning())]).parts) == ["Data"]


def test_raw_reasoning_and_its_summary_stand_apart() -> None:
    assert Decoded([thought("raw"), summed("sum"), completed()]).thinking == "raw\n\nsum"


def test_a_summary_that_was_not_streamed_does_not_repeat_streamed_reasoning() -> None:
    item = reasoning("sum", content=[{"type": "reasoning_text", "text": "raw"}])
    assert Decoded([thought("raw"), done(item), completed(item)]).thinking == "raw"


def test_a_block_keeps_its_first_id_while_ids_rotate() -> None:
    events = [added(reasoning(id="rs_a")), thought("a", item_id="rs_b"), thought("b", item_id="rs_c")]
    decoded = Decoded([*events, done(reasoning("a", id="rs_d")), completed()])
    assert {part.id for part in decoded.thoughts} == {"rs_a"}


def test_a_block_without_id_has_none() -> None:
    decoded = Decoded([added(reasoning(id="")), thought("a", item_id=""), completed()])
    assert "id" not in decoded.decoder.result.diagnostics.of("repair")
    assert all(not part.id for part in decoded.thoughts)


def test_a_block_announced_without_id_takes_that_of_its_deltas() -> None:
    decoded = Decoded([added(reasoning(id="")), thought("a", item_id="rs_1"), completed()])
    assert {part.id for part in decoded.thoughts} == {"rs_1"}


@pytest.mark.parametrize(
    "after",
    [
        text_delta("x", 1),
        said("refusal.delta", 1, delta="x"),
        done(function(1, "{}"), 1),
        done(message(output_text("x")), 1),
        completed(),
        completed(status="incomplete"),
        completed(status="failed"),
    ],
)
def test_thinking_ends_with_one_marker_before_anything_else(after: Raw) -> None:
    decoded = Decoded([thought("a"), thought("b"), after, completed()])
    assert decoded.parts[2] == LanguageModelThinkingPart("", "rs_0", ENDED)
    assert [part.metadata for part in decoded.thoughts].count(ENDED) == 1


def test_thinking_ends_at_a_premature_end_too() -> None:
    assert Decoded([thought("a")]).thoughts[-1].metadata == ENDED


def test_each_run_of_thinking_has_its_own_marker() -> None:
    events = [thought("a"), text_delta("x", 1), thought("b", 2, "rs_2"), text_delta("y", 3), completed()]
    markers = [part.id for part in Decoded(events).thoughts if part.metadata == ENDED]
    assert markers == ["rs_0", "rs_2"]


def test_two_reasoning_items_in_a_row_are_one_run_under_two_ids() -> None:
    decoded = Decoded([thought("a"), thought("b", 1, "rs_1"), completed()])
    assert [(part.value, part.id) for part in decoded.thoughts] == [
        ("a", "rs_0"),
        ("b", "rs_1"),
        ("", "rs_1"),
    ]


def test_half_a_character_waits_in_thinking_too() -> None:
    assert Decoded([thought("a\ud83d"), thought("\ude42"), completed()]).thinking == "a🙂"
    assert Decoded([thought("\ud83d"), thought("\ud83d"), completed()]).thinking == "\ufffd\ufffd"
    waiting = Decoded([thought("\ud83d"), thought("\ude42"), completed()])
    assert [part.value for part in waiting.thoughts if part.metadata is UNSET] == ["🙂"]


# ── policies ───────────────────────────────────────────────────────────────────────────────────────────


def test_thinking_as_text_stands_apart_from_the_answer() -> None:
    events = [
        thought("a"),
        thought("b"),
        text_delta("x", 1),
        thought("c", 2, "rs_2"),
        said("refusal.delta", 3, delta="no"),
    ]
    decoded = Decoded([*events, completed()], thinking="text")
    assert decoded.text == "ab\n\nx\n\nc\n\n*no*"
    assert decoded.thoughts == []


def test_thinking_as_text_has_no_markers() -> None:
    end = said("reasoning_summary_part.done", part={"type": "summary_text", "text": "a"})
    assert Decoded([summed("a"), end, completed()], thinking="text", errors="none").text == "a"


def test_thinking_can_be_dropped() -> None:
    end = said("reasoning_summary_part.done", part={"type": "summary_text", "text": "a"})
    events = [
        thought("a"),
        summed("b"),
        end,
        done(reasoning("c"), 1),
        text_delta("x", 2),
        completed(reasoning("d")),
    ]
    assert kinds(Decoded(events, thinking="drop").parts) == ["Text", "Data"]


# ── encrypted ──────────────────────────────────────────────────────────────────────────────────────────

SECRET = "gAAAA-secret"


@pytest.mark.parametrize("summary", [(), ("hm",)])
@pytest.mark.parametrize("streamed", [True, False])
def test_encrypted_reasoning_is_metadata_when_asked_for(summary: tuple[str, ...], streamed: bool) -> None:
    events = [summed(text) for text in summary] if streamed else []
    item = reasoning(*summary, encrypted_content=SECRET)
    decoded = Decoded(
        [*events, done(item), text_delta("x", 1), completed(item)], include_encrypted_thinking=True
    )
    sealed = [part for part in decoded.thoughts if part.metadata == {"encrypted_content": SECRET}]
    assert sealed == [LanguageModelThinkingPart("", "rs_0", {"encrypted_content": SECRET})]
    assert decoded.thinking == "".join(summary)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"thinking": "text", "include_encrypted_thinking": True},
        {"thinking": "drop", "include_encrypted_thinking": True},
    ],
)
def test_encrypted_reasoning_is_never_text_and_gated(options: dict[str, Any]) -> None:
    decoded = Decoded([done(reasoning("hm", encrypted_content=SECRET)), completed()], **options)
    assert SECRET not in repr(decoded.parts)


def test_encrypted_reasoning_without_any_id_is_kept() -> None:
    decoded = Decoded(
        [done(reasoning(id="", encrypted_content=SECRET)), completed()], include_encrypted_thinking=True
    )
    assert [part.metadata for part in decoded.thoughts] == [{"encrypted_content": SECRET}]


def test_encrypted_reasoning_that_is_left_out_is_reported() -> None:
    item = {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "x"}
    without, shown = Decoded([done(item)]), Decoded([done(item)], include_encrypted_thinking=True)
    assert without.notes("loss") == {"reasoning.encrypted_content": "left out by option"}
    assert shown.notes("loss") == {}
