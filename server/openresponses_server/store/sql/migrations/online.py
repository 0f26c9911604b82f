"""What steps of a migration need to run beside workers that use the tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Final, TypeVar

import sqlalchemy as sa
from alembic import context, op

B = TypeVar("B", bound=Sized)

STEP_PATIENCE: Final = 800
"""Milliseconds that a statement waits for a lock: others queue behind it for so long. Less than the second
after which PostgreSQL ends one of those that wait for each other, so that it is never a worker."""

_REPORTED_EVERY: Final = 1.0  # seconds
_IS_VALID: Final = sa.text(
    "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(quote_ident(:name))::oid"
)


@contextmanager
def by_itself(patience: int = STEP_PATIENCE) -> Iterator[None]:
    """What runs here is committed statement by statement, where workers are at it, so that it never holds one
    lock while it waits for another; it has to bear being run again. `patience` is for each lock, 0 without
    end: for what holds up nobody."""
    if not context.config.attributes["online"]:
        yield
        return
    with op.get_context().autocommit_block():
        op.execute(f"SET lock_timeout = {patience}")
        yield
        op.execute(f"SET lock_timeout = {STEP_PATIENCE}")


def create_index(name: str, table: str, columns: list[str], where: str | None = None) -> None:
    """Build an index of the rows for which `where` holds, while they are read and written."""
    given = None if where is None else sa.text(where)
    if not context.config.attributes["online"]:
        op.create_index(name, table, columns, sqlite_where=given, postgresql_where=given)
        return
    with by_itself(patience=0):
        if op.get_bind().scalar(_IS_VALID, {"name": name}) is False:  # broken off before
            op.drop_index(name, table, postgresql_concurrently=True)
        op.create_index(
            name, table, columns, postgresql_where=given, postgresql_concurrently=True, if_not_exists=True
        )


def reported(batches: Iterable[B], what: str, total: int) -> Iterator[B]:
    """The same batches; how many things of `total` they were is reported now and then."""
    done, said_at = 0, time.monotonic()
    for batch in batches:
        yield batch
        done += len(batch)
        if time.monotonic() - said_at > _REPORTED_EVERY:
            said_at = time.monotonic()
            _report()(f"{what}: {done} of {total}")


def _report() -> Callable[[str], None]:
    report: Callable[[str], None] = context.config.attributes["report"]
    return report
