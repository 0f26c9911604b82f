"""What the answers of one response, between which the server ran tools, cost: tokens by round, and memory."""

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.observation.recordings.records import Note, decode_record
from openresponses_server.runs.metering import Meters
from openresponses_server.settings import (
    FunctionSettings,
    Limits,
    Price,
    Retries,
    Settings,
    Tracing,
    UpstreamSettings,
)
from openresponses_server.settings.files import hashed
from tests.support.logs import log_as_in_production
from tests.support.schema import event_violations
from tests.support.serving import Reply, call, opened, respond, serving, stream
from tests.support.upstream import DONE, HANG, Script, ScriptedUpstream, chunk, frame, refusal
from tests.support.upstream import call as tool_call

MODULE = """
from openresponses_agent.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool
def read(size: int) -> str:
    \"\"\"Reads.\"\"\"
    return "word " * (size // 5)
"""
ROUNDS = "openresponses-bridge:rounds"
ONE = {"authorization": "Bearer one"}
COUNTS = {"cached_tokens": 0, "reasoning_tokens": 0, "cache_write_tokens": 0}


def answer(usage: tuple[int, int] | None, said: str = "", size: int | None = None) -> Script:
    """Words, and a call if there is a size."""
    counts = [] if usage is None else [frame(choices=[], usage=usage_of(*usage))]
    steps = [chunk(content=said)] if said else []
    if size is not None:
        steps += [tool_call(0, "", "read", "call_1"), tool_call(0, json.dumps({"size": size}))]
    return Script([*steps, chunk("stop" if size is None else "tool_calls"), *counts, DONE])


def usage_of(read: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def counted(read: int, written: int, **more: Any) -> dict[str, Any]:
    return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written, **COUNTS, **more}


@contextmanager
def reading(
    upstream: ScriptedUpstream,
    folder: Path,
    *others: UpstreamSettings,
    first: dict[str, Any] | None = None,
    **more: Any,
) -> Iterator[str]:
    (folder / "tools.py").write_text(MODULE)
    at = UpstreamSettings(url=upstream.url, name="scripted", **(first or {}))
    module = FunctionSettings(module=str(folder / "tools.py"))
    with serving(Settings(upstreams=[at, *others], functions=[module], **more)) as base:
        yield base


@pytest.mark.parametrize("wire", ["openai", "openresponses"])
def test_usage_is_the_sum_and_shown_by_round(upstream: ScriptedUpstream, tmp_path: Path, wire: str) -> None:
    upstream.scripts["m"] = [answer((10, 2), size=5), answer((20, 3), size=5), answer((30, 4), "Done.")]
    log = io.StringIO()
    log_as_in_production(log)
    with reading(upstream, tmp_path, trace=Tracing(folder=str(tmp_path / "traces"), when="always")) as base:
        reply = stream(base, {"openresponses-wire": wire}, model="m")
        stored = call(base, "GET", f"/v1/responses/{reply.final['id']}").json
        trace = call(base, "GET", f"/v1/responses/{reply.final['id']}/trace").body
    log_as_in_production()
    usage = reply.final["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (60, 9, 69)
    assert usage[ROUNDS] == [counted(10, 2), counted(20, 3), counted(30, 4)]
    assert "estimated" not in usage
    assert stored["usage"] == usage
    if wire == "openresponses":
        wrong = [each for event in reply.events for each in event_violations(event)]
        # what is left is the items of tools, which that schema has no place for
        assert [each for each in wrong if "'openai:" not in each] == []
    (line,) = (each for each in map(json.loads, log.getvalue().splitlines()) if each["event"] == "response")
    assert line["rounds"] == [[10, 2], [20, 3], [30, 4]]
    notes = [each for each in map(decode_record, trace.splitlines()) if isinstance(each, Note)]
    assert [(each.where, each.what) for each in notes if each.kind == "round"] == [
        ("1", "10 tokens in, 2 out"),
        ("2", "20 tokens in, 3 out"),
        ("3", "30 tokens in, 4 out"),
    ]
    assert not [each for each in notes if each.kind == "retry"]


def test_rounds_without_usage_are_estimated_and_say_so(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.scripts["m"] = [answer(None, size=5), answer((20, 3), size=4000), answer(None, "Done. " * 50)]
    with reading(upstream, tmp_path) as base:
        usage = stream(base, model="m").final["usage"]
    first, second, third = usage[ROUNDS]
    assert [each.get("estimated") for each in (first, second, third)] == [True, None, True]
    assert second == counted(20, 3)
    assert 0 < first["input_tokens"] < 100
    assert 0 < first["output_tokens"] < 50
    assert 700 < third["input_tokens"] < 2000, "what the calls gave is in it"
    assert 50 < third["output_tokens"] < 300
    assert usage["estimated"] is True
    for name in ("input_tokens", "output_tokens", "total_tokens"):
        assert usage[name] == sum(each[name] for each in usage[ROUNDS])


def test_one_answer_has_no_rounds(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.scripts["m"] = answer((10, 2), "Done.")
    with reading(upstream, tmp_path) as base:
        usage = stream(base, model="m").final["usage"]
    assert ROUNDS not in usage
    assert usage["input_tokens"] == 10


def test_a_round_that_failed_counts_those_before_it(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.scripts["m"] = [answer((10, 2), size=5), answer((20, 3), size=5), Script([b"no"], 400)]
    with reading(upstream, tmp_path) as base:
        final = stream(base, model="m").final
    assert final["status"] == "failed"
    assert final["usage"][ROUNDS] == [counted(10, 2), counted(20, 3)]


@pytest.mark.parametrize("words", [0, 20])
def test_s8_who_leaves_in_a_later_round_pays_all_of_them(
    upstream: ScriptedUpstream, tmp_path: Path, words: int
) -> None:
    second = Script([*[chunk(content="word ") for _ in range(words)], HANG])
    upstream.scripts["m"] = [answer((100_000, 10), "Let me see.", size=4000), second]
    log = io.StringIO()
    log_as_in_production(log)
    prices = {"m": Price(input=1e6, output=1e6)}  # a dollar for each token
    limits = Limits(tokens_per_minute_per_key=5000)
    more = {"prices": prices, "limits": limits, "api_keys": [hashed("one")]}
    with reading(upstream, tmp_path, keep_alive=0.1, **more) as base:
        body = {"model": "m", "input": "x", "stream": True, "store": False}
        with opened(base, "POST", "/v1/responses", body, ONE) as reply:
            data = b""
            while len(upstream.received) < 2 or data.count(b"output_text.delta") < words + 1:
                data += reply.read1(65536)
        while not call(base, "GET", "/v1/usage", None, ONE).json["data"]:
            time.sleep(0.02)
        cost = float(call(base, "GET", "/v1/usage", None, ONE).json["cost_usd"])
        assert respond(base, ONE, model="m").status == 429
    log_as_in_production()
    if words:  # with what the call gave
        assert 100_010 + 700 + words / 2 < cost < 100_010 + 2000 + 2 * words
    else:
        assert cost == 100_010, "nothing of the second answer came"
    (line,) = (each for each in map(json.loads, log.getvalue().splitlines()) if each["event"] == "response")
    assert float(line["cost_usd"]) == cost


def test_a_round_costs_what_the_model_costs_that_answered_it(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.scripts["m"] = [answer((100, 10), size=5), refusal(500, message="x")]
    upstream.scripts["dear"] = answer((20, 5), "Done.")
    prices = tmp_path / "models.toml"
    prices.write_text("[m.price]\ninput = 5e5\noutput = 5e5\n[dear.price]\ninput = 1e6\noutput = 1e6\n")
    spare = UpstreamSettings(url=upstream.url, name="spare", models=["dear"])
    first = {"failover": ["spare/dear"], "retries": Retries(times=0)}
    more = {"models_file": str(prices), "api_keys": [hashed("one")]}
    with reading(upstream, tmp_path, spare, first=first, **more) as base:
        reply = respond(base, ONE, model="m")
        assert reply.json["usage"][ROUNDS] == [counted(100, 10), counted(20, 5)]
        assert call(base, "GET", "/v1/usage", None, ONE).json["cost_usd"] == "80"


def test_estimates_are_not_corrected_by_sums(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request never was of the size of several."""
    learned: list[int] = []
    monkeypatch.setattr(Meters, "learn", lambda _self, _o, _m, _g, usage: learned.append(usage.input_tokens))
    upstream.scripts["m"] = [answer((10, 2), size=5), answer((20, 3), "Done.")]
    with reading(upstream, tmp_path) as base:
        stream(base, model="m")
        upstream.scripts["m"] = answer((40, 3), "Done.")
        stream(base, model="m")
    assert learned == [40]


@pytest.mark.parametrize("asked", [{"store": False}, {"stream": True}])
def test_s8_what_is_held_between_rounds_is_reserved(
    upstream: ScriptedUpstream, tmp_path: Path, asked: dict[str, Any]
) -> None:
    upstream.scripts["m"] = [*[answer((10, 2), size=20_000)] * 5, answer((10, 2), "Done.")]
    with reading(upstream, tmp_path, limits=Limits(loaded_bytes=70_000)) as base:
        reply: Reply = respond(base, model="m", **asked)
        error = reply.final["error"] if asked.get("stream") else reply.error
        assert error["code"] == "too_much_in_memory", reply.body
        assert 3 <= len(upstream.received) <= 4
        upstream.scripts["m"] = [answer((10, 2), size=20_000), answer((10, 2), "Done.")]
        assert respond(base, model="m").json["status"] == "completed", "it has been released"


def test_an_answer_of_nothing_but_refused_calls_is_a_failure_behind_hosted_ones(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    refused = Script([tool_call(0, "", "other", "call_2"), tool_call(0, "{}"), chunk("tool_calls"), DONE])
    upstream.scripts["m"] = [answer((10, 2), size=5), refused]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "read"}]}
    with reading(upstream, tmp_path) as base:
        reply = respond(base, model="m", tool_choice=choice)
    assert reply.json["status"] == "failed"
    assert reply.json["error"]["message"] == "The model only called tools that the request does not allow."


def test_whole_answers_are_read_in_every_round(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    called = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"size":5}'}}
    first = {
        "index": 0,
        "finish_reason": "tool_calls",
        "message": {"content": "I read.", "tool_calls": [called]},
    }
    last = {"index": 0, "finish_reason": "stop", "message": {"content": "Done."}}
    upstream.scripts["m"] = [Script([frame(choices=[each]), DONE]) for each in (first, last)]
    with reading(upstream, tmp_path) as base:
        reply = respond(base, model="m")
    texts = [item["content"][0]["text"] for item in reply.json["output"] if item["type"] == "message"]
    assert (reply.json["status"], texts) == ("completed", ["I read.", "Done."])
