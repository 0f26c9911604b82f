"""Responses, their input and their frames."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _response_id() -> sa.Column[str]:
    return sa.Column(
        "response_id", sa.Text, sa.ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True
    )


def _partial_index(column: str) -> None:
    given = sa.text(f"{column} IS NOT NULL")
    op.create_index(
        f"ix_responses_{column}", "responses", [column], sqlite_where=given, postgresql_where=given
    )


def upgrade() -> None:
    op.create_table(
        "responses",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("previous_response_id", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("lease_worker", sa.Text),
        sa.Column("lease_until", sa.Double),
        sa.Column("last_sequence", sa.BigInteger, nullable=False),
        sa.Column("request", sa.LargeBinary),
        sa.Column("response", sa.LargeBinary, nullable=False),
    )
    _partial_index("expires_at")
    _partial_index("lease_until")
    op.create_table(
        "response_input",
        _response_id(),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("item_id", sa.LargeBinary, nullable=False),
        sa.Column("item", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "response_frames",
        _response_id(),
        sa.Column("first_sequence", sa.BigInteger, primary_key=True),
        sa.Column("last_sequence", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    for table in ("response_frames", "response_input", "responses"):
        op.drop_table(table)
