"""An agent with a model that does not stream its calls, and tools that know how much they may say."""

from pathlib import Path

from openresponses_agent.loop import LoopEnd
from openresponses_agent.prompt import PromptRenderer
from openresponses_agent.tools.registry import ToolInvocationContext, ToolRegistry
from openresponses_cli.agents.tools import sample_tools
from openresponses_cli.agents.tools.folder import Folder
from openresponses_server.settings import Capabilities
from tests.support.agents import DIALECTS, MODEL, agent, scripted, whole
from tests.support.loops import Answer
from tests.support.upstream import ScriptedUpstream

ANSWERS = [
    Answer(
        "Let me.", [("c1", "create_file", {"path": "notes.txt", "content": "made"}), ("c2", "list_dir", {})]
    ),
    Answer("Done."),
]
WHOLE = Capabilities(streaming_tool_calls=False)


async def test_it_is_asked_for_whole_answers_and_the_loop_goes_on_the_same(
    folder: Folder, inside: Path
) -> None:
    tools, ended = sample_tools(folder), []
    for scripts, able in ((list(map(whole, ANSWERS)), WHOLE), (scripted("chat", ANSWERS), None)):
        with ScriptedUpstream({MODEL: scripts}) as upstream:
            async with agent(upstream, "chat", tools, able) as runner:
                ended.append((await runner.run(), [each.body for each in upstream.received]))
            accepted = {each.headers["accept"] for each in upstream.received}
        assert accepted == {"text/event-stream" if able is None else "application/json"}
        assert (inside / "notes.txt").read_text() == "made"
        (inside / "notes.txt").unlink()
    (whole_one, bodies), (streamed, asked_streamed) = ended
    assert whole_one.end is LoopEnd.DONE
    assert whole_one == streamed
    for body, other in zip(bodies, asked_streamed, strict=True):
        assert not body.get("stream")
        assert "stream_options" not in body
        assert other.pop("stream") is True
        other.pop("stream_options")
        body.pop("stream", None)
        assert body == other


async def test_without_tools_it_is_asked_for_a_stream() -> None:
    for dialect in DIALECTS:
        with ScriptedUpstream({MODEL: scripted(dialect, [Answer("Done.")])}) as upstream:
            async with agent(upstream, dialect, ToolRegistry(), WHOLE) as runner:
                assert (await runner.run()).end is LoopEnd.DONE
            assert upstream.received[0].body["stream"] is True


async def test_tools_get_the_room_that_is_left_and_their_results_are_held_to_it() -> None:
    tools, seen = ToolRegistry(), list[int]()

    @tools.tool
    def look(context: ToolInvocationContext) -> str:
        """Look around."""
        assert context.tokenization_options is not None
        seen.append(context.tokenization_options.token_budget)
        return "word " * 5_000

    with ScriptedUpstream(
        {MODEL: scripted("chat", [Answer(calls=[("c1", "look", {})]), ANSWERS[1]])}
    ) as upstream:
        async with agent(upstream, "chat", tools) as runner:
            result = await runner.run(renderer=PromptRenderer(max_prompt_tokens=1_000))
    assert result.end is LoopEnd.DONE
    assert 500 < seen[0] < 1_000
    (shown,) = (each["content"] for each in upstream.received[1].body["messages"] if each["role"] == "tool")
    assert 1_000 < len(shown) < 6_000
    assert "longer than its token budget" in shown
