"""`doctor`: everything that `serve` and `run` need, each looked at by itself."""

import asyncio
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from msgspec import Struct
from sqlalchemy import URL

from openresponses_cli.commands import checks
from openresponses_cli.commands.cli import main
from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from openresponses_server.store.memory import MemoryStore
from openresponses_server.store.sql import sqlite
from openresponses_server.store.sql.migrate import upgrade
from openresponses_server.store.sql.store import SqlStore
from tests.support.serving import respond, serving
from tests.support.upstream import JSON, Script, ScriptedUpstream, refusal

Doctor = Callable[..., dict[str, tuple[str, str]]]


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Runs it; check → (state, message), and `ready` as `exit code`. No agent is installed."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()

    def run(*words: str) -> dict[str, tuple[str, str]]:
        port = () if "--port" in words else ("--port", "0")
        done = CliRunner().invoke(main, ["doctor", "--json", "--store", "memory://", *port, *words])
        report: dict[str, Any] = json.loads(done.output)
        assert done.exit_code == (0 if report["ready"] else 1)
        results = {each["check"]: (each["state"], each["message"]) for each in report["checks"]}
        assert report["ready"] == all(state != "missing" for state, _ in results.values())
        return results

    return run


def install(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


def test_an_upstream_that_answers_is_enough(
    doctor: Doctor, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "secret-0123")
    upstream.models = ["qwen3"]
    results = doctor("--upstream", upstream.url, "--model", "qwen3", "--api-key-env", "A_KEY")
    upstream.models = None
    assert {state for state, _ in results.values()} == {"ok", "note"}
    assert results["key for upstream"] == ("ok", "A_KEY is set")
    assert "1 model: qwen3" in results["upstream"][1]
    assert "secret-0123" not in str(results)


def test_each_of_several_keys_is_tried(
    doctor: Doctor, upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONE", "sk-first-0123456789-aaaa")
    monkeypatch.setenv("TWO", "short")
    config = tmp_path / "bridge.toml"
    config.write_text(
        f'[[upstreams]]\nname = "east"\nurl = "{upstream.url}"\napi_keys = ["${{ONE}}", "${{TWO}}"]'
    )
    upstream.models = ["qwen3"]
    results = doctor("--config", str(config))
    upstream.models = None
    upstream.pages["/v1/models"] = refusal(401, message="bad key sk-first-0123456789-aaaa")
    refused = doctor("--config", str(config))
    del upstream.pages["/v1/models"]
    assert results["key for upstream east"] == ("ok", "2 are in the config")
    assert results["key 1 for upstream east"] == ("ok", "the key, which ends in aaaa, is accepted")
    assert results["key 2 for upstream east"] == ("ok", "the key is accepted")
    assert refused["key 1 for upstream east"][0] == refused["key 2 for upstream east"][0] == "missing"
    assert "sk-first-0123456789" not in str([results, refused])


def test_what_a_running_server_leaves_out_is_said(doctor: Doctor, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = refusal(429, {"retry-after": "60"}, message="x")
    upstreams = [UpstreamSettings(name=name, url=upstream.url, models=["m", "other"]) for name in ("a", "b")]
    with serving(Settings(store="memory://", upstreams=upstreams)) as base:
        respond(base, model="m")
        state, message = doctor("--port", base.rpartition(":")[2])["port"]
    assert state == "note"
    assert "it leaves out: a with key 1 is limited (429); b with key 1 is limited (429)" in message


def test_a_model_that_is_not_there_is_missing(doctor: Doctor, upstream: ScriptedUpstream) -> None:
    upstream.models = ["qwen3"]
    results = doctor("--upstream", upstream.url, "--model", "qwen4")
    upstream.models = []
    empty = doctor("--upstream", upstream.url)
    upstream.models = None
    state, message = results["upstream"]
    assert state == "missing"
    assert "not among them: 'qwen4' (did you mean 'qwen3'?)" in message
    assert empty["upstream"][0] == "missing"


def test_an_upstream_that_is_down_refuses_or_has_no_list(doctor: Doctor, upstream: ScriptedUpstream) -> None:
    down = doctor("--upstream", "http://127.0.0.1:9")["upstream"]
    assert down[0] == "missing"
    assert "isn't answering" in down[1]
    upstream.models = None
    silent = doctor("--upstream", upstream.url)["upstream"]
    assert silent[0] == "note"
    assert "does not list its models" in silent[1]


def test_a_key_that_is_not_set_is_missing(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    state, message = doctor("--upstream", "openai")["settings"]
    assert state == "missing"
    assert "OPENAI_API_KEY is not set" in message
    assert "$.upstreams[0].url" not in message


def test_its_own_server_is_no_upstream(doctor: Doctor) -> None:
    with serving(Settings(store="memory://")) as base:
        port = base.rpartition(":")[2]
        results = doctor("--port", port, "--upstream", base)
    assert results["port"][0] == "note"
    assert results["upstream"][0] == "missing"
    assert "is this server itself" in results["upstream"][1]


def test_a_port_that_is_taken_is_said(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        other.close()
    assert doctor("--port", str(port))["port"] == ("ok", f"http://127.0.0.1:{port} is free")
    with ScriptedUpstream() as other_server:
        port = int(other_server.url.rpartition(":")[2].removesuffix("/v1"))
        state, message = doctor("--port", str(port))["port"]
    assert state == "missing"
    assert "something else listens" in message
    for settings in (Settings(store="memory://", api_keys=[hashed("k")]), Settings(store="memory://")):
        with serving(settings) as base:
            state, message = doctor("--port", base.rpartition(":")[2])["port"]
        assert state == "note"
        assert message.endswith("`run` uses it, another `serve` needs another --port")


def test_an_address_that_is_not_of_this_machine_is_missing(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENRESPONSES_BRIDGE_API_KEYS", "k")
    state, message = doctor("--host", "192.0.2.1", "--port", "65000")["port"]
    assert (state, "can't listen on http://192.0.2.1:65000: " in message) == ("missing", True)


def test_a_store_that_takes_nothing_is_missing(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    results = doctor("--store", f"sqlite:///{tmp_path}/file/s.sqlite3")
    assert results["store"][0] == "missing"
    assert doctor("--event-log", "redis://:pass-word@127.0.0.1:9/0")["event log"][0] == "missing"


def test_a_store_whose_tables_take_long_to_make_can_be_used(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_slowly(url: URL) -> None:
        time.sleep(0.2)
        upgrade(url)

    monkeypatch.setattr(checks, "_TIMEOUT", 0.1)
    monkeypatch.setattr(sqlite, "make_tables", make_slowly)
    monkeypatch.setattr(SqlStore, "probe", answering)
    address = f"sqlite:///{tmp_path}/s.sqlite3"
    assert doctor("--store", address)["store"] == ("ok", f"{tmp_path}/s.sqlite3 can be used")


async def answering(_store: SqlStore) -> None:
    """Without a thread, for which a busy machine may take longer than the test waits."""


def test_a_store_that_does_not_answer_is_missing(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(_store: MemoryStore) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(checks, "_TIMEOUT", 0.1)
    monkeypatch.setattr(MemoryStore, "probe", silent)
    assert doctor()["store"] == (
        "missing",
        "memory until the server ends does not answer within 0.1 seconds",
    )


def test_a_data_folder_that_takes_nothing_is_missing(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert doctor()["data folder"][0] == "missing"


def test_agents_are_needed_when_they_are_named(doctor: Doctor) -> None:
    results = doctor()
    assert results["agent codex"] == (
        "note",
        "codex was not found; to install Codex CLI: npm install -g @openai/codex",
    )
    results = doctor("claude")
    assert results["agent codex"][0] == "note"
    assert results["agent claude"][0] == "missing"


@pytest.mark.parametrize(
    ("said", "state", "message"),
    [
        ("codex-cli 0.169.0", "ok", "Codex CLI 0.169.0 at "),
        (
            "codex-cli 0.80.0",
            "missing",
            "0.169 work; to update it: npm install -g @openai/codex",
        ),
        ("codex-cli 9.1.2", "note", "is newer than what was tried (0.130 to 0.169)"),
        ("hello", "missing", "does not say its version"),
        ("\x1b[2J0.150.0", "ok", "Codex CLI 0.150.0 at "),
    ],
)
def test_an_agents_version_is_known(
    doctor: Doctor, tmp_path: Path, said: str, state: str, message: str
) -> None:
    install(tmp_path, "codex", f"#!/bin/sh\necho '{said}'\n")
    check = doctor("codex")["agent codex"]
    assert check[0] == state
    assert message in check[1]


def test_an_agent_without_node_says_what_it_lacks(doctor: Doctor, tmp_path: Path) -> None:
    install(tmp_path, "codex", "#!/usr/bin/env node\n")
    assert "a program for Node.js, which was not found" in doctor("codex")["agent codex"][1]


def test_an_agent_that_hangs_is_not_waited_for(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openresponses_cli.agents.coding.agents._TIMEOUT", 0.2)
    install(tmp_path, "codex", "#!/bin/sh\nexec /bin/sleep 20\n")
    assert "does not say its version" in doctor()["agent codex"][1]


def test_as_text_each_check_is_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    done = CliRunner().invoke(main, ["doctor", "--port", "0", "--store", "memory://", "codex"])
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert "ok       settings: flags and defaults can be used" in lines
    assert (
        "MISSING  agent codex: codex was not found; to install Codex CLI: npm install -g @openai/codex"
        in lines
    )


def test_settings_and_ports_that_are_there_and_unusable_are_not_said_to_be_missing(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bridge.toml").write_text("[[upstreams]]\nurl = 3\n")
    done = CliRunner().invoke(main, ["doctor", "--config", "bridge.toml"])
    wrong = "bridge.toml:2: upstreams[0].url: Expected `str | null`, got `int`"
    assert done.output.splitlines()[0] == f"MISSING  settings that can be used: {wrong}"
    assert doctor("--config", "bridge.toml")["settings"] == ("missing", wrong)
    with ScriptedUpstream() as other:
        port = str(urlsplit(other.url).port)
        taken = CliRunner().invoke(main, ["doctor", "--store", "memory://", "--port", port])
        state, message = doctor("--port", port)["port"]
    assert state == "missing"
    assert f"MISSING  a port to listen on: {message}" in taken.output.splitlines()


def test_a_name_that_is_not_an_agents_is_a_usage_error() -> None:
    done = CliRunner().invoke(main, ["doctor", "claud"])
    assert done.exit_code == 2
    assert "did you mean 'claude'?" in done.output


class Answering(Struct, frozen=True):
    """An engine: what its paths answer, and what is said of it."""

    model: dict[str, Any]
    """Its entry in the list of models."""
    pages: dict[str, Any]
    described: str
    advice: tuple[str, ...] = ()
    chat: Script | None = None
    """What it answers to a request with a tool."""
    headers: dict[str, str] = {}


LLAMACPP = {"server": "llama.cpp"}
SMALL = "a context of 4,096 tokens is too small for the prompts of Codex and Claude Code"
PROPS = {
    "default_generation_settings": {"n_ctx": 65536},
    "total_slots": 1,
    "modalities": {"vision": True},
    "chat_template": "{% if tools %}",
    "chat_template_caps": {"supports_tools": True},
    "build_info": "b7000-abc",
}
ENGINES = {
    "llamacpp": Answering({"owned_by": "llamacpp"}, {"/props": PROPS}, "llama.cpp b7000-abc, 65,536 tokens"),
    "llamacpp that lacks all": Answering(
        {},
        {
            "/props": PROPS
            | {
                "default_generation_settings": {"n_ctx": 4096},
                "total_slots": 4,
                "modalities": {"vision": False},
            }
            | {"chat_template": "{{ messages }}", "chat_template_caps": {}}
        },
        "llama.cpp b7000-abc, 4,096 tokens",
        (f"{SMALL}: -c 131072 for its 4 slots", "its chat template has no tools", "it takes no images"),
        headers=LLAMACPP,
    ),
    "llamacpp without jinja": Answering(
        {"owned_by": "llamacpp"},
        {"/props": PROPS},
        "llama.cpp",
        ("it refuses tools: start it with --jinja",),
        refusal(500, message="tools param requires --jinja flag"),
    ),
    "llamacpp that keeps its props to itself": Answering(
        {}, {"/props": Script([b"{}"], 401, JSON)}, "llama.cpp", headers=LLAMACPP
    ),
    "vllm": Answering(
        {"owned_by": "vllm", "max_model_len": 4096},
        {"/version": {"version": "0.32.0"}},
        "vLLM 0.32.0, 4,096 tokens",
        (f"{SMALL}: --max-model-len 32768", "it refuses tools: start it with --enable-auto-tool-choice"),
        refusal(400, message="auto tool choice requires --enable-auto-tool-choice to be set"),
    ),
    "sglang": Answering(
        {"owned_by": "sglang", "max_model_len": 4096}, {}, "SGLang, 4,096", (f"{SMALL}: --context-length",)
    ),
    "ollama": Answering(
        {"owned_by": "library"},
        {
            "/api/version": {"version": "0.13.3"},
            "/api/ps": {"models": [{"model": "m", "context_length": 4096}]},
            "/api/show": {"capabilities": ["completion"]},
        },
        "Ollama 0.13.3, 4,096 tokens",
        (f"{SMALL}: OLLAMA_CONTEXT_LENGTH=32768", "its chat template has no tools", "it takes no images"),
    ),
    "litellm": Answering(
        {"owned_by": "openai"},
        {"/health/liveliness": Script([b'"I\'m alive!"'], 200, JSON | {"x-litellm-version": "1.80.0"})},
        "LiteLLM 1.80.0",
    ),
    "lmstudio": Answering(
        {"owned_by": "organization_owner"},
        {
            "/api/v0/models": {
                "data": [
                    {"id": "other"},
                    {"id": "m", "type": "llm", "loaded_context_length": 4096, "capabilities": []},
                ]
            }
        },
        "LM Studio, 4,096 tokens",
        (f"{SMALL}: load the model", "its model was not trained for tools", "it takes no images"),
    ),
}


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_is_known_by_its_answers(name: str, doctor: Doctor, upstream: ScriptedUpstream) -> None:
    engine, profile = ENGINES[name], name.partition(" ")[0]
    listed = json.dumps({"object": "list", "data": [{"id": "m", **engine.model}]}).encode()
    pages = {path: each for path, each in engine.pages.items() if isinstance(each, Script)}
    upstream.pages = {
        "/v1/models": Script([listed], 200, JSON | engine.headers),
        **{
            path: Script([json.dumps(each).encode()], 200, JSON)
            for path, each in engine.pages.items()
            if path not in pages
        },
        **pages,
        **({"/v1/chat/completions": engine.chat} if engine.chat else {}),
    }
    results = doctor("--upstream", upstream.url, "--model", "m")
    upstream.pages = {}
    state, message = results["engine of upstream"]
    assert state == "note"
    assert message.startswith(engine.described)
    for each in (*engine.advice, f"--upstream {profile}"):
        assert each in message.replace("its model takes", "it takes")
    assert message.count("; ") == len(engine.advice)
    assert results["upstream"][0] == "ok"


def test_an_engine_under_its_own_profile_lacks_nothing(
    doctor: Doctor, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    listed = json.dumps({"data": [{"id": "m", "owned_by": "llamacpp"}]}).encode()
    upstream.pages = {
        "/v1/models": Script([listed], 200, JSON),
        "/props": Script([json.dumps(PROPS).encode()], 200, JSON),
    }
    config = tmp_path / "bridge.toml"
    config.write_text(f'[[upstreams]]\nprofile = "llamacpp"\nurl = "{upstream.url}"\n')
    results = doctor("--config", str(config))
    upstream.pages = {}
    described = "llama.cpp b7000-abc, 65,536 tokens a conversation"
    assert results["engine of upstream llamacpp"] == ("ok", described)


@pytest.mark.parametrize(
    "lies",
    [
        {
            "/props": {
                "default_generation_settings": [],
                "total_slots": "4",
                "modalities": 3,
                "chat_template": {},
            }
        },
        {"/props": {"default_generation_settings": {"n_ctx": -1}, "total_slots": True, "build_info": ["x"]}},
        {
            "/props": {
                "default_generation_settings": {"n_ctx": 10**30},
                "build_info": "\x1b[31m" + "x" * 100_000,
            }
        },
        {"/props": []},
        {"/props": "[" * 100_000},
    ],
    ids=range(5),
)
def test_an_engine_that_lies_is_not_believed(
    lies: dict[str, Any], doctor: Doctor, upstream: ScriptedUpstream
) -> None:
    listed = json.dumps({"data": [None, {"id": "m", "owned_by": "llamacpp"}]}).encode()
    upstream.pages = {"/v1/models": Script([listed], 200, JSON)}
    for path, each in lies.items():
        body = each if isinstance(each, str) else json.dumps(each)
        upstream.pages[path] = Script([body.encode()], 200, JSON)
    state, message = doctor("--upstream", upstream.url, "--model", "m")["engine of upstream"]
    upstream.pages = {}
    assert state == "note"
    assert message.startswith("llama.cpp")
    assert len(message) < 200
    assert "\x1b" not in message


def test_an_upstream_that_is_no_engine_is_not_called_one(doctor: Doctor, upstream: ScriptedUpstream) -> None:
    upstream.models = ["m"]
    results = doctor("--upstream", upstream.url)
    upstream.models = None
    assert "engine of upstream" not in results
