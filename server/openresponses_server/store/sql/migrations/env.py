"""Run by Alembic: the steps go over the connection that `openresponses_server.store.sql.migrate` hands in.

Inside its transaction a database is at one revision or at another and never between. Online each step is a
transaction of its own, and what takes long in it comes first, by itself, so that it may be done twice.
"""

from __future__ import annotations

from typing import Any, cast

from alembic import context

from openresponses_server.store.sql.sqlite_file import VERSION_TABLE
from openresponses_server.store.sql.tables import metadata

_attributes = context.config.attributes


def _applied(**of_step: Any) -> None:
    step = of_step["step"]
    _attributes["report"](f"{step.up_revision_id}: done")


context.configure(
    connection=_attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    transaction_per_migration=_attributes["online"],
    on_version_apply=cast(Any, _applied),
)
with context.begin_transaction():
    context.run_migrations()
