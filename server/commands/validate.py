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

    One violation per line: rule id, event index (counted within its response), message. A capture may
    hold several responses, one after the other. Exit code 0: clean, 1: violations, 2: the capture can't
    be read; the message names the line.
    """
    from bridge.conformance import StreamValidator, Violation
    from bridge.protocol.codec import encode
    from bridge.sse import Frame
    from server.captures.reader import begins_response, ends_response, read_capture

    shown: Callable[[Violation], bytes] = encode if as_json else lambda violation: str(violation).encode()
    count = 0

    def report(found: list[Violation]) -> None:
        nonlocal count
        count += len(found)
        write(b"".join(shown(violation) + b"\n" for violation in found))

    validator, ended = StreamValidator(), False
    with reading(file) as lines:
        for payload in read_capture(lines):
            if ended and begins_response(payload):
                report(validator.close())
                validator = StreamValidator()
            ended = (ended and not begins_response(payload)) or ends_response(payload)
            if payload.event is not None:
                report(validator.feed_frame(Frame(payload.event, payload.data)))
            elif payload.value is not None:
                report(validator.feed(payload.data))
        report(validator.close())
    sys.exit(VIOLATIONS if count else CLEAN)
