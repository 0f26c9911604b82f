"""`validate`: checks a Responses stream against the protocol."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from openresponses_server.commands.flags import (
    CLEAN,
    VIOLATIONS,
    capture_argument,
    exit_unreadable,
    input_file,
    write,
)

if TYPE_CHECKING:
    from openresponses_bridge.conformance import Violation, WireName


@click.command()
@capture_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of text.")
@click.option(
    "--wire",
    type=click.Choice(["auto", "openresponses", "openai"]),
    default="auto",
    show_default=True,
    help="Which spelling it has to be in; auto: that of the first event that only one of them has.",
)
@click.option("--explain", metavar="RULE", help="Show what a rule asks, where that is said, and an example.")
def command(file: str, as_json: bool, wire: WireName, explain: str | None) -> None:
    """Check a Responses stream against the protocol.

    It takes server-sent events (also as `curl -i` writes them), JSON lines such as the messages of a
    WebSocket, and whole responses; several responses may follow one another. One violation per line: rule
    id, event index (counted within its response), message. Exit code 0: clean, 1: violations, 2: the capture
    can't be read; the message names the line.
    """
    if explain is not None:
        _explain(explain, as_json)
        return

    from openresponses_bridge.dialects import responses
    from openresponses_bridge.protocol.codec import encode
    from openresponses_server.observation.recordings.judging import CaptureJudge
    from openresponses_server.observation.recordings.playing import CaptureReader

    line: Callable[[Violation], bytes] = encode if as_json else lambda violation: str(violation).encode()
    judge = CaptureJudge(wire)
    count = 0

    def report(found: list[Violation]) -> None:
        nonlocal count
        count += len(found)
        write(b"".join(line(violation) + b"\n" for violation in found))

    with input_file(file) as lines:
        for step in CaptureReader(responses.DIALECT.name, wire, as_sent=True).read(lines):
            report(judge.feed(step))
    sys.exit(VIOLATIONS if count else CLEAN)


def _explain(name: str, as_json: bool) -> None:
    from difflib import get_close_matches

    from openresponses_bridge.conformance import RULES
    from openresponses_bridge.conformance.examples import explanation
    from openresponses_bridge.protocol.codec import encode

    if name not in RULES:
        near = get_close_matches(name, RULES, 3, 0.4)
        exit_unreadable(
            f"there is no rule {name!r}; "
            + (f"near to it: {', '.join(near)}" if near else "see docs/rules.md")
        )
    shown = explanation(name)
    if as_json:
        write(encode(shown) + b"\n")
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
