"""Run by Alembic: the steps use the connection that `openresponses_server.store.sql.migrate` passes.

They run in its transaction, so that a database is never between two revisions.
"""

from __future__ import annotations

from alembic import context

from openresponses_server.store.sql.sqlite_file import VERSION_TABLE
from openresponses_server.store.sql.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
