"""Flags that several commands have. Each command imports this for its `--help`, so it needs click and
the names of dialects alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn, TypeVar, cast

import click
from click.core import ParameterSource

from openresponses_bridge.dialects.table import TABLE
from openresponses_bridge.text import printable

# fields of an upstream → the parameter that gives them, where that has another name
_OF_UPSTREAM: Final = {
    "url": "upstream",
    "profile": "upstream",
    "playback.speed": "speed",
    "playback.loop": "loop",
    "codex.path": "codex_path",
}
_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

SOURCES: Final = ("auto", *(each.name for each in TABLE))
"""What a capture may be in: the names in `openresponses_server.observation.recordings.dialects`, which takes
long to load."""
SINKS: Final = ("responses", "openai", *(each.name for each in TABLE if each.client), "snapshot")
"""What a capture may be turned into: the names in `openresponses_server.observation.recordings.dialects`."""

DIALECTS: Final = tuple(each.name for each in reversed(TABLE) if each.upstream)
"""What an upstream may speak: the names in `openresponses_server.upstreams.dialects`, which takes long to
load."""

REACHED: Final = "Where the model is: a server, or a known one: ollama, …"
ASKED: Final = "Ask this server, or a known one (without: the demo model)."
"""What `--upstream` is, for commands that use a server in between and for those that do not."""


class SetOption(click.Option):
    """A flag that an environment variable stands for: what is wrong names whichever of them was given."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return f"'{given_by(self, ctx)}'" if ctx is not None else super().get_error_hint(ctx)


def given_by(option: click.Parameter, context: click.Context) -> str:
    """The flag, or the variable when the value is from there."""
    by_variable = context.get_parameter_source(str(option.name)) is ParameterSource.ENVIRONMENT
    return str(option.envvar) if by_variable else option.opts[0]


capture_argument = click.argument(
    "file", type=click.Path(dir_okay=False, allow_dash=True), default="-", metavar="[FILE|-]"
)
config_flag = click.option(
    "--config",
    cls=SetOption,
    envvar="OPENRESPONSES_BRIDGE_CONFIG",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The TOML file of `serve`: its upstreams and models.",
)


dialect_flag = click.option(
    "--dialect", type=click.Choice(DIALECTS), help="What the upstream speaks (default chat)."
)
upstream_key_flag = click.option(
    "--api-key-env", metavar="VAR", help="Environment variable that holds the upstream's key."
)
server_key_flag = click.option(
    "--key-env",
    "--api-key-env",
    "api_key_env",
    metavar="VAR",
    help="Environment variable with the key that the server asks for.",
)
"""Of commands that ask a server and have no upstream. `--key-env` is the server's in every command."""


class Duration(click.ParamType[str]):
    """A time as settings have it."""

    name = "TIME"

    def __init__(self, *, endless: bool = False) -> None:
        self._endless = endless

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        counted = text[:-1].isascii() and text[:-1].isdecimal() and len(text) <= 7 and text[-1:] in "smhdw"
        if not counted and not (self._endless and text == "forever"):
            words = ", or forever" if self._endless else ""
            self.fail(f"{text!r} is not a time such as 30s, 10m, 12h, 30d or 4w{words}", param, ctx)
        return text


def parameter_of(path: str) -> str:
    """The parameter of `serve` that gives the setting at this path (`$.upstreams[0].url`), if one does."""
    names = path.removeprefix("$.").replace("[", ".").split(".")
    if names[0] != "upstreams":
        return {"trace.folder": "trace"}.get(".".join(names), names[0] if names[0] != "trace" else "")
    inner = ".".join(names[2:])
    return _OF_UPSTREAM.get(inner, inner)


@contextmanager
def naming_flags(config: Path | None, fields: Mapping[str, Any]) -> Iterator[None]:
    """Every ConfigError in it names what it is about: the flag or variable that gave it, else the file and
    its line. `fields` are the settings that flags gave."""
    from openresponses_server.settings.files import ConfigError, located

    try:
        with located(config, fields):
            yield
    except ConfigError as error:
        context = click.get_current_context(silent=True)
        first = error.at.removeprefix("$.").partition(".")[0].partition("[")[0]
        if not error.place and first in fields and context is not None:
            wanted = parameter_of(error.at)
            for option in context.command.params:
                if option.name == wanted:
                    error.place, error.at = given_by(option, context), ""
                    error.message = error.message.removeprefix("upstream: ")  # it has no name of its own
        raise


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
        dialect_flag,
        click.option("--model", help=model),
        upstream_key_flag,
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


# Files and pipes, as the commands use them.

CLEAN, VIOLATIONS, UNREADABLE = 0, 1, 2
"""Exit codes."""


@contextmanager
def reading(file: str) -> Iterator[BinaryIO]:
    """The capture's bytes. A capture that can't be read ends the command with exit code 2 and says where."""
    from openresponses_server.observation.recordings.captures import Unreadable

    name = "stdin" if file == "-" else file
    try:
        with click.open_file(file, "rb") as opened:
            yield cast(BinaryIO, opened)
    except Unreadable as error:
        exit_unreadable(printable(f"{name}: {error}"))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            _nobody_listens()
        exit_unreadable(f"{name}: {error.strerror or error}")


force_flag = click.option("--force", is_flag=True, help="Replace FILE if it already exists.")


def counted(number: int, what: str) -> str:
    """`1 response`, `2 responses`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


@contextmanager
def written(file: Path | None, *, replace: bool) -> Iterator[BinaryIO]:
    """The file, which has its name when all is written and not before, or standard output. One that is there
    ends the command with exit code 2, unless it is to be replaced; what is not a file never is."""
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if os.path.lexists(file) and not file.is_file():
        raise click.UsageError(f"{file} is not a file; without FILE standard output is written to")
    if file.exists() and not replace:
        raise click.UsageError(f"{file} already exists: --force replaces it")
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        with open(unfinished, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(unfinished, file)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def write(data: bytes) -> None:
    """Put it on stdout at once. A closed pipe ends the command quietly, as for any tool before `head`."""
    if data:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def exit_unreadable(message: str) -> NoReturn:
    """Write the message to stderr and exit with code 2."""
    click.echo(message, err=True)
    sys.exit(UNREADABLE)


def _nobody_listens() -> NoReturn:
    # what is still buffered must have somewhere to go when the interpreter flushes at its end
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(CLEAN)
