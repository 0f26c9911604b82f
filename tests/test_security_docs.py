"""docs/security.md names a test for each threat, and each of those exists."""

import ast
import re

from tests.support.shared import REPOSITORY

PAGE = (REPOSITORY / "docs/security.md").read_text()
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_ROW = re.compile(r"^\| (?!Threat |---|Who )(.+) \|$", re.MULTILINE)
_SENDERS = PAGE.index("## Before the client is authenticated")


def test_named_tests_exist() -> None:
    named = set(_TEST.findall(PAGE))
    names = {
        (file, node.name)
        for file in {file for file, _ in named}
        for node in ast.parse((REPOSITORY / file).read_bytes()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert sorted(named - names) == []


def test_every_threat_has_a_measure_and_a_test() -> None:
    rows = [row.split(" | ") for row in _ROW.findall(PAGE, _SENDERS)]
    assert len(rows) > 25
    assert not [row for row in rows if len(row) != 3 or not _TEST.search(row[2])]


def test_links_lead_somewhere() -> None:
    links = set(re.findall(r"\]\(([\w./]+)\)", PAGE))
    assert [link for link in sorted(links) if not (REPOSITORY / "docs" / link).exists()] == []
