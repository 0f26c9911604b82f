"""What others wrote, as a terminal gets it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.text import cut, latest, on_one_line, shown, shown_json
from tests.support.terminal_text import is_safe

ATTACKS = [
    "\x1b]0;owned\x07",
    "\x1b[2J\x1b[H",
    "a\rb",
    "\x9b31m",
    "\u202egnp.exe",
    "\u2066hidden\u2069",
    "\u200bzero",
    "\ud83d",
    "\x7f\b\b\b",
    "\U000e0041tag",
    "\u2028line",
    "\u3164",
    "\u2800",
    "a\ufe00",
    "a\ufe0f",
    "\U000e0101",
    "\u034f",
    "\u115f\u1160\uffa0",
    "\u2800\ufe0f",
    "❤\ufe0f\ufe0f",
]

anything = st.text(st.characters(exclude_categories=[]), max_size=80)


def test_an_emoji_keeps_the_selector_that_makes_it_one() -> None:
    assert shown("I ❤\ufe0f it \U0001f336\ufe0f") == "I ❤\ufe0f it \U0001f336\ufe0f"


@given(anything)
def test_json_for_a_terminal_is_the_same_json(text: str) -> None:
    escaped = shown_json(encode({"a": text}).decode())
    assert is_safe(escaped)
    assert json.loads(escaped) == json.loads(encode({"a": text}))


@pytest.mark.parametrize("text", ATTACKS)
def test_what_a_terminal_would_obey_is_escaped(text: str) -> None:
    assert not is_safe(text, "")
    for result in (shown(text), on_one_line(text, 40), cut(text, 3, 40), latest(text, 3, 40)):
        assert is_safe(result)
        assert "\\" in result


@given(anything, st.integers(1, 5), st.integers(1, 20))
def test_no_text_gets_through_or_grows_beyond_its_field(text: str, lines: int, columns: int) -> None:
    for result in (cut(text, lines, columns), latest(text, lines, columns)):
        assert is_safe(result)
        assert result.count("\n") <= lines
    assert is_safe(on_one_line(text, columns), "")
    assert len(on_one_line(text, columns)) <= columns + 1


def test_what_is_cut_is_counted() -> None:
    assert cut("a\nb\nc\n", 3, 5) == "a\nb\nc"
    assert cut("a\nb\nc\nd", 2, 5) == "a\nb\n… 2 more lines"
    assert cut("abcdefg", 2, 5) == "abcde… (2 more characters)"
    assert latest("a\nb\nc", 2, 5) == "b\nc"
    assert latest("x" * 100, 2, 5) == "…" + "x" * 10
    assert cell_len(cut("日本語" * 100, 1, 10).partition("…")[0]) == 20


def test_a_line_without_end_costs_what_is_shown() -> None:
    text = "\x1b" * 5_000_000
    assert len(cut(text, 12, 400)) < 3_000
    assert len(latest(text, 12, 400)) < 12 * 400 * 4 + 2
    assert len(on_one_line(text, 100)) == 101
