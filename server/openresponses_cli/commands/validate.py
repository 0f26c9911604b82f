"""`validate`: checks Responses streams against the protocol."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from openresponses_cli.commands.flags import exit_unreadable, write, write_json

if TYPE_CHECKING:
    from openresponses_bridge.conformance import WireName


@click.command()
@click.argument("files", type=click.Path(dir_okay=False, allow_dash=True), nargs=-1, metavar="[FILE|-]...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of text.")
@click.option("--by-rule", is_flag=True, help="Print one line per broken rule: how often, and where first.")
@click.option(
    "--junit", metavar="FILE", type=click.Path(dir_okay=False), help="Also write a JUnit report to this file."
)
@click.option(
    "--sarif", metavar="FILE", type=click.Path(dir_okay=False), help="Also write a SARIF report to this file."
)
@click.option(
    "--wire",
    type=click.Choice(["auto", "openresponses", "openai"]),
    default="auto",
    show_default=True,
    help="The spelling that a stream must have; auto: that of the first event that only one of them has.",
)
@click.option("--explain", metavar="RULE", help="Show what a rule requires, its source, and an example.")
def command(
    files: tuple[str, ...],
    as_json: bool,
    by_rule: bool,
    junit: str | None,
    sarif: str | None,
    wire: WireName,
    explain: str | None,
) -> None:
    """Check Responses streams against the protocol.

    FILE has server-sent events, JSON lines such as the messages of a WebSocket, or whole responses, of one
    response or several. It may be compressed with gzip, and it may be a recording (`record`), a browser's HAR
    file, the output of `curl -i` or `curl -v`, or rows copied from a browser's developer tools.

    Each violation is a line: rule id, event index (counted within its response), message; before it the file,
    where there are several. Exit code 0: clean, 1: violations, 2: a file can't be read; the message names the
    line.
    """
    if explain is not None:
        _explain(explain, as_json)
        return

    from openresponses_cli.commands.validating import validate

    files = files or ("-",)
    sys.exit(validate(files, wire, as_json=as_json, by_rule=by_rule, junit=junit, sarif=sarif))


def _explain(name: str, as_json: bool) -> None:
    from difflib import get_close_matches

    from openresponses_bridge.conformance import RULES
    from openresponses_bridge.conformance.examples import explanation

    if name not in RULES:
        near = get_close_matches(name, RULES, 3, 0.4)
        exit_unreadable(
            f"there is no rule {name!r}; " + (f"similar: {', '.join(near)}" if near else "see docs/rules.md")
        )
    shown = explanation(name)
    if as_json:
        write_json(shown)
        return
    lines = [
        shown.rule,
        shown.asks,
        "",
        f"clause:  {shown.clause}",
        f"example: {shown.example}",
        *shown.violations,
    ]
    write("".join(f"{line}\n" for line in lines).encode())
