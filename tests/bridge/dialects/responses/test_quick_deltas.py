"""Deltas that go on with what is open take a quick way: what leaves is what the long way gives."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openresponses_bridge.dialects.responses import Inbound
from openresponses_bridge.emitter.stopping import StopFilter
from openresponses_bridge.protocol.codec import encode
from tests.support.chat import new_machine
from tests.support.foreign import Json, added, argue, call, created, done, ended, message, say, whole
from tests.support.machines import WIRES
from tests.support.shared import shared_files

TOKEN = {"token": "x", "logprob": -0.1, "bytes": [120], "top_logprobs": []}


def sent(frames: list[bytes], quick: bool, wire: str, stop: str = "") -> tuple[list[list[bytes]], list[str]]:
    """What left after each frame and at the end, and what was noted of it."""
    machine = new_machine(wire=wire)
    inbound = Inbound(StopFilter(machine, (stop,)) if stop else machine)
    if not quick:
        inbound._fast_readers.clear()
    fed = [inbound.feed(frame) for frame in frames]
    if not stop:  # a call without a name can't be ended by the filter
        fed.append(inbound.close())
    return [[encode(event) for event in events] for events in fed], [
        str(case) for case in machine.diagnostics
    ]


def alike(frames: list[bytes], wire: str = "openai", stop: str = "") -> None:
    assert sent(frames, True, wire, stop) == sent(frames, False, wire, stop)


def numbered(events: list[Json]) -> list[bytes]:
    return [encode({"sequence_number": at} | event) for at, event in enumerate(events)]


TEXT = st.sampled_from(["", "Hi", " ", "é", "\ud83d", "\ude42", "stop"])
ID = st.sampled_from(["msg_u", "fc_u", "a", "b", ""])
AT = st.integers(0, 1)
BESIDE = st.fixed_dictionaries(
    {},
    optional={
        "logprobs": st.sampled_from([[], [TOKEN], None, {}]),
        "obfuscation": st.sampled_from(["xx", 7, None]),
        "content_index": st.integers(0, 1),
        "sequence_number": st.integers(-1, 4),
        "output_index": st.sampled_from([0, "0", None]),
        "unknown": st.just(1),
    },
)
EVENT = st.one_of(
    st.builds(say, TEXT, AT, ID),
    st.builds(lambda text, at, beside: say(text, at) | beside, TEXT, AT, BESIDE),
    st.builds(argue, TEXT, AT, ID),
    st.builds(argue, st.sampled_from(["{", "}", '{"a":1}', ""]), AT),
    st.builds(lambda text, at: {**argue(text, at), "obfuscation": "x"}, TEXT, AT),
    st.builds(lambda text, at, id: whole("output_text", "text", text, at, id), TEXT, AT, ID),
    st.builds(lambda text, at, id: whole("function_call_arguments", "arguments", text, at, id), TEXT, AT, ID),
    st.builds(lambda at, id: added(message(id=id), at), AT, ID),
    st.builds(lambda at, id, text: added(call(text, id=id), at), AT, ID, TEXT),
    st.builds(lambda at, id, text: done(message(text, id=id), at), AT, ID, TEXT),
    st.builds(lambda at, id, text: done(call(text, id=id), at), AT, ID, TEXT),
    st.sampled_from([created(), ended(), ended("failed"), {"type": "x.y"}, {"type": "x:y"}]),
)


@given(st.lists(EVENT, max_size=12), st.sampled_from(WIRES), st.sampled_from(["", "stop"]))
def test_any_stream_leaves_as_it_does_the_long_way(events: list[Json], wire: str, stop: str) -> None:
    alike(numbered(events), wire, stop)


CLOSER_LOOK: dict[str, list[Json]] = {
    "log probabilities": [say("a"), say("b", logprobs=[TOKEN])],
    "another part": [say("a"), say("b", content_index=1)],
    "another item": [say("a"), say("b", 1)],
    "another item's id": [say("a"), added(message(id="b"), 1), say("b", id="b")],
    "an id of nothing": [say("a"), say("b", id="b"), say("", id="c"), say("d", id="")],
    "another item at the index": [added(message()), say("a"), added(message(id="b")), say("b", id="c")],
    "after the end": [say("a"), ended(), say("b"), say("c", id="c")],
    "numbers that fall": [say("a"), say("b", sequence_number=0), say("c")],
    "arguments before their call": [argue("{"), added(call("{}")), argue("1")],
    "another call's id": [added(call()), argue("{"), added(call(id="b"), 1), argue("}", id="b")],
    "arguments for a message": [added(call()), argue("{"), added(message()), argue("}")],
    "arguments of no length": [added(call()), argue("{"), argue(""), argue("", id="x")],
    "arguments after the call": [done(call("{}")), argue("{"), argue("}", id="x")],
}


@pytest.mark.parametrize("stop", ["", "a"])
@pytest.mark.parametrize("events", CLOSER_LOOK.values(), ids=CLOSER_LOOK)
def test_what_takes_a_closer_look_gets_it(events: list[Json], stop: str) -> None:
    alike(numbered([created(), *events]), stop=stop)


class Takes:
    """An inbound's quick readers, which count what they gave."""

    def __init__(self, inbound: Inbound) -> None:
        self.taken = 0
        for kind, reader in list(inbound._fast_readers.items()):
            inbound._fast_readers[kind] = lambda event, reader=reader: self._count(reader(event))

    def _count(self, events: Any) -> Any:
        self.taken += events is not None
        return events


@pytest.mark.parametrize(
    ("opening", "deltas"),
    [
        ([say("Hi")], [say("a"), say("b", logprobs=[]), say("c", obfuscation="xx")]),
        ([say("Hi")], [say("a", id="x"), say("b", id="y"), say("c")]),
        ([added(call()), argue("{")], [argue('"a"'), argue(":1"), argue("}")]),
        ([added(call()), argue("{")], [argue('"a"', id="x"), argue(":1", id="y"), argue("}")]),
        (
            [added(call()), argue("{"), added(call(id="b"), 1), argue("{", 1, "b")],
            [argue("1"), argue("1", 1, "b")],
        ),
    ],
    ids=["text", "text, ids rotating", "arguments", "arguments, ids rotating", "two calls"],
)
def test_what_goes_on_takes_the_quick_way(opening: list[Json], deltas: list[Json]) -> None:
    """Without this the quick way could die out unseen: what it gives is the same."""
    inbound = Inbound(new_machine())
    frames = numbered([created(), *opening, *deltas])
    for frame in frames[: -len(deltas)]:
        inbound.feed(frame)
    counting = Takes(inbound)
    for frame in frames[-len(deltas) :]:
        assert len(inbound.feed(frame)) == 1
    assert counting.taken == len(deltas)


@pytest.mark.parametrize("capture", [*shared_files("responses"), *shared_files("openresponses")])
def test_recorded_streams_leave_as_they_do_the_long_way(capture: Path) -> None:
    lines = (line.removeprefix(b"data:").strip() for line in capture.read_bytes().splitlines())
    alike([line for line in lines if line.startswith((b"{", b"["))])
