"""What one worker, one Redis and one PostgreSQL bear, and what many workers would ask of them, from
docs/capacity/measured.json and simulated.json: the tables of docs/capacity.md and the plots in
docs/capacity/, with those of the runs that `drawn_load` draws."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from drawn_bars import Bar, Group, bars
from drawn_load import run_plots, with_runs

FOLDER: Final = Path(__file__).parent
_PAGE: Final = FOLDER / "capacity.md"
_END: Final = "<!-- as far as here -->\n"
_LEAST: Final = 0.02
"""Cores below which a cause is one of the others."""


class Spent(msgspec.Struct):
    """Of one thing: µs of CPU, commands, statements, transactions that write, bytes of the write-ahead
    log."""

    worker: float
    redis: float
    postgres: float
    commands: float
    statements: float
    commits: float
    wal: float


class Counted(msgspec.Struct):
    """What so many real workers took in a second."""

    workers: int
    rate: float
    tokens: int
    connections: int
    clients: int


class Measured(msgspec.Struct):
    """A run of tests/benchmarks/bearing.py."""

    date: str
    machine: str
    versions: dict[str, str]
    units: dict[str, Spent]
    growth: dict[str, dict[str, Spent]]
    counted: list[Counted]
    stored: dict[str, float]


class Outcome(msgspec.Struct):
    """Of so many simulated workers; cores by cause."""

    workers: int
    before: bool
    redis: dict[str, float]
    postgres: dict[str, float]
    commands: float
    statements: float
    commits: float
    wal: float
    connections: int
    usage_row_busy: float
    takeover_seconds: float
    takeover_postgres: float
    redis_herd: float
    postgres_herd: float
    key_change_postgres: float
    route_messages: int
    route_redis: float


class Compared(msgspec.Struct):
    """So many workers at a rate: what was counted, and what is simulated."""

    workers: int
    rate: float
    commands: tuple[float, float]
    statements: tuple[float, float]
    commits: tuple[float, float]


class Simulated(msgspec.Struct):
    """A run of tests/benchmarks/fleet.py."""

    seed: int
    load: dict[str, float | bool]
    outcomes: list[Outcome]
    compared: list[Compared]


def _measured() -> Measured:
    return msgspec.json.decode((FOLDER / "capacity" / "measured.json").read_bytes(), type=Measured)


def _simulated() -> Simulated:
    return msgspec.json.decode((FOLDER / "capacity" / "simulated.json").read_bytes(), type=Simulated)


def capacity_page() -> str:
    """The page as it stands, with its tables drawn anew."""
    text = _PAGE.read_text(encoding="utf-8")
    measured, simulated = _measured(), _simulated()
    drawn = {
        "units": _units(measured),
        "growth": _growth(measured),
        "compared": _comparison(simulated),
        "fleets": _fleets(simulated),
    }
    for name, lines in drawn.items():
        before, begin, rest = text.partition(f"<!-- drawn from capacity: {name} -->\n")
        _, end, after = rest.partition(_END)
        assert end, f"{_PAGE.name} has lost the marks of its table {name}"
        text = "".join([before, begin, "\n", *(f"{line}\n" for line in lines), "\n", end, after])
    return with_runs(text)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [_row(head), _row(["---", *["---:"] * (len(head) - 1)]), *map(_row, rows)]


def _number(value: float) -> str:
    """What counts of it; nothing where it is less than what else happened meanwhile."""
    if value < 0.05:
        return "–"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _units(found: Measured) -> list[str]:
    versions = ", ".join(
        f"{'PostgreSQL' if name == 'postgres' else 'Redis'} {each}" for name, each in found.versions.items()
    )
    head = ["one", "worker µs", "Redis µs", "PostgreSQL µs", "commands", "statements", "writes", "log bytes"]
    rows = [[name, *map(_number, msgspec.structs.astuple(each))] for name, each in found.units.items()]
    stored = [
        f"{name[:1].upper()}{name[1:]}: {size:,.0f} (*measured*)." for name, size in found.stored.items()
    ]
    most = [
        f"Workers: {each.workers}, with {each.rate:.1f} streams a second each; connections in all: "
        f"{each.connections} to PostgreSQL, {each.clients} to Redis (*measured*)."
        for each in found.counted
    ]
    return [
        f"All *measured*, {found.date}; {found.machine}; {versions}.",
        "",
        *_table(head, rows),
        "",
        *stored,
        *most,
    ]


def _growth(found: Measured) -> list[str]:
    """The server's side of it alone: that of Redis or of PostgreSQL, whichever is more."""
    rows = []
    for name, by in found.growth.items():
        sizes = ", ".join(
            f"{int(size):,}: {_number(max(each.redis, each.postgres))}" for size, each in by.items()
        )
        rows.append([name, sizes])
    return _table(["what, by what it grows with", "number: µs of the database"], rows)


def _comparison(found: Simulated) -> list[str]:
    rows = [
        [
            f"{each.workers}, {'idle' if not each.rate else f'{each.rate:.1f} streams/s each'}",
            *(
                f"{real:,.1f} / {simulated:,.1f}"
                for real, simulated in (each.commands, each.statements, each.commits)
            ),
        ]
        for each in found.compared
    ]
    head = ["workers", "commands/s counted / simulated", "statements/s", "writing transactions/s"]
    return _table(head, rows)


def _fleets(found: Simulated) -> list[str]:
    """As the server is, with what it was where that differs."""
    now = {each.workers: each for each in found.outcomes if not each.before}
    before = {each.workers: each for each in found.outcomes if each.before}

    def cells(figure: str, unit: str = "", digits: int = 1) -> list[str]:
        texts = []
        for size, each in now.items():
            was, value = getattr(before[size], figure), getattr(each, figure)
            shown = f"{value:,.{digits}f}{unit}"
            differs = abs(was - value) > 0.1 * max(was, value)
            texts.append(f"{shown} (was {was:,.{digits}f})" if differs else shown)
        return texts

    def cores(where: str) -> list[str]:
        texts = []
        for size, each in now.items():
            was, value = (sum(getattr(one, where).values()) for one in (before[size], each))
            texts.append(f"{value:.2f} (was {was:.2f})" if was - value > 0.1 * was else f"{value:.2f}")
        return texts

    rows = [
        ["Redis, cores", *cores("redis")],
        ["PostgreSQL, cores", *cores("postgres")],
        ["commands/s", *cells("commands", digits=0)],
        ["statements/s", *cells("statements", digits=0)],
        ["writing transactions/s", *cells("commits", digits=0)],
        ["write-ahead log", *(f"{each.wal / 1e6:,.0f} MB/s" for each in now.values())],
        ["connections to PostgreSQL, at most", *cells("connections", digits=0)],
        ["the row of one key's usage is locked", *(f"{each.usage_row_busy:.0%}" for each in now.values())],
        ["a killed worker's runs are settled after", *cells("takeover_seconds", " s")],
        ["and that takes of PostgreSQL", *cells("takeover_postgres", " s", 2)],
        ["fullest tenth of a second after PostgreSQL was out", *cells("postgres_herd", " ×")],
        ["the same of Redis", *cells("redis_herd", " ×")],
        ["a change of one of 1,000 keys takes of PostgreSQL", *cells("key_change_postgres", " s", 2)],
        ["an upstream fails: messages", *(f"{each.route_messages}" for each in now.values())],
        ["which take of Redis", *(f"{each.route_redis:.2f} s" for each in now.values())],
    ]
    return _table(["workers", *(f"{size:,}" for size in now)], rows)


def capacity_plots() -> dict[str, str]:
    """The pictures by their names in docs/."""
    simulation = _simulated()
    rate, tokens, speed = (simulation.load[name] for name in ("rate", "tokens", "speed"))
    caption = [
        f"Simulated, seed {simulation.seed}. "
        f"A worker begins {rate:.0f} streams of {tokens:.0f} tokens a second",
        f"which take {tokens / speed:.0f} seconds, all with one key. One Redis uses one core.",
    ]
    fleets = {
        f"capacity/{where}.svg": bars(
            f"What many workers ask of {title}",
            "cores, by cause",
            caption,
            [_group(each, where) for each in simulation.outcomes if not each.before],
        )
        for where, title in (("redis", "Redis"), ("postgres", "PostgreSQL"))
    }
    return {**fleets, **run_plots()}


def _group(outcome: Outcome, where: str) -> Group:
    causes: dict[str, float] = getattr(outcome, where)
    shown = {name: cores for name, cores in causes.items() if cores >= _LEAST}
    others = sum(causes.values()) - sum(shown.values())
    drawn = [Bar(name, cores, cores, cores, f"{cores:.2f}") for name, cores in shown.items()]
    if others > 0:
        drawn.append(Bar("others", others, others, others, f"{others:.3f}"))
    whole = sum(causes.values())
    return Group(
        f"{outcome.workers:,} workers", [Bar("all", whole, whole, whole, f"{whole:.2f}", ours=True), *drawn]
    )
