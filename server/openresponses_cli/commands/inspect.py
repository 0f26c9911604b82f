"""`inspect`: shows a stream as a tree of its items, live or complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from openresponses_bridge.text import printable
from openresponses_cli.commands.flags import (
    CLEAN,
    SOURCES,
    SPEED,
    STDIN,
    UNREADABLE,
    VIOLATIONS,
    exit_unreadable,
    input_file,
    server_key_flag,
    write_json,
)
from openresponses_cli.commands.terminal import console_options

if TYPE_CHECKING:
    from openresponses_cli.commands.inspecting import Inspection, LiveView
    from openresponses_server.observation.recordings.captures import Payload

_INTERRUPTED: Final = 130


@click.command()
@click.argument("what", metavar="[FILE|URL|ID|-]", default="-")
@click.option("--from", "source_name", type=click.Choice(SOURCES), default=SOURCES[0], show_default=True)
@click.option(
    "--speed", type=SPEED, help="Play a recording at its own speed (real), N times as fast, or at once (max)."
)
@click.option("--ask", metavar="TEXT", help="Send this prompt to the server at URL, and watch its answer.")
@click.option(
    "--request",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE|-",
    help="Send the server at URL this request, and watch its answer.",
)
@click.option("--model", help="The model to ask (default: the first that the server lists).")
@click.option(
    "--server", metavar="URL", help="The server that stores the response ID [default: the local one]."
)
@server_key_flag
@click.option("--full", is_flag=True, help="Show texts in full.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per response, without its texts.")
def command(what: str, full: bool, as_json: bool, **flags: Any) -> None:
    """Show a stream as a tree of its items: texts as they grow, tool calls, violations, rates, usage.

    FILE is a capture in any dialect, or a recording (`record`). URL is a server, with --ask or --request, or
    a stored response (…/v1/responses/ID), which may still be in progress. ID is a stored response of
    --server. Exit code 0: no violations, 1: violations, 2: the stream can't be read, or the server can't be
    reached.
    """
    from rich.console import Console

    from openresponses_cli.commands.tree import FINAL, WHOLE, tree

    console = Console(**console_options())
    inspections, end = _inspect(what, console, as_json, flags)
    for watched in (each for inspection in inspections for each in inspection.watched):
        if as_json:
            write_json(watched.as_json())
        else:
            console.print(tree(watched, WHOLE if full else FINAL))
    if isinstance(end, str):
        exit_unreadable(end)
    has_violations = any(each.violations for inspection in inspections for each in inspection.watched)
    sys.exit(end or (VIOLATIONS if has_violations else CLEAN))


def _inspect(
    what: str, console: Any, quiet: bool, flags: dict[str, Any]
) -> tuple[list[Inspection], int | str]:
    """Inspect the source. Returns the inspections, and the exit code or the error that ended it early."""
    import asyncio

    from openresponses_cli.commands.inspecting import Inspection, LiveView
    from openresponses_cli.commands.tree import tree

    inspections: list[Inspection] = []

    def begin(now: Callable[[], float] | None) -> Inspection:
        inspections.append(Inspection(flags["source_name"], now))
        return inspections[-1]

    def latest(space: Any) -> Any:
        watched = [each for inspection in inspections for each in inspection.watched]
        return tree(watched[-1], space) if watched else "waiting…"

    remote = _asked(what, **flags)
    with LiveView(console, latest) as live:
        try:
            if remote is None:
                return inspections, _read(what, flags["speed"], begin, live)
            return inspections, asyncio.run(_fetch(*remote, flags, begin, live))
        except KeyboardInterrupt:
            return inspections, _INTERRUPTED


def _asked(
    what: str, ask: str | None, request: str | None, server: str | None, **_others: Any
) -> tuple[str | None, str | None] | None:
    """Return the server's address (None for the default one) and the id of a response (None for a new
    request); None for a file. Raises UsageError."""
    sends = ask is not None or request is not None
    if ask is not None and request is not None:
        raise click.UsageError("--ask and --request can't be combined")
    if "://" in what:
        from openresponses_server.client import is_plain_id

        address, separator, response_id = what.rstrip("/").rpartition("/responses/")
        if separator and is_plain_id(response_id) and not sends:
            return address, response_id
        if not sends:
            raise click.UsageError("use --ask or --request, or name a response as URL/v1/responses/ID")
        return what, None
    if sends:
        raise click.UsageError("--ask and --request need the URL of a server")
    if what.startswith("resp") and not os.path.exists(what):
        from openresponses_server.client import is_plain_id

        return (server, what) if is_plain_id(what) else None
    return None


def _read(file: str, speed: float | str | None, begin: Any, live: LiveView) -> int | str:
    """Inspect a file to its end; every answer of a recording, at its recorded times."""
    from openresponses_server.observation.recordings.captures import UnreadableCapture
    from openresponses_server.observation.recordings.playing import open_capture
    from openresponses_server.observation.recordings.reader import Changed, Clock, speed_of

    clock = Clock(speed_of(speed or "max"))
    code = CLEAN
    with input_file(file) as opened:
        played = open_capture(opened)
        if not played.is_recording and speed is not None:
            return "--speed is for recordings: a capture has no times"
        for answer in filter(None, played.answers(clock, choose=list)):
            inspection = begin((lambda: clock.at) if played.is_recording else None)
            try:
                _feed(inspection, answer.lines, live)
            except UnreadableCapture as error:
                if answer.exchange is None:  # earlier answers are shown nevertheless
                    return printable(f"{'stdin' if file == '-' else file}: {error}")
                click.echo(printable(f"exchange {answer.exchange.asked.exchange}: {error}"), err=True)
                code = UNREADABLE
            except Changed:
                return "the file changed while it was being read"
    return code


def _feed(inspection: Inspection, lines: Iterable[bytes], live: LiveView) -> None:
    from openresponses_server.observation.recordings.captures import UnreadableCapture, read_capture

    try:
        for payload in read_capture(lines):
            inspection.feed(payload)
            live.tick()
    except UnreadableCapture:
        inspection.close()
        raise
    inspection.close()


async def _fetch(
    address: str | None, response_id: str | None, flags: dict[str, Any], begin: Any, live: LiveView
) -> int | str:
    """Inspect a server's answer to its end."""
    import time

    from openresponses_cli.commands.server_client import MissingKey, ServerClient, key_from
    from openresponses_server.client import OpenResponsesError
    from openresponses_server.observation.recordings.captures import UnreadableCapture

    inspection = begin(time.monotonic)
    try:
        async with ServerClient(address, key_from(flags["api_key_env"])) as server:
            body = None if response_id else await _body(server, flags)
            path = f"/responses/{response_id}" if response_id else "/responses"
            query = {"stream": "true"} if response_id else None
            async with server.open("GET" if response_id else "POST", path, body, query) as reply:
                async for payload in _payloads(reply):
                    inspection.feed(payload)
                    live.tick()
    except OpenResponsesError as error:
        return printable(f"{error.message} [{error.code}]")
    except (UnreadableCapture, MissingKey, ValueError) as error:
        return printable(str(error))
    finally:
        inspection.close()
    return CLEAN


async def _body(server: Any, flags: dict[str, Any]) -> Any:
    from openresponses_bridge.errors import WireError
    from openresponses_bridge.protocol.codec import decode_json

    fields: Any = {"input": flags["ask"]}
    if flags["request"] is not None:
        name = STDIN if flags["request"] == "-" else flags["request"]
        try:
            with click.open_file(flags["request"], "rb") as opened:
                fields = decode_json(opened.read())
        except WireError as error:
            raise ValueError(f"{name}: {error.message}") from error
        except OSError as error:
            raise ValueError(f"{name}: {error.strerror or error}") from error
        if not isinstance(fields, dict):
            raise ValueError(f"{name}: a request must be a JSON object")
    if flags["model"] or not fields.get("model"):
        fields["model"] = flags["model"] or await server.first_model()
    return {"stream": True, **fields}


async def _payloads(reply: Any) -> Any:
    """Yield the payloads of an answer as they arrive: the frames of a stream, or one JSON response."""
    from openresponses_bridge.sse import SSEDecoder
    from openresponses_server.observation.recordings.captures import payload_of

    if not reply.is_stream:
        yield payload_of(1, None, await reply.body())
        return
    frames, count = SSEDecoder(), 0

    def read(new_frames: Any) -> Iterable[Payload]:
        nonlocal count
        for frame in new_frames:
            if frame.data:
                count += 1
                yield payload_of(count, frame.event, frame.data)

    async for piece in reply.chunks():
        for payload in read(frames.feed(piece)):
            yield payload
    for payload in read(frames.close()):
        yield payload
