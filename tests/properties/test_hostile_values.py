"""Whatever value an upstream puts into a frame, its inbound raises nothing and ends its stream exactly once,
and the reported usage has valid counts; if the value is a number of tokens or a time, the answer stays the
same."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openresponses_bridge.dialects.table import TABLE, dialects
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.protocol.usage import MOST_TOKENS, Usage
from openresponses_bridge.state import TERMINAL_PHASES
from tests.support.checked_inbound import Build, CheckedInbound
from tests.support.model_frames import frames
from tests.support.model_scripts import SCRIPTS

Path = tuple[str | int, ...]
BUILDS: dict[str, Build] = {each.package: dialects()[each.name].capture.inbound for each in TABLE}
SENT = {dialect: {name: frames(dialect, steps) for name, steps in SCRIPTS.items()} for dialect in BUILDS}
NUMBERS = ("-1", "-1e400", "1e400", "1.5", "1e300", "1" + "0" * 400, "-1" + "0" * 400, "9" * 5000, "-0.0")
OTHERS = (
    "true",
    "null",
    '""',
    '"x"',
    '"\\ud800"',
    '"' + "9" * 5000 + '"',
    "[]",
    "[1]",
    "[[]]",
    "{}",
    '{"type": 1}',
)
# fields with counts or times, which are not part of the answer
_TELLING = frozenset({"usage", "tokenUsage", "created", "created_at", "completed_at", "sequence_number"})
_MARK = "the value's place"


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The places of all values within this one."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from paths(each, (*path, key))


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def with_value(frame: bytes, path: Path, text: str) -> bytes:
    """The frame with this JSON text in one place."""
    value = json.loads(frame)
    if not path:
        return text.encode()
    at(value, path[:-1])[path[-1]] = _MARK
    return json.dumps(value).replace(f'"{_MARK}"', text).encode()


def is_telling(path: Path, value: Any) -> bool:
    return type(value) in (int, float) and not _TELLING.isdisjoint(path)


@st.composite
def changed(draw: st.DrawFn, dialect: str, *, telling: bool) -> tuple[list[bytes], list[bytes]]:
    """(a script's frames, the same frames with one value replaced)."""
    script = draw(st.sampled_from(sorted(SENT[dialect])))
    whole = SENT[dialect][script]
    places = [
        (number, path)
        for number, frame in enumerate(whole)
        if frame.startswith(b"{")
        for value in [json.loads(frame)]
        for path in paths(value)
        if not telling or is_telling(path, at(value, path))
    ]
    if not places:
        return whole, whole
    number, path = draw(st.sampled_from(places))
    text = draw(st.sampled_from(NUMBERS if telling else NUMBERS + OTHERS))
    return whole, [*whole[:number], with_value(whole[number], path, text), *whole[number + 1 :]]


def is_consistent(usage: Usage | None) -> bool:
    if usage is None:
        return True
    details = (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens)
    counts = (usage.input_tokens, usage.output_tokens, *details)
    bounded = all(type(count) is int and 0 <= count <= MOST_TOKENS for count in counts)
    assert details[0] <= usage.input_tokens
    assert details[1] <= usage.output_tokens
    return bounded and usage.total_tokens == usage.input_tokens + usage.output_tokens


def answer(stream: CheckedInbound) -> tuple[str, Any]:
    """The end and the content of the answer, without the ids that are random."""
    shown = json.loads(json.dumps(stream.output))
    return stream.status, [{**item, "id": ""} for item in shown]


@pytest.mark.parametrize("dialect", BUILDS)
def test_no_value_raises_or_leaves_a_stream_open(dialect: str) -> None:
    @settings(max_examples=30)
    @given(changed(dialect, telling=False))
    def holds(streams: tuple[list[bytes], list[bytes]]) -> None:
        fed = CheckedInbound(BUILDS[dialect], streams[1])
        assert fed.status in ("completed", "incomplete", "failed", "cancelled")
        assert is_consistent(fed.response.usage)

    holds()


@pytest.mark.parametrize(
    ("dialect", "script", "name"),
    [
        ("codex", "text", "response"),
        ("codex", "citation", "annotation"),
        ("copilot", "citation", "url"),
        ("responses", "text", "metadata"),
        ("vscode", "one_tool", "input"),
    ],
)
def test_no_depth_raises(dialect: str, script: str, name: str) -> None:
    """The depth of some values passes the parser and exceeds what later code can handle, which is deeper in
    the call stack."""
    whole = SENT[dialect][script]
    places = ((number, path) for number, frame in enumerate(whole) for path in paths(json.loads(frame)))
    number, path = next((number, path) for number, path in places if path and path[-1] == name)
    for depth in range(850, 1000):
        for deep in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
            lying = with_value(whole[number], path, deep)
            machine = ResponseStreamStateMachine("m")
            inbound = BUILDS[dialect](machine)
            for frame in [*whole[:number], lying, *whole[number + 1 :]]:
                inbound.feed(frame)
            inbound.close()
            assert machine.phase in TERMINAL_PHASES


DEEP = {
    "chat_completions": b'{"choices": [{"delta": {"content": [{"type": "text", "text": VALUE}]}}]}',
    "gemini": b'{"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {"a": VALUE}}}'
    b"]}}]}",
    "anthropic_messages": b'{"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use",'
    b' "id": "t", "name": "f", "input": {"a": VALUE}}}',
}


@pytest.mark.parametrize("dialect", DEEP)
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('[{"text": ', "}]"), ('{"\\ud800": ', "}")])
def test_no_depth_of_what_is_read_whole_raises(dialect: str, opened: str, closed: str) -> None:
    for depth in range(100, 1000, 20):
        machine = ResponseStreamStateMachine("m")
        inbound = BUILDS[dialect](machine)
        value = opened * depth + '"x"' + closed * depth
        inbound.feed(DEEP[dialect].replace(b"VALUE", value.encode()))
        inbound.close()
        assert machine.phase in TERMINAL_PHASES


@pytest.mark.parametrize(
    "dialect", ["chat_completions", "anthropic_messages", "codex", "responses", "copilot"]
)
def test_a_number_that_only_counts_loses_no_answer(dialect: str) -> None:
    assert any(
        is_telling(path, at(json.loads(frame), path))
        for sent in SENT[dialect].values()
        for frame in sent
        if frame.startswith(b"{")
        for path in paths(json.loads(frame))
    )

    @settings(max_examples=30)
    @given(changed(dialect, telling=True))
    def holds(streams: tuple[list[bytes], list[bytes]]) -> None:
        whole, lying = (CheckedInbound(BUILDS[dialect], each) for each in streams)
        assert answer(lying) == answer(whole)
        assert is_consistent(lying.response.usage)

    holds()
