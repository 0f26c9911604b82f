"""Random streams through our own bridge: the output is valid and has the content of their scripts."""

from hypothesis import given, settings

from openresponses_bridge.conformance import StreamValidator
from openresponses_bridge.corpus import differences, report_of
from openresponses_bridge.dialects import responses
from openresponses_bridge.sse import SSEDecoder
from openresponses_bridge.testing import RandomStream, streams
from tests.support.machines import machine, plain
from tests.support.scale import FACTOR


@given(streams())
@settings(max_examples=100 * FACTOR)
def test_a_stream_that_is_sent_on_says_the_same(stream: RandomStream) -> None:
    """The streams are sent on over the same wire, and are valid."""
    state, validator = machine(stream.wire), StreamValidator(stream.wire)
    inbound = responses.Inbound(state)
    frames = (decoder := SSEDecoder()).feed(stream.body) + decoder.close()
    for event in [event for frame in frames for event in inbound.feed(frame.data)] + inbound.close():
        validator.feed(event)
    assert [str(each) for each in validator.close() or validator.violations] == []
    assert differences(stream.expected, report_of("random", plain(state.snapshot))) == []
