"""docs/engines.md: what became of every case at real engines, from engines.json."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

RESULTS: Final = Path(__file__).parent / "engines.json"
_DIALECTS: Final = {"chat": "Chat", "responses": "Responses", "anthropic": "Messages"}
_WORDS: Final = {"passes": "yes", "reported": "reported", "limit": "no", "fails": "fails", "not asked": "–"}
_NOT_ASKED: Final = ("not asked", "")


class Engine(msgspec.Struct):
    """An engine's version, and by dialect and case what became of it and why."""

    version: str
    dialects: dict[str, dict[str, tuple[str, str]]]


class Results(msgspec.Struct):
    """`random` counts random answers by dialect and how they ended."""

    engines: dict[str, Engine]
    random: dict[str, dict[str, int]] = {}


def engines_page() -> str:
    """The page of engines."""
    results = msgspec.json.decode(RESULTS.read_bytes(), type=Results)
    places = [(name, dialect) for name, engine in results.engines.items() for dialect in engine.dialects]
    cases = dict.fromkeys(
        case for engine in results.engines.values() for cells in engine.dialects.values() for case in cells
    )
    lines = [
        "# Engines",
        "",
        "For operators: which features work with which engine behind this server.",
        "",
        "`make docs` generates this page from the last results of `make engines ARGS=--table`, which runs",
        "real engines with a tiny model that answers by keyword. Each case is requested over Responses, Chat",
        "Completions, Messages and VS Code's interface, whole and streamed. The answers have to be the same,",
        "and every stream has to be valid on both wires. [upstreams.md](upstreams.md) has the profiles.",
        "",
        *(f"- {name} {engine.version}" for name, engine in results.engines.items()),
        "",
        "*reported* means that the engine can't do it and that every affected answer says so, in",
        "`openresponses-losses` or as an error. *no* means that the engine does something else, as listed",
        "below. *–* means that the case can't be requested.",
        "",
        "| case | " + " | ".join(f"{name}, {_DIALECTS[dialect]}" for name, dialect in places) + " |",
        "| --- |" + " --- |" * len(places),
    ]
    for case in cases:
        outcomes = [
            results.engines[name].dialects[dialect].get(case, ("not asked", "")) for name, dialect in places
        ]
        lines.append(f"| {case} | " + " | ".join(_WORDS[kind] for kind, _ in outcomes) + " |")
    limits = {
        f"- {name}, {case}: {why}.": None
        for name, engine in results.engines.items()
        for cells in engine.dialects.values()
        for case, (kind, why) in cells.items()
        if kind == "limit"
    }
    lines += ["", *limits, ""]
    if results.random:
        counted = [f"{_DIALECTS[dialect]}: {_counts(counts)}" for dialect, counts in results.random.items()]
        lines += [
            "Random answers: a model with random weights in llama.cpp. Its output is compared, character by",
            "character, with what arrives at the client.",
            "",
            *(f"- {each}" for each in counted),
        ]
    return "\n".join(lines).rstrip() + "\n"


def _counts(counts: dict[str, int]) -> str:
    """How many answers there were, and how many of them had bytes that are not UTF-8 or ended as errors."""
    rest = dict(counts)
    replaced = rest.pop("with replaced bytes", 0)
    failed = rest.get("error", 0)
    return (
        f"{sum(rest.values())} answers, {replaced} with bytes that are not UTF-8, {failed} that failed there"
    )
