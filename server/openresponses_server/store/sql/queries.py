"""The statements of `SqlStore` other than its writes, each built once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import (
    CTE,
    ColumnElement,
    CompoundSelect,
    Integer,
    LargeBinary,
    Null,
    Select,
    Text,
    Update,
    bindparam,
    delete,
    func,
    literal,
    null,
    or_,
    select,
    text,
    union_all,
    update,
)

from openresponses_server.store.base import NOBODY
from openresponses_server.store.records import HIDDEN
from openresponses_server.store.sql.tables import (
    WAITING,
    conversations,
    idempotency_keys,
    responses,
    used_once,
)
from openresponses_server.store.sql.tables import response_frames as frames
from openresponses_server.store.sql.tables import response_input as inputs
from openresponses_server.store.sql.tables import response_output as outputs
from openresponses_server.store.sql.tables import response_pieces as pieces

T = TypeVar("T")

# Parameters that select a row must not be named like a column: SQLAlchemy keeps those names for SET and
# VALUES.
_ID: Final = responses.c.id == bindparam("of_id")
_OWNED: Final = _ID & (responses.c.owner == bindparam("of_owner"))
_HELD: Final = _ID & (responses.c.lease_worker == bindparam("of_worker"))
_RUNNING: Final = responses.c.lease_until.is_not(None)
_OVER: Final = responses.c.lease_until < bindparam("now")
_WAITS: Final = responses.c.lease_worker == NOBODY
_MADE_BY: Final = _RUNNING & responses.c.lease_worker.startswith(bindparam("of_process"))
READABLE: Final = or_(responses.c.expires_at.is_(None), responses.c.expires_at > bindparam("at"), _RUNNING)
"""The responses that may be read at that time: not those that have ended and expired, deleted or not."""
_IDS_AT_ONCE: Final = 500  # limit of the parameters of one statement

USE_ONCE: Final = text("INSERT INTO used_once (name, until) VALUES (:name, :until) ON CONFLICT DO NOTHING")
"""In literal SQL, since the dialects' own inserts have this condition under different types."""
USE_KEY: Final = text(
    "INSERT INTO idempotency_keys (name, response_id, request, until)"
    " VALUES (:name, :response_id, :request, :until) ON CONFLICT DO NOTHING"
)
_KEY: Final = (
    select(idempotency_keys.c.response_id, idempotency_keys.c.request)
    .join(responses, responses.c.id == idempotency_keys.c.response_id)
    .where(idempotency_keys.c.name == bindparam("of_name"), idempotency_keys.c.until > bindparam("at"))
    .where(or_(responses.c.expires_at.is_(None), responses.c.expires_at > bindparam("at"), _RUNNING))
    .where(or_(responses.c.status != "failed", _RUNNING), responses.c.owner == bindparam("of_owner"))
)
KEYED: Final = _KEY
KEY_TAKEN: Final = _KEY.where(responses.c.id != bindparam("of_id"))
FREE_KEY: Final = delete(idempotency_keys).where(
    idempotency_keys.c.name == bindparam("of_name"), ~KEY_TAKEN.exists()
)
"""Checks once more whether the key stands for another response, which another transaction may have stored."""
EVICT_KEYS: Final = delete(idempotency_keys).where(idempotency_keys.c.until <= bindparam("now"))
KEYS_OF: Final = select(idempotency_keys.c.name, idempotency_keys.c.request, idempotency_keys.c.until).where(
    idempotency_keys.c.response_id == bindparam("of_id")
)
EVICT_USED: Final = delete(used_once).where(used_once.c.until <= bindparam("now"))
GET: Final = select(*responses.c).where(_OWNED, READABLE)
_KEPT_FOR_OWNER: Final = responses.c.owner.in_(
    (bindparam("of_owner", type_=Text), literal(HIDDEN, Text) + bindparam("of_owner", type_=Text))
)
"""The responses of the owner, and those that the owner has deleted and that are kept for later turns."""
_IDS: Final = responses.c.id.in_(bindparam("of_ids", expanding=True))
FOUND: Final = select(responses.c.id).where(_IDS, responses.c.owner == bindparam("of_owner"), READABLE)
FOUND_AS_CONTEXT: Final = select(responses.c.id).where(_IDS, _KEPT_FOR_OWNER)
INPUT: Final = (
    select(inputs.c.item).where(inputs.c.response_id == bindparam("of_id")).order_by(inputs.c.position)
)
OWNER: Final = select(responses.c.owner, responses.c.lease_until, responses.c.response).where(_ID)
DELETE_OWN: Final = delete(responses).where(_OWNED)
ENDED: Final = select(responses.c.response).where(_HELD, responses.c.lease_until.is_(None)).with_for_update()
REOPEN: Final = update(responses).where(_HELD).values(lease_until=0.0)
FORGET_OUTPUT: Final = delete(outputs).where(outputs.c.response_id == bindparam("of_id"))
ACQUIRE: Final = (
    update(responses)
    .where(_ID, _RUNNING)
    .where(or_(_WAITS, _OVER, responses.c.lease_worker == bindparam("by_worker")))
    .values(lease_worker=bindparam("lease_worker"), lease_until=bindparam("lease_until"))
    .returning(*responses.c)
)


def portions(ids: Iterable[T]) -> Iterator[list[T]]:
    """Yield the ids in lists that one statement can take."""
    rest = iter(ids)
    while some := list(islice(rest, _IDS_AT_ONCE)):
        yield some


def _link() -> CTE:
    """Return the ids of a turn, which must be readable, and of all turns before it, which may have been
    deleted. UNION drops ids that were found before, so that a cycle ends."""
    columns = (responses.c.id, responses.c.previous_response_id)
    link = select(*columns).where(_OWNED, READABLE).cte("link", recursive=True)
    before = select(*columns).join(link, responses.c.id == link.c.previous_response_id)
    return link.union(before.where(_KEPT_FOR_OWNER))


def _chain() -> CompoundSelect[Any]:
    """Return one query of the turns of a chain: a row per response (position -1) and a row per input item, in
    any order."""
    link = _link()
    nothing: ColumnElement[Any] | Null = null()
    turns = select(
        responses.c.id,
        literal(-1).label("position"),
        responses.c.previous_response_id,
        responses.c.response,
        responses.c.conversation_id,
    ).join(link, responses.c.id == link.c.id)
    items = select(inputs.c.response_id, inputs.c.position, nothing, inputs.c.item, nothing).join(
        link, inputs.c.response_id == link.c.id
    )
    return union_all(turns, items)


def _size() -> Select[Any]:
    """Return the query of the bytes of a chain's turns. Databases know a column's length without reading
    it."""
    link = _link()
    turns = select(func.length(responses.c.response).label("bytes")).join(link, responses.c.id == link.c.id)
    items = select(func.length(inputs.c.item)).join(link, inputs.c.response_id == link.c.id)
    sizes = union_all(turns, items).subquery()
    return select(func.coalesce(func.sum(sizes.c.bytes), 0))


CHAIN: Final = _chain()
SIZE: Final = _size()

_CURSOR: Final = select(func.min(inputs.c.position)).where(inputs.c.response_id == bindparam("of_id"))
CURSORS: Final = select(
    responses.c.id,
    _CURSOR.where(inputs.c.item_id == bindparam("after")).scalar_subquery().label("after"),
    _CURSOR.where(inputs.c.item_id == bindparam("before")).scalar_subquery().label("before"),
).where(_OWNED, READABLE)
"""Selects whether the owner has the response, and the positions of two of its input items."""


@cache
def page(downwards: bool) -> Select[Any]:
    """Return the query of the input items between two positions, both excluded."""
    position = inputs.c.position
    return (
        select(inputs.c.item_id, inputs.c.item)
        .where(inputs.c.response_id == bindparam("of_id"))
        .where(position > bindparam("low"), position < bindparam("high"))
        .order_by(position.desc() if downwards else position)
        .limit(bindparam("most"))
    )


_THESE_FRAMES: Final = (
    select(
        frames.c.first_sequence,
        frames.c.last_sequence,
        frames.c.pieces,
        func.length(frames.c.data).label("size"),
        func.substr(
            frames.c.data,
            bindparam("start", type_=Integer),
            bindparam("bytes", type_=Integer),
            type_=LargeBinary,
        ).label("data"),
    )
    .join(responses, responses.c.id == frames.c.response_id)
    .where(_OWNED, READABLE)
)
FRAMES: Final = (
    _THESE_FRAMES.where(frames.c.last_sequence > bindparam("after"))
    .order_by(frames.c.first_sequence)
    .limit(bindparam("most"))
)
"""Selects the first piece of each of some rows of frames."""
MORE_FRAMES: Final = _THESE_FRAMES.where(frames.c.first_sequence == bindparam("first"))
"""Selects a further part of one row that was stored before rows had pieces."""
PIECE: Final = (
    select(frames.c.pieces, pieces.c.data)
    .join(responses, responses.c.id == frames.c.response_id)
    .join(
        pieces,
        (pieces.c.response_id == frames.c.response_id) & (pieces.c.first_sequence == frames.c.first_sequence),
    )
    .where(
        _OWNED, READABLE, frames.c.first_sequence == bindparam("first"), pieces.c.piece == bindparam("piece")
    )
)
STANDING: Final = select(
    responses.c.id,
    responses.c.owner,
    responses.c.lease_worker,
    responses.c.lease_until,
    responses.c.last_sequence,
).where(_OWNED, READABLE)


def _renew(**more: str) -> Update:
    # The name of a worker is used for one run only, so that the two lists need not be compared in pairs.
    condition = responses.c.lease_worker.in_(bindparam("of_workers", expanding=True)) & _RUNNING
    named = select(responses.c.id).where(responses.c.id.in_(bindparam("of_ids", expanding=True)), condition)
    # Locked in one order, so that two renewals do not wait for each other.
    locked = named.order_by(responses.c.id).with_for_update()
    renewed = update(responses).where(responses.c.id.in_(locked), condition)
    return renewed.values(lease_until=bindparam("lease_until"), **more).returning(responses.c.id)


def _claim(which: ColumnElement[bool]) -> Update:
    over = select(responses.c.id).where(which).order_by(responses.c.lease_until).limit(bindparam("most"))
    # A locked row is being renewed or claimed, and waiting for several could be a deadlock. A CTE, since
    # PostgreSQL may run a subquery more than once and exceed the limit.
    apart = over.with_for_update(skip_locked=True).cte("over_now")
    # The condition is repeated for rows that another worker has claimed meanwhile.
    return update(responses).where(responses.c.id.in_(select(apart.c.id)), which).returning(*responses.c)


RENEW: Final = _renew()
GIVE_BACK: Final = _renew(lease_worker=NOBODY)
CLAIM: Final = _claim(_OVER)
CLAIM_BEGUN: Final = _claim(_OVER & ~_WAITS)
CLAIM_OF: Final = _claim(_MADE_BY)
LAST_LEASE: Final = select(func.max(responses.c.lease_until)).where(_MADE_BY)
CLAIM_WAITING: Final = _claim(_OVER & _WAITS & responses.c.owner.not_in(bindparam("not_of", expanding=True)))


def _count_waiting() -> Select[Any]:
    waiting = select(literal(1)).select_from(responses).where(WAITING)
    of_all = waiting.limit(bindparam("most")).subquery()
    of_owner = waiting.where(responses.c.owner == bindparam("of_owner")).limit(bindparam("most")).subquery()
    return select(
        select(func.count()).select_from(of_all).scalar_subquery().label("of_all"),
        select(func.count()).select_from(of_owner).scalar_subquery().label("of_owner"),
    )


def _stock() -> Select[Any]:
    """Return the query of the stored bytes of each owner. Databases know a column's length without reading
    it."""
    request = func.coalesce(func.length(responses.c.request), 0)
    sizes = [select(responses.c.owner, (func.length(responses.c.response) + request).label("bytes"))]
    for table, column in ((inputs, inputs.c.item), (frames, frames.c.data), (pieces, pieces.c.data)):
        of_table = select(responses.c.owner, func.length(column))
        sizes.append(of_table.join(table, table.c.response_id == responses.c.id))
    sizes.append(select(conversations.c.owner, conversations.c.bytes + func.length(conversations.c.metadata)))
    each = union_all(*sizes).subquery()
    return select(each.c.owner, func.sum(each.c.bytes)).group_by(each.c.owner)


STOCK: Final = _stock()
COUNT_WAITING: Final = _count_waiting()
GIVE_UP: Final = update(responses).where(_ID).values(lease_until=None, status="failed")
"""Ends a run whose record can't be read, and so can't be settled; the record stays."""
