"""`conform`: checks a running server against the protocol."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Final

import click

from openresponses_bridge.text import printable
from openresponses_cli.commands.flags import (
    CLEAN,
    VIOLATIONS,
    exit_unreadable,
    server_key_flag,
    write_json,
    write_report,
)
from openresponses_cli.commands.progress import progress

if TYPE_CHECKING:
    from openresponses_bridge.conformance.published import WireName
    from openresponses_bridge.conformance.scenario import Level
    from openresponses_cli.commands.playing import ScenarioResult

_PACKAGE: Final = "openresponses-bridge"
_SIGNS: Final = {"passed": ("✓", "green"), "failed": ("✗", "red"), "skipped": ("○", "yellow")}


@click.command()
@click.argument("url")
@click.option("--model", help="The model to ask (default: the first that the server lists).")
@server_key_flag
@click.option("--json", "as_json", is_flag=True, help="One JSON object per scenario instead of text.")
@click.option(
    "--junit", metavar="FILE", type=click.Path(dir_okay=False), help="Also write a JUnit report to this file."
)
@click.option(
    "--badge",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Also write a badge to this file, as JSON for shields.io.",
)
@click.option(
    "--level",
    type=click.Choice(["core", "full"]),
    default="full",
    show_default=True,
    help="core: answers, streams, tools, errors. full: also what is stored, resumed, compacted; WebSockets.",
)
@click.option("--only", metavar="AREA", multiple=True, help="Play only this area or scenario (repeatable).")
@click.option("--skip", metavar="ID", multiple=True, help="Skip this area or scenario (repeatable).")
@click.option(
    "--wire",
    type=click.Choice(["openresponses", "openai", "any"]),
    default="openresponses",
    show_default=True,
    help="The spelling of the protocol that answers must have.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for an answer.",
)
def command(
    url: str,
    model: str | None,
    api_key_env: str | None,
    as_json: bool,
    junit: str | None,
    badge: str | None,
    level: Level,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    wire: WireName,
    timeout: float,
) -> None:
    """Play the conformance scenarios against the server at URL (`http://host:port`, with or without /v1).

    Scenarios for features that the server does not offer are skipped, and the responses that it stored for
    them are deleted. Failures are listed by cause at the end. Exit code 0: nothing failed, 1: something did,
    2: the server can't be reached.
    """
    import asyncio

    from openresponses_bridge.conformance.scenarios import chosen
    from openresponses_cli.commands.playing import Unreachable, api_base, junit_cases, play_all
    from openresponses_cli.commands.reports import junit_report

    key = _key(api_key_env)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        base = api_base(url)
        scenarios = chosen(level, only, skip)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    show = _show_json if as_json else _TextReport().show
    if not as_json:
        click.echo(f"asking {printable(base)}", err=True)
    try:
        with progress("scenarios", len(scenarios)) as advance:

            def shown(verdict: ScenarioResult) -> None:
                show(verdict)
                advance(1)

            verdicts, left = asyncio.run(play_all(scenarios, base, headers, model, wire, timeout, shown))
    except Unreachable as error:
        exit_unreadable(str(error))
    if junit is not None:
        write_report(junit, junit_report(base, junit_cases(verdicts), {"version": _version()}))
    if badge is not None:
        write_report(badge, _badge(verdicts, level))
    if not as_json:
        _sum_up(verdicts)
    if left:
        click.echo(f"not deleted on the server: {printable(', '.join(left))}", err=True)
    sys.exit(VIOLATIONS if any(verdict.outcome == "failed" for verdict in verdicts) else CLEAN)


def _show_json(verdict: ScenarioResult) -> None:
    """Print a verdict, with the version of the scenarios."""
    from msgspec import to_builtins

    write_json({**to_builtins(verdict), "version": _version()})


def _badge(verdicts: list[ScenarioResult], level: Level) -> bytes:
    """Return an endpoint badge of shields.io: how many scenarios passed, of those for features that the
    server offers."""
    passed, failed = (sum(each.outcome == outcome for each in verdicts) for outcome in ("passed", "failed"))
    shown = {
        "schemaVersion": 1,
        "label": f"OpenResponses {level}",
        "message": f"{passed} of {passed + failed} ({_version()})",
        "color": "red" if failed else "brightgreen" if passed else "lightgrey",
    }
    return json.dumps(shown).encode() + b"\n"


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not (key := os.environ.get(variable)):
        raise click.UsageError(f"the environment variable {variable} is not set")
    return key


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


def _sum_up(verdicts: list[ScenarioResult]) -> None:
    from openresponses_cli.commands.playing import failures_by_cause

    counts = {outcome: sum(each.outcome == outcome for each in verdicts) for outcome in _SIGNS}
    click.echo(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    if failures := failures_by_cause(verdicts):
        click.echo(f"\nFailures by cause:\n{failures}")


def _version() -> str:
    # loading it takes longer than all else that `--help` needs
    from importlib import metadata

    return metadata.version(_PACKAGE)
