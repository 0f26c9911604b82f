"""`run codex`, `run claude`, `run gemini` and `run opencode`: the real agents, over models that have only
functions and answer by rules.

Each agent does a task with a shell command, an edit and a sub-agent; Codex also uses an MCP server's tools,
searches for tools, and summarises its history in between. The user's own configuration would break the agent
if it were read.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from openresponses_bridge.models.information import EnrichedModelData
from openresponses_bridge.protocol.usage import InputTokensDetails, OutputTokensDetails, Usage
from openresponses_cli.commands.cli import main
from openresponses_server.settings import Capabilities, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from openresponses_server.upstreams.listing import codex_model
from tests.support.loops import Answer
from tests.support.mcp_weather_options import MCP
from tests.support.processes import run_agent
from tests.support.rules_of_models import Rule, Seen, named, ruled
from tests.support.serving import serving
from tests.support.upstream import ScriptedUpstream

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]

PATCH = "*** Begin Patch\n*** Update File: notes.txt\n@@\n-first\n+changed\n*** End Patch\n"
SHELL = "echo ran > shell.txt; echo key: ${OPENRESPONSES_BRIDGE_KEY:-none}"
DIALECTS = ("chat", "anthropic", "gemini")


class Runner:
    """A user with a folder, a home and a data folder; `run` starts an agent over the upstream, or over the
    demo model."""

    def __init__(self, node: Path, upstream: ScriptedUpstream | None, folder: Path, dialect: str) -> None:
        self.programs = node / "node_modules" / ".bin"
        self._upstream = upstream
        self._dialect = dialect
        self.home = folder / "home"
        self.data = folder / "data"
        self.work = folder / "work"
        for each in (self.home, self.data, self.work):
            each.mkdir()
        (self.work / "notes.txt").write_text("first\n")
        for name, text in (
            (".codex/config.toml", "this is not TOML ["),
            (".claude/settings.json", '{"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}}'),
        ):
            (self.home / name).parent.mkdir()
            (self.home / name).write_text(text)

    def run(self, agent: str, *arguments: str, model: str = "scripted") -> subprocess.CompletedProcess[str]:
        options = [
            "--no-probe",
            "--program",
            str(self.programs / agent),
        ]  # the scripts answer the agent alone
        if self._upstream is not None:
            options += ["--upstream", self._upstream.url, "--dialect", self._dialect]
        options += ["--model", model, "--", *arguments]
        return run_agent(agent, *options, home=self.home, work=self.work, data=self.data)

    def codex(self, *arguments: str, model: str = "scripted") -> list[dict[str, Any]]:
        """Run `codex exec` with a task, and return its events."""
        full = ("-c", 'sandbox_mode="danger-full-access"')
        words = ("exec", "--json", "--skip-git-repo-check", *full, *arguments, "Do the task.")
        lines = self.run("codex", *words, model=model).stdout.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def catalog(self, **changed: Any) -> tuple[str, ...]:
        """Options for Codex with a catalogue that describes the model differently."""
        entry = codex_model(EnrichedModelData.of("scripted", "here"), 0) | changed
        path = self.home / "models.json"
        path.write_text(json.dumps({"models": [entry]}))
        return ("-c", f"model_catalog_json={json.dumps(str(path))}")

    def rule(self, rule: Rule) -> None:
        """The rule by which the model of this agent answers."""
        assert self._upstream is not None
        self._upstream.answer = ruled(self._dialect, rule)


@pytest.fixture(params=DIALECTS)
def runner(request: pytest.FixtureRequest, node: Path, upstream: ScriptedUpstream, tmp_path: Path) -> Runner:
    return Runner(node, upstream, tmp_path, request.param)


def codex_with_a_sub_agent(seen: Seen) -> Answer:
    if "The sub-agent's part." in seen.asked:
        if "child" not in seen.results:
            return Answer(calls=[("child", "exec_command", {"cmd": "echo child > child.txt"})])
        return Answer("The part is done.")
    if "shell" not in seen.results:
        return Answer("First a command.", calls=[("shell", "exec_command", {"cmd": SHELL})])
    assert "key: none" in seen.results["shell"]
    if "patch" not in seen.results:
        return Answer(calls=[("patch", "apply_patch", {"input": PATCH})])
    if "spawn" not in seen.results:
        task = {"message": "The sub-agent's part."}
        return Answer(calls=[("spawn", named(seen, "spawn_agent"), task)])
    if "wait" not in seen.results:
        child = json.loads(seen.results["spawn"])["agent_id"]
        return Answer(calls=[("wait", named(seen, "wait_agent"), {"targets": [child], "timeout_ms": 60_000})])
    assert "The part is done." in seen.results["wait"], seen.results["wait"]
    return Answer("All done.")


def test_codex_does_a_task_with_a_command_a_patch_and_a_sub_agent(runner: Runner) -> None:
    runner.rule(codex_with_a_sub_agent)
    events = runner.codex()
    assert (runner.work / "shell.txt").read_text() == "ran\n"
    assert (runner.work / "notes.txt").read_text() == "changed\n"
    assert (runner.work / "child.txt").read_text() == "child\n"
    assert messages(events)[-1] == "All done."


def claude_with_a_sub_agent(seen: Seen) -> Answer:
    if "The sub-agent's part." in seen.asked and "shell" not in seen.results:
        if "child" not in seen.results:
            return Answer(calls=[("child", "Bash", {"command": "echo child > child.txt"})])
        return Answer("The part is done.")
    if "Do the task." not in seen.asked:
        return Answer("A title.")  # besides the task, it sends small requests of its own
    if "shell" not in seen.results:
        return Answer(
            "First a command.", calls=[("shell", "Bash", {"command": "echo ran | tee shell.txt; pwd"})]
        )
    path = str(Path(seen.results["shell"].split()[-1]) / "notes.txt")
    if "read" not in seen.results:
        return Answer(calls=[("read", "Read", {"file_path": path})])
    if "edit" not in seen.results:
        change = {"file_path": path, "old_string": "first", "new_string": "changed"}
        return Answer(calls=[("edit", "Edit", change)])
    if "spawn" not in seen.results:
        task = {
            "description": "A part",
            "prompt": "The sub-agent's part.",
            "subagent_type": "general-purpose",
        }
        return Answer(calls=[("spawn", "Agent", task | {"run_in_background": False})])
    assert "The part is done." in seen.results["spawn"], seen.results["spawn"]
    return Answer("All done.")


def test_claude_does_a_task_with_a_command_an_edit_and_a_sub_agent(runner: Runner) -> None:
    runner.rule(claude_with_a_sub_agent)
    allowed = ("--permission-mode", "acceptEdits", "--allowedTools", "Bash,Read,Edit,Agent")
    done = runner.run("claude", "-p", "Do the task.", "--output-format", "json", *allowed)
    result = json.loads(done.stdout)
    assert result["result"] == "All done.", result
    assert (runner.work / "shell.txt").read_text() == "ran\n"
    assert (runner.work / "notes.txt").read_text() == "changed\n"
    assert (runner.work / "child.txt").read_text() == "child\n"


def codex_with_an_mcp_server(seen: Seen) -> Answer:
    if "forecast" not in seen.results:
        return Answer(calls=[("forecast", named(seen, "get_forecast"), {"city": "Lima"})])
    return Answer(f"It says: {seen.results['forecast']}")


def test_codex_calls_a_namespaced_tool_of_an_mcp_server(runner: Runner) -> None:
    runner.rule(codex_with_an_mcp_server)
    texts = messages(runner.codex(*MCP))
    assert "Rain in Lima tomorrow" in texts[-1]


def codex_that_searches(seen: Seen) -> Answer:
    """It finds a tool, whose output fills the window; then it summarises the history and continues from the
    summary."""
    if "CHECKPOINT" in seen.asked:
        return Answer(f"So far: {seen.last}")
    if "So far:" not in seen.asked:
        if "search" not in seen.results:
            assert not [name for name in seen.tools if name.endswith("get_forecast")]
            return Answer(calls=[("search", "tool_search", {"query": "weather forecast"})])
        full = Usage(120_000, 5, 120_005, InputTokensDetails(0), OutputTokensDetails(0))
        return Answer(calls=[("forecast", named(seen, "get_forecast"), {"city": "Lima"})], usage=full)
    assert "forecast" not in seen.results
    if "shell" not in seen.results:
        return Answer(calls=[("shell", "exec_command", {"cmd": "echo ran > shell.txt"})])
    return Answer(f"All done. {seen.asked.splitlines()[-1]}")


def test_codex_searches_for_a_tool_and_goes_on_after_a_summary(runner: Runner) -> None:
    runner.rule(codex_that_searches)
    texts = messages(runner.codex(*MCP, *runner.catalog(supports_search_tool=True)))
    assert texts[-1].startswith("All done.")
    assert "Rain in Lima tomorrow" in texts[-1]
    assert (runner.work / "shell.txt").read_text() == "ran\n"


def codex_with_a_sub_agent_that_has_a_path(seen: Seen) -> Answer:
    """Codex's newer sub-agents have paths as names, and items of their own for tasks and answers."""
    if "The part is done." in seen.asked:
        return Answer("All done.")
    if "The sub-agent's part." in seen.asked:
        if "child" not in seen.results:
            return Answer(calls=[("child", "exec_command", {"cmd": "echo child > child.txt"})])
        return Answer("The part is done.")
    if "spawn" not in seen.results:
        task = {"task_name": "part", "message": "The sub-agent's part."}
        properties = seen.tools[named(seen, "spawn_agent")].get("properties", {})
        more = {"fork_turns": "none"} if "fork_turns" in properties else {}
        return Answer(calls=[("spawn", named(seen, "spawn_agent"), task | more)])
    waits = sum(name.startswith("wait") for name in seen.results)
    assert waits < 5, seen.results
    return Answer(calls=[(f"wait{waits}", named(seen, "wait_agent"), {"timeout_ms": 10_000})])


def test_codex_gives_a_newer_sub_agent_its_task(runner: Runner) -> None:
    runner.rule(codex_with_a_sub_agent_that_has_a_path)
    texts = messages(runner.codex(*runner.catalog(multi_agent_version="v2")))
    assert texts[-1] == "All done."
    assert (runner.work / "child.txt").read_text() == "child\n"


def test_codex_asks_for_its_models_itself_and_can_read_them(
    node: Path, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    """The key comes from a command that prints it."""
    known = Capabilities(context_window=32_768, reasoning=True)
    mine = UpstreamSettings(url=upstream.url, models=["mine"])
    keys = [hashed("k-1")]
    settings = Settings(store="memory://", upstreams=[mine], models={"mine": known}, api_keys=keys)
    with serving(settings) as base:
        provider = (
            f'{{name="b",base_url="{base}/v1",wire_api="responses",auth={{command="echo",args=["k-1"]}}}}'
        )
        flags = ("-c", 'model_provider="b"', "-c", f"model_providers.b={provider}")
        done = subprocess.run(
            [node / "node_modules" / ".bin" / "codex", *flags, "debug", "models"],
            env={**os.environ, "CODEX_HOME": str(tmp_path), "RUST_LOG": "warn"},
            capture_output=True,
            text=True,
            timeout=90,
            check=True,
        )
    models = {each["slug"]: each for each in json.loads(done.stdout)["models"]}
    assert models["mine"]["context_window"] == 32_768
    assert [each["effort"] for each in models["mine"]["supported_reasoning_levels"]] == [
        "low",
        "medium",
        "high",
    ]
    assert "failed to" not in done.stderr
    assert "Unknown model" not in done.stderr


def test_what_print_config_says_works_for_codex(
    node: Path, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    home = tmp_path / ".codex"
    home.mkdir()
    upstream.answer = ruled("chat", lambda seen: Answer(f"Here: {'apply_patch' in seen.tools}"))
    mine = UpstreamSettings(url=upstream.url, models=["mine"])
    with serving(Settings(store="memory://", upstreams=[mine], api_keys=[hashed("k-1")])) as base:
        words = ["run", "codex", "--print-config", "--server", base, "--key-env", "K", "--model", "mine"]
        shown = CliRunner().invoke(main, words).output
        config, _, shell = shown.partition("# Then, in a shell:\n")
        (home / "config.toml").write_text(config)
        task = "exec --skip-git-repo-check 'Do it.' < /dev/null"
        codex = node / "node_modules" / ".bin" / "codex"
        lines = shell.replace("YOUR_KEY", "k-1").replace("\ncodex\n", f"\n{codex} {task}\n")
        done = subprocess.run(
            ["sh", "-ec", lines],
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "Here: True"


def messages(events: list[dict[str, Any]]) -> list[str]:
    """The messages of the agent."""
    items = [each["item"] for each in events if each["type"] == "item.completed"]
    return [item["text"] for item in items if item["type"] == "agent_message"]


def of_gemini(seen: Seen) -> Answer:
    if "shell" not in seen.results:
        return Answer(
            "First a command.", calls=[("shell", "run_shell_command", {"command": "echo ran > shell.txt"})]
        )
    if "edit" not in seen.results:
        edit = {
            "file_path": "notes.txt",
            "instruction": "Change it.",
            "old_string": "first",
            "new_string": "changed",
        }
        read = {"file_path": "notes.txt"}
        return Answer(calls=[("edit", "replace", edit), ("read", "read_file", read)])
    return Answer("All done.")


def test_gemini_cli_does_a_task_with_a_command_and_an_edit(
    node: Path, npm: Any, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    for dialect in DIALECTS:
        upstream.received.clear()
        (tmp_path / dialect).mkdir()
        runner = Runner(node, upstream, tmp_path / dialect, dialect)
        runner.programs = npm("@google/gemini-cli")
        runner.rule(of_gemini)
        done = runner.run("gemini", "--yolo", "--skip-trust", "-p", "Do the task.")
        assert (runner.work / "shell.txt").read_text() == "ran\n"
        assert (runner.work / "notes.txt").read_text() == "changed\n"
        assert "All done." in done.stdout
        if dialect == "gemini":
            assert all("/models/scripted:" in each.path for each in upstream.received)
            assert "functionCall" in str(upstream.received[-1].body)
        else:
            assert {each.body["model"] for each in upstream.received} == {"scripted"}


def test_gemini_cli_calls_a_tool_of_the_demo(node: Path, npm: Any, tmp_path: Path) -> None:
    runner = Runner(node, None, tmp_path, "chat")
    runner.programs = npm("@google/gemini-cli")
    done = runner.run("gemini", "--skip-trust", "-p", "Use a tool", model="demo")
    assert done.stdout.strip().startswith("The tool answered:")


OVER_THE_DEMO = {
    "codex": ("@openai/codex", ("exec", "--skip-git-repo-check")),
    "claude": ("@anthropic-ai/claude-code", ("-p",)),
    "gemini": ("@google/gemini-cli", ("--skip-trust", "-p")),
    "opencode": ("opencode-ai", ("run",)),
}


@pytest.mark.parametrize("agent", OVER_THE_DEMO)
def test_each_agent_ends_a_turn_with_the_demo_in_a_git_repository(
    node: Path, npm: Any, tmp_path: Path, agent: str
) -> None:
    """Their reminders name tools and agents, for which the demo would otherwise ask again and again."""
    package, words = OVER_THE_DEMO[agent]
    runner = Runner(node, None, tmp_path, "chat")
    if not (node / "node_modules" / package).exists():
        runner.programs = npm(package)
    subprocess.run(["git", "init", "-q", runner.work], check=True)
    done = runner.run(agent, *words, "Use a tool: run an agent with a task", model="demo")
    assert "The tool answered:" in done.stdout
    (log,) = (runner.data / "openresponses-bridge" / "agents" / "logs").iterdir()
    assert 2 <= log.read_text().count('"event":"response"') <= 8


def of_opencode(seen: Seen) -> Answer:
    if "Do the task." not in seen.asked or not seen.tools:
        return Answer("A title.")
    if "shell" not in seen.results:
        command = {"command": "echo ran > shell.txt", "description": "Runs it"}
        return Answer("First a command.", calls=[("shell", "bash", command)])
    return Answer("All done.")


def test_opencode_runs_a_command(node: Path, npm: Any, upstream: ScriptedUpstream, tmp_path: Path) -> None:
    for dialect in DIALECTS:
        (tmp_path / dialect).mkdir()
        runner = Runner(node, upstream, tmp_path / dialect, dialect)
        runner.programs = npm("opencode-ai")
        runner.rule(of_opencode)
        done = runner.run("opencode", "run", "--format", "json", "Do the task.")
        assert (runner.work / "shell.txt").read_text() == "ran\n"
        assert "All done." in done.stdout
