"""The costs of responses. Workers of earlier revisions can still use the database; what they count has no
known cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("usage_days", "usage_agents"):
        for name in ("priced", "cost"):
            op.add_column(table, sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0")))
