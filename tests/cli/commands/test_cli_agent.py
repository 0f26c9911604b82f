"""`agent` as a person uses it: what it does, asks, prints and keeps, and how it exits."""

import asyncio
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from openresponses_cli.agents.running import JournalFile
from openresponses_cli.commands.cli import main
from openresponses_server.requests.composition import compose, service_lifespan
from openresponses_server.settings import load_settings
from tests.support.agents import MODEL, scripted
from tests.support.debug_mode import without_durations
from tests.support.document_blocks import blocks, commands
from tests.support.forked import Forked
from tests.support.loops import Answer
from tests.support.upstream import HANG, Script, ScriptedUpstream, chunk, refusal
from tests.support.waiting import wait_until

CREATE = ("c1", "create_file", {"path": "notes.txt", "content": "made"})
DONE = Answer("Done.")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["agent", *arguments], env={"COLUMNS": "80"})


@contextmanager
def started(*arguments: str, stdin: Any = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process of its own."""
    pipe = subprocess.PIPE
    with Forked[bytes](["agent", *arguments], stdin=stdin, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()


@pytest.fixture
def model() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as upstream:
        yield upstream


def over(model: ScriptedUpstream, folder: Path, *more: str) -> list[str]:
    return ["--upstream", model.url, "--model", MODEL, "--folder", str(folder), *more]


def test_a_task_is_done_and_shown(model: ScriptedUpstream, tmp_path: Path) -> None:
    model.scripts[MODEL] = scripted("chat", [Answer("I make it.", [CREATE]), DONE])
    result = run("Make a file", *over(model, tmp_path))
    assert (result.exit_code, (tmp_path / "notes.txt").read_text()) == (0, "made")
    assert [line for line in result.output.splitlines() if "│" not in line and "─" not in line] == [
        "I make it. ",
        "Done.",
        result.output.splitlines()[-1],
    ]
    assert result.output.splitlines()[-1].startswith("2 rounds, 1 tool call · about ")
    assert "🔧 create_file" in result.output
    assert "✓ Complete" in result.output
    system, user = model.received[0].body["messages"]
    assert str(tmp_path) in system["content"]
    assert user["content"] == "Make a file"


def test_the_demo_model_needs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("buy milk")
    (command,) = commands("docs/agent.md", "In the terminal")
    program, name, *arguments = shlex.split(command)
    assert (program, name) == ("openresponses-bridge", "agent")
    result = run(*arguments)
    assert result.exit_code == 0
    assert "The tool answered: buy milk" in result.output


def test_the_readmes_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = [code for title, code in blocks("README.md", "sh") if title.startswith("Run an agent")]
    shown = ""
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        if program == "echo":
            Path(arguments[-1]).write_text(arguments[0])
        else:
            assert arguments[0] == "agent"
            result = run(*arguments[1:])
            assert result.exit_code == 0
            shown += result.output
    assert "The tool answered: buy milk" in shown
    assert Path("notes.txt").read_text() == "buy milk"
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "run.jsonl"}
    assert shown.count("🔧") == 1 + 1  # the second run shows what the first did


def test_the_journal_is_out_of_the_reach_of_the_tools(model: ScriptedUpstream, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    calls: list[Any] = [
        ("c1", "read_file", {"path": "run.jsonl"}),
        ("c2", "edit_file", {"filePath": "run.jsonl", "code": ""}),
        ("c3", "apply_patch", {"input": "*** Begin Patch\n*** Delete File: run.jsonl\n*** End Patch"}),
        ("c4", "list_dir", {}),
        ("c5", "grep_search", {"query": "list_dir"}),
    ]
    model.scripts[MODEL] = scripted("chat", [Answer("I look.", calls), DONE])
    result = run("Look", *over(model, tmp_path, "--yes", "--json", "--resume", str(journal)))
    results = sorted(json.loads(result.stdout)["toolCallResults"].items())
    texts = [each["content"][0]["value"] for _, each in results]
    assert texts[:3] == ["Error: Tool failed - 'run.jsonl' is not accessible"] * 3
    assert texts[3:] == ["(empty)", "No matches."]
    model.scripts[MODEL] = scripted("chat", [DONE])
    assert run("Again", *over(model, tmp_path, "--resume", str(journal))).exit_code == 0


def test_json_is_one_object_on_stdout(model: ScriptedUpstream, tmp_path: Path) -> None:
    model.scripts[MODEL] = scripted("chat", [Answer("I make it.", [CREATE]), DONE])
    result = run("Make a file", *over(model, tmp_path, "--json"))
    shown = json.loads(result.stdout)
    assert (shown["end"], shown["response"], len(shown["toolCallRounds"])) == ("done", "Done.", 2)
    assert shown["toolCallResults"].keys() == {"internal_call_001"}
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("answers", "options", "end", "words"),
    [
        ([Answer("So", reason="length")], (), "incomplete", "incomplete"),
        ([Answer(calls=[CREATE])], ("--limit", "1", "--stop"), "tool_call_limit", "Tool call limit reached"),
        ([Answer(calls=[CREATE])], ("--limit", "1"), "tool_call_limit", "Tool call limit reached"),
        ([Answer()], (), "empty", "empty, twice"),
    ],
)
def test_what_is_not_an_answer_exits_with_1(
    model: ScriptedUpstream, tmp_path: Path, answers: Any, options: Any, end: str, words: str
) -> None:
    model.scripts[MODEL] = scripted("chat", answers)
    result = run("Make a file", *over(model, tmp_path, *options, "--json"))
    assert (result.exit_code, json.loads(result.stdout)["end"]) == (1, end)
    assert words in json.loads(result.stdout)["message"]


def test_an_upstream_that_refuses_is_a_failure_in_words(model: ScriptedUpstream, tmp_path: Path) -> None:
    model.scripts[MODEL] = refusal(401, message="no such key")
    result = run("Hi", *over(model, tmp_path))
    assert result.exit_code == 1
    assert "the upstream asks for a key, and this server has none for it" in result.output
    assert "asked again" not in result.output
    assert "Traceback" not in result.output


def test_what_models_and_tools_write_can_not_move_the_cursor(model: ScriptedUpstream, tmp_path: Path) -> None:
    hostile = "\x1b[2J\x07[red]x[/red]\u202e"
    calls = [("c1", "create_file", {"path": f"{hostile}.txt", "content": hostile})]
    model.scripts[MODEL] = scripted("chat", [Answer(f"I do {hostile}.", calls), DONE])
    result = run("Make a file", *over(model, tmp_path))
    assert result.exit_code == 0
    assert not {"\x1b", "\x07", "\u202e"} & {*result.output}
    assert "[red]" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "TASK is missing"),
        (("Do", "--tools", "json"), "is not MODULE:REGISTRY"),
        (("Do", "--tools", "no_such_module:tools"), "No module named"),
        (("Do", "--tools", "json:dumps_nothing"), "no attribute"),
        (("Do", "--tools", "json:__name__"), "is a str, not a ToolRegistry"),
        (("Do", "--dialect", "chat"), "--upstream"),
        (("Do", "--upstream", "http://127.0.0.1:9/v1"), "isn't answering at http://127.0.0.1:9/v1"),
        (("Do", "--upstream", "nosuch", "--model", "m"), "--upstream: 'nosuch' is not one of"),
        (
            ("Do", "--upstream", "openai", "--model", "m"),
            "variable OPENAI_API_KEY is not set",
        ),
        (("Do", "--upstream", "http://[::1", "--model", "m"), "Invalid IPv6 URL"),
        (
            ("Do", "--upstream", "http://h", "--dialect", "bogus", "--model", "m"),
            "Invalid value for '--dialect': 'bogus' is not one of",
        ),
        (("Do", "--limit", "0"), "--limit"),
        (("Do", "--without", "no_such_tool"), "'no_such_tool' is neither a tool nor a tag"),
        (("Do", "--folder", "no-such-folder"), "does not exist"),
    ],
)
def test_what_is_given_wrongly_exits_with_2(
    arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr.splitlines()[-1]
    assert isinstance(result.exception, SystemExit)


def test_a_config_that_can_not_be_used_is_named_with_its_line(tmp_path: Path) -> None:
    config = tmp_path / "bridge.toml"
    config.write_text('[[upstreams]]\nurl = "http://127.0.0.1:9"\ndialect = "bogus"\n')
    result = run("Hi", "--config", str(config))
    assert result.exit_code == 2
    assert f"{config}:3: upstreams[0].dialect: upstream: dialect 'bogus'" in result.stderr.splitlines()[-1]


def test_without_a_model_the_first_that_calls_tools_is_asked(model: ScriptedUpstream, tmp_path: Path) -> None:
    """As `run` does; where nothing says that any does, the first, as `chat`."""
    flags = ("Hi", "--upstream", model.url, "--folder", str(tmp_path))
    for listed, expected in ((["text-embedding-3-small", "gpt-4o"], "gpt-4o"), (["one", "two"], "one")):
        model.models = list(listed)
        model.scripts[expected] = scripted("chat", [DONE])
        assert run(*flags).exit_code == 0
        assert model.received[-1].body["model"] == expected


def test_a_reader_that_leaves_ends_it_quietly(model: ScriptedUpstream, tmp_path: Path) -> None:
    """As `| head` does: the request ends, nothing is said of it, and the run can be gone on with."""
    journal = tmp_path / "run.jsonl"
    steps = [step for number in range(200) for step in (0.01, chunk(content=f"line {number}\n"))]
    model.scripts[MODEL] = Script([*steps, HANG])
    with started("Say it", *over(model, tmp_path, "--resume", str(journal))) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"line 0")
        process.stdout.close()
        assert without_durations(process.stderr.read()) == b""
        assert process.wait(60) == 130
    model.scripts[MODEL] = scripted("chat", [DONE])
    assert run(*over(model, tmp_path, "--resume", str(journal))).exit_code == 0


def test_tools_of_ones_own(model: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_tools_of_a_test.py").write_text(
        "from openresponses_agent.tools import ToolRegistry\n"
        "tools = ToolRegistry()\n\n"
        "@tools.tool\n"
        "def add(a: int, b: int) -> int:\n"
        '    """Add two numbers."""\n'
        "    return a + b\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    model.scripts[MODEL] = scripted("chat", [Answer(calls=[("c1", "add", {"a": 2, "b": 3})]), DONE])
    result = run("Add", *over(model, tmp_path, "--tools", "own_tools_of_a_test:tools"))
    assert result.exit_code == 0
    assert model.received[1].body["messages"][-1]["content"] == "5"
    assert [each["function"]["name"] for each in model.received[0].body["tools"]] == ["add"]


def test_a_model_that_is_not_served_is_named(model: ScriptedUpstream, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[[upstreams]]\nurl = "{model.url}"\nmodels = ["known"]\n')
    result = run("Hi", "--config", str(config), "--model", "other", "--folder", str(tmp_path))
    assert result.exit_code == 2
    assert "The model 'other' does not exist" in result.output


def test_a_tool_that_can_not_be_used_ends_the_run(
    model: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_tools_of_a_test.py").write_text(
        "from openresponses_agent.tools import Tool, ToolRegistry\n"
        'schema = {"type": "object", "properties": {"a": {"type": "nonsense"}}}\n\n'
        "def tools():\n"
        '    return ToolRegistry([Tool("look", "", schema, lambda given: "")])\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    model.scripts[MODEL] = scripted("chat", [Answer(calls=[("c1", "look", {})]), DONE])
    result = run("Look", *over(model, tmp_path, "--tools", "broken_tools_of_a_test:tools"))
    assert result.exit_code == 2
    assert "look" in result.output.splitlines()[-1]
    assert "Traceback" not in result.output
    assert model.received == [], "it is found before a model is asked"


def test_a_tool_that_is_left_out_is_neither_offered_nor_run(model: ScriptedUpstream, tmp_path: Path) -> None:
    """Though the model calls it."""
    left_out = ("--without", "create_file", "--without", "shell", "--yes")
    shell = ("c2", "run_in_terminal", {"command": "touch b.txt"})
    model.scripts[MODEL] = scripted("chat", [Answer(calls=[CREATE, shell]), DONE])
    result = run("Make a file", *over(model, tmp_path, *left_out))
    assert result.exit_code == 0
    names = [each["function"]["name"] for each in model.received[0].body["tools"]]
    assert "read_file" in names
    assert not {"create_file", "run_in_terminal"} & {*names}
    answers = [message["content"] for message in model.received[1].body["messages"][-2:]]
    assert [each.startswith("Error: Tool not found - ") for each in answers] == [True, True]
    assert not list(tmp_path.iterdir())


def test_a_model_that_takes_few_tools_is_offered_the_first(model: ScriptedUpstream, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[[upstreams]]\nurl = "{model.url}"\n[models."{MODEL}"]\nmax_tools = 2\n')
    model.scripts[MODEL] = scripted("chat", [Answer(calls=[CREATE]), DONE])
    result = run("Make a file", "--config", str(config), "--model", MODEL, "--folder", str(tmp_path))
    assert result.exit_code == 0
    names = [each["function"]["name"] for each in model.received[0].body["tools"]]
    assert names == ["read_file", "list_dir"]
    answer = model.received[1].body["messages"][-1]["content"]
    assert answer.endswith("the tools are read_file, list_dir")
    assert not (tmp_path / "notes.txt").exists()


def test_a_file_that_can_not_be_kept_is_an_error(tmp_path: Path) -> None:
    for file in (tmp_path / "none" / "run.jsonl", Path("/dev/full")):
        result = run("Hi", "--folder", str(tmp_path), "--resume", str(file))
        assert result.exit_code == 2
        assert str(file) in result.output
        assert "Traceback" not in result.output


# ── asking ─────────────────────────────────────────────────────────────────────────────────────────
COMMAND = Answer("I run it.", [("c1", "run_in_terminal", {"command": "echo ran > ran.txt"})])


@pytest.mark.parametrize(("typed", "made"), [(b"y\n", True), (b"\n", False)])
def test_a_command_is_run_only_when_the_user_says_yes(
    model: ScriptedUpstream, tmp_path: Path, typed: bytes, made: bool
) -> None:
    model.scripts[MODEL] = scripted("chat", [COMMAND, DONE])
    output = answered(model, tmp_path, typed)
    assert b"echo ran > ran.txt" in output
    assert (tmp_path / "ran.txt").exists() is made


@pytest.mark.parametrize(("typed", "content"), [(b"y\n", "buy bread\n"), (b"\n", "buy milk\n")])
def test_a_file_that_is_there_is_changed_only_when_the_user_says_yes(
    model: ScriptedUpstream, tmp_path: Path, typed: bytes, content: str
) -> None:
    (tmp_path / "notes.txt").write_text("buy milk\n")
    model.scripts[MODEL] = scripted("chat", [EDIT, DONE])
    output = answered(model, tmp_path, typed)
    question = (
        b"edit_file: Change this file?\n  notes.txt: changed, +1 -1\nnotes.txt: changed\n"
        b"| -buy milk\n| +buy bread\nChange 1 file (1 changed), +1 -1? [y/N]"
    )
    assert question in output
    assert (tmp_path / "notes.txt").read_text() == content


EDIT = Answer("I edit.", [("c1", "edit_file", {"filePath": "notes.txt", "code": "buy bread\n"})])


def answered(model: ScriptedUpstream, folder: Path, typed: bytes) -> bytes:
    """What is shown up to a question, which is answered so at a terminal; nothing has happened until then."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    terminal, user = pty.openpty()
    try:
        with started("Do it", *over(model, folder), stdin=user) as process:
            assert process.stdout is not None
            shown = b""
            while b"[y/N]" not in shown:
                shown += os.read(process.stdout.fileno(), 10_000)
            assert {path: path.read_bytes() for path in folder.iterdir()} == before
            wait_until(lambda: waits_for_input(process.pid))
            os.write(terminal, typed)
            assert process.wait(60) == 0
    finally:
        os.close(terminal)
        os.close(user)
    return shown


def waits_for_input(pid: int) -> bool:
    """What was typed before the question is thrown away, so wait until the process sleeps."""
    time.sleep(0.1)
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"


def test_without_a_terminal_a_command_is_declined_and_with_yes_it_is_run(
    model: ScriptedUpstream, tmp_path: Path
) -> None:
    for options, is_run in (((), False), (("--yes",), True)):
        model.scripts[MODEL] = scripted("chat", [COMMAND, DONE])
        assert run("Run it", *over(model, tmp_path, *options)).exit_code == 0
        assert (tmp_path / "ran.txt").exists() is is_run


def test_without_a_terminal_a_file_that_is_there_stays_and_with_yes_it_is_changed(
    model: ScriptedUpstream, tmp_path: Path
) -> None:
    for options, content in (((), "buy milk\n"), (("--yes",), "buy bread\n")):
        (tmp_path / "notes.txt").write_text("buy milk\n")
        model.scripts[MODEL] = scripted("chat", [EDIT, DONE])
        assert run("Edit it", *over(model, tmp_path, *options)).exit_code == 0
        assert (tmp_path / "notes.txt").read_text() == content


# ── going on ───────────────────────────────────────────────────────────────────────────────────────
def test_after_kill_9_between_two_rounds_the_run_goes_on(model: ScriptedUpstream, tmp_path: Path) -> None:
    folder, journal = tmp_path / "work", tmp_path / "run.jsonl"
    folder.mkdir()
    answers = scripted("chat", [Answer("I make it.", [CREATE])])
    model.scripts[MODEL] = [*answers, Script([chunk(content="Do"), HANG])]
    with started("Make a file", *over(model, folder, "--resume", str(journal))) as process:
        wait_until(lambda: len(model.received) == 2)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    model.scripts[MODEL] = scripted("chat", [DONE])
    result = run(*over(model, folder, "--resume", str(journal), "--json"))
    shown = json.loads(result.stdout)
    assert (result.exit_code, shown["end"], shown["response"]) == (0, "done", "Done.")
    assert [len(each["toolCalls"]) for each in shown["toolCallRounds"]] == [1, 0]
    assert "isError" not in shown["toolCallResults"]["internal_call_001"]
    assert model.received[2].body["messages"] == model.received[1].body["messages"]


def test_after_kill_9_within_a_call_it_is_not_run_again(model: ScriptedUpstream, tmp_path: Path) -> None:
    folder, journal = tmp_path / "work", tmp_path / "run.jsonl"
    folder.mkdir()
    command = {"command": "echo ran >> ran.txt; sleep 3"}
    model.scripts[MODEL] = scripted("chat", [Answer(calls=[("c1", "run_in_terminal", command)]), DONE])
    with started("Run it", *over(model, folder, "--yes", "--resume", str(journal))) as process:
        wait_until((folder / "ran.txt").exists)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    result = run(*over(model, folder, "--yes", "--resume", str(journal), "--json"))
    shown = json.loads(result.stdout)
    assert shown["toolCallResults"]["internal_call_001"]["content"][0]["value"].startswith(
        "Error: Interrupted"
    )
    assert (folder / "ran.txt").read_text() == "ran\n"
    assert result.exit_code == 0


def test_ctrl_c_cancels_and_the_run_goes_on_later(model: ScriptedUpstream, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    model.scripts[MODEL] = Script([chunk(content="Do"), HANG])
    with started("Make a file", *over(model, tmp_path, "--resume", str(journal))) as process:
        wait_until(lambda: len(model.received) == 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert without_durations(process.stderr.read()) == b""
    model.scripts[MODEL] = scripted("chat", [DONE])
    assert run(*over(model, tmp_path, "--resume", str(journal))).exit_code == 0
    assert oct(journal.stat().st_mode & 0o777) == "0o600"


def test_another_task_goes_on_with_the_conversation(model: ScriptedUpstream, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    for task in ("My name is Ada", "What is my name?"):
        model.scripts[MODEL] = scripted("chat", [DONE])
        assert run(task, *over(model, tmp_path, "--resume", str(journal))).exit_code == 0
    contents = [message["content"] for message in model.received[1].body["messages"]]
    assert contents[1:] == ["My name is Ada", "Done.", "What is my name?"]


def test_stateful_stores_rounds_where_the_config_says_and_another_run_continues_them(
    model: ScriptedUpstream, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'store = "sqlite:///{tmp_path}/responses.db"\n')
    more = ("--config", str(config), "--stateful", "--json", "--resume", str(tmp_path / "run.jsonl"))
    markers = []
    for answers in ([Answer("I make it.", [CREATE])], [DONE]):
        model.scripts[MODEL] = scripted("chat", answers)
        limit = ("--limit", "1", "--stop") if answers[0].calls else ()
        result = run("Make a file" if limit else "", *over(model, tmp_path, *more, *limit))
        markers = [each["statefulMarker"] for each in json.loads(result.stdout)["toolCallRounds"]]

    async def stored() -> list[str | None]:
        service = compose(load_settings(config))
        async with service_lifespan(service):
            responses = [await service.store.get(marker, owner="") for marker in markers]
        return [each.response.previous_response_id for each in responses]

    assert len(markers) == 2
    assert asyncio.run(stored()) == [None, markers[0]]
    roles = [message["role"] for message in model.received[1].body["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]


def test_without_stateful_nothing_is_stored(model: ScriptedUpstream, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'store = "sqlite:///{tmp_path}/responses.db"\n')
    model.scripts[MODEL] = scripted("chat", [DONE])
    assert run("Say it", *over(model, tmp_path, "--config", str(config))).exit_code == 0
    assert not (tmp_path / "responses.db").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"my shopping list", "is not a journal"),
        (b"my\nshopping\nlist\n", "line 1 is not an entry"),
        (b'{"type":"end","end":"done"}\n', "line 1 comes before a question"),
        (b"", "has no task to resume: give a TASK"),
    ],
)
def test_a_file_that_is_not_a_journal_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes, words: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    result = run("--resume", str(file), "--folder", str(tmp_path))
    assert result.exit_code == 2
    assert words in result.output
    assert file.read_bytes() == content


def test_a_journal_in_use_is_refused(tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    with JournalFile(journal):
        result = run("Another", "--folder", str(tmp_path), "--resume", str(journal))
    assert result.exit_code == 2
    assert "is in use by another run" in result.output
