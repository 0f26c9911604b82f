"""The work of `corpus check`: reads reports, and lists what the client does wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click

from openresponses_bridge.corpus import Fault, Report, check, read_report
from openresponses_bridge.errors import BridgeError
from openresponses_bridge.text import counted, printable
from openresponses_cli.commands.flags import (
    CLEAN,
    STDIN,
    UNREADABLE,
    VIOLATIONS,
    UnreadableInput,
    opened_input,
    write_json,
    write_report,
)
from openresponses_cli.commands.reports import JUnitCase, junit_report

_LONGEST_LINE: Final = 4 * 1024 * 1024  # bytes
_SHOWN: Final = 3  # cases that are listed for one fault


def check_reports(file: str, case_ids: Sequence[str], *, as_json: bool, junit: str | None) -> int:
    """Check the reports in the file on these cases. Returns the exit code."""
    name = STDIN if file == "-" else file
    try:
        reports = list(_reports(file, name))
        faults = check(reports, case_ids)
    except (BridgeError, UnreadableInput) as error:
        click.echo(printable(str(error)), err=True)
        return UNREADABLE
    for fault in faults:
        _print(fault, as_json)
    if not as_json:
        differ = sum(len(each.shown_by) + len(each.follows) for each in faults)
        checked = len({*case_ids, *(each.id for each in reports)})
        click.echo(f"{counted(checked, 'case')}, {differ} differ, {counted(len(faults), 'fault')}")
    if junit is not None:
        write_report(junit, junit_report("openresponses-bridge corpus check", _cases(faults, case_ids)))
    return VIOLATIONS if faults else CLEAN


def _reports(file: str, name: str) -> Iterator[Report]:
    with opened_input(file) as opened:
        number = 0
        while line := opened.readline(_LONGEST_LINE):
            number += 1
            if len(line) == _LONGEST_LINE:
                raise UnreadableInput(f"{name}: line {number} is longer than {_LONGEST_LINE} bytes")
            if line.strip():
                try:
                    yield read_report(line)
                except BridgeError as error:
                    raise UnreadableInput(f"{name}: line {number}: {error.message}") from error


def _print(fault: Fault, as_json: bool) -> None:
    if as_json:
        write_json(fault._asdict())
        return
    click.echo(f"{click.style('✗', fg='red')} {fault.asks}")
    for id, differences in list(fault.shown_by.items())[:_SHOWN]:
        click.echo(f"    {id}: {printable('; '.join(differences))}")
    if len(fault.shown_by) > _SHOWN:
        click.echo(f"    and {len(fault.shown_by) - _SHOWN} more")
    if fault.follows:
        click.echo(f"    {counted(len(fault.follows), 'case')} that build on these differ too")


def _cases(faults: Sequence[Fault], case_ids: Sequence[str]) -> Iterator[JUnitCase]:
    failures = {
        id: (fault.asks, "\n".join(details)) for fault in faults for id, details in fault.shown_by.items()
    }
    follows = {id: fault.asks for fault in faults for id in fault.follows}
    for id in dict.fromkeys([*case_ids, *failures, *follows]):
        if id in failures:
            asks, details = failures[id]
            yield JUnitCase("corpus", id, "failure", asks, details)
        elif id in follows:
            yield JUnitCase("corpus", id, "failure", follows[id], "builds on cases that differ")
        else:
            yield JUnitCase("corpus", id)
