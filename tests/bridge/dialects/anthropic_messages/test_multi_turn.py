"""A conversation of several turns: Anthropic gets its own blocks back unchanged, in requests that keep its
rules."""

import json

import pytest

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.anthropic_messages import Inbound, to_messages
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.seal import Sealer
from tests.support.anthropic import closed, opened, start, stop, text, thinking, tool
from tests.support.anthropic_requests import PNG, blocks, roles, said, user, words
from tests.support.anthropic_rules import violations
from tests.support.machines import machine, plain

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: X"}
TOOLS = [
    {"type": "function", "name": "look", "parameters": {"type": "object"}},
    {"type": "custom", "name": "apply_patch", "format": GRAMMAR},
    {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn_child"}]},
    {"type": "shell"},
]
IMAGE = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}


class Client:
    """A client that keeps the whole history and sends it each time, with the bridge behind it."""

    def __init__(self, wire, key=b"k" * 32):
        self.wire, self.sealer = wire, Sealer(key)
        self.history = []

    def ask(self, *items, **fields):
        """The body that goes upstream, checked."""
        self.history += items
        self.identities = ToolIdentityMap()
        request_body = {
            "model": "claude-sonnet-4-5",
            "input": self.history,
            "tools": TOOLS,
            "store": False,
            **fields,
        }
        self.request = decode_request(json.dumps(request_body))
        body, self.noted = to_messages(self.request, tool_identities=self.identities, sealer=self.sealer)
        assert violations(json.loads(encode(body))) == []
        return body

    def hear(self, *frames):
        """What Anthropic answers, as the client keeps it."""
        heard = machine(self.wire, self.request, self.identities)
        inbound = Inbound(heard, self.sealer)
        for entry in frames:
            for frame in [entry] if isinstance(entry, bytes) else entry:
                inbound.feed(frame)
        inbound.close()
        assert heard.snapshot.status == "completed"
        output = plain(heard.snapshot)["output"]
        self.history += output
        return output


def answer(item, output):
    kinds = {"custom_tool_call": "custom_tool_call_output", "shell_call": "shell_call_output"}
    return {
        "type": kinds.get(item["type"], "function_call_output"),
        "call_id": item["call_id"],
        "output": output,
    }


FIRST = [
    *thinking(0, "I should ", "look.", signature="c2lnMQ=="),
    opened(1, "redacted_thinking", data="EqkE"),
    closed(1),
    *text(2, "Looking."),
    *tool(3, "toolu_1", "look", '{"at":', '"it"}'),
    *tool(4, "toolu_2", "agents__spawn_child", "{}"),
    *tool(5, "toolu_3", "apply_patch", '{"input":"*** Begin Patch\\n"}'),
    *tool(6, "toolu_4", "shell", '{"commands":["ls"]}'),
]


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
@pytest.mark.parametrize("key", [None, b"k" * 32], ids=["plain", "sealed"])
def test_signed_thinking_parallel_tools_images_and_a_namespaced_call(wire, key):
    client = Client(wire, key)
    first = client.ask(
        said("developer", "Be brief."),
        user(words("What is it?"), IMAGE),
        reasoning={"effort": "medium"},
    )
    assert [block["type"] for block in first["messages"][0]["content"]] == ["text", "image"]
    assert first["thinking"]["type"] == "enabled"

    output = client.hear(start(), FIRST, stop("tool_use"))
    calls = [item for item in output if "call_id" in item]
    assert len(calls) == 4
    pictured = [words("here"), IMAGE]
    results = [answer(item, "done") for item in calls[1:]]
    if wire == "openai":
        assert [item["type"] for item in calls[1:]] == ["function_call", "custom_tool_call", "shell_call"]
        assert (calls[1]["namespace"], calls[1]["name"]) == ("agents", "spawn_child")
        results[2]["output"] = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    second = client.ask(*reversed(results), answer(calls[0], pictured), reasoning={"effort": "medium"})

    said_before = second["messages"][1]["content"]
    assert said_before[:2] == [
        {"type": "thinking", "thinking": "I should look.", "signature": "c2lnMQ=="},
        {"type": "redacted_thinking", "data": "EqkE"},
    ]
    assert [(block["id"], block["name"], block["input"]) for block in said_before[3:]] == [
        ("toolu_1", "look", {"at": "it"}),
        ("toolu_2", "agents__spawn_child", {}),
        ("toolu_3", "apply_patch", {"input": "*** Begin Patch\n"}),
        ("toolu_4", "shell", {"commands": ["ls"]}),
    ]
    sent = second["messages"][2]["content"]
    assert [block["tool_use_id"] for block in sent] == ["toolu_1", "toolu_2", "toolu_3", "toolu_4"]
    assert [block["type"] for block in sent[0]["content"]] == ["text", "image"]
    assert second["thinking"]["type"] == "enabled"  # the calls came with signed thinking
    assert client.noted.of("loss") == []

    client.hear(start(), thinking(0, "Done.", signature="c2lnMg=="), text(1, "It is a cat."), stop())
    third = client.ask(said("user", "Thanks. And that?"), reasoning={"effort": "high"})
    signatures = [block["signature"] for block in blocks(third) if block["type"] == "thinking"]
    assert signatures == ["c2lnMQ==", "c2lnMg=="]
    assert third["messages"][:2] == second["messages"][:2]  # so that prompts are found in the cache


def test_case_31_reasoning_keeps_the_item_it_led_to():
    client = Client("openai")
    client.ask(said("user", "x"))
    client.hear(start(), thinking(0, "a", signature="s1"), tool(1, "t1", "look", "{}"), stop("tool_use"))
    client.ask(answer({"type": "function_call", "call_id": "t1"}, "ok"))
    client.hear(start(), thinking(0, "b", signature="s2"), text(1, "y"), stop())
    body = client.ask(said("user", "z"))
    kinds = [kind for role, kinds in roles(body) if role == "assistant" for kind in kinds]
    assert kinds == ["thinking", "tool_use", "thinking", "text"]


def test_a_conversation_that_lost_its_seals_goes_on_without_thinking():
    client = Client("openai")
    client.ask(said("user", "x"), reasoning={"effort": "low"})
    client.hear(start(), thinking(0, "a", signature=""), tool(1, "t1", "look", "{}"), stop("tool_use"))
    body = client.ask(answer({"type": "function_call", "call_id": "t1"}, "ok"), reasoning={"effort": "low"})
    assert "thinking" not in body
    assert [case.where for case in client.noted.of("loss")] == ["reasoning", "reasoning.effort"]
