"""Each known provider: its file is sound, and what it says reaches an upstream."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from openresponses_bridge.seal import Sealer
from openresponses_server.api.app import create_app
from openresponses_server.settings import (
    Settings,
    SettingsError,
    UpstreamSettings,
    load_settings,
    of_worker,
    to_workers,
)
from openresponses_server.settings.files import located
from openresponses_server.upstreams.dialects import DIALECTS, HttpDialect
from openresponses_server.upstreams.profiles import names, profile
from openresponses_server.upstreams.routing.models import build_router
from tests.support import dialect_scripts as scripts
from tests.support.serving import respond, serving, stream
from tests.support.upstream import Script, ScriptedUpstream

# the files say which there are: a new profile is one more of them, and no list names them
SPOKEN = [
    (name, dialect)
    for name in names()
    for dialect, at in profile(name).dialects.items()
    if at.url is not None
]


VARIABLES = ("AZURE_RESOURCE_NAME", "GOOGLE_CLOUD_PROJECT")
"""That addresses of profiles contain."""


def test_those_that_the_documents_name_are_there() -> None:
    assert {"openai", "anthropic", "ollama", "vllm"} <= set(names())


@pytest.mark.parametrize("name", names())
def test_a_profile_is_enough(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = profile(name)
    hosts = {urlsplit(each.url).hostname if each.url else None for each in known.dialects.values()}
    local = {host in ("127.0.0.1", None) for host in hosts}  # a process has no address
    keyless = known.api_key_env is None and not known.api_key_command
    assert local == {keyless}, "a server elsewhere has a key, one on this machine has none"
    for variable in VARIABLES:
        monkeypatch.setenv(variable, "mine")
    if known.api_key_env is not None:
        monkeypatch.delenv(known.api_key_env, raising=False)
        spoken = DIALECTS[known.dialect]
        if not (isinstance(spoken, HttpDialect) and spoken.endpoint.signature):  # by which it is signed then
            with pytest.raises(SettingsError, match=known.api_key_env):
                build_router(load_settings(upstreams=[{"profile": name}]), Sealer())
        monkeypatch.setenv(known.api_key_env, "k")
    target = build_router(load_settings(upstreams=[{"profile": name}]), Sealer()).resolve("m")
    assert (target.upstream.name, target.dialect) == (name, DIALECTS[known.dialect])


@pytest.mark.parametrize(("name", "dialect"), SPOKEN)
def test_each_drives_an_upstream(upstream: ScriptedUpstream, name: str, dialect: str) -> None:
    model = f"{name}-{dialect}"
    upstream.scripts[model] = Script(scripts.text(dialect, "Hel", "lo"))
    own = {"api_key": "none", "api_key_header": "x-key"} if dialect == "bedrock" else {}  # else it is signed
    settings = UpstreamSettings(profile=name, dialect=dialect, url=upstream.url, **own)
    wishes: dict[str, Any] = {
        "max_output_tokens": 50,
        "tool_choice": "auto",
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        "parallel_tool_calls": True,
        "user": "u",
    }
    with serving(Settings(upstreams=[settings])) as base:
        final = stream(base, model=model, **wishes).final
        assert final["output"][0]["content"][0]["text"] == "Hello"
        losses = respond(base, model=model, **wishes).headers.get("openresponses-losses", "")
    body = upstream.last(model).body
    options = profile(name).dialects[dialect].options
    for field in {"tool_choice", "parallel_tool_calls", "user"} & set(options.get("omit", ())):
        assert field not in body
        assert field in losses
    assert "authorization" not in upstream.last(model).headers  # a profile's key is for its own address
    if dialect == "chat":
        assert body[options.get("max_tokens_field", "max_completion_tokens")] == 50
        assert ("stream_options" in body) == options.get("stream_usage", True)


def test_options_of_the_config_go_over_those_of_the_profile(upstream: ScriptedUpstream) -> None:
    settings = UpstreamSettings(
        profile="mistral", url=upstream.url, options={"max_tokens_field": "max_completion_tokens", "omit": []}
    )
    with serving(Settings(upstreams=[settings])) as base:
        respond(base, model="over", max_output_tokens=20, user="u")
    body = upstream.last("over").body
    assert (body["max_completion_tokens"], body["user"]) == (20, "u")
    assert "stream_options" not in body


FORCED = {
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    "tool_choice": "required",
}
REFUSED: dict[tuple[str, str, str], tuple[dict[str, Any], dict[str, Any], str]] = {
    # (profile, dialect, model) → (what a client gives, what goes out of it, the loss)
    ("deepseek", "chat", "deepseek-v4-flash"): (FORCED, {"thinking": {"type": "disabled"}}, "reasoning"),
    ("deepseek", "chat", "deepseek-reasoner"): (FORCED, {"tool_choice": "auto"}, "tool_choice"),
    ("moonshot", "chat", "kimi-k2.6"): (FORCED, {"thinking": {"type": "disabled"}}, "reasoning"),
    ("moonshot", "chat", "kimi-k2-thinking"): (FORCED, {"tool_choice": "auto"}, "tool_choice"),
    ("qwen", "chat", "qwen3.5-plus"): (FORCED, {"enable_thinking": False}, "reasoning"),
    ("volcengine", "responses", "doubao-x"): (
        {"reasoning": {"effort": "low", "summary": "auto"}, "service_tier": "flex"},
        {"reasoning": {"effort": "low"}, "service_tier": None},
        "service_tier",
    ),
    ("cerebras", "chat", "zai-glm-x"): (
        {"tools": [{**FORCED["tools"][0], "strict": True}, {**FORCED["tools"][0], "name": "g"}]},
        {},
        "tools.strict",
    ),
}


@pytest.mark.parametrize(("name", "dialect", "model"), REFUSED)
def test_what_a_provider_refuses_is_not_sent_there(
    upstream: ScriptedUpstream, name: str, dialect: str, model: str
) -> None:
    fields, sent, lost = REFUSED[name, dialect, model]
    upstream.scripts[model] = Script(scripts.text(dialect, "Hi"))
    with serving(
        Settings(upstreams=[UpstreamSettings(profile=name, dialect=dialect, url=upstream.url)])
    ) as base:
        reply = respond(base, model=model, **fields)
    assert reply.status == 200
    assert lost in reply.headers["openresponses-losses"]
    body = upstream.last(model).body
    assert {field: body.get(field) for field in sent} == sent
    assert len({tool["function"].get("strict") for tool in body.get("tools", ()) if "function" in tool}) < 2


@pytest.mark.parametrize("name", ["lmstudio", "llamacpp", "vllm", "sglang", "transformers"])
def test_engines_get_one_role_after_the_other(upstream: ScriptedUpstream, name: str) -> None:
    """The templates of some models refuse two neighbours of one role."""
    items = [
        {"role": role, "content": f"{role} {at}"}
        for at, role in enumerate(["user", "developer", "user", "assistant", "assistant", "user"])
    ]
    upstream.scripts[name] = Script(scripts.text("chat", "Hi"))
    with serving(
        Settings(upstreams=[UpstreamSettings(profile=name, dialect="chat", url=upstream.url)])
    ) as base:
        respond(base, model=name, input=items)
    assert [each["role"] for each in upstream.last(name).body["messages"]] == ["user", "assistant", "user"]


MINE = """title = "Mine"
dialect = "chat"

[dialects.chat]
url = "{url}"

[dialects.chat.options]
max_tokens_field = "max_tokens"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config with a folder of profiles beside it."""
    (tmp_path / "mine").mkdir()
    path = tmp_path / "bridge.toml"
    path.write_text('profiles = "mine"\n\n[[upstreams]]\nprofile = "house"\n')
    return path


def refusal(config: Path) -> str:
    with pytest.raises(SettingsError) as caught, located(config):
        create_app(load_settings(config))
    return str(caught.value)


def test_a_profile_of_ones_own_is_one_file(config: Path, upstream: ScriptedUpstream) -> None:
    (config.parent / "mine" / "house.toml").write_text(MINE.format(url=upstream.url))
    with serving(load_settings(config)) as base:
        final = respond(base, model="m", max_output_tokens=20).json
    assert final["status"] == "completed"
    assert upstream.last("m").body["max_tokens"] == 20
    assert names(config.parent / "mine") == sorted([*names(), "house"])


def test_ones_own_counts_before_a_known_one(config: Path) -> None:
    (config.parent / "mine" / "ollama.toml").write_text(MINE.format(url="http://house.example/v1"))
    assert profile("ollama", config.parent / "mine").title == "Mine"
    assert profile("ollama").title == "Ollama"
    assert profile("openai", config.parent / "mine") == profile("openai")


def test_workers_find_the_folder_from_anywhere(
    config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (config.parent / "mine" / "house.toml").write_text(MINE.format(url="http://house.example/v1"))
    monkeypatch.setenv("OPENRESPONSES_BRIDGE_SETTINGS", "")
    monkeypatch.chdir(config.parent)
    to_workers(load_settings(Path(config.name)))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert of_worker().profiles == str(config.parent / "mine")
    create_app(of_worker())


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("title = ", 1, "Invalid value (at end of document)"),
        ("title = 'x'\ndialect = @", 2, "Invalid value (at line 2, column 11)"),
        (MINE.replace("url =", "ulr ="), 5, "'ulr' is not a setting (did you mean 'url'?)"),
        (MINE.replace("title", "tilte"), 1, "'tilte' is not a setting (did you mean 'title'?)"),
        (MINE.replace('"Mine"', "1"), 1, "Expected `str`, got `int`"),
        (MINE.replace("url =", "# url ="), 4, "missing required field `url`"),
        (MINE.replace('dialect = "chat"', 'dialect = "anthropic"'), 2, "has no table [dialects.anthropic]"),
        (
            MINE.replace("chat", "chta"),
            4,
            "'chta' is not one of: chat, responses, anthropic, interactions, gemini, bedrock, codex (did you",
        ),
        (MINE.replace("max_tokens_field", "max_token_field"), 8, "did you mean 'max_tokens_field'?"),
        (MINE.replace('"max_tokens"', '"most"'), 8, "options: Invalid enum value 'most'"),
        (MINE.replace("{url}", "file:///etc/passwd"), 5, "is not an http:// or https:// address"),
        (MINE.replace("{url}", "http://h/v1?a=b"), 5, "has a query"),
        ("# " + "x" * 70_000, None, "a profile may have at most 65536 bytes"),
        ("title = '\udce4'", 1, "the file is not UTF-8: byte 0xe4"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_line(
    config: Path, text: str, line: int | None, message: str
) -> None:
    file = config.parent / "mine" / "house.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    output = refusal(config)
    where = f"{file}:{line}" if line and "(at" not in message else str(file)
    assert output.startswith(f"{config}:4: upstreams[0].profile: 'house' can't be used: {where}: ")
    assert message in output


def test_a_name_leads_to_files_of_the_folder_only(config: Path) -> None:
    folder, sound = config.parent / "mine", MINE.format(url="http://house.example/v1")
    (config.parent / "outside.toml").write_text(sound)
    (config.parent / "other").mkdir()
    (config.parent / "other" / "house.toml").write_text(sound)
    (folder / "house.toml").symlink_to(config.parent / "other" / "house.toml")
    (folder / "folder.toml").mkdir()
    (folder / ".hidden.toml").write_text(sound)
    (folder / "house.txt").write_text(sound)
    (folder / "gone.toml").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe.toml")  # would be waited for
    assert names(folder) == names()
    for name in (
        "house",
        "../outside",
        "../other/house",
        "folder",
        ".hidden",
        "house.txt",
        "gone",
        "pipe",
        "",
        ".",
    ):
        with pytest.raises(SettingsError, match="is not one of: "):
            profile(name, folder)


def test_a_link_within_the_folder_counts(config: Path) -> None:
    """As Kubernetes mounts files: by links to a folder beside them."""
    folder = config.parent / "mine"
    (folder / "..data").mkdir()
    (folder / "..data" / "house.toml").write_text(MINE.format(url="http://house.example/v1"))
    (folder / "house.toml").symlink_to(Path("..data", "house.toml"))
    assert profile("house", folder).title == "Mine"


def test_a_name_that_is_not_there_names_ones_own_too(config: Path) -> None:
    (config.parent / "mine" / "hause.toml").write_text(MINE)
    message = refusal(config)
    assert message.startswith(f"{config}:4: upstreams[0].profile: 'house' is not one of: ")
    assert "(did you mean 'hause'?)" in message


def test_a_folder_that_is_not_there_is_named_with_its_line(config: Path) -> None:
    (config.parent / "mine").rmdir()
    assert refusal(config) == f"{config}:1: profiles: 'mine' is not a folder"
    (config.parent / "mine").write_text("a file")
    assert refusal(config) == f"{config}:1: profiles: 'mine' is not a folder"


@pytest.mark.parametrize(
    ("name", "is_place"),
    [
        ("localhost", True),
        ("localhost/v1", True),
        ("[::1]:8080", True),
        ("127.0.0.1:8080", True),
        ("ollama:11434/v1", True),
        ("api.openai.com", True),
        ("openai.com/v1", True),
        ("olama", False),
        ("open.ai", False),
        ("ollama:", False),
        ("ollama:latest", False),
        (":11434", False),
        ("meta/llama-3.1", False),
        ("..", False),
        ("a..b", False),
        ("", False),
        ("a." * 100_000 + "/" * 100_000, False),
        ("a:" * 100_000, False),
        ("a." * 100_000 + "a", True),
    ],
    ids=lambda given: str(given)[:20],
)
def test_an_address_is_not_taken_for_an_unknown_profile(name: str, is_place: bool) -> None:
    with pytest.raises(SettingsError) as caught:
        profile(name)
    assert ("if it is an address, add its scheme" in str(caught.value)) == is_place
