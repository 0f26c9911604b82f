"""A conversation of several turns with a Chat upstream: every request keeps that API's rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.unwrap import wrap_input
from openresponses_bridge.dialects.chat_completions import Inbound, to_chat
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.protocol.events import CustomToolCallInputDelta
from openresponses_bridge.seal import Sealer
from tests.support.chat import calls, chunk
from tests.support.chat import part as fragment
from tests.support.chat_rules import violations
from tests.support.machines import WIRES, machine, plain

Json = dict[str, Any]
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0=", "detail": "auto"}
TOOLS = [
    {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}},
    {"type": "custom", "name": "apply_patch"},
    {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn_child"}]},
    {"type": "shell"},
]
ANSWERS = {"custom_tool_call": "custom_tool_call_output", "shell_call": "shell_call_output"}


def part(index: int, call_id: str | None = None, name: str | None = None, arguments: str = "") -> Json:
    return fragment(arguments, name=name, id=call_id, index=index)


class Client:
    """Keeps the whole history and sends it each time."""

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self.history: list[Json] = []

    def ask(self, *items: Json) -> Json:
        """The body that goes upstream, checked."""
        self.history += items
        self.identities = ToolIdentityMap()
        body = {"model": "m", "input": self.history, "tools": TOOLS, "store": False}
        self.request = decode_request(json.dumps(body))
        chat, self.noted = to_chat(self.request, tool_identities=self.identities)
        sent: Json = json.loads(encode(chat))
        assert violations(sent) == []
        return sent

    def hear(self, *frames: bytes) -> list[Json]:
        """What the upstream answers, as the client keeps it."""
        heard = machine(self.wire, self.request, self.identities)
        inbound = Inbound(heard)
        for frame in frames:
            inbound.feed(frame)
        inbound.close()
        assert heard.snapshot.status == "completed"
        output: list[Json] = plain(heard.snapshot)["output"]
        self.history += output
        return output


def answer(call: Json, output: Any) -> Json:
    return {
        "type": ANSWERS.get(call["type"], "function_call_output"),
        "call_id": call["call_id"],
        "output": output,
    }


@pytest.mark.parametrize("wire", WIRES)
def test_thinking_parallel_tools_images_and_a_namespaced_call(wire: str) -> None:
    client = Client(wire)
    names = {tool["function"]["name"] for tool in client.ask({"role": "user", "content": "Hi"})["tools"]}
    assert names == {"look", "apply_patch", "agents__spawn_child", "shell"}
    thought = Sealer(b"k" * 32).seal(b'{"thinking":"I should look."}', "thinking")
    client.history = [{"type": "reasoning", "summary": [], "encrypted_content": thought}]
    client.ask({"role": "developer", "content": "Be brief."}, {"role": "user", "content": [IMAGE]})
    output = client.hear(
        chunk(reasoning_content="Look."),
        chunk(content="Looking."),
        calls(part(0, "c1", "look", "{}"), part(1, "c2", "agents__spawn_child", "{}")),
        calls(
            part(2, "c3", "apply_patch", wrap_input("*** Begin Patch")),
            part(3, "c4", "shell", '{"commands":["ls"]}'),
        ),
        chunk("tool_calls"),
        b"[DONE]",
    )
    reported = [item for item in output if "call_id" in item]
    assert len(reported) == 4
    if wire == "openai":
        assert [item["type"] for item in reported[1:]] == ["function_call", "custom_tool_call", "shell_call"]
        assert (reported[1]["namespace"], reported[1]["name"]) == ("agents", "spawn_child")
    printed: Any = "a"
    if reported[3]["type"] == "shell_call":
        printed = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    pictured = [{"type": "input_text", "text": "here"}, IMAGE]
    second = client.ask(
        answer(reported[3], printed),
        answer(reported[2], "done"),
        answer(reported[1], "born"),
        answer(reported[0], pictured),
    )
    turn = next(message for message in second["messages"] if message.get("tool_calls"))
    assert [call["function"]["name"] for call in turn["tool_calls"]] == [
        "look",
        "agents__spawn_child",
        "apply_patch",
        "shell",
    ]
    assert json.loads(turn["tool_calls"][2]["function"]["arguments"]) == {"input": "*** Begin Patch"}
    shown = second["messages"][-1]
    assert (shown["role"], shown["content"][-1]["type"]) == ("user", "image_url")  # tools can't show pictures
    client.hear(chunk(content="Done."), chunk("stop"), b"[DONE]")
    client.ask({"role": "user", "content": "Thanks."})


def test_e11_a_patch_streams_before_its_call_is_half_through() -> None:
    client = Client("openai")
    client.ask({"role": "user", "content": "Hi"})
    heard = machine("openai", client.request, client.identities)
    inbound = Inbound(heard)
    patch = "*** Begin Patch\n" + "+ a line of it\n" * 60 + "*** End Patch\n"
    arguments = wrap_input(patch)
    pieces = [arguments[at : at + 10] for at in range(0, len(arguments), 10)]
    inbound.feed(calls(part(0, "c1", "apply_patch", "")))
    came = [
        [
            event
            for event in inbound.feed(calls(part(0, arguments=piece)))
            if type(event) is CustomToolCallInputDelta
        ]
        for piece in pieces
    ]
    first = next(at for at, events in enumerate(came) if events)
    assert first < len(pieces) // 2
    inbound.feed(chunk("tool_calls"))
    inbound.feed(b"[DONE]")
    assert "".join(event.delta for events in came for event in events) == patch
    assert plain(heard.snapshot)["output"][0]["input"] == patch


def test_the_checker_sees_what_is_wrong() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    wrong: list[Json] = [
        {"messages": []},
        {"messages": [{"role": "user", "content": " "}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": [{"type": "refusal", "refusal": "x"}]}]},
        {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]},
        {"messages": [{"role": "assistant", "tool_calls": [call]}]},
        {"messages": [{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": "x"}]},
        {"messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": "a b"}}]},
        {"messages": [{"role": "user", "content": "x"}], "tool_choice": "auto"},
    ]
    assert all(violations(body) for body in wrong)
