"""`<think>` at the head of a text is reasoning, wherever the stream is cut (field case 16)."""

import pytest

from openresponses_bridge.dialects.chat_completions.upstream.deltas import ThinkTags
from tests.support.chat import DONE, calls, chunk, part, run, stopped

# text → (reasoning, text)
TEXTS = {
    "<think>Hm, 2 < 3.</think>Yes.": ("Hm, 2 < 3.", "Yes."),
    "<think>\nHm.\n</think>\n\nYes.": ("Hm.\n", "Yes."),
    " \n<think>Hm.</think>Yes.": ("Hm.", "Yes."),
    "<think></think>Yes.": ("", "Yes."),
    "<think>\n\n</think>\n\nYes.": ("", "Yes."),
    "<think></think>": ("", ""),
    "<think>Hm.</think>": ("Hm.", ""),
    "<think>cut off in </thi": ("cut off in </thi", ""),
    "<think>": ("", ""),
    "<thin": ("", "<thin"),
    "<thinker>": ("", "<thinker>"),
    "  <b>": ("", "  <b>"),
    " \n": ("", " \n"),
    "": ("", ""),
    "Yes. <think>no</think>": ("", "Yes. <think>no</think>"),
    "<think>a</think>b<think>c</think>": ("a", "b<think>c</think>"),
    "<think>a</think </think>b": ("a</think ", "b"),
    "</think>Yes.": ("", "</think>Yes."),
    "<think>Größe 🙂</think>Já 🙂": ("Größe 🙂", "Já 🙂"),
}


def split(pieces: list[str]) -> tuple[str, str]:
    tags = ThinkTags()
    sent = [each for piece in pieces for each in tags.feed(piece)] + tags.close()
    assert tags.decided
    reasoning = "".join(text for thinking, text in sent if thinking)
    return reasoning, "".join(text for thinking, text in sent if not thinking)


@pytest.mark.parametrize("text", TEXTS)
def test_think_tags_whole(text: str) -> None:
    assert split([text]) == TEXTS[text]


@pytest.mark.parametrize("text", TEXTS)
def test_think_tags_letter_by_letter(text: str) -> None:
    assert split(list(text)) == TEXTS[text]


@pytest.mark.parametrize("text", TEXTS)
def test_think_tags_cut_in_two_anywhere(text: str) -> None:
    for at in range(len(text) + 1):
        assert split([text[:at], text[at:]]) == TEXTS[text]


def test_think_tags_hold_back_no_more_than_they_must() -> None:
    tags = ThinkTags()
    assert tags.is_flushed
    assert tags.feed("<thi") == []
    assert not tags.is_flushed
    assert tags.feed("nk>a <") == [(True, "a ")]
    assert tags.feed("b") == [(True, "<b")]
    assert not tags.is_flushed
    assert tags.feed("</think>") == []
    assert tags.is_flushed
    assert not tags.decided
    assert tags.feed("c") == [(False, "c")]
    assert tags.decided


def test_think_text_becomes_a_reasoning_item() -> None:
    ran = stopped(chunk(content="<think>Hm"), chunk(content=".</think>"), chunk(content="\nYes."))
    assert [item.type for item in ran.output] == ["reasoning", "message"]
    assert ran.output[0].content[0].text == "Hm."  # type: ignore[union-attr]
    assert ran.response.output_text == "Yes."


def test_case_16_empty_think_leaves_no_item() -> None:
    ran = stopped(chunk(content="<think>"), chunk(content="\n</think>\n\n"), chunk(content="Yes."))
    assert [item.type for item in ran.output] == ["message"]
    assert ran.response.output_text == "Yes."


def test_think_tags_can_be_left_alone() -> None:
    ran = stopped(chunk(content="<think>Hm.</think>Yes."), think_tags=False)
    assert ran.response.output_text == "<think>Hm.</think>Yes."


def test_held_text_goes_out_before_a_call() -> None:
    ran = stopped(chunk(content="<th"), calls(part("{}", name="f", id="c", index=0)))
    assert [item.type for item in ran.output] == ["message", "function_call"]
    assert ran.response.output_text == "<th"


def test_unclosed_think_ends_where_a_call_begins() -> None:
    ran = stopped(
        chunk(content="<think>Hm. <"),
        calls(part("{}", name="f", id="c", index=0), part("{}", name="g", id="d", index=1)),
        chunk(content="Done."),
    )
    assert [item.type for item in ran.output] == ["reasoning", "function_call", "function_call", "message"]
    assert ran.output[0].content[0].text == "Hm. <"  # type: ignore[union-attr]
    assert ran.response.output_text == "Done."


@pytest.mark.parametrize("key", ["refusal", "function_call", "annotations"])
def test_held_text_goes_out_before_anything_else(key: str) -> None:
    deltas = {
        "refusal": "No.",
        "function_call": {"name": "f", "arguments": "{}"},
        "annotations": [{"type": "url_citation", "url_citation": {"url": "https://a.example"}}],
    }
    ran = stopped(chunk(content="<thin"), chunk(**{key: deltas[key]}))
    assert ran.response.output_text == "<thin"


def test_reasoning_field_leaves_held_text_for_later() -> None:
    ran = stopped(chunk(content="\n"), chunk(reasoning_content="Hm."), chunk(content="<think>x</think>Yes."))
    assert [item.type for item in ran.output] == ["reasoning", "message"]
    assert ran.response.output_text == "Yes."


def test_length_while_thinking_keeps_the_reasoning_case_24() -> None:
    ran = run(chunk(content="<think>Hm. </th"), chunk("length"), DONE)
    assert ran.status == "incomplete"
    assert [(item.type, item.status) for item in ran.output] == [("reasoning", "incomplete")]
    assert ran.output[0].content[0].text == "Hm. </th"  # type: ignore[union-attr]


def test_an_empty_fragment_holds_nothing_back() -> None:
    """Servers send one beside the first fragment of a call: the head stays undecided, and nothing waits."""
    tags = ThinkTags()
    assert tags.feed("") == []
    assert (tags.is_flushed, tags.decided) == (True, False)
    assert tags.feed("<think>a</think>b") == [(True, "a"), (False, "b")]
