"""Look-ups over a connection: items by their ids, lists of responses, chains, and pages of input items."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    Connection,
    Select,
    bindparam,
    case,
    func,
    literal,
    select,
    tuple_,
    union_all,
)

from openresponses_bridge.protocol.input_items import InputItem
from openresponses_server.store.base import CursorError, InputPage, Order, StoredTurn, TooLarge
from openresponses_server.store.listing import HEAD_BYTES, ListFilter, ResponseRow
from openresponses_server.store.lookups import (
    ItemLocation,
    can_name,
    in_order,
    items_at,
    window,
)
from openresponses_server.store.records import can_be_id, id_bytes, listed_item, turn_of
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.database import Database
from openresponses_server.store.sql.queries import READABLE
from openresponses_server.store.sql.tables import NAMED_INPUT, responses
from openresponses_server.store.sql.tables import response_input as inputs
from openresponses_server.store.sql.tables import response_output as outputs

_OUTPUT: Final = -1  # stands for the output, instead of a position in the input


def _locations() -> Select[Any]:
    """Return the query with one row per id that the owner has: the newest response with the item in its
    output, else in its input, and the size in bytes of that response, or of the input item."""
    names: BindParameter[Any] = bindparam("names", expanding=True)
    input_query = select(
        inputs.c.item_id, inputs.c.response_id, inputs.c.position, func.length(inputs.c.item).label("bytes")
    )
    output_query = select(outputs.c.item_id, outputs.c.response_id, literal(_OUTPUT), literal(0))
    locations = union_all(
        input_query.where(inputs.c.item_id.in_(names), NAMED_INPUT),
        output_query.where(outputs.c.item_id.in_(names)),
    ).subquery()
    rank = func.row_number().over(
        partition_by=locations.c.item_id,
        order_by=[
            locations.c.position != _OUTPUT,
            responses.c.created_at.desc(),
            responses.c.id.desc(),
            locations.c.position.desc(),
        ],
    )
    size = case(
        (locations.c.position == _OUTPUT, func.length(responses.c.response)), else_=locations.c.bytes
    ).label("bytes")
    ranked = (
        select(locations.c.item_id, locations.c.response_id, locations.c.position, size, rank.label("rank"))
        .join(responses, responses.c.id == locations.c.response_id)
        .where(responses.c.owner == bindparam("of_owner"), READABLE)
        .subquery()
    )
    columns = (ranked.c.item_id, ranked.c.response_id, ranked.c.position, ranked.c.bytes)
    return select(*columns).where(ranked.c.rank == 1)


_LOCATIONS: Final = _locations()
_ITEMS: Final = select(inputs.c.response_id, inputs.c.position, inputs.c.item).where(
    tuple_(inputs.c.response_id, inputs.c.position).in_(bindparam("positions", expanding=True))
)
_BODY: Final = select(responses.c.response).where(responses.c.id == bindparam("of_id"))


def find_items(
    connection: Connection, item_ids: Iterable[str], owner: str, now: float, most: int
) -> dict[str, InputItem]:
    """Return the owner's items with these ids, as `ResponseStore.items` defines it. Takes two statements for
    some hundreds of ids, and one for each response whose output is needed. Raises TooLarge."""
    names = filter(can_name, dict.fromkeys(map(id_bytes, item_ids)))
    input_ids: dict[tuple[str, int], bytes] = {}
    output_ids: dict[str, set[bytes]] = {}
    sizes: dict[tuple[str, int], int] = {}
    for some in queries.portions(names):
        for row in connection.execute(_LOCATIONS, {"names": some, "of_owner": owner, "at": now}):
            place = (row.response_id, row.position)
            sizes[place] = row.bytes
            if row.position == _OUTPUT:
                output_ids.setdefault(row.response_id, set()).add(row.item_id)
            else:
                input_ids[place] = row.item_id
        if (size := sum(sizes.values())) > most:
            raise TooLarge(TooLarge.REFERENCES, size, most)
    return _given(connection, input_ids) | _made(connection, output_ids)


def _given(connection: Connection, input_ids: dict[tuple[str, int], bytes]) -> dict[str, InputItem]:
    """Return items of inputs, by response and position."""
    locations: dict[bytes, ItemLocation] = {}
    for some in queries.portions(input_ids):
        for response_id, position, item in connection.execute(_ITEMS, {"positions": some}):
            locations[input_ids[response_id, position]] = ItemLocation(response_id, item)
    return items_at(locations, {})


def _made(connection: Connection, output_ids: dict[str, set[bytes]]) -> dict[str, InputItem]:
    """Return items of outputs, one response after the other, since each has to be read as a whole."""
    items: dict[str, InputItem] = {}
    for response_id, names in output_ids.items():
        body = connection.execute(_BODY, {"of_id": response_id}).scalar()
        if body is not None:
            items |= items_at({name: ItemLocation(response_id, None) for name in names}, {response_id: body})
    return items


_MINE: Final = responses.c.owner == bindparam("of_owner")
_PLACE: Final = tuple_(responses.c.created_at, responses.c.id)
_LAST_ITEM: Final = (
    select(func.substr(inputs.c.item, 1, HEAD_BYTES))
    .where(inputs.c.response_id == responses.c.id)
    .order_by(inputs.c.position.desc())
    .limit(1)
    .scalar_subquery()
)
_HEADS: Final = (
    select(
        responses.c.id,
        responses.c.status,
        responses.c.created_at,
        responses.c.previous_response_id,
        responses.c.last_sequence,
        func.substr(responses.c.response, 1, HEAD_BYTES).label("response"),
        _LAST_ITEM.label("item"),
    )
    .where(_MINE, READABLE)
    .order_by(responses.c.created_at.desc(), responses.c.id.desc())
    .limit(bindparam("most"))
)
_FROM: Final = select(responses.c.created_at).where(responses.c.id == bindparam("of_id"), _MINE, READABLE)


class SqlListing:
    """Lists of responses, a `ListingStore` in the database of a `SqlStore`."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    async def heads(
        self,
        owner: str,
        list_filter: ListFilter,
        after: str | None,
        limit: int,
        only: Collection[str] | None = None,
    ) -> list[ResponseRow]:
        values: dict[str, Any] = {"of_owner": owner, "at": self._clock(), "most": limit}
        if after is not None and not can_be_id(after):
            return []

        def work(connection: Connection) -> list[ResponseRow]:
            statement = _narrowed(list_filter, only)
            if after is not None:
                begun = connection.execute(_FROM, {**values, "of_id": after}).scalar_one_or_none()
                if begun is None:
                    return []
                statement = statement.where(tuple_(begun, after) > _PLACE)
            return [ResponseRow(**row._mapping) for row in connection.execute(statement, values)]

        return await self._database.read(work)


def _narrowed(list_filter: ListFilter, only: Collection[str] | None) -> Select[Any]:
    statement = _HEADS
    if only is not None:
        statement = statement.where(responses.c.id.in_([each for each in only if can_be_id(each)]))
    if list_filter.status:
        statement = statement.where(responses.c.status == list_filter.status)
    if list_filter.since is not None:
        statement = statement.where(responses.c.created_at >= list_filter.since)
    if list_filter.until is not None:
        statement = statement.where(responses.c.created_at < list_filter.until)
    return statement


_EVERY_POSITION: Final = (-1, 2**31 - 1)


def turns_of(response_id: str, rows: Iterable[Any]) -> list[StoredTurn]:
    """Return the turns up to and including this one, oldest first, from the rows of `queries.CHAIN`. Raises
    ChainError and UnreadableRecord."""
    links: dict[str, str | None] = {}
    bodies: dict[str, bytes] = {}
    places: dict[str, str | None] = {}
    items: dict[str, list[tuple[int, bytes]]] = {}
    for turn_id, position, link, data, conversation_id in rows:
        if position < 0:
            links[turn_id] = link
            places[turn_id] = conversation_id
            bodies[turn_id] = data
        else:
            items.setdefault(turn_id, []).append((position, data))
    return [
        turn_of(
            turn_id, bodies[turn_id], (item for _, item in sorted(items.get(turn_id, ()))), places[turn_id]
        )
        for turn_id in in_order(response_id, links)
    ]


def read_page(
    connection: Connection,
    whose: dict[str, Any],
    after: str | None,
    before: str | None,
    limit: int,
    order: Order,
) -> InputPage | None:
    """Return a page as `ResponseStore.input_items` defines it; `whose` names the response, its owner and the
    time. Raises CursorError and UnreadableRecord."""
    item_ids = {"after": after, "before": before}
    cursors = {name: None if item_id is None else id_bytes(item_id) for name, item_id in item_ids.items()}
    row = connection.execute(queries.CURSORS, {**whose, **cursors}).one_or_none()
    if row is None:
        return None
    positions = {"after": row.after, "before": row.before}
    for name, item_id in item_ids.items():
        if item_id is not None and positions[name] is None:
            raise CursorError(name, item_id)
    bounds = window(positions["after"], positions["before"], order)
    lowest, highest = _EVERY_POSITION
    values = {
        "of_id": whose["of_id"],
        "low": lowest if bounds.low is None else bounds.low,
        "high": highest if bounds.high is None else bounds.high,
        "most": limit + 1,
    }
    rows = connection.execute(queries.page(bounds.downwards), values).all()
    page = [listed_item(whose["of_id"], item_id, item) for item_id, item in rows[:limit]]
    if bounds.reverse:
        page.reverse()
    return InputPage(page, len(rows) > limit)
