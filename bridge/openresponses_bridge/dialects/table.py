"""The dialects there are, one line each.

Captures, commands, the inspector, the server's upstreams and the tests take the dialects from here, so a new
one is its package and its line. Nothing is imported before an entry is asked for: the help of commands needs
names alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from openresponses_bridge.dialects.base import Dialect, Surface, SurfacePath

PROTOCOL: Final = "responses"
"""The dialect that is the protocol itself."""
MODELS_PATH: Final = "/v1/models"
"""The path of models that several APIs have."""


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
    Line("bedrock", "bedrock_converse"),
    Line("bedrock-invoke", "bedrock_invoke", upstream=False),
    Line("gemini", "gemini"),
    Line("interactions", "interactions"),
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


@cache
def surfaces() -> dict[str, Surface]:
    """Return the APIs of clients by the names of their dialects, those of the last lines first: the places of
    their keys count before others', and a new line is behind."""
    return {name: each.surface for name, each in reversed(dialects().items()) if each.surface is not None}


class Found(NamedTuple):
    """The API that a path belongs to."""

    name: str
    """The name of its dialect."""
    surface: Surface
    at: SurfacePath | None = None
    """The path in its table; None for one that is not there."""
    fields: Mapping[str, str] = MappingProxyType({})
    """The values of the path's parameters."""


def surface_at(path: str, headers: Mapping[str, str] = MappingProxyType({})) -> Found:
    """Return the API whose clients ask at this path; with these headers, where several have it. The
    protocol's own has those that no other one has."""
    exact, parametrised, beginnings, shared, default = _paths()
    if (route := exact.get(path)) is not None:
        return route
    for route in parametrised:
        assert route.at is not None
        if (match := route.at.pattern.fullmatch(path)) is not None:
            return route._replace(fields=match.groupdict())
    for beginning, route in beginnings:
        if path.startswith(beginning):
            return route
    if path.startswith(MODELS_PATH):
        return next((each for each in shared if each.surface.recognises(headers)), default)
    return default


class _Paths(NamedTuple):
    exact: dict[str, Found]
    parametrised: list[Found]
    beginnings: list[tuple[str, Found]]
    shared: list[Found]
    default: Found


@cache
def _paths() -> _Paths:
    all_of = [Found(name, surface) for name, surface in surfaces().items()]
    placed = [each._replace(at=at) for each in all_of for at in each.surface.paths]
    return _Paths(
        {each.at.path: each for each in placed if each.at is not None and "{" not in each.at.path},
        [each for each in placed if each.at is not None and "{" in each.at.path],
        [(beginning, each) for each in all_of for beginning in each.surface.prefixes],
        [each for each in reversed(all_of) if each.surface.models is not None],
        Found(PROTOCOL, surfaces()[PROTOCOL]),
    )
