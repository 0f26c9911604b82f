"""Flags that several commands share, and their input and output files. Every command imports this for
`--help`, so it imports little: click and the names of dialects."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn, TypeVar, cast

import click
from click.core import ParameterSource

from openresponses_bridge.dialects.table import TABLE
from openresponses_bridge.text import printable, shown_json
from openresponses_cli.commands.terminal import drop_output, drop_unwritten

# field of an upstream → the parameter that sets it, if its name differs
_OF_UPSTREAM: Final = {
    "url": "upstream",
    "profile": "upstream",
    "playback.speed": "speed",
    "playback.loop": "loop",
    "codex.path": "codex_path",
}
_Value = TypeVar("_Value")
_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

SOURCES: Final = ("auto", *(each.name for each in TABLE))
"""The dialects of captures: the names in `openresponses_server.observation.recordings.dialects`, which is
slow to import."""
TARGETS: Final = ("responses", "openai", *(each.name for each in TABLE if each.client), "snapshot")
"""The formats that captures are translated into: the names in
`openresponses_server.observation.recordings.dialects`."""

DIALECTS: Final = tuple(each.name for each in reversed(TABLE) if each.upstream)
"""The dialects of upstreams: the names in `openresponses_server.upstreams.dialects`, which is slow to
import."""

REACHED: Final = "The model's server: its URL, or the name of a known one: ollama, …"
ASKED: Final = "Use this server, or a known one (default: the demo model)."
"""The help of `--upstream`, for commands that use a server in between and for those that do not."""


class SetOption(click.Option):
    """An option that an environment variable can set, which its help names. Errors name the one that was
    given."""

    def __init__(self, declared: Sequence[str], **attributes: Any) -> None:
        super().__init__(declared, show_envvar=True, **attributes)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return f"'{given_by(self, ctx)}'" if ctx is not None else super().get_error_hint(ctx)


def given_by(option: click.Parameter, context: click.Context) -> str:
    """The name of the flag, or of the variable if the value comes from it."""
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
    "--dialect", type=click.Choice(DIALECTS), help="The API that the upstream speaks (default chat)."
)
upstream_key_flag = click.option(
    "--api-key-env", metavar="VAR", help="Environment variable that holds the upstream's key."
)
server_key_flag = click.option(
    "--key-env",
    "--api-key-env",
    "api_key_env",
    metavar="VAR",
    help="Environment variable that holds the key for the server.",
)
"""For commands that use a server and have no upstream. `--key-env` is the server's key in every command."""


class Form(click.ParamType[_Value]):
    """A type of values whose name is the form of the values: words in small letters are literal, those in
    capitals are placeholders."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the form, as help shows it."""
        return self.name


class Duration(Form[str]):
    """A duration in the format of the settings."""

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
    """Return the parameter of `serve` for the setting at this path (`$.upstreams[0].url`); None if there is
    none."""
    names = path.removeprefix("$.").replace("[", ".").split(".")
    if names[0] != "upstreams":
        return {"trace.folder": "trace"}.get(".".join(names), names[0] if names[0] != "trace" else "")
    inner = ".".join(names[2:])
    return _OF_UPSTREAM.get(inner, inner)


@contextmanager
def naming_flags(config: Path | None, fields: Mapping[str, Any]) -> Iterator[None]:
    """A context whose ConfigErrors name the source of the value: the flag or variable that set it, else the
    file and its line. `fields` are the settings that flags gave."""
    from openresponses_server.settings.files import ConfigError, located

    try:
        with located(config, fields):
            yield
    except ConfigError as error:
        context = click.get_current_context(silent=True)
        for each in error.all:
            first = each.at.removeprefix("$.").partition(".")[0].partition("[")[0]
            if each.place or first not in fields or context is None:
                continue
            for option in context.command.params:
                if option.name == parameter_of(each.at):
                    each.place, each.at = given_by(option, context), ""
                    each.message = each.message.removeprefix("upstream: ")  # it has no parameter of its own
                    break
        raise


def usage_error(error: Exception) -> click.UsageError:
    """Return the error for wrong usage, which ends the command with exit code 2; settings have a line for
    each mistake."""
    from openresponses_server.settings.files import ConfigError

    return click.UsageError(str(error) if isinstance(error, ConfigError) else printable(str(error)))


def print_deprecated(config: Path | None) -> None:
    """Write a line to stderr for each deprecated setting in the file. For options click does that."""
    from openresponses_server.settings import deprecated_settings

    for line in deprecated_settings(config):
        click.echo(printable(line), err=True)


def with_flags(*options: Callable[[Any], Any]) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that adds these options, in the order of the help."""

    def add(function: _Decorated) -> _Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def upstream_flags(what: str, model: str = "The model to ask.") -> Callable[[_Decorated], _Decorated]:
    """Return a decorator with the options of an upstream and its model; `what` is the help of `--upstream`,
    `model` that of `--model`."""
    return with_flags(
        click.option("--upstream", metavar="URL|NAME", help=what),
        dialect_flag,
        click.option("--model", help=model),
        upstream_key_flag,
    )


class _Speed(Form[float | str]):
    """The speed of a recording."""

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


# Input and output files of commands; both may be pipes.

CLEAN, VIOLATIONS, UNREADABLE = 0, 1, 2
"""Exit codes."""


STDIN: Final = "stdin"
"""The name of standard input in messages."""


class UnreadableInput(Exception):
    """A file that can't be read; the message names it."""


@contextmanager
def opened_input(file: str) -> Iterator[BinaryIO]:
    """Open the file, or standard input for `-`. Raises UnreadableInput, with the place."""
    from openresponses_server.observation.recordings.captures import UnreadableCapture

    name = STDIN if file == "-" else file
    if file == "-" and sys.stdin.isatty():
        click.echo("reading from the terminal; Ctrl-D ends the input", err=True)
    try:
        with click.open_file(file, "rb") as opened:
            yield cast(BinaryIO, opened)
    except UnreadableCapture as error:
        raise UnreadableInput(f"{name}: {error}") from error
    except BrokenPipeError:  # of what is printed meanwhile
        raise
    except OSError as error:
        raise UnreadableInput(f"{name}: {error.strerror or error}") from error


@contextmanager
def input_file(file: str) -> Iterator[BinaryIO]:
    """Open the capture. If it can't be read, the command ends with exit code 2 and an error with the
    place."""
    try:
        with opened_input(file) as opened:
            yield opened
    except UnreadableInput as error:
        exit_unreadable(str(error))


force_flag = click.option("--force", is_flag=True, help="Replace FILE if it already exists.")


@contextmanager
def output_file(file: Path | None, *, replace: bool) -> Iterator[Callable[[bytes], object]]:
    """Open the output file, or standard output, and yield a function that writes to it. The file gets its
    name when everything is written. An existing file ends the command with exit code 2 unless `replace`;
    anything but a regular file is never replaced."""
    if file is None:
        yield lambda data: sys.stdout.buffer.write(_for_stdout(data))
        sys.stdout.buffer.flush()
        return
    if os.path.lexists(file) and not file.is_file():
        raise click.UsageError(f"{file} is not a regular file; without FILE, output goes to standard output")
    if file.exists() and not replace:
        raise click.UsageError(f"{file} already exists: --force replaces it")
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        with open(unfinished, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
            yield opened.write
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(unfinished, file)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def write_report(path: str, report: bytes) -> None:
    """Write a report. A file that can't be written ends the command with exit code 2."""
    try:
        Path(path).write_bytes(report)
    except OSError as error:
        exit_unreadable(f"{path}: {error.strerror or error}")


def write(data: bytes) -> None:
    """Write text to stdout and flush. A pipe or file gets the bytes unchanged; a terminal gets JSON with
    escapes for characters that it would interpret, hide or reorder. Raises BrokenPipeError if the reader has
    left, which ends the command without an error, like other programs before `head`; a command with a verdict
    ends with that."""
    if not data:
        return
    try:
        sys.stdout.buffer.write(_for_stdout(data))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:  # here, since within `opened_input` it would be an error of the input
        drop_unwritten()
        raise click.ClickException(f"standard output: {error.strerror or error}") from error


def write_json(value: Any) -> None:
    """Write a value to stdout as a line of JSON, as `write` does, in UTF-8 whatever the encoding is. It is
    dropped if the reader has left."""
    from openresponses_bridge.protocol.codec import encode

    sys.stdout.flush()
    try:
        write(encode(value) + b"\n")
    except BrokenPipeError:
        drop_output()


def _for_stdout(data: bytes) -> bytes:
    if not sys.stdout.isatty():
        return data
    return shown_json(data.decode("utf-8", "backslashreplace")).encode()


def exit_unreadable(message: str) -> NoReturn:
    """Write the message to stderr, as one line, and exit with code 2."""
    click.echo(printable(message), err=True)
    sys.exit(UNREADABLE)
