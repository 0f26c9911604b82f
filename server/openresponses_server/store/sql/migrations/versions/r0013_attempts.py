"""The response that an item of a conversation is from, and the keys by which a request is answered once.
Workers of earlier revisions can still use the database: they write neither, and their deletions delete the
keys as well."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("conversation_items", sa.Column("response_id", sa.Text))
    op.create_table(
        "idempotency_keys",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("response_id", sa.Text, sa.ForeignKey("responses.id", ondelete="CASCADE"), nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("until", sa.Double, nullable=False),
    )
    op.create_index("ix_idempotency_keys_response_id", "idempotency_keys", ["response_id"])
    op.create_index("ix_idempotency_keys_until", "idempotency_keys", ["until"])
