"""`conform`: checks a running server against the protocol."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from openresponses_bridge.text import printable
from openresponses_server.commands.flags import CLEAN, VIOLATIONS, exit_unreadable, server_key_flag
from openresponses_server.commands.progress import progress

if TYPE_CHECKING:
    from openresponses_bridge.conformance.published import WireName
    from openresponses_bridge.conformance.scenario import Level
    from openresponses_server.commands.playing import ScenarioResult

_SIGNS: Final = {"passed": ("✓", "green"), "failed": ("✗", "red"), "skipped": ("○", "yellow")}


@click.command()
@click.argument("url")
@click.option("--model", help="The model to ask (default: the first that the server lists).")
@server_key_flag
@click.option("--json", "as_json", is_flag=True, help="One JSON object per scenario instead of text.")
@click.option("--junit", metavar="FILE", type=click.Path(dir_okay=False), help="Write a JUnit report too.")
@click.option(
    "--level",
    type=click.Choice(["core", "full"]),
    default="full",
    show_default=True,
    help="core: answers, streams, tools, errors. full: also what is stored, resumed, compacted; WebSockets.",
)
@click.option("--only", metavar="AREA", multiple=True, help="Only these areas or scenario ids (repeatable).")
@click.option("--skip", metavar="ID", multiple=True, help="Not these areas or scenario ids (repeatable).")
@click.option(
    "--wire",
    type=click.Choice(["openresponses", "openai", "any"]),
    default="openresponses",
    show_default=True,
    help="The spelling of the protocol that answers must have.",
)
@click.option("--timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, metavar="SECONDS")
def command(
    url: str,
    model: str | None,
    api_key_env: str | None,
    as_json: bool,
    junit: str | None,
    level: Level,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    wire: WireName,
    timeout: float,
) -> None:
    """Play the conformance scenarios against the server at URL (`http://host:port`, with or without /v1).

    Scenarios about features that the server does not offer are skipped; responses that they had it store are
    deleted. Failures are listed by cause at the end. Exit code 0: nothing failed, 1: something did, 2: the
    server can't be reached.
    """
    import asyncio

    from openresponses_bridge.conformance.scenarios import chosen
    from openresponses_server.commands.playing import Unreachable, api_base, junit_report, play_all

    key = _key(api_key_env)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        base = api_base(url)
        scenarios = chosen(level, only, skip)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    show = _show_json if as_json else _TextReport().show
    try:
        with progress("scenarios", len(scenarios)) as advance:

            def shown(verdict: ScenarioResult) -> None:
                show(verdict)
                advance(1)

            verdicts, left = asyncio.run(play_all(scenarios, base, headers, model, wire, timeout, shown))
    except Unreachable as error:
        exit_unreadable(str(error))
    if junit is not None:
        _write(junit, junit_report(base, verdicts))
    if not as_json:
        _sum_up(verdicts)
    if left:
        click.echo(f"not deleted on the server: {printable(', '.join(left))}", err=True)
    sys.exit(VIOLATIONS if any(verdict.outcome == "failed" for verdict in verdicts) else CLEAN)


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not (key := os.environ.get(variable)):
        raise click.UsageError(f"the environment variable {variable} is not set")
    return key


def _write(path: str, report: bytes) -> None:
    try:
        Path(path).write_bytes(report)
    except OSError as error:
        exit_unreadable(f"{path}: {error.strerror or error}")


class _TextReport:
    """Prints scenarios as lines of text. A fault that several have in common is described once."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}

    def show(self, verdict: ScenarioResult) -> None:
        sign, colour = _SIGNS[verdict.outcome]
        click.echo(f"{click.style(sign, fg=colour)} {verdict.id:38} {verdict.description}")
        known = [self._first.setdefault(cause, verdict.id) for cause in verdict.causes]
        if known and verdict.id not in known:
            click.echo(f"    as in {', '.join(dict.fromkeys(known))} [{verdict.source}]")
        elif verdict.message:
            click.echo(f"    {printable(verdict.message)} [{verdict.source}]")


def _show_json(verdict: ScenarioResult) -> None:
    from openresponses_bridge.protocol.codec import encode

    click.echo(encode(verdict).decode())


def _sum_up(verdicts: list[ScenarioResult]) -> None:
    from openresponses_server.commands.playing import failures_by_cause

    counts = {outcome: sum(each.outcome == outcome for each in verdicts) for outcome in _SIGNS}
    click.echo(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    if failures := failures_by_cause(verdicts):
        click.echo(f"\nFailures by cause:\n{failures}")
