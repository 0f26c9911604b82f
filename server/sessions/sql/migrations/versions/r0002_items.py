"""Items can be found by their ids: those of responses that are there already too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from bridge.protocol.codec import decode_json

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_LONGEST = 512  # bytes of an id
_ROWS_AT_ONCE = 100
_responses = sa.table(
    "responses",
    sa.column("id", sa.Text),
    sa.column("lease_until", sa.Double),
    sa.column("response", sa.LargeBinary),
)


def upgrade() -> None:
    output = op.create_table(
        "response_output",
        sa.Column(
            "response_id", sa.Text, sa.ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("item_id", sa.LargeBinary, primary_key=True),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    for rows in _outputs(connection):
        connection.execute(output.insert(), rows)
    op.create_index("ix_response_output_item_id", "response_output", ["item_id"])
    short = sa.text(f"length(item_id) <= {_LONGEST}")
    op.create_index(
        "ix_response_input_item_id",
        "response_input",
        ["item_id"],
        sqlite_where=short,
        postgresql_where=short,
    )


def downgrade() -> None:
    op.drop_index("ix_response_input_item_id", "response_input")
    op.drop_table("response_output")


def _outputs(connection: sa.Connection) -> Iterator[list[dict[str, Any]]]:
    """Rows for the responses that have ended."""
    ended = sa.select(_responses.c.id, _responses.c.response).where(_responses.c.lease_until.is_(None))
    page = ended.order_by(_responses.c.id).limit(_ROWS_AT_ONCE)
    after = ""
    while found := connection.execute(page.where(_responses.c.id > after)).all():
        rows = [
            {"response_id": response_id, "item_id": name}
            for response_id, body in found
            for name in _names(body)
        ]
        if rows:
            yield rows
        after = found[-1].id


def _names(body: bytes) -> set[bytes]:
    items = decode_json(body).get("output", ())
    names = {item["id"].encode("utf-8", "surrogatepass") for item in items if isinstance(item.get("id"), str)}
    return {name for name in names if 0 < len(name) <= _LONGEST}
