"""The responses of an owner are found in the order in which they were made."""

from __future__ import annotations

from alembic import op

from openresponses_server.store.sql.migrations.online import create_index

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_INDEX = "ix_responses_listed"


def upgrade() -> None:
    create_index(_INDEX, "responses", ["owner", "created_at", "id"])


def downgrade() -> None:
    op.drop_index(_INDEX, "responses")
