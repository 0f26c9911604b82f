"""The tables that databases begin with. Later changes are steps of their own after this one, which never
changes, since databases that it has made are not made again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = None
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
_LARGE = (
    ("responses", "request"),
    ("responses", "response"),
    ("response_input", "item"),
    ("response_frames", "data"),
    ("response_pieces", "data"),
)
# PostgreSQL before 14 does not have this setting, and one that was built without lz4 does not list it
_METHODS = sa.text("SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'")


def upgrade() -> None:
    _responses()
    _usage()
    usable = op.create_table("openresponses_bridge_usable", sa.Column("oldest", sa.Text, primary_key=True))
    op.bulk_insert(usable, [{"oldest": revision}])
    _compress_large_columns()


def _responses() -> None:
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
    for column in ("previous_response_id", "expires_at", "lease_until"):
        _index(f"ix_responses_{column}", "responses", [column], f"{column} IS NOT NULL")
    _index("ix_responses_listed", "responses", ["owner", "created_at", "id"])
    _index("ix_responses_waiting", "responses", ["owner"], "lease_worker = ''")
    op.create_table(
        "response_input",
        _response_id(),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("item_id", sa.LargeBinary, nullable=False),
        sa.Column("item", sa.LargeBinary, nullable=False),
    )
    _index("ix_response_input_item_id", "response_input", ["item_id"], "length(item_id) <= 512")
    op.create_table(
        "response_output",
        _response_id(),
        sa.Column("item_id", sa.LargeBinary, primary_key=True),
        sqlite_with_rowid=False,
    )
    _index("ix_response_output_item_id", "response_output", ["item_id"])
    op.create_table(
        "response_frames",
        _response_id(),
        sa.Column("first_sequence", sa.BigInteger, primary_key=True),
        sa.Column("last_sequence", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("pieces", sa.Integer, nullable=False, server_default=sa.text("0")),
    )
    op.create_table(
        "response_pieces",
        _response_id(),
        sa.Column("first_sequence", sa.BigInteger, primary_key=True),
        sa.Column("piece", sa.Integer, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )


def _usage() -> None:
    op.create_table(
        "usage_days",
        *[sa.Column(name, sa.Text, primary_key=True) for name in ("owner", "day", "model")],
        *_counts(),
        sqlite_with_rowid=False,
    )
    _index("ix_usage_days_day", "usage_days", ["day"])
    op.create_table(
        "usage_agents",
        *[sa.Column(name, sa.Text, primary_key=True) for name in ("owner", "agent")],
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("last_input_tokens", sa.BigInteger, nullable=False),
        sa.Column("max_input_tokens", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.Double, nullable=False),
        *_counts(),
        sqlite_with_rowid=False,
    )
    _index("ix_usage_agents_used_at", "usage_agents", ["used_at"])
    op.create_table(
        "usage_writers",
        sa.Column("writer", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("written_at", sa.Double, nullable=False),
    )


def _compress_large_columns() -> None:
    """Compress with lz4 if PostgreSQL has it: with pglz, its default, compression is most of the cost of
    storing a large response."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql" and "lz4" in (connection.scalar(_METHODS) or ()):
        for table, column in _LARGE:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET COMPRESSION lz4")


def _response_id() -> sa.Column[str]:
    return sa.Column(
        "response_id", sa.Text, sa.ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True
    )


def _counts() -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in _COUNTS]


def _index(name: str, table: str, columns: list[str], where: str | None = None) -> None:
    """Create an index of the rows for which `where` holds."""
    condition = None if where is None else sa.text(where)
    op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)
