"""Are there known vulnerabilities in what `constraints.txt` pins?  `python .ci/audit.py`

Exit 0 when there is none, or when nobody could say so (with a word on why), 1 when there is one. A mirror of
the package index often lists packages without their vulnerabilities, and would find every pin in order. So a
release that is known to be vulnerable is asked for first: who does not know that one is not believed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

PINS: Final = Path(__file__).parent.parent / "constraints.txt"
TOOL: Final = (sys.executable, "-m", "pip_audit")
KNOWN: Final = "jinja2==2.4.1"  # CVE-2014-1402 and others
SECONDS: Final = 150.0  # for each question
_OPTIONS: Final = ("--no-deps", "--disable-pip", "--progress-spinner=off", "--timeout=10", "--format=json")


class Unanswered(Exception):
    """The service gave no answer; says why."""


def main(tool: Sequence[str] = TOOL, pins: Path = PINS, seconds: float = SECONDS) -> int:
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "known.txt")
        probe.write_text(KNOWN)
        try:
            if not vulnerable(asked(tool, probe, seconds)):
                raise Unanswered(f"the service does not know of {KNOWN}, which is vulnerable")
            answer = asked(tool, pins, seconds)
        except Unanswered as why:
            print(f"audit: skipped, {why}")
            return 0
    found = vulnerable(answer)
    for line in found:
        print(f"audit: {line}")
    print(f"audit: {len(answer)} pins, {len(found)} with known vulnerabilities")
    return 1 if found else 0


def asked(tool: Sequence[str], requirements: Path, seconds: float) -> list[dict[str, Any]]:
    """What the tool says of each requirement. Raises Unanswered."""
    try:
        run = subprocess.run(
            [*tool, "--requirement", str(requirements), *_OPTIONS],
            capture_output=True,
            check=False,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise Unanswered(f"no answer within {seconds:g} s") from None
    try:
        dependencies: list[dict[str, Any]] = json.loads(run.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (run.stderr.strip().splitlines() or ["no output"])[-1]
        raise Unanswered(f"the tool ended with {run.returncode}: {last[:300]}") from None
    return dependencies


def vulnerable(dependencies: list[dict[str, Any]]) -> list[str]:
    """A line for each that is."""
    return [
        f"{each['name']} {each['version']}: {', '.join(bad['id'] for bad in each['vulns'])}"
        for each in dependencies
        if each.get("vulns")
    ]


if __name__ == "__main__":
    sys.exit(main())
