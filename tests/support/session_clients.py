"""Clients that send requests in the forms of Codex, Claude Code and openai-agents; each keeps its session in
its own way. `tests/clients/test_long_sessions.py` has the same sessions with the real clients."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar
from urllib.parse import quote

from tests.support.anthropic import add_up, parse_sse
from tests.support.bedrock_client import invoked
from tests.support.serving import Reply, call, violations
from tests.support.strict_sessions import Plan, prompt

Json = dict[str, Any]

LEFT = "aborted by user after 1.0s"
INTERRUPTED = {turn: "calling" if turn % 2 else "thinking" for turn in range(1, 11)}
"""The text at which the user interrupts the model in a turn, and then asks again: once for each upstream."""


def _function(name: str, **properties: Any) -> Json:
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


class SessionClient:
    """A client with its session. It sends `headers`, and offers `tools` in addition to its own; `heard` has
    the bodies of all answers, `responses` the ids of those over Responses."""

    HEADERS: ClassVar[dict[str, str]] = {}

    def __init__(self, base: str, headers: dict[str, str] | None = None, tools: Iterable[Json] = ()) -> None:
        self._base = base
        self._headers = self.HEADERS | (headers or {})
        self._more = list(tools)
        self.heard: list[bytes] = []
        self.responses: list[str] = []

    def turn(self, number: int, model: str) -> str:
        """Run a turn, and return the text that ends it."""
        raise NotImplementedError

    def post(self, path: str, **body: Any) -> Reply:
        reply = call(self._base, "POST", path, body, self._headers)
        self.heard.append(reply.body)
        assert reply.status == 200, reply.body
        return reply

    def respond(self, **request: Any) -> Reply:
        """A streamed response, checked against every rule for streams."""
        reply = self.post("/v1/responses", stream=True, **request)
        assert violations(reply) == []
        self.responses.append(reply.final["id"])
        return reply


class Codex(SessionClient):
    """Keeps the items itself, requests encrypted reasoning, and sends everything back in each request."""

    HEADERS: ClassVar = {
        "user-agent": "codex_exec/0.169.0 (Debian 12.0.0; x86_64)",
        "originator": "codex_exec",
    }
    TOOLS: ClassVar = [
        _function("exec_command", cmd=TEXT, tty={"type": "boolean", "default": False}),
        {"type": "custom", "name": "apply_patch", "description": "Edits files", "format": GRAMMAR},
        _function("view_image", path=TEXT),
        {
            "type": "namespace",
            "name": "multi_agent_v1",
            "description": "Sub-agents",
            "tools": [_function("spawn_agent", message=TEXT)],
        },
        {"type": "web_search", "external_web_access": False},
    ]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
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
        reply = self.respond(
            model=self._model,
            input=self._items,
            tools=[*self.TOOLS, *self._more],
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
        return _last_text(self._items)

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


def _tool(name: str, **properties: Any) -> Json:
    schema = {"$schema": DRAFT, "type": "object", "properties": properties, "additionalProperties": False}
    return {"name": name, "description": f"Does {name}", "input_schema": schema}


class ClaudeCode(SessionClient):
    """Keeps the messages itself, puts system messages between them, and adds text of its own after tool
    results."""

    HEADERS: ClassVar = {
        "user-agent": "claude-cli/2.1.197 (external, cli)",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "mid-conversation-system-2026-04-07",
    }
    TOOLS: ClassVar = [
        _tool("Bash", command=TEXT, timeout={"type": "number"}),
        _tool("Read", file_path=TEXT, limit={"type": "integer", "exclusiveMinimum": 0}),
        _tool("Skill", skill=TEXT, args={"type": "object", "propertyNames": TEXT}),
    ]
    SYSTEM: ClassVar = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.bd6; cc_entrypoint=cli;"},
        {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}},
    ]
    REMINDER: ClassVar = {
        "type": "text",
        "text": "<system-reminder>\nNobody used the tasks.\n</system-reminder>",
    }

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
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
            results = [self._result(each, "done") for each in reversed(calls)]
            if calls[0]["name"] == "Skill":
                results.append({"type": "text", "text": "Base directory for this skill: /tidy"})
            self._say(*results)
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
        content: list[Json] = add_up(_readable(self._answer(model)))["content"]
        self._messages.append({"role": "assistant", "content": content})
        return content

    def _answer(self, model: str) -> list[Json]:
        """The chunks of the next answer."""
        reply = self.post("/v1/messages?beta=true", model=model, stream=True, **self._asked())
        return parse_sse(reply.body)

    def _asked(self) -> Json:
        return {
            "max_tokens": 32_000,
            "system": self.SYSTEM,
            "messages": self._messages,
            "tools": self.TOOLS,
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "high"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "metadata": {"user_id": json.dumps({"session_id": "s"})},
        }


class ClaudeCodeOverBedrock(ClaudeCode):
    """Claude Code with `CLAUDE_CODE_USE_BEDROCK`: the same messages in the envelope of InvokeModel, betas in
    the body."""

    HEADERS: ClassVar = {"user-agent": ClaudeCode.HEADERS["user-agent"]}

    def _answer(self, model: str) -> list[Json]:
        own = {"anthropic_version": "bedrock-2023-05-31"}
        betas = ClaudeCode.HEADERS["anthropic-beta"].split(",")
        path = f"/model/{quote(model, safe='')}/invoke-with-response-stream"
        reply = self.post(path, anthropic_beta=betas, **own, **self._asked())
        return invoked(reply.body)


def _readable(chunks: Iterable[Json]) -> Iterator[Json]:
    """The chunks as it reads them: an input that is not JSON is put under a key."""
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


def _last_text(items: list[Json]) -> str:
    """The last text of a message, unless something other than reasoning follows it: a text's signature comes
    after the text."""
    last: Json = next((item for item in reversed(items) if item["type"] != "reasoning"), {"type": ""})
    return str(last["content"][0]["text"]) if last["type"] == "message" else ""


class Agents(SessionClient):
    """openai-agents, which sends the history itself, as the answers had it."""

    TOOLS: ClassVar = [
        _function("get_weather", city=TEXT) | {"strict": True},
        _function("get_time") | {"strict": True},
    ]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._items: list[Json] = []

    def turn(self, number: int, model: str) -> str:
        self._items.append({"role": "user", "content": prompt(number)})
        while True:
            output = self._ask(model)["output"]
            if not (calls := [item for item in output if item["type"] == "function_call"]):
                return _last_text(output)
            self._items += [
                {"type": "function_call_output", "call_id": each["call_id"], "output": "done"}
                for each in calls
            ]

    def _ask(self, model: str) -> Json:
        reply = self.respond(model=model, input=self._items, **self._settings())
        self._items += reply.final["output"]
        return reply.final

    def _settings(self) -> Json:
        reasoning = {"effort": "medium", "summary": "auto"}
        tools = [*self.TOOLS, *self._more]
        return {"instructions": "Be brief.", "tools": tools, "include": [], "reasoning": reasoning}


class AgentsOverServer(Agents):
    """openai-agents with `previous_response_id`, so that the server keeps the history."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._last: str | None = None

    def _ask(self, model: str) -> Json:
        link = {} if self._last is None else {"previous_response_id": self._last}
        reply = self.respond(model=model, input=self._items, **link, **self._settings())
        self._items = []
        self._last = reply.final["id"]
        return reply.final


CLIENTS: list[tuple[type[SessionClient], list[Plan]]] = [
    (Codex, OF_CODEX),
    (ClaudeCode, OF_CLAUDE),
    (ClaudeCodeOverBedrock, OF_CLAUDE),
    (Agents, OF_AGENTS),
    (AgentsOverServer, OF_AGENTS),
]
"""Each client, with the plans of its models."""
