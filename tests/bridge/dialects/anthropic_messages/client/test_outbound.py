"""Events → Anthropic streams: blocks one after the other, and the end that the response had."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from openresponses_bridge.calls.identity import ToolIdentityMap, ToolKind
from openresponses_bridge.dialects.anthropic_messages import Outbound, encode_sse, error_body
from openresponses_bridge.dialects.anthropic_messages import types as t
from openresponses_bridge.dialects.anthropic_messages.thinking import open_sealed, seal_block
from openresponses_bridge.protocol import items as it
from openresponses_bridge.protocol.content import OutputTextContent, SummaryTextContent
from openresponses_bridge.protocol.events import (
    ErrorEvent,
    OutputTextDelta,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
)
from openresponses_bridge.protocol.response import IncompleteDetails
from openresponses_bridge.protocol.unknown import UnknownEvent, UnknownItem
from openresponses_bridge.protocol.usage import Usage
from openresponses_bridge.seal import Sealer
from tests.support.anthropic import add_up, parse_sse
from tests.support.machines import machine


class Sent:
    """Machine calls, and the Anthropic stream that they become."""

    def __init__(self, wire="openai", identities=None, **options):
        self.machine = machine(wire, identities=identities)
        self.outbound = Outbound(**options)
        self.chunks = []
        self("start")

    def __call__(self, call, *arguments, **named):
        chunks = [
            chunk
            for event in getattr(self.machine, call)(*arguments, **named)
            for chunk in self.outbound.feed(event)
        ]
        parsed = parse_sse(encode_sse(chunks))
        self.chunks += parsed
        return parsed

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
    sent = Sent(input_tokens=42)
    (first,) = sent.chunks
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
    sent = Sent()
    sent("text", "Hel")
    sent("text", "lo")
    assert sent.end()["content"] == [{"type": "text", "text": "Hello"}]
    assert kinds(sent.chunks) == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_usage_is_in_message_delta_cached_input_apart():
    sent = Sent()
    sent("usage", Usage.of(100, 20, cached_tokens=30, reasoning_tokens=5))
    assert sent.end()["usage"] == {
        "input_tokens": 70,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 30,
        "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 5},
    }


@pytest.mark.parametrize(
    ("reason", "sent_as"), [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal")]
)
def test_e7_stop_reasons(reason, sent_as):
    sent = Sent()
    sent("text", "x")
    assert sent.end(reason)["stop_reason"] == sent_as


def test_stop_reason_is_tool_use_iff_a_call_is_whole():
    sent = Sent()
    sent("tool_call", 0, "c1", "f", '{"a":1}')
    assert sent.end()["stop_reason"] == "tool_use"
    cut = Sent()
    cut("tool_call", 0, "c1", "f", '{"a":')
    cut("finish", "tool_calls")
    assert cut.chunks[-2]["delta"]["stop_reason"] == "max_tokens"


def test_e8_a_failure_is_an_error_event_and_closes_nothing():
    sent = Sent()
    sent("tool_call", 0, "c1", "f", '{"a":')
    sent("fail", {"code": "rate_limit_exceeded", "message": "slow down"})
    assert kinds(sent.chunks)[-2:] == ["content_block_delta", "error"]
    assert sent.chunks[-1]["error"] == {"type": "rate_limit_error", "message": "slow down"}
    assert sent.outbound.close() == []


@pytest.mark.parametrize(
    ("code", "kind", "expected"),
    [
        ("overloaded_error", None, "overloaded_error"),
        ("server_is_overloaded", "server_error", "overloaded_error"),
        (None, "invalid_request_error", "invalid_request_error"),
        ("weird", "too_many_requests", "rate_limit_error"),
        ("weird", "odd", "api_error"),
        (None, None, "api_error"),
    ],
)
def test_errors_are_named_in_anthropics_words(code, kind, expected):
    assert error_body(code, kind, "m") == {"type": "error", "error": {"type": expected, "message": "m"}}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("All messages together are too long.", "prompt is too long: All messages together are too long."),
        (
            "maximum allowed input length of 800 tokens",
            "prompt is too long: maximum allowed input length of 800 tokens",
        ),
        (
            "exceeded model token limit: 8 (requested: 9)",
            "prompt is too long: 9 tokens > 8 maximum: exceeded model token limit: 8 (requested: 9)",
        ),
        ("Prompt is too long: 9 tokens > 8 maximum", "Prompt is too long: 9 tokens > 8 maximum"),
        (
            "input length and `max_tokens` exceed context limit: 5 + 4 > 8",
            "input length and `max_tokens` exceed context limit: 5 + 4 > 8",
        ),
    ],
)
def test_an_input_that_is_too_long_is_told_in_the_words_that_clients_shorten_it_for(said, told):
    code = "context_length_exceeded"
    assert error_body(code, None, said, 400)["error"] == {"type": "invalid_request_error", "message": told}
    sent = Sent()
    sent("text", "x")
    sent("fail", {"code": code, "message": said})
    assert sent.chunks[-1]["error"] == {"type": "invalid_request_error", "message": told}


def test_a_request_with_too_many_bytes_keeps_its_words_and_one_with_too_many_tokens_does_not():
    code = "context_length_exceeded"
    body = error_body(code, "request_too_large", "Too many bytes", 413)
    assert body["error"] == {"type": "request_too_large", "message": "Too many bytes"}
    assert error_body(code, "tokens", "Too large", 413)["error"]["message"] == "prompt is too long: Too large"


def test_the_type_of_the_error_event_counts_when_the_code_says_nothing():
    sent = Sent("openresponses")  # the other wire's error event has no type
    sent("fail", {"type": "invalid_request_error", "code": "odd", "message": "m"})
    assert sent.chunks[-1]["error"]["type"] == "invalid_request_error"


def test_a_cancelled_response_is_an_error_not_an_end():
    for wire in ("openai", "openresponses"):
        sent = Sent(wire)
        sent("text", "x")
        sent("cancel")
        assert kinds(sent.chunks)[-1] == "error"


def test_an_unknown_reason_is_reported_as_a_limit_with_a_loss():
    sent = Sent()
    sent("text", "x")
    terminal = sent.machine.finish("length")[-1]
    response = replace(terminal.response, incomplete_details=IncompleteDetails("max_tool_calls"))
    chunks = sent.outbound.feed(ResponseIncomplete(terminal.sequence_number, response))
    assert chunks[-2].delta["stop_reason"] == "max_tokens"
    assert sent.lost() == ["incomplete_details.reason"]


def test_events_that_end_early_are_an_error():
    sent = Sent()
    sent("text", "x")
    (chunk,) = sent.outbound.close()
    assert chunk.error == {"type": "api_error", "message": "the response ended early"}
    assert sent.outbound.close() == []


def test_an_error_event_without_its_failed_response_is_reported_at_the_close():
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
    sent = Sent()
    created = ResponseCreated(0, sent.machine.snapshot)
    assert sent.outbound.feed(created) == []
    terminal = sent.machine.finish()[-1]
    assert sent.outbound.feed(terminal)
    assert sent.outbound.feed(terminal) == []


# ── reasoning ──────────────────────────────────────────────────────────────────────────────────────
def test_reasoning_of_another_upstream_is_sealed_into_the_signature():
    sealer = Sealer(b"k" * 16)
    sent = Sent(sealer=sealer)
    sent("reasoning_summary", "first", 0)
    sent("reasoning_summary", "second", 1)
    sent("reasoning_encrypted", "gAAAA-opaque")
    sent("text", "x")
    block = sent.end()["content"][0]
    assert (block["type"], block["thinking"]) == ("thinking", "first\n\nsecond")
    kind, fields = open_sealed(sealer, block["signature"])
    assert kind == "responses-reasoning"
    assert (fields["summary"], fields["encrypted_content"]) == (["first", "second"], "gAAAA-opaque")


def test_thinking_that_a_client_kept_only_sealed_is_shown_again():
    block = {"type": "thinking", "thinking": "hm", "signature": "s"}
    sent = Sent()
    sent("item", it.ReasoningItem("rs_1", [], encrypted_content=seal_block(Sealer(), block)))
    sent("text", "x")
    assert sent.end()["content"][0] == block


def test_opaque_reasoning_without_words_is_a_redacted_block():
    sent = Sent()
    sent("reasoning_encrypted", "gAAAA-opaque")
    sent("text", "x")
    block = sent.end()["content"][0]
    assert block["type"] == "redacted_thinking"
    assert open_sealed(Sealer(), block["data"])[1]["encrypted_content"] == "gAAAA-opaque"


def test_unsigned_reasoning_is_shown_and_reported():
    sent = Sent()
    sent("reasoning", "hm")
    sent("text", "x")
    assert sent.end()["content"][0] == {"type": "thinking", "thinking": "hm", "signature": ""}
    assert sent.lost() == ["reasoning"]


def test_the_second_form_of_the_same_reasoning_is_a_loss():
    sent = Sent()
    sent("reasoning", "raw")
    sent("reasoning_summary", "short")
    assert sent.end("length")["content"][0]["thinking"] == "raw"
    assert "reasoning.summary" in sent.lost()


def test_an_empty_reasoning_item_is_no_block():
    sent = Sent()
    sent("item", it.ReasoningItem("rs_1", [], status="completed"))
    assert sent.end()["content"] == []
    assert sent.lost() == []


def test_a_summary_that_was_given_whole_is_thinking():
    sent = Sent()
    sent(
        "item",
        it.ReasoningItem("rs_1", [SummaryTextContent("a"), SummaryTextContent("b")], status="completed"),
    )
    assert sent.end("length")["content"][0]["thinking"] == "a\n\nb"


# ── calls ──────────────────────────────────────────────────────────────────────────────────────────
def test_arguments_stream_as_input_json():
    sent = Sent()
    sent("tool_call", 0, "c1", "f", '{"a"')
    assert sent("tool_call", 0, arguments=":1}")[0]["delta"] == {
        "type": "input_json_delta",
        "partial_json": ":1}",
    }
    assert sent.end()["content"] == [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]


def test_calls_side_by_side_become_blocks_one_after_the_other():
    sent = Sent()
    sent("tool_call", 0, "c1", "f", '{"a":')
    assert sent("tool_call", 1, "c2", "g", '{"b":') == []
    assert sent("tool_call", 2, "c3", "h", "{}") == []
    assert sent("tool_call", 1, arguments="2}") == []
    assert kinds(sent("tool_call", 0, arguments="1}")) == ["content_block_delta"]
    sent("tool_call_done", 1)
    assert kinds(sent("tool_call_done", 0))[0] == "content_block_stop"
    content = sent.end()["content"]
    assert [(block["name"], block["input"]) for block in content] == [
        ("f", {"a": 1}),
        ("g", {"b": 2}),
        ("h", {}),
    ]


def test_what_waits_is_sent_when_the_response_fails():
    sent = Sent()
    sent("tool_call", 0, "c1", "f", '{"a":')
    sent("tool_call", 1, "c2", "g", '{"b":')
    sent("fail", "down")
    starts = [
        chunk["content_block"]["name"] for chunk in sent.chunks if chunk["type"] == "content_block_start"
    ]
    assert starts == ["f", "g"]


@given(text=st.text(st.characters(codec="utf-8")), data=st.data())
def test_e11_a_custom_call_streams_as_an_input_object(text, data):
    sent = Sent(identities=_custom("patch"))
    cut = data.draw(st.integers(0, len(text)))
    sent("tool_call", 0, "c1", "patch", text[:cut], type="custom")
    sent("tool_call", 0, arguments=text[cut:], type="custom")
    assert sent.end()["content"] == [
        {"type": "tool_use", "id": "c1", "name": "patch", "input": {"input": text}}
    ]


def test_a_custom_call_that_is_cut_is_not_closed_as_json():
    sent = Sent(identities=_custom("patch"))
    sent("tool_call", 0, "c1", "patch", "*** Begin", type="custom")
    sent("finish", "length")
    pieces = [
        chunk["delta"]["partial_json"] for chunk in sent.chunks if chunk["type"] == "content_block_delta"
    ]
    assert "".join(pieces) == '{"input":"*** Begin'


def _custom(name):
    identities = ToolIdentityMap()
    identities.declare(ToolKind.CUSTOM, name)
    return identities


def test_a_shell_call_comes_whole():
    sent = Sent()
    sent("item", it.ShellCall("sh_1", "c1", it.ShellAction(["ls"]), "completed"))
    message = sent.end()
    assert message["content"] == [
        {"type": "tool_use", "id": "c1", "name": "shell", "input": {"commands": ["ls"]}}
    ]
    assert message["stop_reason"] == "tool_use"


def test_a_namespaced_call_has_the_name_the_upstream_knows():
    identities = ToolIdentityMap()
    identity = identities.declare(ToolKind.FUNCTION, "read file", "fs")
    sent = Sent(tool_identities=identities)
    sent("item", it.FunctionCall("fc_1", "c1", "read file", "{}", "completed", "fs"))
    sent("item", it.FunctionCall("fc_2", "c2", identity.upstream_name, "{}", "completed"))
    assert [block["name"] for block in sent.end()["content"]] == [identity.upstream_name] * 2


# ── refusals, citations, other items ───────────────────────────────────────────────────────────────
def test_a_refusal_in_the_models_words_is_text():
    sent = Sent()
    sent("refusal", "I ")
    sent("refusal", "won't.")
    message = sent.end()
    assert message["content"] == [{"type": "text", "text": "I won't."}]
    assert message["stop_reason"] == "refusal"
    assert sent.lost() == ["refusal"]


def test_a_refusal_of_the_api_is_explained_beside_the_reason():
    sent = Sent()
    sent("refusal", "Policy.")
    message = sent.end("content_filter")
    assert message["content"] == []
    assert message["stop_details"] == {"type": "refusal", "category": None, "explanation": "Policy."}


def test_a_citation_hangs_on_its_block():
    sent = Sent()
    sent("text", "x")
    sent(
        "annotation",
        {"type": "url_citation", "url": "https://a", "title": "A", "start_index": 0, "end_index": 1},
    )
    sent("annotation", {"type": "file_path", "file_id": "f", "index": 0})
    (block,) = sent.end()["content"]
    assert [(c["url"], c["title"]) for c in block["citations"]] == [("https://a", "A")]
    assert sent.lost() == ["annotation"]


def test_items_that_have_no_block_are_losses():
    sent = Sent()
    sent("item", UnknownItem({"type": "file_search_call", "id": "fs_1", "status": "completed"}))
    sent("item", UnknownItem({"type": "anthropic:odd", "id": "x", "status": "completed"}))
    sent("item", it.CompactionItem("cmp_1", "opaque"))
    sent("item", it.CompactionItem("cmp_2", Sealer().seal(b"{}", "other")))
    sent("item", it.ToolSearchOutput("tso_1", []))
    assert sent.end()["content"] == []
    assert sent.lost() == [
        "item.file_search_call",
        "item.anthropic:odd",
        "item.compaction",
        "item.tool_search_output",
    ]


def test_extension_events_that_are_not_anthropics_are_ignored():
    sent = Sent()
    sent("extension_event", "openai:progress", {"x": 1})
    sent.end()
    ignored = [case.where for case in sent.outbound.diagnostics if case.kind == "ignored"]
    assert ignored == ["event.openai:progress"]


def test_events_of_other_servers_without_meaning_here_say_nothing():
    sent = Sent()
    assert sent.outbound.feed(UnknownEvent({"type": "response.web_search_call.searching"})) == []


def test_an_event_after_its_item_is_ignored():
    sent = Sent()
    sent("item", it.Message("msg_1", "completed", "assistant", [OutputTextContent("x", [], [])]))
    assert sent.outbound.feed(OutputTextDelta(99, "msg_1", 0, 0, "late", [])) == []
    assert sent.end()["content"] == [{"type": "text", "text": "x"}]


def test_empty_deltas_say_nothing():
    sent = Sent()
    sent("text", "x")
    assert sent.outbound.feed(OutputTextDelta(99, "msg_1", 0, 0, "", [])) == []


def test_frames_are_named_as_anthropics_clients_want_them():
    sent = Sent()
    chunks = [chunk for event in sent.machine.text("ä") for chunk in sent.outbound.feed(event)]
    first, second, _ = encode_sse(chunks).split(b"\n\n")
    assert first.startswith(b'event: content_block_start\ndata: {"type":"content_block_start","index":0,')
    payload = json.loads(second.split(b"data: ")[1])
    assert payload == {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "ä"},
    }


def test_a_summary_that_travels_with_the_sealed_reasoning_is_not_a_loss():
    sealer = Sealer()
    sent = Sent(sealer=sealer)
    sent("reasoning", "Two and two")
    sent("reasoning_summary", "Adding")
    sent("reasoning_encrypted", "another upstream's")
    sent("block_done")
    message = sent.end()
    _, sealed = open_sealed(sealer, message["content"][0]["signature"])
    assert sealed["summary"] == ["Adding"]
    assert sent.lost() == []


@pytest.mark.parametrize("end", [("finish", None), ("fail", "no")], ids=["finished", "failed"])
def test_a_summary_that_goes_nowhere_is_a_loss(end):
    sent = Sent()
    sent("reasoning", "Two and two")
    sent("reasoning_summary", "Adding")
    sent(*end)
    assert "reasoning.summary" in sent.lost()


def test_raw_reasoning_beside_its_summary_is_a_loss_even_when_it_is_sealed():
    sent = Sent()
    sent("reasoning_summary", "Adding")
    sent("reasoning", "Two and two")
    sent("reasoning_encrypted", "another upstream's")
    sent.end()
    assert sent.lost() == ["reasoning.content"]


def test_an_error_frame_has_its_error_and_no_empty_fields():
    sent = b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"m"}}\n\n'
    assert encode_sse([t.ErrorFrame({"type": "api_error", "message": "m"})]) == sent
