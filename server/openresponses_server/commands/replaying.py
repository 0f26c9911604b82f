"""The work of `replay`: translates captures and recordings."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, Final

import click

from openresponses_bridge.text import printable
from openresponses_server.commands.flags import exit_unreadable, input_file, write
from openresponses_server.observation.recordings.captures import Unreadable, read_capture
from openresponses_server.observation.recordings.dialects import (
    AUTO,
    DIALECTS,
    CaptureTranslator,
    Sinks,
    open_translator,
)
from openresponses_server.observation.recordings.reader import (
    Changed,
    Clock,
    Exchange,
    Recording,
    body_lines,
    read_recording,
    speed_of,
)
from openresponses_server.observation.recordings.records import is_recording

_FIRST: Final = 4096  # bytes of the first line that distinguish a recording
_SHOWN: Final = 300  # characters of an error's body
_SHOWN_LINES: Final = 20


def replayed(
    file: str,
    source_name: str,
    sink_name: str,
    speed: float | str | None,
    exchange: int | None,
    text_after_tools: bool | None,
) -> None:
    """Translate the file to standard output; the arguments are the flags of `replay`. A file that can't be
    read ends the command with exit code 2."""
    sink = Sinks(sink_name, text_after_tools)
    with input_file(file) as lines:
        first = lines.readline(_FIRST)
        if is_recording(first):
            clock = Clock(speed_of(speed or "max"))
            _play(recording_of(file, first, lines), exchange, source_name, sink, clock)
            return
        if speed is not None or exchange is not None:
            exit_unreadable(
                "--speed and --exchange are for recordings: a capture has neither times nor requests"
            )
        if not first.endswith(b"\n"):
            first += lines.readline()
        source = _translate(chain([first] if first else [], lines), source_name, sink)
        write(sink.close())
        _report(source)


def _translate(lines: Iterable[bytes], source_name: str, sink: Sinks) -> CaptureTranslator | None:
    source: CaptureTranslator | None = None
    for payload in read_capture(lines):
        if source is None:
            source = open_translator(source_name, payload, sink.wire)
            sink.begin(source.text_after_tools)
        for translated in source.feed(payload):
            write(sink.feed(translated.events))
    if source is not None:
        for translated in source.close():
            write(sink.feed(translated.events))
    return source


def _report(source: CaptureTranslator | None) -> None:
    for case in () if source is None else source.diagnostics:
        click.echo(str(case), err=True)


def recording_of(file: str, first: bytes, lines: BinaryIO) -> Recording:
    """The recording that begins with these bytes; a pipe is copied to a temporary file."""
    if file != "-":
        return read_recording(Path(file))
    with NamedTemporaryFile(suffix=".jsonl", delete=False) as spooled:
        spooled.write(first)
        shutil.copyfileobj(lines, spooled)
    click.get_current_context().call_on_close(lambda: Path(spooled.name).unlink(missing_ok=True))
    return read_recording(Path(spooled.name))


def _play(recording: Recording, wanted: int | None, source_name: str, sink: Sinks, clock: Clock) -> None:
    upstreams = [each for each in recording.exchanges if each.asked.leg == "upstream"]
    exchanges = [each for each in recording.exchanges if wanted == each.asked.exchange]
    if wanted is None:  # the clients' streams were made from the upstreams'
        exchanges = upstreams or recording.exchanges
    if not exchanges:
        exit_unreadable(
            "the recording has no exchanges" if wanted is None else f"there is no exchange {wanted}"
        )
    translated = False
    for each in exchanges:
        clock.reach(each.asked.at)
        translated = _exchange(recording, each, source_name, sink, clock) or translated
    if translated:
        write(sink.close())


def _exchange(recording: Recording, each: Exchange, source_name: str, sink: Sinks, clock: Clock) -> bool:
    """Translate the answer of an exchange; whether there was one."""
    about = f"exchange {each.asked.exchange}"
    lines = body_lines(recording.records(each), clock)
    try:
        if not 200 <= each.status < 300:
            said = b"".join(islice(lines, _SHOWN_LINES)).decode("utf-8", "replace")[:_SHOWN].strip()
            what = f"refused with status {each.status}: {said}" if each.status else "no answer"
            click.echo(printable(f"{about}: {what}"), err=True)
            return False
        spoken = each.asked.dialect if source_name == AUTO else source_name
        if spoken not in DIALECTS:
            raise Unreadable(each.line, f"dialect {spoken!r} is not one of: {', '.join(DIALECTS)}")
        _report(_translate(lines, spoken, sink))
    except Unreadable as error:
        raise Unreadable(each.line, f"the answer of {about} can't be read: {error}") from error
    except Changed as error:
        raise Unreadable(each.line, f"the file has changed while {about} was read") from error
    if each.end != "finished":
        click.echo(f"{about}: {each.end or 'unrecorded'} before the end of its body", err=True)
    return True
