"""Conversations, and the conversation of a response. Workers of the revision before can still use the
database; they use neither."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_METHODS = sa.text("SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'")


def upgrade() -> None:
    op.add_column("responses", sa.Column("conversation_id", sa.Text))
    op.create_table(
        "conversations",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("next_position", sa.Integer, nullable=False),
        sa.Column("item_count", sa.Integer, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("metadata", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_conversations_owner", "conversations", ["owner"])
    expiring = sa.text("expires_at IS NOT NULL")
    op.create_index(
        "ix_conversations_expires_at",
        "conversations",
        ["expires_at"],
        sqlite_where=expiring,
        postgresql_where=expiring,
    )
    op.create_table(
        "conversation_items",
        sa.Column(
            "conversation_id",
            sa.Text,
            sa.ForeignKey("conversations.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("item_id", sa.Text, nullable=False),
        sa.Column("item", sa.LargeBinary, nullable=False),
    )
    op.create_index(
        "ix_conversation_items_item_id", "conversation_items", ["conversation_id", "item_id"], unique=True
    )
    connection = op.get_bind()
    if connection.dialect.name == "postgresql" and "lz4" in (connection.scalar(_METHODS) or ()):
        op.execute("ALTER TABLE conversation_items ALTER COLUMN item SET COMPRESSION lz4")
