"""docs/observing.md on traces is true: its commands run, its settings can be used."""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from openresponses_server.settings import load_settings
from tests.support.document_reader import Reader
from tests.support.documents import blocks_of, commands_of
from tests.support.forked import fork_server
from tests.support.upstream import Script, ScriptedUpstream, text

BLOCKS = {block.language: block for block in blocks_of("docs/observing.md") if block.heading == "Traces"}


def test_the_page_on_traces_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPPORT_KEY", "of-support")
    config = tmp_path / "bridge.toml"
    config.write_text(BLOCKS["toml"].code)
    assert load_settings(config).trace.folder == str(tmp_path / "traces")
    reader = Reader(Path(sys.executable), tmp_path, fork_server())
    traced, fetch, replay, play = commands_of(BLOCKS["sh"])
    with ScriptedUpstream({"m": Script(text("Hello", " there"))}) as upstream:
        traced = traced.replace("--upstream ollama", f"--upstream {upstream.url}")
        with reader.serving(f"{traced} --store memory://"):
            response = asked(reader)
            fetch = fetch.replace("resp_…", response["id"]).replace("localhost:", "127.0.0.1:")
            reader.run(fetch)
    assert json.loads(reader.run(replay))["output"][0]["content"][0]["text"] == "Hello there"
    with reader.serving(f"{play} --store memory://"):
        again = asked(reader)
    assert again["output"][0]["content"] == response["output"][0]["content"]


def asked(reader: Reader) -> Any:
    body = json.dumps({"model": "m", "input": "Hi"}).encode()
    address = f"http://127.0.0.1:{reader.port}/v1/responses"
    with urlopen(Request(address, body, {"content-type": "application/json"})) as answer:
        return json.load(answer)
