"""`replay`: a capture in, the translated stream out."""

from __future__ import annotations

import click

from server.captures.reader import read_capture
from server.captures.sinks import SINKS, Sinks
from server.captures.sources import AUTO, DIALECTS, Source, open_source
from server.commands.files import capture_argument, reading, write


@click.command()
@capture_argument
@click.option("--from", "source_name", type=click.Choice([AUTO, *DIALECTS]), default=AUTO, show_default=True)
@click.option("--to", "sink_name", type=click.Choice(list(SINKS)), default="responses", show_default=True)
def command(file: str, source_name: str, sink_name: str) -> None:
    """Translate a capture (server-sent events or JSON lines).

    What had to be repaired or was lost on the way is reported on stderr. Exit code 2: the capture can't be
    read; the message names the line.
    """
    sink = Sinks(sink_name)
    source: Source | None = None
    with reading(file) as lines:
        for payload in read_capture(lines):
            source = source or open_source(source_name, payload, sink.wire)
            write(sink.feed(source.feed(payload)))
        if source is not None:
            write(sink.feed(source.close()))
            write(sink.close())
            for case in source.diagnostics:
                click.echo(str(case), err=True)
