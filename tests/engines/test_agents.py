"""Codex and Claude Code over llama.cpp's server: each runs the command that the model wants and says what it
says then. The model is a tiny one that was trained to call each agent's own tool (train.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.engines import installing
from tests.engines.installing import NotInstalled
from tests.engines.programs import listening, npm_program
from tests.support.processes import free_port, run_agent

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]
CONTEXT: Final = 65536
SAID: Final = "The command was run."


class Agent(NamedTuple):
    """Its package of npm, and what makes it do a task without asking."""

    package: str
    arguments: tuple[str, ...]


AGENTS: Final = {
    "codex": Agent(
        "@openai/codex@0.169.0",
        ("exec", "--skip-git-repo-check", "-c", 'sandbox_mode="danger-full-access"', "RUNCODEX"),
    ),
    "claude": Agent("@anthropic-ai/claude-code@2.1.197", ("-p", "RUNCLAUDE", "--allowedTools", "Bash")),
}


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    """llama.cpp's server with that model, which it calls `local`."""
    try:
        program, folder = installing.llama_server(), installing.agents()
    except NotInstalled as error:
        pytest.skip(str(error))
    port = free_port()
    options: list[object] = ["-m", folder / "agents.gguf", "--chat-template-file", folder / "agents.jinja"]
    options += ["--alias", "local", "--jinja"]
    options += ["-c", CONTEXT, "-np", 1, "--temp", 0, "--port", port]
    with listening([program, *options], port, "/health") as base:
        yield base


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_runs_a_command_over_llama_cpp(llama: str, tmp_path: Path, name: str, dialect: str) -> None:
    agent = AGENTS[name]
    try:
        program = npm_program(agent.package, name)
    except NotInstalled as error:
        pytest.skip(str(error))
    profile = 'profile = "llamacpp"\n' if dialect == "chat" else ""
    config = tmp_path / "bridge.toml"
    config.write_text(f'[[upstreams]]\n{profile}url = "{llama}/v1"\ndialect = "{dialect}"\nmodel = "local"\n')
    work = tmp_path / "work"
    work.mkdir()
    options = ["--program", str(program), "--config", str(config), "--model", "local"]
    folders = {"home": tmp_path, "work": work, "data": tmp_path / "data"}
    done = run_agent(name, *options, "--", *agent.arguments, **folders, timeout=600)
    assert (work / "ran.txt").read_text() == "ran\n"
    assert SAID in done.stdout
