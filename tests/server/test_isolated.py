"""No process of ours imports anything from a folder that a model, a client or somebody else has filled.

Each command and each tool runs in a folder with a module for every name of the standard library and of what
is installed, which leaves a mark beside it when it is imported.
"""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec import Struct

from openresponses_cli.agents.tools import sample_tools
from openresponses_cli.agents.tools.folder import Folder
from openresponses_cli.commands.cli import main
from openresponses_server.settings import Settings
from tests.support.agents import MODEL, scripted
from tests.support.loops import Answer
from tests.support.processes import base_of, with_tables
from tests.support.serving import call, respond, serving
from tests.support.shared import REPOSITORY
from tests.support.upstream import Script, ScriptedUpstream, text

PROGRAM = Path(sys.executable).with_name("openresponses-bridge")
_MARKS = 'open(__file__ + ".imported", "w").close()\n'


@cache
def names() -> list[str]:
    """What anything could import."""
    every = {*sys.stdlib_module_names, *metadata.packages_distributions()}
    return [name for name in every if name.isidentifier()]


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Path]:
    """The folder; in the end none of its modules was imported."""
    folder = tmp_path / "filled"
    folder.mkdir()
    for name in names():
        (folder / f"{name}.py").write_text(_MARKS)
    yield folder
    assert sorted(path.name for path in folder.glob("*.imported")) == []


def environment(folder: Path) -> dict[str, str]:
    """That of a user with a data folder of their own, and without variables for Python."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**inherited, "XDG_DATA_HOME": str(folder.parent / "data"), "NO_COLOR": "1"}


def run(folder: Path, *words: str, code: int = 0, stdin: str = "") -> str:
    done = subprocess.run(
        [str(PROGRAM), *words],
        cwd=folder,
        env=environment(folder),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


@contextmanager
def served(folder: Path, *command: str) -> Iterator[str]:
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            base = base_of(process)
            while call(base, "GET", "/readyz").status != 200:
                time.sleep(0.05)
            yield base
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


def test_the_modules_would_be_imported(tmp_path: Path) -> None:
    """The folder is a trap: what looks there first does fall into it."""
    (tmp_path / "json.py").write_text(_MARKS)
    subprocess.run([sys.executable, "-c", "import json"], cwd=tmp_path, check=True)
    assert (tmp_path / "json.py.imported").exists()


# ── serving ──────────────────────────────────────────────────────────────────────────────────────────────
def with_pattern(pattern: str) -> Any:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    return {"format": {"type": "json_schema", "name": "a", "schema": schema}}


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as own:
        yield own


@pytest.fixture
def config(upstream: ScriptedUpstream, tmp_path: Path) -> str:
    """Of a server over a model that knows no schemas, so that answers are judged here."""
    upstream.models = [MODEL]
    upstream.scripts[MODEL] = Script(text('{"a": "b"}'))
    file = tmp_path / "bridge.toml"
    file.write_text(f'[[upstreams]]\nurl = "{upstream.url}"\noptions = {{json_schema = "json_object"}}\n')
    return str(file)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_serve_and_its_workers(filled: Path, config: str, workers: str) -> None:
    flags = ("--port", "0", "--workers", workers, "--config", config)
    if workers == "2":  # the other one makes its tables
        with_tables(filled.parent / "data")
    with served(filled, str(PROGRAM), "serve", *flags) as base:
        assert respond(base, model=MODEL, text=with_pattern("^[a-z ]*$")).status == 200
        assert respond(base, model=MODEL, text=with_pattern("[")).status == 400  # a schema worker said so
        assert respond(base, model=MODEL, stream=True).status == 200
        messages = [{"role": "user", "content": "Hello"}]
        for path in ("/v1/chat/completions", "/v1/messages", "/vscode/v1/chat"):
            body = {"model": MODEL, "max_tokens": 9, "messages": messages}
            assert call(base, "POST", path, body).status == 200, path
        for path in ("/v1/usage", "/metrics", "/inspector/index.html", "/openapi.json"):
            assert call(base, "GET", path).status == 200, path


def test_as_a_module_of_a_folder_that_is_filled_later(filled: Path, config: str, tmp_path: Path) -> None:
    """`python -m` itself looks into the working directory, before there is a line of ours; not after that."""
    here = tmp_path / "empty"
    here.mkdir()
    with_tables(tmp_path / "data")
    flags = ("--port", "0", "--config", config)
    with served(here, sys.executable, "-m", "openresponses_server", "serve", *flags) as base:
        for module in filled.glob("*.py"):
            (here / module.name).write_bytes(module.read_bytes())
        assert respond(base, model=MODEL, text=with_pattern("[")).status == 400
        assert respond(base, model=MODEL, stream=True).status == 200
    assert list(here.glob("*.imported")) == []


def test_run_hosts_its_server_there(filled: Path, config: str, tmp_path: Path) -> None:
    agent = tmp_path / "claude"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    with_tables(tmp_path / "data")
    assert "answered 200" in run(filled, "run", "claude", "--program", str(agent), "--config", config)


AGENT = f"""#!{sys.executable} -I
import json, os, sys, urllib.request
if "--version" in sys.argv:
    print("2.1.0")
    sys.exit()
body = {json.dumps({"model": MODEL, "input": "Hello", "text": with_pattern("^a|b$")})!r}.encode()
key = os.environ["ANTHROPIC_AUTH_TOKEN"]
known = {{"content-type": "application/json", "authorization": "Bearer " + key}}
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/responses", body, known)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
print("answered", opener.open(request).status)
"""


# ── the agent ────────────────────────────────────────────────────────────────────────────────────────────
CALLS: dict[str, dict[str, Any]] = {
    "read_file": {"path": "re.py"},
    "list_dir": {},
    "create_file": {"path": "later/json.py", "content": "open(__file__ + '.imported', 'w')\n"},
    "edit_file": {"filePath": "re.py", "code": "\n# edited", "oldCode": "\n"},
    "apply_patch": {"input": "*** Begin Patch\n*** Add File: patched.py\n+1\n*** End Patch\n"},
    "grep_search": {"query": "ope+n", "isRegexp": True, "maxResults": 5},
    "semantic_search": {"query": "imported"},
    "list_code_usages": {"symbolName": "open"},
    "run_in_terminal": {"command": "true"},
}


def test_every_tool_of_the_agent(filled: Path, upstream: ScriptedUpstream) -> None:
    folder = Folder(filled)
    offered = [each.name for each in sample_tools(folder)]
    folder.close()
    calls = [(f"c{number}", name, CALLS[name]) for number, name in enumerate(offered)]
    upstream.scripts[MODEL] = scripted("chat", [Answer(calls=calls), Answer("Done.")])
    words = ("Do all", "--yes", "--json", "--resume", "run.jsonl")
    shown = json.loads(run(filled, "agent", *words, "--upstream", upstream.url, "--model", MODEL))
    assert len(shown["toolCallResults"]) == len(CALLS)
    assert [each for each in shown["toolCallResults"].values() if each.get("isError")] == []
    assert list(filled.rglob("*.imported")) == []


def test_tools_of_ones_own_are_found_behind_all_else(filled: Path, upstream: ScriptedUpstream) -> None:
    (filled / "own_tools.py").write_text(
        "import json\nfrom openresponses_agent.tools import ToolRegistry\ntools = ToolRegistry()\n\n"
        "@tools.tool\ndef add(a: int, b: int) -> str:\n"
        '    """Add two numbers."""\n'
        "    return json.dumps(a + b)\n"
    )
    upstream.scripts[MODEL] = scripted(
        "chat", [Answer(calls=[("c", "add", {"a": 2, "b": 3})]), Answer("Done.")]
    )
    words = ("Add", "--tools", "own_tools:tools", "--upstream", upstream.url, "--model", MODEL)
    assert "5" in run(filled, "agent", *words)


# ── the other commands ───────────────────────────────────────────────────────────────────────────────────
STREAM = 'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
MODELS = {"openai": {"models": {"m": {"id": "m", "tool_call": True, "limit": {"context": 9_000}}}}}
COMMANDS: dict[str, list[tuple[list[str], int]]] = {
    "config": [(["config", "check"], 0)],
    "init": [(["init", "made.toml"], 1)],
    "doctor": [(["doctor", "--store", "sqlite:"], 0)],
    "record": [(["record", "Hello", "-o", "made.jsonl"], 0)],
    "replay": [(["replay", "chat.sse", "--to", to], 0) for to in ("responses", "anthropic", "vscode")],
    "validate": [(["validate", "chat.sse"], 2), (["validate", "--explain", "order.created-first"], 2)],
    "inspect": [(["inspect", "chat.sse"], 0), (["inspect", "SERVER", "--ask", "Hello"], 0)],
    "conform": [(["conform", "SERVER", "--only", "transport"], 0)],
    "corpus": [(["corpus", "list", "text"], 0), (["corpus", "show", "text"], 0)],
    "chat": [(["chat", "Hello", "--server", "SERVER"], 0), (["chat", "Hello"], 0)],
    "responses": [(["responses", "list", "--server", "SERVER"], 0)],
    "models": [(["models", "sync", "models.json"], 0)],
    "demo": [(["demo"], 0)],
    "completion": [(["completion", "bash"], 0)],
    "db": [
        (["db", "upgrade", "--create", "--store", "sqlite:///made.db"], 0),
        (["db", "export", "--store", "sqlite:///made.db"], 0),
    ],
    "keys": [(["keys", "list", "--store", "sqlite:///made.db"], 0)],
    "vscode": [(["vscode", "package"], 0)],
}
HERE = {"serve", "run", "agent"}


def test_every_process_is_started_so() -> None:
    """Nothing of the server starts a Python that looks where it is started."""
    for path in (REPOSITORY / "server").rglob("*.py"):
        code = path.read_text()
        assert not re.search(r"\b(to_process|multiprocessing|ProcessPoolExecutor)\b", code), path
        assert code.count("sys.executable") == len(re.findall(r'sys\.executable, "-I"', code)), path


def test_all_commands_are_tried() -> None:
    assert {*COMMANDS, *HERE} == {*main.commands, *main.list_commands(click.Context(main))}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(Settings(store="memory://")) as base:
        yield base


class Ended(Struct):
    """How a command ended."""

    words: list[str]
    expected: int
    code: int
    errors: str


# Each command in a process of its own, forked from one that has imported what most commands import: without
# its output, and with the pipe that nobody reads which this process has. Only the latter goes through the end
# of Python, which takes most of its time although it does not go through what is frozen: so those that need
# little come first, before the rest is imported.
_RUN_ALL = """
import atexit
import gc
import json
import os
import sys
import threading

import openresponses_bridge.emitter.machine
import openresponses_cli.commands.inspecting
import rich.console
from openresponses_server.__main__ import main


def run(number, words, is_read):
    child = os.fork()
    if not child:
        errors = os.open(f"{sys.argv[1]}/{number}.errors", os.O_WRONLY | os.O_CREAT)
        os.dup2(errors, 2)
        sys.argv = ["openresponses-bridge", *words]
        if not is_read:
            sys.exit(main())
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            main()
        except SystemExit as end:
            threading._shutdown()
            atexit._run_exitfuncs()
            os._exit(end.code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(f"{sys.argv[1]}/{number}.code", "w") as file:
        file.write(str(code))


def run_each(first, commands):
    gc.freeze()
    for is_read in (True, False):
        for number, words in enumerate(commands, first if is_read else first + count):
            run(number, words, is_read)


light, heavy = json.load(sys.stdin)
count = len(light + heavy)
run_each(0, light)

import anyio._backends._asyncio
import openresponses_cli.agents.driving
import openresponses_cli.agents.running
import openresponses_server.api.app
import openresponses_server.store.sql.migrate
import openresponses_server.store.sql.store
import openresponses_server.upstreams.spans

run_each(len(light), heavy)
"""

# those that neither serve nor ask a server
LIGHT = {"init", "replay", "validate", "inspect chat.sse", "corpus", "models", "demo", "completion", "vscode"}


def is_light(words: Sequence[str]) -> bool:
    return not LIGHT.isdisjoint({words[0], " ".join(words[:2])})


def run_all(
    commands: Sequence[tuple[list[str], int]], folder: Path, results: Path, server: str
) -> tuple[list[Ended], list[Ended]]:
    """How each of them ended in the folder: without its output, and with a pipe that nobody reads."""
    (folder / "chat.sse").write_text(STREAM)
    (folder / "models.json").write_text(json.dumps(MODELS))
    results.mkdir()
    program = results / "run_all.py"
    program.write_text(_RUN_ALL)
    commands = sorted(commands, key=lambda each: not is_light(each[0]))
    runs = [([server if word == "SERVER" else word for word in words], code) for words, code in commands]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        subprocess.run(
            [sys.executable, str(program), str(results)],
            cwd=folder,
            env=environment(folder),
            input=json.dumps(
                [[words for words, _ in runs if is_light(words) == light] for light in (True, False)]
            ),
            stdout=writing,
            text=True,
            check=True,
        )
    finally:
        os.close(writing)
    ended = [
        Ended(
            words,
            expected,
            int((results / f"{number}.code").read_text()),
            (results / f"{number}.errors").read_text(),
        )
        for number, (words, expected) in enumerate(runs * 2)
    ]
    return ended[: len(runs)], ended[len(runs) :]


def test_commands_import_nothing_and_a_closed_pipe_ends_them_quietly(
    filled: Path, server: str, tmp_path: Path
) -> None:
    agent = [(["agent", "Write 300 words"], 0), (["agent", "Hi", "--json"], 0)]
    commands = [*itertools.chain.from_iterable(COMMANDS.values()), *agent]
    unseen, unread = run_all(commands, filled, tmp_path / "results", server)
    assert [each for each in unseen if each.code != each.expected] == []
    assert [each for each in unread if re.search("Traceback|Exception", each.errors)] == []
    assert {each.code for each in unread} <= {0, 1, 2, 130}
    assert len(unseen) == len(unread) == len(commands) > len(COMMANDS)
