"""The round trips of each dialect's own tests, 12,000 in all, ten times over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.bridge.decoder import test_round_trip as parts
from tests.bridge.dialects.anthropic_messages import test_round_trip as anthropic
from tests.bridge.dialects.chat_completions import test_outbound_round_trip as chat
from tests.bridge.dialects.copilot import test_round_trip as copilot
from tests.bridge.dialects.responses import test_own_streams as responses
from tests.bridge.dialects.vscode import test_round_trip as vscode
from tests.support.anthropic_strategies import streams
from tests.support.machines import WIRES
from tests.support.scale import MANY

WIRE: Final = st.sampled_from(WIRES)
KEY: Final = st.sampled_from([None, b"k" * 32])
REASON: Final = st.sampled_from(["stop", "length", "content_filter", "cancelled"])
# the test → what it is given
TRIPS: Final[dict[Callable[..., None], Callable[..., Any]]] = {
    anthropic.test_anthropic_to_events_to_anthropic_is_the_identity: given(
        wire=WIRE, key=KEY, made=streams()
    ),
    chat.test_a_generated_stream_says_the_same_on_the_way_out: given(chat.scripts, chat.reasons, WIRE),
    copilot.test_events_to_deltas_to_events: given(copilot.scripts(), REASON),
    copilot.test_deltas_to_events_to_deltas: given(copilot.scripts()),
    parts.test_parts_equal_what_was_called: given(parts.steps, WIRE),
    parts.test_events_over_the_wire_decode_to_the_same_parts: given(parts.steps),
    responses.test_our_own_stream_comes_out_equal: given(
        WIRE, st.lists(responses.steps, max_size=14), responses.endings
    ),
    responses.test_a_respelled_stream_says_the_same: given(
        WIRE, st.lists(responses.steps, max_size=10), responses.endings
    ),
    vscode.test_parts_to_events_to_parts: given(vscode.answers()),
}


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("trip", TRIPS, ids=lambda trip: trip.__name__)
def test_many_round_trips(trip: Any) -> None:
    made = TRIPS[trip](trip.hypothesis.inner_test)
    # without shrinking: a stream that fails says enough
    phases = tuple(phase for phase in Phase if phase not in (Phase.shrink, Phase.explain))
    settings(max_examples=12_000 * MANY // len(TRIPS), phases=phases)(made)()
