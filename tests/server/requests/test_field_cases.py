"""Causes that ended a client's session for good, seen from outside the server."""

import json
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.support import upstream as chat
from tests.support.serving import call, respond, serving
from tests.support.upstream import JSON, Script, ScriptedUpstream, frame, refusal

SAID = {"type": "output_text", "text": "Hello.", "annotations": []}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [SAID]}
WHOLE = json.dumps(
    {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [MESSAGE]}
).encode()


@pytest.mark.parametrize(
    ("status", "said", "code"),
    [
        (503, {}, "service_unavailable"),
        (529, {}, "service_unavailable"),
        (503, {"type": "overloaded_error"}, "service_unavailable"),
        (503, {"code": "server_is_overloaded"}, "server_is_overloaded"),
        (500, {}, "server_error"),
        (502, {}, "server_error"),
    ],
)
def test_case_46_overload_has_a_code_over_which_codex_asks_again(
    bridged: str, upstream: ScriptedUpstream, status: int, said: dict[str, Any], code: str
) -> None:
    upstream.scripts["busy"] = refusal(status, message="Later.", **said)
    for streamed in (False, True):
        refused = respond(bridged, model="busy", stream=streamed)
        assert (refused.status, refused.error["code"]) == (status, code)


CODEX = {"user-agent": "codex_exec/0.169.0"}
OVERLOADED = {"code": "server_is_overloaded", "message": "Later."}
FAILED_LATER = {
    "id": "r",
    "object": "response",
    "status": "failed",
    "model": "m",
    "output": [],
    "error": OVERLOADED,
}
LATER = Script([frame(type="response.failed", sequence_number=0, response=FAILED_LATER)])
READ_BY_CODEX = (503, "service_unavailable")
READ_BY_OTHERS = (503, "server_is_overloaded")


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("script", "others"),
    [
        (refusal(503, **OVERLOADED), READ_BY_OTHERS),
        (refusal(429, headers={"retry-after": "100"}, **OVERLOADED), (429, "server_is_overloaded")),
        (LATER, READ_BY_OTHERS),
    ],
    ids=["503", "429", "in its stream"],
)
def test_case_46_codex_reads_a_code_over_which_it_asks_again(
    script: Script, others: tuple[int, str], streamed: bool, stored: bool
) -> None:
    with ScriptedUpstream({"m": script}) as upstream:
        settings = UpstreamSettings(url=upstream.url, dialect="responses", models=["m"])
        with serving(Settings(upstreams=[settings])) as base:
            for headers, expected in ((CODEX, READ_BY_CODEX), ({}, others)):
                answer = respond(base, model="m", stream=streamed, store=stored, headers=headers)
                if script is LATER and streamed:
                    failed = answer.final["error"]
                    assert (answer.status, failed["code"]) == (200, expected[1])
                else:
                    assert (answer.status, answer.error["code"]) == expected
                    assert answer.headers.get("retry-after") == ("100" if others[0] == 429 else None)
                assert b"Later." in answer.body


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
ASKED = [REASONING, {"type": "message", "role": "user", "content": "Hi"}]
UNDECRYPTABLE = refusal(400, code="invalid_encrypted_content", message="It could not be verified.")
IN_STREAM = Script(
    [frame(type="error", code="invalid_encrypted_content", message="It could not be verified.")]
)


@pytest.mark.parametrize("refused", [UNDECRYPTABLE, IN_STREAM], ids=["at once", "in its stream"])
@pytest.mark.parametrize("streamed", [False, True])
def test_case_51_reasoning_that_the_upstream_cant_decrypt_is_left_out(
    streamed: bool, refused: Script
) -> None:
    with ScriptedUpstream({"m": [refused, Script([WHOLE], headers=JSON)]}) as upstream:
        settings = UpstreamSettings(url=upstream.url, dialect="responses", models=["m"])
        with serving(Settings(upstreams=[settings])) as base:
            reply = respond(base, model="m", input=ASKED, stream=streamed)
        first, second = (received.body["input"] for received in upstream.received)
    assert reply.status == 200
    assert (first, second) == (ASKED, ASKED[1:])
    assert "can't decrypt it" in reply.headers["openresponses-losses"]


def test_case_51_without_encrypted_reasoning_the_refusal_is_the_answer() -> None:
    with ScriptedUpstream({"m": UNDECRYPTABLE}) as upstream:
        settings = UpstreamSettings(url=upstream.url, dialect="responses", models=["m"])
        with serving(Settings(upstreams=[settings])) as base:
            reply = respond(base, model="m")
        assert len(upstream.received) == 1
    assert (reply.status, reply.error["code"]) == (400, "invalid_encrypted_content")


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,QUJD"}
SHOWN = [REASONING, {"type": "message", "role": "user", "content": [IMAGE]}]
BLIND = refusal(400, message="The model does not support images.")


@pytest.mark.parametrize("scripts", [[UNDECRYPTABLE, BLIND], [BLIND, UNDECRYPTABLE], [IN_STREAM, BLIND]])
def test_case_51_an_upstream_that_refuses_one_thing_after_another_is_asked_once_for_each(
    scripts: list[Script],
) -> None:
    with ScriptedUpstream({"m": [*scripts, BLIND, UNDECRYPTABLE, BLIND]}) as upstream:
        settings = UpstreamSettings(url=upstream.url, dialect="responses", models=["m"])
        with serving(Settings(upstreams=[settings])) as base:
            reply = respond(base, model="m", input=SHOWN, stream=scripts[0] is IN_STREAM)
        last = json.dumps(upstream.received[-1].body)
    assert (reply.status, len(upstream.received)) == (400, 3)
    assert 'encrypted_content": "gAAA' not in last
    assert "image_url" not in last


INTERRUPTED: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "seen"},
        {"role": "user", "content": "Go on"},
    ],
    "/v1/messages": [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": each, "name": "ls", "input": {}} for each in ("c1", "c2")],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c2", "content": "seen"},
                {"type": "text", "text": "Go on"},
            ],
        },
    ],
}


@pytest.mark.parametrize("path", INTERRUPTED)
def test_case_54_calls_without_outputs_are_answered_for_clients_of_other_apis(path: str) -> None:
    body = {"messages": INTERRUPTED[path], "max_tokens": 100}
    with ScriptedUpstream({"m": Script(chat.text("Well."))}) as upstream:
        upstreams = [
            UpstreamSettings(url=upstream.url, name="strict", models=["strict"]),
            UpstreamSettings(
                url=upstream.url, name="lenient", models=["m"], options={"unanswered_calls": "answer"}
            ),
        ]
        with serving(Settings(upstreams=upstreams)) as base:
            assert call(base, "POST", path, {"model": "m", **body}).status == 200
            refused = call(base, "POST", path, {"model": "strict", **body})
        (received,) = upstream.received
    results = [each for each in received.body["messages"] if each["role"] == "tool"]
    assert {each["tool_call_id"]: each["content"] for each in results} == {
        "c1": "[no output: the call was interrupted]",
        "c2": "seen",
    }
    assert refused.status == 400
    assert "no tool output answers the call 'c1'" in refused.error["message"]
    if path == "/v1/chat/completions":
        assert (refused.error["code"], refused.error["param"]) == ("unpaired_tool_call", "messages")


SAYS_NOTHING = {
    "reasoning alone": [chat.chunk(reasoning_content="Hm."), chat.chunk("stop"), chat.DONE],
    "nothing": [chat.chunk("stop"), chat.DONE],
}


@pytest.mark.parametrize("said", SAYS_NOTHING)
def test_case_58_an_answer_of_ours_without_text_comes_back(said: str) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    with ScriptedUpstream({"m": Script(SAYS_NOTHING[said])}) as upstream:
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base:
            first = call(base, "POST", "/v1/chat/completions", {"model": "m", "messages": messages})
            answer = first.json["choices"][0]["message"]
            assert answer["content"] is None
            messages += [answer, {"role": "user", "content": "Go on"}]
            assert (
                call(base, "POST", "/v1/chat/completions", {"model": "m", "messages": messages}).status == 200
            )
        contents = [each["content"] for each in upstream.received[-1].body["messages"]]
    assert contents == ["Hi", "Go on"]


# ── 65: what nothing would read ──────────────────────────────────────────────────────────────────────
SAYS = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact"])
@pytest.mark.parametrize("more", [{}, {"input": "Hi"}, {"instructions": "Be kind"}])
def test_case_65_messages_of_another_api_are_refused_by_name(
    bridged: str, path: str, more: dict[str, Any]
) -> None:
    refused = call(bridged, "POST", path, {"model": "m", "messages": [SAYS], **more})
    assert (refused.status, refused.error["param"]) == (400, "messages")
    assert "/v1/chat/completions" in refused.error["message"]


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"input": [{"role": "user", "content": [{"type": "", "text": "Hi"}]}]}, "input[0].content[0].type"),
        ({"input": [SAYS, {"type": "", "id": "x"}]}, "input[1].type"),
        ({"input": "Hi", "tools": [{"type": ""}]}, "tools[0].type"),
    ],
)
def test_case_65_an_empty_type_is_refused_with_its_place(
    bridged: str, more: dict[str, Any], param: str
) -> None:
    refused = respond(bridged, model="m", **more)
    assert (refused.status, refused.error["param"]) == (400, param)


def test_case_65_an_empty_type_elsewhere_is_the_clients_own(bridged: str, upstream: ScriptedUpstream) -> None:
    upstream.scripts["m"] = Script(chat.text("Hello."))
    schema = {"type": "object", "properties": {"type": {"const": ""}, "x": {"default": {"type": ""}}}}
    tools = [{"type": "function", "name": "f", "parameters": schema}]
    assert respond(bridged, model="m", input='{"type": ""}', tools=tools).status == 200
