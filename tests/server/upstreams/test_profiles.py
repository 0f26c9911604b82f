"""Each known provider: its file is sound, and what it says reaches an upstream."""

from typing import Any
from urllib.parse import urlsplit

import pytest

from bridge.seal import Sealer
from server.settings import Settings, SettingsError, UpstreamSettings, load_settings
from server.upstreams.dialects import DIALECTS
from server.upstreams.profiles import names, profile
from server.upstreams.routing import build_router
from tests.support import dialect_scripts as scripts
from tests.support.serving import respond, serving, stream
from tests.support.upstream import Script, ScriptedUpstream

pytestmark = pytest.mark.timeout(20)
KNOWN = {
    "openai", "anthropic", "openrouter", "ollama", "vllm", "llamacpp", "lmstudio", "groq", "mistral",
    "deepseek", "xai", "gemini",
}  # fmt: skip
LOCAL = {"ollama", "vllm", "llamacpp", "lmstudio"}
SPOKEN = [(name, dialect) for name in sorted(KNOWN) for dialect in profile(name).dialects]


def test_all_are_there() -> None:
    assert set(names()) == KNOWN


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_profile_is_enough(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = profile(name)
    assert (known.api_key_env is None) == (name in LOCAL)
    local = {urlsplit(each.url).hostname == "127.0.0.1" for each in known.dialects.values()}
    assert local == {name in LOCAL}
    if known.api_key_env is not None:
        monkeypatch.delenv(known.api_key_env, raising=False)
        with pytest.raises(SettingsError, match=known.api_key_env):
            build_router(load_settings(upstreams=[{"profile": name}]), Sealer())
        monkeypatch.setenv(known.api_key_env, "k")
    target = build_router(load_settings(upstreams=[{"profile": name}]), Sealer()).resolve("m")
    assert (target.upstream.name, target.dialect) == (name, DIALECTS[known.dialect])


@pytest.mark.parametrize(("name", "dialect"), SPOKEN)
def test_each_drives_an_upstream(upstream: ScriptedUpstream, name: str, dialect: str) -> None:
    model = f"{name}-{dialect}"
    upstream.scripts[model] = Script(scripts.text(dialect, "Hel", "lo"))
    given = UpstreamSettings(profile=name, dialect=dialect, url=upstream.url)
    wishes: dict[str, Any] = {
        "max_output_tokens": 50,
        "tool_choice": "auto",
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        "parallel_tool_calls": True,
        "user": "u",
    }
    with serving(Settings(upstreams=[given])) as base:
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
    given = UpstreamSettings(
        profile="mistral", url=upstream.url, options={"max_tokens_field": "max_completion_tokens", "omit": []}
    )
    with serving(Settings(upstreams=[given])) as base:
        respond(base, model="over", max_output_tokens=20, user="u")
    body = upstream.last("over").body
    assert (body["max_completion_tokens"], body["user"]) == (20, "u")
    assert "stream_options" not in body
