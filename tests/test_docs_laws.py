"""docs/laws.md has every law and field case that is cited, and the tests that it names are there."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.shared import REPOSITORY

PAGE = "docs/laws.md"
_ROW = re.compile(r"^\| ([EDTNS]?\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
_NUMBERS = r"[EDTNS]?\d+(?:(?:, | and | or | to |, and |[-–] ?)[EDTNS]?\d+)*"
_WORDS = re.compile(rf"\b(?:laws?|field\s+cases?)\s+({_NUMBERS})\b", re.IGNORECASE)
_NAME = re.compile(r"\bdef test_((?:[edtns]\d+_|case_\d\d_)+)")


def rows() -> dict[str, tuple[str, list[str]]]:
    """Number → what is said, and the tests that are named."""
    text = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    matches = _ROW.findall(text)
    assert len({number for number, _, _ in matches}) == len(matches), "a number stands there twice"
    return {number: (words, re.findall(r"`([^`]+)`", tests)) for number, words, tests in matches}


def numbers(text: str) -> Iterator[str]:
    """The numbers of `E4`, `E1–E3`, `E4, E5 and S1`, `26 to 29`."""
    first = ""
    for joint, letter, digits in re.findall(r"(^|[-–,\s][-–a-z\s]*)([EDTNS]?)(\d+)", text):
        if first and ("to" in joint or "–" in joint or "-" in joint):
            start = int(re.sub(r"\D", "", first))
            yield from (f"{first[: -len(str(start))]}{each}" for each in range(start + 1, int(digits)))
        first = f"{letter}{int(digits)}"
        yield first


def cited(text: str) -> set[str]:
    """Every law and field case that a file's words, or the names of its tests, cite."""
    joined = re.sub(r"\s*\n\s*(?:#+|//|\*)?\s*", " ", text)
    laws: set[str] = set()
    for listed in _WORDS.findall(joined):
        laws.update(numbers(listed))
    for name in _NAME.findall(text):
        for letter, digits in re.findall(r"(?:([edtns])|case_)(\d+)_", name):
            laws.add(f"{letter.upper()}{int(digits)}")
    return laws


def files() -> list[str]:
    """The text files that git has, without recordings and what others wrote."""
    patterns = ["*.py", "*.md", "*.js", "*.toml", "*.sh"]
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    return [
        name
        for name in done.stdout.decode().split("\0")
        if name and "/vendor/" not in name and name != PAGE and (REPOSITORY / name).is_file()
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""Opens (law E4)."""', {"E4"}),
        ("laws E1–E3 hold", {"E1", "E2", "E3"}),
        ("(laws S1, S2 and E8)", {"S1", "S2", "E8"}),
        ("law E8, field case 28", {"E8", "28"}),
        ("field\n    case 12", {"12"}),
        ("field cases 26 to 28, 30", {"26", "27", "28", "30"}),
        ("Law S6 and field case 43", {"S6", "43"}),
        ("def test_s8_e11_case_07_it_is_so() -> None:", {"S8", "E11", "7"}),
        ("a lawn of 4, in 3 cases; in that case 2", set()),
    ],
)
def test_citations_are_read(text: str, found: set[str]) -> None:
    assert cited(text) == found


def test_every_law_and_field_case_that_is_cited_is_on_the_page() -> None:
    here = rows()
    assert {"E1", "E12", "S1", "S11", "1", "45"} <= here.keys()
    missing = {
        f"{name}: {number}"
        for name in files()
        if name != "tests/test_docs_laws.py"
        for number in cited((REPOSITORY / name).read_text(encoding="utf-8")) - here.keys()
    }
    assert sorted(missing) == []


@pytest.mark.parametrize("number", list(rows()))
def test_the_tests_that_a_law_names_are_there(number: str) -> None:
    words, tests = rows()[number]
    assert words
    assert tests
    for test in tests:
        file, _, name = test.partition("::")
        path = REPOSITORY / file
        assert path.is_file(), test
        if name:
            assert name in names_in(path), test


@cache
def names_in(path: Path) -> frozenset[str]:
    return frozenset(defined(ast.parse(path.read_bytes())))


def defined(tree: ast.Module) -> Iterator[str]:
    """What can be collected under its name: functions, classes, and classes that another module made."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
