"""docs/security.md names a test for each threat, and each of those exists."""

import ast
import re

import pytest

from tests.support.shared import REPOSITORY

PAGE = (REPOSITORY / "docs/security.md").read_text()
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_ROW = re.compile(r"^\| (?!Threat |---|Who )(.+) \|$", re.MULTILINE)
_SENDERS = PAGE.index("## Before the client is authenticated")


@pytest.mark.parametrize(("file", "name"), sorted(set(_TEST.findall(PAGE))))
def test_named_test_exists(file: str, name: str) -> None:
    tree = ast.parse((REPOSITORY / file).read_bytes())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in tree.body if isinstance(node, functions)}


def test_every_threat_has_a_measure_and_a_test() -> None:
    rows = [row.split(" | ") for row in _ROW.findall(PAGE, _SENDERS)]
    assert len(rows) > 25
    assert not [row for row in rows if len(row) != 3 or not _TEST.search(row[2])]


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([\w./]+)\)", PAGE))))
def test_links_lead_somewhere(link: str) -> None:
    assert (REPOSITORY / "docs" / link).exists()
