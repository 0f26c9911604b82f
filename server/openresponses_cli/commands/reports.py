"""Reports for programs that run tests: JUnit XML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple
from xml.etree import ElementTree

from openresponses_bridge.text import printable, shown

JUnitOutcome = Literal["passed", "failure", "error", "skipped"]
_NONE: Mapping[str, str] = MappingProxyType({})
_COUNTED: dict[str, str] = {"failure": "failures", "error": "errors", "skipped": "skipped"}


class JUnitCase(NamedTuple):
    """One case of a report. `message` says why it did not pass; `details` has more."""

    area: str
    name: str
    outcome: JUnitOutcome = "passed"
    message: str = ""
    details: str = ""
    seconds: float = 0.0


def junit_report(name: str, cases: Iterable[JUnitCase], properties: Mapping[str, str] = _NONE) -> bytes:
    """Return a JUnit report: one suite of this name, with these properties. Control characters, which XML
    does not allow, are escaped."""
    cases = list(cases)
    counts = {word: str(sum(case.outcome == kind for case in cases)) for kind, word in _COUNTED.items()}
    seconds = f"{sum(case.seconds for case in cases):.3f}"
    suites = ElementTree.Element("testsuites")
    about = {"name": printable(name), "tests": str(len(cases)), **counts, "time": seconds}
    suite = ElementTree.SubElement(suites, "testsuite", about)
    if properties:
        listed = ElementTree.SubElement(suite, "properties")
        for key, value in properties.items():
            ElementTree.SubElement(listed, "property", {"name": key, "value": printable(value)})
    for case in cases:
        about = {"classname": case.area, "name": printable(case.name), "time": f"{case.seconds:.3f}"}
        testcase = ElementTree.SubElement(suite, "testcase", about)
        if case.outcome != "passed":
            reason = ElementTree.SubElement(testcase, case.outcome, {"message": printable(case.message)})
            reason.text = shown(case.details) or None
    ElementTree.indent(suites)
    report: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return report + b"\n"
