"""Long sessions that go from one upstream to the next, in the shapes that Codex, Claude Code and
openai-agents send: no upstream refuses what the others have left in the history.

`tests/clients/test_long_sessions.py` has the same with the real clients.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import pytest

from tests.support.anthropic import add_up, parse_sse
from tests.support.serving import call, stream
from tests.support.strict_sessions import MODELS, ORDER, Plan, planned, prompt, strict_server

pytestmark = pytest.mark.timeout(120)
Json = dict[str, Any]

LEFT = "aborted by user after 1.0s"
INTERRUPTED = {turn: "calling" if turn % 2 else "thinking" for turn in range(1, 11)}
"""At what the user interrupts the model in a turn, and then asks again: each upstream is at both once."""


def function(name: str, **properties: Any) -> Json:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {
        "type": "function",
        "name": name,
        "description": f"Does {name}",
        "strict": False,
        "parameters": schema,
    }


TEXT = {"type": "string"}
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+first line\n*** End Patch\n"
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
OF_CODEX: list[Plan] = [
    [[("exec_command", {"cmd": "ls"})], [("apply_patch", {"input": PATCH})]],
    [
        [("exec_command", {"cmd": "ls"}), ("exec_command", {"cmd": "pwd"})],
        [("multi_agent_v1__spawn_agent", {"message": "Look."})],
    ],
    [[("exec_command", "{cmd: no JSON}")], [("view_image", {"path": "a.png"})]],
]
PICTURE = "data:image/png;base64,iVBORw0KGgo="


class Codex:
    """It keeps the items itself, asks for encrypted reasoning and sends everything back each time."""

    HEADERS: ClassVar = {
        "user-agent": "codex_exec/0.169.0 (Debian 12.0.0; x86_64)",
        "originator": "codex_exec",
    }
    TOOLS: ClassVar = [
        function("exec_command", cmd=TEXT, tty={"type": "boolean", "default": False}),
        {"type": "custom", "name": "apply_patch", "description": "Edits files", "format": GRAMMAR},
        function("view_image", path=TEXT),
        {
            "type": "namespace",
            "name": "multi_agent_v1",
            "description": "Sub-agents",
            "tools": [function("spawn_agent", message=TEXT)],
        },
        {"type": "web_search", "external_web_access": False},
    ]

    def __init__(self, base: str) -> None:
        self._base = base
        self._session = str(uuid.uuid4())
        self._model = ""
        self._items = [
            self._said("developer", "You are a coding agent."),
            self._said(
                "developer", "<skills_instructions>…</skills_instructions>", "<permissions instructions>"
            ),
            self._said("user", "<environment_context>\n  <shell>bash</shell>\n</environment_context>"),
        ]

    def turn(self, number: int, model: str) -> str:
        """The text that ends the turn."""
        if self._model not in ("", model):
            self._items.append(self._said("developer", "<model_switch>\nAnother model from now on."))
            self._items.append(self._said("developer", "<skills_instructions>", "<tools>\nFewer.\n</tools>"))
        self._model = model
        self._items.append(self._said("user", prompt(number)))
        if number in INTERRUPTED:
            before = len(self._items)
            self._ask()
            if INTERRUPTED[number] == "thinking":
                del self._items[before + 1 :]
            self._items += [self._output(each, LEFT) for each in self._unanswered()]
            self._items.append(self._said("user", "<turn_aborted>\nThe user interrupted."))
            self._items.append(self._said("user", f"{prompt(number)} Now!"))
        while True:
            text = self._ask()
            if not (calls := self._unanswered()):
                return text
            self._items += [self._output(each, "Output:\ndone\n") for each in calls]

    def _ask(self) -> str:
        reply = stream(
            self._base,
            {**self.HEADERS, "session-id": self._session},
            model=self._model,
            input=self._items,
            tools=self.TOOLS,
            tool_choice="auto",
            parallel_tool_calls=True,
            reasoning={"effort": "medium", "summary": "auto"},
            store=False,
            include=["reasoning.encrypted_content"],
            prompt_cache_key=self._session,
            client_metadata={"session_id": self._session},
        )
        self._items += [
            self._kept(event["item"])
            for event in reply.events
            if event["type"] == "response.output_item.done"
        ]
        last = self._items[-1]
        return str(last["content"][0]["text"]) if last["type"] == "message" else ""

    def _kept(self, item: Json) -> Json:
        if item["type"] == "reasoning":
            return item | {name: item.get(name) for name in ("content", "encrypted_content")}
        return item

    def _unanswered(self) -> list[Json]:
        answered = {item["call_id"] for item in self._items if item["type"].endswith("_output")}
        return [
            item for item in self._items if item["type"].endswith("_call") and item["call_id"] not in answered
        ]

    def _output(self, called: Json, text: str) -> Json:
        kind = f"{called['type']}_output"
        shown: Any = text
        if called.get("name") == "view_image" and text != LEFT:
            shown = [{"type": "input_image", "image_url": PICTURE}]
        prefix = "ctco" if kind.startswith("custom") else "fco"
        return {"type": kind, "id": f"{prefix}_{uuid.uuid4()}", "call_id": called["call_id"], "output": shown}

    @staticmethod
    def _said(role: str, *texts: str) -> Json:
        content = [{"type": "input_text", "text": text} for text in texts]
        return {"type": "message", "id": f"msg_{uuid.uuid4()}", "role": role, "content": content}


OF_CLAUDE: list[Plan] = [
    [[("Bash", {"command": "ls"})]],
    [[("Bash", {"command": "ls"}), ("Bash", {"command": "pwd"})], [("Read", {"file_path": "/a.png"})]],
    [[("Bash", "{command: no JSON}")], [("Skill", {"skill": "tidy"})]],
]
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def tool(name: str, **properties: Any) -> Json:
    schema = {"$schema": DRAFT, "type": "object", "properties": properties, "additionalProperties": False}
    return {"name": name, "description": f"Does {name}", "input_schema": schema}


class ClaudeCode:
    """It keeps the messages itself, puts system messages between them and words of its own behind results."""

    HEADERS: ClassVar = {
        "user-agent": "claude-cli/2.1.197 (external, cli)",
        "anthropic-version": "2023-06-01",
    }
    TOOLS: ClassVar = [
        tool("Bash", command=TEXT, timeout={"type": "number"}),
        tool("Read", file_path=TEXT, limit={"type": "integer", "exclusiveMinimum": 0}),
        tool("Skill", skill=TEXT, args={"type": "object", "propertyNames": TEXT}),
    ]
    SYSTEM: ClassVar = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.bd6; cc_entrypoint=cli;"},
        {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}},
    ]
    REMINDER: ClassVar = {
        "type": "text",
        "text": "<system-reminder>\nNobody used the tasks.\n</system-reminder>",
    }

    def __init__(self, base: str) -> None:
        self._base = base
        self._messages: list[Json] = []

    def turn(self, number: int, model: str) -> str:
        self._say(dict(self.REMINDER), {"type": "text", "text": prompt(number)})
        self._messages.append({"role": "system", "content": "Available agent types: …"})
        if number in INTERRUPTED:
            content = self._ask(model)
            if INTERRUPTED[number] == "thinking":
                del content[1:]
            stopped = {"type": "text", "text": "[Request interrupted by user]"}
            self._say(*(self._result(each, LEFT) for each in self._called(content)), stopped)
            self._say({"type": "text", "text": f"{prompt(number)} Now!"})
        while calls := self._called(content := self._ask(model)):
            told = [self._result(each, "done") for each in reversed(calls)]
            if calls[0]["name"] == "Skill":
                told.append({"type": "text", "text": "Base directory for this skill: /tidy"})
            self._say(*told)
            if number % 3 == 0:
                self._messages.append({"role": "system", "content": "Nobody used the tasks."})
        return str(content[-1]["text"])

    def _say(self, *blocks: Json) -> None:
        self._messages.append({"role": "user", "content": list(blocks)})

    def _called(self, content: list[Json]) -> list[Json]:
        return [block for block in content if block["type"] == "tool_use"]

    def _result(self, called: Json, text: str) -> Json:
        shown: Any = text
        if called["name"] == "Read" and text != LEFT:
            source = {"type": "base64", "media_type": "image/png", "data": PICTURE.partition(",")[2]}
            shown = [{"type": "image", "source": source}]
        return {
            "type": "tool_result",
            "tool_use_id": called["id"],
            "content": shown,
            "is_error": text == LEFT,
        }

    def _ask(self, model: str) -> list[Json]:
        body = {
            "model": model,
            "max_tokens": 32_000,
            "system": self.SYSTEM,
            "messages": self._messages,
            "tools": self.TOOLS,
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "high"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "metadata": {"user_id": json.dumps({"session_id": "s"})},
            "stream": True,
        }
        reply = call(self._base, "POST", "/v1/messages?beta=true", body, self.HEADERS)
        assert reply.status == 200, reply.body
        content: list[Json] = add_up(readable(parse_sse(reply.body)))["content"]
        self._messages.append({"role": "assistant", "content": content})
        return content


def readable(chunks: Iterable[Json]) -> Iterator[Json]:
    """The chunks as it reads them: an input that is no JSON is put under a key."""
    pieces: list[str] = []
    for chunk in chunks:
        if chunk.get("delta", {}).get("type") == "input_json_delta":
            pieces.append(chunk["delta"]["partial_json"])
            continue
        if chunk["type"] == "content_block_stop" and pieces:
            text = "".join(pieces)
            pieces = []
            if text == "{command: no JSON}":
                text = json.dumps({"__unparsedToolInput": {"raw": text, "len": len(text)}})
            delta = {"type": "input_json_delta", "partial_json": text}
            yield {"type": "content_block_delta", "index": chunk["index"], "delta": delta}
        yield chunk


OF_AGENTS: list[Plan] = [
    [[("get_weather", {"city": "Lima"})]],
    [[("get_weather", {"city": "Lima"}), ("get_weather", {"city": "Oslo"})], [("get_time", {})]],
    [[("get_weather", "{city: no JSON}")], [("get_time", {})]],
]


class Agents:
    """openai-agents: the history by itself, as it was answered."""

    TOOLS: ClassVar = [
        function("get_weather", city=TEXT) | {"strict": True},
        function("get_time") | {"strict": True},
    ]

    def __init__(self, base: str) -> None:
        self._base = base
        self._items: list[Json] = []

    def turn(self, number: int, model: str) -> str:
        self._items.append({"role": "user", "content": prompt(number)})
        while True:
            output = self._ask(model)["output"]
            if not (calls := [item for item in output if item["type"] == "function_call"]):
                return str(output[-1]["content"][0]["text"])
            self._items += [
                {"type": "function_call_output", "call_id": each["call_id"], "output": "done"}
                for each in calls
            ]

    def _ask(self, model: str) -> Json:
        reply = stream(self._base, model=model, input=self._items, **self._settings())
        self._items += reply.final["output"]
        return reply.final

    def _settings(self) -> Json:
        reasoning = {"effort": "medium", "summary": "auto"}
        return {"instructions": "Be brief.", "tools": self.TOOLS, "include": [], "reasoning": reasoning}


class AgentsOverServer(Agents):
    """With `previous_response_id`, so that the history is the server's."""

    def __init__(self, base: str) -> None:
        super().__init__(base)
        self._last: str | None = None

    def _ask(self, model: str) -> Json:
        link = {} if self._last is None else {"previous_response_id": self._last}
        reply = stream(self._base, model=model, input=self._items, **link, **self._settings())
        self._items = []
        self._last = reply.final["id"]
        return reply.final


@pytest.mark.parametrize(
    ("client", "plans"),
    [(Codex, OF_CODEX), (ClaudeCode, OF_CLAUDE), (Agents, OF_AGENTS), (AgentsOverServer, OF_AGENTS)],
)
def test_no_upstream_refuses_what_others_have_left(client: Any, plans: list[Plan]) -> None:
    with strict_server(planned(plans), store="memory://") as strict:
        session = client(strict.base)
        for turn, name in enumerate(ORDER, 1):
            assert session.turn(turn, MODELS[name]) == f"Turn {turn} is done.", (turn, strict.refused)
        strict.all_answered()
