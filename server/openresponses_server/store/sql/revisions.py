"""Which migration the tables are at, for code that knows it without SQLAlchemy."""

from __future__ import annotations

from typing import Final

REVISION: Final = "0007"
"""The newest migration that this code knows, and the one that SQLite's file is brought to."""

OLDEST: Final = "0004"
"""The oldest migration whose tables this code can use: workers may be started before the upgrade."""

VERSION_TABLE: Final = "openresponses_bridge_version"
"""Where a database says which migration it is at; not Alembic's own name, as databases are shared."""
