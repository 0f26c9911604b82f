"""docs/conformance.md: the scenarios that are played against a server."""

from __future__ import annotations

from itertools import groupby

from openresponses_bridge.conformance import RULES
from openresponses_bridge.conformance.scenarios import SCENARIOS


def conformance_page() -> str:
    """The page of scenarios."""
    lines = [
        "# Conformance",
        "",
        "Drawn by `make docs` from the scenarios in `bridge/openresponses_bridge/conformance/`. `conform`",
        "plays them against any server of the Responses API and judges every stream by the",
        f"[{len(RULES)} rules](rules.md) as well:",
        "",
        "```sh",
        "openresponses-bridge conform http://127.0.0.1:8080 --model demo",
        "openresponses-bridge conform http://127.0.0.1:8080 --model demo --only stored --junit report.xml",
        "```",
        "",
        "Exit code 0: nothing failed, 1: something did, 2: the server can't be reached. What a server does",
        "not offer is skipped. `core` is what the protocol asks of every server, `full` what those offer",
        "that store. In pytest: [testing.md](testing.md).",
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
    return "\n".join(lines) + "\n"
