"""The keys that were changed last. Workers of earlier revisions can still use the database; they write no row
here for their changes, after which the others read all keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_key_history",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tag", sa.BigInteger, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
