"""What became of the cases, kept in the cache between runs, and what of it the documents show."""

from __future__ import annotations

import json
from typing import Any

from tests.engines.cases import CASES, Outcome
from tests.engines.engines import ENGINES
from tests.engines.installing import cache
from tests.support.shared import REPOSITORY

RANDOM_ANSWERS = "random answers"
SHOWN = REPOSITORY / "docs" / "engines.json"


def keep(engine: str, version: str, dialect: str, case: str, outcome: Outcome) -> None:
    """Keep what a case came to, in the place of what it came to before."""
    results = _kept()
    about = results.setdefault(engine, {"version": version, "dialects": {}})
    about["version"] = version
    about["dialects"].setdefault(dialect, {})[case] = [outcome.kind, outcome.what]
    _write(results)


def count(dialect: str, counts: dict[str, int]) -> None:
    """Keep how the random answers over a dialect ended, in the place of what there was before."""
    results = _kept()
    results.setdefault(RANDOM_ANSWERS, {})[dialect] = counts
    _write(results)


def show() -> None:
    """Write what the documents draw their table from: the engines of others, in the order of the tables."""
    results = _kept()
    engines = {
        name: {
            "version": results[name]["version"],
            "dialects": {
                dialect: _cells(results[name]["dialects"].get(dialect, {})) for dialect in engine.dialects
            },
        }
        for name, engine in ENGINES.items()
        if name in results and engine.foreign
    }
    shown = {"engines": engines, "random": results.get(RANDOM_ANSWERS, {})}
    SHOWN.write_text(json.dumps(shown, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _cells(kept: dict[str, Any]) -> dict[str, Any]:
    """Of what is kept, the cases that there are now."""
    return {case: kept[case] for case in CASES if case in kept}


def _kept() -> dict[str, Any]:
    file = cache() / "results.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return results


def _write(found: dict[str, Any]) -> None:
    file = cache() / "results.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, ensure_ascii=False))
