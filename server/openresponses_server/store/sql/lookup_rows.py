"""The index of items by their ids in a database: its statements, and what runs them over a connection."""

from __future__ import annotations

from collections.abc import Iterable
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
from openresponses_bridge.protocol.response import Response
from openresponses_server.store.errors import TooLarge
from openresponses_server.store.lookups import ItemLocation, can_name, items_at, output_names
from openresponses_server.store.records import id_bytes
from openresponses_server.store.sql import queries
from openresponses_server.store.sql.queries import THERE
from openresponses_server.store.sql.tables import NAMED_INPUT, responses
from openresponses_server.store.sql.tables import response_input as inputs
from openresponses_server.store.sql.tables import response_output as outputs

_OUTPUT: Final = -1  # instead of a position


def _locations() -> Select[Any]:
    """One row per id that the owner has: the output it is in, else the input, of the newest response; with
    the bytes of the item, or of the response whose output it is in."""
    wanted: BindParameter[Any] = bindparam("names", expanding=True)
    given = select(
        inputs.c.item_id, inputs.c.response_id, inputs.c.position, func.length(inputs.c.item).label("bytes")
    )
    made = select(outputs.c.item_id, outputs.c.response_id, literal(_OUTPUT), literal(0))
    found = union_all(
        given.where(inputs.c.item_id.in_(wanted), NAMED_INPUT), made.where(outputs.c.item_id.in_(wanted))
    ).subquery()
    rank = func.row_number().over(
        partition_by=found.c.item_id,
        order_by=[
            found.c.position != _OUTPUT,
            responses.c.created_at.desc(),
            responses.c.id.desc(),
            found.c.position.desc(),
        ],
    )
    size = case((found.c.position == _OUTPUT, func.length(responses.c.response)), else_=found.c.bytes).label(
        "bytes"
    )
    ranked = (
        select(found.c.item_id, found.c.response_id, found.c.position, size, rank.label("rank"))
        .join(responses, responses.c.id == found.c.response_id)
        .where(responses.c.owner == bindparam("of_owner"), THERE)
        .subquery()
    )
    columns = (ranked.c.item_id, ranked.c.response_id, ranked.c.position, ranked.c.bytes)
    return select(*columns).where(ranked.c.rank == 1)


_LOCATIONS: Final = _locations()
_ITEMS: Final = select(inputs.c.response_id, inputs.c.position, inputs.c.item).where(
    tuple_(inputs.c.response_id, inputs.c.position).in_(bindparam("positions", expanding=True))
)
_BODY: Final = select(responses.c.response).where(responses.c.id == bindparam("of_id"))


def put_output_names(connection: Connection, dialect: str, response_id: str, response: Response) -> None:
    """The response has ended: its items can be found."""
    rows = [{"response_id": response_id, "item_id": name} for name in output_names(response)]
    if rows:
        connection.execute(queries.insert_output(dialect), rows)


def find_items(
    connection: Connection, item_ids: Iterable[str], owner: str, now: float, most: int
) -> dict[str, InputItem]:
    """The owner's items that have these ids, as `ResponseStore.items` defines it. Two statements for some
    hundreds of ids, and one for each response whose output is meant. Raises TooLarge."""
    names = filter(can_name, dict.fromkeys(map(id_bytes, item_ids)))
    given: dict[tuple[str, int], bytes] = {}
    made: dict[str, set[bytes]] = {}
    sizes: dict[tuple[str, int], int] = {}
    for some in queries.portions(names):
        for row in connection.execute(_LOCATIONS, {"names": some, "of_owner": owner, "at": now}):
            place = (row.response_id, row.position)
            sizes[place] = row.bytes
            if row.position == _OUTPUT:
                made.setdefault(row.response_id, set()).add(row.item_id)
            else:
                given[place] = row.item_id
        if (size := sum(sizes.values())) > most:
            raise TooLarge(TooLarge.REFERENCES, size, most)
    return _given(connection, given) | _made(connection, made)


def _given(connection: Connection, wanted: dict[tuple[str, int], bytes]) -> dict[str, InputItem]:
    """Items of inputs, by response and position."""
    locations: dict[bytes, ItemLocation] = {}
    for some in queries.portions(wanted):
        for response_id, position, item in connection.execute(_ITEMS, {"positions": some}):
            locations[wanted[response_id, position]] = ItemLocation(response_id, item)
    return items_at(locations, {})


def _made(connection: Connection, wanted: dict[str, set[bytes]]) -> dict[str, InputItem]:
    """Items of outputs, one response after the other, since each has to be read as a whole."""
    found: dict[str, InputItem] = {}
    for response_id, names in wanted.items():
        body = connection.execute(_BODY, {"of_id": response_id}).scalar()
        if body is not None:
            found |= items_at({name: ItemLocation(response_id, None) for name in names}, {response_id: body})
    return found
