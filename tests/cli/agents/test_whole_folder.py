"""semantic_search and list_code_usages: what they find, and folders made to keep them busy."""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from openresponses_agent.tools import (
    CancellationToken,
    ToolCallCancelledError,
    ToolInvocationContext,
    ToolTimeoutError,
)
from openresponses_cli.agents.tools import sample_tools, semantic
from openresponses_cli.agents.tools.folder import Folder
from openresponses_cli.agents.tools.semantic import WordIndex
from openresponses_cli.agents.tools.texts import Texts

Call = Callable[..., str]
TOOLS = ("semantic_search", "list_code_usages")


@pytest.fixture
def call(folder: Folder) -> Call:
    tools = sample_tools(folder)

    def called(name: str, **given: Any) -> str:
        tool = tools.get(name)
        assert tool is not None
        text = tool.handler(given, ToolInvocationContext(name, CancellationToken()))
        assert isinstance(text, str)
        return text

    return called


def look(call: Call, name: str, words: str) -> str:
    return call(
        name, **{"semantic_search": {"query": words}, "list_code_usages": {"symbolName": words}}[name]
    )


def write(inside: Path, **files: str) -> None:
    for name, content in files.items():
        path = inside / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


# ── semantic_search ────────────────────────────────────────────────────────────────────────────────
def test_the_best_part_comes_first_with_its_place(call: Call, inside: Path) -> None:
    write(
        inside,
        a_dot_py="import os\n" * 50 + "def readConfigFile(path):\n    return parse(path)\n",
        b_dot_py="def unrelated():\n    pass\n",
        docs__notes_dot_md="Nothing about it.\n",
    )
    first = call("semantic_search", query="where are configuration files read? config").split("\n")[0]
    assert first == "a.py:41"
    assert "return parse(path)" in call("semantic_search", query="READ_CONFIG_FILE")
    assert call("semantic_search", query="nowhere-to-be-found") == "Nothing was found."
    assert call("semantic_search", query="?! ~") == "Nothing was found."


def test_words_are_stemmed_and_a_path_counts_more(call: Call, inside: Path) -> None:
    write(inside, billing_dot_py="x = 1\n", other_dot_py="# billing is mentioned here once\n")
    results = call("semantic_search", query="bills").split("\n\n")
    assert [each.split(":")[0] for each in results] == ["billing.py", "other.py"]


def test_as_many_as_wanted(call: Call, inside: Path) -> None:
    for number in range(30):
        (inside / f"{number}.txt").write_text("needle\n")
    assert call("semantic_search", query="needle").count("needle") == 8
    assert call("semantic_search", query="needle", maxResults=20).count("needle") == 20


def test_what_has_changed_is_indexed_again_and_nothing_else(inside: Path, folder: Folder) -> None:
    write(inside, a_dot_txt="first", b_dot_txt="second")
    index, rows = WordIndex(), []
    index._base.set_trace_callback(lambda sql: rows.append(sql) if sql.startswith("INSERT INTO p") else None)

    def found(word: str) -> list[str]:
        rows.clear()
        return [part.path for part in index.search(word, Texts(folder, CancellationToken()), 9)]

    assert (found("first"), len(rows)) == (["a.txt"], 2)
    assert (found("second"), len(rows)) == (["b.txt"], 0)
    write(inside, a_dot_txt="second")
    assert (sorted(found("second")), len(rows)) == (["a.txt", "b.txt"], 1)
    assert found("first") == []
    (inside / "b.txt").unlink()
    assert found("second") == ["a.txt"]


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "a OR b NEAR(c",
        "NOT",
        "words:x",
        "a* ^b",
        "\0",
        "\ud800",
        "' ; DROP TABLE parts --",
        "{path} : a",
        "x " * 500,
    ],
)
def test_no_query_is_an_expression(call: Call, inside: Path, query: str) -> None:
    write(inside, a_dot_txt="a b c not x")
    assert call("semantic_search", query=query)
    assert call("semantic_search", query="not").startswith("a.txt:1")


def test_ranking_that_takes_too_long_ends(call: Call, inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        (inside / f"{number}.txt").write_text("needle and more\n")
    monkeypatch.setattr(semantic, "_SEARCH_SECONDS", -1.0)
    monkeypatch.setattr(semantic, "_STEPS", 1)
    with pytest.raises(ToolTimeoutError):
        call("semantic_search", query="needle")
    monkeypatch.undo()
    assert call("semantic_search", query="needle").startswith(tuple("0123456789"))


def test_sqlite_here_has_full_text_search() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        options = {row[0] for row in database.execute("PRAGMA compile_options")}
    assert "ENABLE_FTS5" in options


# ── list_code_usages ───────────────────────────────────────────────────────────────────────────────
def test_definitions_come_first_and_names_are_whole(call: Call, inside: Path) -> None:
    write(
        inside,
        a_dot_py="from b import load\n\nprint(load(1), reload, load_all, overload)\n",
        b_dot_py="def load(number):\n    return number\n",
        c_dot_js="  load(number) {\nthis.load(2) ;\nif (load(3)) {\n",
    )
    assert call("list_code_usages", symbolName="load").split("\n") == [
        "Definitions:",
        "b.py:1: def load(number):",
        "c.js:1: load(number) {",
        "Usages:",
        "a.py:1: from b import load",
        "a.py:3: print(load(1), reload, load_all, overload)",
        "c.js:2: this.load(2) ;",
        "c.js:3: if (load(3)) {",
    ]
    assert call("list_code_usages", symbolName="loa") == "No usages of loa."


@pytest.mark.parametrize(
    ("line", "is_defined"),
    [
        ("class Thing(Base):", True),
        ("class Other(Thing):", False),
        ("async def Thing(self):", True),
        ("export const Thing = 1", True),
        ("func (r *Receiver) Thing(a int) error {", True),
        ("pub(crate) struct Thing<T> {", True),
        ("static int *Thing(void) {", True),
        ("public static void Thing(String a) {", True),
        ("#define Thing(a) a", True),
        ("Thing = 3", True),
        ("Thing: int = 3", True),
        ("Thing == 3", False),
        ("return Thing(a) {", False),
        ("x = Thing(a)", False),
        ("new Thing() {", False),
        ("import type Thing from 'a'", False),
        ("a.Thing(b) {", False),
    ],
)
def test_what_looks_like_a_definition(call: Call, inside: Path, line: str, is_defined: bool) -> None:
    write(inside, a_dot_txt=f"{line}\n")
    assert call("list_code_usages", symbolName="Thing").startswith("Definitions:") is is_defined


def test_files_that_are_named_are_looked_at_first(call: Call, inside: Path) -> None:
    write(inside, a_dot_py="use(x)\n", z__b_dot_py="use(y)\n")
    output = call("list_code_usages", symbolName="use", filePaths=["/project/z/b.py", "gone.py"])
    assert output.split("\n")[1:] == ["z/b.py:1: use(y)", "a.py:1: use(x)"]


# ── folders that are hostile ───────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", TOOLS)
def test_nothing_outside_is_read_and_what_is_no_text_is_left_out(call: Call, inside: Path, name: str) -> None:
    (inside / "link.txt").symlink_to("../secret.txt")
    (inside / "folder").symlink_to("../outside")
    (inside / "loop").symlink_to(".")
    os.mkfifo(inside / "pipe")
    (inside / "binary").write_bytes(b"secret\0")
    (inside / "large.txt").write_bytes(b"secret " * 200_000)
    for skipped in (".git", "node_modules"):
        write(inside, **{f"{skipped}__a_dot_txt": "secret"})
    assert look(call, name, "secret") in ("Nothing was found.", "No usages of secret.")
    (inside / os.fsdecode(b"\xff.txt")).write_bytes(b"\xff secret\r")
    assert ":1" in look(call, name, "secret")
    json.dumps(look(call, name, "secret"))


def test_paths_that_lead_out_are_errors_for_the_model(call: Call) -> None:
    with pytest.raises(Exception, match="has `\\.\\.` in it"):
        call("list_code_usages", symbolName="a", filePaths=["../secret.txt"])


@pytest.mark.parametrize("name", TOOLS)
def test_lines_without_end_and_words_without_number(call: Call, inside: Path, name: str) -> None:
    (inside / "minified.js").write_text("needle," * 40_000)
    (inside / "words.txt").write_text(" ".join(f"w{number}" for number in range(20_000)) + " needle")
    assert len(look(call, name, "needle")) < 20_000
    (inside / "lines.txt").write_text("needle\n" * 40_000)
    assert len(look(call, name, "needle")) < 20_000


@pytest.mark.parametrize("name", TOOLS)
def test_the_time_is_bounded(call: Call, inside: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(inside, a_dot_txt="needle")
    monkeypatch.setattr(
        Texts.__init__, "__kwdefaults__", {**(Texts.__init__.__kwdefaults__ or {}), "seconds": -1.0}
    )
    assert look(call, name, "needle").endswith(
        "(Not all files were looked through: it took more than -1 seconds.)"
    )


class Counting(Folder):
    """Counts what is opened."""

    looked = 0
    opened = 0

    def entries(self, path: str) -> list[tuple[str, str]]:
        self.looked += 1
        return super().entries(path)

    def read(self, path: str, most: int = 0) -> bytes:
        self.opened += 1
        return super().read(path, most)


def counted(inside: Path, **bounds: Any) -> tuple[Counting, Texts, int]:
    folder = Counting(inside)
    try:
        looked = Texts(folder, CancellationToken(), **bounds)
        return folder, looked, sum(len(each.text) for each in looked.read())
    finally:
        folder.close()


def test_files_folders_and_bytes_are_bounded(inside: Path) -> None:
    for number in range(30):
        write(inside, **{f"{number}__a_dot_txt": "x" * 100})
        (inside / f"empty{number}").mkdir()
    folder, whole, size = counted(inside)
    assert (folder.opened, size, whole.omission()) == (30, 3000, "")
    folder, cut, _ = counted(inside, most_files=10)
    assert (folder.looked <= 11, folder.opened <= 10) == (True, True)
    assert "more than 10 files" in cut.omission()
    folder, cut, size = counted(inside, most_bytes=950)
    assert (folder.opened, size) == (10, 900)
    assert "too many bytes" in cut.omission()


def test_a_tree_of_folders_without_files_ends(inside: Path) -> None:
    for number in range(60):
        (inside / str(number)).mkdir()
    folder, cut, _ = counted(inside, most_files=20)
    assert folder.looked <= 21
    assert "more than 20 files" in cut.omission()


def test_a_tree_deeper_than_paths_may_be_is_left_at_its_depth(inside: Path) -> None:
    deep = inside
    for _ in range(100):
        deep = deep / "d"
        deep.mkdir()
    (deep / "a.txt").write_text("needle")
    folder, _, size = counted(inside)
    assert (size, folder.looked <= 65) == (0, True)


@pytest.mark.parametrize("name", TOOLS)
def test_cancelling_ends_the_look(folder: Folder, inside: Path, name: str) -> None:
    for number in range(5):
        write(inside, **{f"{number}_dot_txt": "needle"})
    tool, token = sample_tools(folder).get(name), CancellationToken()
    assert tool is not None
    token.cancel()
    with pytest.raises(ToolCallCancelledError):
        tool.handler({"query": "needle", "symbolName": "needle"}, ToolInvocationContext(name, token))
