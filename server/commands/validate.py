"""`validate`: what is wrong with a Responses stream."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from server.commands.files import CLEAN, VIOLATIONS, capture_argument, reading, write

if TYPE_CHECKING:
    from bridge.conformance import Violation, WireName


@click.command()
@capture_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of text.")
@click.option(
    "--wire",
    type=click.Choice(["auto", "openresponses", "openai"]),
    default="auto",
    show_default=True,
    help="The spelling to hold it to; auto: by the first event that only one has.",
)
def command(file: str, as_json: bool, wire: WireName) -> None:
    """Hold a Responses stream to the protocol.

    It takes server-sent events (also as `curl -i` writes them), JSON lines such as the messages of a
    WebSocket, and whole responses; several responses may follow one another. One violation per line: rule
    id, event index (counted within its response), message. Exit code 0: clean, 1: violations, 2: the capture
    can't be read; the message names the line.
    """
    from bridge.protocol.codec import encode
    from server.captures.judging import CaptureJudge
    from server.captures.reader import read_capture

    line: Callable[[Violation], bytes] = encode if as_json else lambda violation: str(violation).encode()
    judge = CaptureJudge(wire)
    count = 0

    def report(found: list[Violation]) -> None:
        nonlocal count
        count += len(found)
        write(b"".join(line(violation) + b"\n" for violation in found))

    with reading(file) as lines:
        for payload in read_capture(lines):
            report(judge.feed(payload))
        report(judge.close())
    sys.exit(VIOLATIONS if count else CLEAN)
