"""Run by Alembic: the steps go over the connection that `openresponses_server.store.sql.migrate` hands in.

They are in its transaction: a database is at one revision or at another and never between.
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
