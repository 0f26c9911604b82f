"""The index of items by their ids in a database: its statements, and what runs them over a connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import BindParameter, Connection, Select, bindparam, func, literal, null, select, union_all

from bridge.protocol.input_items import InputItem
from bridge.protocol.response import Response
from server.sessions.places import Place, can_name, items_at, output_names
from server.sessions.records import id_bytes
from server.sessions.sql import queries
from server.sessions.sql.queries import THERE
from server.sessions.sql.tables import NAMED_INPUT, responses
from server.sessions.sql.tables import response_input as inputs
from server.sessions.sql.tables import response_output as outputs

_OUTPUT: Final = -1  # in the place of a position


def _places() -> Select[Any]:
    """One row an id that the owner has: the output it stands in, else the input, of the newest
    response."""
    wanted: BindParameter[Any] = bindparam("names", expanding=True)
    given = select(inputs.c.item_id, inputs.c.response_id, inputs.c.position, inputs.c.item)
    made = select(outputs.c.item_id, outputs.c.response_id, literal(_OUTPUT), null())
    found = union_all(
        given.where(inputs.c.item_id.in_(wanted), NAMED_INPUT), made.where(outputs.c.item_id.in_(wanted))
    ).subquery()
    place = func.row_number().over(
        partition_by=found.c.item_id,
        order_by=[
            found.c.position != _OUTPUT,
            responses.c.created_at.desc(),
            responses.c.id.desc(),
            found.c.position.desc(),
        ],
    )
    ranked = (
        select(found.c.item_id, found.c.response_id, found.c.item, place.label("place"))
        .join(responses, responses.c.id == found.c.response_id)
        .where(responses.c.owner == bindparam("of_owner"), THERE)
        .subquery()
    )
    return select(ranked.c.item_id, ranked.c.response_id, ranked.c.item).where(ranked.c.place == 1)


_PLACES: Final = _places()
_BODIES: Final = select(responses.c.id, responses.c.response).where(
    responses.c.id.in_(bindparam("ids", expanding=True))
)


def put_output_names(connection: Connection, dialect: str, response_id: str, response: Response) -> None:
    """The response has ended: its items can be found."""
    rows = [{"response_id": response_id, "item_id": name} for name in output_names(response)]
    if rows:
        connection.execute(queries.insert_output(dialect), rows)


def find_items(
    connection: Connection, item_ids: Iterable[str], owner: str, now: float
) -> dict[str, InputItem]:
    """The owner's items that have these ids, as `ResponseStore.items` tells. Two statements for some
    hundreds of ids."""
    names = filter(can_name, dict.fromkeys(map(id_bytes, item_ids)))
    found: dict[str, InputItem] = {}
    for some in queries.portions(names):
        rows = connection.execute(_PLACES, {"names": some, "of_owner": owner, "at": now})
        places = {name: Place(response_id, item) for name, response_id, item in rows}
        found |= items_at(places, _bodies(connection, places.values()))
    return found


def _bodies(connection: Connection, places: Iterable[Place]) -> dict[str, bytes]:
    ids = {place.response_id for place in places if place.item is None}
    if not ids:
        return {}
    return {row.id: row.response for row in connection.execute(_BODIES, {"ids": sorted(ids)})}
