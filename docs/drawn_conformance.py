"""docs/conformance.md: the scenarios that are played against a server, and what decoders of others make of
the corpus, from decoders.json."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

from openresponses_bridge.conformance import RULES
from openresponses_bridge.conformance.scenarios import SCENARIOS
from openresponses_bridge.corpus import case_ids
from openresponses_bridge.corpus.scripts import SCRIPTS
from openresponses_bridge.corpus.variants import CUT_ASKS, LEGAL, VARIANTS

_DECODERS = Path(__file__).with_name("decoders.json")
_ASKS = {name: each.asks for name, each in (*SCRIPTS.items(), *VARIANTS.items())} | {"cut-NN": CUT_ASKS}
# what the published suite asks → the scenarios that ask it here
_PUBLISHED = {
    "basic-response": "transport.whole",
    "assistant-phase": "schema.input-forms",
    "response-output-phase-schema": "schema.input-forms",
    "streaming-response": "order.stream",
    "websocket-response": "websocket.turns",
    "websocket-sequential-responses": "websocket.turns",
    "websocket-continuation": "websocket.continuation",
    "websocket-reconnect-store-false-recovery": "websocket.reconnect",
    "websocket-previous-response-not-found": "websocket.unknown-previous-response",
    "websocket-failed-continuation-evicts-cache": "websocket.eviction",
    "websocket-compact-new-chain": "compaction.new-chain",
    "system-prompt": "schema.input-forms",
    "tool-calling": "tools.call",
    "image-input": "schema.image-input",
    "multi-turn": "turns.output-is-input",
    "compact-response": "compaction.window",
    "compact-missing-model": "compaction.without-model",
    "streamed tool calls": "tools.streamed-call",
}


def conformance_page() -> str:
    """The page of scenarios."""
    lines = [
        "# Conformance",
        "",
        "For backend authors, and client users who choose a server: does it follow the protocol?",
        "",
        "`make docs` generates this page from the scenarios in `bridge/openresponses_bridge/conformance/`.",
        "`conform` runs them against any server of the Responses API and checks every stream against the",
        f"[{len(RULES)} rules](rules.md):",
        "",
        "```sh",
        "openresponses-bridge conform http://127.0.0.1:8080 --model demo",
        "openresponses-bridge conform http://127.0.0.1:8080 --model demo --only stored --junit report.xml",
        "```",
        "",
        "The exit code is 0 if nothing failed, 1 if something failed, 2 if the server can't be reached.",
        "Scenarios for features that a server does not have are skipped. The protocol requires `core` of",
        "every server; `full` is for servers that store responses. `--badge FILE` writes the verdict as an",
        "endpoint badge for shields.io. The badge, `--json` and `--junit` contain the version of this",
        "package. In pytest:",
        "[testing.md](testing.md).",
    ]
    for area, scenarios in groupby(SCENARIOS.values(), key=lambda each: each.area):
        lines += [
            "",
            f"## {area}",
            "",
            "| scenario | level | what | asked for by |",
            "| --- | --- | --- | --- |",
        ]
        for each in scenarios:
            cells = (f"`{each.id}`", each.level, each.description, each.source)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, *_published(), *_decoders(json.loads(_DECODERS.read_text()))]) + "\n"


def _published() -> list[str]:
    assert set(_PUBLISHED.values()) <= SCENARIOS.keys()
    return [
        "",
        "## The published suite",
        "",
        "This table maps the acceptance tests of",
        "[openresponses.org](https://www.openresponses.org/compliance) to our scenarios. Its requirement",
        "that several `data:` lines are joined concerns decoders: it is `several-lines` below.",
        "",
        "| there | here |",
        "| --- | --- |",
        *(f"| {theirs} | `{ours}` |" for theirs, ours in _PUBLISHED.items()),
    ]


def _decoders(measured: dict[str, Any]) -> list[str]:
    """What each client makes of each script and variant that one of them reads otherwise."""
    outcomes, versions = measured["made"], measured["versions"]
    rows = [name for name in _ASKS if any(each.get(name, "right") != "right" for each in outcomes.values())]
    valid = set(SCRIPTS) | set(LEGAL)
    lines = [
        "",
        "## Decoders",
        "",
        f"The [corpus](testing.md#a-decoder), version {measured['corpus']}, has {len(case_ids())} streams,",
        f"made from {len(SCRIPTS)} scripts and {len(VARIANTS) + 1} variants.",
        "`make clients` feeds them to other clients, on the wire that each is made for; clients that would",
        "run calls get scripts without calls. Each row is a requirement that at least one client does not",
        "meet: first those of valid streams, then those of the streams of poor servers, which clients need",
        "not accept. ✓ means correct, – not tested, *raises* an exception; otherwise the cell names the",
        "facts that differ. Raising is correct where a stream fails or is cut. The results are those of",
        "openai's stream helpers, of `streamText`, of an agent's run and of a turn of Codex. The decoders",
        "of this package meet every requirement.",
        "",
        "| | | "
        + " | ".join(
            f"{name.partition(':')[2]} ({name.partition(':')[0]}) {versions[name]}" for name in outcomes
        )
        + " |",
        "| --- | --- |" + " --- |" * len(outcomes),
    ]
    for name in sorted(rows, key=lambda each: each not in valid):
        cells = (_cell(each.get(name)) for each in outcomes.values())
        kind = "valid" if name in valid else "poor"
        lines.append(f"| `{name}`: {_ASKS[name]} | {kind} | " + " | ".join(cells) + " |")
    counted = (
        f"{sum(verdict == 'right' for verdict in each.values())} of {len(each)}" for each in outcomes.values()
    )
    return [*lines, "| right | | " + " | ".join(counted) + " |"]


def _cell(said: str | None) -> str:
    return {"right": "✓", None: "–"}.get(said, said or "")
