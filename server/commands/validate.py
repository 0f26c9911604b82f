"""`validate`: what is wrong with a Responses stream."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from server.commands.files import CLEAN, VIOLATIONS, capture_argument, reading, write


@click.command()
@capture_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of text.")
def command(file: str, as_json: bool) -> None:
    """Hold a Responses stream (server-sent events or JSON lines) to the protocol.

    One violation per line: rule id, event index, message. Exit code 0: clean, 1: violations, 2: the
    capture can't be read; the message names the line.
    """
    from bridge.conformance import StreamValidator, Violation
    from bridge.protocol.codec import encode
    from bridge.sse import Frame
    from server.captures.reader import read_capture

    tell: Callable[[Violation], bytes] = encode if as_json else lambda violation: str(violation).encode()
    validator = StreamValidator()
    with reading(file) as lines:
        for payload in read_capture(lines):
            if payload.event is not None:
                found = validator.feed_frame(Frame(payload.event, payload.data))
            else:
                found = [] if payload.value is None else validator.feed(payload.data)
            write(b"".join(tell(violation) + b"\n" for violation in found))
        write(b"".join(tell(violation) + b"\n" for violation in validator.close()))
    sys.exit(VIOLATIONS if validator.violations else CLEAN)
