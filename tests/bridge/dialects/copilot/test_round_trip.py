"""Generated responses: events → deltas → events loses nothing but what is documented as lost."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge.dialects.copilot import Inbound, Outbound, encode_chunk
from tests.support.checked_inbound import CheckedInbound
from tests.support.machines import Run
from tests.support.scale import FACTOR, with_many_examples

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
# an empty object waits for what may follow it
ARGUMENTS = st.dictionaries(TEXT, st.integers() | TEXT, min_size=1, max_size=2).map(json.dumps)
CHOICES = ("text", "reasoning", "call", "extension")


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """What a model says: texts, thoughts, calls in pieces."""
    steps: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(CHOICES))
        if kind == "call":
            arguments = draw(ARGUMENTS)
            cut = draw(st.integers(0, len(arguments)))
            steps.append((kind, (arguments[:cut], arguments[cut:])))
        else:
            steps.append((kind, draw(TEXT)))
    return steps


def play(steps: list[tuple[str, Any]], reason: str) -> Run:
    run = Run("openai")
    for position, (kind, value) in enumerate(steps):
        PLAYERS[kind](run, position, value)
    run("usage", {"input_tokens": 3, "output_tokens": 2})
    run("finish", reason)
    return run


def _call(run: Run, position: int, pieces: tuple[str, str]) -> None:
    run("tool_call", position, f"call_{position}", "find")
    for piece in pieces:
        run("tool_call", position, arguments=piece)
    run("tool_call_done", position)


PLAYERS: dict[str, Callable[[Run, int, Any], None]] = {
    "text": lambda run, _, value: run("text", value) and None,
    "reasoning": lambda run, _, value: run("reasoning", value) and None,
    "extension": lambda run, _, value: (
        run("extension_event", "copilot:stateful_marker", {"value": value}) and None
    ),
    "call": _call,
}


def said(output: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Items without ids; texts that follow each other are one, since deltas know no messages."""
    entries: list[tuple[str, Any]] = []
    for item in output:
        if item["type"] == "function_call":
            entries.append(("call", (item["call_id"], item["name"], item["arguments"])))
            continue
        text = "".join(part["text"] for part in item["content"])
        if entries and entries[-1][0] == item["type"]:
            text = entries.pop()[1] + text
        entries.append((item["type"], text))
    return entries


@settings(max_examples=40 * FACTOR)
@given(scripts(), st.sampled_from(["stop", "length", "content_filter", "cancelled"]))
def test_events_to_deltas_to_events(steps: list[tuple[str, Any]], reason: str) -> None:
    run = play(steps, reason)
    outbound = Outbound()
    lines = [encode_chunk(chunk) for event in run.events for chunk in outbound.feed(event)]
    again = CheckedInbound(Inbound, lines, wire="openai")
    assert said(again.output) == said(run.output)
    first, second = run.terminal, again.run.terminal
    for field in ("status", "incomplete_details", "usage"):
        assert second[field] == first[field]
    assert [event.raw["value"] for event in again.events if ":" in event.type] == [  # type: ignore[union-attr]
        value for kind, value in steps if kind == "extension"
    ]


@settings(max_examples=40 * FACTOR)
@given(scripts())
def test_deltas_to_events_to_deltas(steps: list[tuple[str, Any]]) -> None:
    outbound, again = Outbound(), Outbound()
    chunks = [chunk for event in play(steps, "stop").events for chunk in outbound.feed(event)]
    fed = CheckedInbound(Inbound, [encode_chunk(chunk) for chunk in chunks], wire="openai")
    repeated = [chunk for event in fed.events for chunk in again.feed(event)]
    assert list(map(anonymous, repeated)) == list(map(anonymous, chunks))


def anonymous(chunk: Any) -> Any:
    """A chunk without the ids that the machine in between gives anew."""
    plain = json.loads(encode_chunk(chunk))
    plain.pop("requestId", None)
    return plain


test_many_events = with_many_examples(
    test_events_to_deltas_to_events,
    scripts(),
    st.sampled_from(["stop", "length", "content_filter", "cancelled"]),
)
test_many_deltas = with_many_examples(test_deltas_to_events_to_deltas, scripts())
