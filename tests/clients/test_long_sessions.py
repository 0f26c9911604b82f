"""Long sessions of real clients that go from one upstream to the next: no upstream refuses what the others
have left in the history."""

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
from tests.support.strict_sessions import MODELS, ORDER, Plan, Strict, planned, prompt, strict_server

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
    """A home and a folder to work in."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    return home, work


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "CLAUDE"))}
    return kept | {"HOME": str(home), **more}


def test_codex_is_resumed_with_another_model_each_turn(node: Path, folders: tuple[Path, Path]) -> None:
    home, work = folders
    catalog = home / "models.json"
    models = [
        codex_model(EnrichedModelData.of(model, name), 0) | {"supports_reasoning_summaries": True}
        for name, model in MODELS.items()
    ]
    catalog.write_text(json.dumps({"models": models}))
    with strict_server(planned(OF_CODEX), store="memory://") as strict:
        (home / "config.toml").write_text(CODEX.format(base=strict.base, catalog=catalog))
        for turn, name in enumerate(ORDER, 1):
            command = [node / "node_modules" / ".bin" / "codex", "exec", "--model", MODELS[name]]
            command += ["-c", 'model_reasoning_effort="medium"', "--json", "--skip-git-repo-check"]
            done = subprocess.run(
                [*command, *(["resume", "--last"] if turn > 1 else []), prompt(turn)],
                cwd=work,
                env=environment(home, CODEX_HOME=str(home)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            assert done.returncode == 0, (turn, name, done.stdout[-3000:], strict.refused)
            assert f"Turn {turn} is done." in done.stdout
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
    [[("Skill", {"skill": "tidy"})]],  # its words come as a user's, behind the output
]
SKILL = "---\nname: tidy\ndescription: Tidy up a folder\n---\nSay that all is tidy.\n"
QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}


def test_claude_code_is_continued_with_another_model_each_turn(
    node: Path, folders: tuple[Path, Path]
) -> None:
    home, work = folders
    skill = work / ".claude" / "skills" / "tidy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(SKILL)
    plans = json.loads(json.dumps(OF_CLAUDE).replace("{work}", str(work)))
    with strict_server(planned(plans), store="memory://") as strict:
        for turn, name in enumerate(ORDER, 1):
            command = [node / "node_modules" / ".bin" / "claude", "-p", prompt(turn), "--model", MODELS[name]]
            command += ["--output-format", "json", "--permission-mode", "acceptEdits"]
            command += ["--allowedTools", "Bash,Read,Edit,Write,Skill"]
            done = subprocess.run(
                [*command, *(["--continue"] if turn > 1 else [])],
                cwd=work,
                env=environment(
                    home,
                    ANTHROPIC_BASE_URL=strict.base,
                    ANTHROPIC_AUTH_TOKEN="none",
                    ANTHROPIC_DEFAULT_HAIKU_MODEL=MODELS[name],
                    **QUIET,
                ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            assert done.returncode == 0, (turn, name, done.stdout[-3000:], strict.refused)
            assert json.loads(done.stdout)["result"] == f"Turn {turn} is done."
        strict.all_answered()


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
            said: Any = prompt(turn)
            if kept == "by the client":
                said = [*history, {"role": "user", "content": said}]
            config = agents.RunConfig(model=model)
            streamed = agents.Runner.run_streamed(agent, said, previous_response_id=last, run_config=config)
            async for _ in streamed.stream_events():
                pass
            assert streamed.final_output == f"Turn {turn} is done."
            history = streamed.to_input_list()
            last = streamed.last_response_id if kept == "by the server" else None

    asyncio.run(session())
    strict.all_answered()
