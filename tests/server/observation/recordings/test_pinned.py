"""What was repaired or lost is pinned to the same events by the page's lines and by `inspect`."""

from __future__ import annotations

import json

import pytest

from openresponses_cli.commands.inspecting import Inspection
from openresponses_server.observation.recordings.captures import read_capture
from openresponses_server.observation.recordings.observing import observed
from tests.support.upstream import DONE, call, chunk

CUT = chunk(content="Hel") + chunk(content="lo")
WHOLE = chunk(content="Hello") + chunk("stop") + DONE
BROKEN = call(0, '{"a":', "f", "c1") + chunk("tool_calls") + DONE


def by_the_page(capture: bytes) -> list[tuple[int, int, str, str]]:
    """Answer, event, kind and place of each case of the translation."""
    findings, answer, event = [], 0, 0
    for line in map(json.loads, observed(capture.splitlines(True))):
        pinned = event if "event" in line else event - 1
        findings += [(answer, pinned, case["kind"], case["where"]) for case in line.get("findings", ())]
        event += "event" in line
        if line.get("ended"):
            answer, event = answer + 1, 0
    # what VS Code's parts lose is the page's alone
    return [case for case in findings if case[2] != "violation" and case[3] != "tool_call"]


def by_the_terminal(capture: bytes) -> list[tuple[int, int, str, str]]:
    inspection = Inspection()
    for payload in read_capture(capture.splitlines(True)):
        inspection.feed(payload)
    inspection.close()
    return [
        (answer, pinned.event, pinned.case.kind, pinned.case.where)
        for answer, watched in enumerate(inspection.watched)
        for pinned in watched.pinned
    ]


@pytest.mark.parametrize(
    "capture",
    [CUT + DONE + WHOLE, WHOLE + CUT + DONE, BROKEN + WHOLE + BROKEN, CUT + chunk("odd") + WHOLE],
    ids=["first", "last", "both", "odd"],
)
def test_both_find_the_same_cases_at_the_same_events(capture: bytes) -> None:
    page = by_the_page(capture)
    assert page
    assert by_the_terminal(capture) == page
