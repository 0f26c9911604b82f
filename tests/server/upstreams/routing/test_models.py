"""Names → upstreams: exact, by pattern, by alias, by address, by default; and what a config gets wrong."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openresponses_bridge.seal import Sealer, SealError
from openresponses_server.api.app import create_app
from openresponses_server.errors import HttpError
from openresponses_server.settings import Capabilities, Settings, SettingsError, load_settings
from openresponses_server.upstreams.catalog import ReportedModel, capabilities_of
from openresponses_server.upstreams.routing.models import Router, build_router
from tests.support.serving import call, respond, serving
from tests.support.upstream import Script, ScriptedUpstream, text

FILE = """
default_model = "fast"
[aliases]
fast = "local/small"
best = "gpt-5"
chained = "best"
[[upstreams]]
name = "exact"
url = "http://exact"
models = ["gpt-5", "gpt-5-mini"]
[[upstreams]]
name = "patterns"
url = "http://patterns"
models = ["gpt-*", "gpt-5-*", "claude-?"]
[[upstreams]]
name = "local"
url = "http://local"
[[upstreams]]
name = "second-open"
url = "http://second"
"""


def routed(text: str, tmp_path: Path) -> Router:
    path = tmp_path / "bridge.toml"
    path.write_text(text)
    return build_router(load_settings(path), Sealer())


@pytest.mark.parametrize(
    ("model", "upstream", "outgoing"),
    [
        ("gpt-5", "exact", "gpt-5"),
        ("gpt-5-mini", "exact", "gpt-5-mini"),
        ("gpt-5-nano", "patterns", "gpt-5-nano"),
        ("gpt-4", "patterns", "gpt-4"),
        ("claude-3", "patterns", "claude-3"),
        ("claude-33", "local", "claude-33"),
        ("fast", "local", "small"),
        ("best", "exact", "gpt-5"),
        ("chained", "exact", "gpt-5"),
        ("second-open/x", "second-open", "x"),
        ("vendor/x", "local", "vendor/x"),
        (None, "local", "small"),
    ],
)
def test_routes(tmp_path: Path, model: str | None, upstream: str, outgoing: str) -> None:
    target = routed(FILE, tmp_path).resolve(model)
    assert (target.upstream.name, target.model) == (upstream, outgoing)


def test_a_model_that_nobody_serves_is_404(tmp_path: Path) -> None:
    router = routed('[[upstreams]]\nurl = "http://x"\nmodels = ["a*"]', tmp_path)
    with pytest.raises(HttpError) as unknown:
        router.resolve("b")
    assert (unknown.value.http_status, unknown.value.code) == (404, "model_not_found")
    with pytest.raises(HttpError) as nameless:
        router.resolve(None)
    assert (nameless.value.http_status, nameless.value.param) == (400, "model")


UPSTREAM = '[[upstreams]]\nurl = "http://x"\n'
WRONG = {
    "unset variable": (
        '[[upstreams]]\nurl = "${NOT_SET_HERE}"',
        r"upstreams\[0\]\.url: .*NOT_SET_HERE is not set",
    ),
    "unset key": (
        UPSTREAM + 'api_key = "${NOT_SET_HERE}"',
        r"upstreams\[0\]\.api_key: .*NOT_SET_HERE is not set",
    ),
    "no address": ("[[upstreams]]\nname = 'x'", r"upstreams\[0\]: neither url nor profile"),
    "unknown field": (UPSTREAM + "urls = 1", r"upstreams\[0\]: .urls."),
    "retries": (UPSTREAM + "retries = { times = 50 }", r"upstreams\[0\]\.retries\.times"),
    "timeouts": (UPSTREAM + "timeouts = { idle = 0 }", r"upstreams\[0\]\.timeouts\.idle"),
    "depth": ("[limits]\ndepth = 5000", r"limits\.depth: "),
}
UNUSABLE = {
    "unknown profile": (
        '[[upstreams]]\nprofile = "nobody"',
        "'nobody' is not one of: anthropic, azure, bedrock, bedrock-mantle",
    ),
    "dialect without address": (
        '[[upstreams]]\nprofile = "ollama"\ndialect = "anthropic"',
        "ollama has no address",
    ),
    "unknown option": (UPSTREAM + "options = { colour = 1 }", "options.colour is not one of: developer_role"),
    "wrong option": (
        UPSTREAM + "options = { developer_role = 1 }",
        "options.developer_role: upstream: options: ",
    ),
    "twice": (UPSTREAM + UPSTREAM, "two upstreams have the name 'upstream'; give each a different name"),
    "failover": (UPSTREAM + 'failover = ["nobody/m"]', "failover: 'nobody/m' is not the name of an upstream"),
    "alias": (
        'aliases = { a = "b" }\n' + UPSTREAM + 'models = ["c"]',
        "aliases.a: no upstream serves the model 'b'",
    ),
    "circle": ('aliases = { a = "b", b = "a" }\n' + UPSTREAM, "aliases.a: The aliases lead in a loop"),
    "default": ('default_model = "b"\n' + UPSTREAM + 'models = ["c"]', "default_model: no upstream serves"),
    "query": ('[[upstreams]]\nurl = "http://x?a=b"', "has a query"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_config_is_named_with_file_and_field(tmp_path: Path, case: str) -> None:
    text, message = WRONG[case]
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message) as wrong:
        load_settings(path)
    assert str(wrong.value).startswith(str(path))


@pytest.mark.parametrize("case", UNUSABLE)
def test_unusable_config_is_named(tmp_path: Path, case: str) -> None:
    text, message = UNUSABLE[case]
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        create_app(load_settings(path))


def test_variables_are_put_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "somewhere")
    monkeypatch.setenv("SECRET", "s3cret")
    path = tmp_path / "bridge.toml"
    path.write_text(
        '[[upstreams]]\nurl = "http://${PLACE}:${PORT_NOT_SET:-81}/$${x}"\napi_key = "${SECRET}"\n'
        'headers = { x-a = "${SECRET}" }'
    )
    settings = load_settings(path)
    assert settings.upstreams[0].url == "http://somewhere:81/${x}"
    assert "s3cret" not in repr(settings)


def test_capabilities_from_the_table_and_the_config() -> None:
    known = capabilities_of("gpt-4o-mini", {})
    assert (known.context_window, known.images, known.reasoning) == (128_000, True, False)
    configured = {"gpt-4o*": Capabilities(context_window=5), "mine": Capabilities(tools=True)}
    assert capabilities_of("vendor/gpt-4o:free", configured).context_window == 5
    assert capabilities_of("gpt-4o", configured).images is True
    assert capabilities_of("mine", configured) == Capabilities(tools=True)
    assert capabilities_of("nobody-knows", {}) == Capabilities()


@pytest.fixture
def listing() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as other:
        other.models = ["gpt-4o", "hidden"]
        yield other


def test_models_are_merged(upstream: ScriptedUpstream, listing: ScriptedUpstream) -> None:
    fields: dict[str, Any] = {
        "aliases": {"fast": "lists/gpt-4o"},
        "models": {"silent-1": {"tools": True}},
        "upstreams": [
            {"name": "lists", "url": listing.url, "models": ["gpt-*"]},
            {"name": "silent", "url": upstream.url, "models": ["silent-1"]},
            {"name": "down", "url": "http://127.0.0.1:9", "models": ["down-*"]},
        ],
    }
    with serving(load_settings(**fields)) as base:
        sent = {model["id"]: model for model in call(base, "GET", "/v1/models").json["data"]}
        assert {name: model["owned_by"] for name, model in sent.items()} == {
            "fast": "lists",
            "silent-1": "silent",
            "gpt-4o": "lists",
        }
        assert sent["fast"]["context_window"] == sent["gpt-4o"]["context_window"] == 128_000
        assert sent["silent-1"]["capabilities"] == {"tools": True}
        assert call(base, "GET", "/v1/models/gpt-4o").json == sent["gpt-4o"]
        assert call(base, "GET", "/v1/models/hidden").error["code"] == "model_not_found"


def test_an_alias_is_told_as_the_client_named_it(upstream: ScriptedUpstream) -> None:
    upstream.scripts["real"] = Script(text("a"))
    fields: dict[str, Any] = {"aliases": {"nick": "real"}, "upstreams": [{"url": upstream.url}]}
    with serving(load_settings(**fields)) as base:
        assert respond(base, model="nick").json["model"] == "nick"
    assert upstream.last("real").body["model"] == "real"


def test_the_demo_model_is_served_without_upstreams() -> None:
    assert build_router(Settings(), Sealer()).resolve("demo").upstream.name == "demo"


def test_what_was_found_is_kept_until_an_upstream_lists_something_else(tmp_path: Path) -> None:
    router = routed(FILE, tmp_path)
    target = router.target_of("gpt-5", "a")
    assert router.target_of("gpt-5", "a") is target
    assert router.target_of(None, "a").model == "small"
    other = router.target_of("gpt-5", "b")
    with pytest.raises(SealError):
        other.sealer.open(target.sealer.seal(b"x", "compaction"))
    assert target.sealer.open(target.sealer.seal(b"x", "compaction")).payload == b"x"
    router.catalog.report("exact", [ReportedModel("gpt-5", known=Capabilities(context_window=77))])
    assert router.target_of("gpt-5", "a").able.context_window == 77


def test_names_that_clients_make_up_are_not_kept_for_ever(tmp_path: Path) -> None:
    router = routed(FILE, tmp_path)
    for number in range(3000):
        router.target_of(f"made-up-{number}", "")
    router.target_of("x" * 1024, "")  # longer ones are refused
    assert len(router._kept) <= 1024
    assert all(len(name) < 200 for name, _ in router._kept)
