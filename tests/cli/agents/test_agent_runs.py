"""An agent end to end: the loop over the service and a scripted upstream, with tools that do something."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from openresponses_agent.loop import CallEnded, CallsBegun, LoopEnd, RoundMade, ToolCallLimitBehavior
from openresponses_agent.prompt import PromptRenderer
from openresponses_agent.tools.errors import CancellationToken
from openresponses_agent.tools.registry import Tool, ToolRegistry
from openresponses_bridge.errors import LocalError
from openresponses_cli.agents.tools import sample_tools
from openresponses_cli.agents.tools.folder import Folder
from tests.support.agents import DIALECTS, MODEL, Agent, agent, scripted
from tests.support.loops import Answer
from tests.support.upstream import HANG, Received, Script, ScriptedUpstream, chunk

CREATE = ("c1", "create_file", {"path": "notes.txt", "content": "made"})
DONE = Answer("Done.")
Playing = Callable[..., AbstractAsyncContextManager[tuple[Agent, list[Received]]]]


@pytest.fixture(params=DIALECTS)
def playing(request: pytest.FixtureRequest, folder: Folder) -> Playing:
    """An agent in a folder, over an upstream of each dialect with these answers."""
    return partial(play, request.param, sample_tools(folder))


@asynccontextmanager
async def play(
    dialect: str, tools: ToolRegistry, answers: Sequence[Answer], scripts: Sequence[Script] = ()
) -> AsyncIterator[tuple[Agent, list[Received]]]:
    with ScriptedUpstream({MODEL: [*scripts, *scripted(dialect, answers)]}) as upstream:
        async with agent(upstream, dialect, tools) as runner:
            yield runner, upstream.received


def results(received: Received) -> list[tuple[str, str]]:
    """(call id, text) of the results in a request, in either dialect."""
    pairs = []
    for message in received.body["messages"]:
        if message["role"] == "tool":
            pairs.append((message["tool_call_id"], message["content"]))
        blocks = message.get("content")
        for block in blocks if isinstance(blocks, list) else ():
            if block["type"] == "tool_result":
                content = block["content"]
                text = content if isinstance(content, str) else "".join(each["text"] for each in content)
                pairs.append((block["tool_use_id"], text))
    return pairs


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("c1", "create_file", {"path": 1}), "Error: Invalid input - "),
        (("c1", "create_file", '{"path": oops}'), "Error: Invalid input - "),
        (("c1", "create_file", {"path": "../notes.txt", "content": ""}), "Error: Tool failed - "),
        (("c1", "no_such_tool", {}), "Error: Tool not found - "),
        (("c1", "run_in_terminal", {"command": "touch notes.txt"}), "Error: Not allowed - "),
    ],
)
async def test_what_goes_wrong_goes_back_to_the_model_which_corrects_it(
    playing: Playing, wrong: Any, words: str, inside: Path
) -> None:
    async with playing([Answer("Let me.", [wrong]), Answer("Again.", [CREATE]), DONE]) as (runner, received):
        result = await runner.run()
    assert (result.end, len(received)) == (LoopEnd.DONE, 3)
    assert [(call_id, text.startswith(words)) for call_id, text in results(received[1])] == [("c1", True)]
    assert result.tool_call_results["internal_call_001"].is_error
    assert (inside / "notes.txt").read_text() == "made"


async def test_an_interrupted_stream_is_asked_for_again_and_its_call_not_run(
    playing: Playing, inside: Path
) -> None:
    cut = Answer("Let me.", [("c0", "create_file", {"path": "cut.txt", "content": "x" * 50})], cut=True)
    async with playing([cut, Answer("Let me.", [CREATE]), DONE]) as (runner, received):
        result = await runner.run()
    assert result.end is LoopEnd.DONE
    assert received[0].body["messages"] == received[1].body["messages"]
    assert [path.name for path in inside.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("consent", "end"), [(True, LoopEnd.DONE), (False, LoopEnd.LIMIT), (None, LoopEnd.LIMIT)]
)
async def test_the_limit_with_confirm_asks_the_user(playing: Playing, consent: Any, end: LoopEnd) -> None:
    questions = []

    async def ask(question: str) -> bool:
        questions.append(question)
        return bool(consent)

    async with playing([Answer(calls=[CREATE]), DONE]) as (runner, _):
        result = await runner.run(tool_call_limit=1, ask_user=None if consent is None else ask)
    assert result.end is end
    assert len(questions) == (consent is not None)


async def test_the_limit_with_stop_stops_after_the_calls(playing: Playing, inside: Path) -> None:
    stop = ToolCallLimitBehavior.STOP
    async with playing([Answer("Let me.", [CREATE]), DONE]) as (runner, received):
        result = await runner.run(tool_call_limit=1, limit_behavior=stop)
    assert (result.end, result.message, result.response) == (
        LoopEnd.LIMIT,
        "Tool call limit reached",
        "Let me.",
    )
    assert (inside / "notes.txt").read_text() == "made"
    assert len(received) == 1


async def test_cancelling_reaches_the_request_that_is_read(playing: Playing) -> None:
    hanging = Script([chunk(content="I "), HANG])
    async with playing([DONE], [hanging]) as (runner, received):
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                while not received:
                    await anyio.sleep(0.01)
                runner.token.cancel()

            group.start_soon(cancel)
            result = await runner.run()
        assert (result.end, result.tool_call_rounds) == (LoopEnd.CANCELLED, [])
        while received[0].gone_at is None:
            await anyio.sleep(0.01)


async def test_cancelling_reaches_the_tool_that_runs_and_the_run_can_go_on(playing: Playing) -> None:
    begun, ended = anyio.Event(), []

    async def wait(given: dict[str, Any]) -> str:
        begun.set()
        try:
            await anyio.sleep(60)
        finally:
            ended.append(True)
        return "never"

    waiting = Tool("wait", "Waits", {"type": "object"}, wait)
    calls = [("c1", "wait", {}), ("c2", "create_file", {"path": "results.txt", "content": ""})]
    async with playing([Answer(calls=calls), DONE]) as (runner, received):
        runner.tools.register(waiting)
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                await begun.wait()
                runner.token.cancel()

            group.start_soon(cancel)
            result = await runner.run()
        assert (result.end, ended, len(received)) == (LoopEnd.CANCELLED, [True], 1)
        assert list(result.tool_call_results) == ["internal_call_001"]
        runner.token = CancellationToken()
        result = await runner.run()
    assert result.end is LoopEnd.DONE
    texts = dict(results(received[1]))
    assert texts["c1"].startswith("Error: Cancelled")
    assert "results.txt" in texts["c2"]


async def test_calls_that_are_safe_run_at_the_same_time_and_others_do_not() -> None:
    running, together = 0, []

    async def meet(given: dict[str, Any]) -> str:
        nonlocal running
        running += 1
        await anyio.sleep(0.05)
        together.append(running)
        await anyio.sleep(0.05)
        running -= 1
        return "met"

    schema = {"type": "object"}
    tools = ToolRegistry([Tool("look", "", schema, meet, parallel=True), Tool("write", "", schema, meet)])
    calls = [(f"c{number}", name, {}) for number, name in enumerate(["look"] * 3 + ["write"] * 2)]
    async with play("chat", tools, [Answer(calls=calls), DONE]) as (runner, received):
        await runner.run()
    assert together == [3, 3, 3, 1, 1]
    assert [call_id for call_id, _ in results(received[1])] == [call_id for call_id, _, _ in calls]


async def test_without_the_engine_the_run_ends_and_not_only_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise LocalError("bridge.schemas.engine", "jsonschema-rs is missing")

    monkeypatch.setattr("openresponses_agent.tools.validation.engine", missing)
    tools = ToolRegistry([Tool("look", "", {"type": "object"}, lambda given: "")])
    async with play("chat", tools, [Answer(calls=[("c1", "look", {})]), DONE]) as (runner, _):
        with pytest.raises(LocalError, match="jsonschema-rs is missing"):
            await runner.run()


async def test_breakpoints_of_a_cache_that_vanish_are_noted(folder: Folder) -> None:
    async with play("chat", sample_tools(folder), [Answer("Let me.", [CREATE]), DONE]) as (runner, received):
        await runner.run(renderer=PromptRenderer(cache_breakpoints=True))
    assert [str(each) for each in runner.notes] == ["ignored: cache_breakpoint: can't be expressed (×4)"]
    assert "cache" not in json.dumps([each.body["messages"] for each in received])


async def test_thinking_goes_back_with_its_signature(folder: Folder) -> None:
    answers = [Answer("Let me.", [CREATE], thinking="I think."), DONE]
    async with play("anthropic", sample_tools(folder), answers) as (runner, received):
        result = await runner.run()
    blocks = received[1].body["messages"][1]["content"]
    assert blocks[0] == {"type": "thinking", "thinking": "I think.", "signature": "c2lnbmF0dXJl"}
    thinking = result.tool_call_rounds[0].thinking
    assert thinking is not None
    assert (thinking.thinking, thinking.associated_round) == ("I think.", 0)


async def test_the_stateful_marker_continues_the_stored_response(folder: Folder) -> None:
    answers = [Answer("Let me.", [CREATE]), Answer(calls=[("c2", "list_dir", {})]), DONE]
    async with play("chat", sample_tools(folder), answers) as (runner, received):
        result = await runner.run(stateful=True)
        markers = [each.stateful_marker for each in result.tool_call_rounds]
        assert all(str(marker).startswith("resp_") for marker in markers)
        roles = [message["role"] for message in received[2].body["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
        stored = await runner.service.store.get(markers[2], owner="")
        assert stored.response.previous_response_id == markers[1]


async def test_a_marker_whose_response_is_gone_is_done_without(folder: Folder) -> None:
    async with play("chat", sample_tools(folder), [Answer("Let me.", [CREATE]), DONE]) as (runner, _):
        await runner.run(stateful=True, tool_call_limit=1, limit_behavior=ToolCallLimitBehavior.STOP)
        entries = runner.entries
    async with play("chat", sample_tools(folder), [DONE]) as (again, received):
        again.entries.extend(entries)
        assert (await again.run(stateful=True)).end is LoopEnd.DONE
        assert [each["role"] for each in received[0].body["messages"]][-1] == "tool"


async def test_stopping_the_reading_ends_the_request(folder: Folder) -> None:
    endless = Script([chunk(content="one "), chunk(content="two "), chunk(content="three "), HANG])
    seen = []

    def stop(text: Any, index: int, delta: Any) -> int | None:
        seen.append(str(text))
        return 3 if "two" in str(text) else None

    async with play("chat", sample_tools(folder), [DONE], [endless]) as (runner, received):
        result = await runner.run(finished_cb=stop)
        assert (result.end, result.response) == (LoopEnd.TRIMMED, "one")
        while received[0].gone_at is None:
            await anyio.sleep(0.01)


async def test_a_refusal_of_the_upstream_is_the_runs_error(playing: Playing) -> None:
    refused = Script([json.dumps({"error": {"message": "no such key", "type": "x"}}).encode()], 401)
    async with playing([DONE], [refused]) as (runner, received):
        result = await runner.run()
    assert (result.end, len(received)) == (LoopEnd.FAILED, 1)
    assert result.error is not None


async def test_a_journal_that_can_not_be_written_stops_the_run_before_the_tool(
    playing: Playing, inside: Path
) -> None:
    class Full(list[Any]):
        def append(self, entry: Any) -> None:
            if isinstance(entry, CallsBegun):
                raise OSError(28, "No space left on device")
            super().append(entry)

    async with playing([Answer(calls=[CREATE]), DONE]) as (runner, _):
        runner.entries = Full()
        with pytest.raises(OSError, match="No space"):
            await runner.run()
    assert [type(entry) for entry in runner.entries][-1] is RoundMade
    assert not (inside / "notes.txt").exists()
    assert not any(isinstance(entry, CallEnded) for entry in runner.entries)
