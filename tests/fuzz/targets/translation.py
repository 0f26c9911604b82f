"""Invariant: whatever bytes an upstream sends, a run's translation ends the response exactly once; every
event is valid and their fold equals the snapshot; the result does not depend on how the bytes are split; and
nothing is raised.

Reads that consist of exactly one frame use the template of the dialects that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from openresponses_bridge import ResponseAccumulator, StreamValidator
from openresponses_bridge.dialects import anthropic_messages, chat_completions, responses
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.state import TERMINAL_PHASES
from openresponses_server.runs.exchange import Translation
from tests.fuzz.core import Target
from tests.fuzz.targets import inbounds
from tests.support.machines import machine as new_machine
from tests.support.machines import same

_MOST: Final = 1 << 20  # bytes of one answer
_BUILT: Final[tuple[Callable[..., Any], ...]] = (
    chat_completions.Inbound,
    anthropic_messages.Inbound,
    partial(responses.Inbound, adopt=True),
)


def any_answer(data: bytes) -> None:
    """Choose the dialect by the first byte, and send the rest as the answer."""
    build, data = _BUILT[data[0] % len(_BUILT)] if data else _BUILT[0], data[1:]
    whole = _translated(build, [data])
    assert _translated(build, (data[at : at + 3] for at in range(0, len(data), 3))) == whole
    if b"\r" not in data:
        assert _translated(build, (piece + b"\n\n" for piece in data.split(b"\n\n"))) == whole


def _translated(build: Callable[..., Any], pieces: Iterable[bytes]) -> list[bytes]:
    machine = new_machine("openresponses")
    translation = Translation(machine, build(machine), most=_MOST)
    fold, validator = ResponseAccumulator(), StreamValidator("openresponses")
    events = translation.begin()
    for piece in pieces:
        events += translation.feed(piece)
        if translation.is_complete:
            break
    events += translation.end()
    for number, event in enumerate(events):
        assert event.sequence_number == number, "E2"
        fold.feed(event)
        assert not (broken := validator.feed(event)), [str(each) for each in broken]
    assert not (left := validator.close()), [str(each) for each in left]
    assert machine.phase in TERMINAL_PHASES, machine.phase
    assert same(fold.response, translation.snapshot), "E1"
    return [encode(event) for event in events]


_SEEDS: Final = {"chat": b"\0", "anthropic": b"\1", "responses": b"\2"}
TARGETS = [
    Target(
        "translation",
        any_answer,
        tuple(
            _SEEDS[target.name] + seed
            for target in inbounds.TARGETS
            if target.name in _SEEDS
            for seed in target.seeds
        ),
        inbounds.WORDS,
    )
]
