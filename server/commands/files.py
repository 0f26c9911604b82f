"""Files and pipes, as the commands use them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NoReturn, cast

import click

from server.captures.reader import Unreadable

CLEAN, VIOLATIONS, UNREADABLE = 0, 1, 2
"""Exit codes."""

capture_argument = click.argument(
    "file", type=click.Path(dir_okay=False, allow_dash=True), default="-", metavar="[FILE|-]"
)


@contextmanager
def reading(file: str) -> Iterator[BinaryIO]:
    """The capture's bytes. A capture that can't be read ends the command with exit code 2 and says where."""
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


def write(data: bytes) -> None:
    """Put it on stdout at once. A closed pipe ends the command quietly, as for any tool before `head`."""
    if data:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def printable(text: str) -> str:
    """The text as a terminal may have it: what a server sent could hold control sequences."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def give_up(message: str) -> NoReturn:
    """Exit code 2 with this message on stderr."""
    click.echo(message, err=True)
    sys.exit(UNREADABLE)


def _nobody_listens() -> NoReturn:
    # what is still buffered must have somewhere to go when the interpreter flushes at its end
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(CLEAN)
