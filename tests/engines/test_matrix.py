"""Every case through a server of ours in front of real engines, over every dialect that they speak.

What becomes of it is written into the cache, from where `make engines ARGS=--table` takes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest

from tests.engines import results
from tests.engines.cases import CASES, Place, play
from tests.engines.engines import ENGINES, Running, bridge
from tests.engines.installing import NotInstalled

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

PLAYED = [
    pytest.param(engine.name, dialect, case, id=f"{engine.name}-{dialect}-{case}")
    for engine in ENGINES.values()
    for dialect in engine.dialects
    for case in CASES
]


class Places:
    """Engines and the servers in front of them, each started when it is first asked for. One that can't be is
    not tried again."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[str, Running | NotInstalled] = {}
        self._bases: dict[tuple[str, str], str] = {}

    def at(self, name: str, dialect: str) -> Place:
        """Raises NotInstalled."""
        running = self._engine(name)
        if (name, dialect) not in self._bases:
            self._bases[name, dialect] = self._enter(bridge(ENGINES[name], running, dialect))
        return Place(ENGINES[name], running, dialect, self._bases[name, dialect])

    def _engine(self, name: str) -> Running:
        if name not in self._running:
            try:
                self._running[name] = self._stack.enter_context(ENGINES[name].start())
            except NotInstalled as error:
                self._running[name] = error
        running = self._running[name]
        if isinstance(running, NotInstalled):
            raise running
        return running

    def _enter(self, served: AbstractContextManager[str]) -> str:
        return self._stack.enter_context(served)


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    with ExitStack() as stack:
        yield Places(stack)


@pytest.mark.parametrize(("engine", "dialect", "case"), PLAYED)
def test_a_case_passes(places: Places, engine: str, dialect: str, case: str) -> None:
    try:
        place = places.at(engine, dialect)
    except NotInstalled as error:
        pytest.skip(f"{engine}: {error}")
    outcome = play(CASES[case], place, case)
    results.keep(engine, place.running.version, dialect, case, outcome)
    assert outcome.kind != "fails", outcome.what
