"""The tables of what keys spent. Their rows are sums, to which each process adds batches."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Double, Table, Text

from openresponses_server.store.sql.tables import metadata
from openresponses_server.store.usage import NAMES


def _counts() -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False) for name in NAMES]


days: Final = Table(
    "usage_days",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("day", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    *_counts(),
    sqlite_with_rowid=False,
)

agents: Final = Table(
    "usage_agents",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("agent", Text, primary_key=True),
    Column("model", Text, nullable=False),
    Column("last_input_tokens", BigInteger, nullable=False),
    Column("max_input_tokens", BigInteger, nullable=False),
    Column("used_at", Double, nullable=False),
    *_counts(),
    sqlite_with_rowid=False,
)

# The number of the batch that each process added last, so that none counts twice when it is added again.
writers: Final = Table(
    "usage_writers",
    metadata,
    Column("writer", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("written_at", Double, nullable=False),
)
