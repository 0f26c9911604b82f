"""The names that docs/upgrades.md keeps, and that none goes before its time."""

import json
import tomllib
from datetime import date
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.support.public_names import Names, breaches, public_names, releases
from tests.support.shared import REPOSITORY
from tests.support.snapshots import SNAPSHOTS, snapshots

FILE = "names.json"


@snapshots(FILE)
def test_names(snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    """Compared with those before they are written, so that `make snapshots` removes none that is kept."""
    before = SNAPSHOTS / "server" / FILE
    now = public_names()
    version = tomllib.loads((REPOSITORY / "server/pyproject.toml").read_text())["project"]["version"]
    changes = releases((REPOSITORY / "CHANGELOG.md").read_text("utf-8"))
    recorded = json.loads(before.read_text("utf-8")) if before.is_file() else now
    assert breaches(recorded, now, changes, version, date.today()) == []
    assert all(now.values())
    assert now == snapshot


def names(**kinds: dict[str, str]) -> Names:
    return {"commands and flags": {}, "settings": {}, "metrics": {}} | kinds


FIRST = "## [Unreleased]\n\nThe first release.\n"
BEFORE_IT_WAS_DEPRECATED = "## [Unreleased]\n### Removed\n\n- `port`: gone.\n## [0.1.0] - 2027-01-01\n"
WITHOUT_A_LINE = """## [Unreleased]
## [0.3.0] - 2027-03-01
## [0.2.0] - 2027-01-01

### Deprecated

- `port`: use `address`.

## [0.1.0] - 2026-12-01
"""
IN_ITS_TIME = WITHOUT_A_LINE.replace(
    "## [Unreleased]", "## [Unreleased]\n### Removed\n\n- `port`: use `address`."
)
ONE_MINOR = IN_ITS_TIME.replace("0.3.0", "0.2.1")
AFTER_ONE = IN_ITS_TIME.replace("[0.", "[1.")
ANNOUNCED = "## [Unreleased]\n### Deprecated\n- `port`: use `address`.\n"
METRIC = "## [Unreleased]\n### Removed\n- `running`: never used.\n## [1.1.0] - 2027-01-01\n"
PORT = {"settings": {"port": ""}}
OLD_PORT = {"settings": {"port": "use address"}}
RUNNING = {"metrics": {"running": ""}}


@pytest.mark.parametrize(
    ("before", "now", "changelog", "version", "day", "found"),
    [
        (PORT, {}, FIRST, "0.1.0", "2026-12-01", []),
        ({}, PORT, WITHOUT_A_LINE.replace("port", "host"), "0.4.0", "2027-08-01", []),
        (
            PORT,
            {},
            BEFORE_IT_WAS_DEPRECATED,
            "0.2.0",
            "2029-01-01",
            ["port is gone and was not deprecated by a release"],
        ),
        (PORT, {}, WITHOUT_A_LINE, "0.4.0", "2027-08-01", ["port is gone, and is not under Removed"]),
        (PORT, {}, IN_ITS_TIME, "0.4.0", "2027-08-01", []),
        (
            PORT,
            {},
            IN_ITS_TIME,
            "0.4.0",
            "2027-06-01",
            ["port is gone less than half a year after it was deprecated"],
        ),
        (PORT, {}, IN_ITS_TIME, "0.3.1", "2027-08-01", ["port is gone without a new major version"]),
        (PORT, {}, IN_ITS_TIME, "1.0.0", "2027-08-01", []),
        (
            PORT,
            {},
            ONE_MINOR,
            "0.3.0",
            "2027-08-01",
            ["port is gone less than two minor versions after it was deprecated"],
        ),
        (PORT, {}, AFTER_ONE, "1.4.0", "2027-08-01", ["port is gone without a new major version"]),
        (PORT, {}, AFTER_ONE, "2.0.0", "2027-08-01", []),
        (PORT, OLD_PORT, FIRST, "0.1.0", "2026-12-01", ["port is deprecated, and no change says so"]),
        (
            PORT,
            PORT,
            ANNOUNCED,
            "0.1.0",
            "2026-12-01",
            ["port is deprecated by the changes, and not in the code"],
        ),
        (PORT, OLD_PORT, ANNOUNCED, "0.1.0", "2026-12-01", []),
        (RUNNING, {}, METRIC, "1.2.0", "2027-01-02", []),
        (RUNNING, {}, METRIC, "1.1.1", "2027-01-02", ["running is gone without a new minor version"]),
        (
            RUNNING,
            {},
            METRIC.replace("running", "x"),
            "1.2.0",
            "2027-01-02",
            ["running is gone, and is not under Removed"],
        ),
    ],
)
def test_a_name_stays_for_its_time(
    before: dict[str, Any], now: dict[str, Any], changelog: str, version: str, day: str, found: list[str]
) -> None:
    today = date.fromisoformat(day)
    assert breaches(names(**before), names(**now), releases(changelog), version, today) == found
