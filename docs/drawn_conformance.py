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
        "`make docs` makes this page from the scenarios in `bridge/openresponses_bridge/conformance/`.",
        "`conform` runs them against any server of the Responses API and checks every stream against the",
        f"[{len(RULES)} rules](rules.md):",
        "",
        "```sh",
        "openresponses-bridge conform http://127.0.0.1:8080 --model demo",
        "openresponses-bridge conform http://127.0.0.1:8080 --model demo --only stored --junit report.xml",
        "```",
        "",
        "Exit code 0: nothing failed, 1: something did, 2: the server can't be reached. Scenarios for",
        "features that a server does not have are skipped. The protocol requires `core` of every server;",
        "`full` is for servers that store responses. In pytest: [testing.md](testing.md).",
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
