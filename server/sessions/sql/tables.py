"""The tables of stored responses, for SQLite and PostgreSQL alike.

JSON and frames are bytes (see `records`); times are Unix seconds. The migrations make these tables; what
is written here is what queries are built from.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

REVISION: Final = "0007"
"""The newest migration that this code knows, and the one that SQLite's file is brought to."""

OLDEST: Final = "0004"
"""The oldest migration whose tables this code can use: workers may be started before the upgrade."""

VERSION_TABLE: Final = "openresponses_bridge_version"
"""Where a database says which migration it is at; not Alembic's own name, as databases are shared."""

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

WAITING: Final = text("lease_worker = ''")
"""Which rows are runs that wait for a worker (`NOBODY` holds them); written out, as an index is only used by
queries that say the same."""
Index("ix_responses_waiting", responses.c.owner, sqlite_where=WAITING, postgresql_where=WAITING)

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
Index(
    "ix_response_input_item_id",
    response_input.c.item_id,
    sqlite_where=NAMED_INPUT,
    postgresql_where=NAMED_INPUT,
)

# One row an item of a response that has ended: where to look for it. What it is, the response says.
response_output: Final = Table(
    "response_output",
    metadata,
    _response_id(),
    Column("item_id", LargeBinary, primary_key=True),
    sqlite_with_rowid=False,
)
Index("ix_response_output_item_id", response_output.c.item_id)

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
# so that workers of before it can be started while those of after it are rolled out.
usable: Final = Table("openresponses_bridge_usable", metadata, Column("oldest", Text, primary_key=True))
