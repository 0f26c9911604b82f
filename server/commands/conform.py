"""`conform`: whether a live server keeps the protocol."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from server.commands.files import CLEAN, VIOLATIONS, give_up

if TYPE_CHECKING:
    from bridge.conformance.published import WireName
    from server.commands.playing import Verdict

_SIGNS: Final = {"passed": ("✓", "green"), "failed": ("✗", "red"), "skipped": ("○", "yellow")}


@click.command()
@click.argument("url")
@click.option("--model", help="The model to ask (without: the first that the server lists).")
@click.option("--api-key-env", metavar="VAR", help="Environment variable that holds the server's key.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per scenario instead of text.")
@click.option("--only", metavar="AREA", multiple=True, help="Only these areas or scenario ids (repeatable).")
@click.option(
    "--wire",
    type=click.Choice(["openresponses", "openai", "any"]),
    default="openresponses",
    show_default=True,
    help="Whose spelling of the protocol answers are held to.",
)
@click.option("--timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, metavar="SECONDS")
def command(
    url: str,
    model: str | None,
    api_key_env: str | None,
    as_json: bool,
    only: tuple[str, ...],
    wire: WireName,
    timeout: float,
) -> None:
    """Play the conformance scenarios against the server at URL (`http://host:port`, with or without /v1).

    Scenarios about features that the server does not offer are skipped. Exit code 0: nothing failed,
    1: something did, 2: the server can't be reached.
    """
    from server.commands.playing import Unreachable

    key = _key(api_key_env)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    tell = _tell_json if as_json else _tell
    try:
        verdicts = asyncio.run(_play(_base(url), headers, model, wire, only, timeout, tell))
    except Unreachable as error:
        give_up(str(error))
    if not as_json:
        _sum_up(verdicts)
    sys.exit(VIOLATIONS if any(verdict.outcome == "failed" for verdict in verdicts) else CLEAN)


async def _play(
    base: str,
    headers: dict[str, str],
    model: str | None,
    wire: WireName,
    only: tuple[str, ...],
    timeout: float,
    tell: Callable[[Verdict], None],
) -> list[Verdict]:
    from bridge.conformance.scenario import Target
    from bridge.conformance.scenarios import SCENARIOS
    from server.commands.playing import Player

    chosen = [each for each in SCENARIOS.values() if not only or each.area in only or each.id in only]
    if not chosen:
        areas = dict.fromkeys(each.area for each in SCENARIOS.values())
        raise click.UsageError(f"no scenario is called {', '.join(only)}; areas: {', '.join(areas)}")
    verdicts = []
    async with Player(base, headers, timeout) as player:
        if model is None:
            model = await player.first_model()
        else:
            await player.check_reach()
        target = Target(model, wire)
        for scenario in chosen:
            verdicts.append(await player.play(scenario, target))
            tell(verdicts[-1])
    return verdicts


def _base(url: str) -> str:
    """Where the API begins: `/v1` is put behind an address that has no path."""
    from urllib.parse import urlsplit

    address = urlsplit(url if "://" in url else f"http://{url}")
    if address.scheme not in ("http", "https") or not address.hostname:
        raise click.UsageError(f"URL is no http address: {url}")
    return f"{address.scheme}://{address.netloc}{address.path.rstrip('/') or '/v1'}"


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not (key := os.environ.get(variable)):
        raise click.UsageError(f"the environment variable {variable} is not set")
    return key


def _tell(verdict: Verdict) -> None:
    sign, colour = _SIGNS[verdict.outcome]
    click.echo(f"{click.style(sign, fg=colour)} {verdict.id:38} {verdict.description}")
    if verdict.message:
        click.echo(f"    {verdict.message} [{verdict.source}]")


def _tell_json(verdict: Verdict) -> None:
    from bridge.protocol.codec import encode

    click.echo(encode(verdict).decode())


def _sum_up(verdicts: list[Verdict]) -> None:
    counts = {outcome: sum(each.outcome == outcome for each in verdicts) for outcome in _SIGNS}
    click.echo(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
