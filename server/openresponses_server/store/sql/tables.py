"""The tables of stored responses, for SQLite and PostgreSQL alike.

JSON and frames are bytes (see `records`); times are Unix seconds. The migrations make these tables; what
is written here is what queries are built from. Their indexes are in `indexes`.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

from openresponses_server.store.usage import NAMES

metadata: Final = MetaData()


def _response_id() -> Column[str]:
    link = ForeignKey("responses.id", ondelete="CASCADE")
    return Column("response_id", Text, link, primary_key=True)


# What chains and look-ups read stands before the large columns: SQLite reads a row from its front.
responses: Final = Table(
    "responses",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("previous_response_id", Text),
    Column("status", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("lease_worker", Text),
    Column("lease_until", Double),
    Column("last_sequence", BigInteger, nullable=False),
    Column("request", LargeBinary),
    Column("response", LargeBinary, nullable=False),
)

WAITING: Final = text("lease_worker = ''")
"""Which rows are runs that wait for a worker (`NOBODY` holds them); written out, as an index is only used by
queries that say the same."""

# One row an item, so that pages are cut by the database.
response_input: Final = Table(
    "response_input",
    metadata,
    _response_id(),
    Column("position", Integer, primary_key=True),
    Column("item_id", LargeBinary, nullable=False),
    Column("item", LargeBinary, nullable=False),
)

NAMED_INPUT: Final = text("length(item_id) <= 512")
"""Which input items are found by their ids (see `item_locations`); written out, as an index is only used by
queries that say the same."""

# One row an item of a response that has ended: where to look for it. What it is, the response says.
response_output: Final = Table(
    "response_output",
    metadata,
    _response_id(),
    Column("item_id", LargeBinary, primary_key=True),
    sqlite_with_rowid=False,
)

# One row a checkpoint, so that what was written once is not written again.
response_frames: Final = Table(
    "response_frames",
    metadata,
    _response_id(),
    Column("first_sequence", BigInteger, primary_key=True),
    Column("last_sequence", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("pieces", Integer, nullable=False, server_default=text("0")),
)

# What of a checkpoint goes beyond one piece, so that readers need not read all of it at once. There may be
# more of these than `response_frames.pieces` says, of an attempt that was made again.
response_pieces: Final = Table(
    "response_pieces",
    metadata,
    _response_id(),
    Column("first_sequence", BigInteger, primary_key=True),
    Column("piece", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

# The oldest version of this code, by its `REVISION`, that can use these tables. Each migration says it anew,
# so that workers of before it can be started after it where they can use what it made.
usable: Final = Table("openresponses_bridge_usable", metadata, Column("oldest", Text, primary_key=True))


# The tables of what keys spent. Their rows are sums, to which each process adds batches.


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
