"""`Answer`: whatever a model yields, the stream or the body keeps every rule."""

import json
import logging
import math
import re
import tracemalloc
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge import HttpError, Usage
from openresponses_bridge.backend import (
    Answer,
    Finish,
    FinishReason,
    Output,
    Reasoning,
    ReasoningSummary,
    Refusal,
    ToolCall,
    ToolCallDelta,
    UrlCitation,
    chat_request,
    refusal,
)
from openresponses_bridge.dialects.table import surfaces
from openresponses_bridge.emitter.failures import outcome
from openresponses_bridge.errors import BridgeError, InvalidRequestError, LocalError
from openresponses_bridge.protocol.codec import encode
from tests.support.event_streams import events_of, violations

ASKED = {"model": "m", "input": "Hello"}
ASKED_OF_CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
ASKED_OF_ANTHROPIC = {**ASKED_OF_CHAT, "max_tokens": 50}
REQUESTS = {"responses": ASKED, "chat": ASKED_OF_CHAT, "anthropic": ASKED_OF_ANTHROPIC}

SCRIPTS: dict[str, list[Output]] = {
    "text": ["Hello, ", "world."],
    "reasoning before text": [Reasoning("hm"), Reasoning("m"), "Yes."],
    "a summary": [ReasoningSummary("It "), ReasoningSummary("thought."), "Yes."],
    "a refusal": [Refusal("I "), Refusal("won't.")],
    "a call": ["Let me look. ", ToolCall("lookup", {"city": "Paris"})],
    "calls written bit by bit": [
        ToolCallDelta(0, name="lookup", call_id="call_1"),
        ToolCallDelta(0, '{"city":'),
        ToolCallDelta(1, name="lookup", call_id="call_2"),
        ToolCallDelta(0, '"Paris"}'),
        ToolCallDelta(1, "{}"),
        ToolCall("lookup", "{}"),
    ],
    "text after a call": [ToolCall("lookup", {}), "Done."],
    "a citation": ["See this.", UrlCitation("https://example.org/", 0, 3, "Here")],
    "usage": ["Hi", Usage.of(3, 4, cached_tokens=1)],
    "cut at its limit": ["Hel", Finish("length")],
    "nothing": [],
    "empty texts": ["", "Hi", "", Reasoning("")],
    "halves of surrogate pairs": ["\ud83d", "\ude00 \ud83d", Reasoning("\ude00")],
    "line ends": ["a\r\n\ndata: b\n\n"],
}


def answer_to(**more: Any) -> Answer:
    """An answer whose ids and times are the same each time."""
    numbers = count()
    options: dict[str, Any] = {
        "ids": lambda prefix: f"{prefix}_{next(numbers)}",
        "clock": lambda: 1_750_000_000,
    }
    options |= {name: more.pop(name) for name in ("dialect", "request_headers", "max_output") if name in more}
    request = REQUESTS[options.get("dialect", "responses")]
    return Answer(encode(request | more), **options)


def spoken(answer: Answer, outputs: Iterable[Output]) -> bytes:
    return b"".join([*map(answer.feed, outputs), answer.end()])


@pytest.mark.parametrize("outputs", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_a_stream_keeps_every_rule_and_says_what_the_whole_answer_says(outputs: list[Output]) -> None:
    streamed = spoken(answer_to(stream=True), outputs)
    assert violations(streamed) == []
    whole = answer_to()
    assert spoken(whole, outputs) == b""
    head, body = whole.whole()
    assert head.status == 200
    assert json.loads(body) == events_of(streamed)[-1]["response"]


@pytest.mark.parametrize("outputs", SCRIPTS.values(), ids=SCRIPTS.keys())
@pytest.mark.parametrize("dialect", ["chat", "anthropic"])
def test_the_same_outputs_answer_clients_of_other_apis(dialect: str, outputs: list[Output]) -> None:
    stream = spoken(answer_to(dialect=dialect, stream=True), outputs)
    end = (
        b"data: [DONE]\n\n"
        if dialect == "chat"
        else b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )
    assert stream.endswith(end)
    assert b'"error"' not in stream
    answer = answer_to(dialect=dialect)
    spoken(answer, outputs)
    head, body = answer.whole()
    assert (head.status, "error" in json.loads(body)) == (200, False)


def test_items_are_what_was_yielded() -> None:
    answer = answer_to()
    spoken(
        answer, [Reasoning("hm"), "Hi", ToolCall("f", {"a": "ü"}, "call_7"), ToolCall("f", "{}", "call_7")]
    )
    reasoning, message, first, second = answer.response.output
    assert (reasoning.type, answer.response.output_text) == ("reasoning", "Hi")
    assert message.type == "message"
    assert (first.call_id, first.arguments) == ("call_7", '{"a":"ü"}')  # type: ignore[union-attr]
    assert second.call_id != "call_7"  # type: ignore[union-attr]


def test_calls_find_back_to_tools_that_are_not_functions() -> None:
    tools = [{"type": "custom", "name": "note"}, {"type": "local_shell"}]
    answer = answer_to(tools=tools)
    action = {"command": ["ls"], "env": {}, "type": "exec"}
    spoken(answer, [ToolCall("note", {"input": "buy milk"}), ToolCall("local_shell", action)])
    note, shell = answer.response.output
    assert (note.type, note.input) == ("custom_tool_call", "buy milk")  # type: ignore[union-attr]
    assert shell.type == "local_shell_call"


def test_the_request_in_the_shape_of_chat_names_tools_as_they_may_be_called() -> None:
    tools = [{"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]}]
    answer = answer_to(tools=tools, instructions="Be brief.")
    body = chat_request(answer.request)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    name = body["tools"][0]["function"]["name"]
    spoken(answer, [ToolCall(name, {})])
    assert (answer.response.output[0].name, answer.response.output[0].namespace) == ("find", "crm")  # type: ignore[union-attr]


def named_tools(**fields: Any) -> tuple[list[str], Any]:
    """The names of the tools of a Chat request, and its `tool_choice`."""
    body = chat_request(answer_to(tools=TOOLS, **fields).request)
    return [tool["function"]["name"] for tool in body.get("tools", ())], body.get("tool_choice")


TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "find"},
    {"type": "custom", "name": "note"},
    {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "list"}]},
]


def test_the_tools_of_the_shape_of_chat_are_those_that_may_be_called() -> None:
    assert named_tools() == (["find", "note", "crm__list"], None)
    assert named_tools(tool_choice="required") == (["find", "note", "crm__list"], "required")
    assert named_tools(tool_choice="none", parallel_tool_calls=False) == ([], None)
    for choice, name in (
        ({"type": "function", "name": "find"}, "find"),
        ({"type": "custom", "name": "note"}, "note"),
        ({"type": "function", "name": "list", "namespace": "crm"}, "crm__list"),
    ):
        assert named_tools(tool_choice=choice) == ([name], {"type": "function", "function": {"name": name}})
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "note"}]}
    assert named_tools(tool_choice=allowed) == (["note"], "auto")


def test_the_shape_of_chat_needs_no_model() -> None:
    assert chat_request(Answer({"input": "Hello"}).request) == {
        "messages": [{"role": "user", "content": "Hello"}]
    }


WRONG_BODIES: list[tuple[str, Any, str | None]] = [
    ("responses", b"{", None),
    ("responses", b"\xff", None),
    ("responses", "", None),
    ("responses", None, None),
    ("responses", [1], None),
    ("responses", 5, None),
    ("responses", {"input": 3}, "input"),
    ("responses", {"input": "a", "stream": "yes"}, "stream"),
    ("responses", {"input": [{"type": "message", "role": 1}]}, "input[0].role"),
    ("responses", {"input": "a", "previous_response_id": "resp_1"}, "previous_response_id"),
    ("responses", {"input": "a", "conversation": "conv_1"}, "conversation"),
    ("responses", {"input": "a", "background": True}, "background"),
    ("responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
    ("responses", {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input[0]"),
    (
        "responses",
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}]},
        "input[0]",
    ),
    (
        "responses",
        {"input": "a", "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "f"}]},
        "tools[1]",
    ),
    ("chat", {"model": "m"}, "messages"),
    ("chat", {**ASKED_OF_CHAT, "n": 2}, "n"),
    ("anthropic", {"model": "m", "max_tokens": 5, "messages": 3}, "messages"),
]


@pytest.mark.parametrize(("dialect", "body", "param"), WRONG_BODIES)
def test_a_body_that_can_t_be_honoured_is_refused_by_name(dialect: Any, body: Any, param: str | None) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Answer(body, dialect=dialect)
    assert (caught.value.http_status, caught.value.param) == (400, param)
    head, refused = refusal(caught.value, dialect)
    assert head.status == 400
    assert json.loads(refused)["error"]["message"]


def test_a_body_nested_beyond_reason_is_refused() -> None:
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(InvalidRequestError, match="nested"):
        Answer({"input": nested})


def test_a_backend_that_keeps_responses_gets_the_fields_that_need_it() -> None:
    answer = Answer({"input": "a", "previous_response_id": "resp_1"}, stateful=True)
    assert answer.request.previous_response_id == "resp_1"
    assert answer.response.store
    assert not answer_to(store=True).response.store, "what is not kept is not said to be"


WRONG_OUTPUTS: list[Any] = [
    None,
    b"bytes",
    {"text": "a"},
    ["a"],
    5,
    object,
    Reasoning(5),  # type: ignore[arg-type]
    Refusal(b"a"),  # type: ignore[arg-type]
    Finish(3),  # type: ignore[arg-type]
    Finish(None),  # type: ignore[arg-type]
    Finish("error"),  # type: ignore[arg-type]
    Finish("lenght"),  # type: ignore[arg-type]
    Finish("cancelled"),  # type: ignore[arg-type]
    Finish(""),  # type: ignore[arg-type]
    ToolCall("", {}),
    ToolCall(None, {}),  # type: ignore[arg-type]
    ToolCall("f", 5),  # type: ignore[arg-type]
    ToolCall("f", {}, 5),  # type: ignore[arg-type]
    ToolCall("f", {"a": math.nan}),
    ToolCallDelta("0", name="f"),  # type: ignore[arg-type]
    ToolCallDelta(-1, name="f"),
    ToolCallDelta(True, name="f"),
    ToolCallDelta(0, 5),  # type: ignore[arg-type]
    UrlCitation(5, 0, 1, "T"),  # type: ignore[arg-type]
    UrlCitation("https://a.test", "0", 1, "T"),  # type: ignore[arg-type]
    UrlCitation("https://a.test", 0, 1.5, "T"),  # type: ignore[arg-type]
    UrlCitation("https://a.test", 0, 1, None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("output", WRONG_OUTPUTS, ids=repr)
def test_what_is_not_an_output_is_refused_and_the_answer_can_end(output: Any) -> None:
    answer = answer_to(stream=True)
    stream = answer.feed("Hi")
    with pytest.raises(BridgeError) as caught:
        answer.feed(output)
    assert caught.value.http_status == 500
    stream += answer.fail(caught.value)
    assert violations(stream) == []
    error = events_of(stream)[-1]["response"]["error"]
    assert error == {"code": "internal_error", "message": "The server failed."}


@pytest.mark.parametrize("reason", get_args(FinishReason))
@pytest.mark.parametrize("dialect", ["responses", "chat", "anthropic"])
def test_each_reason_to_stop_ends_as_its_kin_does(dialect: str, reason: FinishReason) -> None:
    assert outcome(reason)[1], "a word that the machine knows"
    answer = answer_to(dialect=dialect)
    spoken(answer, ["Hi", Finish(reason)])
    assert answer.whole()[0].status == 200
    details = answer.response.incomplete_details
    assert (answer.response.status, details and details.reason) == {
        None: ("completed", None),
        "max_output_tokens": ("incomplete", "max_output_tokens"),
        "content_filter": ("incomplete", "content_filter"),
    }[outcome(reason)[0]]


def test_a_reason_that_is_none_says_which_are(caplog: pytest.LogCaptureFixture) -> None:
    answer = answer_to()
    answer.feed("Hi")
    with pytest.raises(LocalError, match=r"Finish: reason is one of stop, .*refusal, not 'lenght'") as caught:
        answer.feed(Finish("lenght"))  # type: ignore[arg-type]
    answer.fail(caught.value)
    assert json.loads(answer.whole()[1])["status"] == "failed"
    assert "not 'lenght'" in caplog.text


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_of_a_call_that_json_does_not_have_is_named_with_its_place(number: float) -> None:
    given = {"none": None, "at": [0.5, {"x": (1, number)}]}
    message = rf"ToolCall: arguments\.at\[1\]\.x\[1\] is {number}, which JSON can't represent"
    with pytest.raises(LocalError, match=message):
        answer_to().feed(ToolCall("f", given))
    answer = answer_to()
    spoken(answer, [ToolCall("f", {"none": None, "text": "null", "big": 1e308})])
    call = json.loads(answer.whole()[1])["output"][0]
    assert json.loads(call["arguments"]) == {"none": None, "text": "null", "big": 1e308}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_does_not_have_is_named_in_a_text_too(number: str) -> None:
    text = f'{{"none": null, "word": "NaN", "at": [0.5, {{"x": [1, {number}]}}], "b": NaN}}'
    message = rf"ToolCall: arguments\.at\[1\]\.x\[1\] is {float(number)}, which JSON can't represent"
    answer = answer_to(stream=True)
    for _ in range(2):
        with pytest.raises(LocalError, match=message):
            answer.feed(ToolCall("f", text))
    long = f'{{"a":{"1" * 5000},"b":{number}}}'
    with pytest.raises(LocalError, match=rf"arguments\.b is {float(number)},"):
        answer.feed(ToolCall("f", long))
    with pytest.raises(LocalError, match=rf"arguments is {float(number)},"):
        answer.feed(ToolCall("f", f" {number} "))


def test_e12_the_place_of_a_number_takes_memory_as_its_text_does() -> None:
    """Many values far within, each with a long path."""
    text = f'{{"{"k" * 60}":' * 400 + "[" + "1," * 20_000 + "NaN]" + "}" * 400
    tracemalloc.start()
    try:
        with pytest.raises(LocalError, match=r"k\[20000\] is nan, which JSON can't represent"):
            ToolCall("f", text).written()
        assert tracemalloc.get_traced_memory()[1] < 300 * len(text)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        '{"a":"NaN","Infinity":["-Infinity"]}',
        '{"a":1e400,"b":"NaN"}',
        '{"a": NaN',
        "NaN is no number",
        "[" * 100_000 + "NaN",
        '{"a":' * 400 + '"NaN"' + "}" * 400,
        '{"a":' + "1" * 5000 + ',"b":"Infinity"}',
    ],
    ids=["words", "too large", "cut", "prose", "deep", "deep words", "digits"],
)
def test_a_text_without_such_a_number_is_the_models_own(text: str) -> None:
    assert ToolCall("f", text).written().arguments == text


def test_what_is_wrong_in_an_output_is_named() -> None:
    with pytest.raises(LocalError, match="ToolCall: name must be a non-empty str, not ''"):
        answer_to().feed(ToolCall("", {}))
    with pytest.raises(LocalError, match=r"annotation: Expected `str`, got `null` - at `\$\.title`"):
        answer_to().feed(UrlCitation("https://a.test", 0, 1, None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": None}, "target must be a str, not None"),
        (
            {"request_headers": [("a", "b")]},
            "request_headers must be a mapping of str to str, not [('a', 'b')]",
        ),
        (
            {"request_headers": {b"a": b"b"}},
            "request_headers must be a mapping of str to str, not {b'a': b'b'}",
        ),
        ({"model": 5}, "model must be a str, not 5"),
        ({"stateful": "no"}, "stateful must be a bool, not 'no'"),
        ({"max_output": "5"}, "max_output must be a number of bytes above 0, not '5'"),
        ({"max_output": 0}, "max_output must be a number of bytes above 0, not 0"),
        ({"ids": 5}, "ids must be a callable, not 5"),
        ({"clock": 5}, "clock must be a callable, not 5"),
    ],
)
def test_options_of_a_wrong_type_are_named(options: Any, says: str) -> None:
    with pytest.raises(LocalError, match=re.escape(says)):
        Answer({"input": "Hello"}, **options)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"message": None}, "the message must be a str, not None"),
        (
            {"headers": {"retry-after": 5}},
            "headers must be a mapping of str to str, not {'retry-after': 5}",
        ),
        ({"headers": {"x-a": "b\r\nset-cookie: c"}}, "no header field (RFC 9110, 5.5) is 'x-a'"),
        ({"headers": {"x-a": "\u20ac"}}, "no header field (RFC 9110, 5.5) is 'x-a'"),
        ({"headers": {"x a": "b"}}, "no header field (RFC 9110, 5.5) is 'x a'"),
        ({"headers": {"": "b"}}, "no header field (RFC 9110, 5.5) is ''"),
    ],
)
def test_an_error_that_can_t_be_sent_is_logged_with_its_line(
    wrong: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise HttpError(**({"status": 400, "message": "no"} | wrong))

    with pytest.raises(HttpError) as caught:
        fail()
    head, body = answer_to(stream=True).refuse(caught.value)
    assert (head.status, json.loads(body)["error"]["code"]) == (500, "internal_error")
    assert set(head.headers) == {"content-type"}
    assert f"can't be sent: {says}" in caplog.text
    assert "in fail" in caplog.text


def test_an_error_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    answer_to().refuse(HttpError(400, "no\r\n2030-01-31 \x1b[2Jroot logged in"))
    assert (
        caplog.records[-1].getMessage().endswith(r"invalid_request: no\r\n2030-01-31 \x1b[2Jroot logged in")
    )


@pytest.mark.parametrize("value", [object(), {1, object()}, {"a": [object()]}])
def test_values_that_json_does_not_have_are_refused(value: Any) -> None:
    with pytest.raises(LocalError, match="arguments: "):
        answer_to().feed(ToolCall("f", {"a": value}))
    with pytest.raises(LocalError, match="the body of a request: "):
        Answer({"input": value})


def test_a_call_that_never_got_its_name_is_refused_at_the_end() -> None:
    answer = answer_to(stream=True)
    stream = answer.feed(ToolCallDelta(0, "{}"))
    with pytest.raises(BridgeError, match="name") as caught:
        answer.end()
    assert violations(stream + answer.fail(caught.value)) == []


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (Usage.of(-3, 2, reasoning_tokens=9, total_tokens=77), Usage.of(75, 2, reasoning_tokens=2)),
        (Usage.of(-3, 2, reasoning_tokens=9), Usage.of(0, 2, reasoning_tokens=2)),
        (Usage.of(-3, 2, total_tokens=-77), Usage.of(0, 2)),
        (Usage.of(3, 2, total_tokens=77), Usage.of(3, 2)),
    ],
)
def test_counts_that_can_t_be_are_put_right(given: Usage, taken: Usage) -> None:
    """What the total has beside the other count stands for one that can't be."""
    answer = answer_to()
    spoken(answer, ["Hi", given])
    assert answer.response.usage == taken


@pytest.mark.parametrize("output", ["aaaa", Reasoning("aaaa"), ToolCallDelta(0, "aaaa"), ToolCall("f", {})])
def test_a_model_that_never_ends_is_stopped(output: Output) -> None:
    answer = answer_to(stream=True, max_output=10_000)
    sent: list[bytes] = []
    with pytest.raises(HttpError, match="longer than the limit of 10000 bytes"):
        sent.extend(answer.feed(output) for _ in range(1_000))
    assert sum(map(len, sent)) < 100_000


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("secret"), "internal_error", "The server failed."),
        (HttpError(429, "Too fast.", headers={"Retry-After": "7"}), "rate_limit_exceeded", "Too fast."),
        (InvalidRequestError("invalid_value", "No.", param="input"), "invalid_value", "No."),
        (BridgeError("bridge.secret", "secret"), "internal_error", "The server failed."),
    ],
)
def test_failures(error: Exception, code: str, message: str, caplog: pytest.LogCaptureFixture) -> None:
    answer = answer_to(stream=True)
    stream = answer.feed("Hi") + answer.fail(error)
    assert violations(stream) == []
    failed = events_of(stream)[-1]
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"] == {"code": code, "message": message}
    assert failed["response"]["output"][0]["status"] == "incomplete"
    assert answer.fail(error) == b"", "it has ended"
    (record,) = caplog.records
    assert failed["response"]["id"] in record.message
    assert (record.levelno == logging.ERROR) == (code == "internal_error") == bool(record.exc_info)


@pytest.mark.parametrize("dialect", ["responses", "chat", "anthropic"])
def test_a_failure_before_any_output_is_an_http_error_in_the_shape_of_the_api(dialect: str) -> None:
    answer = answer_to(dialect=dialect, stream=True)
    busy = HttpError(429, "Too fast.", headers={"Retry-After": "7"})
    head, body = answer.refuse(busy)
    assert (head.status, head.headers["retry-after"]) == (429, "7")
    error = json.loads(body)["error"]
    assert error["message"] == "Too fast."
    assert error["type"] == ("rate_limit_error" if dialect == "anthropic" else "too_many_requests")
    whole = answer_to(dialect=dialect)
    whole.fail(busy)
    assert whole.whole() == (head, body)


def test_a_whole_answer_that_failed_in_the_middle_has_what_there_was_of_it() -> None:
    answer = answer_to()
    answer.feed("Hi")
    answer.fail(ValueError())
    head, body = answer.whole()
    assert (head.status, json.loads(body)["status"]) == (200, "failed")
    other = answer_to(dialect="chat")
    other.feed("Hi")
    other.fail(HttpError(503, "Gone."))
    assert other.whole()[0].status == 503, "Chat Completions has no form for that"


def test_a_status_that_is_not_an_error_s_is_500() -> None:
    assert answer_to().refuse(HttpError(200, "fine"))[0].status == 500


@pytest.mark.parametrize("dialect", ["responses", "chat", "anthropic"])
def test_keep_alives_are_skipped_by_clients_and_never_out_of_order(dialect: str) -> None:
    answer = answer_to(dialect=dialect, stream=True)
    stream = answer.keep_alive()
    assert stream
    assert answer.begun
    stream += answer.keep_alive() + answer.feed("Hi") + answer.keep_alive() + answer.end()
    assert answer.keep_alive() == b""
    if dialect == "responses":
        assert stream.count(b": keep-alive\n\n") == 2
        assert violations(stream) == []
    assert answer_to(dialect=dialect).keep_alive() == b"", "nothing is sent of a whole answer before its end"


def test_a_client_that_does_not_count_comments_gets_events() -> None:
    answer = answer_to(stream=True, request_headers={"User-Agent": "codex_cli_rs/0.50"})
    stream = answer.feed("Hi") + answer.keep_alive() + answer.end()
    assert "openresponses-bridge:keepalive" in [event["type"] for event in events_of(stream)]
    assert [event["sequence_number"] for event in events_of(stream)] == list(range(len(events_of(stream))))


def test_what_the_client_reads_is_known_by_its_headers_in_any_case() -> None:
    sdk = answer_to(stream=True, request_headers={"X-Stainless-Lang": "python"})
    assert b"response.reasoning_text.delta" in spoken(sdk, [Reasoning("hm")])
    assert b"response.reasoning.delta" in spoken(answer_to(stream=True), [Reasoning("hm")])


def test_what_the_response_calls_its_model() -> None:
    assert answer_to().response.model == "m"
    assert Answer({"input": "a"}).response.model == "model"
    assert Answer({"input": "a", "model": "m"}, model="mine").response.model == "mine"


def test_any_kind_of_text_is_text() -> None:
    class Token(str):
        __slots__ = ()

    answer = answer_to(stream=True)
    assert violations(spoken(answer, [Token("Hi")])) == []
    assert answer.response.output_text == "Hi"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, bytes.decode, json.loads])
def test_a_body_may_be_bytes_text_or_parsed(kind: Callable[[bytes], Any]) -> None:
    assert Answer(kind(encode(ASKED))).request.input == "Hello"


def test_a_dialect_that_does_not_exist_is_named() -> None:
    with pytest.raises(
        LocalError,
        match="chat, responses, anthropic, interactions, gemini, bedrock-invoke, bedrock, vscode, not 'open'",
    ):
        Answer(ASKED, dialect="open")


CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
AT_GOOGLE = "/v1beta/models/mine%2Fbest"
PLAIN = {
    **REQUESTS,
    "gemini": CONTENTS,
    "interactions": {"model": "m", "input": "Hello"},
    "bedrock": {"messages": [{"role": "user", "content": [{"text": "Hello"}]}]},
    "bedrock-invoke": {
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hello"}],
    },
    "vscode": {"model": "m", "messages": [{"role": 1, "content": "Hi"}]},
}


@pytest.mark.parametrize("dialect", surfaces())
def test_each_api_of_clients_has_its_form_of_answers_and_errors(dialect: str) -> None:
    answer = Answer(PLAIN[dialect], dialect=dialect)
    begun = answer.keep_alive()
    sent = begun + answer.feed("Hello") + answer.end()
    head, body = (answer.head, sent) if answer.streamed else answer.whole()
    assert head.status == 200
    assert head.headers["content-type"].startswith(("application/json", "application/jsonl"))
    assert b"Hello" in body
    with pytest.raises(InvalidRequestError):
        Answer(b"[]", dialect=dialect)
    head, body = refusal(HttpError(429, "Later.", headers={"retry-after": "3"}), dialect)
    assert (head.status, head.headers["retry-after"]) == (429, "3")
    refused = HttpError(429, "Later.", headers={"retry-after": "3"})
    assert body == surfaces()[dialect].error(refused)
    assert surfaces()[dialect].error_headers(refused).items() <= head.headers.items()


@pytest.mark.parametrize("mount", ["", "/google", "/v1"])
def test_a_path_of_gemini_has_the_model_and_says_whether_to_stream(mount: str) -> None:
    def asked(call: str) -> Answer:
        return Answer(CONTENTS, dialect="gemini", target=f"{mount}{AT_GOOGLE}:{call}")

    for call in ("generateContent", "generateContent?alt=sse&key=secret"):
        assert (asked(call).request.model, asked(call).streamed) == ("mine/best", False)
    events = asked("streamGenerateContent?alt=sse")
    assert events.feed("Hel").startswith(b'data: {"candidates":')
    assert events.keep_alive() == b"\n\n"
    array = asked("streamGenerateContent")
    assert (array.streamed, array.head.headers["content-type"]) == (True, "application/json; charset=utf-8")
    chunks = json.loads(array.feed("Hel") + array.feed("lo") + array.end())
    texts = [part["text"] for chunk in chunks for part in chunk["candidates"][0]["content"].get("parts", ())]
    assert "".join(texts) == "Hello"
    with pytest.raises(HttpError, match="only gives answers, not tokens"):
        asked("countTokens")


@pytest.mark.parametrize(
    ("target", "model", "streamed"),
    [
        ("?alt=sse", None, False),
        ("%" * 1000, None, False),
        ("/v1beta/models/:streamGenerateContent", "", True),
        ("/v1beta/models/%ff%00:generateContent?%zz&=&a", "\ufffd\x00", False),
        ("/x/v1beta/models/a/v1beta/models/b:generateContent", "a/v1beta/models/b", False),
    ],
)
def test_no_path_breaks_an_answer(target: str, model: str | None, streamed: bool) -> None:
    answer = Answer(CONTENTS, dialect="gemini", target=target)
    assert (answer.request.model, answer.streamed) == (model, streamed)
    assert answer.feed("Hi") + answer.end() != b"" or b"Hi" in answer.whole()[1]


def test_several_choices_are_refused_in_each_api() -> None:
    for dialect, body in (
        ("chat", {**ASKED_OF_CHAT, "n": 2}),
        ("gemini", {**CONTENTS, "generationConfig": {"candidateCount": 2}}),
    ):
        with pytest.raises(InvalidRequestError, match="this backend gives one choice"):
            Answer(body, dialect=dialect)


def test_parts_for_vs_code_end_with_a_line_of_the_error_where_asked() -> None:
    answer = Answer(PLAIN["vscode"], dialect="vscode", target="/vscode/v1/chat?errors=line")
    lines = (answer.feed("Hel") + answer.fail(HttpError(429, "Later."))).splitlines()
    assert answer.head.headers["content-type"] == "application/jsonl; charset=utf-8"
    assert json.loads(lines[0])["value"] == "Hel"
    assert json.loads(lines[-1])["error"]["code"] == "Blocked"
    with pytest.raises(InvalidRequestError, match="errors: expected one of"):
        Answer(PLAIN["vscode"], dialect="vscode", target="/vscode/v1/chat?errors=loud")


TEXTS = st.text(st.characters(exclude_categories=[]), max_size=8)
MAYBE = st.sampled_from([None, "c"])
OUTPUTS = st.one_of(
    TEXTS,
    st.builds(Reasoning, TEXTS),
    st.builds(ReasoningSummary, TEXTS),
    st.builds(Refusal, TEXTS),
    st.builds(ToolCall, st.sampled_from(["f", "note"]), st.dictionaries(TEXTS, TEXTS, max_size=2)),
    st.builds(ToolCall, st.just("f"), TEXTS, st.sampled_from([None, "call_1"])),
    st.builds(
        ToolCallDelta, st.integers(0, 2), TEXTS, st.sampled_from([None, "f"]), st.sampled_from([None, "c"])
    ),
    st.builds(Usage.of, st.integers(-5, 9), st.integers(-5, 9)),
    st.builds(Finish, st.sampled_from(["stop", "length", "content_filter", "x"])),
)


@given(outputs=st.lists(OUTPUTS, max_size=12), dialect=st.sampled_from([*REQUESTS]))
def test_whatever_is_yielded_gives_a_stream_that_keeps_every_rule(outputs: list[Any], dialect: str) -> None:
    """Or a failure that does; and the whole answer says the same."""
    results = []
    for streamed in (True, False):
        answer = answer_to(dialect=dialect, stream=streamed)
        stream = b""
        try:
            for output in outputs:
                stream += answer.feed(output)
            stream += answer.end()
        except BridgeError as error:
            stream += answer.fail(error)
        assert answer.ended
        results.append((answer.response, stream))
    assert results[0][0] == results[1][0]
    assert results[1][1] == b""
    if dialect == "responses":
        assert violations(results[0][1]) == []


LOSING = {"input": "Hi", "top_k": 3, "truncation": "auto"}
LOST = "truncation: a conversation that is too long is not shortened; top_k: can't be expressed"


@pytest.mark.parametrize("stream", [True, False])
def test_t4_what_a_chat_request_loses_is_in_the_header_and_the_log(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "openresponses_bridge.backend")
    answer = Answer({**LOSING, "stream": stream})
    assert "openresponses-losses" not in answer.head.headers
    chat_request(answer.request)
    answer.feed("Hello")
    answer.end()
    head = answer.head if stream else answer.whole()[0]
    assert head.headers["openresponses-losses"] == LOST
    assert all(f"loss: {each}" in caplog.text for each in LOST.split("; "))


def test_t4_what_a_client_of_another_api_loses_is_in_the_header_too() -> None:
    fields = {"messages": [{"role": "user", "content": "Hello", "odd": 1}], "modalities": ["audio"]}
    answer = Answer({**ASKED_OF_CHAT, "stream": True, **fields}, dialect="chat")
    assert answer.head.headers["openresponses-losses"] == "messages[0].odd: can't be expressed"
    # what Chat alone has is passed to a model of Chat
    assert chat_request(answer.request)["modalities"] == ["audio"]


def test_t4_of_a_request_of_ones_own_it_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "openresponses_bridge.backend")
    chat_request(Answer(LOSING).request)  # whose answer is gone
    assert "chat_request: loss: top_k: can't be expressed" in caplog.text
