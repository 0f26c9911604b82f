"""Draws docs/states.md from the tables in bridge/state.py: `make docs`.

The page is committed; a test regenerates it and fails when the tables have moved on without it.
"""

from __future__ import annotations

from pathlib import Path

from bridge import state

PAGE = Path(__file__).with_name("states.md")


def _diagram(start: str, edges: list[tuple[str, str, str]]) -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start}"]
    lines += [f"    {source} --> {target}: {label}" for source, target, label in edges]
    return [*lines, "```", ""]


def _methods() -> list[tuple[str, str, str]]:
    """The machine's methods, those that lead the same way on one edge."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for phase, methods in state.METHODS.items():
        for method, ways in sorted(methods.items()):
            for target in sorted(set(ways.values())):
                grouped.setdefault((phase, target), []).append(method)
    return [(source, target, ", ".join(methods)) for (source, target), methods in grouped.items()]


def _table(transitions: dict[str, dict[str, str]]) -> list[tuple[str, str, str]]:
    return [(source, target, label) for source, ways in transitions.items() for label, target in ways.items()]


def _strings(table: object) -> dict[str, dict[str, str]]:
    assert isinstance(table, dict)
    return {str(source): {str(k): str(v) for k, v in ways.items()} for source, ways in table.items()}


def _roles() -> list[str]:
    lines = ["| event | block | does |", "| --- | --- | --- |"]
    lines += [f"| `{event}` | {role.subject} | {role.verb} |" for event, role in state.ROLES.items()]
    return [*lines, ""]


def page() -> str:
    """The whole page."""
    sections = [
        "# States",
        "",
        "Drawn from the tables in `bridge/state.py` by `make docs`; the machine, the validator and this",
        "page read the same tables.",
        "",
        "## The machine's methods",
        "",
        *_diagram("idle", _methods()),
        "## A stream as its reader sees it",
        "",
        *_diagram("expecting", _table(_strings(state.STREAM))),
        "## An item",
        "",
        *_diagram("absent", _table(_strings(state.ITEM))),
        "## A content or summary part",
        "",
        *_diagram("absent", _table(_strings(state.PART))),
        "## A call's arguments",
        "",
        *_diagram("absent", _table(_strings(state.ARGUMENTS))),
        "## What each event does",
        "",
        *_roles(),
    ]
    return "\n".join(sections).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
