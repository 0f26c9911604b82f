"""The work of `validate`: judges captures and reports violations, one by one, by rule, as JUnit and SARIF."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote

import click
from msgspec import to_builtins

from openresponses_bridge.conformance import RULES, Violation, WireName
from openresponses_bridge.dialects import responses
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.text import counted, printable
from openresponses_cli.commands.flags import (
    CLEAN,
    STDIN,
    UNREADABLE,
    VIOLATIONS,
    UnreadableInput,
    opened_input,
    write,
    write_json,
    write_report,
)
from openresponses_cli.commands.judging import CaptureJudge
from openresponses_cli.commands.progress import Advance, progress
from openresponses_cli.commands.reports import JUnitCase, junit_report
from openresponses_cli.commands.terminal import drop_output
from openresponses_server.observation.recordings.captures import UnreadableCapture
from openresponses_server.observation.recordings.playing import CaptureReader, open_capture
from openresponses_server.observation.recordings.reader import Clock

_MOST_KEPT: Final = 1_000  # violations of a rule that a report has from one file
_STEPS: Final = 1_000  # between two updates of the progress
_SARIF: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_DOCUMENT: Final = "docs/rules.md"


class FileVerdict:
    """The findings in one file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: dict[str, int] = {}
        """Rule → the number of its violations."""
        self.kept: list[tuple[int, Violation]] = []
        """The first violations of each rule, with their lines in the file; 0 for its end."""
        self.unreadable = ""

    def add(self, line: int, violation: Violation) -> None:
        """Count a violation at this line."""
        count = self.counts[violation.rule] = self.counts.get(violation.rule, 0) + 1
        if count <= _MOST_KEPT:
            self.kept.append((line, violation))

    @property
    def code(self) -> int:
        """The exit code for this file alone."""
        return UNREADABLE if self.unreadable else VIOLATIONS if self.counts else CLEAN


def validate(
    files: Sequence[str],
    wire: WireName,
    *,
    as_json: bool,
    by_rule: bool,
    junit: str | None,
    sarif: str | None,
) -> int:
    """Judge the files and report; the arguments are the flags of `validate`. Returns the exit code: that of a
    file that can't be read takes precedence, then that of violations."""
    verdicts: list[FileVerdict] = []
    several = len(files) > 1
    with progress("validating", _total(files), "bytes") as advance:
        for file in files:
            verdict = FileVerdict(STDIN if file == "-" else file)
            verdicts.append(verdict)
            try:
                with opened_input(file) as opened:
                    for line, violation in _violations(opened, wire, advance):
                        verdict.add(line, violation)
                        if by_rule:
                            continue
                        try:
                            _print(violation, verdict.name if several else "", as_json)
                        except BrokenPipeError:  # nobody reads on, but reports need all violations
                            drop_output()
                            if junit is None and sarif is None:
                                return VIOLATIONS
            except UnreadableInput as error:
                verdict.unreadable = str(error)
                click.echo(printable(str(error)), err=True)
    if by_rule:
        _print_by_rule(verdicts, as_json)
    if junit is not None:
        write_report(junit, junit_report("openresponses-bridge validate", map(_case, verdicts)))
    if sarif is not None:
        write_report(sarif, encode(_sarif(verdicts)) + b"\n")
    return max(verdict.code for verdict in verdicts)


def _violations(opened: BinaryIO, wire: WireName, advance: Advance) -> Iterator[tuple[int, Violation]]:
    """Yield the violations in a file, each with its line. In a recording the exchanges with servers of the
    Responses API are judged."""
    judge, name = CaptureJudge(wire), responses.DIALECT.name
    position = opened.tell if opened.seekable() else None
    reached = position() if position is not None else 0
    count = judged = 0
    played = open_capture(opened)
    for answer in played.answers(Clock(None)):
        if (
            answer is None
            or answer.refusal
            or (answer.exchange is not None and answer.exchange.asked.dialect != name)
        ):
            continue
        judged += 1
        line = 0
        for step in answer.steps(CaptureReader(name, wire, as_sent=True)):
            line = step.payload.line if step.payload is not None else line
            yield from ((line, violation) for violation in judge.feed(step))
            count += 1
            if count % _STEPS == 0 and position is not None:
                before, reached = reached, position()
                advance(reached - before)
    if not judged:
        raise UnreadableCapture(
            0, "the recording has no answer in the Responses API: `inspect` shows what it has"
        )


def _total(files: Sequence[str]) -> int | None:
    """Return the size of all files in bytes; None if one is not a regular file."""
    if all(os.path.isfile(file) for file in files):
        return sum(os.path.getsize(file) for file in files)
    return None


def _print(violation: Violation, file: str, as_json: bool) -> None:
    if as_json:
        write(encode({"file": file, **to_builtins(violation)} if file else violation) + b"\n")
    else:
        write(f"{printable(file)}: {violation}\n".encode() if file else f"{violation}\n".encode())


def _print_by_rule(verdicts: Sequence[FileVerdict], as_json: bool) -> None:
    """Print a line for each rule that was broken, the most frequent first, with the first place."""
    counts: dict[str, int] = {}
    for verdict in verdicts:
        for rule, count in verdict.counts.items():
            counts[rule] = counts.get(rule, 0) + count
    for rule in sorted(counts, key=lambda name: -counts[name]):
        files = [verdict for verdict in verdicts if rule in verdict.counts]
        first = next(violation for _, violation in files[0].kept if violation.rule == rule)
        if as_json:
            names = [verdict.name for verdict in files]
            write_json({"rule": rule, "count": counts[rule], "files": names, "first": first})
            continue
        where = f" in {counted(len(files), 'file')}" if len(verdicts) > 1 else ""
        place = f"{printable(files[0].name)}: " if len(verdicts) > 1 else ""
        _, _, message = str(first).partition(": ")
        click.echo(f"{rule}: {counted(counts[rule], 'violation')}{where}, first {place}{message}")


def _case(verdict: FileVerdict) -> JUnitCase:
    if verdict.unreadable:
        return JUnitCase("validate", verdict.name, "error", verdict.unreadable)
    if not verdict.counts:
        return JUnitCase("validate", verdict.name)
    total = sum(verdict.counts.values())
    message = f"{counted(total, 'violation')} of {counted(len(verdict.counts), 'rule')}"
    lines = [f"line {line}: {violation}" if line else str(violation) for line, violation in verdict.kept]
    if total > len(lines):
        lines.append(f"and {total - len(lines)} more")
    return JUnitCase("validate", verdict.name, "failure", message, "\n".join(lines))


def _sarif(verdicts: Sequence[FileVerdict]) -> dict[str, Any]:
    """Return the verdicts in SARIF 2.1.0, which code hosts show beside the lines."""
    rules = sorted({rule for verdict in verdicts for rule in verdict.counts})
    index = {rule: number for number, rule in enumerate(rules)}
    notes = [_unreadable(verdict) for verdict in verdicts if verdict.unreadable]
    driver = {
        "name": "openresponses-bridge",
        "version": metadata.version("openresponses-bridge"),
        "rules": [
            {
                "id": rule,
                "shortDescription": {"text": RULES[rule].description},
                "help": {"text": f"{RULES[rule].source}; {_DOCUMENT} has an example"},
            }
            for rule in rules
        ],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not notes, "toolExecutionNotifications": notes}],
        "results": [
            {
                "ruleId": violation.rule,
                "ruleIndex": index[violation.rule],
                "level": "error",
                "message": {"text": str(violation)},
                "locations": [{"physicalLocation": _location(verdict.name, line)}],
            }
            for verdict in verdicts
            for line, violation in verdict.kept
        ],
    }
    return {"$schema": _SARIF, "version": "2.1.0", "runs": [run]}


def _location(name: str, line: int) -> dict[str, Any]:
    path = Path(name)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    return {"artifactLocation": {"uri": uri}} | ({"region": {"startLine": line}} if line else {})


def _unreadable(verdict: FileVerdict) -> dict[str, Any]:
    location = {"physicalLocation": _location(verdict.name, 0)}
    return {"level": "error", "message": {"text": printable(verdict.unreadable)}, "locations": [location]}
