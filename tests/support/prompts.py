"""Contexts for tests of prompts: two edits, a conversation with everything in it, and a predictable
counter."""

from collections.abc import Iterable
from typing import Any

import msgspec

from openresponses_agent.prompt import (
    Attachment,
    Base64Image,
    CacheBreakpointPart,
    GlobalContext,
    PromptContext,
    Reference,
    ThinkingDataItem,
    ThinkingPart,
    ToolCall,
    ToolCallRound,
    Turn,
)
from openresponses_agent.tools.registry import Tool
from openresponses_agent.tools.results import LanguageModelToolResult, ToolResultDataPart, ToolResultTextPart
from openresponses_bridge.models.tokens import AnyItem
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.unknown import enc_hook

PIXEL = Base64Image("image/png", "iVBORw0KGgo=")


class Characters:
    """A `TokenCounter` that counts a token per character, two more per item, and a hundred per image."""

    def text(self, text: str, model: str = "") -> int:
        return len(text)

    def item(self, item: AnyItem, model: str = "") -> int:
        fields = msgspec.to_builtins(item, enc_hook=enc_hook)
        content = fields.get("content", fields.get("output", ""))
        parts = [content] if isinstance(content, str) else content
        texts = [part if isinstance(part, str) else part.get("text", "i" * 100) for part in parts]
        return 2 + sum(map(len, [*texts, fields.get("name", ""), fields.get("arguments", "")]))

    def request(self, request: CreateResponse, history: Iterable[AnyItem] = (), model: str = "") -> int:
        return 43 if request.tools else 3


EDIT_FILE = Tool(
    "edit_file",
    "Edit a file in the workspace",
    {
        "type": "object",
        "properties": {
            "filePath": {"type": "string", "description": "Path to the file to edit"},
            "code": {"type": "string", "description": "The new code content"},
            "explanation": {"type": "string", "description": "Brief explanation of the changes"},
        },
        "required": ["filePath", "code"],
    },
    lambda given: None,
)
IDENTITY = "You are Copilot, an AI coding assistant. You help developers write, understand, and improve code."
QUERY = "Add a multiply function to test.js and modify server.js to return a random joke from a collection."


def text_result(text: str, *, is_error: bool = False) -> LanguageModelToolResult:
    return LanguageModelToolResult([ToolResultTextPart(text)], is_error)


def one_round(
    number: int, response: str = "", *calls: tuple[str, str], thinking: ThinkingDataItem | None = None
) -> ToolCallRound:
    """A round with these calls, (name, arguments) each; their ids are `internal_<number>_<n>`, those of the
    model `call_<n>`, which each round repeats."""
    return ToolCallRound(
        id=f"round_{number}",
        prompt=[],
        response=response,
        tool_calls=[
            ToolCall(f"internal_{number}_{index}", name, arguments, f"call_{index}")
            for index, (name, arguments) in enumerate(calls)
        ],
        thinking=thinking,
    )


def two_edits(rounds: int = 1) -> PromptContext:
    """The seed's scenario (002, section 5), before and after its first round."""
    calls = [
        ("edit_file", '{"filePath":"test.js","code":"module.exports = { multiply };"}'),
        ("edit_file", '{"filePath":"server.js","code":"app.listen(3000);"}'),
    ]
    done = {
        "internal_1_0": text_result("Successfully edited test.js"),
        "internal_1_1": text_result("Successfully edited server.js"),
    }
    return PromptContext(
        system=[IDENTITY],
        global_context=GlobalContext(workspace_root="/project"),
        query=QUERY,
        tool_call_rounds=[one_round(1, "Let me make both changes.", *calls)][:rounds],
        tool_call_results=done,
        tools=[EDIT_FILE],
    )


def everything() -> PromptContext:
    """A prompt with one of everything that a prompt can contain."""
    thought = ThinkingDataItem("Two files.", parts=[ThinkingPart("Two files.", signature="c2ln")])
    sealed = ThinkingDataItem("", parts=[ThinkingPart(redacted="cmVk"), ThinkingPart("Then the rest.")])
    return PromptContext(
        system=["You are Copilot.", CacheBreakpointPart(), "Answer briefly.\nNo secrets."],
        global_context=GlobalContext(
            workspace_root="/project",
            folders=["src", "tests"],
            open_files=["src/main.ts", "package.json"],
            repository="example/project",
            git_branch="main",
            modified_files=["src/main.ts", "src/odd\nname.ts"],
            notes=["Language: British English", "Tests run with `npm test`."],
        ),
        history=[
            Turn(query="What is in README.md?", response="It explains the installation."),
            Turn(
                query="List the TODOs.",
                rounds=[
                    one_round(
                        1,
                        "I look for them.",
                        ("grep_search", '{"query":"TODO"}'),
                        ("list_dir", "{}"),
                        thinking=thought,
                    ),
                    one_round(2, "There are two."),
                ],
                results={
                    "internal_1_0": text_result("src/main.ts:45 TODO: errors"),
                    "internal_1_1": text_result("Error: the folder does not exist", is_error=True),
                },
            ),
        ],
        query="Make a summary of this file and of the picture.",
        attachments=[
            Attachment(
                name="notes.md", text="# Notes\n```js\n1\n```", language="md", start_line=1, end_line=4
            ),
            Attachment(name="picture.png", image=PIXEL),
        ],
        references=[
            Reference("#file:README.md", "README.md"),
            Reference("@workspace"),
            Reference("#tool:read_file"),
        ],
        tool_call_rounds=[
            one_round(3, "", ("read_file", '{"path":"README.md"}'), ("take_picture", "{}"), thinking=sealed),
        ],
        tool_call_results={
            "internal_3_0": LanguageModelToolResult(
                [ToolResultTextPart("# Project"), ToolResultTextPart("Run it.")]
            ),
            "internal_3_1": LanguageModelToolResult([ToolResultDataPart(b"\x89PNG", "image/png")]),
        },
        tools=[EDIT_FILE],
        stateful_marker="marker_2",
    )


def plain(value: Any) -> Any:
    """Return a value in terms of JSON values."""
    return msgspec.to_builtins(value)
