"""server/man/: a page of the manual for each command, from the definitions of the command line, in the macros
of man(7). `python docs/drawn_manual.py`, as `make man`.

A page keeps its date until it says something else, so that drawing it again changes nothing.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from inspect import cleandoc
from pathlib import Path
from typing import Final

import click

from openresponses_cli.commands.cli import main

MANUAL: Final = Path(__file__).parent.parent / "server" / "man"
PROGRAM: Final = "openresponses-bridge"
_SECTION: Final = "1"  # of programs
_WIDTH: Final = 76  # of a line of source, which mandoc wants below 80
_CODE: Final = re.compile(r"`([^`\n]+)`")
_SIGNS: Final = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
_DATE: Final = re.compile(rf'^\.TH "[^"]*" {_SECTION} (\d{{4}}-\d\d-\d\d) ', re.MULTILINE)


def manual() -> dict[str, str]:
    """All pages by the names of their files, with the dates that they have, or that of today."""
    return {_file(context): _dated(context) for context in _contexts(main, None)}


def _contexts(command: click.Command, parent: click.Context | None) -> Iterator[click.Context]:
    """Yield the context of a command and of all below it that are shown."""
    context = click.Context(command, parent, command.name if parent else PROGRAM, **command.context_settings)
    yield context
    for each in _below(context):
        yield from _contexts(each, context)


def _below(context: click.Context) -> list[click.Command]:
    group = context.command
    if not isinstance(group, click.Group):
        return []
    subcommands = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if not command.hidden:
            command.name = name  # some modules call theirs `command`
            subcommands.append(command)
    return subcommands


def _title(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _file(context: click.Context) -> str:
    return f"{_title(context)}.{_SECTION}"


def _dated(context: click.Context) -> str:
    path = MANUAL / _file(context)
    there = path.read_text("ascii") if path.is_file() else ""
    dates = [*_DATE.findall(there)[:1], datetime.now(UTC).strftime("%Y-%m-%d")]
    drawn = [_page(context, date) for date in dates]
    return drawn[0] if drawn[0] == there else drawn[-1]


def _page(context: click.Context, date: str) -> str:
    command = context.command
    help_text = cleandoc(command.help or "").partition("\f")[0]
    first = " ".join(help_text.partition("\n\n")[0].split())
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH "{_escaped(_title(context).upper())}" {_SECTION} {date} "{_escaped(PROGRAM)}" "User Commands"',
        ".SH NAME",
        *_filled(f"{_title(context)} - {_sentence(first)}", dash=True),
        ".SH SYNOPSIS",
        f".B {_escaped(context.command_path)}",
        *_filled(usage),
        ".SH DESCRIPTION",
        *_paragraphs(help_text),
    ]
    options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    records = [each.get_help_record(context) for each in options]
    lines += [".SH OPTIONS", *_list([each for each in records if each is not None])]
    if below := _below(context):
        summaries = [(each.name or "", _sentence(each.get_short_help_str(10**4))) for each in below]
        lines += [".SH COMMANDS", *_list(summaries)]
    lines += [".SH SEE ALSO", *_others(context)]
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    """The first sentence, without its end."""
    return re.split(r"[.:;](?:\s|$)", text, maxsplit=1)[0].replace("`", "")


def _list(entries: list[tuple[str, str]]) -> Iterator[str]:
    for name, what in entries:
        yield ".TP"
        flags, _, rest = name.partition(" ") if " " in name and ", " not in name else (name, "", "")
        yield rf"\fB{_escaped(flags)}\fR {_escaped(rest)}".rstrip()
        yield from _filled(what) if what else [r"\&"]


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text)):
        if number:
            yield ".PP"
        if paragraph.startswith("\b\n"):  # click's mark for lines that stay as they are
            yield from (".nf", *map(_line, paragraph.split("\n")[1:]), ".fi")
        else:
            yield from _filled(paragraph)


def _others(context: click.Context) -> Iterator[str]:
    """Yield the names of the pages above and below."""
    above = [context.parent] if context.parent is not None else []
    below = [f"{_title(context)}-{each.name}" for each in _below(context)]
    pages = [*map(_title, above), *below]
    for number, page in enumerate(pages, 1):
        yield f".BR {_escaped(page)} ({_SECTION}){',' if number < len(pages) else ''}"


def _filled(text: str, *, dash: bool = False) -> list[str]:
    r"""Return the lines of a paragraph. Words between backquotes are bold. `dash`: the first ` - ` is the one
    between a name and what it is."""
    marked = _CODE.sub("\x01\\1\x02", " ".join(text.split()))
    escaped = _escaped(marked).replace("\x01", r"\fB").replace("\x02", r"\fR")
    assert not dash or r" \- " in escaped
    return [
        _line(each, escaped=True)
        for each in textwrap.wrap(escaped, _WIDTH, break_long_words=False, break_on_hyphens=False)
    ]


def _line(text: str, *, escaped: bool = False) -> str:
    """A line of text, which no sign at its beginning makes a request."""
    shown = text if escaped else _escaped(text)
    return rf"\&{shown}" if shown.startswith((".", "'")) else shown


def _escaped(text: str) -> str:
    """The text as it is, whatever it has: a hyphen is the one that is typed, and all else is ASCII."""
    return "".join(_SIGNS.get(sign) or (sign if sign.isascii() else rf"\[u{ord(sign):04X}]") for sign in text)


if __name__ == "__main__":
    MANUAL.mkdir(exist_ok=True)
    drawn = manual()
    for name in sorted({path.name for path in MANUAL.iterdir()} - drawn.keys()):
        (MANUAL / name).unlink()
    for name, page in drawn.items():
        (MANUAL / name).write_text(page, "ascii")
    sys.stdout.write(f"{len(drawn)} pages in {MANUAL.relative_to(MANUAL.parent.parent)}\n")
