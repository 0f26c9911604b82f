"""A field that an upstream refuses by its name is left out, and not sent again for a while."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from openresponses_bridge.protocol import codec
from openresponses_server.requests import outgoing, refused_fields
from openresponses_server.requests.refused_fields import FieldRefusals, without_fields
from openresponses_server.settings import Settings, UpstreamSettings
from openresponses_server.upstreams.refusals import MOST_REMEMBERED, REMEMBERED, OwnersModel, refusal
from tests.support import dialect_scripts as scripts
from tests.support.serving import Reply, call, respond, serving
from tests.support.upstream import JSON, Script, ScriptedUpstream


class Strict(ScriptedUpstream):
    """Refuses bodies with a field, in the words of a provider: `refused` are (whether a body has it, the
    answer)."""

    def __init__(self, dialect: str, *refused: tuple[str, dict[str, Any]]) -> None:
        super().__init__()
        self._dialect, self._refused = dialect, refused
        self.answer = self._answered

    def _answered(self, received: Any) -> Script:
        body = json.dumps(received.body)
        for field, error in self._refused:
            if field in body:
                return Script([json.dumps(error).encode()], 400, JSON)
        return Script(scripts.text(self._dialect, "Hi"))


def answers(reply: Reply, *lost: str) -> None:
    assert reply.status == 200
    for name in lost:
        assert name in reply.headers["openresponses-losses"]


def test_a_field_of_codex_that_a_responses_server_does_not_know() -> None:
    unknown = {"code": "unknown_parameter", "param": "prompt_cache_options", "type": "invalid_request_error"}
    error = {"error": {**unknown, "message": "Unknown parameter: 'prompt_cache_options'."}}
    with Strict("responses", ('"prompt_cache_options"', error)) as upstream:
        settings = UpstreamSettings(url=upstream.url, dialect="responses")
        with serving(Settings(upstreams=[settings])) as base:
            for count in (2, 3, 4):
                reply = respond(base, model="m", prompt_cache_options={"mode": "implicit"})
                answers(reply, "prompt_cache_options")
                assert len(upstream.received) == count, "it is remembered"
            respond(base, model="other", prompt_cache_options={"mode": "implicit"})
            assert len(upstream.received) == 6, "of this model alone"


def test_fields_within_items_and_one_after_the_other() -> None:
    refused = [
        ('"client_metadata"', {"error": {"message": "Unsupported parameter: client_metadata"}}),
        ('"extra"', {"error": {"message": "Unknown parameter: 'input[0].extra'."}}),
        (
            '"summary"',
            {"detail": [{"loc": ["body", "reasoning", "summary"], "msg": "Extra inputs are not permitted"}]},
        ),
    ]
    with Strict("responses", *refused) as upstream:
        settings = UpstreamSettings(url=upstream.url, dialect="responses")
        with serving(Settings(upstreams=[settings])) as base:
            reply = respond(
                base,
                model="m",
                input=[{"role": "user", "content": "Hi", "extra": {"turn": "t"}}],
                client_metadata={"a": "b"},
                reasoning={"effort": "low", "summary": "auto"},
            )
        answers(reply, "client_metadata", "input[0].extra", "reasoning.summary")
        last = upstream.received[-1].body
        assert last["reasoning"] == {"effort": "low"}
        assert last["input"][0]["content"]


def test_a_tool_of_a_type_that_a_messages_server_does_not_know() -> None:
    details = {"type": "invalid_request_error", "message": "tools[0]: unknown variant `x_1`"}
    error = {"type": "error", "error": details}
    body = {
        "model": "m",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "x_1", "name": "x", "model": "n"}],
    }
    with Strict("anthropic", ('"x_1"', error)) as upstream:
        settings = UpstreamSettings(url=upstream.url, dialect="anthropic")
        with serving(Settings(upstreams=[settings])) as base:
            answers(call(base, "POST", "/v1/messages", body, {"anthropic-version": "2023-06-01"}), "tools")
            assert len(upstream.received) == 2
            answers(call(base, "POST", "/v1/messages", body, {"anthropic-version": "2023-06-01"}), "tools")
        assert len(upstream.received) == 3
        assert "tools" not in upstream.received[-1].body


def test_a_field_of_a_message_by_a_path_with_its_role() -> None:
    words = "messages.1.assistant.reasoning: property 'messages.1.assistant.reasoning' is unsupported"
    with Strict("chat", ('"reasoning"', {"message": words, "code": "wrong_api_format"})) as upstream:
        settings = UpstreamSettings(url=upstream.url, options={"reasoning_field": "reasoning"})
        items = [
            {"role": "user", "content": "a"},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]
        with serving(Settings(upstreams=[settings])) as base:
            answers(respond(base, model="m", input=items), "reasoning")
        assert [each["content"] for each in upstream.received[-1].body["messages"]] == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["messages", "model", "tools", "stream", "unheard_of", "messages.0.content"])
def test_what_a_request_needs_is_never_left_out(name: str) -> None:
    error = {"error": {"message": f"Unknown parameter: '{name}'."}}
    with Strict("chat", ("model", error)) as upstream:
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base:
            reply = respond(base, model="m", tools=[{"type": "function", "name": "f"}])
        assert (reply.status, len(upstream.received)) == (400, 1)


def test_a_server_that_refuses_field_after_field_is_asked_a_bounded_number_of_times() -> None:
    """Each attempt has a field less, so that they end."""
    fields = ["temperature", "top_p", "service_tier", "seed"]
    refused = [(f'"{each}"', {"error": {"message": f"Unknown parameter: '{each}'."}}) for each in fields]
    with Strict("chat", *refused, ("model", {"error": {"message": "No."}})) as upstream:
        options = {"temperature": 0.5, "top_p": 0.5, "service_tier": "flex"}
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base:
            assert respond(base, model="m", **options).status == 400
            assert len(upstream.received) == 4
            respond(base, model="m", **options)
            assert len(upstream.received) == 8, "what did not help is not remembered"


def test_refusals_are_forgotten_and_bounded() -> None:
    now = [0.0]
    refusals = FieldRefusals(lambda: now[0])
    model = OwnersModel("", "u", "m")
    refusals.record(model, ["a"])
    refusals.record(model, ["b"])
    assert refusals.of(model) == {"a", "b"}
    assert refusals.of(OwnersModel("other", "u", "m")) == frozenset()
    now[0] = REMEMBERED
    assert refusals.of(model) == frozenset()
    for number in range(2 * MOST_REMEMBERED):
        refusals.record(OwnersModel("", "u", str(number)), ["a"])
    assert len(refusals.known[""]) == MOST_REMEMBERED


def test_a_body_that_is_not_an_object_stays() -> None:
    for body in (b"[]", b"x", b"{}", b'{"a": {"b": [1, 2]}}'):
        assert without_fields(body, ["a.b.c", "x", "", "..", "a." * 100]) == (body, [])


def test_a_field_without_a_value_is_left_out_too() -> None:
    assert without_fields(b'{"a":null,"b":[{"c":null}]}', ["a", "b.c"]) == (b'{"b":[{}]}', ["a", "b.c"])


def test_s10_a_body_is_decoded_once_however_many_of_its_fields_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[bytes] = []

    def counting(data: bytes) -> Any:
        decoded.append(data)
        return codec.decode_json(data)

    monkeypatch.setattr(refused_fields, "decode_json", counting)
    message = "Extra inputs are not permitted"
    entries = [{"loc": ["body", "tools", number], "msg": message} for number in range(8)]
    refused = refusal(400, {}, json.dumps({"detail": entries}).encode())
    sent = json.dumps({"tools": [{"type": f"x_{number}"} for number in range(8)]}).encode()
    assert refused_fields.refused_fields(refused, sent) == [f"tools.=x_{number}" for number in range(8)]
    assert decoded == [sent]


def test_s10_large_bodies_lose_their_fields_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, set[int]] = {}

    def noting(name: str) -> Callable[..., Any]:
        work = getattr(refused_fields, name)

        def noted(*given: Any) -> Any:
            threads.setdefault(name, set()).add(threading.get_ident())
            return work(*given)

        return noted

    for name in ("named_fields", "refused_fields", "without_fields"):
        monkeypatch.setattr(outgoing, name, noting(name))
    error = {"error": {"message": "Unknown parameter: 'top_p'."}}
    with Strict("chat", ('"top_p"', error)) as upstream:
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base:
            for _ in range(2):
                answers(respond(base, model="m", input="x" * 200_000, top_p=0.5), "top_p")
        assert len(upstream.received) == 3
    (loop,) = threads["named_fields"]
    assert loop not in threads["refused_fields"] | threads["without_fields"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "f"}])
@pytest.mark.parametrize(
    "words",
    [
        "Thinking mode does not support this tool_choice",
        "tool_choice 'required' is incompatible with thinking enabled",
        "<400> The tool_choice parameter does not support being set to required or object in thinking mode",
    ],
)
def test_a_call_that_a_server_does_not_force_while_it_thinks_is_the_model_s_choice(
    choice: Any, words: str
) -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    with ScriptedUpstream() as upstream:
        upstream.answer = lambda received: (
            Script(scripts.text("chat", "Hi"))
            if received.body.get("tool_choice") == "auto"
            else Script([json.dumps({"error": {"message": words}}).encode()], 400, JSON)
        )
        with serving(Settings(upstreams=[UpstreamSettings(url=upstream.url)])) as base:
            answers(respond(base, model="m", tools=[tool], tool_choice=choice), "tool_choice")
        assert len(upstream.received) == 2
