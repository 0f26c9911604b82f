"""Coding agents that can use any server of OpenAI's or Anthropic's APIs: over each API that it speaks, each
agent runs a command for a model that has only functions, and prints the model's final text.

Each has a home of its own; requests to other servers are turned off.
"""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.clients.vscode.host import NODE
from tests.support.conversation_turns import calls, said
from tests.support.serving import call, serving
from tests.support.upstream import Received, Script, ScriptedUpstream, chunk

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]

COMMAND = "echo ran > ran.txt"
TASK = "Run the command."
THOUGHT = "A command is needed."
# the tools that run a command, in the words of each client
SHELLS: dict[str, Any] = {
    "bash": {"command": COMMAND},
    "run_shell_command": {"command": COMMAND, "is_background": False},
    "run_commands": {"commands": [COMMAND]},
}


class Client(NamedTuple):
    """`files` and `variables` configure the client; `{base}` is the server's address. `shows` is what it
    prints of the reasoning, if anything; `beside` are packages that are installed with it."""

    package: str
    program: str
    arguments: tuple[str, ...]
    path: str
    variables: Mapping[str, str] = MappingProxyType({})
    files: Mapping[str, Any] = MappingProxyType({})
    before: tuple[str, ...] = ()
    shows: str = ""
    beside: tuple[str, ...] = ()


def _opencode(provider: str, path: str) -> Client:
    model = {"name": "m", "tool_call": True, "reasoning": True, "limit": {"context": 99_000, "output": 8_000}}
    options = {"baseURL": "{base}/v1", "apiKey": "none"}
    config = {
        "model": "bridge/m",
        "permission": "allow",
        "provider": {"bridge": {"npm": provider, "options": options, "models": {"m": model}}},
    }
    quiet = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return Client(
        "opencode-ai",
        "opencode",
        ("run", "--format", "json", "--thinking", TASK),
        path,
        {f"OPENCODE_DISABLE_{name}": "1" for name in quiet},
        {"work/opencode.json": config},
        shows=THOUGHT,
    )


def _pi(api: str, base: str, path: str) -> Client:
    provider = {"baseUrl": base, "api": api, "apiKey": "none", "models": [{"id": "m", "reasoning": True}]}
    return Client(
        "@earendil-works/pi-coding-agent",
        "pi",
        ("--provider", "bridge", "--model", "m", "-p", TASK),
        path,
        {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"},
        {".pi/agent/models.json": {"providers": {"bridge": provider}}},
        beside=(NODE[os.uname().machine],),
    )


def _copilot(kind: str, wire: str, base: str, path: str) -> Client:
    settings = {"BASE_URL": base, "TYPE": kind, "WIRE_API": wire, "API_KEY": "none"}
    variables = {f"COPILOT_PROVIDER_{name}": value for name, value in settings.items() if value}
    variables |= {"COPILOT_MODEL": "m", "COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false"}
    return Client("@github/copilot", "copilot", ("-p", TASK, "--allow-all-tools"), path, variables)


CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
CLIENTS = {
    "opencode, chat": _opencode("@ai-sdk/openai-compatible", CHAT),
    "opencode, responses": _opencode("@ai-sdk/openai", RESPONSES),
    "pi, chat": _pi("openai-completions", "{base}/v1", CHAT),
    "pi, responses": _pi("openai-responses", "{base}/v1", RESPONSES),
    "pi, messages": _pi("anthropic-messages", "{base}", MESSAGES),
    "copilot, chat": _copilot("openai", "completions", "{base}/v1", CHAT),
    "copilot, responses": _copilot("openai", "responses", "{base}/v1", RESPONSES),
    "copilot, messages": _copilot("anthropic", "", "{base}", MESSAGES),
    "qwen, chat": Client(
        "@qwen-code/qwen-code",
        "qwen",
        ("--auth-type", "openai", "--yolo", "-p", TASK),
        CHAT,
        {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "{base}/v1", "OPENAI_MODEL": "m"},
    ),
    "cline, chat": Client(
        "cline",
        "cline",
        ("--yolo", TASK),
        CHAT,
        before=("auth", "-p", "openai-compatible", "-k", "none", "-m", "m", "-b", "{base}/v1"),
    ),
}


def answer(received: Received) -> Script:
    """Call a command first, and then end, in the way that the client needs."""
    tools = [tool["function"]["name"] for tool in received.body.get("tools", [])]
    if any(message["role"] == "tool" for message in received.body["messages"]):
        if "submit_and_exit" in tools:
            return calls(("call_2", "submit_and_exit", {"summary": "It is all done.", "verified": True}))
        return said("It is ", "all done.")
    name = next((each for each in tools if each in SHELLS), None)
    if name is None:
        return said("A title")
    return Script([chunk(reasoning_content=THOUGHT), *calls(("call_1", name, SHELLS[name])).steps])


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_runs_a_command(
    npm: Callable[..., Path], tmp_path: Path, upstream: ScriptedUpstream, name: str
) -> None:
    client = CLIENTS[name]
    programs = npm(client.package, *client.beside)
    program = programs / client.program
    newer = [str(each.parent) for each in programs.parent.glob("node-*/bin/node")]
    upstream.answer = answer
    settings = UpstreamSettings(url=upstream.url, options={"reasoning_field": "reasoning_content"})
    (tmp_path / "work").mkdir()
    with serving(Settings(upstreams=[settings])) as base:
        for name_of_file, value in client.files.items():
            file = tmp_path / name_of_file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(value).replace("{base}", base))
        settled = {key: value.replace("{base}", base) for key, value in client.variables.items()}
        path = os.pathsep.join([*newer, os.environ["PATH"]])
        for arguments in filter(None, (client.before, client.arguments)):
            done = subprocess.run(
                [program, *(each.replace("{base}", base) for each in arguments)],
                cwd=tmp_path / "work",
                env={"PATH": path, "HOME": str(tmp_path), **settled},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=150,
                check=False,
            )
            assert done.returncode == 0, (done.stdout[-1000:], done.stderr[-1000:])
        counted = call(base, "GET", "/metrics").body.decode()
    assert f'route="{client.path}",status="200"' in counted
    assert (tmp_path / "work" / "ran.txt").read_text() == "ran\n"
    assert "all done" in done.stdout
    assert client.shows in done.stdout
