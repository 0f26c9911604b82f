"""Run by Alembic: the steps go over the connection that `server.sessions.sql.migrate` hands in, inside its
transaction, so that a database is at one revision or at the next and never between."""

from __future__ import annotations

from alembic import context

from server.sessions.sql.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
