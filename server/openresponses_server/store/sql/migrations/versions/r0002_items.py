"""Items can be found by their ids: also those of responses stored before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from openresponses_bridge.protocol.codec import decode_json
from openresponses_server.store.sql.migrations.online import by_itself, create_index, reported

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_LONGEST = 512  # bytes of an id
_ROWS_AT_ONCE = 100
_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_output = sa.table("response_output", sa.column("response_id", sa.Text), sa.column("item_id", sa.LargeBinary))
_responses = sa.table(
    "responses",
    sa.column("id", sa.Text),
    sa.column("lease_until", sa.Double),
    sa.column("response", sa.LargeBinary),
)
_ENDED = _responses.c.lease_until.is_(None)


def upgrade() -> None:
    with by_itself():
        op.create_table(
            "response_output",
            sa.Column(
                "response_id", sa.Text, sa.ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True
            ),
            sa.Column("item_id", sa.LargeBinary, primary_key=True),
            sqlite_with_rowid=False,
            if_not_exists=True,
        )
    connection = op.get_bind()
    total = connection.scalar(sa.select(sa.func.count()).where(_ENDED)) or 0
    with by_itself(patience=0):
        for responses in reported(_ended(connection), "0002: responses read for their items", total):
            rows = [
                {"response_id": response_id, "item_id": name}
                for response_id, body in responses
                for name in _names(body)
            ]
            _insert(connection, rows)
    create_index("ix_response_output_item_id", "response_output", ["item_id"])
    create_index("ix_response_input_item_id", "response_input", ["item_id"], f"length(item_id) <= {_LONGEST}")


def downgrade() -> None:
    op.drop_index("ix_response_input_item_id", "response_input")
    op.drop_table("response_output")


def _insert(connection: sa.Connection, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    insert = _INSERTS[connection.dialect.name](_output).on_conflict_do_nothing()
    try:
        connection.execute(insert, rows)
    except IntegrityError:  # one of the responses was deleted meanwhile
        for row in rows:
            with suppress(IntegrityError):
                connection.execute(insert, row)


def _ended(connection: sa.Connection) -> Iterator[Sequence[Any]]:
    """The responses that have ended, some at a time."""
    page = sa.select(_responses.c.id, _responses.c.response).where(_ENDED)
    page = page.order_by(_responses.c.id).limit(_ROWS_AT_ONCE)
    after = ""
    while found := connection.execute(page.where(_responses.c.id > after)).all():
        yield found
        after = found[-1].id


def _names(body: bytes) -> set[bytes]:
    items = decode_json(body).get("output", ())
    names = {item["id"].encode("utf-8", "surrogatepass") for item in items if isinstance(item.get("id"), str)}
    return {name for name in names if 0 < len(name) <= _LONGEST}
