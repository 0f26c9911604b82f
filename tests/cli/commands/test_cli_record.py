"""`record`, `replay` of what it writes, and a server over it: one's own client tried offline."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from openresponses_cli.commands.cli import main
from openresponses_cli.commands.serve import fields_of
from openresponses_server.observation.recordings.dialects import ENCODERS
from openresponses_server.observation.recordings.records import (
    Chunk,
    RecordedEnd,
    RecordedRequest,
    RecordedStatus,
    RecordingStart,
)
from openresponses_server.settings import SettingsError, load_settings
from tests.support.document_blocks import blocks, commands
from tests.support.in_process import InProcess
from tests.support.processes import free_port
from tests.support.shared import REPOSITORY
from tests.support.upstream import CUT, Script, ScriptedUpstream, refusal, text


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    scripts: dict[str, Any] = {
        "busy": refusal(429, message="later", code="slow_down"),
        "cut": Script([*text("Hello")[:2], CUT]),
    }
    with ScriptedUpstream(scripts) as running:
        yield running


def run(*arguments: object, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments], input=stdin)


@pytest.fixture
def recording(upstream: ScriptedUpstream, tmp_path: Path) -> Path:
    path = tmp_path / "r.jsonl"
    done = run("record", "Hi", "Bye", "-o", path, "--upstream", upstream.url, "--model", "m")
    assert (done.exit_code, done.stderr.count("bytes in")) == (0, 2)
    return path


def test_a_recording_is_the_users_alone_and_is_not_overwritten(recording: Path) -> None:
    assert recording.stat().st_mode & 0o777 == 0o600
    before = recording.read_bytes()
    again = run("record", "Hi", "-o", recording)
    assert (again.exit_code, "already exists" in again.stderr) == (2, True)
    assert recording.read_bytes() == before


def test_where_nobody_answers_no_file_is_left(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    dead, path = f"http://127.0.0.1:{free_port()}", tmp_path / "r.jsonl"
    done = run("record", "Hi", "-o", path, "--upstream", dead, "--model", "m")
    assert done.exit_code == 1
    assert list(tmp_path.iterdir()) == []
    refused = run("record", "Hi", "-o", path, "--upstream", upstream.url, "--model", "busy")
    assert (refused.exit_code, path.exists()) == (1, True)


@pytest.mark.parametrize("sink", ENCODERS)
def test_replay_knows_a_recording(recording: Path, sink: str) -> None:
    capture = b"".join(step for step in text("Hello", " there") if isinstance(step, bytes))
    plain = run("replay", "--to", sink, stdin=capture).stdout_bytes
    alone = run("replay", recording, "--to", sink, "--exchange", 1)
    assert (alone.exit_code, alone.stdout_bytes) == (0, plain)
    both = run("replay", "--to", sink, "--speed", "1000", stdin=recording.read_bytes())
    assert (both.exit_code, both.stderr) == (0, "")
    assert sink == "snapshot" or len(both.stdout_bytes) > len(plain)


def test_refusals_and_cuts_are_recorded_and_reported(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    bodies = []
    for model in ("busy", "cut"):
        bodies.append(tmp_path / f"{model}.json")
        bodies[-1].write_text(json.dumps({"model": model, "messages": [], "stream": True}))
    path = tmp_path / "r.jsonl"
    requests = [part for body in bodies for part in ("--request", body)]
    done = run("record", *requests, "-o", path, "--upstream", upstream.url)
    assert (done.exit_code, done.stderr.count("upstream: ")) == (1, 2)
    assert upstream.last("cut").body == {"model": "cut", "messages": [], "stream": True}
    played = run("replay", path)
    assert played.exit_code == 0
    assert "exchange 1: refused with status 429: " in played.stderr
    assert "exchange 2: cut before the end of its body" in played.stderr
    assert '"type":"response.failed"' in played.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["record", "-o", "{}/new"], "nothing to ask: give a PROMPT"),
        (["record", "Hi", "-o", "{}/new", "--upstream", "http://127.0.0.1:1"], "names no model"),
        (["record", "Hi", "-o", "{}/new", "--dialect", "chat"], "--upstream"),
        (["record", "Hi", "-o", "{}/new", "--upstream", "recording:{}/none"], "No such file"),
        (["record", "--request", "{}/text", "-o", "{}/new"], "text: "),
        (["record", "--request", "{}/list", "-o", "{}/new"], "a request must be a JSON object"),
        (["record", "Hi", "-o", "{}/text/new"], "/text/new: "),
        (["replay", "{}/text", "--speed", "2"], "--speed and --exchange are for recordings"),
        (["replay", "{}/r.jsonl", "--speed", "0"], "is not real, max or how many times as fast"),
        (["replay", "{}/r.jsonl", "--speed", "nan"], "is not real, max or how many times as fast"),
        (["replay", "{}/r.jsonl", "--exchange", "9"], "the recording has no exchange 9"),
        (["replay", "{}/r.jsonl", "--from", "anthropic"], ""),
        (["replay", "{}/cut.jsonl"], "line 3: "),
        (["replay", "{}/odd.jsonl"], "line 2: dialect 'odd' is not one of"),
        (["replay", "{}/junk.jsonl"], "line 2: the answer of exchange 1 can't be read: line 1: "),
        (["serve", "--upstream", "recording:{}/cut.jsonl"], "line 3: "),
        (["serve", "--speed", "2"], "--speed and --loop need --upstream recording:FILE"),
    ],
)
def test_what_cannot_be_done(recording: Path, arguments: list[str], said: str) -> None:
    folder = recording.parent
    (folder / "text").write_text("data: {}\n\n")
    (folder / "list").write_text("[]")
    lines = recording.read_text().splitlines(keepends=True)
    (folder / "cut.jsonl").write_text("".join(lines[:2]) + lines[2][:-9])
    (folder / "odd.jsonl").write_text("".join(lines[:3]).replace('"chat"', '"odd"'))
    junk = '{"type":"chunk","exchange":1,"at":1,"text":"junk"}\n'
    (folder / "junk.jsonl").write_text("".join(lines[:3]) + junk)
    done = run(*(each.replace("{}", str(folder)) for each in arguments))
    if said:
        assert done.exit_code == 2
        assert said in done.stderr
        assert "bytes in" not in done.stderr
    assert not (folder / "new").exists()


def test_a_server_answers_from_a_recording_and_records(recording: Path, tmp_path: Path) -> None:
    """What the server then records is a recording of the same answers."""
    again = tmp_path / "again"
    fields = fields_of(f"recording:{recording}", None, None, None, None, speed="max", loop=True)
    server = InProcess(load_settings(None, **fields, store="memory://", record=str(again)))
    demo = InProcess(load_settings(None, store="memory://", record=str(again)))
    try:
        body = {"model": "m", "input": "Hi"}
        answers = [server.call("POST", "/v1/responses", body) for _ in range(2)]
        assert [each.json["output"][0]["content"][0]["text"] for each in answers] == ["Hello there"] * 2
        unknown = server.call("POST", "/v1/responses", {"model": "m", "input": "What?"})
        assert (unknown.status, unknown.error["code"]) == (404, "not_recorded")
        listed = server.call("GET", "/v1/models").json["data"]
        assert [each["id"] for each in listed] == ["m"]
        assert not again.exists()
        demo.call("POST", "/v1/responses", {"model": "demo", "input": "Hi"})
    finally:
        server.close()
        demo.close()
    (recorded,) = again.iterdir()
    assert run("replay", recorded, "--to", "snapshot").exit_code == 0


def test_the_file_is_found_from_where_it_is_named(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = recording.parent / "bridge.toml"
    config.write_text('record = "kept"\n[[upstreams]]\nurl = "recording:r.jsonl"\nplayback.match = "order"\n')
    settings = load_settings(config)
    assert settings.upstreams[0].url == f"recording:{recording}"
    assert settings.record == str(recording.parent / "kept")
    monkeypatch.chdir(recording.parent)
    assert load_settings(None, upstreams=[{"url": "recording:r.jsonl"}]).upstreams == [
        type(settings.upstreams[0])(url=f"recording:{recording}")
    ]
    assert run("config", "check", config).exit_code == 0
    with pytest.raises(SettingsError, match="is not a folder"):
        load_settings(None, record=str(recording))
    config.write_text('[[upstreams]]\nurl = "recording:r.jsonl"\nplayback.speed = -1\n')
    with pytest.raises(SettingsError, match=r"bridge.toml:3: .*playback"):
        load_settings(config)


def test_the_page_on_recordings_is_true(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands run in their order; those that serve are checked as `config check` does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEY", "sk-A1b2C3d4E5f6G7h8I9j0")
    (tmp_path / "body.json").write_text('{"model":"m","messages":[],"stream":true}')
    for heading in ("Making one", "Playing one"):
        for command in commands("docs/recording.md", heading):
            _, name, *rest = shlex.split(command)
            words = [upstream.url if each in ("ollama", "https://api.example/v1") else each for each in rest]
            fast = ["1000" if each == "real" else each for each in words]
            done = run(*(["config", "check"] if name == "serve" else [name]), *fast)
            assert (command, done.exit_code) == (command, 0), done.stderr
    ((_, config),) = blocks("docs/recording.md", "toml")
    (tmp_path / "bridge.toml").write_text(config)
    assert run("config", "check", "bridge.toml").exit_code == 0
    page = (REPOSITORY / "docs/recording.md").read_text()
    for kind in (RecordingStart, RecordedRequest, RecordedStatus, Chunk, RecordedEnd):
        row = next(line for line in page.splitlines() if line.startswith(f"| `{kind.__struct_config__.tag}`"))
        assert [name for name in kind.__struct_fields__ if f"`{name}`" not in row] == []
