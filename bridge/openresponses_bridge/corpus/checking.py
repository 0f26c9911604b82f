"""Compares what a reader reported with what it should have decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType

from openresponses_bridge.corpus.cases import Case, case
from openresponses_bridge.corpus.truth import (
    Expected,
    ExpectedCall,
    ExpectedCitation,
    ExpectedError,
    ExpectedUsage,
    Status,
)
from openresponses_bridge.errors import LocalError, WireError
from openresponses_bridge.protocol.codec import decode_json

_SHOWN: Final = 80  # characters of a value in a message


class ReportedCall(Struct, kw_only=True):
    """A tool call as a reader reported it. `arguments` are JSON or its text, `input` is a custom tool's."""

    call_id: str
    name: str
    arguments: Any = UNSET
    input: Any = UNSET


class Report(Struct, kw_only=True):
    """The result of a reader for a case: a line of the file for `corpus check`. Fields that are left out are
    not checked; a `response` replaces all other fields."""

    id: str
    status: Status | UnsetType = UNSET
    text: str | UnsetType = UNSET
    calls: list[ReportedCall] | UnsetType = UNSET
    refusal: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    citations: list[ExpectedCitation] | UnsetType = UNSET
    usage: ExpectedUsage | UnsetType | None = UNSET
    incomplete_reason: str | UnsetType | None = UNSET
    error: ExpectedError | UnsetType | None = UNSET
    response: dict[str, Any] | UnsetType = UNSET


class Fault(NamedTuple):
    """Something that a reader does wrong: what it should do, and the cases that show it, each with its
    differences. `follows`: cases that build on these and differ as well."""

    asks: str
    shown_by: dict[str, list[str]]
    follows: list[str]


_REPORT: Final = msgspec.json.Decoder(Report)
_PLAIN_FACTS: Final = ("status", "text", "refusal", "reasoning", "summary", "incomplete_reason")
_FIELDS: Final = (*_PLAIN_FACTS, "calls", "citations", "usage", "error")


def read_report(line: bytes | str) -> Report:
    """Decode a line of a report. Raises WireError (`bridge.wire.invalid_shape`) that says what is wrong with
    it."""
    try:
        report = _REPORT.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise WireError(WireError.INVALID_SHAPE, f"not a report: {error}") from error
    if report.response is UNSET and all(getattr(report, name) is UNSET for name in _FIELDS):
        raise WireError(WireError.INVALID_SHAPE, f"the report of {report.id[:_SHOWN]!r} says nothing")
    return report


def report_of(case_id: str, response: Mapping[str, Any]) -> Report:
    """Return the report of a reader that decoded this response."""
    facts = facts_of(response)
    calls = [
        ReportedCall(call_id=each.call_id, name=each.name, arguments=each.arguments) for each in facts.calls
    ]
    return Report(
        id=case_id,
        status=facts.status,
        text=facts.text,
        calls=calls,
        refusal=facts.refusal,
        reasoning=facts.reasoning,
        summary=facts.summary,
        citations=list(facts.citations),
        usage=facts.usage,
        incomplete_reason=facts.incomplete_reason,
        error=facts.error,
    )


def facts_of(response: Mapping[str, Any]) -> Expected:
    """Return the contents of a response that is given as JSON, of its calls only the whole ones. The status
    of a response that has not ended is `cut`."""
    texts: dict[str, list[str]] = {"text": [], "refusal": [], "reasoning": [], "summary": []}
    calls: list[ExpectedCall] = []
    citations: list[ExpectedCitation] = []
    for item in _objects(response.get("output")):
        kind = item.get("type")
        if kind in ("function_call", "custom_tool_call") and item.get("status") in ("completed", None):
            custom = kind == "custom_tool_call"
            calls.append(
                ExpectedCall(
                    call_id=_text(item, "call_id"),
                    name=_text(item, "name"),
                    arguments=_text(item, "input" if custom else "arguments"),
                    custom=custom,
                )
            )
        for part in (*_objects(item.get("content")), *_objects(item.get("summary"))):
            if (fact := _FACT_OF_PART.get(str(part.get("type")))) is not None:
                texts[fact].append(_text(part, "refusal" if fact == "refusal" else "text"))
            citations += [
                _citation(cited)
                for cited in _objects(part.get("annotations"))
                if cited.get("type") == "url_citation"
            ]
    status, usage, error = response.get("status"), response.get("usage"), response.get("error")
    details = response.get("incomplete_details")
    joined: dict[str, Any] = {fact: "".join(pieces) for fact, pieces in texts.items()}
    return Expected(
        **joined,
        status=status if status in _ENDED else "cut",
        calls=tuple(calls),
        citations=tuple(citations),
        usage=_counts(usage) if isinstance(usage, Mapping) else None,
        incomplete_reason=details.get("reason") if isinstance(details, Mapping) else None,
        error=_error(error) if isinstance(error, Mapping) else None,
    )


def differences(expected: Expected, report: Report) -> list[str]:
    """Return the differences between a report and the expected result, in words."""
    if report.response is not UNSET:
        return differences(expected, report_of(report.id, report.response))
    mismatches = [
        f"{name} is {_shown(actual)} instead of {_shown(target)}"
        for name in (*_PLAIN_FACTS, "usage", "error")
        if (actual := getattr(report, name)) is not UNSET and actual != (target := getattr(expected, name))
    ]
    if report.citations is not UNSET and tuple(report.citations) != expected.citations:
        mismatches.append(f"citations are {_shown(report.citations)} instead of {_shown(expected.citations)}")
    if report.calls is not UNSET:
        mismatches += _calls_apart(expected.calls, report.calls)
    return mismatches


def check(reports: Iterable[Report], asked: Iterable[str]) -> list[Fault]:
    """Return the faults of a reader that was given the cases with these ids, in the order in which the cases
    show them. A case without a report counts as one that differs. Raises LocalError
    (`bridge.corpus.unknown_case`) for a report of no case, and `bridge.corpus.reported_twice`."""
    by_id: dict[str, Report] = {}
    for report in reports:
        if report.id in by_id:
            raise LocalError("bridge.corpus.reported_twice", f"{report.id[:200]!r} is reported twice")
        by_id[report.id] = report
    checked = [case(id) for id in dict.fromkeys([*asked, *by_id])]
    return faults_of({each.id: (each, _found(each, by_id.get(each.id))) for each in checked})


def faults_of(results: Mapping[str, tuple[Case, list[str]]]) -> list[Fault]:
    """Return the faults that these cases show, given each case with its differences. A case that builds on
    another one that differs shows no fault of its own."""
    differ = {id: each for id, (each, differing) in results.items() if differing}
    causes = {id: _cause(each, differ) for id, each in differ.items()}
    by_asks: dict[str, Fault] = {}
    for id, each in differ.items():
        if causes[id] == id:
            fault = by_asks.setdefault(each.asks, Fault(each.asks, {}, []))
            fault.shown_by[id] = results[id][1]
    for id, cause in causes.items():
        if cause != id:
            by_asks[differ[cause].asks].follows.append(id)
    return list(by_asks.values())


def _cause(each: Case, differ: Mapping[str, Case]) -> str:
    """Return the id of the simplest case that differs and on which this one builds; its own if there is
    none."""
    for below in each.builds_on:
        if below in differ:
            return _cause(differ[below], differ)
    return each.id


def _found(each: Case, report: Report | None) -> list[str]:
    return ["there is no report"] if report is None else differences(each.expected, report)


def _calls_apart(expected: Iterable[ExpectedCall], reported: Iterable[ReportedCall]) -> Iterator[str]:
    by_id = {each.call_id: each for each in expected}
    seen: set[str] = set()
    for call in reported:
        each = by_id.get(call.call_id)
        if each is None:
            yield f"there is no whole call {_shown(call.call_id)}"
            continue
        if call.call_id in seen:
            yield f"the call {_shown(call.call_id)} is reported twice"
        seen.add(call.call_id)
        if call.name != each.name:
            yield f"the name of {call.call_id} is {_shown(call.name)} instead of {_shown(each.name)}"
        actual = call.arguments if call.input is UNSET else call.input
        if actual is not UNSET and not _same_arguments(each, actual):
            yield f"the arguments of {call.call_id} are {_shown(actual)} instead of {_shown(each.arguments)}"
    for each in by_id.values():
        if each.call_id not in seen and not each.optional:
            yield f"the call {each.call_id} is missing"


def _same_arguments(expected: ExpectedCall, actual: Any) -> bool:
    if actual == expected.arguments:
        return True
    try:
        arguments = decode_json(expected.arguments)
        return bool((decode_json(actual) if isinstance(actual, str) else actual) == arguments)
    except WireError:
        return False


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _counts(usage: Mapping[str, Any]) -> ExpectedUsage:
    return ExpectedUsage(*(usage.get(name) or 0 for name in ExpectedUsage.__struct_fields__))


def _citation(cited: Mapping[str, Any]) -> ExpectedCitation:
    places = (cited.get("start_index") or 0, cited.get("end_index") or 0)
    return ExpectedCitation(_text(cited, "url"), _text(cited, "title"), *places)


def _error(error: Mapping[str, Any]) -> ExpectedError:
    return ExpectedError(_text(error, "code"), _text(error, "message"))


def _text(value: Mapping[str, Any], name: str) -> str:
    return str(value.get(name) or "")


def _shown(value: Any) -> str:
    text = (
        msgspec.json.encode(value).decode("utf-8", "replace") if not isinstance(value, str) else repr(value)
    )
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


_FACT_OF_PART: Final = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
    "summary_text": "summary",
}
_ENDED: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})
