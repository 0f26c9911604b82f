"""`anthropic-beta` from a client of Anthropic's API to its upstream."""

from collections.abc import Iterator
from typing import Any

import pytest

from openresponses_server.requests.client_traits import passed_values
from openresponses_server.settings import Settings, UpstreamSettings
from tests.support import dialect_scripts as scripts
from tests.support.in_process import InProcess
from tests.support.upstream import Script, ScriptedUpstream

BETAS = "context-management-2025-06-27, interleaved-thinking-2025-05-14"
CACHED: Any = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}


@pytest.fixture(scope="module")
def app(upstream: ScriptedUpstream) -> Iterator[InProcess]:
    def reached(name: str, dialect: str, **more: Any) -> UpstreamSettings:
        return UpstreamSettings(name=name, url=upstream.url, dialect=dialect, models=[f"{name}-*"], **more)

    upstreams = [
        reached("anthropic", "anthropic", headers={"anthropic-beta": "mine-1"}),
        reached("without", "anthropic", options={"betas": False}),
        reached("chat", "chat"),
    ]
    running = InProcess(Settings(upstreams=upstreams))
    yield running
    running.close()


def asked(app: InProcess, upstream: ScriptedUpstream, name: str, betas: str = BETAS) -> tuple[Any, str]:
    """(the request that the upstream got, what its client hears of losses)."""
    model = f"{name}-m"
    upstream.scripts[model] = Script(scripts.text("chat" if name == "chat" else "anthropic", "Hello"))
    body = {"model": model, "max_tokens": 3, "messages": [{"role": "user", "content": [CACHED]}]}
    answer = app.call("POST", "/v1/messages", body, [(b"anthropic-beta", betas.encode())])
    assert answer.status == 200, answer.body
    return upstream.last(model), answer.headers.get("openresponses-losses", "")


def test_names_and_points_of_the_cache_go_on(app: InProcess, upstream: ScriptedUpstream) -> None:
    received, losses = asked(app, upstream, "anthropic")
    assert received.headers["anthropic-beta"] == "mine-1," + BETAS.replace(" ", "")
    assert received.body["messages"] == [{"role": "user", "content": [CACHED]}]
    assert (received.body["max_tokens"], losses) == (3, "")


@pytest.mark.parametrize("name", ["without", "chat"])
def test_names_are_a_loss_elsewhere(app: InProcess, upstream: ScriptedUpstream, name: str) -> None:
    received, losses = asked(app, upstream, name)
    assert "anthropic-beta" not in received.headers
    assert "anthropic-beta: is not known to the upstream" in losses


def test_other_clients_pass_nothing_on(app: InProcess, upstream: ScriptedUpstream) -> None:
    upstream.scripts["anthropic-m"] = Script(scripts.text("anthropic", "Hello"))
    app.call(
        "POST", "/v1/responses", {"model": "anthropic-m", "input": "Hi"}, [(b"anthropic-beta", b"theirs-1")]
    )
    assert upstream.last("anthropic-m").headers["anthropic-beta"] == "mine-1"


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("", []),
        ("a-1,,a-1, b-2", ["a-1", "b-2"]),
        ("A-1,a b,a\r\nx: y,é,a_1", []),
        ("a" * 64, ["a" * 64]),
        ("a" * 65, []),
    ],
)
def test_only_names_go_on(given: str, names: list[str]) -> None:
    assert passed_values("anthropic-beta", given) == names


def test_names_are_bounded() -> None:
    many = passed_values("anthropic-beta", ",".join(f"beta-{number}" for number in range(10_000)))
    assert len(many) == 32
