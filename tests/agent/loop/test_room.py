"""Room for results: the part of the prompt's budget that tools get."""

from typing import Any

from openresponses_agent.loop import LoopEnd, RunToolCalls
from openresponses_agent.prompt import PromptRenderer
from openresponses_agent.tools.registry import ToolCallOutcome
from openresponses_agent.tools.results import LanguageModelToolResult
from tests.support.loops import Answer, driven

BUDGET = 1_000
LOOKS = [("c1", "look", {"value": "a"}), ("c2", "look", {"value": "b"})]
CHANGES = [("c1", "change", {"value": "a"}), ("c2", "change", {"value": "b"})]


class Characters:
    """A TokenCounter: a token for each character of text, and 1 for whatever else there is."""

    def text(self, text: str, model: str = "") -> int:
        return len(text)

    def item(self, item: Any, model: str = "") -> int:
        texts = [getattr(item, name, None) for name in ("content", "output", "arguments")]
        return 1 + sum(len(text) for text in texts if isinstance(text, str))

    def request(self, request: Any, history: Any = (), model: str = "") -> int:
        return 100


def budgets(made: Any) -> list[int | None]:
    options = [each.tokenization_options for each in made.actions if isinstance(each, RunToolCalls)]
    return [None if each is None else each.token_budget for each in options]


def filling(made: Any) -> Any:
    """Tools whose results are as long as they may be."""

    def run(call: Any) -> ToolCallOutcome:
        room = made.actions[-1].tokenization_options
        assert room.count_tokens("four") == 4
        return ToolCallOutcome(LanguageModelToolResult.of("x" * room.token_budget))

    return run


def test_without_a_budget_there_is_no_limit() -> None:
    driver = driven()
    driver.drive([Answer(calls=LOOKS), Answer("Done.")])
    assert budgets(driver) == [None]


def test_calls_share_what_is_left_and_it_is_enough() -> None:
    for calls, number in ((LOOKS, 1), (CHANGES, 2)):
        driver = driven(renderer=PromptRenderer(Characters(), max_prompt_tokens=BUDGET))
        result = driver.drive([Answer(calls=calls), Answer("Done.")], filling(driver))
        assert result.end is LoopEnd.DONE
        assert len(budgets(driver)) == number
        assert all(each is not None and 350 < each < 450 for each in budgets(driver))
        last = driver.prompts[-1].prompt
        assert last.summary is None
        assert BUDGET * 0.8 < last.token_count <= BUDGET


def test_where_nothing_is_left_a_summary_makes_room() -> None:
    driver = driven(renderer=PromptRenderer(Characters(), max_prompt_tokens=BUDGET), tool_call_limit=50)
    answers = [Answer("I look.", [(f"c{at}", "look", {"value": "a"})]) for at in range(20)]
    result = driver.drive([*answers, Answer("Done.")], filling(driver))
    assert result.end is LoopEnd.DONE
    assert all(each is not None and each > 300 for each in budgets(driver))
    assert all(each.prompt.token_count <= BUDGET for each in driver.prompts)
    cut = [
        message
        for each in driver.prompts
        for message in each.prompt.messages
        if message.role == "tool" and set(str(message.content)) != {"x"}
    ]
    assert cut == []
