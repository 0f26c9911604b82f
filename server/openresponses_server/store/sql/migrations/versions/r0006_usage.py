"""What keys spent is kept, as sums by day and model and by agent, for all workers and over restarts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from openresponses_server.store.sql.migrations.online import by_itself

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_COUNTS = (
    "requests",
    "failed",
    "estimated_requests",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "total_tokens",
    "cache_write_tokens",
)


def upgrade() -> None:
    with by_itself():
        op.create_table(
            "usage_days",
            *[sa.Column(name, sa.Text, primary_key=True) for name in ("owner", "day", "model")],
            *_counts(),
            sqlite_with_rowid=False,
            if_not_exists=True,
        )
        op.create_index("ix_usage_days_day", "usage_days", ["day"], if_not_exists=True)
        op.create_table(
            "usage_agents",
            *[sa.Column(name, sa.Text, primary_key=True) for name in ("owner", "agent")],
            sa.Column("model", sa.Text, nullable=False),
            sa.Column("last_input_tokens", sa.BigInteger, nullable=False),
            sa.Column("max_input_tokens", sa.BigInteger, nullable=False),
            sa.Column("used_at", sa.Double, nullable=False),
            *_counts(),
            sqlite_with_rowid=False,
            if_not_exists=True,
        )
        op.create_index("ix_usage_agents_used_at", "usage_agents", ["used_at"], if_not_exists=True)
        op.create_table(
            "usage_writers",
            sa.Column("writer", sa.Text, primary_key=True),
            sa.Column("number", sa.BigInteger, nullable=False),
            sa.Column("written_at", sa.Double, nullable=False),
            if_not_exists=True,
        )


def _counts() -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in _COUNTS]


def downgrade() -> None:
    for table in ("usage_writers", "usage_agents", "usage_days"):
        op.drop_table(table)
