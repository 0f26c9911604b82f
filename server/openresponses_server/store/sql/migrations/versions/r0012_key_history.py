"""Which keys were changed last. Workers of the revisions before go on using the database: of what they change
there is no row, so that the others read all keys then."""

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
