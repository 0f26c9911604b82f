"""Which turns stand on a response can be asked: what is deleted is kept for them, and goes with the last. And
the database says which versions may use it: workers of several work side by side while it is upgraded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from openresponses_server.store.sql.migrations.online import create_index

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_INDEX = "ix_responses_previous_response_id"


def upgrade() -> None:
    create_index(_INDEX, "responses", ["previous_response_id"], "previous_response_id IS NOT NULL")
    usable = op.create_table("openresponses_bridge_usable", sa.Column("oldest", sa.Text, primary_key=True))
    op.bulk_insert(usable, [{"oldest": "0004"}])


def downgrade() -> None:
    op.drop_table("openresponses_bridge_usable")
    op.execute("DELETE FROM responses WHERE substr(owner, 1, 1) = '~'")
    op.drop_index(_INDEX, "responses")
