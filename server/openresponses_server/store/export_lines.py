"""Records as lines of JSON, written by `db export` and read by `db import`.

A line is a record with its frames; long frames follow the record in lines of their own. A record in progress
has a `lease`. A `hidden` record was deleted and is kept for later turns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, decode_response, encode
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.state import TERMINAL_EVENT
from openresponses_server.store.base import Lease
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.records import (
    HIDDEN,
    InputRow,
    Row,
    can_be_id,
    decode_input,
    id_bytes,
    is_hidden,
    lease_of,
    listed_ids,
)

FRAMES_IN_LINE: Final = 1024 * 1024
"""The most bytes of frames that are written into their record's line."""

_LATEST: Final = 1e12  # seconds: no response was made so late
_HIGHEST: Final = 2**62
_UNREADABLE: Final = (msgspec.MsgspecError, WireError, RecursionError, UnicodeError)


class BadLine(ValueError):
    """A line that can't be imported; the message says why."""


class _RecordLine(Struct, forbid_unknown_fields=True):
    id: str
    owner: str
    status: str
    previous_response_id: str | None
    created_at: float
    updated_at: float
    expires_at: float | None
    lease: Lease | None
    request: Raw
    input: list[Raw]
    response: Raw
    frames: str
    hidden: bool = False
    last_sequence: int | None = None


class _FramesLine(Struct, forbid_unknown_fields=True):
    frames_of: str
    first_sequence: int
    last_sequence: int
    frames: str


class ReadRecord(Struct, frozen=True):
    """A record read from its line; `frames` are those of the same line."""

    row: Row
    response: Response
    input: list[InputRow]
    frames: Frames | None


class ReadFrames(Struct, frozen=True):
    """Further frames of the preceding record."""

    response_id: str
    frames: Frames


def is_record(line: bytes) -> bool:
    """Whether this line of an export is a record's; the other lines are further frames of the preceding
    one."""
    return not line.startswith(b'{"frames_of":')


def export_lines(row: Row, items: Iterable[bytes], frames: list[Frames]) -> Iterator[bytes]:
    """The lines of a record with all of its frames."""
    if sum(len(each.data) for each in frames) <= FRAMES_IN_LINE:
        yield record_line(row, items, joined(frames))
        return
    yield record_line(row, items, None)
    for each in frames:
        yield frames_line(row.id, each)


def record_line(row: Row, items: Iterable[bytes], frames: Frames | None) -> bytes:
    """The line of a record with all of its frames, or with None if they follow in lines of their own."""
    fields = {
        "id": row.id,
        "owner": row.owner.removeprefix(HIDDEN),
        "hidden": is_hidden(row.owner),
        "status": row.status,
        "previous_response_id": row.previous_response_id,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "expires_at": row.expires_at,
        "lease": lease_of(row),
        "request": None if row.request is None else decode_json(row.request),
        "input": [Raw(item) for item in items],
        "response": Raw(row.response),
        "last_sequence": row.last_sequence,
        "frames": "" if frames is None else frames.data.decode(),
    }
    return encode(fields) + b"\n"


def frames_line(response_id: str, frames: Frames) -> bytes:
    """A line of frames, for a record whose own line has none."""
    line = _FramesLine(response_id, frames.first, frames.last, frames.data.decode())
    return msgspec.json.encode(line) + b"\n"


def read_line(data: bytes) -> ReadRecord | ReadFrames:
    """The contents of a line. Raises BadLine."""
    try:
        if data.startswith(b'{"frames_of":'):
            line = msgspec.json.decode(data, type=_FramesLine)
            return ReadFrames(line.frames_of, _frames(line.first_sequence, line.last_sequence, line.frames))
        return _record(msgspec.json.decode(data, type=_RecordLine))
    except _UNREADABLE as error:
        raise BadLine(f"can't be read: {error}") from error


def _record(line: _RecordLine) -> ReadRecord:
    _check_columns(line)
    response = decode_response(bytes(line.response))
    for name in ("id", "previous_response_id", "status"):
        if getattr(response, name) != getattr(line, name):
            raise BadLine(f"{name} is not the one of its response")
    items = [bytes(item) for item in line.input]
    names = listed_ids(line.id, decode_input(items))
    count = line.frames.count("\n\n")
    last = count - 1 if line.last_sequence is None else line.last_sequence
    if not -1 <= last < _HIGHEST:
        raise BadLine("last_sequence is not the number of an event")
    row = Row(
        id=line.id,
        owner=HIDDEN + line.owner if line.hidden else line.owner,
        previous_response_id=line.previous_response_id,
        status=line.status,
        created_at=line.created_at,
        updated_at=line.updated_at,
        expires_at=None if line.hidden else line.expires_at,
        lease_worker=line.lease.worker if line.lease else None,
        lease_until=line.lease.until if line.lease else None,
        last_sequence=last,
        request=_request(line.request),
        response=bytes(line.response),
    )
    rows = [InputRow(id_bytes(name), item) for name, item in zip(names, items, strict=True)]
    frames = _frames(last - count + 1, last, line.frames) if count else None
    if frames is not None and frames.first != 0:
        raise BadLine(f"has {count} frames, and its last event has the number {last}")
    return ReadRecord(row, response, rows, frames)


def _check_columns(line: _RecordLine) -> None:
    """Raises BadLine for values that the database would refuse or under which nothing could be found."""
    link = line.previous_response_id
    if not can_be_id(line.id):
        raise BadLine("id can't be the id of a response")
    if link is not None and not can_be_id(link):
        raise BadLine("previous_response_id can't be the id of a response")
    if is_hidden(line.owner) or not (line.owner == "" or can_be_id(line.owner)):
        raise BadLine("owner can't be an owner")
    if line.lease is None and line.status not in TERMINAL_EVENT:
        raise BadLine("status is not that of a response that has ended, and nobody makes it")
    if line.lease is not None and line.hidden:
        raise BadLine("is in progress and deleted")
    for name in ("created_at", "updated_at", "expires_at"):
        seconds: Any = getattr(line, name)
        if seconds is not None and not (math.isfinite(seconds) and 0 <= seconds < _LATEST):
            raise BadLine(f"{name} is not a time")


def _request(raw: Raw) -> bytes | None:
    data = bytes(raw)
    return None if data == b"null" else data


def _frames(first: int, last: int, text: str) -> Frames:
    """The frames of these events. Raises BadLine if the text has another number of frames."""
    data = text.encode()
    if not (0 <= first <= last < _HIGHEST and data.endswith(b"\n\n")):
        raise BadLine("frames are not whole events")
    if data.count(b"\n\n") != last - first + 1:
        raise BadLine(f"frames are not those of the events {first} to {last}")
    return Frames(first, last, data)
