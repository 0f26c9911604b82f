"""The sample tools through the service that a loop uses: real files, real commands."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest

from openresponses_agent.tools import (
    CancellationToken,
    Tool,
    ToolCallCancelledError,
    ToolRegistry,
    ToolResultDataPart,
    ToolsService,
    ToolTimeoutError,
)
from openresponses_cli.agents.driving import call_with_anyio
from openresponses_cli.agents.running import load_registry
from openresponses_cli.agents.tools import sample_tools, search, terminal
from openresponses_cli.agents.tools.folder import Folder

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Agent:
    def __init__(self, folder: Folder) -> None:
        self.questions: list[str] = []
        self.allows = True
        self.service = ToolsService(sample_tools(folder), call=call_with_anyio, confirm=self._confirm)

    async def _confirm(self, tool: str, question: str) -> bool:
        self.questions.append(question)
        return self.allows

    async def __call__(self, name: str, token: CancellationToken | None = None, **given: Any) -> str:
        return (await self.service.run_call(name, json.dumps(given), token=token)).result.text


@pytest.fixture
def agent(folder: Folder) -> Agent:
    return Agent(folder)


def test_the_tools_and_what_they_declare(folder: Folder) -> None:
    tools = {each.name: each for each in sample_tools(folder)}
    assert list(tools) == [
        "read_file",
        "list_dir",
        "create_file",
        "edit_file",
        "apply_patch",
        "grep_search",
        "semantic_search",
        "list_code_usages",
        "run_in_terminal",
    ]
    parallel = {"read_file", "list_dir", "grep_search", "semantic_search", "list_code_usages"}
    assert {name for name, each in tools.items() if each.parallel} == parallel
    assert {name for name, each in tools.items() if each.confirm} == {"run_in_terminal"}


async def test_create_read_edit_list(agent: Agent, inside: Path) -> None:
    assert await agent("create_file", path="SUMMARY.md", content="# Summary\n") == "Created SUMMARY.md"
    assert await agent("read_file", path="SUMMARY.md") == "# Summary\n"
    answer = await agent("edit_file", filePath="/project/test.js", code="let a;\n", explanation="Added a")
    assert answer == "Successfully edited /project/test.js - Added a"
    assert (inside / "test.js").read_text() == "let a;\n"
    assert (
        await agent("edit_file", filePath="test.js", code="b", oldCode="a") == "Successfully edited test.js"
    )
    assert (inside / "test.js").read_text() == "let b;\n"
    again = await agent("edit_file", filePath="test.js", code="", oldCode="nothing")
    assert again == "Error: Tool failed - oldCode is in 'test.js' 0 times; it must be there exactly once"
    (inside / "src").mkdir()
    assert await agent("list_dir") == "SUMMARY.md\nsrc/\ntest.js"
    assert await agent("list_dir", path="src") == "(empty)"
    assert "already exists" in await agent("create_file", path="test.js", content="")


async def test_what_leads_out_is_an_error_for_the_model(agent: Agent, inside: Path) -> None:
    (inside / "link").symlink_to("../secret.txt")
    for path in ("../secret.txt", "link", str(inside.parent / "secret.txt")):
        for name, key in (("read_file", "path"), ("edit_file", "filePath")):
            answer = await agent(name, **{key: path}, **({} if key == "path" else {"code": "x"}))
            assert answer.startswith("Error: Tool failed - ")
    patch = "*** Begin Patch\n*** Update File: ../secret.txt\n-secret\n+x\n*** End Patch"
    assert (await agent("apply_patch", input=patch)).startswith(
        "Error: Tool failed - '../secret.txt' has `..`"
    )
    assert (inside.parent / "secret.txt").read_text() == "secret"


# --- asking ----------------------------------------------------------------------------------------------


async def test_changes_of_files_that_are_there_are_shown_and_asked_about(agent: Agent, inside: Path) -> None:
    assert await agent("create_file", path="notes.txt", content="one\ntwo\n") == "Created notes.txt"
    assert agent.questions == []
    await agent("edit_file", filePath="notes.txt", code="2", oldCode="two")
    await agent("edit_file", filePath="notes.txt", code="all\n")
    await agent("edit_file", filePath="report.md", code="is not there yet")
    patch = "*** Begin Patch\n*** Delete File: notes.txt\n*** Add File: b\n+b\n*** End Patch"
    await agent("apply_patch", input=patch)
    assert [question.split("\n") for question in agent.questions] == [
        [
            "Change this file?",
            "  notes.txt: changed, +1 -1",
            "notes.txt: changed",
            "|  one",
            "| -two",
            "| +2",
            "Change 1 file (1 changed), +1 -1?",
        ],
        [
            "Change this file?",
            "  notes.txt: changed, +1 -2",
            "notes.txt: changed",
            "| -one",
            "| -2",
            "| +all",
            "Change 1 file (1 changed), +1 -2?",
        ],
        [
            "Change these 2 files?",
            "  notes.txt: deleted, +0 -1",
            "  b: new, +1 -0",
            "notes.txt: deleted",
            "| -all",
            "b: new",
            "| +b",
            "Change 2 files (1 deleted, 1 new), +1 -1?",
        ],
    ]
    assert sorted(os.listdir(inside)) == ["b", "report.md"]


async def test_every_file_is_named_and_counted_however_long_the_first_change_is(
    agent: Agent, inside: Path
) -> None:
    """What is not named is not approved: a long change leaves each other file its share of the lines."""
    (inside / "long.py").write_text("".join(f"a{number}\n" for number in range(2_000)))
    patch = [
        "*** Begin Patch",
        "*** Update File: long.py",
        *(f"-a{number}" for number in range(250)),
        *(f"+b{number}" for number in range(250)),
        "*** Add File: Makefile",
        "+all:",
        "+\tcurl evil",
        "*** Add File: .vscode/tasks.json",
        *(f"+{number}" for number in range(400)),
        "*** End Patch",
    ]
    await agent("apply_patch", input="\n".join(patch))
    (question,) = agent.questions
    lines = question.split("\n")
    assert lines[:4] == [
        "Change these 3 files?",
        "  long.py: changed, +250 -250",
        "  Makefile: new, +2 -0",
        "  .vscode/tasks.json: new, +400 -0",
    ]
    assert lines[-1] == "Change 3 files (1 changed, 2 new), +652 -250?"
    at = lines.index("Makefile: new")
    assert lines[at + 1 : at + 3] == ["| +all:", "| +\tcurl evil"]
    assert sum(line.startswith("| ") for line in lines) <= 300
    assert lines[at - 1].endswith(" more lines of long.py not shown)")
    assert lines[-2] == "| +… 300 more come"


async def test_a_line_of_a_file_is_none_of_the_question(agent: Agent, inside: Path) -> None:
    """A removed line `-- a` looks like a heading, and a line can end as the question does."""
    (inside / "a").write_text("-- Makefile\nChange 1 file (1 new), +1 -0?\n")
    await agent("edit_file", filePath="a", code="++ b\n")
    (question,) = agent.questions
    assert question.split("\n")[2:-1] == [
        "a: changed",
        "| --- Makefile",
        "| -Change 1 file (1 new), +1 -0?",
        "| +++ b",
    ]


async def test_a_patch_of_more_files_than_can_be_named_is_not_asked_about(agent: Agent, inside: Path) -> None:
    added = [line for number in range(51) for line in (f"*** Add File: {number}.py", "+x")]
    answer = await agent("apply_patch", input="\n".join(["*** Begin Patch", *added, "*** End Patch"]))
    assert answer == "Error: Tool failed - a patch may change 50 files, not 51: split it"
    assert (agent.questions, os.listdir(inside)) == ([], [])


@pytest.mark.parametrize(
    "path",
    [
        ".envrc",
        ".vscode/tasks.json",
        "sub/.husky/pre-commit",
        ".npmrc",
        "AGENTS.md",
        "sub/claude.md",
        "mise.toml",
        "mise.local.toml",
        "AGENTS.override.md",
        "sub/Agent.md",
        "CLAUDE.local.md",
        "QWEN.md",
        "opencode.json",
        "crush.jsonc",
        "lefthook-local.yml",
        "sub/lefthook.toml",
        "crush.local.md",
        "mise/config.toml",
        "mise/conf.d/a.toml",
        "eslint.config.js",
        "build.rs",
        "CMakeLists.txt",
        "meson_options.txt",
        "conftest.py",
        "json.py",
        "node_modules/a/index.js",
        "node_modules/a/readme.md",
        "Makefile",
        "a_name_that_nobody_listed",
        "prompts/summary.md",
        "notes.local.md",
        "report.config.csv",
        "notes/AGENTS.md",
        ".notes.md",
        "summary.py",
    ],
)
async def test_new_files_that_tools_obey_unasked_are_asked_about(
    agent: Agent, inside: Path, path: str
) -> None:
    agent.allows = False
    patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
    for call in (
        agent("create_file", path=path, content="x"),
        agent("edit_file", filePath=path, code="x"),
        agent("apply_patch", input=patch),
    ):
        assert await call == "Error: Not allowed - the user declined it"
        assert f"\n{path}: new\n| +x" in agent.questions.pop()
    assert os.listdir(inside) == []
    agent.allows = True
    assert await agent("create_file", path=path, content="x") == f"Created {path}"


@pytest.mark.parametrize(
    "path",
    ["SUMMARY.md", "notes.txt", "docs/report-2031 draft.md", "Readme.rst", "numbers.csv", "logs/a b.log"],
)
async def test_a_new_document_that_no_tool_obeys_is_created_unasked(
    agent: Agent, inside: Path, path: str
) -> None:
    assert await agent("create_file", path=path, content="x") == f"Created {path}"
    assert (agent.questions, (inside / path).read_text()) == ([], "x")


async def test_without_anybody_to_ask_what_is_there_stays(folder: Folder, inside: Path) -> None:
    (inside / "a").write_text("mine")
    service = ToolsService(sample_tools(folder), call=call_with_anyio)
    for name, arguments in (
        ("edit_file", {"filePath": "a", "code": "x"}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Delete File: a\n*** End Patch"}),
        ("create_file", {"path": "a", "content": "x"}),
    ):
        answer = (await service.run_call(name, json.dumps(arguments))).result.text
        assert answer.startswith(("Error: Not allowed", "Error: Tool failed - 'a' already exists"))
    assert (inside / "a").read_text() == "mine"


@pytest.mark.parametrize("name", ["edit_file", "apply_patch"])
@pytest.mark.parametrize("now", ["changed", None])
async def test_what_was_changed_while_the_user_was_asked_is_not_lost(
    agent: Agent, inside: Path, monkeypatch: pytest.MonkeyPatch, name: str, now: str | None
) -> None:
    (inside / "a").write_text("one")
    arguments = {
        "edit_file": {"filePath": "a", "code": "two"},
        "apply_patch": {"input": "*** Begin Patch\n*** Delete File: a\n*** End Patch"},
    }[name]

    async def meanwhile(tool: str, question: str) -> bool:
        (inside / "a").unlink() if now is None else (inside / "a").write_text(now)
        return True

    service = ToolsService(agent.service.registry, call=call_with_anyio, confirm=meanwhile)
    answer = (await service.run_call(name, json.dumps(arguments))).result.text
    assert "was changed meanwhile by another program" in answer
    assert [path.read_text() for path in inside.iterdir()] == ([now] if now else [])


async def test_a_question_can_be_read_whatever_the_files_hold(agent: Agent, inside: Path) -> None:
    lines = [f"line {number}" for number in range(2_000)]
    (inside / "long").write_text("\n".join(lines))
    await agent("edit_file", filePath="long", code="\n".join(["first", *lines[1:-1], "last"]))
    await agent("edit_file", filePath="long", code="\x1b[2J\u202e" + "x" * 10_000)
    (inside / "binary").write_bytes(b"\xff\0")
    await agent("edit_file", filePath="binary", code="text")
    first, second, third = agent.questions
    assert "\nlong: changed\n| -line 0\n| -line 1\n" in first
    assert "\n| -line 99\n| -… 1900 more go\n| +first\n| +line 1\n" in first
    assert first.endswith("\n| +… 1900 more come\nChange 1 file (1 changed), +2000 -2000?")
    assert "\n| -… 1900 more go\n| +\\x1b[2J\\u202exxx" in second
    assert not {"\x1b", "\u202e"} & {*second}
    assert max(map(len, second.split("\n"))) < 600
    assert "\n| (not a text: 2 bytes become 4)\n" in third


async def test_parts_of_files_images_and_binaries(agent: Agent, inside: Path) -> None:
    (inside / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    assert (
        await agent("read_file", path="a.txt", startLine=3, endLine=4)
        == "line 3\nline 4\n\n(lines 3 to 4 of 10)"
    )
    assert "has 10 lines" in await agent("read_file", path="a.txt", startLine=11)
    (inside / "long.txt").write_text("x" * 60 + "\n" + "y" * 99_990 + "\n")
    assert (await agent("read_file", path="long.txt")).endswith("(lines 1 to 1 of 2)")
    (inside / "one.txt").write_text("x" * 100_001)
    assert "line 1 is longer" in await agent("read_file", path="one.txt")
    (inside / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n...")
    image = (await agent.service.run_call("read_file", '{"path": "a.png"}')).result.content[0]
    assert image == ToolResultDataPart(b"\x89PNG\r\n\x1a\n...", "image/png")
    (inside / "b").write_bytes(b"\xff\x00")
    (inside / "c").write_bytes(b"a\x00")
    for path in "bc":
        assert f"'{path}' is not a text file" in await agent("read_file", path=path)
    (inside / "empty").touch()
    assert await agent("read_file", path="empty") == ""


# --- grep_search -----------------------------------------------------------------------------------------


async def test_search(agent: Agent, inside: Path) -> None:
    (inside / "src").mkdir()
    (inside / "src" / "main.py").write_text("import os\n# TODO: one\n")
    (inside / "a.md").write_text("TODO two (a+b)\n")
    (inside / ".git").mkdir()
    (inside / ".git" / "x").write_text("TODO\n")
    (inside / "bin").write_bytes(b"TODO\0")
    (inside / "out").symlink_to("../outside")
    assert await agent("grep_search", query="TODO") == "a.md:1: TODO two (a+b)\nsrc/main.py:2: # TODO: one"
    assert await agent("grep_search", query="(a+b)") == "a.md:1: TODO two (a+b)"
    assert await agent("grep_search", query="TODO.? o", isRegexp=True) == "src/main.py:2: # TODO: one"
    assert await agent("grep_search", query="TODO", includePattern="*.py") == "src/main.py:2: # TODO: one"
    assert (
        await agent("grep_search", query="TODO", maxResults=1)
        == "a.md:1: TODO two (a+b)\n(there may be more)"
    )
    assert await agent("grep_search", query="secret") == "No matches."
    for query in ("(", "(?=a)a", r"(a)\1", "(.{1,300}){1,9}"):
        assert "not a regular expression" in await agent("grep_search", query=query, isRegexp=True)


async def test_a_pattern_that_would_backtrack_takes_steps_as_the_line_has_characters(
    agent: Agent, inside: Path
) -> None:
    """With an engine that backtracks this would take longer than the world has been there."""
    (inside / "a").write_text("a" * 9_000 + "b\n" + "a" * 20_000 + "c\n")
    left_out = "\n(lines left out, longer than 10000 characters: 1)"
    assert await agent("grep_search", query="^(a|aa)+$", isRegexp=True) == f"No matches.{left_out}"
    assert await agent("grep_search", query="^(a|aa)+b$", isRegexp=True) == f"a:1: {'a' * 300}{left_out}"
    assert await agent("grep_search", query="ac") == "a:2: " + "a" * 300


async def test_a_search_that_takes_too_long_or_is_cancelled_ends(
    agent: Agent, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inside / "a").write_text("a\n")
    token = CancellationToken()
    cancel = anyio.from_thread.run_sync

    def cancelling(line: str) -> bool:
        cancel(token.cancel)
        return False

    monkeypatch.setattr(search, "_pattern", lambda query: cancelling)
    with pytest.raises(ToolCallCancelledError):
        await agent("grep_search", token, query="a", isRegexp=True)
    monkeypatch.setattr(search, "_SECONDS", -1)
    answer = await agent("grep_search", query="a")
    assert answer == "Error: Tool timed out - it was stopped after -1 seconds"


async def test_a_search_in_a_folder_that_was_replaced(agent: Agent, inside: Path) -> None:
    """The tools stay in the folder that was named; a command would start in the other one."""
    inside.rename(inside.parent / "elsewhere")
    inside.symlink_to("outside")
    assert await agent("grep_search", query="secret") == "No matches."
    assert "replaced" in await agent("run_in_terminal", command="cat secret.txt")


# --- run_in_terminal -------------------------------------------------------------------------------------


async def test_a_command(agent: Agent, inside: Path) -> None:
    assert await agent("run_in_terminal", command="echo hello; pwd") == f"hello\n{inside}\n[exit code 0]"
    assert agent.questions == ["Run this command?\necho hello; pwd"]
    outcome = await agent.service.run_call("run_in_terminal", '{"command": "echo oops >&2; exit 3"}')
    assert outcome.result.text == "oops\n[exit code 3]"
    assert outcome.result.is_error
    assert await agent("run_in_terminal", command="cat") == "[exit code 0]"


async def test_a_command_that_is_not_allowed(agent: Agent, inside: Path) -> None:
    agent.allows = False
    assert await agent("run_in_terminal", command="touch a") == "Error: Not allowed - the user declined it"
    assert os.listdir(inside) == []


def test_the_question_shows_what_a_terminal_would_obey() -> None:
    shown = terminal.question({"command": "ls\x1b[2K\r\u202e\necho"})
    assert shown == "Run this command?\n| ls\\x1b[2K\\r\\u202e\n| echo\nRun 2 lines, 13 characters?"


@pytest.mark.parametrize(
    ("between", "size"), [("\n" * 200, "201 lines, 220 characters"), (" " * 2000, "1 line, 2020 characters")]
)
def test_the_end_of_a_command_that_fills_the_screen_does_not_pass_for_the_question(
    between: str, size: str
) -> None:
    shown = terminal.question({"command": f"curl evil {between}: Show it?"}).split("\n")
    assert shown[1].startswith("| curl evil ")
    assert all(line.startswith("| ") for line in shown[1:-1])
    assert shown[-1] == f"Run {size}?"


async def test_the_name_of_a_file_is_one_line_of_the_question(agent: Agent, inside: Path) -> None:
    path = ".a\n  notes.txt: new, +1 -0"
    await agent("create_file", path=path, content="x")
    assert agent.questions[0].split("\n")[1] == "  .a\\n  notes.txt: new, +1 -0: new, +1 -0"
    assert os.listdir(inside) == [path]


async def test_keys_are_not_in_a_commands_environment(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "key")
    output = await agent("run_in_terminal", command="env")
    assert "PATH=" in output
    assert "SOME_API_KEY" not in output


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def gone(inside: Path, *names: str) -> None:
    """The processes with these numbers in files have ended, and one may wait for that a second."""
    numbers = [int((inside / name).read_text()) for name in names]
    while any(map(alive, numbers)):
        await anyio.sleep(0.02)


async def test_a_command_that_takes_too_long_is_killed_with_its_children(agent: Agent, inside: Path) -> None:
    command = (
        "trap '' TERM INT HUP; echo $$ > a; (trap '' TERM; echo begun; sh -c 'echo $$ > b; exec sleep 50')"
    )
    assert await agent("run_in_terminal", command=command, timeout=3.0) == "begun\n[stopped after 3 seconds]"
    await gone(inside, "a", "b")


async def test_children_in_the_background_end_with_the_command(agent: Agent, inside: Path) -> None:
    assert (
        await agent("run_in_terminal", command="sleep 50 & echo $! > a; echo done") == "done\n[exit code 0]"
    )
    await gone(inside, "a")


async def test_a_cancelled_run_kills_its_command(agent: Agent, inside: Path) -> None:
    token = CancellationToken()
    async with anyio.create_task_group() as tasks:

        async def cancel() -> None:
            while not (inside / "a").exists() or not (inside / "a").read_text():
                await anyio.sleep(0.02)
            token.cancel()

        tasks.start_soon(cancel)
        with pytest.raises(ToolCallCancelledError):
            await agent("run_in_terminal", token, command="echo $$ > a; exec sleep 50")
    await gone(inside, "a")


async def test_output_is_limited(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    output = await agent("run_in_terminal", command="seq 1 100000")
    assert output.startswith("1\n2\n")
    assert output.endswith("99999\n100000\n[exit code 0]")
    assert "bytes left out" in output
    assert len(output) < 41_000
    monkeypatch.setattr(terminal, "_MOST_OUTPUT", 100_000)
    assert (await agent("run_in_terminal", command="yes")).endswith("[stopped after 100000 bytes of output]")


async def test_what_a_command_writes_is_limited(
    agent: Agent, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_FILE_BLOCKS", 100)
    output = await agent("run_in_terminal", command="head -c 1000000 /dev/zero > a")
    assert "[exit code 0]" not in output
    assert (inside / "a").stat().st_size <= 100 * 1024


# --- calling ---------------------------------------------------------------------------------------------


async def test_handlers_in_threads_time_out_and_are_cancelled() -> None:
    over = threading.Event()

    def slow(given: Any) -> None:
        over.wait()

    async def later(given: Any) -> None:
        await anyio.sleep(50)

    for handler in (slow, later):
        tool = Tool("slow", "", {}, handler, timeout=0.05)
        service = ToolsService(ToolRegistry([tool]), call=call_with_anyio)
        outcome = await service.run_call("slow", "{}")
        assert outcome.failure is not None
        assert isinstance(outcome.failure.error, ToolTimeoutError)
        assert outcome.result.text == "Error: Tool timed out - it was stopped after 0.05 seconds"
        token = CancellationToken()
        service = ToolsService(ToolRegistry([Tool("slow", "", {}, handler)]), call=call_with_anyio)
        async with anyio.create_task_group() as tasks:

            async def cancel(token: CancellationToken) -> None:
                await anyio.sleep(0.05)
                token.cancel()

            tasks.start_soon(cancel, token)
            with pytest.raises(ToolCallCancelledError):
                await service.run_call("slow", "{}", token=token)
    over.set()


async def test_a_timeout_of_a_handlers_own_is_a_failure() -> None:
    def handler(given: Any) -> None:
        raise TimeoutError("the database")

    service = ToolsService(ToolRegistry([Tool("slow", "", {}, handler)]), call=call_with_anyio)
    assert (
        await service.run_call("slow", "{}")
    ).result.text == "Error: Tool failed - TimeoutError: the database"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "raised", [SystemExit(0), KeyboardInterrupt(), BaseExceptionGroup("", [SystemExit(0)])]
)
async def test_a_tool_that_would_end_the_agent_fails_alone(raised: BaseException, is_async: bool) -> None:
    """As `argparse` does, which exits at a wrong flag."""
    registry = ToolRegistry()

    def exits() -> str:
        """Exits."""
        raise raised

    async def exits_async() -> str:
        """Exits."""
        raise raised

    registry.tool(exits_async if is_async else exits)
    (tool,) = registry.get_tools()
    service = ToolsService(registry, call=call_with_anyio)
    answer = (await service.run_call(tool.name, "{}")).result.text
    assert type(raised).__name__ in answer


def test_a_registry_that_exits_when_it_is_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "exits_at_import.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="exits_at_import:registry: SystemExit"):
        load_registry("exits_at_import:registry")
