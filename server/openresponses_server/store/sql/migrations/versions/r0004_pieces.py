"""What one checkpoint stored is kept in pieces when it is long, so that readers read it so; and the runs that
wait for a worker can be counted by owner."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from openresponses_server.store.sql.migrations.online import by_itself, create_index

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_frames = sa.table(
    "response_frames",
    sa.column("response_id", sa.Text),
    sa.column("first_sequence", sa.BigInteger),
    sa.column("data", sa.LargeBinary),
    sa.column("pieces", sa.Integer),
)
_pieces = sa.table(
    "response_pieces",
    sa.column("response_id", sa.Text),
    sa.column("first_sequence", sa.BigInteger),
    sa.column("piece", sa.Integer),
    sa.column("data", sa.LargeBinary),
)
_METHODS = sa.text("SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'")


def upgrade() -> None:
    create_index("ix_responses_waiting", "responses", ["owner"], "lease_worker = ''")
    with by_itself():
        pieces = sa.Column("pieces", sa.Integer, nullable=False, server_default=sa.text("0"))
        op.add_column("response_frames", pieces, if_not_exists=_is_postgres() or None)
        op.create_table(
            "response_pieces",
            sa.Column(
                "response_id", sa.Text, sa.ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True
            ),
            sa.Column("first_sequence", sa.BigInteger, primary_key=True),
            sa.Column("piece", sa.Integer, primary_key=True),
            sa.Column("data", sa.LargeBinary, nullable=False),
            if_not_exists=True,
        )
        if _is_postgres() and "lz4" in (op.get_bind().scalar(_METHODS) or ()):
            op.execute("ALTER TABLE response_pieces ALTER COLUMN data SET COMPRESSION lz4")


def _is_postgres() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def downgrade() -> None:
    _join_pieces(op.get_bind())
    op.drop_index("ix_responses_waiting", "responses")
    op.drop_table("response_pieces")
    op.drop_column("response_frames", "pieces")


def _join_pieces(connection: sa.Connection) -> None:
    """Back into one row a checkpoint."""
    columns = (_frames.c.response_id, _frames.c.first_sequence, _frames.c.pieces)
    for response_id, first, count in connection.execute(
        sa.select(*columns).where(_frames.c.pieces > 0)
    ).all():
        here = (_frames.c.response_id == response_id) & (_frames.c.first_sequence == first)
        theirs = (_pieces.c.response_id == response_id) & (_pieces.c.first_sequence == first)
        rest = sa.select(_pieces.c.data).where(theirs, _pieces.c.piece <= count).order_by(_pieces.c.piece)
        data = [connection.scalar(sa.select(_frames.c.data).where(here)), *connection.scalars(rest)]
        connection.execute(sa.update(_frames).where(here).values(data=b"".join(map(bytes, data)), pieces=0))
