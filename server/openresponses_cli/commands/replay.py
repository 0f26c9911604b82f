"""`replay`: translates a capture or a recording."""

from __future__ import annotations

import click

from openresponses_cli.commands.flags import SOURCES, SPEED, TARGETS, capture_argument


@click.command()
@capture_argument
@click.option("--from", "source_name", type=click.Choice(SOURCES), default=SOURCES[0], show_default=True)
@click.option("--to", "target_name", type=click.Choice(TARGETS), default=TARGETS[0], show_default=True)
@click.option(
    "--speed", type=SPEED, help="Play a recording at its own speed (real), N times as fast, or at once (max)."
)
@click.option("--exchange", type=int, metavar="N", help="Translate only this exchange of a recording.")
@click.option(
    "--text-after-tools/--no-text-after-tools",
    "text_after_tools",
    default=None,
    help="Keep text that comes after a tool call in Chat Completions (default: unless it comes from Codex).",
)
def command(
    file: str,
    source_name: str,
    target_name: str,
    speed: float | str | None,
    exchange: int | None,
    text_after_tools: bool | None,
) -> None:
    """Translate a capture (server-sent events or JSON lines), or the answers in a recording.

    Repairs and losses are reported on stderr, and so are answers in a recording that were refused or broke
    off. Exit code 2: the capture can't be read; the message names the line.
    """
    from openresponses_cli.commands.replaying import replayed

    replayed(file, source_name, target_name, speed, exchange, text_after_tools)
