"""PostgreSQL compresses the large columns with lz4 where it can: pglz, its default, is what storing a large
response costs most. What is stored already stays as it is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from openresponses_server.store.sql.migrations.online import by_itself

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_LARGE = (
    ("responses", "request"),
    ("responses", "response"),
    ("response_input", "item"),
    ("response_frames", "data"),
)
# PostgreSQL before 14 does not have this setting, one that was built without lz4 does not list it
_METHODS = sa.text("SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'")


def upgrade() -> None:
    if _knows_lz4():
        with by_itself():
            _compress_with("lz4")


def downgrade() -> None:
    if _knows_lz4():
        _compress_with("DEFAULT")


def _knows_lz4() -> bool:
    connection = op.get_bind()
    return connection.dialect.name == "postgresql" and "lz4" in (connection.scalar(_METHODS) or ())


def _compress_with(method: str) -> None:
    for table, column in _LARGE:
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET COMPRESSION {method}")
