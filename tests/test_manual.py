"""The pages of the manual in server/man: one for each command, as the command line is defined, read by those
who show them without a warning, and in what is published as source."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from openresponses_cli.commands.cli import main
from tests.support.drawings import drawing
from tests.support.shared import REPOSITORY

MANUAL = REPOSITORY / "server" / "man"
PROGRAM = "openresponses-bridge"


@pytest.fixture(scope="module")
def module() -> dict[str, Any]:
    return drawing("drawn_manual.py")


def commands(group: click.Group, path: str = PROGRAM) -> Iterator[tuple[str, click.Command]]:
    """The program and each command of it with its path, in the order of `--help`."""
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


COMMANDS = dict(commands(main))


def test_the_pages_are_those_of_the_command_line(module: dict[str, Any]) -> None:
    drawn = module["manual"]()
    assert {path.name for path in MANUAL.iterdir()} == drawn.keys(), "run `make man`"
    for name, page in drawn.items():
        assert (MANUAL / name).read_text("ascii") == page, f"{name}: run `make man`"


def test_each_command_has_one_and_names_all_that_it_takes() -> None:
    shown = {path: command for path, command in COMMANDS.items() if not command.hidden}
    assert {path.name for path in MANUAL.iterdir()} == {f"{path.replace(' ', '-')}.1" for path in shown}
    for path, command in shown.items():
        page = page_of(path)
        options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        for option in options:
            for flag in (*option.opts, *option.secondary_opts):
                assert flag.replace("-", r"\-") in page, (path, flag)
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                other = f"{path}-{name}".replace(" ", "-").replace("-", r"\-")
                assert f".BR {other} (1)" in page


def page_of(path: str) -> str:
    return (MANUAL / f"{path.replace(' ', '-')}.1").read_text("ascii")


def test_a_page_keeps_its_date_until_it_says_something_else(
    module: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manual: Callable[[], dict[str, str]] = module["manual"]
    monkeypatch.setitem(manual.__globals__, "MANUAL", tmp_path)
    dated = re.compile(r"\d{4}-\d\d-\d\d")
    for name, page in manual().items():
        changed = ".SH NAME\nother" if "keys" in name else ".SH NAME"
        (tmp_path / name).write_text(dated.sub("2001-02-03", page).replace(".SH NAME", changed), "ascii")
    for name, page in manual().items():
        match = dated.search(page)
        assert match is not None
        assert (match[0] == "2001-02-03") is ("keys" not in name), name


HOSTILE = (
    ".TH is no request, nor is\n'this, \\fBthis\\n or \\(aq; --flag, -x, ~/a^b `\\e` “…” 🙂\n\n"
    ".so /etc/passwd\n\n"
    "\b\n.nf  as it\n  stands --here\n\nWords of the end"
)


def hostile() -> click.Command:
    option = click.Option(["--odd"], help=".de x\n'br \\n[.x] `--odd`", metavar=".METAVAR|'X")
    return click.Command("hostile", params=[option], help=HOSTILE)


def test_no_text_is_taken_for_a_request(module: dict[str, Any]) -> None:
    """What begins a line is a request of ours, and what a text says is said."""
    page = module["_page"](click.Context(hostile(), info_name="hostile"), "2001-02-03")
    ours = {".TH", ".SH", ".B", ".PP", ".TP", ".nf", ".fi"}
    assert {line.split(" ")[0] for line in page.splitlines() if line.startswith((".", "'"))} <= ours
    assert page.isascii()


@pytest.mark.parametrize("reader", ["mandoc", "man"])
def test_who_shows_them_has_no_warning(module: dict[str, Any], reader: str, tmp_path: Path) -> None:
    if shutil.which(reader) is None:
        pytest.skip(f"{reader} is not installed: apt-get install {'man-db' if reader == 'man' else reader}")
    page = tmp_path / "hostile.1"
    page.write_text(module["_page"](click.Context(hostile(), info_name="hostile"), "2001-02-03"), "ascii")
    pages = [*sorted(MANUAL.iterdir()), page]
    if reader == "mandoc":
        assert read("mandoc", "-Tlint", "-Wwarning", *map(str, pages)) == ""
        shown = read("mandoc", "-Tutf8", "-Owidth=200", str(page))
    else:
        for each in pages:
            read("man", "--warnings=w", "--local-file", str(each))
        shown = read("man", "--local-file", str(page))
    shown = " ".join(re.sub(".\x08", "", shown).split())
    assert ".TH is no request, nor is 'this, \\fBthis\\n or \\(aq; --flag, -x, ~/a^b \\e “…” 🙂" in shown
    assert ".so /etc/passwd" in shown
    assert ".nf as it stands --here" in shown
    assert ".de x 'br \\n[.x] --odd" in shown


def read(*command: str) -> str:
    """What a program prints, which must warn of nothing."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "200"}
    done = subprocess.run(command, env=env, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr.decode()) == (0, ""), (command, done.stdout.decode())
    return done.stdout.decode()


def test_they_are_in_the_source_package() -> None:
    """Of the distribution that has the program; `make packages` builds it."""
    projects = [REPOSITORY / "pyproject.toml", *REPOSITORY.glob("*/pyproject.toml")]
    (root,) = [path.parent for path in projects if has_program(path)]
    manifest = (root / "MANIFEST.in").read_text().splitlines()
    assert f"recursive-include {MANUAL.relative_to(root)} *.1" in manifest


def has_program(project: Path) -> bool:
    return PROGRAM in tomllib.loads(project.read_text()).get("project", {}).get("scripts", {})
