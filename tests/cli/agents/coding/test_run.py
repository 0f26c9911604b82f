"""`run`: an agent with a configuration, a server and a key of its own."""

import json
import os
import shlex
import shutil
import socket
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from openresponses_cli.agents.coding import discovery
from openresponses_cli.agents.coding.agents import AGENTS
from openresponses_cli.agents.coding.discovery import is_of_this_user
from openresponses_cli.commands import run as run_module
from openresponses_cli.commands.cli import main
from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from tests.support.processes import free_port
from tests.support.serving import serving
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, refusal, text

UPSTREAM_KEY = "sk-upstream-0123456789"
KEYS = ("OPENRESPONSES_BRIDGE_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY")


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user's folder, environment and logs that belong to the test; nothing runs at the default address."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("MY_UPSTREAM_KEY", UPSTREAM_KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-user")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://elsewhere.example")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(
        "openresponses_server.observation.logs.configure_logs", lambda _file: None
    )  # of the whole process
    monkeypatch.setattr(run_module, "_PORT", free_port())
    return


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["run", *words])


Program = Callable[..., str]
Seen = Callable[[], dict[str, Any]]


@pytest.fixture
def over(upstream: ScriptedUpstream) -> list[str]:
    return ["--upstream", upstream.url, "--api-key-env", "MY_UPSTREAM_KEY", "--model", "qwen3"]


@pytest.mark.parametrize("agent", AGENTS)
def test_agent_reaches_the_model_by_a_key_made_for_it(
    agent: str,
    agent_program: Program,
    seen: Seen,
    over: list[str],
    upstream: ScriptedUpstream,
    tmp_path: Path,
) -> None:
    done = run(agent, "--program", agent_program(), *over, "--", "exec", "-c", "a=b")
    assert done.exit_code == 5, done.output
    was = seen()
    assert was["answers"]["right"][0] == 200
    assert was["answers"]["wrong"][0] == 401
    assert was["arguments"][-3:] == ["exec", "-c", "a=b"]
    assert upstream.last("qwen3").headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
    # the server has ended with the agent
    address = urlsplit(was["base"])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname, address.port))


@pytest.mark.parametrize("agent", AGENTS)
def test_s7_keys_are_neither_on_command_lines_nor_with_the_agent(
    agent: str, agent_program: Program, seen: Seen, over: list[str], tmp_path: Path
) -> None:
    done = run(agent, "--program", agent_program(), *over)
    was = seen()
    environment = was["environment"]
    key = next(environment[name] for name in KEYS if name in environment)
    assert key not in " ".join(was["arguments"])
    assert key not in done.output
    assert UPSTREAM_KEY not in json.dumps(was)
    assert "MY_UPSTREAM_KEY" not in environment
    contents = "".join(
        path.read_text(errors="replace") for path in (tmp_path / "data").rglob("*") if path.is_file()
    )
    assert key not in contents
    assert UPSTREAM_KEY not in contents


def test_codex_has_a_folder_of_its_own_and_the_models(
    agent_program: Program, seen: Seen, over: list[str], tmp_path: Path
) -> None:
    run("codex", "--program", agent_program(), *over)
    was = seen()
    home = Path(was["environment"]["CODEX_HOME"])
    assert home == tmp_path / "data/openresponses-bridge/agents/codex"
    assert home.stat().st_mode & 0o777 == 0o700
    assert [each["slug"] for each in was["catalog"]["models"]] == ["qwen3"]
    assert "OPENAI_BASE_URL" not in was["environment"]
    assert "127.0.0.1" in was["environment"]["NO_PROXY"].split(",")


@pytest.mark.parametrize("searching", [True, False])
def test_codex_searches_live_where_the_server_searches(
    agent_program: Program,
    seen: Seen,
    upstream: ScriptedUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    searching: bool,
) -> None:
    monkeypatch.setenv("MY_SEARCH_KEY", "the search's")
    search = '[web_search]\nprovider = "brave"\napi_key = "${MY_SEARCH_KEY}"\n' if searching else ""
    config = tmp_path / "bridge.toml"
    config.write_text(f'{search}[[upstreams]]\nurl = "{upstream.url}"\nmodels = ["qwen3"]\n')
    run("codex", "--program", agent_program(), "--config", str(config), "--model", "qwen3")
    was = seen()
    assert ('web_search="live"' in was["arguments"]) is searching
    assert ("MY_SEARCH_KEY" in was["environment"]) is not searching  # it is no secret that is not named
    shown = run("codex", "--print-config", "--config", str(config), "--model", "qwen3").output
    assert ('web_search = "live"' in shown) is searching


def test_claude_has_a_folder_of_its_own_and_asks_for_one_model_only(
    agent_program: Program, seen: Seen, over: list[str]
) -> None:
    run("claude", "--program", agent_program(), *over)
    environment = seen()["environment"]
    assert "ANTHROPIC_API_KEY" not in environment
    assert {value for name, value in environment.items() if name.endswith("_MODEL")} == {"qwen3"}
    assert environment["CLAUDE_CODE_SUBAGENT_MODEL"] == "qwen3"  # P43
    assert environment["CLAUDE_CODE_TOTAL_TOKENS_REMINDER"] == "off"
    home = Path(environment["CLAUDE_CONFIG_DIR"])
    state = home / ".claude.json"
    assert json.loads(state.read_text()) == {"hasCompletedOnboarding": True}
    assert state.stat().st_mode & 0o777 == 0o600
    state.write_text("{}")
    run("claude", "--program", agent_program(), *over)
    assert state.read_text() == "{}"  # what it keeps there stays


def test_gemini_has_a_folder_of_its_own_and_asks_for_one_model_only(
    agent_program: Program, seen: Seen, over: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "of-the-user")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/of/its/commands")
    run("gemini", "--program", agent_program(), *over)
    was = seen()
    environment = was["environment"]
    assert environment["GEMINI_CLI_HOME"] == str(tmp_path / "data/openresponses-bridge/agents/gemini")
    assert "GOOGLE_API_KEY" not in environment
    assert environment["GOOGLE_APPLICATION_CREDENTIALS"] == "/of/its/commands"
    assert environment["GEMINI_MODEL"] == was["settings"]["model"]["name"] == "qwen3"
    assert was["settings"]["modelConfigs"]["customOverrides"][0]["modelConfig"] == {"model": "qwen3"}
    assert was["settings"]["security"]["auth"]["selectedType"] == "gemini-api-key"
    path = Path(environment["GEMINI_CLI_HOME"], ".gemini", "settings.json")
    path.write_text(json.dumps(was["settings"] | {"ui": {"theme": "Dark"}, "security": {"more": 1}}))
    run("gemini", "--program", agent_program(), *over)
    assert seen()["settings"]["ui"] == {"theme": "Dark"}  # what it keeps there stays
    assert seen()["settings"]["security"] == was["settings"]["security"] | {"more": 1}
    path.write_text("{ // its own")
    assert run("gemini", "--program", agent_program(), *over).exit_code == 5


def test_opencode_has_folders_of_its_own_and_one_provider(
    agent_program: Program, seen: Seen, over: list[str], tmp_path: Path
) -> None:
    run("opencode", "--program", agent_program(), *over)
    was = seen()
    home = tmp_path / "data/openresponses-bridge/agents/opencode"
    folders = {name: value for name, value in was["environment"].items() if name.startswith("XDG_")}
    assert folders == {
        f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CONFIG", "DATA", "STATE", "CACHE")
    }
    assert was["settings"]["enabled_providers"] == ["openresponses-bridge"]
    assert was["settings"]["model"] == was["settings"]["small_model"] == "openresponses-bridge/qwen3"


def test_model_is_the_first_that_calls_tools(
    agent_program: Program, seen: Seen, upstream: ScriptedUpstream
) -> None:
    upstream.models = ["text-embedding-3-small", "gpt-4o"]
    run("codex", "--program", agent_program(), "--upstream", upstream.url)
    upstream.models = None
    assert 'model="gpt-4o"' in seen()["arguments"]


def test_model_that_is_not_listed_is_described_too(
    agent_program: Program, seen: Seen, upstream: ScriptedUpstream
) -> None:
    with serving(Settings(store="memory://", upstreams=[UpstreamSettings(url=upstream.url)])) as base:
        done = run("codex", "--program", agent_program(), "--server", base, "--model", "gpt-4o")
    assert done.exit_code == 5, done.output
    (entry,) = [each for each in seen()["catalog"]["models"] if each["slug"] == "gpt-4o"]
    assert entry["context_window"] == 128_000


def test_without_any_model_it_says_so(agent_program: Program, upstream: ScriptedUpstream) -> None:
    done = run("codex", "--program", agent_program(), "--upstream", upstream.url)
    assert done.exit_code == 2
    assert "name a model with --model" in done.output


def test_a_server_that_runs_is_used_with_its_key(
    agent_program: Program, seen: Seen, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_KEY", "k-1")
    one = UpstreamSettings(url=upstream.url, models=["m"])
    with serving(Settings(store="memory://", upstreams=[one], api_keys=[hashed("k-1")])) as base:
        refused = run("codex", "--program", agent_program(), "--server", base)
        assert refused.exit_code == 2
        assert "asks for a key" in refused.output
        for server in (base, f"{base}/v1/"):
            done = run("codex", "--program", agent_program(), "--server", server, "--key-env", "SERVER_KEY")
            assert done.exit_code == 5, done.output
            assert seen()["base"] == base
            assert seen()["environment"]["OPENRESPONSES_BRIDGE_KEY"] == "k-1"
            assert "SERVER_KEY" not in seen()["environment"]


def test_a_server_at_the_default_address_is_used_unless_it_is_something_else(
    agent_program: Program, seen: Seen, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_over(address: str) -> Result:
        monkeypatch.setattr(run_module, "_DEFAULT", address)
        monkeypatch.setattr(run_module, "_PORT", urlsplit(address).port)
        return run("codex", "--program", agent_program())

    one = UpstreamSettings(url=upstream.url, models=["m"])
    with serving(Settings(store="memory://", upstreams=[one], api_keys=[hashed("k-1")])) as base:
        refused = run_over(base)
        assert refused.exit_code == 2
        assert "asks for a key" in refused.output
    with serving(Settings(store="memory://", upstreams=[one])) as base:
        assert run_over(base).exit_code == 5
        assert seen()["base"] == base
    assert run_over(upstream.url.removesuffix("/v1")).exit_code == 5
    assert seen()["answers"]["right"][1]["model"] == "demo"  # of a server of its own


@pytest.mark.parametrize("name", ["m", 'a"b', "a\\b", "é\u2028\n]", "\x7f\x1b[2J", "'$(id)'"])
def test_whatever_a_model_is_called_its_configuration_is_that(name: str) -> None:
    words = ("--print-config", "--server", "http://127.0.0.1:9", "--model", name)
    codex, _, _ = run("codex", *words).output.partition("# Then")
    assert tomllib.loads(codex)["model"] == name
    claude = run("claude", *words).output.partition("\n")[2].partition("# Then")[0]
    assert json.loads(claude)["env"]["ANTHROPIC_MODEL"] == name


def test_what_is_not_this_server_is_not_used(agent_program: Program, upstream: ScriptedUpstream) -> None:
    upstream.models = ["m"]
    done = run("codex", "--program", agent_program(), "--server", upstream.url)
    upstream.models = None
    assert done.exit_code == 2
    assert "is not openresponses-bridge" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["codx"], "'codx' is not one of: codex, claude, gemini, opencode (did you mean 'codex'?)"),
        (["codex", "--server", "localhost"], "is not an address such as http://HOST:PORT"),
        (["codex", "--server", "http://127.0.0.1:9"], "does not answer"),
        (["codex", "--server", "http://a", "--upstream", "ollama"], "--server names one that runs"),
        (["codex", "--key-env", "HOME"], "--key-env is for a --server that runs"),
        (["codex", "--server", "http://a", "--key-env", "NONE"], "NONE is not set"),
        (["codex", "--upstream", "olama"], "did you mean 'ollama'?"),
    ],
)
def test_what_is_wrong_is_named(words: list[str], message: str, agent_program: Program) -> None:
    done = run(*words, "--program", agent_program())
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_keys_that_clients_would_pass_on_cannot_be_an_agents(
    agent_program: Program, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    config = tmp_path / "bridge.toml"
    config.write_text(f'[[upstreams]]\nurl = "{upstream.url}"\npass_through = true\n')
    done = run("codex", "--program", agent_program(), "--config", str(config))
    assert done.exit_code == 2
    assert "an agent has no key of its own to pass on" in done.output


def test_a_missing_agent_is_named_with_what_installs_it(tmp_path: Path) -> None:
    done = run("claude", "--program", str(tmp_path / "none"), "--upstream", "ollama")
    assert done.exit_code == 127
    assert "npm install -g @anthropic-ai/claude-code" in done.output


def test_a_data_folder_that_takes_nothing_or_a_program_that_cannot_start_is_named(
    agent_program: Program, over: list[str], tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/nowhere/python\n")
    broken.chmod(0o755)
    done = run("codex", "--program", str(broken), *over)
    assert done.exit_code == 126
    assert f"{broken}: No such file or directory" in done.output
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "data").touch()
    done = run("codex", "--program", agent_program(), *over)
    assert done.exit_code == 126
    assert "Not a directory" in done.output


def test_logs_are_private_and_the_newest_are_kept(
    agent_program: Program, over: list[str], tmp_path: Path
) -> None:
    logs = tmp_path / "data/openresponses-bridge/agents/logs"
    logs.mkdir(parents=True)
    for age in range(15):
        (logs / f"{age}-old.log").touch()
        os.utime(logs / f"{age}-old.log", (age, age))
    run("codex", "--program", agent_program(), *over)
    assert len(list(logs.iterdir())) == 10
    assert (logs / f"{os.getpid()}.log").stat().st_mode & 0o777 == 0o600
    assert not (logs / "5-old.log").exists()


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LINE = "   0: 0100007F:1F90 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {uid} 0 1 1\n"


@pytest.mark.parametrize(
    ("state", "uid", "ours"),
    [("0A", os.getuid(), True), ("0A", 0, True), ("0A", 54321, False), ("01", os.getuid(), False)],
    ids=["own", "root", "other", "not listening"],
)
def test_a_port_that_another_user_listens_on_is_not_used(
    tmp_path: Path, state: str, uid: int, ours: bool
) -> None:
    (tmp_path / "tcp").write_text(HEAD + LINE.format(state=state, uid=uid))
    assert is_of_this_user(8080, tmp_path) == ours
    assert not is_of_this_user(8081, tmp_path)  # nobody is there: the next to come may be anyone
    assert is_of_this_user(8080, tmp_path / "of another system")


@pytest.mark.parametrize("agent", AGENTS)
def test_after_the_agent_it_says_how_to_go_on(agent: str, agent_program: Program, over: list[str]) -> None:
    program = agent_program()
    words = shlex.split(run(agent, "--program", program, *over, "--", "exec").stderr.splitlines()[-1])
    assert words[:6] == ["openresponses-bridge:", "to", "go", "on:", "openresponses-bridge", "run"]
    assert words[6] == agent
    assert set(over) <= set(words[: -len(AGENTS[agent].resume)])
    assert words[-len(AGENTS[agent].resume) :] == [*AGENTS[agent].resume]
    again = CliRunner().invoke(main, words[5:])
    assert again.exit_code == 5, again.output


def test_s7_how_to_go_on_says_no_password_of_an_address(
    agent_program: Program, upstream: ScriptedUpstream
) -> None:
    address = upstream.url.replace("http://", "http://me:secret-of-mine@")
    over = ["--upstream", address, "--model", "qwen3"]
    stderr = run("codex", "--program", agent_program(), *over, "--", "exec").stderr
    assert stderr.splitlines()[-1].startswith("openresponses-bridge: to go on:")
    assert upstream.url in stderr
    assert "secret-of-mine" not in stderr


def test_without_a_conversation_there_is_nothing_to_go_on_with(
    agent_program: Program, over: list[str]
) -> None:
    assert "to go on" not in run("codex", "--program", agent_program(), *over, "--", "--version").stderr


def test_a_model_that_nobody_lists_is_warned_of(
    agent_program: Program, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "models", ["qwen3"])
    program = ["--program", agent_program()]
    named = run("codex", *program, "--upstream", upstream.url, "--model", "qwen4")
    assert "warning: " in named.stderr
    assert "not among them: 'qwen4' (did you mean 'qwen3'?)" in named.stderr
    demo = run("codex", *program, "--model", "dmo")
    assert "warning: the server does not list the model 'dmo' (did you mean 'demo'?)" in demo.stderr
    assert "warning" not in run("codex", *program, "--upstream", upstream.url, "--model", "qwen3").stderr


def test_a_key_that_the_upstream_refuses_is_told_before_the_agent_starts(
    agent_program: Program,
    over: list[str],
    upstream: ScriptedUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream, "models", ["qwen3"])  # which it lists without a key
    upstream.scripts["qwen3"] = refusal(401, message="No such key")
    done = run("codex", "--program", agent_program(), *over)
    assert done.exit_code == 2
    output = " ".join(done.output.split())
    assert "the model 'qwen3'" in output
    assert "does not accept this server's key for it; set the upstream's key" in output
    assert "agents/logs" in output.replace(" ", "")
    assert not (tmp_path / "seen.json").exists(), "the agent was started"


REFUSALS = {
    "an unknown model": (refusal(404, code="model_not_found", message="No such model"), "--model"),
    "an unknown model without a code": (refusal(404, message="There is no qwen3 here"), "--model"),
    "a key under a good status": (
        Script([b'data: {"error": {"code": "invalid_api_key", "message": "No"}}\n\n']),
        "set the upstream's key",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_no_agent_gets_over_is_told_before_it_starts(
    name: str, agent_program: Program, over: list[str], upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.scripts["qwen3"], remedy = REFUSALS[name]
    done = run("codex", "--program", agent_program(), *over)
    assert done.exit_code == 2
    assert remedy in done.output
    assert not (tmp_path / "seen.json").exists(), "the agent was started"


def test_an_upstream_that_a_running_server_cannot_reach_is_told_before_the_agent_starts(
    agent_program: Program, tmp_path: Path
) -> None:
    lost = UpstreamSettings(url=f"http://127.0.0.1:{free_port()}/v1", models=["m"])
    with serving(Settings(store="memory://", upstreams=[lost])) as base:
        done = run("codex", "--program", agent_program(), "--server", base, "--model", "m")
    assert done.exit_code == 2
    output = " ".join(done.output.split())
    assert f"does not answer through {base}" in output
    assert "start the upstream, or correct its address" in output
    assert not (tmp_path / "seen.json").exists(), "the agent was started"


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_what_may_pass_is_a_warning_and_the_agent_starts(
    status: int, agent_program: Program, over: list[str], upstream: ScriptedUpstream
) -> None:
    upstream.scripts["qwen3"] = refusal(status, message="Come back soon")
    done = run("codex", "--program", agent_program(), *over)
    assert done.exit_code == 5, done.output
    assert "warning: the model 'qwen3'" in done.stderr
    assert "Come back soon" in done.stderr


def test_an_upstream_that_is_slow_is_a_warning_and_the_agent_starts(
    agent_program: Program, over: list[str], upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_PROBE_SECONDS", 0.1)
    upstream.scripts["qwen3"] = [Script(before=HANG), Script(text("Hi"))]
    done = run("codex", "--program", agent_program(), *over)
    assert done.exit_code == 5, done.output
    assert "warning: the model 'qwen3'" in done.stderr
    assert "within 0.1 seconds" in done.stderr


def test_a_probe_asks_for_little_and_hangs_up_where_the_answer_begins(
    agent_program: Program, over: list[str], upstream: ScriptedUpstream
) -> None:
    upstream.scripts["qwen3"] = [Script([chunk(content="Hel"), HANG]), Script(text("Hi"))]
    before = len(upstream.received)
    done = run("codex", "--program", agent_program(), *over)
    assert done.exit_code == 5, done.output
    assert "warning" not in done.stderr
    probe, _asked = upstream.received[before:]
    assert probe.body["max_completion_tokens"] == 16
    assert "tools" not in probe.body
    assert probe.gone_at is not None


@pytest.mark.parametrize("words", [["--no-probe"], ["--", "--version"]])
def test_a_probe_can_be_left_out_and_needs_a_conversation(
    words: list[str], agent_program: Program, over: list[str], upstream: ScriptedUpstream
) -> None:
    program = agent_program()
    before = len(upstream.received)
    done = run("codex", "--program", program, *over, *words)
    assert done.exit_code == 5, done.output
    requests = upstream.received[before:]
    assert all("max_completion_tokens" not in each.body for each in requests)
    assert ("--no-probe" in done.stderr) is (words == ["--no-probe"])
