"""The real Codex as an upstream, which uses a scripted model of this project. openai-python gets text and
a shell command from it, leaves in the middle of another response, and continues after its process was
killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.settings import CodexSettings, Settings, UpstreamSettings
from tests.support import sdks
from tests.support.conversation_turns import InTurn, calls, said
from tests.support.serving import serving
from tests.support.upstream import ScriptedUpstream

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]

CONFIG = """
model = "gpt-5.5"
model_provider = "bridge"

[model_providers.bridge]
name = "bridge"
base_url = "{base}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false
"""
SECONDS = 30.0


def children() -> set[int]:
    """The running processes of Codex's app-server that this process has started."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, *_ = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if state != "Z":
            parents[int(path.parent.name)] = int(parent)
    descendants, more = set[int](), {os.getpid()}
    while more:
        more = {pid for pid, parent in parents.items() if parent in more}
        descendants |= more
    return {pid for pid in descendants if b"app-server" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def until(reached: Any) -> None:
    end = time.monotonic() + SECONDS
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def client(node: Path, upstream: ScriptedUpstream, tmp_path: Path) -> Iterator[sdks.openai.OpenAI]:
    """A client of a server whose upstream is Codex, which uses another server, whose upstream is scripted."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    before = children()
    inner = UpstreamSettings(url=upstream.url, name="scripted")
    with serving(Settings(store="memory://", upstreams=[inner])) as model:
        (home / "config.toml").write_text(CONFIG.format(base=f"{model}/v1"))
        program = node / "node_modules" / ".bin" / "codex"
        codex = CodexSettings(
            path=str(program),
            home=str(home),
            cwd=str(work),
            env={"HOME": str(home)},
            sandbox="danger-full-access",
        )
        outer = UpstreamSettings(profile="codex", codex=codex)
        with serving(Settings(store="memory://", upstreams=[outer])) as base:
            yield sdks.openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0, timeout=60)
    until(lambda: children() <= before)


def test_text_a_command_an_interruption_and_a_killed_process(
    client: sdks.openai.OpenAI, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.scripts = InTurn(
        said("Hel", "lo."),
        calls(("call_1", "exec_command", {"cmd": "echo ran > shell.txt && echo by-the-shell"})),
        said("Done."),
    )
    messages: list[Any] = [{"role": "user", "content": "Greet me."}]
    chunks = client.chat.completions.create(model="codex", messages=messages, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Hello."
    processes = children()

    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Run it."}]
    chunks = client.chat.completions.create(model="codex", messages=messages, stream=True)
    done = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert done == "Done."
    assert (tmp_path / "work" / "shell.txt").read_text() == "ran\n"
    assert "by-the-shell" in str(upstream.received[-1].body), "its model has seen the output"
    assert "Greet me." in str(upstream.received[-1].body), "it is the same conversation"

    upstream.scripts = InTurn(calls(("call_2", "exec_command", {"cmd": "echo begun > begun.txt; sleep 60"})))
    with client.responses.create(model="codex", input="Wait.", stream=True, store=False) as events:
        for event in events:
            if event.type == "response.output_item.added" and "command" in event.item.type:
                break
        until((tmp_path / "work" / "begun.txt").exists)
    upstream.scripts = InTurn(said("After."))
    assert client.responses.create(model="codex", input="And now?").output_text == "After."
    assert children() == processes, "an interruption needs no other process"

    for pid in children():
        os.kill(pid, signal.SIGKILL)
    upstream.scripts = InTurn(said("Again."))
    messages += [{"role": "assistant", "content": done}, {"role": "user", "content": "Still there?"}]
    answer = client.chat.completions.create(model="codex", messages=messages)
    assert answer.choices[0].message.content == "Again."
    assert "Greet me." in str(upstream.received[-1].body), "with the history"
    assert "by-the-shell" not in str(upstream.received[-1].body), "as far as the client has it"


def test_a_conversation_by_its_previous_response_keeps_the_commands(
    client: sdks.openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    upstream.scripts = InTurn(
        calls(("call_1", "exec_command", {"cmd": "echo by-the-shell"})), said("Ran."), said("It said so.")
    )
    first = client.responses.create(model="codex", input="Run it.")
    assert [item.type for item in first.output] == ["codex:command_execution", "message"]
    for pid in children():
        os.kill(pid, signal.SIGKILL)
    second = client.responses.create(model="codex", input="What?", previous_response_id=first.id)
    assert second.output_text == "It said so."
    assert "by-the-shell" in str(upstream.received[-1].body)
