"""Requests of the Messages API → requests of ours, and back."""

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from openresponses_bridge.dialects.anthropic_messages import from_messages, to_messages
from openresponses_bridge.dialects.anthropic_messages.thinking import open_sealed, seal_reasoning
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode
from openresponses_bridge.seal import Sealer
from tests.support.anthropic_requests import BUDGET, PNG
from tests.support.anthropic_rules import violations
from tests.support.anthropic_strategies import messages as made_messages
from tests.support.machines import plain

USER = {"role": "user", "content": "hi"}


def body(*messages, **fields):
    return {"model": BUDGET, "max_tokens": 1000, "messages": list(messages or [USER]), **fields}


def read(*messages, sealer=None, **fields):
    """(request as JSON, where the losses stand). What we made has to be a good request of ours."""
    request, noted = from_messages(encode(body(*messages, **fields)), sealer)
    native = request.native.names if request.native else []
    given = plain(replace(request, native=UNSET)).items()
    sent = {name: value for name, value in given if value is not None}
    decode_request(json.dumps({**sent, "max_output_tokens": max(sent["max_output_tokens"], 16)}))
    return sent, [*(case.where for case in noted if case.kind == "loss"), *native]


def items(*messages, **fields):
    return read(*messages, **fields)[0]["input"]


def refused(given):
    with pytest.raises(InvalidRequestError) as caught:
        from_messages(given if isinstance(given, bytes) else encode(given))
    assert caught.value.http_status == 400
    return caught.value.param


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


# ── the frame ──────────────────────────────────────────────────────────────────────────────────────
def test_the_smallest_request():
    request, lost = read()
    assert request == {
        "model": BUDGET,
        "max_output_tokens": 1000,
        "store": False,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    }
    assert lost == []


def test_a_mapping_is_read_like_its_bytes():
    assert plain(from_messages(body())[0]) == plain(from_messages(encode(body()))[0])


def test_everything_that_has_a_counterpart():
    request, lost = read(
        system=[{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
        temperature=0,
        top_p=0.5,
        stream=True,
        metadata={"user_id": "u" * 200},
        service_tier="standard_only",
        thinking={"type": "enabled", "budget_tokens": 9000},
        output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
    )
    assert lost == []
    assert request["instructions"] == "A\n\nB"
    assert (request["temperature"], request["top_p"], request["stream"]) == (0, 0.5, True)
    assert (request["user"], request["service_tier"]) == ("u" * 200, "default")
    assert request["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert request["text"]["format"]["schema"] == {"type": "object"}


@pytest.mark.parametrize(("system", "instructions"), [("S", "S"), ("", None), ([], None), (None, None)])
def test_the_system_prompt(system, instructions):
    assert read(system=system)[0].get("instructions") == instructions


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "minimal"),
        ({"thinking": {"type": "enabled", "budget_tokens": 60_000}}, "xhigh"),
        ({"thinking": {"type": "enabled"}}, "medium"),
        ({"thinking": {"type": "adaptive"}}, "high"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, "low"),
        ({"thinking": {"type": "disabled"}}, None),
        ({"thinking": "odd"}, None),
        ({}, None),
    ],
)
def test_thinking_is_effort(fields, effort):
    assert read(**fields)[0].get("reasoning", {}).get("effort") == effort


@pytest.mark.parametrize("effort", ["minimal", "low", "medium", "high", "xhigh"])
def test_effort_to_budget_to_effort(effort):
    given = decode_request(encode({"model": BUDGET, "input": "x", "reasoning": {"effort": effort}}))
    assert from_messages(to_messages(given)[0])[0].reasoning.effort == effort


def test_the_older_place_of_the_output_format():
    request, _ = read(output_format={"type": "json_schema", "schema": {"type": "array"}})
    assert request["text"]["format"]["schema"] == {"type": "array"}


def test_a_limit_below_the_schemas_is_kept():
    request, lost = read(max_tokens=1)
    assert request["max_output_tokens"] == 1
    assert lost == []


def test_what_has_no_counterpart_is_listed_once():
    mark = {"type": "ephemeral"}
    text = {"type": "text", "text": "x", "cache_control": mark}
    request, lost = read(
        user(text, text),
        stop_sequences=["END"],
        top_k=3,
        mcp_servers=[{"type": "url"}],
        container=None,
        metadata={"user_id": "u", "team": "t"},
        unheard_of={"a": 1},
        system=[{"type": "text", "text": "S", "cache_control": mark}],
        tools=[
            {"name": "f", "input_schema": {"type": "object"}, "cache_control": mark, "input_examples": [1]}
        ],
    )
    assert sorted(lost) == [
        "cache_control",
        "content.cache_control", "mcp_servers", "metadata.team", "tools[0].input_examples", "unheard_of",
    ]  # fmt: skip
    assert (request["stop"], request["top_k"]) == (["END"], 3)
    assert "cache_control" not in json.dumps(request)


# ── tools ──────────────────────────────────────────────────────────────────────────────────────────
def test_tools_and_anthropics_own():
    schema = {"type": "object", "properties": {}}
    own = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    tools = [
        {"name": "f", "description": "d", "input_schema": schema, "strict": True},
        {**own, "cache_control": {}},
    ]
    request, _ = read(tools=[*tools, {"type": "custom", "name": "g", "input_schema": schema}])
    first, second, third = request["tools"]
    assert first == {
        "type": "function",
        "name": "f",
        "description": "d",
        "parameters": schema,
        "strict": True,
    }
    assert second == {"type": "web_search", "max_uses": 2}
    assert third["strict"] is False


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        ({"type": "auto"}, "auto", None),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "none"}, "none", None),
        ({"type": "tool", "name": "f"}, {"type": "function", "name": "f"}, None),
    ],
)
def test_tool_choice(choice, expected, parallel):
    request, _ = read(tool_choice=choice)
    assert (request["tool_choice"], request.get("parallel_tool_calls")) == (expected, parallel)


# ── messages ───────────────────────────────────────────────────────────────────────────────────────
def test_calls_and_results_in_order():
    input_items = items(
        USER,
        assistant(
            {"type": "text", "text": "so"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
        ),
        user(
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "ok"}]},
            {"type": "text", "text": "and"},
        ),
    )
    assert [item["type"] for item in input_items] == [
        "message", "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    assert input_items[1]["content"] == [{"type": "output_text", "text": "so"}]
    assert (input_items[2]["call_id"], input_items[2]["name"], input_items[2]["arguments"]) == (
        "t1",
        "f",
        '{"a":1}',
    )
    assert input_items[3]["output"] == [{"type": "input_text", "text": "ok"}]


@pytest.mark.parametrize(("content", "output"), [("ok", "ok"), (None, ""), ([], "")])
def test_results_in_short(content, output):
    call = assistant({"type": "tool_use", "id": "t1", "name": "f", "input": {}})
    result = {"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": True}
    item = items(USER, call, user(result))[2]
    assert (item["output"], item["status"]) == (output, "incomplete")


def test_parts_of_a_result_that_have_no_place_are_losses():
    call = assistant({"type": "tool_use", "id": "t1", "name": "f", "input": {}})
    content = [
        {"type": "search_result", "source": "https://a", "title": "t"},
        {"type": "image", "source": {"type": "url", "url": "https://a"}},
    ]
    request, lost = read(USER, call, user({"type": "tool_result", "tool_use_id": "t1", "content": content}))
    assert [part["type"] for part in request["input"][2]["output"]] == ["input_image"]
    assert lost == ["tool_result.search_result"]


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ({"type": "url", "url": "https://a/b.png"}, "https://a/b.png"),
        ({"type": "base64", "media_type": "image/png", "data": PNG}, f"data:image/png;base64,{PNG}"),
    ],
)
def test_images(source, url):
    (part,) = items(user({"type": "image", "source": source}))[0]["content"]
    assert part == {"type": "input_image", "image_url": url, "detail": "auto"}


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ({"type": "url", "url": "https://a/b.pdf"}, {"file_url": "https://a/b.pdf"}),
        (
            {"type": "base64", "media_type": "application/pdf", "data": PNG},
            {"file_data": f"data:application/pdf;base64,{PNG}", "filename": "document.pdf"},
        ),
        (
            {"type": "text", "media_type": "text/plain", "data": "hé"},
            {
                "file_data": f"data:text/plain;base64,{b64encode('hé'.encode()).decode()}",
                "filename": "document.txt",
            },
        ),
    ],
)
def test_documents(source, fields):
    (part,) = items(user({"type": "document", "source": source}))[0]["content"]
    assert part == {"type": "input_file", **fields}


def test_what_hangs_on_texts_and_documents_is_a_loss():
    document = {"type": "document", "title": "T", "context": "c", "citations": {"enabled": True}}
    cited = {"type": "text", "text": "x", "citations": [{"type": "char_location"}]}
    source = {"type": "url", "url": "https://a"}
    request, lost = read(user({**document, "source": source}), assistant(cited), USER)
    assert request["input"][0]["content"][0]["filename"] == "T"
    assert lost == ["document.context", "document.citations", "text.citations"]


def test_a_system_message_within_the_conversation():
    assert items(USER, {"role": "system", "content": "S"}, USER)[1]["role"] == "system"


# ── opaque blocks ──────────────────────────────────────────────────────────────────────────────────
def test_thinking_is_sealed_and_shown():
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    redacted = {"type": "redacted_thinking", "data": "Eq"}
    sealer = Sealer(b"k" * 32)
    input_items = items(
        USER, assistant(thought, redacted, {"type": "text", "text": "x"}), USER, sealer=sealer
    )
    assert input_items[1]["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert open_sealed(sealer, input_items[1]["encrypted_content"]) == ("anthropic-thinking", thought)
    assert open_sealed(sealer, input_items[2]["encrypted_content"]) == ("anthropic-redacted", redacted)


def test_thinking_without_a_signature_is_shown_only():
    input_items = items(USER, assistant({"type": "thinking", "thinking": "hm", "signature": ""}), USER)
    assert "encrypted_content" not in input_items[1]


def test_another_upstreams_reasoning_comes_out_of_anthropics_places():
    sealer = Sealer(b"k" * 16)
    sealed = seal_reasoning(sealer, {"id": "rs_1", "summary": ["s"], "encrypted_content": "gAAAA"})
    shown = {"type": "thinking", "thinking": "s", "signature": sealed}
    hidden = {"type": "redacted_thinking", "data": sealed}
    for block in (shown, hidden):
        item = items(USER, assistant(block, {"type": "text", "text": "x"}), USER, sealer=sealer)[1]
        assert (item["id"], item["encrypted_content"]) == ("rs_1", "gAAAA")
        assert item["summary"] == [{"type": "summary_text", "text": "s"}]


def test_our_own_seal_of_something_else_is_not_taken_for_reasoning():
    signature = Sealer().seal(b"{}", "other")
    item = items(USER, assistant({"type": "thinking", "thinking": "t", "signature": signature}), USER)[1]
    assert open_sealed(Sealer(), item["encrypted_content"])[1]["signature"] == signature


def test_hosted_blocks_and_compaction_are_kept_whole():
    used = {"type": "server_tool_use", "id": "s1", "name": "web_fetch", "input": {"q": 1}}
    result = {"type": "web_fetch_tool_result", "tool_use_id": "s1", "content": []}
    compaction = {"type": "compaction", "content": "so far"}
    input_items = items(USER, assistant(compaction, used, result, {"type": "text", "text": "x"}), USER)
    assert open_sealed(Sealer(), input_items[1]["encrypted_content"]) == ("anthropic-compaction", compaction)
    assert [(item["type"], item["block"]) for item in input_items[2:4]] == [
        ("anthropic:server_tool_use", used),
        ("anthropic:web_fetch_tool_result", result),
    ]


# ── what is malformed ──────────────────────────────────────────────────────────────────────────────
def one(block):
    return body(user(block))


@pytest.mark.parametrize(
    ("given", "param"),
    [
        (b"{", None),
        (b"[]", None),
        ({}, "messages"),
        ({"messages": "x"}, "messages"),
        ({**body(), "messages": []}, "messages"),
        ({**body(), "messages": [7]}, "messages[0]"),
        ({**body(), "model": None}, "model"),
        ({**body(), "max_tokens": None}, "max_tokens"),
        ({**body(), "max_tokens": "10"}, "max_tokens"),
        ({**body(), "max_tokens": True}, "max_tokens"),
        ({**body(), "max_tokens": 0}, "max_tokens"),
        ({**body(), "temperature": "hot"}, "temperature"),
        ({**body(), "stream": "yes"}, "stream"),
        ({**body(), "metadata": {"user_id": 7}}, "metadata.user_id"),
        ({**body(), "system": 7}, "system"),
        ({**body(), "system": [{"type": "text"}]}, "system[0].text"),
        ({**body(), "tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({**body(), "tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({**body(), "tool_choice": {"type": "odd"}}, "tool_choice.type"),
        ({**body(), "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({**body(), "output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        (body({"role": "narrator", "content": "x"}), "messages[0].role"),
        (body({"content": "x"}), "messages[0].role"),
        (body({"role": "user"}), "messages[0].content"),
        (body({"role": "user", "content": [7]}), "messages[0].content[0]"),
        (one({"text": "x"}), "messages[0].content[0].type"),
        (one({"type": "text"}), "messages[0].content[0].text"),
        (one({"type": "image"}), "messages[0].content[0].source"),
        (one({"type": "image", "source": {"type": "base64"}}), "messages[0].content[0].source.data"),
        (one({"type": "document", "source": {}}), "messages[0].content[0].source.type"),
        (one({"type": "tool_use", "id": "a", "name": "f"}), "messages[0].content[0].input"),
        (one({"type": "tool_result"}), "messages[0].content[0].tool_use_id"),
        (one({"type": "tool_result", "tool_use_id": "a", "content": 7}), "messages[0].content[0].content"),
        (
            one({"type": "tool_result", "tool_use_id": "a", "content": [{}]}),
            "messages[0].content[0].content[0].type",
        ),
    ],
)
def test_malformed_requests_are_refused_with_their_place(given, param):
    assert refused(given) == param


# ── there and back ─────────────────────────────────────────────────────────────────────────────────
def answered(content):
    """The results of the calls in a turn, as the next one."""
    called = [block["id"] for block in content if block["type"] == "tool_use"]
    reported = [{"type": "text", "text": "on"}]
    return [{"type": "tool_result", "tool_use_id": each, "content": reported} for each in called] + reported


@given(turns=st.lists(made_messages(), min_size=1, max_size=3), key=st.sampled_from([None, b"k" * 32]))
def test_anthropic_request_to_ours_to_anthropic_is_the_identity(turns, key):
    messages = [user({"type": "text", "text": "hi"})]
    for number, turn in enumerate(turns):
        content = json.loads(json.dumps(turn["content"]).replace('"id_', f'"t{number}_id_'))
        content = [block for block in content if block.get("text", "x").strip()]
        content.append({"type": "text", "text": "so"})  # no thinking may end a turn
        messages += [assistant(*content), user(*answered(content))]
    names = {block["name"] for turn in turns for block in turn["content"] if block["type"] == "tool_use"}
    tools = [{"name": name, "input_schema": {"type": "object", "properties": {}}} for name in sorted(names)]
    given = body(
        *messages, system=[{"type": "text", "text": "S"}], stream=True, **({"tools": tools} if tools else {})
    )
    sealer = Sealer(key)
    request, noted = from_messages(given, sealer)
    back, lost = to_messages(decode_request(encode(request)), sealer=sealer)
    assert back == given
    assert len(noted) == len(lost) == 0
    assert [each for each in violations(back) if "in the assistant's turn" not in each] == []
