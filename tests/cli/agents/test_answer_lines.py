"""What a model says in a terminal: text as it arrives, thinking on lines of its own, usage in words."""

from io import StringIO

import pytest
from rich.console import Console

from openresponses_bridge.protocol.usage import Usage
from openresponses_cli.agents.screen import AnswerLines, tokens_of


def test_thinking_has_a_line_of_its_own_wherever_it_comes() -> None:
    out = StringIO()
    lines = AnswerLines(Console(file=out, width=20))
    for thought in "first ", "thing":
        lines.add_thinking(thought)
    lines.print_text("a\x1b")
    lines.add_thinking("again")
    assert (lines.has_thinking, lines.mid_line) == (True, True)
    lines.print_text("b\n")
    lines.end_line()
    assert not lines.has_thinking
    assert out.getvalue() == "▸ Thinking (2 words): first thing\na\\x1b\n▸ Thinking (1 word): again\nb\n"


def test_thinking_that_is_not_meant_any_more_is_not_shown() -> None:
    out = StringIO()
    lines = AnswerLines(Console(file=out))
    lines.add_thinking("first")
    lines.discard_thinking()
    lines.print_thinking()
    assert out.getvalue() == ""


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (Usage.of(3, 4), "3 input + 4 output tokens"),
        (Usage.of(3, 4, estimated=True), "about 3 input + 4 output tokens"),
        (Usage.of(3, 4, cached_tokens=2), "3 input + 4 output tokens (2 cached)"),
    ],
)
def test_usage_in_words(usage: Usage, words: str) -> None:
    assert tokens_of(usage) == words
