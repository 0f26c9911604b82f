"""Requests of ours → the Messages API: models, limits, sampling, thinking, caching."""

import pytest

from openresponses_bridge.dialects.anthropic_messages import (
    MessagesOptions,
    ModelFacts,
    facts_of,
    to_messages,
)
from openresponses_bridge.errors import InvalidRequestError
from tests.support.anthropic_requests import (
    ADAPTIVE,
    BUDGET,
    F,
    G,
    call,
    out,
    output,
    request,
    said,
)


# ── the frame ────────────────────────────────────────────────────────────────────────────────────────
def test_the_smallest_request():
    body, lost = out("hi")
    assert body == {
        "model": BUDGET,
        "max_tokens": 64_000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "stream": True,
    }
    assert lost == []


def test_model_limit_user_and_stream():
    given = request(max_output_tokens=100, safety_identifier="u1", service_tier="default")
    body, _ = to_messages(given, model="other", options=MessagesOptions(stream=False))
    assert (body["model"], body["max_tokens"], body["stream"]) == ("other", 100, False)
    assert body["metadata"] == {"user_id": "u1"}
    assert body["service_tier"] == "standard_only"


@pytest.mark.parametrize("fields", [{"user": "u"}, {"metadata": {"user_id": "u"}}])
def test_the_user_from_wherever_it_stands(fields):
    assert out(**fields)[0]["metadata"] == {"user_id": "u"}


@pytest.mark.parametrize(
    ("name", "limit", "thinking"),
    [
        ("claude-3-haiku-20240307", 4_096, "none"),
        ("claude-3-5-sonnet-20241022", 8_192, "none"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", 64_000, "budget"),
        ("anthropic/claude-opus-4.6", 128_000, "adaptive"),
        ("claude-opus-4-20250514", 32_000, "budget"),
        ("claude-of-next-year-9", 32_000, "adaptive"),
        # not those of claude-opus-4, whose name it begins with
        ("claude-opus-4-8", 128_000, "adaptive"),
        ("claude-sonnet-5@20270101", 128_000, "adaptive"),
        ("claude-opus-5", 128_000, "adaptive"),
        ("anthropic/claude-haiku-5.5", 128_000, "adaptive"),
        ("kimi-k2", 8_192, "budget"),
        ("", 8_192, "budget"),
    ],
)
def test_facts_of_models_by_their_names(name, limit, thinking):
    facts = facts_of(name)
    assert (facts.max_tokens, facts.thinking) == (limit, thinking)


def test_the_facts_of_a_model_that_is_newer_than_all_known_are_a_guess():
    assert facts_of("claude-opus-4-7").known
    assert not facts_of("claude-opus-9").known
    assert out(max_output_tokens=500_000, model="claude-opus-9")[0]["max_tokens"] == 500_000


LOW = {"effort": "low"}
OFF = {"type": "disabled"}


@pytest.mark.parametrize(
    ("model", "thinking", "config", "losses"),
    [
        ("claude-opus-4-8", None, None, []),  # thinks only when asked to
        ("claude-opus-5", OFF, None, []),
        ("claude-sonnet-5", OFF, None, []),
        ("claude-haiku-5-5", OFF, None, []),
        ("claude-sonnet-5-5", {"type": "between_tools"}, None, []),
        ("claude-opus-5-5", None, LOW, ["reasoning.effort"]),
        ("claude-fable-5", None, LOW, ["reasoning.effort"]),
        ("kimi-k3", OFF, None, []),
    ],
)
def test_p6_how_thinking_is_turned_off(model, thinking, config, losses):
    body, lost = out(reasoning={"effort": "none"}, model=model)
    assert (body.get("thinking"), body.get("output_config")) == (thinking, config)
    assert lost == losses


def test_p6_thinking_of_another_maker_s_model_that_can_not_be_turned_off():
    given = request(reasoning={"effort": "none"})
    body, diagnostics = to_messages(given, model="kimi-k3", efforts=frozenset({"low", "high", "max"}))
    assert "thinking" not in body
    assert [case.where for case in diagnostics.of("loss")] == ["reasoning.effort"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "f"}])
def test_a_model_that_takes_no_forced_call_decides_itself(choice):
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    body, lost = out(tools=tools, tool_choice=choice, model="claude-opus-5-5")
    assert body["tool_choice"] == {"type": "auto"}
    assert lost == ["tool_choice"]
    assert out(tools=tools, tool_choice=choice, model="claude-opus-5")[0]["tool_choice"] != {"type": "auto"}


def test_a_limit_above_the_models_is_lowered_where_it_is_known():
    assert out(max_output_tokens=100_000)[0]["max_tokens"] == 64_000
    assert out(max_output_tokens=100_000)[1] == ["max_output_tokens"]
    assert out(max_output_tokens=100_000, model="unknown")[0]["max_tokens"] == 100_000


def test_facts_and_extras_can_be_given():
    facts = ModelFacts(777)
    body, _ = out(
        options=MessagesOptions(facts=facts, extra={"top_k": 4, "stop_sequences": ["END"], "model": "no"})
    )
    assert (body["max_tokens"], body["top_k"], body["stop_sequences"], body["model"]) == (
        777,
        4,
        ["END"],
        BUDGET,
    )


@pytest.mark.parametrize(
    ("fields", "lost"),
    [
        ({"presence_penalty": 0.5}, ["presence_penalty"]),
        ({"frequency_penalty": 0.5}, ["frequency_penalty"]),
        ({"top_logprobs": 3}, ["top_logprobs"]),
        ({"max_tool_calls": 3}, []),  # the bridge counts them
        ({"service_tier": "flex"}, ["service_tier"]),
        ({"text": {"verbosity": "low"}}, ["text.verbosity"]),
        ({"presence_penalty": 0, "frequency_penalty": 0, "top_logprobs": 0, "service_tier": "auto"}, []),
    ],
)
def test_what_has_no_counterpart_is_listed(fields, lost):
    assert out(**fields)[1] == lost


# ── sampling ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("fields", "sent", "lost"),
    [
        ({"temperature": 0.3}, {"temperature": 0.3}, []),
        ({"temperature": 1.7}, {"temperature": 1.0}, ["temperature"]),
        ({"top_p": 0.9}, {"top_p": 0.9}, []),
        ({"temperature": 0.3, "top_p": 1}, {"temperature": 0.3}, []),
        ({"temperature": 0.3, "top_p": 0.5}, {"temperature": 0.3}, ["top_p"]),
        ({"temperature": 0.3, "model": "claude-opus-4-7"}, {}, ["temperature"]),
        ({"temperature": 1, "model": "claude-opus-4-7"}, {}, []),
        ({"temperature": 0.3, "reasoning": {"effort": "low"}}, {}, ["temperature"]),
    ],
)
def test_sampling(fields, sent, lost):
    body, losses = out(**fields)
    assert {name: body[name] for name in ("temperature", "top_p") if name in body} == sent
    assert losses == lost


# ── thinking ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("effort", "budget"),
    [("minimal", 1024), ("low", 2048), ("medium", 8192), ("high", 16384), ("xhigh", 32768)],
)
def test_effort_is_a_budget(effort, budget):
    assert out(reasoning={"effort": effort})[0]["thinking"] == {"type": "enabled", "budget_tokens": budget}


@pytest.mark.parametrize("reasoning", [None, {}, {"effort": None}, {"effort": "none"}, {"summary": "auto"}])
def test_no_effort_is_no_thinking(reasoning):
    assert "thinking" not in out(reasoning=reasoning)[0]


def test_the_budget_leaves_room_for_the_answer():
    body, _ = out(reasoning={"effort": "high"}, max_output_tokens=5000)
    assert body["thinking"]["budget_tokens"] == 5000 - 1024
    body, lost = out(reasoning={"effort": "high"}, max_output_tokens=2000)
    assert "thinking" not in body
    assert lost == ["reasoning.effort"]


@pytest.mark.parametrize("model", [ADAPTIVE, BUDGET])
def test_an_unknown_effort_is_refused(model):
    with pytest.raises(InvalidRequestError, match="'ludicrous' is not one of high, low, max") as caught:
        out(model=model, reasoning={"effort": "ludicrous"})
    assert (caught.value.code, caught.value.param) == ("invalid_value", "reasoning.effort")


@pytest.mark.parametrize(
    ("model", "effort", "sent", "lost"),
    [
        (ADAPTIVE, "high", "high", []),
        (ADAPTIVE, "minimal", "low", ["reasoning.effort"]),
        (ADAPTIVE, "xhigh", "max", ["reasoning.effort"]),
        ("claude-opus-4-7", "xhigh", "xhigh", []),
    ],
)
def test_newer_models_take_the_effort_itself(model, effort, sent, lost):
    body, losses = out(model=model, reasoning={"effort": effort, "summary": "auto"})
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": sent}
    assert losses == lost
    assert "display" not in out(model=model, reasoning={"effort": effort})[0]["thinking"]


def test_models_that_do_not_think_are_not_asked_to():
    body, lost = out(model="claude-3-haiku-20240307", reasoning={"effort": "low"})
    assert "thinking" not in body
    assert lost == ["reasoning.effort"]


def test_a_forced_call_leaves_no_thinking():
    body, lost = out(tools=[F], tool_choice="required", reasoning={"effort": "low"})
    assert "thinking" not in body
    assert lost == ["reasoning.effort"]


def test_calls_that_came_without_thinking_can_not_be_answered_with_it():
    items = [said("user", "x"), call(), output()]
    body, lost = out(items, tools=[F], reasoning={"effort": "low"})
    assert "thinking" not in body
    assert lost == ["reasoning.effort"]
    assert "thinking" in out(items, tools=[F], reasoning={"effort": "low"}, model=ADAPTIVE)[0]


# ── caching ──────────────────────────────────────────────────────────────────────────────────────────
def test_cache_breakpoints_stand_at_the_ends_and_spoil_nothing():
    mark = {"type": "ephemeral"}
    items = [said("user", "x"), said("assistant", "y"), said("user", "z")]
    body, _ = out(items, tools=[F, G], instructions="A", options=MessagesOptions(cache_control=mark))
    marked = [body["tools"][-1], body["system"][-1], body["messages"][-1]["content"][-1]]
    assert all(block["cache_control"] == mark for block in marked)
    assert "cache_control" not in body["tools"][0]
    assert (
        out(options=MessagesOptions(cache_control=mark))[0]["messages"][0]["content"][0]["cache_control"]
        == mark
    )
