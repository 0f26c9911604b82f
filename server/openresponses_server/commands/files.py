"""Files and pipes, as the commands use them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

import click

from openresponses_bridge.text import printable

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
        give_up(printable(f"{name}: {error}"))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            _nobody_listens()
        give_up(f"{name}: {error.strerror or error}")


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


def give_up(message: str) -> NoReturn:
    """Exit code 2 with this message on stderr."""
    click.echo(message, err=True)
    sys.exit(UNREADABLE)


def _nobody_listens() -> NoReturn:
    # what is still buffered must have somewhere to go when the interpreter flushes at its end
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(CLEAN)
