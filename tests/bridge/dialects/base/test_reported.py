"""Errors are read in any form: their innermost words and codes, the same in every dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge.dialects.base import (
    error_in_frame,
    payload_of,
    reported_error,
    reported_in,
)
from openresponses_bridge.dialects.base.reported import LONGEST_MESSAGE
from openresponses_bridge.dialects.table import dialects
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.sse import SSEDecoder
from tests.support.chat import new_machine

WORDS = "the tide is out"
RAW = json.dumps({"error": {"message": WORDS}})
FORMS: dict[str, tuple[Any, tuple[str, str | None, str | None]]] = {
    # form → (value, (message, code, param))
    "an object": ({"error": {"message": WORDS, "code": "c", "param": "p"}}, (WORDS, "c", "p")),
    "a text": ({"error": WORDS}, (WORDS, None, None)),
    "a list around it": ([{"error": {"message": WORDS, "status": "INVALID"}}], (WORDS, "INVALID", None)),
    "a word rather than a number": (
        {"error": {"code": 400, "status": "INVALID", "message": WORDS}},
        (WORDS, "INVALID", None),
    ),
    "MiniMax's status": ({"base_resp": {"status_code": 7, "status_msg": WORDS}}, (WORDS, "7", None)),
    "an error in an error": ({"error": {"error": {"message": WORDS, "code": "c"}}}, (WORDS, "c", None)),
    "JSON in a text": (
        {"error": {"message": json.dumps({"error": {"message": WORDS, "code": "c"}}), "code": 400}},
        (WORDS, "c", None),
    ),
    "what a provider said, raw": (
        {"error": {"message": "no", "code": 400, "metadata": {"raw": RAW}}},
        (WORDS, "400", None),
    ),
    "what a provider said, in words": (
        {"error": {"message": "no", "metadata": {"raw": WORDS}}},
        (WORDS, None, None),
    ),
    "a list of fields": (
        {"detail": [{"loc": ["body", "messages", 0, "role"], "msg": WORDS, "type": "t"}]},
        (f"messages.0.role: {WORDS}", None, "messages.0.role"),
    ),
    "two fields": (
        {"detail": [{"loc": ["body", "a"], "msg": "one"}, {"loc": ["b"], "msg": "two"}]},
        ("a: one; b: two", None, "a"),
    ),
    "a list of fields as a message": (
        {"object": "error", "message": {"detail": [{"loc": ["body", "n"], "msg": WORDS}]}},
        (f"n: {WORDS}", None, "n"),
    ),
    "a text as detail": ({"detail": WORDS}, (WORDS, None, None)),
    "an object as detail": ({"detail": {"error": {"message": WORDS, "code": "c"}}}, (WORDS, "c", None)),
    "an object as a message": ({"error": {"message": {"text": 1, "message": WORDS}}}, (WORDS, None, None)),
    "error_msg": ({"error_code": 17, "error_msg": WORDS}, (WORDS, "17", None)),
    "errors": ({"success": False, "errors": [{"code": 7, "message": WORDS}]}, (WORDS, "7", None)),
    "errors as texts": ({"errors": [WORDS]}, (WORDS, None, None)),
    "Responses'": (
        {
            "type": "response.failed",
            "response": {"status": "failed", "error": {"code": "c", "message": WORDS}},
        },
        (WORDS, "c", None),
    ),
    "Responses', as a text": ({"type": "response.failed", "response": {"error": WORDS}}, (WORDS, None, None)),
    "an event of Responses": ({"type": "error", "code": "c", "message": WORDS}, (WORDS, "c", None)),
    "codes outside, words inside": ({"error": {"code": "c"}, "message": WORDS}, (WORDS, "c", None)),
    "errmsg": ({"errcode": 17, "errmsg": WORDS}, (WORDS, "17", None)),
    "msg with a code": ({"code": 17, "msg": WORDS}, (WORDS, "17", None)),
    "details as a text": ({"error": {"details": WORDS, "code": "c"}}, (WORDS, "c", None)),
    "a description": ({"error": "invalid", "error_description": WORDS}, (WORDS, None, None)),
    "the name of a status": ({"error": "Bad Request", "message": WORDS, "code": "c"}, (WORDS, "c", None)),
    "errors by their fields": ({"errors": {"model": [WORDS]}}, (f"model: {WORDS}", None, None)),
    "one error as errors": ({"errors": {"message": WORDS, "code": "c"}}, (WORDS, "c", None)),
    "a fault": ({"fault": {"faultstring": WORDS}}, (WORDS, None, None)),
    "AWS'": ({"__type": "ValidationException", "Message": WORDS}, (WORDS, None, None)),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_words_and_the_code_are_those_within(form: str) -> None:
    value, expected = FORMS[form]
    error = reported_error(value)
    assert error is not None
    assert (error.message, error.code, error.param) == expected


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_found_in_events_of_a_body(form: str) -> None:
    value, expected = FORMS[form]
    for body in (
        b": hello\n\nevent: error\ndata: " + encode(value) + b"\n\n",
        b'data: {"id": "x"}\n\nerror: ' + encode(value) + b"\n\n",
    ):
        error = reported_in(body)
        assert error is not None
        assert (error.message, error.code) == expected[:2]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"choices": [], "base_resp": {"status_code": 0, "status_msg": "success"}},
        {"error": None, "id": "x"},
        {"errors": []},
        {"message": "hello"},
        {"response": "hello"},
        {"type": "ping"},
        [],
        "error",
        None,
        7,
    ],
)
def test_a_frame_that_is_no_error(value: Any) -> None:
    assert error_in_frame(value) is None


def test_a_body_of_an_answer_that_is_no_error() -> None:
    for body in (b'{"code": 0, "data": []}', b'{"type": "message"}', b'{"pong": true}', b"data: x\n\n", b""):
        assert reported_in(body, within_answer=True) is None


@pytest.mark.parametrize("dialect", ["chat", "anthropic", "gemini", "responses"])
@pytest.mark.parametrize("form", FORMS)
def test_case_27_every_dialect_tells_a_failure_in_the_same_words(dialect: str, form: str) -> None:
    value, (message, code, _) = FORMS[form]
    machine = new_machine()
    inbound = dialects()[dialect].capture.inbound(machine)
    for frame in SSEDecoder().feed(b"event: error\ndata: " + encode(value) + b"\n\n"):
        inbound.feed(frame.data, frame.event)
    inbound.close()
    assert machine.snapshot.status == "failed"
    assert machine.snapshot.error is not None
    assert machine.snapshot.error.message == message
    assert code is None or machine.snapshot.error.code == code


@pytest.mark.parametrize("dialect", ["vscode"])
@pytest.mark.parametrize("form", [each for each in FORMS if isinstance(FORMS[each][0], dict)])
def test_case_27_so_do_streams_that_have_their_own_errors(dialect: str, form: str) -> None:
    value, (message, _, _) = FORMS[form]
    machine = new_machine()
    inbound = dialects()[dialect].capture.inbound(machine)
    inbound.feed(encode({"error": value}))
    inbound.close()
    assert machine.snapshot.error is not None
    assert machine.snapshot.error.message == message


def test_an_input_that_is_too_long_has_the_code_that_clients_know() -> None:
    words = "Input is too long for requested model."
    payload = payload_of({"error": {"code": 400, "type": "t", "message": words}})
    assert (payload.type, payload.code) == ("t", "context_length_exceeded")


def test_a_number_as_a_code_gives_way_to_the_one_of_its_cause() -> None:
    assert payload_of({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}).code == (
        "insufficient_quota"
    )
    assert payload_of({"error": {"code": 418, "message": WORDS}}).code == "418"


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    holders = st.sampled_from(
        ["error", "errors", "message", "detail", "metadata", "raw", "base_resp", "response", "code", "msg"]
    )
    return (
        st.dictionaries(holders, inner, max_size=3)
        | st.lists(inner, max_size=2)
        | inner.map(lambda value: encode(value).decode())
    )


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
LEAVES |= st.sampled_from([WORDS, "", " ", "{", "[]", '{"error": 1}', "data: {}\n\n", "\ud83d"[:0]])


@settings(deadline=None)
@given(st.recursive(LEAVES, nested, max_leaves=20))
def test_whatever_comes_is_read_without_an_exception_and_bounded(value: Any) -> None:
    error = reported_error(value)
    if error is not None:
        assert len(error.message or "") <= LONGEST_MESSAGE + 100
        assert all(len(each or "") <= 200 for each in (error.code, error.type))
    reported_in(encode(value))
    error_in_frame(value)
    assert payload_of(value).message


@settings(deadline=None)
@given(
    st.sampled_from(sorted(FORMS)),
    st.lists(st.sampled_from(["error", "detail", "message", "raw", "text", "list"]), max_size=2),
)
def test_words_come_through_whatever_is_around_them(form: str, wrapped: list[str]) -> None:
    value, (message, _, _) = FORMS[form]
    for each in wrapped:
        if each == "text":
            value = {"message": encode(value).decode()}
        elif each == "list":
            value = {"errors": [value]}
        elif each == "raw":
            value = {"error": {"message": "no", "metadata": {"raw": encode(value).decode()}}}
        else:
            value = {each: value}
    error = reported_error(value)
    assert error is not None
    assert error.message == message


def test_deep_and_long_errors_cost_little() -> None:
    value: Any = WORDS
    for _ in range(150):
        value = {"error": value}
    assert payload_of(value).message
    assert len(payload_of({"error": {"message": "x" * 10**6}}).message) == LONGEST_MESSAGE


FRAMES: dict[str, tuple[bytes, str]] = {
    # form → (data, name of the event)
    "msg with a code": (encode({"code": 7, "msg": WORDS}), ""),
    "AWS'": (encode({"__type": "ValidationException", "message": WORDS}), ""),
    "an array": (encode([{"error": {"message": WORDS}}]), ""),
    "a message that is an object": (
        encode({"object": "error", "message": {"detail": [{"msg": WORDS}]}, "type": "bad"}),
        "",
    ),
    "words": (WORDS.encode(), "error"),
    "a text": (encode(WORDS), "error"),
    "an error without a holder": (encode({"type": "bad_request", "message": WORDS}), "error"),
}
STREAMED = ("chat", "anthropic", "gemini", "responses", "interactions", "bedrock")


@pytest.mark.parametrize("form", FRAMES)
@pytest.mark.parametrize("dialect", STREAMED)
def test_each_frame_is_an_error_in_each_dialect(dialect: str, form: str) -> None:
    machine = new_machine()
    inbound = dialects()[dialect].capture.inbound(machine)
    inbound.feed(*FRAMES[form])
    inbound.close()
    assert machine.snapshot.error is not None
    assert machine.snapshot.error.message == WORDS


@pytest.mark.parametrize("name", ["ping", "keepalive", "keep-alive", "heartbeat"])
@pytest.mark.parametrize("data", [b"", b"ping", b"null", b'"ping"', b"keepalive"])
@pytest.mark.parametrize("dialect", STREAMED)
def test_what_keeps_a_connection_open_is_no_answer(dialect: str, data: bytes, name: str) -> None:
    machine = new_machine()
    inbound = dialects()[dialect].capture.inbound(machine)
    inbound.feed(data, name)
    assert machine.snapshot.error is None
    assert "keeps the connection open" in str([*machine.diagnostics]) or not data


@pytest.mark.parametrize("dialect", STREAMED)
def test_an_input_that_is_too_long_has_one_code_within_a_stream(dialect: str) -> None:
    machine = new_machine()
    inbound = dialects()[dialect].capture.inbound(machine)
    error = {
        "type": "invalid_request_error",
        "message": "prompt is too long: 9 tokens > 8 maximum",
        "code": 400,
    }
    inbound.feed(encode({"type": "error", "event_type": "error", "error": error}), "error")
    inbound.close()
    assert machine.snapshot.error is not None
    assert machine.snapshot.error.code == "context_length_exceeded"
