"""All scenarios: importing this module registers them. `SCENARIOS` is id → scenario, in playing order."""

from collections.abc import Collection
from typing import Final

from openresponses_bridge.conformance import (
    scenarios_answers,
    scenarios_stored,
    scenarios_tools,
    scenarios_websocket,
)
from openresponses_bridge.conformance.scenario import LEVELS, REGISTERED, Level, Scenario

__all__ = [
    "LEVELS",
    "SCENARIOS",
    "Level",
    "Scenario",
    "chosen",
    "scenarios_answers",
    "scenarios_stored",
    "scenarios_tools",
    "scenarios_websocket",
]

# Scenarios for every server come first; those for optional features come last.
_AREAS: Final = (
    *("transport", "schema", "order", "tools", "turns", "errors"),
    *("stored", "cancel", "resume", "websocket", "compaction"),
)
SCENARIOS: Final = {name: each for area in _AREAS for name, each in REGISTERED.items() if each.area == area}


def chosen(level: Level = "full", only: Collection[str] = (), skip: Collection[str] = ()) -> list[Scenario]:
    """Return the scenarios of a level: those of the areas and ids in `only` (all if it is empty), without
    those in `skip`. Raises ValueError for an unknown name, and if none is left."""
    areas = dict.fromkeys(each.area for each in SCENARIOS.values())
    if unknown := [name for name in (*only, *skip) if name not in areas and name not in SCENARIOS]:
        raise ValueError(f"no scenario is called {', '.join(unknown)}; areas: {', '.join(areas)}")
    scenarios = [
        each
        for each in SCENARIOS.values()
        if LEVELS.index(each.level) <= LEVELS.index(level)
        and (not only or each.area in only or each.id in only)
        and not (each.area in skip or each.id in skip)
    ]
    if not scenarios:
        raise ValueError("these options leave no scenario")
    return scenarios
