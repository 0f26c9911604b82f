"""The dialects there are, one line each.

Captures, commands, the inspector, the server's upstreams and the tests take the dialects from here, so a new
one is its package and its line. Nothing is imported before an entry is asked for: the help of commands needs
names alone.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from openresponses_bridge.dialects.base import Dialect


class Line(NamedTuple):
    """`name` is what settings and commands call the dialect, `package` its folder here, whose `DIALECT` is
    its entry. `client`: whether it has a client's side, `upstream`: whether an upstream's."""

    name: str
    package: str
    client: bool = True
    upstream: bool = True


TABLE: Final = (
    Line("codex", "codex", client=False),
    Line("vscode", "vscode", upstream=False),
    Line("gemini", "gemini"),
    Line("anthropic", "anthropic_messages"),
    Line("responses", "responses", client=False),
    Line("copilot", "copilot", upstream=False),
    Line("chat", "chat_completions"),
)
"""In the order in which they are asked whether a capture is theirs: those that take the least first."""


@cache
def dialects() -> dict[str, Dialect]:
    """All entries by their names, in the order of the table."""
    return {
        each.name: import_module(f"openresponses_bridge.dialects.{each.package}").DIALECT for each in TABLE
    }
