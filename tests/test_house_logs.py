"""One name for one thing in the log: the fields of its events are those that docs/observing.md has."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
METHODS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
TRACEBACK = "exc_info"


def documented() -> set[str]:
    """Return the names of fields in the page's section on the log."""
    section = (
        (REPOSITORY / "docs/observing.md").read_text().partition("## The log")[2].partition("## Metrics")[0]
    )
    rows = [
        line.partition("|")[2].partition("|")[0] for line in section.splitlines() if line.startswith("| `")
    ]
    sentence = section.partition("In every event,")[2].partition("The others:")[0]
    return set(re.findall(r"`(\w+)`", " ".join([*rows, sentence])))


def logged(source: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield the fields of a module's log calls, each with its value."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in METHODS and "log" in ast.unparse(node.func.value):
            yield from ((each.arg, each.value) for each in node.keywords if each.arg not in (None, TRACEBACK))


def odd_fields(source: str, known: set[str]) -> list[str]:
    """Return the fields that are not known, or have another value than their name says."""
    odd = []
    for name, value in logged(source):
        if name not in known:
            odd.append(name)
        if name not in ("error", "code"):
            continue
        text = ast.unparse(value)
        if name == "error" and not re.fullmatch(r"type\(.+\)\.__name__", text):
            odd.append(f"error={text}")
        if name == "code" and not re.search(r"\bcode\b", text):
            odd.append(f"code={text}")
    return odd


def test_each_field_of_an_event_of_the_log_is_documented_under_one_name() -> None:
    known = documented()
    assert {"response_id", "request_id", "code", "reason", "cause", "error", "pid"} <= known
    assert odd_fields('_log.info("x", id=1, code=error.code, reason="y")', known) == ["id"]
    assert odd_fields('_log.error("x", error=str(error))', known) == ["error=str(error)"]
    assert odd_fields('_log.error("x", code=process.returncode)', known) == ["code=process.returncode"]
    files = sorted((REPOSITORY / "server").rglob("*.py"))
    odd_by_file = {str(each.relative_to(REPOSITORY)): odd_fields(each.read_text(), known) for each in files}
    assert {name: odd for name, odd in odd_by_file.items() if odd} == {}
