"""The indexes of the tables, which migrations make. No query is built from them, and SQLAlchemy loads both
databases' code for them. So only who migrates imports this, and gets the tables with all that is theirs."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Index

from openresponses_server.store.sql.tables import (
    NAMED_INPUT,
    WAITING,
    agents,
    days,
    metadata,
    response_input,
    response_output,
    responses,
)

__all__ = ["metadata"]

_CONTINUING: Final = responses.c.previous_response_id.is_not(None)
_EXPIRING: Final = responses.c.expires_at.is_not(None)
_RUNNING: Final = responses.c.lease_until.is_not(None)
Index(
    "ix_responses_previous_response_id",
    responses.c.previous_response_id,
    sqlite_where=_CONTINUING,
    postgresql_where=_CONTINUING,
)
Index("ix_responses_expires_at", responses.c.expires_at, sqlite_where=_EXPIRING, postgresql_where=_EXPIRING)
Index("ix_responses_lease_until", responses.c.lease_until, sqlite_where=_RUNNING, postgresql_where=_RUNNING)
Index("ix_responses_listed", responses.c.owner, responses.c.created_at, responses.c.id)
Index("ix_responses_waiting", responses.c.owner, sqlite_where=WAITING, postgresql_where=WAITING)
Index(
    "ix_response_input_item_id",
    response_input.c.item_id,
    sqlite_where=NAMED_INPUT,
    postgresql_where=NAMED_INPUT,
)
Index("ix_response_output_item_id", response_output.c.item_id)
Index("ix_usage_days_day", days.c.day)
Index("ix_usage_agents_used_at", agents.c.used_at)
