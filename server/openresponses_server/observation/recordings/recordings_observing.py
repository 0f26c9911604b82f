"""A recording, observed: its answers one after the other, at the times at which they came."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import Final

from openresponses_server.observation.recordings.captures import Check, Unreadable, takes_all, with_pauses
from openresponses_server.observation.recordings.observed import observed
from openresponses_server.observation.recordings.observing import Finding, Observation, line
from openresponses_server.observation.recordings.playing import Clock, body_lines
from openresponses_server.observation.recordings.reader import Exchange, Index
from openresponses_server.observation.recordings.records import Record, decode_record, is_recording
from openresponses_server.observation.recordings.sources import AUTO, DIALECTS

_FIRST: Final = 4096  # bytes of the first line that say whether this is a recording
_SHOWN: Final = 2000  # characters of a refusal
_SHOWN_RECORDS: Final = 100


def observed_file(data: bytes, name: str = AUTO, check: Check = takes_all) -> Iterator[bytes]:
    """The lines of a capture, or of the answers in a recording, as `Observation`, and b"" wherever some time
    has passed without one: no step is long, whatever is in the file. `check` refuses payloads
    before they are decoded. Raises Unreadable, which may be after some lines."""
    file = BytesIO(data)
    if not is_recording(file.readline(_FIRST)):
        file.seek(0)
        yield from observed(with_pauses(file), name, check=check)
        return
    file.seek(0)
    index = Index()
    for read in with_pauses(file):
        if read:
            index.feed(read)
        else:
            yield b""
    exchanges = index.exchanges
    # what a client was sent is made of what upstreams sent
    shown = [each for each in exchanges if each.asked.leg == "upstream"] or exchanges
    if not shown:
        raise Unreadable(1, "the recording has no exchanges")
    for each in shown:
        yield from _exchange(data, each, name, shown[0].asked.at, check)


def _exchange(data: bytes, each: Exchange, name: str, begin: float, check: Check) -> Iterator[bytes]:
    clock = Clock(None)
    clock.reach(each.asked.at)
    lines = body_lines(_records(data, each), clock)

    def at() -> float:
        return max(round(clock.at - begin, 6), 0.0)

    if not 200 <= each.status < 300:
        said = b"".join(islice(lines, _SHOWN_RECORDS)).decode("utf-8", "replace")[:_SHOWN]
        what = f"refused with status {each.status}" if each.status else "no answer"
        found = [Finding("warning", f"exchange {each.asked.exchange}", what)]
        yield line(Observation(at(), "refused", said, each.line, findings=found))
        yield line(Observation(at(), ended=True))
        return
    spoken = each.asked.dialect if name == AUTO else name
    if spoken not in DIALECTS:
        raise Unreadable(each.line, f"dialect {spoken[:100]!r} is not one of: {', '.join(DIALECTS)}")
    try:
        yield from observed(with_pauses(lines), spoken, at, check)
    except Unreadable as error:
        what = f"the answer of exchange {each.asked.exchange} can't be read: {error}"
        raise Unreadable(each.line, what) from error


def _records(data: bytes, exchange: Exchange) -> Iterator[Record]:
    for begin, end in zip(exchange.places[::2], exchange.places[1::2], strict=True):
        for each in BytesIO(data[begin:end]):
            record = decode_record(each) if each.strip() else None
            if record is not None:
                yield record
