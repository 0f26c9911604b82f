"""Functions of a module that the server runs, and what becomes of a response whose worker stops in one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.hosted.functions import ModuleFunctions
from openresponses_server.settings import FunctionSettings, Settings, SettingsError, UpstreamSettings
from tests.support.serving import respond, serving, stream
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk, text
from tests.support.upstream import call as tool_call

MODULE = """
from openresponses_bridge.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool
def add(a: int, b: int) -> int:
    \"\"\"Adds two numbers.\"\"\"
    return a + b


@registry.tool(tags={"read-only"})
async def broken() -> str:
    \"\"\"Breaks.\"\"\"
    raise ValueError("secret of the module")
"""


def calling(name: str, arguments: str) -> Script:
    return Script([tool_call(0, "", name, "call_1"), tool_call(0, arguments), chunk("tool_calls"), DONE])


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "tools.py"
    path.write_text(MODULE)
    return str(path)


@pytest.fixture
def functions(upstream: ScriptedUpstream, module: str) -> Iterator[str]:
    at = UpstreamSettings(url=upstream.url, name="scripted")
    with serving(Settings(upstreams=[at], functions=[FunctionSettings(module=module)])) as base:
        yield base


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_a_function_is_run_between_two_answers(functions: str, upstream: ScriptedUpstream, wire: str) -> None:
    upstream.scripts["m"] = [calling("add", '{"a":1,"b":2}'), Script(text("Three."))]
    final = stream(functions, {"openresponses-wire": wire}, model="m").final
    call, said = final["output"]
    assert call["type"].removeprefix("openai:") == "mcp_call"
    facts = {name: call[name] for name in ("server_label", "name", "arguments", "output", "status")}
    assert facts == {
        "server_label": "functions",
        "name": "add",
        "arguments": '{"a":1,"b":2}',
        "output": "3",
        "status": "completed",
    }
    assert said["content"][0]["text"] == "Three."
    # the next turn knows of it
    upstream.scripts["m"] = Script(text("Yes."))
    stream(functions, model="m", previous_response_id=final["id"])
    assert [each["role"] for each in upstream.received[-1].body["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


@pytest.mark.parametrize("arguments", ['{"a":1}', '{"a":', "[]"])
def test_wrong_arguments_are_told_to_the_model(
    functions: str, upstream: ScriptedUpstream, arguments: str
) -> None:
    upstream.scripts["m"] = [calling("add", arguments), Script(text("Well."))]
    final = stream(functions, model="m").final
    assert [item["status"] for item in final["output"]] == ["failed", "completed"]


def test_a_module_that_cant_be_used_is_named(tmp_path: Path) -> None:
    for code in ("1/0", "x = 1"):
        (tmp_path / "wrong.py").write_text(code)
        with pytest.raises(SettingsError, match=r"wrong\.py"):
            ModuleFunctions(FunctionSettings(module=str(tmp_path / "wrong.py")))


def test_other_models_are_not_offered_them(upstream: ScriptedUpstream, module: str) -> None:
    at = UpstreamSettings(url=upstream.url, name="scripted")
    given = FunctionSettings(module=module, models=["other-*"])
    upstream.scripts["m"] = Script(text("Hm."))
    with serving(Settings(upstreams=[at], functions=[given])) as base:
        assert respond(base, model="m").status == 200
    assert "tools" not in upstream.received[-1].body


def test_it_needs_no_tool_of_the_request_and_says_nothing_of_itself(
    functions: str, upstream: ScriptedUpstream
) -> None:
    upstream.scripts["m"] = [calling("broken", ""), Script(text("Well."))]
    reply: Any = stream(functions, model="m")
    assert reply.final["tools"] == []
    assert reply.final["output"][0]["error"]
    assert json.dumps(reply.final).count("Traceback") == 0
