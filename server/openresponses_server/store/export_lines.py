"""Records as lines of JSON, written by `db export` and read by `db import`.

A line is a record with its frames; long frames follow the record in lines of their own. A record in progress
has a `lease`. A `hidden` record was deleted and is kept for later turns. A line that begins with
`conversation` is a conversation, whose items follow in lines of their own. One that begins with `key` is a
managed key, with its hash.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, decode_response, encode
from openresponses_bridge.protocol.request import Metadata
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.state import TERMINAL_EVENT
from openresponses_server.http.managed_keys import ManagedKey
from openresponses_server.limits.owners import LIMIT_NAMES, KeyLimits, is_limit
from openresponses_server.store.base import Lease, StoredConversation
from openresponses_server.store.frames import Frames, joined
from openresponses_server.store.idempotency import IdempotencyKey
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

_FRAMES_OF: Final = b'{"frames_of":'
_CONVERSATION: Final = b'{"conversation":'
_ITEMS_OF: Final = b'{"items_of":'
_KEY: Final = b'{"key":'
_HASH: Final = 64  # characters
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
    conversation_id: str | None = None
    idempotency_key: IdempotencyKey | None = None


class _FramesLine(Struct, forbid_unknown_fields=True):
    frames_of: str
    first_sequence: int
    last_sequence: int
    frames: str


class _ConversationLine(Struct, forbid_unknown_fields=True):
    conversation: str
    owner: str
    created_at: float
    expires_at: float | None
    metadata: Metadata
    items: int


class _ItemsLine(Struct, forbid_unknown_fields=True):
    items_of: str
    items: list[tuple[str, Raw]]


class _KeyLine(Struct, forbid_unknown_fields=True):
    key: str
    hash: str
    last_four: str
    name: str
    owner: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    models: tuple[str, ...] | None
    limits: KeyLimits


class ReadConversation(Struct, frozen=True):
    """A conversation read from its line, and the number of items that follow."""

    conversation: StoredConversation
    items: int


class ReadItems(Struct, frozen=True):
    """Items of the preceding conversation."""

    conversation_id: str
    rows: list[InputRow]


class ReadRecord(Struct, frozen=True):
    """A record read from its line; `frames` are those of the same line."""

    row: Row
    response: Response
    input: list[InputRow]
    frames: Frames | None
    key: IdempotencyKey | None = None


class ReadFrames(Struct, frozen=True):
    """Further frames of the preceding record."""

    response_id: str
    frames: Frames


def is_record(line: bytes) -> bool:
    """Return True if this line of an export is a response: not further frames of the preceding one, nor a
    conversation or key."""
    return not line.startswith((_FRAMES_OF, _CONVERSATION, _ITEMS_OF, _KEY))


def conversation_line(conversation: StoredConversation, items: int) -> bytes:
    """Return The line of a conversation; `items` is the number of items that follow."""
    fields = {
        "conversation": conversation.id,
        "owner": conversation.owner,
        "created_at": conversation.created_at,
        "expires_at": conversation.expires_at,
        "metadata": Raw(conversation.metadata),
        "items": items,
    }
    return encode(fields) + b"\n"


def key_line(key: ManagedKey) -> bytes:
    """Return the line of a managed key."""
    fields = {name: getattr(key, name) for name in key.__struct_fields__ if name != "id"}
    return encode({"key": key.id, **fields}) + b"\n"


def items_line(conversation_id: str, rows: Iterable[InputRow]) -> bytes:
    """Return A line of items, which follows that of their conversation."""
    items = [(row.item_id.decode(), Raw(row.item)) for row in rows]
    return encode({"items_of": conversation_id, "items": items}) + b"\n"


def in_lines(rows: Iterable[InputRow]) -> Iterator[list[InputRow]]:
    """Yield the items of one line after the other."""
    some: list[InputRow] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row.item)
        if size > FRAMES_IN_LINE:
            yield some
            some, size = [], 0
    if some:
        yield some


def export_lines(
    row: Row, items: Iterable[bytes], frames: list[Frames], key: IdempotencyKey | None = None
) -> Iterator[bytes]:
    """Yield the lines of a record with all of its frames."""
    if sum(len(each.data) for each in frames) <= FRAMES_IN_LINE:
        yield record_line(row, items, joined(frames), key)
        return
    yield record_line(row, items, None, key)
    for each in frames:
        yield frames_line(row.id, each)


def record_line(
    row: Row, items: Iterable[bytes], frames: Frames | None, key: IdempotencyKey | None = None
) -> bytes:
    """Return the line of a record with all of its frames, or with None if they follow in lines of their own,
    and with the key that stands for it."""
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
        **({} if row.conversation_id is None else {"conversation_id": row.conversation_id}),
        **({} if key is None else {"idempotency_key": key}),
        "frames": "" if frames is None else frames.data.decode(),
    }
    return encode(fields) + b"\n"


def frames_line(response_id: str, frames: Frames) -> bytes:
    """Return a line of frames, for a record whose own line has none."""
    line = _FramesLine(response_id, frames.first, frames.last, frames.data.decode())
    return msgspec.json.encode(line) + b"\n"


ReadLine = ReadRecord | ReadFrames | ReadConversation | ReadItems | ManagedKey


def read_line(data: bytes) -> ReadLine:
    """Return the contents of a line. Raises BadLine."""
    try:
        if data.startswith(_FRAMES_OF):
            line = msgspec.json.decode(data, type=_FramesLine)
            return ReadFrames(line.frames_of, _frames(line.first_sequence, line.last_sequence, line.frames))
        if data.startswith(_CONVERSATION):
            return _conversation(msgspec.json.decode(data, type=_ConversationLine))
        if data.startswith(_KEY):
            return _key(msgspec.json.decode(data, type=_KeyLine))
        if data.startswith(_ITEMS_OF):
            return _items(msgspec.json.decode(data, type=_ItemsLine))
        return _record(msgspec.json.decode(data, type=_RecordLine))
    except _UNREADABLE as error:
        raise BadLine(f"can't be read: {error}") from error


def _conversation(line: _ConversationLine) -> ReadConversation:
    if not can_be_id(line.conversation):
        raise BadLine("conversation can't be the id of a conversation")
    _check_owner(line.owner)
    _check_times(line)
    if line.items < 0:
        raise BadLine("items is not a number of items")
    metadata = encode(line.metadata)
    return ReadConversation(
        StoredConversation(line.conversation, line.owner, line.created_at, line.expires_at, metadata),
        line.items,
    )


def _key(line: _KeyLine) -> ManagedKey:
    texts = (line.key, line.name, line.owner, *(line.models or ()))
    if not all(map(can_be_id, texts)) or len(line.last_four) > 4 or "\0" in line.last_four:
        raise BadLine("has a text that can't be one of a key")
    if not _is_digest(line.hash):
        raise BadLine("hash is not a SHA-256")
    limits = {name: getattr(line.limits, name) for name in LIMIT_NAMES}
    if not all(limit is None or is_limit(name, limit) for name, limit in limits.items()):
        raise BadLine("limits has one that can't be a limit")
    _check_times(line)
    fields = {name: getattr(line, name) for name in line.__struct_fields__ if name != "key"}
    return ManagedKey(id=line.key, **fields)


def _is_digest(text: str) -> bool:
    return len(text) == _HASH and set(text) <= set("0123456789abcdef")


def _items(line: _ItemsLine) -> ReadItems:
    decode_input(bytes(item) for _, item in line.items)
    if not all(can_be_id(name) for name, _ in line.items):
        raise BadLine("items has an id that can't be the id of an item")
    return ReadItems(line.items_of, [InputRow(id_bytes(name), bytes(item)) for name, item in line.items])


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
        conversation_id=line.conversation_id,
    )
    rows = [InputRow(id_bytes(name), item) for name, item in zip(names, items, strict=True)]
    frames = _frames(last - count + 1, last, line.frames) if count else None
    if frames is not None and frames.first != 0:
        raise BadLine(f"has {count} frames, and its last event has the number {last}")
    key = line.idempotency_key
    if key is not None and not (
        _is_digest(key.name) and _is_digest(key.request) and 0 <= key.until < _LATEST
    ):
        raise BadLine("idempotency_key is not a key")
    return ReadRecord(row, response, rows, frames, key)


def _check_columns(line: _RecordLine) -> None:
    """Raises BadLine for values that the database would refuse or under which nothing could be found."""
    link = line.previous_response_id
    if not can_be_id(line.id):
        raise BadLine("id can't be the id of a response")
    if link is not None and not can_be_id(link):
        raise BadLine("previous_response_id can't be the id of a response")
    if line.conversation_id is not None and not can_be_id(line.conversation_id):
        raise BadLine("conversation_id can't be the id of a conversation")
    _check_owner(line.owner)
    if line.lease is None and line.status not in TERMINAL_EVENT:
        raise BadLine("status is not that of a response that has ended, and nobody makes it")
    if line.lease is not None and line.hidden:
        raise BadLine("is in progress and deleted")
    _check_times(line)


def _check_owner(owner: str) -> None:
    if is_hidden(owner) or not (owner == "" or can_be_id(owner)):
        raise BadLine("owner can't be an owner")


def _check_times(line: _RecordLine | _ConversationLine | _KeyLine) -> None:
    for name in ("created_at", "updated_at", "expires_at", "revoked_at"):
        seconds: Any = getattr(line, name, None)
        if seconds is not None and not (math.isfinite(seconds) and 0 <= seconds < _LATEST):
            raise BadLine(f"{name} is not a time")


def _request(raw: Raw) -> bytes | None:
    data = bytes(raw)
    return None if data == b"null" else data


def _frames(first: int, last: int, text: str) -> Frames:
    """Return the frames of these events. Raises BadLine if the text has another number of frames."""
    data = text.encode()
    if not (0 <= first <= last < _HIGHEST and data.endswith(b"\n\n")):
        raise BadLine("frames are not whole events")
    if data.count(b"\n\n") != last - first + 1:
        raise BadLine(f"frames are not those of the events {first} to {last}")
    return Frames(first, last, data)
