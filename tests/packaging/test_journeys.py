"""The first page and the four journeys of the README as a reader follows them: commands and files, in an
empty folder.

`make test` forks the checkout's commands; `make packages` starts the wheels' in an environment of their own.
"""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from openresponses_bridge.conformance.scenarios import SCENARIOS
from tests.support.document_blocks import commands, files
from tests.support.document_reader import Reader
from tests.support.forked import fork_server
from tests.support.upstream import DONE, Script, ScriptedUpstream, chunk
from tests.support.wheel import Wheels

FRONT = "Put Codex, Claude Code, VS Code or an SDK in front of any model"
JSON = {"content-type": "application/json"}
INSTALL = "pip install openresponses-server"


@pytest.fixture(params=["checkout", pytest.param("wheels", marks=pytest.mark.packages)])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Reader:
    if request.param == "wheels":
        wheels: Wheels = request.getfixturevalue("wheels")
        python = wheels.environment(INSTALL.removeprefix("pip install "), "openai", "pytest")
        result = Reader(python, tmp_path)
    else:
        result = Reader(Path(sys.executable), tmp_path, fork_server())
    result.files_of("README.md")
    return result


def test_start_in_five_minutes(reader: Reader) -> None:
    install, serve = commands("docs/start.md", "Serve")
    assert install == INSTALL, "what the environment has"
    whole, streamed, validate, chat, vscode = commands("docs/start.md", "Ask")
    with reader.serving(serve):
        assert json.loads(reader.run(whole))["status"] == "completed"
        reader.run(streamed)
    assert reader.run(validate) == ""
    assert "chat.completion.chunk" in reader.run(chat)
    assert "LanguageModelTextPart" in reader.run(vscode)


def test_a_real_model(reader: Reader) -> None:
    known, in_a_cloud, init = commands("docs/start.md", "A real model")
    assert reader.run(f"printf 'ollama\\n\\n\\n\\n\\n\\n' | {init}")
    config = tomllib.loads((reader.folder / "bridge.toml").read_text())
    assert config["upstreams"][0]["profile"] == "ollama"
    with ScriptedUpstream() as upstream:
        upstream.scripts["qwen3"] = Script([chunk(content="Hello "), chunk("stop"), DONE])
        with reader.serving(known.replace("--upstream ollama", f"--upstream {upstream.url}")):
            answer = posted(f"http://127.0.0.1:{reader.port}/v1/responses", {"input": "Hello"})
        assert answer["output"][0]["content"][0]["text"] == "Hello "
    with reader.serving(in_a_cloud, OPENROUTER_API_KEY="k"):
        pass  # it listens: it asks the cloud nothing before a request arrives


def test_emit_from_your_own_model(reader: Reader) -> None:
    install, serve, ask, run_codex = commands("README.md", "Emit from your own model")
    assert install == INSTALL, "what the environment has"
    assert len([line for line in files("README.md")["my_model.py"].splitlines() if line]) <= 20
    with reader.serving(serve):
        stream = reader.run(ask)
        (reader.folder / "capture.sse").write_text(stream)
        reader.run("openresponses-bridge validate capture.sse")
        agent = reader.folder / "agent"
        agent.write_text('#!/bin/sh\necho "$*"\n')
        agent.chmod(0o755)
        assert 'model="mine"' in reader.run(
            f"{run_codex} --program ./agent"
        )  # test_pages.py has the real one
    assert "Let me look that up." in stream
    assert '"name":"get_weather"' in stream
    assert stream.endswith("data: [DONE]\n\n")


def test_put_clients_in_front_of_any_model(reader: Reader) -> None:
    run_codex, run_claude, doctor, serve, other, of_codex, init = commands("README.md", FRONT)
    with ScriptedUpstream() as upstream:
        upstream.scripts["qwen3"] = Script(
            [chunk(content="Hello "), chunk(content="there."), chunk("stop"), DONE]
        )
        known = "--upstream ollama"
        assert known in serve
        with reader.serving(serve.replace(known, f"--upstream {upstream.url}") + " --store memory://"):
            assert reader.python("ask.py") == "Hello there."
            address = f"http://127.0.0.1:{reader.port}/v1"
            assert (
                posted(f"{address}/responses", {"model": "qwen3", "input": "Hello!"})["status"] == "completed"
            )
            message = {
                "model": "qwen3",
                "max_tokens": 50,
                "messages": [{"role": "user", "content": "Hello!"}],
            }
            assert posted(f"{address}/messages", message)["content"][0]["text"] == "Hello there."
        agent = reader.folder / "agent"
        agent.write_text("#!/bin/sh\necho started with $#\n")
        agent.chmod(0o755)
        with_model = run_codex.replace(known, f"--upstream {upstream.url}")
        assert "started with" in reader.run(f"{with_model} --program ./agent")
        with_words = run_claude.replace(known, f"--upstream {upstream.url} --model qwen3 --program ./agent")
        assert "started with 2" in reader.run(with_words)
    assert reader.run(f"{doctor.split(' --')[0]} --help")
    assert "--dialect codex" in of_codex
    assert reader.run(f"{other.split(' --')[0]} --help")
    assert reader.run(f"{init} --help")


def posted(address: str, body: object) -> dict[str, Any]:
    with urlopen(Request(address, json.dumps(body).encode(), JSON)) as answered:
        answer: dict[str, Any] = json.load(answered)
        return answer


def test_keep_and_resume_sessions(reader: Reader) -> None:
    serve, resume = commands("README.md", "Keep and resume sessions")
    with reader.serving(serve):
        lines = reader.python("session.py").splitlines()
        assert lines[0].startswith("42 response.")
        assert lines[-1].endswith(" response.completed")
        address = f"http://127.0.0.1:{reader.port}/v1/responses"
        response = posted(address, {"model": "demo", "input": "Write 60 words"})
    with reader.serving(serve):
        again = reader.run(resume, ID=str(response["id"]))
    numbers = [int(number) for number in re.findall(r'"sequence_number":(\d+)', again)]
    assert numbers[0] == 42
    assert "event: response.completed" in again


def test_test_your_own_server(reader: Reader) -> None:
    conform, validate, inspect, replay = commands("README.md", "Test your own server")
    _, serve, ask, _ = commands("README.md", "Emit from your own model")
    with reader.serving(serve):
        (reader.folder / "capture.sse").write_text(reader.run(ask))
        reader.run("python -m pytest -q -p no:cacheprovider test_my_server.py")
        output = reader.run(conform)
    verdicts = {name: mark for mark, name in re.findall(r"^([✓○✗]) (\S+)", output, re.MULTILINE)}
    assert verdicts.keys() == SCENARIOS.keys()
    assert "✗" not in verdicts.values()
    assert {name for name in verdicts if name.startswith("tools.") and verdicts[name] != "✓"} == set()
    assert reader.run(validate) == ""
    assert "function_call get_weather" in reader.run(inspect)
    assert '"name":"get_weather"' in reader.run(replay)
    broken = (reader.folder / "capture.sse").read_text().replace("response.output_text.delta", "response.x")
    (reader.folder / "capture.sse").write_text(broken)
    reader.run(validate, code=1)
