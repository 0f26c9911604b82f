"""The lines with which `serve` starts: what upstreams answer, and a command that can be pasted."""

import json
import shlex
import socket
from typing import Any

import pytest

from openresponses_cli.commands import startup
from openresponses_cli.commands.startup import UpstreamCheck, curl_line, print_startup, upstream_line
from openresponses_server.errors import UpstreamError
from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.upstreams.demo.upstream import DemoUpstream
from openresponses_server.upstreams.profiles import profile
from tests.support.processes import free_port
from tests.support.upstream import ScriptedUpstream


class Elsewhere(DemoUpstream):
    name = "local"
    address = "http://127.0.0.1:11434/v1"


class Here(DemoUpstream):
    name = "codex"
    address = "codex"


def greeted(capsys: pytest.CaptureFixture[str], *upstreams: UpstreamSettings, **more: Any) -> list[str]:
    """All its lines."""
    settings = Settings(upstreams=list(upstreams), store="memory://", **more)
    thread = print_startup(settings, "127.0.0.1", 8080)
    if thread is not None:
        thread.join()
        assert not thread.is_alive()
    return capsys.readouterr().out.splitlines()


def body_of(line: str) -> dict[str, Any]:
    """What a shell makes of the line."""
    words = shlex.split(line)
    assert words[:3] == ["curl", "-N", "http://127.0.0.1:8080/v1/responses"]
    assert words.count("-d") == 1
    assert words[-2] == "-d"
    body: dict[str, Any] = json.loads(words[-1])
    return body


@pytest.mark.parametrize("name", ["m", "'; rm -rf ~; '", "$(id)`id`", '"}\n', "\x1b[2J", "é\u202e"])
def test_whatever_a_model_is_called_the_command_can_be_pasted(name: str) -> None:
    line = curl_line("http://127.0.0.1:8080", name, keys=False)
    assert body_of(line)["model"] == name
    assert line.isprintable()
    assert line.isascii()


def test_models_that_are_found_are_counted_and_one_that_writes_is_asked(
    capsys: pytest.CaptureFixture[str], upstream: ScriptedUpstream
) -> None:
    upstream.models = ["text-embedding-3-small", "gpt-4o", *"abcdef"]
    lines = greeted(capsys, UpstreamSettings(url=upstream.url, name="local"))
    upstream.models = None
    assert "8 models: text-embedding-3-small, gpt-4o, a, b, c, …" in lines[-2]
    assert body_of(lines[-1])["model"] == "gpt-4o"


def test_a_model_is_one_that_goes_where_it_was_found(
    capsys: pytest.CaptureFixture[str], upstream: ScriptedUpstream
) -> None:
    """An upstream that serves other names than it lists."""
    upstream.models = ["hidden", "llama3"]
    lines = greeted(capsys, UpstreamSettings(url=upstream.url, models=["llama*"]))
    upstream.models = None
    assert body_of(lines[-1])["model"] == "llama3"


def test_a_slow_upstream_is_waited_for_beside_the_server_and_not_for_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = Settings(upstreams=[UpstreamSettings(url=url)], store="memory://")
        thread = print_startup(settings, "127.0.0.1", 8080)
        assert thread is not None
        thread.join()
    last = capsys.readouterr().out.splitlines()
    assert "isn't answering" in last[-2]
    assert "within 0.3 seconds" in last[-2]
    assert body_of(last[-1])["model"] == "MODEL"


def test_an_end_of_the_process_ends_the_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "TIMEOUT", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        asking = startup._UpstreamChecks(
            Settings(upstreams=[UpstreamSettings(url=url)]), "http://127.0.0.1:8080", shown_curl=True
        )
        thread = asking.start()
        asking._stop()
        thread.join()
        assert not thread.is_alive()


def test_a_password_in_an_address_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    lines = greeted(
        capsys,
        UpstreamSettings(url=f"http://me:hunter2@127.0.0.1:{port}", model="m"),
        UpstreamSettings(url=f"http://127.0.0.1:{port}", name="b", api_key="sk-secret"),
        event_log="redis://:hunter2@127.0.0.1:1/0?password=hunter2",
        api_keys=["sha256:" + "0" * 64],
    )
    assert not any(secret in "\n".join(lines) for secret in ("hunter2", "sk-secret", "0" * 64))
    assert f"http://127.0.0.1:{port}/v1" in lines[-1]
    assert f"http://127.0.0.1:{port}/v1" in lines[-2]
    assert "YOUR_KEY" in lines[1]
    assert "  keys: 1; each request must send it" in lines


def test_what_nobody_foresaw_is_one_line_and_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_self: object) -> list[str]:
        raise RuntimeError("secret")

    monkeypatch.setattr("openresponses_server.upstreams.http.HttpUpstream.models", broken)
    lines = greeted(capsys, UpstreamSettings(url="http://127.0.0.1:1", model="m"))
    assert lines[-1].endswith("isn't answering at http://127.0.0.1:1/v1 (RuntimeError)")


def refused(
    status: int, code: str | None = None, cause: str = "it answered with status 401"
) -> UpstreamError:
    return UpstreamError(status, "their words", code=code, cause=cause)


CASES: dict[str, tuple[Any, UpstreamSettings, str]] = {
    "one": (["m"], UpstreamSettings(), "local answers at http://127.0.0.1:11434/v1 with 1 model: m"),
    "none": ([], UpstreamSettings(model="m"), "with no models"),
    "latest": (["qwen3:latest"], UpstreamSettings(model="qwen3"), "1 model: qwen3:latest"),
    "missing": (["qwen3"], UpstreamSettings(model="qwen"), "not among them: 'qwen' (did you mean 'qwen3'?)"),
    "a key": (refused(401), UpstreamSettings(api_key_env="K"), "local refuses the key at"),
    "no key": (refused(403), UpstreamSettings(), "does not list its models without a key at"),
    "another status": (refused(500, cause="it answered with status 500"), UpstreamSettings(), "status 500"),
    "away": (
        refused(502, UpstreamError.UNREACHABLE, "Connection refused"),
        UpstreamSettings(),
        "local isn't answering at http://127.0.0.1:11434/v1 (Connection refused)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_an_upstream_answers(case: str) -> None:
    answer, settings, expected = CASES[case]
    line = upstream_line(UpstreamCheck(Elsewhere(), settings, None, answer), "http://127.0.0.1:8080")
    assert expected in line
    assert ("not among" in line) == (case == "missing")
    assert "their words" not in line


@pytest.mark.parametrize("name", ["ollama", "vllm", "llamacpp", "lmstudio"])
def test_how_a_local_server_is_started_is_said(name: str) -> None:
    known = profile(name)
    away = refused(502, UpstreamError.UNREACHABLE, "Connection refused")
    line = upstream_line(UpstreamCheck(Elsewhere(), UpstreamSettings(), known, away), "http://127.0.0.1:8080")
    assert line.startswith(f"{known.title} isn't answering at")
    assert line.endswith(f": is `{known.start}` running?")


@pytest.mark.parametrize("settings", [UpstreamSettings(), UpstreamSettings(dialect="codex")])
def test_what_a_program_needs_that_can_not_be_started_is_said(settings: UpstreamSettings) -> None:
    """Nothing of it has to be running."""
    away = refused(503, UpstreamError.UNREACHABLE, "its program was not found")
    known = profile("codex")
    line = upstream_line(UpstreamCheck(Here(), settings, known, away), "http://127.0.0.1:8080")
    assert line == (
        "Codex can't be started as codex (its program was not found): "
        "is it installed, and was `codex login` run?"
    )


@pytest.mark.parametrize("own", ["http://127.0.0.1:11434", "http://[::1]:11434", "http://localhost:11434"])
def test_an_upstream_that_is_this_server_is_noticed(own: str) -> None:
    line = upstream_line(UpstreamCheck(Elsewhere(), UpstreamSettings(), None, ["m"]), own)
    assert "which is this server itself" in line
