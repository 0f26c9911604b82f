"""Entries as lines: their length grows with what happened, and they are read back as the same entries."""

import json
from typing import Any

import pytest

from openresponses_agent.loop import (
    JournalError,
    LoopBegun,
    RoundMade,
    ToolCallRound,
    decode_entries,
    encode_entry,
)
from openresponses_agent.loop import journal as lines_module
from openresponses_agent.prompt import PromptRenderer
from openresponses_agent.prompt.raw import ChatMessage, OpaquePart
from openresponses_agent.tools.registry import ToolCallOutcome
from openresponses_agent.tools.results import LanguageModelToolResult
from tests.support.loops import Answer, Driven, driven, lines

RENDERERS: dict[str, dict[str, Any]] = {
    "unlimited": {},
    "summaries": {"max_prompt_tokens": 2_000},
    "cache breakpoints": {"cache_breakpoints": True},
}


def rounds(number: int, **options: Any) -> Driven:
    """So many rounds, each with a result of 500 characters of its own."""
    driver = driven(renderer=PromptRenderer(**options), tool_call_limit=100)
    answers = [Answer("I look.", [(f"c{at}", "look", {"value": str(at)})]) for at in range(number - 1)]
    driver.drive(
        [*answers, Answer("Done.")],
        lambda call: ToolCallOutcome(LanguageModelToolResult.of(f"{call.id} ".ljust(500, "x"))),
    )
    return driver


@pytest.mark.untraced
@pytest.mark.parametrize("kind", RENDERERS)
def test_a_journal_is_linear_in_the_rounds_and_read_as_it_was(kind: str) -> None:
    few, many = rounds(10, **RENDERERS[kind]), rounds(40, **RENDERERS[kind])
    assert many.result is not None
    assert len(many.result.tool_call_rounds) == 40
    assert len(lines(many.entries)) < 5 * len(lines(few.entries))
    assert list(decode_entries(lines(many.entries))) == many.entries
    alone = b"".join(map(encode_entry, many.entries))  # lines that refer to nothing are a journal too
    assert list(decode_entries(alone)) == many.entries


def test_a_summary_that_stays_is_written_once() -> None:
    driver = rounds(40, max_prompt_tokens=2_000)
    summaries = [entry.summary for entry in driver.entries if isinstance(entry, RoundMade) and entry.summary]
    different = [each for at, each in enumerate(summaries) if at == 0 or each != summaries[at - 1]]
    assert 1 < len(different) < len(summaries)
    assert lines(driver.entries).count(b'"summary":{') == len(different)


def messages(*contents: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=content) for content in contents]


def made_of(*prompts: list[ChatMessage]) -> list[RoundMade]:
    return [RoundMade(ToolCallRound(prompt=prompt, response="", tool_calls=[])) for prompt in prompts]


@pytest.mark.parametrize(
    ("before", "after", "new", "kept"),
    [
        ("abc", "abcd", "d", [[0, 0, 3]]),
        ("abc", "abc", "", [[0, 0, 3]]),
        ("abcd", "aScd", "S", [[0, 0, 1], [1, 2, 4]]),
        ("abcd", "xacy", "xy", [[1, 0, 1], [1, 2, 3]]),
        ("aab", "aaab", "a", [[0, 0, 2], [1, 2, 3]]),
        ("ab", "ba", "a", [[0, 1, 2]]),
        ("abc", "xyz", "xyz", []),
        ("abc", "", "", []),
        ("", "a", "a", []),
    ],
)
def test_a_line_has_what_is_new_and_where_the_rest_stands(
    before: str, after: str, new: str, kept: list[list[int]]
) -> None:
    entries = [LoopBegun("q"), *made_of(messages(*before), messages(*after))]
    line = json.loads(lines(entries).splitlines()[-1])
    assert "".join(each["content"] for each in line["round"]["prompt"]) == new
    assert line.get("kept", []) == kept
    assert list(decode_entries(lines(entries))) == entries


def test_messages_that_python_takes_for_equal_are_two() -> None:
    prompts = [[ChatMessage(role="user", content=[OpaquePart({"a": value})])] for value in (1, True)]
    read = list(decode_entries(lines([LoopBegun("q"), *made_of(*prompts)])))[-1]
    assert isinstance(read, RoundMade)
    assert encode_entry(read) == encode_entry(made_of(prompts[1])[0])


@pytest.mark.parametrize(
    "kept",
    [
        [0, 0, 3],
        [0, 1, 1],
        [0, 2, 1],
        [0, -1, 1],
        [2, 0, 1],
        [-1, 0, 1],
        [[0, 0, 1], [0, 0, 1]],
        [[1, 0, 1], [0, 1, 2]],
    ],
    ids=str,
)
def test_references_to_what_is_not_there_are_named(kept: Any) -> None:
    first, second = made_of(messages("a", "b"), messages("c"))
    line = json.loads(encode_entry(second)) | {"kept": kept if isinstance(kept[0], list) else [kept]}
    data = lines([LoopBegun("q"), first]) + json.dumps(line).encode() + b"\n"
    with pytest.raises(JournalError, match="line 3 is not an entry: it refers to messages"):
        list(decode_entries(data))


def test_a_first_round_that_refers_to_a_summary_is_named() -> None:
    line = json.loads(encode_entry(made_of(messages("a"))[0])) | {"sameSummary": True}
    with pytest.raises(JournalError, match="line 1 is not an entry: it refers to the summary"):
        list(decode_entries(json.dumps(line).encode() + b"\n"))


def test_s10_lines_that_stand_for_far_more_than_they_are_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MOST_MESSAGES", 50)
    with pytest.raises(JournalError, match="more than 50 messages"):
        list(decode_entries(lines(rounds(10).entries)))
