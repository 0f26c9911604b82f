"""The design document's example of two edits, from its own stream and over two kinds of upstream."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from openresponses_agent.loop import LoopEnd, LoopResult
from openresponses_cli.agents.tools import sample_tools
from openresponses_cli.agents.tools.folder import Folder
from tests.support.agents import DIALECTS, MODEL, agent, scripted
from tests.support.loops import Answer
from tests.support.shared import require_shared
from tests.support.upstream import Script, ScriptedUpstream


class Document:
    """Section 5: its streams and JSON by the headings above them."""

    def __init__(self) -> None:
        (path,) = (require_shared() / "seeds").glob("002_*.txt")
        self._text = path.read_text().split("\n## 5. ")[1].split("\n## 6. ")[0]

    def block(self, heading: str) -> str:
        match = re.search(r"```\w*\n(.*?)\n```", self._text.split(heading, 1)[1], re.DOTALL)
        assert match is not None
        return match[1]

    def json(self, heading: str) -> Any:
        return json.loads(self.block(heading))

    @property
    def streams(self) -> list[bytes]:
        headings = ("#### SSE Event Sequence\n", "#### SSE Event Sequence (Final Response)")
        return [self.block(heading).encode() + b"\n\n" for heading in headings]

    @property
    def calls(self) -> list[dict[str, str]]:
        calls: list[dict[str, str]] = self.json("**Delta 3 ")["delta"]["copilotToolCalls"]
        return calls

    @property
    def texts(self) -> list[str]:
        return [self.json(each)["text"] for each in ("**Delta 1 ", "#### Parsed IResponseDelta (Final")]

    @property
    def results(self) -> list[Any]:
        return [self.json(f"#### Tool Result ({which} Call)") for which in ("First", "Second")]

    @property
    def workspace(self) -> str:
        return str(Path(json.loads(self.calls[0]["arguments"])["filePath"]).parent)


@pytest.fixture(scope="module")
def document() -> Document:
    return Document()


def scripts(document: Document, dialect: str) -> list[Script]:
    if dialect == "anthropic":
        return [Script([stream]) for stream in document.streams]
    first, last = document.texts
    calls = [(call["id"], call["name"], call["arguments"]) for call in document.calls]
    return scripted("chat", [Answer(first, calls), Answer(last)])


async def says_yes(tool: str, question: str) -> bool:
    return True


async def played(document: Document, dialect: str, path: Path) -> tuple[LoopResult, list[dict[str, Any]]]:
    """The scenario, and the bodies that the upstream got."""
    path.mkdir()
    folder = Folder(path, shown_as=document.workspace)
    query = document.json("#### Request Body (Anthropic Format)\n")["messages"][0]["content"][0]["text"]
    with ScriptedUpstream({MODEL: scripts(document, dialect)}) as upstream:
        async with agent(upstream, dialect, sample_tools(folder)) as runner:
            result = await runner.run(query, confirm=says_yes)
        folder.close()
        return result, [each.body for each in upstream.received]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_both_files_are_written_and_rounds_and_results_are_the_documents(
    document: Document, dialect: str, tmp_path: Path
) -> None:
    result, _ = await played(document, dialect, tmp_path / "work")
    assert (result.end, result.response) == (LoopEnd.DONE, document.texts[1])
    for call in document.calls:
        arguments = json.loads(call["arguments"])
        assert (tmp_path / "work" / Path(arguments["filePath"]).name).read_text() == arguments["code"]
    shown = result.as_json()
    expected = document.json("### Step 7: Complete Message History")
    for made, theirs in zip(shown["toolCallRounds"], expected["toolCallRounds"], strict=True):
        assert made.keys() - {"id"} == theirs.keys()
        for ours, call in zip(made["toolCalls"], theirs["toolCalls"], strict=True):
            assert ours | {"arguments": ""} == call | {"arguments": ""}  # which are abridged there
    assert [made["response"] for made in shown["toolCallRounds"]] == document.texts
    calls = shown["toolCallRounds"][0]["toolCalls"]
    assert [call["arguments"] for call in calls] == [call["arguments"] for call in document.calls]
    assert shown["toolCallResults"].keys() == expected["toolCallResults"].keys()
    assert [*shown["toolCallResults"].values()] == document.results


async def test_the_second_request_is_the_documents(document: Document, tmp_path: Path) -> None:
    _, (first, second) = await played(document, "anthropic", tmp_path / "work")
    bodies = [
        document.json("#### Request Body (Anthropic Format)\n"),
        document.json("#### Request Body (Anthropic Format with Tool Results)"),
    ]
    for body, theirs in zip((first, second), bodies, strict=True):
        assert [spelled(each) for each in body["messages"]] == [spelled(each) for each in theirs["messages"]]
        edit = next(tool for tool in body["tools"] if tool["name"] == "edit_file")
        assert theirs["tools"][0]["input_schema"]["required"] == edit["input_schema"]["required"]


def spelled(message: dict[str, Any]) -> Any:
    """A message with texts as blocks, and without what caches need."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return message["role"], [_block(block) for block in blocks]


def _block(block: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in block.items() if name != "cache_control"}
    inner = plain.get("content")
    if isinstance(inner, list):
        plain["content"] = "".join(each["text"] for each in inner)
    return plain


async def test_both_upstreams_give_the_same_rounds_results_and_prompts(
    document: Document, tmp_path: Path
) -> None:
    results = [(await played(document, each, tmp_path / each))[0].as_json() for each in DIALECTS]
    for one in results:
        one.pop("usage", None)  # only one of them reports it
    assert results[0] == results[1]
