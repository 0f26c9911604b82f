"""Flags that several commands have. Each command imports this for its `--help`, so it needs click and
the names of dialects alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from bridge.dialects.table import TABLE

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

SOURCES: Final = ("auto", *(each.name for each in TABLE))
"""What a capture may be in: the names in `server.captures.sources`, which takes long to load."""
SINKS: Final = ("responses", "openai", *(each.name for each in TABLE if each.client), "snapshot")
"""What a capture may be turned into: the names in `server.captures.sinks`."""

REACHED: Final = "Where the model is: a server, or a known one: ollama, …"
ASKED: Final = "Ask this server, or a known one (without: the demo model)."
"""What `--upstream` is, for commands that use a server in between and for those that do not."""

capture_argument = click.argument(
    "file", type=click.Path(dir_okay=False, allow_dash=True), default="-", metavar="[FILE|-]"
)
config_flag = click.option(
    "--config",
    envvar="OPENRESPONSES_BRIDGE_CONFIG",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The TOML file of `serve`: its upstreams and models.",
)


def with_flags(*options: Callable[[Any], Any]) -> Callable[[_Decorated], _Decorated]:
    """A decorator for all of them, in the order of the help."""

    def add(function: _Decorated) -> _Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def upstream_flags(what: str, model: str = "The model to ask.") -> Callable[[_Decorated], _Decorated]:
    """Where the model is and how it is asked; `what` is said of `--upstream`, `model` of `--model`."""
    return with_flags(
        click.option("--upstream", metavar="URL|NAME", help=what),
        click.option("--dialect", help="What the upstream speaks (default chat)."),
        click.option("--model", help=model),
        click.option(
            "--api-key-env", metavar="VAR", help="Environment variable that holds the upstream's key."
        ),
    )


class _Speed(click.ParamType[float | str]):
    """How fast a recording is played."""

    name = "real|N|max"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        if value in ("real", "max"):
            return str(value)
        try:
            speed = float(value)
        except ValueError:
            speed = 0.0
        if not 0 < speed <= 1e6:
            self.fail(f"{value!r} is not real, max or how many times as fast (up to 1000000)", param, ctx)
        return speed


SPEED: Final = _Speed()
