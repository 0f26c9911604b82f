"""Patches in both forms, applied to texts, and what does not fit."""

import json
import random
from difflib import unified_diff

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_agent.tools import ToolInvocationError, ToolRegistry, ToolsService
from openresponses_cli.agents.tools.files import file_tools, patched, read_patch
from openresponses_cli.agents.tools.folder import Folder, FolderError


def begun(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def applied(patch: str, texts: dict[str, str | None]) -> dict[str, str | None]:
    changes = read_patch(patch)
    return patched(changes, {path: texts.get(path) for each in changes for path in each.paths})


TEXT = "def a():\n    one\n    two\n\ndef b():\n    one\n    two\n"
CASES: dict[str, tuple[str, dict[str, str | None], dict[str, str | None]]] = {
    "an update": (
        begun("*** Update File: f", " def a():", "-    one", "+    ONE"),
        {"f": TEXT},
        {"f": TEXT.replace("one", "ONE", 1)},
    ),
    "behind a heading": (
        begun("*** Update File: f", "@@ def b():", "-    one", "+    ONE", "*** End of File"),
        {"f": TEXT},
        {"f": "TWO".join(TEXT.rsplit("one", 1)).replace("TWO", "ONE")},
    ),
    "two hunks, in order": (
        begun("*** Update File: f", "@@", "-    one", "+    1", "@@", "-    one", "+    2"),
        {"f": TEXT},
        {"f": TEXT.replace("one", "1", 1).replace("one", "2", 1)},
    ),
    "lines at the end": (begun("*** Update File: f", "+end"), {"f": "a\n"}, {"f": "a\nend\n"}),
    "lines behind a heading": (
        begun("*** Update File: f", "@@ a", "+x"),
        {"f": "a\nb\n"},
        {"f": "a\nx\nb\n"},
    ),
    "add, delete, move": (
        begun(
            "*** Add File: n",
            "+x",
            "+",
            "*** Delete File: d",
            "*** Update File: m",
            "*** Move to: o",
            "-1",
            "+2",
        ),
        {"d": "d", "m": "1\n"},
        {"n": "x\n\n", "d": None, "m": None, "o": "2\n"},
    ),
    "without a line end at the end": (
        begun("*** Update File: f", " a", "-b", "+c"),
        {"f": "a\nb"},
        {"f": "a\nc"},
    ),
    "line ends of Windows": (
        begun("*** Update File: f", "-b", "+c", "+d"),
        {"f": "a\r\nb\r\n"},
        {"f": "a\r\nc\r\nd\r\n"},
    ),
    "an empty line of context": (
        begun("*** Update File: f", " a", "", "-b"),
        {"f": "a\n\nb\n"},
        {"f": "a\n\n"},
    ),
    "a unified diff": (
        "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@ def\n"
        " def a():\n-    one\n+    ONE\n"
        "diff --git a/g b/g\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+new\n"
        "diff --git a/h b/h\nindex 1..2\n--- a/h\n+++ /dev/null\n@@ -1 +0,0 @@\n-h\n"
        "\\ No newline at end of file\n",
        {"f": TEXT, "h": "h"},
        {"f": TEXT.replace("one", "ONE", 1), "g": "new\n", "h": None},
    ),
    "line numbers that are wrong": (
        "--- f\n+++ f\n@@ -90,2 +90,2 @@\n def b():\n-    one\n+    ONE\n",
        {"f": TEXT},
        {"f": "ONE".join(TEXT.rsplit("one", 1))},
    ),
    "line numbers that decide": (
        "--- f\n+++ f\n@@ -6 +6 @@\n-    one\n+    ONE\n",
        {"f": TEXT},
        {"f": "ONE".join(TEXT.rsplit("one", 1))},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_patches(name: str) -> None:
    patch, before, after = CASES[name]
    assert applied(patch, before) == after
    assert applied(patch.replace("\n", "\r\n"), before) == after


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("", "changes nothing"),
        ("*** Begin Patch\n*** End Patch", "changes nothing"),
        ("*** Begin Patch\n*** Update File: f\n-one", "is incomplete"),
        (begun("-a"), "line 2 of the patch is wrong (a file has to be named first)"),
        (begun("*** Update File: f", "?a"), "line 3 of the patch is wrong"),
        (begun("*** Add File: n", " a"), "line 3 of the patch is wrong"),
        (begun("*** Delete File: f", "-a"), "line 3 of the patch is wrong"),
        (begun("*** Add File: f", "+a"), "'f' already exists"),
        (begun("*** Update File: x", "-a"), "'x' does not exist"),
        (begun("*** Delete File: x"), "'x' does not exist"),
        (begun("*** Update File: f", "*** Move to: g", "-    one"), "'g' already exists"),
        (begun("*** Update File: f", "-three"), "hunk 1 does not fit 'f'"),
        (begun("*** Update File: f", "@@ class C", "-    one"), "hunk 1 does not fit 'f'"),
        (begun("*** Update File: f", "@@", "-    two", "@@", "-def a():"), "hunk 2 does not fit 'f'"),
        (begun("*** Update File: f", *["@@", "-a"] * 501), "more than 500"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n?x", "line 4 of the patch is wrong"),
    ],
    ids=range(16),
)
def test_patches_that_are_refused(patch: str, message: str) -> None:
    with pytest.raises(ToolInvocationError) as caught:
        applied(patch, {"f": TEXT, "g": ""})
    assert message in caught.value.message


@given(st.lists(st.sampled_from(["a", "b", "", " c"]), max_size=30), st.integers(0, 2**32))
def test_a_diff_brings_one_text_to_the_other(lines: list[str], seed: int) -> None:
    chance = random.Random(seed)
    changed = [each for line in lines for each in chance.choice([[line]] * 5 + [[], ["x"], [line, "y"]])]
    before, after = ["".join(f"{line}\n" for line in each) for each in (lines, changed)]
    diff = "".join(
        f"{each}\n"
        for each in unified_diff(before.splitlines(), after.splitlines(), "a/f", "b/f", lineterm="")
    )
    if diff:
        assert applied(diff, {"f": before}) == {"f": after}


def test_hunks_that_nearly_fit_everywhere_take_linear_time() -> None:
    text = "a\n" * 500_000
    patch = begun("*** Update File: f", *["-a"] * 200_000, "-b")
    with pytest.raises(ToolInvocationError):
        applied(patch, {"f": text})


async def test_a_patch_is_applied_whole_or_not_at_all(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def yes(tool: str, question: str) -> bool:
        return True

    service = ToolsService(ToolRegistry(file_tools(folder)), confirm=yes)

    async def apply(patch: str) -> str:
        return (await service.run_call("apply_patch", json.dumps({"input": patch}))).result.text

    folder.create("a", b"one\n")
    for name in ("a", "./a", "/project/a"):
        twice = begun("*** Update File: a", "-one", f"*** Update File: {name}", "-one")
        assert "names a file twice" in await apply(twice)
    folder.create("b", b"two\n")
    patch = begun(
        "*** Update File: a", "-one", "+1", "*** Add File: c", "+c", "*** Update File: b", "-two", "+2"
    )
    plain = folder.change

    def failing(path: str, *arguments: object) -> None:
        if path == "b":
            raise FolderError("the disk is full")
        plain(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(folder, "change", failing)
    assert "the disk is full" in await apply(patch)
    assert [(name, folder.read(name)) for name, _ in folder.entries("")] == [("a", b"one\n"), ("b", b"two\n")]
    monkeypatch.undo()
    assert await apply(patch) == "Updated a\nCreated c\nUpdated b"
    contents = [(name, folder.read(name)) for name, _ in folder.entries("")]
    assert contents == [("a", b"1\n"), ("b", b"2\n"), ("c", b"c\n")]
