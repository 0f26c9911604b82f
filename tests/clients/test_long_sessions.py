"""Long sessions of real clients that change from one upstream to the next: no upstream refuses the history
that the others have produced."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.models.information import EnrichedModelData
from openresponses_server.upstreams.listing import codex_model
from tests.clients.claude_code import USES_BEDROCK
from tests.support.strict_converse import KEY, SECRET, StrictBedrock
from tests.support.strict_sessions import (
    MODELS,
    ORDER,
    Plan,
    Strict,
    planned,
    prompt,
    strict_bedrock,
    strict_server,
)

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]

PATCH = "*** Begin Patch\n*** Add File: made.txt\n+first line\n*** End Patch\n"
OF_CODEX: list[Plan] = [
    [[("exec_command", {"cmd": "echo one"})]],
    [
        [("exec_command", {"cmd": "echo two"}), ("exec_command", {"cmd": "echo three"})],
        [("apply_patch", {"input": PATCH})],
    ],
    [[("exec_command", "{cmd: no JSON}")], [("exec_command", {"cmd": "rm -f made.txt"})]],
]
CODEX = """
model_provider = "bridge"
approval_policy = "never"
sandbox_mode = "danger-full-access"
model_catalog_json = "{catalog}"

[model_providers.bridge]
name = "bridge"
base_url = "{base}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false
"""


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A home folder and a working folder."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    return home, work


def environment(home: Path, **more: str) -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "CLAUDE"))
    }
    return inherited | {"HOME": str(home), **more}


class CodexSession:
    """A session of Codex in folders of its own, whose turns may have different models."""

    def __init__(self, node: Path, folders: tuple[Path, Path], base: str, models: dict[str, str]) -> None:
        self._program = node / "node_modules" / ".bin" / "codex"
        self._home, self._work = folders
        catalog = self._home / "models.json"
        known = [
            codex_model(EnrichedModelData.of(model, name), 0) | {"supports_reasoning_summaries": True}
            for name, model in models.items()
        ]
        catalog.write_text(json.dumps({"models": known}))
        (self._home / "config.toml").write_text(CODEX.format(base=base, catalog=catalog))

    def turn(self, number: int, model: str) -> str:
        """Run a turn, and return its output."""
        command = [self._program, "exec", "--model", model]
        command += ["-c", 'model_reasoning_effort="medium"', "--json", "--skip-git-repo-check"]
        resumed = ["resume", "--last"] if number > 1 else []
        own = environment(self._home, CODEX_HOME=str(self._home))
        return output_of([*command, *resumed, prompt(number)], self._work, own)


def output_of(command: list[Any], folder: Path, variables: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-2000:])
    return done.stdout


def test_codex_is_resumed_with_another_model_each_turn(node: Path, folders: tuple[Path, Path]) -> None:
    with strict_server(planned(OF_CODEX), store="memory://") as strict:
        session = CodexSession(node, folders, strict.base, MODELS)
        for turn, name in enumerate(ORDER, 1):
            assert f"Turn {turn} is done." in session.turn(turn, MODELS[name]), strict.refused
        strict.all_answered()


OF_CLAUDE: list[Plan] = [
    [[("Bash", {"command": "echo one"})]],
    [
        [("Bash", {"command": "echo two"}), ("Bash", {"command": "echo three"})],
        [("Write", {"file_path": "{work}/made.txt", "content": "first\n"})],
    ],
    [
        [("Bash", "{command: no JSON}")],
        [("Read", {"file_path": "{work}/made.txt"})],
        [("Edit", {"file_path": "{work}/made.txt", "old_string": "first", "new_string": "second"})],
    ],
    [[("Skill", {"skill": "tidy"})]],  # Codex sends these words as a user's, after the output
]
SKILL = "---\nname: tidy\ndescription: Tidy up a folder\n---\nSay that all is tidy.\n"
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}


class ClaudeSession:
    """A session of Claude Code in folders of its own, with these variables."""

    def __init__(self, node: Path, folders: tuple[Path, Path], **variables: str) -> None:
        self._program = node / "node_modules" / ".bin" / "claude"
        self._home, self._work = folders
        self._variables = variables | QUIET
        skill = self._work / ".claude" / "skills" / "tidy" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(SKILL)
        self.plans: list[Plan] = json.loads(json.dumps(OF_CLAUDE).replace("{work}", str(self._work)))

    def turn(self, number: int, model: str, **variables: str) -> str:
        """Run a turn, and return the final text."""
        command = [self._program, "-p", prompt(number), "--model", model, "--output-format", "json"]
        command += ["--permission-mode", "acceptEdits", "--allowedTools", "Bash,Read,Edit,Write,Skill"]
        small = {"ANTHROPIC_DEFAULT_HAIKU_MODEL": model, "ANTHROPIC_SMALL_FAST_MODEL": model}
        own = environment(self._home, **self._variables, **small, **variables)
        output = output_of([*command, *(["--continue"] if number > 1 else [])], self._work, own)
        return str(json.loads(output)["result"])


def test_claude_code_is_continued_with_another_model_each_turn(
    node: Path, folders: tuple[Path, Path]
) -> None:
    session = ClaudeSession(node, folders, ANTHROPIC_AUTH_TOKEN="none")
    with strict_server(planned(session.plans), store="memory://") as strict:
        for turn, name in enumerate(ORDER, 1):
            ended = session.turn(turn, MODELS[name], ANTHROPIC_BASE_URL=strict.base)
            assert ended == f"Turn {turn} is done.", strict.refused
        strict.all_answered()


# ── Bedrock alone ──────────────────────────────────────────────────────────────────────────────────────
TURNS = 10
CLAUDE = MODELS["bedrock"]


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's credentials, with which it signs."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.mark.usefixtures("credentials")
def test_codex_has_ten_turns_over_bedrock_alone(node: Path, folders: tuple[Path, Path]) -> None:
    with strict_bedrock(planned(OF_CODEX)) as (base, bedrock):
        session = CodexSession(node, folders, base, {"bedrock": CLAUDE})
        for turn in range(1, TURNS + 1):
            assert f"Turn {turn} is done." in session.turn(turn, CLAUDE), bedrock.refused
    only_bedrock(bedrock)


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("api", ["Messages", "InvokeModel"])
def test_claude_code_has_ten_turns_over_bedrock_alone(
    node: Path, folders: tuple[Path, Path], api: str
) -> None:
    variables = USES_BEDROCK if api == "InvokeModel" else {"ANTHROPIC_AUTH_TOKEN": "none"}
    address = "ANTHROPIC_BEDROCK_BASE_URL" if api == "InvokeModel" else "ANTHROPIC_BASE_URL"
    session = ClaudeSession(node, folders, **variables)
    with strict_bedrock(planned(session.plans)) as (base, bedrock):
        for turn in range(1, TURNS + 1):
            assert session.turn(turn, CLAUDE, **{address: base}) == f"Turn {turn} is done.", bedrock.refused
    only_bedrock(bedrock)


def only_bedrock(bedrock: StrictBedrock) -> None:
    """Assert that Bedrock refused nothing and had each turn."""
    assert bedrock.refused == []
    assert {turn for turn in bedrock.strict.answered if turn} == set(range(1, TURNS + 1))


OF_AGENTS: list[Plan] = [
    [[("get_weather", {"city": "Lima"})]],
    [[("get_weather", {"city": "Lima"}), ("get_weather", {"city": "Oslo"})], [("get_time", {})]],
    [[("get_weather", "{city: no JSON}")], [("get_time", {})]],
]


@pytest.fixture
def strict() -> Iterator[Strict]:
    with strict_server(planned(OF_AGENTS), store="memory://") as running:
        yield running


@pytest.mark.parametrize("kept", ["by the client", "by the server"])
def test_openai_agents_runs_each_turn_with_another_model(strict: Strict, kept: str) -> None:
    agents = pytest.importorskip("agents")
    openai = pytest.importorskip("openai")
    agents.set_tracing_disabled(True)

    @agents.function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"12 degrees in {city}"

    @agents.function_tool
    def get_time() -> str:
        """The time."""
        return "noon"

    client = openai.AsyncOpenAI(base_url=f"{strict.base}/v1", api_key="none", max_retries=0)
    settings = agents.ModelSettings(reasoning=openai.types.Reasoning(effort="medium", summary="auto"))
    agent = agents.Agent(
        name="helper", instructions="Be brief.", tools=[get_weather, get_time], model_settings=settings
    )

    async def session() -> None:
        history: list[Any] = []
        last: str | None = None
        for turn, name in enumerate(ORDER, 1):
            model = agents.OpenAIResponsesModel(model=MODELS[name], openai_client=client)
            turn_input: Any = prompt(turn)
            if kept == "by the client":
                turn_input = [*history, {"role": "user", "content": turn_input}]
            config = agents.RunConfig(model=model)
            streamed = agents.Runner.run_streamed(
                agent, turn_input, previous_response_id=last, run_config=config
            )
            async for _ in streamed.stream_events():
                pass
            assert streamed.final_output == f"Turn {turn} is done."
            history = streamed.to_input_list()
            last = streamed.last_response_id if kept == "by the server" else None

    asyncio.run(session())
    strict.all_answered()
