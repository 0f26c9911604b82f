"""The usage of keys in a database: a batch is one transaction, whatever it contains."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

from msgspec.structs import asdict
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    Connection,
    Table,
    bindparam,
    case,
    delete,
    func,
    literal,
    select,
)

from openresponses_server.store import usage
from openresponses_server.store.sql.database import Database
from openresponses_server.store.sql.tables import agents, days, writers
from openresponses_server.store.usage import (
    NAMES,
    OTHERS,
    AgentCounts,
    Counts,
    DayUsage,
    UsageRows,
    day_of,
    most_of,
)

_OWNERS_AT_ONCE: Final = 500  # limit of the parameters of one statement
_OWNER: Final[BindParameter[str]] = bindparam("of_owner")
_DAYS_OF: Final = select(*days.c).where(days.c.owner == _OWNER, days.c.day >= bindparam("since"))
_AGENTS_OF: Final = select(*agents.c).where(agents.c.owner == _OWNER).order_by(agents.c.used_at)
_SIZES: Final = (
    select(days.c.owner, days.c.day, func.count().label("rows"))
    .where(days.c.owner.in_(bindparam("of_owners", expanding=True)))
    .group_by(days.c.owner, days.c.day)
    .order_by(days.c.day)
)
_MODELS: Final = select(days.c.model).where(days.c.owner == _OWNER, days.c.day == bindparam("of_day"))
_FORGET_DAY: Final = delete(days).where(days.c.owner == _OWNER, days.c.day == bindparam("of_day"))
_LATEST: Final = (
    select(agents.c.agent)
    .where(agents.c.owner == _OWNER)
    .order_by(agents.c.used_at.desc())
    .limit(bindparam("most"))
)
_FORGET_AGENTS: Final = delete(agents).where(agents.c.owner == _OWNER, agents.c.agent.not_in(_LATEST))
_FORGET_DAYS: Final = delete(days).where(days.c.day < bindparam("day"))
_FORGET_UNUSED: Final = (
    delete(agents).where(agents.c.used_at < bindparam("before")),
    delete(writers).where(writers.c.written_at < bindparam("before")),
)


class SqlUsage:
    """The usage of keys, a `UsageStore` in a database."""

    def __init__(self, database: Database, dialect: str, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._dialect = dialect
        self._clock = clock

    async def add_usage(self, writer: str, number: int, batch: UsageRows) -> None:
        numbered = {"writer": writer, "number": number, "written_at": self._clock()}
        await self._database.write(partial(_add, dialect=self._dialect, numbered=numbered, batch=batch))

    async def usage_of(self, owner: str, since: str = "") -> UsageRows:
        return await self._database.read(partial(_found, owner=owner, since=since))

    async def remove_usage(self, before: float) -> None:
        await self._database.write(partial(_remove, before=before))


def _found(connection: Connection, owner: str, since: str) -> UsageRows:
    day_rows = connection.execute(_DAYS_OF, {"of_owner": owner, "since": since})
    rows = [DayUsage(row.owner, row.day, row.model, _counts_of(row)) for row in day_rows]
    used = [
        AgentCounts(
            row.owner,
            row.agent,
            row.model,
            row.last_input_tokens,
            row.max_input_tokens,
            row.used_at,
            _counts_of(row),
        )
        for row in connection.execute(_AGENTS_OF, {"of_owner": owner})
    ]
    return UsageRows(rows, used)


def _remove(connection: Connection, before: float) -> None:
    connection.execute(_FORGET_DAYS, {"day": day_of(before)})
    for statement in _FORGET_UNUSED:
        connection.execute(statement, {"before": before})


def _counts_of(row: Any) -> Counts:
    return Counts(*(getattr(row, name) for name in NAMES))


def _add(connection: Connection, dialect: str, numbered: dict[str, Any], batch: UsageRows) -> None:
    if not connection.execute(_number(dialect), numbered).rowcount:
        return  # added before, and only the answer was lost
    rows = _within_bounds(connection, batch.days)
    # in the same order everywhere, so that two transactions never wait for each other
    rows.sort(key=lambda row: (row.owner, row.day, row.model))
    if rows:
        connection.execute(
            _add_days(dialect),
            [{"owner": row.owner, "day": row.day, "model": row.model, **asdict(row.counts)} for row in rows],
        )
    used = sorted(batch.agents, key=lambda agent: (agent.owner, agent.agent))
    if used:
        connection.execute(_add_agents(dialect), [_agent_values(agent) for agent in used])
    for owner in sorted({agent.owner for agent in used}):
        connection.execute(_FORGET_AGENTS, {"of_owner": owner, "most": usage.MAX_AGENTS})


def _within_bounds(connection: Connection, rows: Sequence[DayUsage]) -> list[DayUsage]:
    """Return the rows to add: models beyond a day's limit are summed under `OTHERS`, and an owner's oldest
    days are deleted to make room."""
    sizes: dict[str, Counter[str]] = {}
    for some in _portions({row.owner for row in rows}):
        for entry in connection.execute(_SIZES, {"of_owners": some}):
            sizes.setdefault(entry.owner, Counter())[entry.day] = entry.rows
    by_day: dict[tuple[str, str], list[DayUsage]] = {}
    for row in rows:
        by_day.setdefault((row.owner, row.day), []).append(row)
    bounded = []
    for (owner, day), day_rows in by_day.items():
        counts = sizes.setdefault(owner, Counter())
        if counts[day] + len(day_rows) > usage.MAX_MODELS:
            day_rows = _fewer_models(connection, owner, day, day_rows)
        bounded += day_rows
        counts[day] += len(day_rows)
        for oldest in sorted(counts):
            if counts.total() <= usage.MAX_ROWS or oldest >= day:
                break
            connection.execute(_FORGET_DAY, {"of_owner": owner, "of_day": oldest})
            del counts[oldest]
    return bounded


def _agent_values(agent: AgentCounts) -> dict[str, Any]:
    values = asdict(agent)
    return values | asdict(values.pop("counts"))


def _fewer_models(connection: Connection, owner: str, day: str, rows: Iterable[DayUsage]) -> list[DayUsage]:
    known = set(connection.execute(_MODELS, {"of_owner": owner, "of_day": day}).scalars())
    others = DayUsage(owner, day, OTHERS)
    model_rows = []
    for row in rows:
        if row.model == OTHERS or (row.model not in known and len(known) >= usage.MAX_MODELS):
            others.counts.add(row.counts)
        else:
            known.add(row.model)
            model_rows.append(row)
    return [*model_rows, others] if others.counts.requests else model_rows


def _insert_into(dialect: str, table: Table) -> Any:
    """Return an INSERT that has this database's own clauses; the other database's code is not loaded."""
    return import_module(f"sqlalchemy.dialects.{dialect}").insert(table)


@cache
def _number(dialect: str) -> Any:
    """Return the statement that records the batch; its row count is 0 if the batch was added before."""
    statement = _insert_into(dialect, writers)
    excluded = statement.excluded
    noted = statement.on_conflict_do_update(
        index_elements=[writers.c.writer],
        set_={"number": excluded.number, "written_at": excluded.written_at},
        where=writers.c.number < excluded.number,
    )
    return noted.execution_options(preserve_rowcount=True)


@cache
def _add_days(dialect: str) -> Any:
    statement = _insert_into(dialect, days)
    keys = [days.c.owner, days.c.day, days.c.model]
    return statement.on_conflict_do_update(index_elements=keys, set_=_sums(days, statement))


@cache
def _add_agents(dialect: str) -> Any:
    """Return the statement that replaces the model, tokens and time of earlier requests with those of the
    latest."""
    statement = _insert_into(dialect, agents)
    later = statement.excluded.used_at >= agents.c.used_at
    latest: dict[str, Any] = {
        name: case((later, statement.excluded[name]), else_=agents.c[name])
        for name in ("model", "last_input_tokens", "max_input_tokens", "used_at")
    }
    return statement.on_conflict_do_update(
        index_elements=[agents.c.owner, agents.c.agent], set_=latest | _sums(agents, statement)
    )


def _sums(table: Table, statement: Any) -> dict[str, Any]:
    """Return the sum of each count, limited to what fits its column."""
    return {name: _sum(table.c[name], statement.excluded[name], most_of(name)) for name in NAMES}


def _sum(there: Column[int], more: Any, bound: int) -> Any:
    most = literal(bound, BigInteger)
    return case((there > most - more, most), else_=there + more)


def _portions(owners: Iterable[str]) -> Iterator[list[str]]:
    rest = sorted(owners)
    for start in range(0, len(rest), _OWNERS_AT_ONCE):
        yield rest[start : start + _OWNERS_AT_ONCE]
