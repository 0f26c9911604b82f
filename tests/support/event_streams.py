"""The events in the bytes of a stream, and the rules that they break."""

import json
from typing import Any

from openresponses_bridge import SSEDecoder, StreamValidator
from openresponses_bridge.sse import DONE, is_done


def events_of(stream: bytes) -> list[dict[str, Any]]:
    assert stream.endswith(DONE)
    return [json.loads(frame.data) for frame in SSEDecoder().feed(stream) if not is_done(frame)]


def violations(stream: bytes) -> list[str]:
    validator = StreamValidator()
    for frame in SSEDecoder().feed(stream):
        validator.feed_frame(frame)
    validator.close()
    return [str(each) for each in validator.violations]
