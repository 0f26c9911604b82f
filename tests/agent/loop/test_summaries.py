"""Conversations that pass a model's room: summaries by the model, and limits that nobody knew before."""

from typing import Any

import pytest

from openresponses_agent.loop import AskModel, LoopEnd, RoundMade
from openresponses_agent.prompt import ConversationSummary, PromptContext, PromptRenderer, Turn
from openresponses_bridge.errors import HttpError
from openresponses_bridge.protocol.usage import Usage
from tests.support.loops import TOOLS, Answer, driven

HISTORY = [Turn(query=f"Question {number}?", response=f"Answer {number}. " * 40) for number in range(6)]
LONG = PromptContext(system=["You are a test."], query="And now?", history=HISTORY, tools=TOOLS)
TOO_LONG = Answer(error=HttpError(400, "prompt is too long", code="context_length_exceeded"))
BUDGET = 500


def texts(asked: AskModel) -> list[str]:
    return [str(message.content) for message in asked.prompt.messages]


def summaries(made: Any) -> list[ConversationSummary | None]:
    return [entry.summary for entry in made.entries if isinstance(entry, RoundMade)]


def test_the_model_writes_the_summary_which_is_kept() -> None:
    driver = driven(
        renderer=PromptRenderer(max_prompt_tokens=BUDGET),
        context=LONG,
        query="And now?",
        model_summaries=True,
    )
    spent = [Usage.of(100, 10), Usage.of(20, 2), Usage.of(3, 1)]
    result = driver.drive(
        [
            Answer("What was said.", usage=spent[0]),
            Answer("Let me.", [("c1", "look", {"value": "a"})], usage=spent[1]),
            Answer("Done.", usage=spent[2]),
        ]
    )
    assert (result.end, result.response, len(result.tool_call_rounds)) == (LoopEnd.DONE, "Done.", 2)
    summary, first, second = driver.prompts
    assert summary.prompt.tools == ()
    assert texts(summary)[0].startswith("Summarize the conversation")
    assert "Answer 0." in texts(summary)[1]
    assert summary.prompt.token_count <= BUDGET
    for ask in (first, second):
        assert any("What was said." in text for text in texts(ask))
        assert not any("Answer 0." in text for text in texts(ask))
        assert ask.prompt.token_count <= BUDGET
    kept = summaries(driver)
    assert kept[0] == kept[1] is not None
    assert result.usage is not None
    assert (result.usage.input_tokens, result.usage.output_tokens) == (123, 13)


def test_the_callback_does_not_see_a_summary_being_written() -> None:
    seen: list[str] = []

    def callback(text: object, index: int, delta: Any) -> None:
        seen.append(delta.text)

    driver = driven(
        renderer=PromptRenderer(max_prompt_tokens=BUDGET),
        context=LONG,
        query="And now?",
        model_summaries=True,
        finished_cb=callback,
        stateful=True,
    )
    driver.drive([Answer("Secret summary."), Answer("Done.", marker="m")])
    assert "".join(seen) == "Done."


@pytest.mark.parametrize(
    "refused", [Answer(error=HttpError(400, "No.", code="invalid_request")), Answer("So", reason="length")]
)
def test_without_a_summary_of_the_model_s_there_is_one_all_the_same(refused: Answer) -> None:
    driver = driven(
        renderer=PromptRenderer(max_prompt_tokens=BUDGET),
        context=LONG,
        query="And now?",
        model_summaries=True,
    )
    result = driver.drive([refused, Answer("Done.")])
    assert result.response == "Done."
    (summary,) = summaries(driver)
    assert summary is not None
    assert summary.text.startswith("So" if refused.text else "User: Question 0?")
    noted = [str(each) for each in driver.loop.diagnostics]
    assert noted == ([] if refused.text else ["warning: rounds[0].summary: not by the model: No."])


def test_a_summary_that_is_too_long_is_cut_to_its_room() -> None:
    driver = driven(
        renderer=PromptRenderer(max_prompt_tokens=BUDGET),
        context=LONG,
        query="And now?",
        model_summaries=True,
    )
    driver.drive([Answer("Many words. " * 2000), Answer("Done.")])
    assert driver.prompts[-1].prompt.token_count <= BUDGET


@pytest.mark.parametrize("by_model", [True, False])
def test_a_limit_that_was_not_known_is_learned_from_its_refusal(by_model: bool) -> None:
    retries: list[str] = []

    def callback(text: object, index: int, delta: Any) -> None:
        retries.extend([delta.retry_reason] if delta.retry_reason else [])

    driver = driven(context=LONG, query="And now?", model_summaries=by_model, finished_cb=callback)
    summary = [Answer("What was said.")] if by_model else []
    look = ("c1", "look", {"value": "a"})
    result = driver.drive([TOO_LONG, *summary, Answer("Let me.", [look]), Answer("Done.")])
    assert (result.end, result.response) == (LoopEnd.DONE, "Done.")
    whole, *others = [ask.prompt.token_count for ask in driver.prompts]
    assert all(tokens <= whole * 0.75 for tokens in others)
    assert retries == ["the prompt was too long for the model"]
    assert summaries(driver)[0] is not None


def test_it_is_tried_once_more_and_not_without_end() -> None:
    driver = driven(context=LONG, query="And now?")
    result = driver.drive([TOO_LONG, TOO_LONG])
    assert (result.end, result.message, len(driver.prompts)) == (LoopEnd.FAILED, "prompt is too long", 2)
    assert driver.prompts[1].prompt.token_count < driver.prompts[0].prompt.token_count


def test_what_can_not_be_shorter_is_not_sent_again() -> None:
    driver = driven(query="q" * 4000, context=PromptContext(query="q" * 4000))
    result = driver.drive([TOO_LONG])
    assert (result.end, result.message, len(driver.prompts)) == (LoopEnd.FAILED, "prompt is too long", 1)
    assert result.error is not None
    assert result.error.code == "context_length_exceeded"


def test_a_new_summary_does_not_go_on_from_what_the_server_has_stored() -> None:
    """Which has the whole conversation in it."""
    driver = driven(context=LONG, query="And now?", stateful=True)
    look = ("c1", "look", {"value": "a"})
    driver.drive([Answer("One.", [look]), TOO_LONG, Answer("Two.", [look]), Answer("End.")])
    assert [ask.stateful_marker for ask in driver.prompts] == [None, "resp_1", None, "resp_1"]
