"""A reader's reports are compared with the corpus."""

import json

import pytest

from openresponses_bridge.corpus import Fault, Report, case, case_ids, check, read_report, report_of
from openresponses_bridge.corpus.scripts import SCRIPTS
from openresponses_bridge.errors import BridgeError, LocalError

TEXT, CRLF = "openai/text", "openai/text/crlf"
CALLS = "openai/two_tools_interleaved"


def reported(*facts: tuple[str, str]) -> list[Report]:
    return [read_report(json.dumps({"id": id, "text": text})) for id, text in facts]


def test_a_reader_that_errs_nowhere_has_no_fault() -> None:
    text = case(TEXT).expected.text
    assert check(reported((TEXT, text), (CRLF, text)), [TEXT, CRLF]) == []


def test_a_case_that_builds_on_a_wrong_one_is_no_fault_of_its_own() -> None:
    faults = check(reported((TEXT, "a"), (CRLF, "b")), [TEXT, CRLF])
    shown = {TEXT: ["text is 'a' instead of 'Hello there. é🙂'"]}
    assert faults == [Fault(SCRIPTS["text"].asks, shown, [CRLF])]


def test_a_case_without_a_report_differs() -> None:
    (fault,) = check([], [TEXT])
    assert fault.shown_by == {TEXT: ["there is no report"]}


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([], ["the call call_a is missing", "the call call_b is missing"]),
        ([("call_a", {"city": "Paris"}), ("call_b", '{ "zone": "CET" }')], []),
        ([("call_a", "{"), ("call_b", '{"zone":"CET"}')], ["the arguments of call_a are '{' instead of"]),
        ([("call_a", {"city": "Paris"})] * 2, ["the call 'call_a' is reported twice", "the call call_b"]),
        ([("call_c", {})], ["there is no whole call 'call_c'", "the call call_a", "the call call_b"]),
    ],
)
def test_calls_are_compared_by_their_ids(calls: list[tuple[str, object]], said: list[str]) -> None:
    names = {"call_a": "get_weather", "call_b": "get_time"}
    entries = [{"call_id": id, "name": names.get(id, "x"), "arguments": arguments} for id, arguments in calls]
    faults = check([read_report(json.dumps({"id": CALLS, "calls": entries}))], [CALLS])
    differing = [each for fault in faults for each in fault.shown_by[CALLS]]
    assert [each[: len(start)] for each, start in zip(differing, said, strict=True)] == said


def test_a_name_and_citations_are_compared() -> None:
    call = {"call_id": "call_a", "name": "get_time", "input": '{"city":"Paris"}'}
    report = read_report(json.dumps({"id": "openai/one_tool", "calls": [call], "citations": []}))
    (fault,) = check([report], ["openai/one_tool"])
    assert fault.shown_by["openai/one_tool"] == ["the name of call_a is 'get_time' instead of 'get_weather'"]
    (fault,) = check([Report(id="openai/citation", citations=[])], ["openai/citation"])
    assert fault.shown_by["openai/citation"][0].startswith("citations are [] instead of [")


def test_a_whole_response_is_a_report() -> None:
    for id in case_ids(["openresponses"]):
        each = case(id)
        if each.variant is None and each.response is not None:
            assert check([Report(id=id, response=each.response)], [id]) == []
    broken = {"status": "x", "output": ["item", {"type": "message", "content": 5}], "usage": 5, "error": []}
    assert report_of("x", broken).status == "cut"


@pytest.mark.parametrize(
    "line", ["", "{", "[]", '{"id": 5}', '{"id": "openai/text"}', '{"text": "a"}', "[" * 9999]
)
def test_what_is_no_report_is_refused(line: str) -> None:
    with pytest.raises(BridgeError):
        read_report(line)


def test_a_report_of_no_case_or_twice_is_refused() -> None:
    with pytest.raises(LocalError, match="no case"):
        check(reported(("openai/nope", "")), [])
    with pytest.raises(LocalError, match="twice"):
        check(reported((TEXT, ""), (TEXT, "")), [])
