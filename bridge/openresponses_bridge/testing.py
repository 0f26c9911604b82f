"""Strategies for Hypothesis: random streams, each with the result that a reader should decode. Needs
`openresponses-bridge[testing]`.

    @given(streams())
    def test_my_decoder(stream):
        mine = decode(stream.body)
        assert mine.text == stream.expected.text

Hypothesis shrinks a failing stream to few and short steps.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from openresponses_bridge.corpus.cases import WIRE_NAMES, CaseWire, stream_of
from openresponses_bridge.corpus.scripts import Step
from openresponses_bridge.corpus.truth import Expected, expected_of
from openresponses_bridge.corpus.variants import LEGAL, frame_of
from openresponses_bridge.emitter import ResponseStreamStateMachine

__all__ = ["RandomStream", "scripts", "streams"]


class RandomStream(NamedTuple):
    """A stream of one response, with the result that a reader should decode."""

    wire: CaseWire
    steps: list[Step]
    """The steps that made it, as in `openresponses_bridge.corpus.scripts`."""
    variant: str | None
    """The legal change with which it is sent, by name; None for none."""
    events: list[dict[str, Any]]
    expected: Expected

    @property
    def body(self) -> bytes:
        """The events as server-sent events."""
        return "".join(map(frame_of, self.events)).encode() + b"data: [DONE]\n\n"


_TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
# of errors: one that is blank or JSON is read as another message
_MESSAGES: Final = _TEXTS.map(lambda text: f"No {text}")
_NAMES: Final = st.sampled_from(["get_weather", "find", "edit"])
_INPUTS: Final = st.dictionaries(_TEXTS, st.none() | st.booleans() | st.integers() | _TEXTS, max_size=2)
_LOGPROB: Final = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
_USAGES: Final = st.builds(
    lambda before, after: {"input_tokens": before, "output_tokens": after},
    st.integers(1, 9),
    st.integers(1, 9),
)
_SEARCH: Final = {"type": "web_search_call", "status": "completed"}
_RESPONSE: Final = ResponseStreamStateMachine(
    "m", response_id="resp_0", ids=lambda prefix: f"{prefix}_0", clock=lambda: 0
).snapshot
# steps that may stand anywhere before the end (_ABOUT), and those that may stand after the start (_WITHIN)
_ABOUT: Final[list[Step]] = [
    ("machine", "adopt", _RESPONSE),
    ("machine", "report", _RESPONSE),
    ("machine", "report_names", "m-1", "flex"),
    ("machine", "native", "acme", {"seen": 1}),
    ("machine", "usage", {"input_tokens": 1, "output_tokens": 1}),
]
_WITHIN: Final[list[Step]] = [
    *_ABOUT,
    ("machine", "item_extra", {"novel": 1}),
    ("machine", "part_extra", {"novel": [2]}),
    ("machine", "stop_sequence", "END"),
    ("machine", "end_nameless"),
    ("extension", "acme:beat", {"deep": [{"a": None}]}),
    ("expect", "msg_expected", "commentary"),
    ("part_end",),
    ("item_end",),
    ("encrypted", "b3BhcXVl"),
]


@st.composite
def _texts(draw: st.DrawFn) -> list[Step]:
    verb = draw(st.sampled_from(["text", "refusal", "reasoning", "summary"]))
    deltas = draw(st.lists(_TEXTS, min_size=1, max_size=3))
    if verb == "text" and draw(st.booleans()):
        return [(verb, delta, [_LOGPROB]) for delta in deltas]
    if verb == "summary" and draw(st.booleans()):
        return [(verb, deltas[0], 0), *((verb, delta, 1) for delta in deltas[1:])]
    return [(verb, delta) for delta in deltas]


@st.composite
def _cited(draw: st.DrawFn) -> list[Step]:
    text = draw(_TEXTS)
    return [("text", text), ("cite", "https://a.example/", draw(_TEXTS), 0, len(text))]


@st.composite
def _arguments(draw: st.DrawFn) -> str:
    whole = json.dumps(draw(_INPUTS), ensure_ascii=draw(st.booleans()))
    cut = whole[: draw(st.integers(0, len(whole)))]
    return draw(st.sampled_from([whole, cut, '{"q":}']))


@st.composite
def _call(draw: st.DrawFn) -> list[Step]:
    """A call. One without a `call_end` has whole, cut or empty arguments when the response ends."""
    name, text = draw(_NAMES), draw(_arguments())
    begun: list[Step] = [("call", 0, "call_0", name)]
    if draw(st.booleans()):
        begun = [("call", 0, "call_0", None), ("name", 0, name)]
    at = draw(st.integers(0, len(text)))
    pieces: list[Step] = [("arguments", 0, piece) for piece in (text[:at], text[at:]) if piece]
    return [*begun, *pieces, *([("call_end", 0)] if draw(st.booleans()) else [])]


@st.composite
def _calls(draw: st.DrawFn) -> list[Step]:
    """Several calls whose steps alternate."""
    calls = draw(st.lists(_call(), min_size=1, max_size=3))
    waiting = [_renumbered(call, at) for at, call in enumerate(calls)]
    steps: list[Step] = []
    while waiting:
        turn = draw(st.integers(0, len(waiting) - 1))
        steps.append(waiting[turn].pop(0))
        if steps[-1][0] == "call" and steps[-1][3] is None:  # its name comes before another call begins
            steps.append(waiting[turn].pop(0))
        if not waiting[turn]:
            del waiting[turn]
    return steps


@st.composite
def _custom(draw: st.DrawFn) -> list[Step]:
    pieces: list[Step] = [("arguments", 0, piece) for piece in draw(st.lists(_TEXTS, max_size=2))]
    return [("custom", 0, "call_0", draw(_NAMES)), *pieces, ("call_end", 0)]


@st.composite
def _hosted(draw: st.DrawFn) -> list[Step]:
    steps: list[Step] = [("announce", {**_SEARCH, "id": "ws_0", "status": "in_progress"})]
    if draw(st.booleans()):
        steps.append(("progress", "ws_0", "response.web_search_call.searching", {}))
    return [*steps, ("item", {**_SEARCH, "id": "ws_0"})] if draw(st.booleans()) else steps


@st.composite
def _whole(draw: st.DrawFn) -> list[Step]:
    text = draw(_TEXTS)
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    items: list[dict[str, Any]] = [
        {**message, "status": "completed"},
        {**message, "status": "incomplete"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]},
        {"type": "function_call", "call_id": "call_0", "name": "find", "arguments": '{"q": 1}'},
        {"type": "function_call_output", "call_id": "call_0", "output": text},
        {"type": "compaction", "id": "cmp_0", "encrypted_content": "b3BhcXVl"},
        {"type": "acme:note", "text": text},
    ]
    return [("item", draw(st.sampled_from(items)))]


_PIECES: Final = st.one_of(
    _texts(),
    _calls(),
    _cited(),
    st.lists(st.sampled_from(_WITHIN), min_size=1, max_size=3),
    _custom(),
    _hosted(),
    _whole(),
)
_WITH_INDEX: Final = ("call", "custom", "name", "arguments", "call_end")
_MOST_CALLS: Final = 3  # in a piece


def _renumbered(steps: list[Step], first: int) -> list[Step]:
    """Return the steps with their indexes and ids counted from `first`."""

    def id_of(id: str) -> str:
        prefix, _, number = id.rpartition("_")
        return f"{prefix}_{int(number) + first}"

    result: list[Step] = []
    for verb, *facts in steps:
        if verb in _WITH_INDEX:
            facts[0] += first
        if verb in ("call", "custom"):
            facts[1] = id_of(facts[1])
        elif verb == "progress":
            facts[0] = id_of(facts[0])
        elif verb in ("announce", "item"):
            ids = {name: id_of(facts[0][name]) for name in ("id", "call_id") if name in facts[0]}
            facts[0] = facts[0] | ids
        result.append((verb, *facts))
    return result


@st.composite
def scripts(draw: st.DrawFn) -> list[Step]:
    """Random legal scripts: any output in any order, calls whose steps alternate, and every kind of end."""
    before = draw(st.lists(st.sampled_from(_ABOUT), max_size=2))
    pieces = draw(st.lists(_PIECES, max_size=5))
    numbered = (step for at, piece in enumerate(pieces) for step in _renumbered(piece, _MOST_CALLS * at))
    return [*before, *([("start",)] if before else []), *numbered, *draw(_endings())]


@st.composite
def _endings(draw: st.DrawFn) -> list[Step]:
    verb = draw(st.sampled_from(["end", "end", "end", "cancel", "fail"]))
    if verb == "fail":
        return [("fail", draw(st.sampled_from(["server_error", "rate_limit_exceeded"])), draw(_MESSAGES))]
    if verb == "cancel":
        return [("cancel",)]
    reason = draw(st.sampled_from(["stop", "tool_calls", "length", "content_filter", "cancelled"]))
    deferred = draw(st.booleans())
    before: list[Step] = [("defer", reason)] if deferred else []
    return [*before, ("end", None if deferred else reason, draw(_USAGES))]


_REFUSED: Final = st.builds(lambda text: [("fail", "server_error", text)], _MESSAGES)


@st.composite
def streams(draw: st.DrawFn, wire: CaseWire | None = None) -> RandomStream:
    """Random valid streams, on this wire or, by default, on either, sent with any legal change or none."""
    chosen = draw(st.sampled_from(WIRE_NAMES)) if wire is None else wire
    steps = draw(_REFUSED if draw(st.integers(0, 7)) == 7 else scripts())
    events = stream_of(steps, chosen)
    fitting = [name for name, variant in LEGAL.items() if variant.fits(events)]
    variant = draw(st.sampled_from([None, *fitting]))
    if variant is not None:
        events = LEGAL[variant].apply(events)
    return RandomStream(chosen, steps, variant, events, expected_of(steps, chosen))
