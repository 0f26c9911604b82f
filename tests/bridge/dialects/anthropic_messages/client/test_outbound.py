"""Events → Anthropic streams: blocks one after the other, and truthful ends."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.dialects.anthropic_messages import Outbound, encode_sse, error_body
from bridge.dialects.anthropic_messages.envelopes import open_sealed, seal_block
from bridge.protocol import items as it
from bridge.protocol.content import OutputTextContent, SummaryTextContent
from bridge.protocol.events import (
    ErrorEvent,
    OutputTextDelta,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
)
from bridge.protocol.response import IncompleteDetails, replace
from bridge.protocol.unknown import UnknownEvent, UnknownItem
from bridge.protocol.usage import Usage
from bridge.seal import Sealer
from bridge.tools.identity import ToolIdentityMap, ToolKind
from tests.support.anthropic import add_up, parse_sse
from tests.support.machines import machine


class Told:
    """Machine calls, and the Anthropic stream that they become."""

    def __init__(self, wire="openai", identities=None, **options):
        self.machine = machine(wire, identities=identities)
        self.outbound = Outbound(**options)
        self.chunks = []
        self("start")

    def __call__(self, call, *arguments, **named):
        made = [
            chunk
            for event in getattr(self.machine, call)(*arguments, **named)
            for chunk in self.outbound.feed(event)
        ]
        found = parse_sse(encode_sse(made))
        self.chunks += found
        return found

    def end(self, reason=None):
        self("finish", reason)
        assert self.outbound.close() == []
        return add_up(self.chunks)

    def lost(self):
        return [case.where for case in self.outbound.diagnostics if case.kind == "loss"]


def kinds(chunks):
    return [chunk["type"] for chunk in chunks]


# ── beginning and end ──────────────────────────────────────────────────────────────────────────────
def test_message_start_comes_first_with_an_estimate():
    told = Told(input_tokens=42)
    (first,) = told.chunks
    message = first["message"]
    assert (message["id"], message["role"], message["model"], message["content"]) == (
        "resp_0",
        "assistant",
        "m",
        [],
    )
    assert message["usage"] == {"input_tokens": 42, "output_tokens": 0}
    assert (message["stop_reason"], message["stop_sequence"]) == (None, None)


def test_text_is_one_block_opened_by_its_first_delta():
    told = Told()
    told("text", "Hel")
    told("text", "lo")
    assert told.end()["content"] == [{"type": "text", "text": "Hello"}]
    assert kinds(told.chunks) == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_usage_is_in_message_delta_cached_input_apart():
    told = Told()
    told("usage", Usage.of(100, 20, cached_tokens=30, reasoning_tokens=5))
    assert told.end()["usage"] == {
        "input_tokens": 70,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 30,
        "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 5},
    }


@pytest.mark.parametrize(
    ("reason", "told_as"), [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal")]
)
def test_e7_stop_reasons(reason, told_as):
    told = Told()
    told("text", "x")
    assert told.end(reason)["stop_reason"] == told_as


def test_stop_reason_is_tool_use_iff_a_call_is_whole():
    told = Told()
    told("tool_call", 0, "c1", "f", '{"a":1}')
    assert told.end()["stop_reason"] == "tool_use"
    cut = Told()
    cut("tool_call", 0, "c1", "f", '{"a":')
    cut("finish", "tool_calls")
    assert cut.chunks[-2]["delta"]["stop_reason"] == "max_tokens"


def test_e8_a_failure_is_an_error_event_and_closes_nothing():
    told = Told()
    told("tool_call", 0, "c1", "f", '{"a":')
    told("fail", {"code": "rate_limit_exceeded", "message": "slow down"})
    assert kinds(told.chunks)[-2:] == ["content_block_delta", "error"]
    assert told.chunks[-1]["error"] == {"type": "rate_limit_error", "message": "slow down"}
    assert told.outbound.close() == []


@pytest.mark.parametrize(
    ("code", "kind", "expected"),
    [
        ("overloaded_error", None, "overloaded_error"),
        ("server_is_overloaded", "server_error", "overloaded_error"),
        ("context_length_exceeded", None, "invalid_request_error"),
        (None, "invalid_request_error", "invalid_request_error"),
        ("weird", "too_many_requests", "rate_limit_error"),
        ("weird", "odd", "api_error"),
        (None, None, "api_error"),
    ],
)
def test_errors_are_named_in_anthropics_words(code, kind, expected):
    assert error_body(code, kind, "m") == {"type": "error", "error": {"type": expected, "message": "m"}}


def test_the_type_of_the_error_event_counts_when_the_code_says_nothing():
    told = Told("openresponses")  # the other wire's error event has no type
    told("fail", {"type": "invalid_request_error", "code": "odd", "message": "m"})
    assert told.chunks[-1]["error"]["type"] == "invalid_request_error"


def test_a_cancelled_response_is_an_error_not_an_end():
    for wire in ("openai", "openresponses"):
        told = Told(wire)
        told("text", "x")
        told("cancel")
        assert kinds(told.chunks)[-1] == "error"


def test_an_unknown_reason_is_told_as_a_limit_with_a_loss():
    told = Told()
    told("text", "x")
    terminal = told.machine.finish("length")[-1]
    response = replace(terminal.response, incomplete_details=IncompleteDetails("max_tool_calls"))
    chunks = told.outbound.feed(ResponseIncomplete(terminal.sequence_number, response))
    assert chunks[-2].delta["stop_reason"] == "max_tokens"
    assert told.lost() == ["incomplete_details.reason"]


def test_events_that_end_early_are_an_error():
    told = Told()
    told("text", "x")
    (chunk,) = told.outbound.close()
    assert chunk.error == {"type": "api_error", "message": "the response ended early"}
    assert told.outbound.close() == []


def test_an_error_event_without_its_failed_response_is_told_at_the_close():
    outbound = Outbound()
    assert outbound.feed(ErrorEvent(0, code="rate_limit_exceeded", message="m")) == []
    assert outbound.close()[0].error == {"type": "rate_limit_error", "message": "m"}


def test_a_failure_before_anything_else_still_starts_the_message():
    first = machine()
    first.start()
    failed = first.fail("down")[-1]
    assert isinstance(failed, ResponseFailed)
    chunks = Outbound().feed(failed)
    assert [chunk.__struct_config__.tag for chunk in chunks] == ["message_start", "error"]


def test_a_second_terminal_or_created_event_says_nothing():
    told = Told()
    created = ResponseCreated(0, told.machine.snapshot)
    assert told.outbound.feed(created) == []
    terminal = told.machine.finish()[-1]
    assert told.outbound.feed(terminal)
    assert told.outbound.feed(terminal) == []


# ── reasoning ──────────────────────────────────────────────────────────────────────────────────────
def test_reasoning_of_another_upstream_is_sealed_into_the_signature():
    sealer = Sealer(b"k" * 16)
    told = Told(sealer=sealer)
    told("reasoning_summary", "first", 0)
    told("reasoning_summary", "second", 1)
    told("reasoning_encrypted", "gAAAA-opaque")
    told("text", "x")
    block = told.end()["content"][0]
    assert (block["type"], block["thinking"]) == ("thinking", "first\n\nsecond")
    kind, fields = open_sealed(sealer, block["signature"])
    assert kind == "responses-reasoning"
    assert (fields["summary"], fields["encrypted_content"]) == (["first", "second"], "gAAAA-opaque")


def test_thinking_that_a_client_kept_only_sealed_is_shown_again():
    block = {"type": "thinking", "thinking": "hm", "signature": "s"}
    told = Told()
    told("item", it.ReasoningItem("rs_1", [], encrypted_content=seal_block(Sealer(), block)))
    told("text", "x")
    assert told.end()["content"][0] == block


def test_opaque_reasoning_without_words_is_a_redacted_block():
    told = Told()
    told("reasoning_encrypted", "gAAAA-opaque")
    told("text", "x")
    block = told.end()["content"][0]
    assert block["type"] == "redacted_thinking"
    assert open_sealed(Sealer(), block["data"])[1]["encrypted_content"] == "gAAAA-opaque"


def test_unsigned_reasoning_is_shown_and_reported():
    told = Told()
    told("reasoning", "hm")
    told("text", "x")
    assert told.end()["content"][0] == {"type": "thinking", "thinking": "hm", "signature": ""}
    assert told.lost() == ["reasoning"]


def test_the_second_form_of_the_same_reasoning_is_a_loss():
    told = Told()
    told("reasoning", "raw")
    told("reasoning_summary", "short")
    assert told.end("length")["content"][0]["thinking"] == "raw"
    assert "reasoning.summary" in told.lost()


def test_an_empty_reasoning_item_is_no_block():
    told = Told()
    told("item", it.ReasoningItem("rs_1", [], status="completed"))
    assert told.end()["content"] == []
    assert told.lost() == []


def test_a_summary_that_was_given_whole_is_thinking():
    told = Told()
    told(
        "item",
        it.ReasoningItem("rs_1", [SummaryTextContent("a"), SummaryTextContent("b")], status="completed"),
    )
    assert told.end("length")["content"][0]["thinking"] == "a\n\nb"


# ── calls ──────────────────────────────────────────────────────────────────────────────────────────
def test_arguments_stream_as_input_json():
    told = Told()
    told("tool_call", 0, "c1", "f", '{"a"')
    assert told("tool_call", 0, arguments=":1}")[0]["delta"] == {
        "type": "input_json_delta",
        "partial_json": ":1}",
    }
    assert told.end()["content"] == [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]


def test_calls_side_by_side_become_blocks_one_after_the_other():
    told = Told()
    told("tool_call", 0, "c1", "f", '{"a":')
    assert told("tool_call", 1, "c2", "g", '{"b":') == []
    assert told("tool_call", 2, "c3", "h", "{}") == []
    assert told("tool_call", 1, arguments="2}") == []
    assert kinds(told("tool_call", 0, arguments="1}")) == ["content_block_delta"]
    told("tool_call_done", 1)
    assert kinds(told("tool_call_done", 0))[0] == "content_block_stop"
    content = told.end()["content"]
    assert [(block["name"], block["input"]) for block in content] == [
        ("f", {"a": 1}),
        ("g", {"b": 2}),
        ("h", {}),
    ]


def test_what_waits_is_told_when_the_response_fails():
    told = Told()
    told("tool_call", 0, "c1", "f", '{"a":')
    told("tool_call", 1, "c2", "g", '{"b":')
    told("fail", "down")
    starts = [
        chunk["content_block"]["name"] for chunk in told.chunks if chunk["type"] == "content_block_start"
    ]
    assert starts == ["f", "g"]


@given(text=st.text(st.characters(codec="utf-8")), data=st.data())
def test_e11_a_custom_call_streams_as_an_input_object(text, data):
    told = Told(identities=_custom("patch"))
    cut = data.draw(st.integers(0, len(text)))
    told("tool_call", 0, "c1", "patch", text[:cut], type="custom")
    told("tool_call", 0, arguments=text[cut:], type="custom")
    assert told.end()["content"] == [
        {"type": "tool_use", "id": "c1", "name": "patch", "input": {"input": text}}
    ]


def test_a_custom_call_that_is_cut_is_not_closed_as_json():
    told = Told(identities=_custom("patch"))
    told("tool_call", 0, "c1", "patch", "*** Begin", type="custom")
    told("finish", "length")
    pieces = [
        chunk["delta"]["partial_json"] for chunk in told.chunks if chunk["type"] == "content_block_delta"
    ]
    assert "".join(pieces) == '{"input":"*** Begin'


def _custom(name):
    identities = ToolIdentityMap()
    identities.declare(ToolKind.CUSTOM, name)
    return identities


def test_a_shell_call_comes_whole():
    told = Told()
    told("item", it.ShellCall("sh_1", "c1", it.ShellAction(["ls"]), "completed"))
    message = told.end()
    assert message["content"] == [
        {"type": "tool_use", "id": "c1", "name": "shell", "input": {"commands": ["ls"]}}
    ]
    assert message["stop_reason"] == "tool_use"


def test_a_namespaced_call_has_the_name_the_upstream_knows():
    identities = ToolIdentityMap()
    identity = identities.declare(ToolKind.FUNCTION, "read file", "fs")
    told = Told(tool_identities=identities)
    told("item", it.FunctionCall("fc_1", "c1", "read file", "{}", "completed", "fs"))
    told("item", it.FunctionCall("fc_2", "c2", identity.upstream_name, "{}", "completed"))
    assert [block["name"] for block in told.end()["content"]] == [identity.upstream_name] * 2


# ── refusals, citations, other items ───────────────────────────────────────────────────────────────
def test_a_refusal_in_the_models_words_is_text():
    told = Told()
    told("refusal", "I ")
    told("refusal", "won't.")
    message = told.end()
    assert message["content"] == [{"type": "text", "text": "I won't."}]
    assert message["stop_reason"] == "refusal"
    assert told.lost() == ["refusal"]


def test_a_refusal_of_the_api_is_explained_beside_the_reason():
    told = Told()
    told("refusal", "Policy.")
    message = told.end("content_filter")
    assert message["content"] == []
    assert message["stop_details"] == {"type": "refusal", "category": None, "explanation": "Policy."}


def test_a_citation_hangs_on_its_block():
    told = Told()
    told("text", "x")
    told(
        "annotation",
        {"type": "url_citation", "url": "https://a", "title": "A", "start_index": 0, "end_index": 1},
    )
    told("annotation", {"type": "file_path", "file_id": "f", "index": 0})
    (block,) = told.end()["content"]
    assert [(c["url"], c["title"]) for c in block["citations"]] == [("https://a", "A")]
    assert told.lost() == ["annotation.range", "annotation"]


def test_items_that_have_no_block_are_losses():
    told = Told()
    told("item", UnknownItem({"type": "web_search_call", "id": "ws_1", "status": "completed"}))
    told("item", UnknownItem({"type": "anthropic:odd", "id": "x", "status": "completed"}))
    told("item", it.CompactionItem("cmp_1", "opaque"))
    told("item", it.CompactionItem("cmp_2", Sealer().seal(b"{}", "other")))
    told("item", it.ToolSearchOutput("tso_1", []))
    assert told.end()["content"] == []
    assert told.lost() == [
        "item.web_search_call",
        "item.anthropic:odd",
        "item.compaction",
        "item.tool_search_output",
    ]


def test_extension_events_that_are_not_anthropics_are_ignored():
    told = Told()
    told("extension_event", "openai:progress", {"x": 1})
    told("extension_event", "anthropic:container", {"container": {"id": "c"}})
    told("extension_event", "anthropic:container", {"container": "odd"})
    assert told.end()["container"] == {"id": "c"}
    ignored = [case.where for case in told.outbound.diagnostics if case.kind == "ignored"]
    assert ignored == ["event.openai:progress", "event.anthropic:container"]


def test_events_of_other_servers_without_meaning_here_say_nothing():
    told = Told()
    assert told.outbound.feed(UnknownEvent({"type": "response.web_search_call.searching"})) == []


def test_an_event_after_its_item_is_ignored():
    told = Told()
    told("item", it.Message("msg_1", "completed", "assistant", [OutputTextContent("x", [], [])]))
    assert told.outbound.feed(OutputTextDelta(99, "msg_1", 0, 0, "late", [])) == []
    assert told.end()["content"] == [{"type": "text", "text": "x"}]


def test_empty_deltas_say_nothing():
    told = Told()
    told("text", "x")
    assert told.outbound.feed(OutputTextDelta(99, "msg_1", 0, 0, "", [])) == []


def test_frames_are_named_as_anthropics_clients_want_them():
    told = Told()
    made = [chunk for event in told.machine.text("ä") for chunk in told.outbound.feed(event)]
    first, second, _ = encode_sse(made).split(b"\n\n")
    assert first.startswith(b'event: content_block_start\ndata: {"type":"content_block_start","index":0,')
    payload = json.loads(second.split(b"data: ")[1])
    assert payload == {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "ä"},
    }


def test_a_summary_that_travels_with_the_sealed_reasoning_is_not_a_loss():
    sealer = Sealer()
    told = Told(sealer=sealer)
    told("reasoning", "Two and two")
    told("reasoning_summary", "Adding")
    told("reasoning_encrypted", "another upstream's")
    told("block_done")
    message = told.end()
    _, sealed = open_sealed(sealer, message["content"][0]["signature"])
    assert sealed["summary"] == ["Adding"]
    assert told.lost() == []


@pytest.mark.parametrize("end", [("finish", None), ("fail", "no")], ids=["finished", "failed"])
def test_a_summary_that_goes_nowhere_is_a_loss(end):
    told = Told()
    told("reasoning", "Two and two")
    told("reasoning_summary", "Adding")
    told(*end)
    assert "reasoning.summary" in told.lost()


def test_raw_reasoning_beside_its_summary_is_a_loss_even_when_it_is_sealed():
    told = Told()
    told("reasoning_summary", "Adding")
    told("reasoning", "Two and two")
    told("reasoning_encrypted", "another upstream's")
    told.end()
    assert told.lost() == ["reasoning.content"]
