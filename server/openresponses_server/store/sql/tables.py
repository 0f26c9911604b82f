"""The tables of stored responses, for SQLite and PostgreSQL alike.

JSON and frames are bytes (see `records`); times are Unix seconds. Queries are built from these definitions;
the migrations make the tables and their indexes.
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


# The columns of chains and look-ups are before the large ones: SQLite reads a row from its beginning.
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
    Column("conversation_id", Text),
)

WAITING: Final = text("lease_worker = ''")
"""Selects queued runs (`NOBODY` holds them). In literal SQL, since databases use the partial index only for
queries with the same condition."""

# One row per item, so that the database selects a page.
response_input: Final = Table(
    "response_input",
    metadata,
    _response_id(),
    Column("position", Integer, primary_key=True),
    Column("item_id", LargeBinary, nullable=False),
    Column("item", LargeBinary, nullable=False),
)

NAMED_INPUT: Final = text("length(item_id) <= 512")
"""Selects input items that can be found by their ids. In literal SQL, since databases use the partial index
only for queries with the same condition."""

# One row per output item of an ended response, to find it by its id; the item itself is in the response.
response_output: Final = Table(
    "response_output",
    metadata,
    _response_id(),
    Column("item_id", LargeBinary, primary_key=True),
    sqlite_with_rowid=False,
)

# One row per checkpoint, so that earlier frames are not written again.
response_frames: Final = Table(
    "response_frames",
    metadata,
    _response_id(),
    Column("first_sequence", BigInteger, primary_key=True),
    Column("last_sequence", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("pieces", Integer, nullable=False, server_default=text("0")),
)

# The frames of a checkpoint after the first piece, so that readers need not read all of them at once. If a
# checkpoint was repeated, there may be more rows than `response_frames.pieces` says; those are not read.
response_pieces: Final = Table(
    "response_pieces",
    metadata,
    _response_id(),
    Column("first_sequence", BigInteger, primary_key=True),
    Column("piece", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

# A response names its conversation without a foreign key, since either may be deleted before the other.
conversations: Final = Table(
    "conversations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("next_position", Integer, nullable=False),
    Column("item_count", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("metadata", LargeBinary, nullable=False),
)

# One row per item, so that the database selects a page; positions of deleted items are not used again.
conversation_items: Final = Table(
    "conversation_items",
    metadata,
    Column("conversation_id", Text, ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("item_id", Text, nullable=False),
    Column("item", LargeBinary, nullable=False),
    Column("response_id", Text),
)
"""`response_id` is that of the response whose end appended the item; None for items that clients add."""

# The keys under which clients sent the requests of responses (`store.idempotency`).
idempotency_keys: Final = Table(
    "idempotency_keys",
    metadata,
    Column("name", Text, primary_key=True),
    Column("response_id", Text, ForeignKey("responses.id", ondelete="CASCADE"), nullable=False),
    Column("request", Text, nullable=False),
    Column("until", Double, nullable=False),
)

# The names of what may be used once, such as an approval, until it can't be used any more.
used_once: Final = Table(
    "used_once",
    metadata,
    Column("name", Text, primary_key=True),
    Column("until", Double, nullable=False),
    sqlite_with_rowid=False,
)

# Managed keys; `models` and `limits` are JSON.
api_keys: Final = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("last_four", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("models", LargeBinary),
    Column("limits", LargeBinary, nullable=False),
)

# One row with a number that every change of a key increases, so that processes notice changes.
key_changes: Final = Table(
    "api_key_changes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
)

# The last changes by their numbers, so that processes read only the keys that were changed. The random `tag`
# distinguishes a change from another one with its number, after the database went back to an earlier state.
# Workers older than revision 0012 increase the number and write no row.
key_history: Final = Table(
    "api_key_history",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("tag", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    sqlite_with_rowid=False,
)

# The oldest `REVISION` of this code that can use these tables. Each migration sets it, so that workers of an
# older version can be started after a migration that does not concern them.
usable: Final = Table("openresponses_bridge_usable", metadata, Column("oldest", Text, primary_key=True))


# The tables of the usage of keys. Their rows are sums, to which each process adds batches.

_DEFAULTS: Final = {"priced": text("0"), "cost": text("0")}  # for columns that older workers do not write


def _counts() -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False, server_default=_DEFAULTS.get(name)) for name in NAMES]


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

# The number of the last batch of each process, so that a repeated batch does not count twice.
writers: Final = Table(
    "usage_writers",
    metadata,
    Column("writer", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("written_at", Double, nullable=False),
)
