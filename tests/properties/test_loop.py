"""The loop with random outcomes of its actions."""

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from openresponses_agent.loop import (
    AskModel,
    AskUser,
    CallsBegun,
    LoopEnd,
    LoopEntry,
    LoopResult,
    LoopView,
    RoundMade,
    RunToolCalls,
    ToolCallLimitBehavior,
    decode_entries,
)
from openresponses_agent.prompt import PromptContext, PromptRenderer
from openresponses_agent.tools.errors import CancellationToken
from openresponses_bridge.errors import HttpError
from tests.support.loops import TOOLS, Answer, driven, failing, lines, overloaded, read, succeed

WORDS = st.text("ab ü\n", max_size=40)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["c1", "c2", "c3"]),
        st.sampled_from(["look", "change", "unknown"]),
        st.dictionaries(st.just("value"), st.text(max_size=30)),
    ),
    max_size=4,
)
ANSWERS = st.one_of(
    st.builds(Answer, WORDS, CALLS, cut=st.booleans(), thinking=st.sampled_from(["", "Hm."])),
    st.builds(Answer, WORDS, CALLS, reason=st.sampled_from(["length", "content_filter"])),
    st.sampled_from([Answer(error=overloaded()), Answer(error=HttpError(400, "no")), Answer()]),
)
RENDERERS = {"unlimited": {}, "budget": {"max_prompt_tokens": 220, "keep_share": 0.6}}


class Stopped(Exception):
    """The process was killed."""


def perform(driven_: Any, data: st.DataObject, token: CancellationToken, lives: int) -> LoopResult:
    """Run the loop to its end; the process may be killed at any point, at most `lives` times."""

    def may_die() -> None:
        if lives and data.draw(st.integers(0, 19)) == 7:
            raise Stopped

    steps, outcome = driven_.loop.run(), None
    for _ in range(200):
        may_die()
        try:
            action = steps.send(outcome)
        except StopIteration as end:
            result: LoopResult = end.value
            return result
        driven_.actions.append(action)
        may_die()
        if data.draw(st.integers(0, 30)) == 7:
            token.cancel()
        if isinstance(action, AskModel):
            outcome = read(action, data.draw(ANSWERS))
            continue
        outcome = data.draw(st.booleans()) if isinstance(action, AskUser) else None
        for call in action.calls if isinstance(action, RunToolCalls) else ():
            driven_.ran.append(call.id)
            may_die()
            make = data.draw(st.sampled_from([succeed, failing, None]))
            if make is not None:
                driven_.loop.call_ended(call.id, make(call))
    raise AssertionError("the loop does not end")


@pytest.mark.parametrize("kind", RENDERERS)
@given(st.data())
@settings(max_examples=80, deadline=None)
def test_the_loop_ends_runs_each_call_once_and_replays_to_the_same_prompts(
    kind: str, data: st.DataObject
) -> None:
    renderer = PromptRenderer(**RENDERERS[kind])
    entries: list[LoopEntry] = []
    ran: list[str] = []
    prompts: list[AskModel] = []
    for lives in (3, 2, 1, 0):
        token = CancellationToken()
        driven_loop = driven(
            entries=list(decode_entries(lines(entries))),
            renderer=renderer,
            tool_call_limit=3,
            limit_behavior=data.draw(st.sampled_from(ToolCallLimitBehavior)),
            token=token,
        )
        try:
            result = perform(driven_loop, data, token, lives)
        except Stopped:
            result = None
        entries, ran = driven_loop.entries, ran + driven_loop.ran
        prompts += driven_loop.prompts
        if result is not None:
            break
    assert result is not None
    assert len({*ran}) == len(ran)
    check_journal(result, entries, ran)
    replay(result, entries, renderer)
    if kind == "budget":
        assert all(ask.prompt.token_count <= 220 for ask in prompts)
    assert all(ask.prompt.messages[0].content == "You are a test." for ask in prompts)


def check_journal(result: LoopResult, entries: list[LoopEntry], ran: list[str]) -> None:
    """Assert that every call that was run was announced, and that at a proper end every call has a result."""
    begun = [each for entry in entries if isinstance(entry, CallsBegun) for each in entry.ids]
    assert len({*begun}) == len(begun)
    assert {*ran} <= {*begun}
    calls = [call.id for tool_round in result.tool_call_rounds for call in tool_round.tool_calls]
    assert {*result.tool_call_results} <= {*calls}
    if result.end is LoopEnd.DONE:
        assert {*result.tool_call_results} == {*calls}
    view = LoopView()
    for entry in entries:
        view.entry(entry)
    assert [
        element["id"] for tool_round in view.as_json()["rounds"] for element in tool_round["elements"]
    ] == calls


def replay(result: LoopResult, entries: list[LoopEntry], renderer: PromptRenderer) -> None:
    """Assert that the prompt of each round follows from the earlier rounds."""
    base = PromptContext(system=["You are a test."], query="Do it", tools=TOOLS)
    rounds = result.tool_call_rounds
    journal = [entry for entry in entries if isinstance(entry, RoundMade)]
    for index, summary in zip(count(), [None, *(entry.summary for entry in journal)], strict=False):
        if index == len(rounds):
            break
        context = replace(
            base,
            tool_call_rounds=rounds[:index],
            tool_call_results={
                call.id: result.tool_call_results[call.id]
                for earlier in rounds[:index]
                for call in earlier.tool_calls
            },
            summary=summary,
        )
        assert renderer.render(context).messages == rounds[index].prompt
