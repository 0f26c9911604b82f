"""Encodes and decodes stored records: plain columns, and JSON as bytes. JSON is neither text nor a JSON type,
because PostgreSQL's text can't contain U+0000 and because sent bytes must come back unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol import vocabulary
from openresponses_bridge.protocol.beyond import UnknownFields
from openresponses_bridge.protocol.codec import decode_json, decode_response, encode
from openresponses_bridge.protocol.input_items import InputItem, KnownInputItem
from openresponses_bridge.protocol.lenient import Repairing, build
from openresponses_bridge.protocol.response import Response, TextField, TextFormat
from openresponses_server.store.base import (
    Lease,
    ListedItem,
    StoredResponse,
    StoredTurn,
    StoreError,
    UnreadableRecord,
    UpstreamResponse,
)

LONGEST_ID: Final = 512  # characters: more than servers assign, and accepted by an index of PostgreSQL
HIDDEN: Final = "~"
"""Prefix of the owner of records that were deleted and are kept for later turns. No request has such an
owner, so that look-ups do not find these records; only a chain that starts at a visible turn continues
through them."""

_UPSTREAM: Final = "openresponses-bridge:upstream"
"""The field of a stored response for the upstream's own record of it. Responses are decoded without it, so
that no client sees it."""
_MARK: Final = _UPSTREAM.encode()

_input_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(list[KnownInputItem])
_unknown_fields: Final = UnknownFields(vocabulary.INPUT_ITEMS, received=False)
_REFUSED: Final = (msgspec.MsgspecError, RecursionError, UnicodeError)


class _Linked(Response, frozen=True, kw_only=True):
    upstream: UpstreamResponse = msgspec.field(name=_UPSTREAM)


class _Link(Struct, frozen=True):
    upstream: UpstreamResponse | None = msgspec.field(default=None, name=_UPSTREAM)


_link_decoder = msgspec.json.Decoder(_Link)


class Row(Struct, frozen=True, kw_only=True):
    """A record's columns; the names are those of the table."""

    id: str
    owner: str
    previous_response_id: str | None
    status: str
    created_at: float
    updated_at: float
    expires_at: float | None
    lease_worker: str | None
    lease_until: float | None
    last_sequence: int
    request: bytes | None
    response: bytes
    conversation_id: str | None = None


class InputRow(Struct, frozen=True):
    """One input item: the id that it is listed under, as bytes (it may be any string), and its JSON."""

    item_id: bytes
    item: bytes


def can_be_id(text: str) -> bool:
    """Return True if a store can use this as an id; a store has no records of other ids."""
    if not 0 < len(text) <= LONGEST_ID or "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def row_of(record: StoredResponse, now: float, last_sequence: int) -> Row:
    """Return the columns of a record written now. Raises StoreError when a store can't hold its id."""
    response = record.response
    link = response.previous_response_id
    if not can_be_id(response.id) or not (link is None or can_be_id(link)):
        raise StoreError(StoreError.CONFLICT, "A response under this id can't be stored.")
    if is_hidden(record.owner):
        raise StoreError(StoreError.CONFLICT, "A response can't be stored for this owner.")
    return Row(
        id=response.id,
        owner=record.owner,
        previous_response_id=link,
        status=response.status,
        created_at=record.created_at or now,
        updated_at=now,
        expires_at=record.expires_at,
        lease_worker=record.lease.worker if record.lease else None,
        lease_until=record.lease.until if record.lease else None,
        last_sequence=last_sequence,
        request=record.request,
        response=encode(response),
        conversation_id=record.conversation,
    )


def linked(response: Response, upstream: UpstreamResponse | None) -> Response:
    """Return the response with the upstream's own record, to be stored. A response that is not completed is
    stored without it, since the upstream's may differ."""
    if upstream is None or response.status != "completed":
        return response
    fields = {name: getattr(response, name) for name in Response.__struct_fields__}
    return _Linked(**fields, upstream=upstream)


def _upstream_of(body: bytes) -> UpstreamResponse | None:
    if _MARK not in body:
        return None
    try:
        return _link_decoder.decode(body).upstream
    except _REFUSED:
        return None


def is_hidden(owner: str) -> bool:
    """Return True if this is the owner of deleted records."""
    return owner.startswith(HIDDEN)


def hidden_row(row: Row) -> Row:
    """Return the row of a deleted response that is kept for later turns, with its link and its output. The
    caller keeps its input, and deletes its frames and the index of its output items."""
    return replace(
        row,
        owner=row.owner if is_hidden(row.owner) else HIDDEN + row.owner,
        expires_at=None,
        lease_worker=None,
        lease_until=None,
        last_sequence=-1,
        request=None,
        response=_context_of(row.response),
        conversation_id=None,
    )


def _context_of(body: bytes) -> bytes:
    """Return the response's JSON without the fields that no later turn needs; unchanged if it can't be
    decoded."""
    try:
        response = decode_response(body)
    except WireError:
        return body
    return encode(
        replace(
            response,
            instructions=None,
            tools=[],
            tool_choice="auto",
            text=TextField(TextFormat()),
            metadata={},
            safety_identifier=None,
            prompt_cache_key=None,
        )
    )


def record_of(row: Row, items: Iterable[bytes]) -> StoredResponse:
    """Return the record in these columns and input items. Raises UnreadableRecord."""
    turn = turn_of(row.id, row.response, items, row.conversation_id)
    return StoredResponse(
        response=turn.response,
        input=turn.input,
        owner=row.owner,
        request=row.request,
        created_at=row.created_at,
        updated_at=row.updated_at,
        expires_at=row.expires_at,
        lease=lease_of(row),
        last_sequence=row.last_sequence,
        conversation=row.conversation_id,
    )


def turn_of(
    response_id: str, body: bytes, items: Iterable[bytes], conversation_id: str | None = None
) -> StoredTurn:
    """Return the turn in this JSON. Raises UnreadableRecord."""
    with reading(response_id):
        response = decode_response(body)
        if response.id != response_id:
            raise UnreadableRecord(response_id)
        return StoredTurn(response, decode_input(items), _upstream_of(body), conversation_id)


@contextmanager
def reading(response_id: str) -> Iterator[None]:
    """Raise errors in stored JSON as UnreadableRecord, rather than as errors of a client or an upstream."""
    try:
        yield
    except WireError as error:
        raise UnreadableRecord(response_id) from error


def lease_of(row: Row) -> Lease | None:
    """Return the lease, None if the run has ended. The column of the worker keeps its value, so that the same
    worker may repeat the end."""
    return None if row.lease_until is None else Lease(row.lease_worker or "", row.lease_until)


def input_rows(record: StoredResponse) -> list[InputRow]:
    """Return the record's input, each item under the id that it is listed under."""
    ids = listed_ids(record.response.id, record.input)
    return [InputRow(id_bytes(listed), encode(item)) for listed, item in zip(ids, record.input, strict=True)]


def listed_ids(response_id: str, items: Iterable[InputItem]) -> list[str]:
    """Return the ids of a response's input items: their own, or ids made from the response's id and their
    positions."""
    owns = [getattr(item, "id", None) for item in items]
    return [
        own if isinstance(own, str) and own else f"item_{response_id}_{position}"
        for position, own in enumerate(owns)
    ]


def id_bytes(item_id: str) -> bytes:
    """Return an item's id as it is stored; it may be any string, lone surrogates included."""
    return item_id.encode("utf-8", "surrogatepass")


def listed_item(response_id: str, item_id: bytes, item: bytes) -> ListedItem:
    """Return the item of that response's input under its id. Raises UnreadableRecord."""
    with reading(response_id):
        (decoded,) = decode_input([item])
    return ListedItem(item_id.decode("utf-8", "surrogatepass"), decoded)


def decode_input(items: Iterable[bytes]) -> list[InputItem]:
    """Decode input items from JSON. Raises WireError."""
    pieces = list(items)
    whole = b"[" + b",".join(pieces) + b"]"
    try:
        decoded: list[InputItem] = _input_decoder.decode(whole)
        if not _unknown_fields.may_be_in(whole):
            return decoded
    except _REFUSED:
        pass
    objects = (_unknown_fields.kept(_object(piece))[0] for piece in pieces)
    return [build(vocabulary.INPUT_ITEMS, each, Repairing()) for each in objects]


def _object(data: bytes) -> Any:
    value = decode_json(data)
    if isinstance(value, dict):
        return value
    raise WireError(WireError.INVALID_SHAPE, f"an item is an object, not {type(value).__name__}")
