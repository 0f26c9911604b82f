"""The work of `replay`: translates captures and recordings."""

from __future__ import annotations

from typing import Final

import click

from openresponses_bridge.text import printable
from openresponses_cli.commands.flags import exit_unreadable, input_file, write
from openresponses_server.observation.recordings.dialects import CaptureWriter, StepKind
from openresponses_server.observation.recordings.playing import (
    CapturedAnswer,
    CaptureReader,
    of_models,
    open_capture,
)
from openresponses_server.observation.recordings.reader import Clock, Exchange, speed_of

_REFUSAL: Final = 300  # characters


def replayed(
    file: str,
    source_name: str,
    target_name: str,
    speed: float | str | None,
    exchange: int | None,
    text_after_tools: bool | None,
) -> None:
    """Translate the file to standard output; the arguments are the flags of `replay`. A file that can't be
    read ends the command with exit code 2."""

    def choose(exchanges: list[Exchange]) -> list[Exchange]:
        if exchange is None:
            selection, missing = of_models(exchanges), "the recording has no exchanges"
        else:
            selection = [each for each in exchanges if each.asked.exchange == exchange]
            missing = f"the recording has no exchange {exchange}"
        return selection or exit_unreadable(missing)

    writer = CaptureWriter(target_name, text_after_tools)
    with input_file(file) as opened:
        played = open_capture(opened)
        if not played.is_recording and (speed is not None or exchange is not None):
            exit_unreadable(
                "--speed and --exchange are for recordings: a capture has neither times nor requests"
            )
        translated = False
        for answer in played.answers(Clock(speed_of(speed or "max")), choose):
            if answer is not None:
                translated = _translate(answer, source_name, writer) or translated
        if translated:
            write(writer.close())


def _translate(answer: CapturedAnswer, source_name: str, writer: CaptureWriter) -> bool:
    """Translate an answer. Returns False if it is a refusal."""
    about = "" if answer.exchange is None else f"exchange {answer.exchange.asked.exchange}"
    if answer.exchange is not None and answer.refusal:
        body = f": {answer.beginning(_REFUSAL).strip()}" if answer.exchange.status else ""
        click.echo(printable(f"{about}: {answer.refusal}{body}"), err=True)
        return False
    reader = CaptureReader(answer.dialect(source_name), writer.wire)
    for step in answer.steps(reader):
        if step.kind is not StepKind.PAUSE:
            write(writer.feed(step, reader.text_after_tools))
    for case in reader.diagnostics:
        click.echo(str(case), err=True)
    if answer.exchange is not None and answer.exchange.end != "finished":
        click.echo(f"{about}: {answer.exchange.end or 'unrecorded'} before the end of its body", err=True)
    return True
