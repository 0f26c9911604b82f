"""Verdicts of conformance scenarios as reports: failures by their causes, and JUnit's XML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from openresponses_bridge.text import printable

if TYPE_CHECKING:
    from openresponses_server.commands.playing import Verdict


def failures_by_cause(verdicts: Sequence[Verdict]) -> str:
    """Each cause with the scenarios that fail of it, the one that most fail of first; "" without failures."""
    causes: dict[str, list[str]] = {}
    for verdict in verdicts:
        for cause in verdict.causes:
            causes.setdefault(cause, []).append(verdict.id)
    lines = []
    for cause, failing in sorted(causes.items(), key=lambda found: -len(found[1])):
        scenarios = "scenario" if len(failing) == 1 else "scenarios"
        lines += [f"  {printable(cause)}", f"      {len(failing)} {scenarios}: {', '.join(failing)}"]
    return "\n".join(lines)


def junit_report(name: str, verdicts: Sequence[Verdict]) -> bytes:
    """A JUnit report: one suite of this name, one case per scenario, its area as the class."""
    counts = {
        "tests": str(len(verdicts)),
        "failures": str(sum(each.outcome == "failed" for each in verdicts)),
        "errors": "0",
        "skipped": str(sum(each.outcome == "skipped" for each in verdicts)),
        "time": f"{sum(each.seconds for each in verdicts):.3f}",
    }
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", {"name": printable(name), **counts})
    for verdict in verdicts:
        area, _, _ = verdict.id.partition(".")
        about = {"classname": area, "name": verdict.id, "time": f"{verdict.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", about)
        message = {"message": printable(verdict.message)}  # XML has no control characters
        if verdict.outcome == "failed":
            failure = ElementTree.SubElement(case, "failure", message)
            failure.text = f"{verdict.description} [{verdict.source}]"
        elif verdict.outcome == "skipped":
            ElementTree.SubElement(case, "skipped", message)
    ElementTree.indent(suites)
    report: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return report + b"\n"
