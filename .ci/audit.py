"""Checks the versions in `constraints.txt` for known vulnerabilities.  `python .ci/audit.py`

The exit code is 1 if there is one, and 0 if there is none or if no service could be asked; then the last
line says that nothing was checked, and why. The services are tried in turn: a copy of PyPA's advisory
database, if the variable ADVISORIES names its folder; the package index; OSV. A mirror of the index often
lists packages without their vulnerabilities, and would report none. So each service is first asked about a
release that is known to be vulnerable, and is not used if it does not know that one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

PINS: Final = Path(__file__).parent.parent / "constraints.txt"
TOOL: Final = (sys.executable, "-m", "pip_audit")
SERVICES: Final = ("pypi", "osv")
KNOWN: Final = "jinja2==2.4.1"  # CVE-2014-1402 and others
SECONDS: Final = 150.0  # for each request
_OPTIONS: Final = ("--no-deps", "--disable-pip", "--progress-spinner=off", "--timeout=10", "--format=json")
_MODIFIED: Final = re.compile(rb"^modified: *['\"]?(\d{4}-\d\d-\d\d)", re.MULTILINE)

Answer = list[dict[str, Any]]


class Unanswered(Exception):
    """The service gave no answer; says why."""


def main(
    tool: Sequence[str] = TOOL, pins: Path = PINS, seconds: float = SECONDS, advisories: str | None = None
) -> int:
    """Print the known vulnerabilities of the pins; return the exit code."""
    services: dict[str, Callable[[Path], Answer]] = {}
    if advisories:
        folder = Path(advisories)
        services[f"advisories in {folder}{_as_of(folder)}"] = partial(looked_up, folder)
    for service in SERVICES:
        services[service] = partial(asked, tool, service, seconds)
    silent = []
    for name, ask in services.items():
        try:
            answer = believed(ask, pins)
        except Unanswered as why:
            silent.append(f"{name}: {why}")
            continue
        for each in silent:
            print(f"audit: no answer of {each}")
        vulnerabilities = vulnerable(answer)
        for line in vulnerabilities:
            print(f"audit: {line}")
        print(f"audit: {len(answer)} pins, {len(vulnerabilities)} with known vulnerabilities ({name})")
        return 1 if vulnerabilities else 0
    print(f"audit: nothing was checked: {'; '.join(silent)}")
    return 0


def believed(ask: Callable[[Path], Answer], pins: Path) -> Answer:
    """Return what a service says of each pin. Raises Unanswered, also for one that knows too little."""
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "known.txt")
        probe.write_text(KNOWN)
        if not vulnerable(ask(probe)):
            raise Unanswered(f"it does not know of {KNOWN}, which is vulnerable")
    return ask(pins)


def asked(tool: Sequence[str], service: str, seconds: float, requirements: Path) -> Answer:
    """Return what the tool says of each requirement, from its service of this name. Raises Unanswered."""
    try:
        run = subprocess.run(
            [*tool, "--vulnerability-service", service, "--requirement", str(requirements), *_OPTIONS],
            capture_output=True,
            check=False,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise Unanswered(f"no answer within {seconds:g} s") from None
    try:
        dependencies: Answer = json.loads(run.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (run.stderr.strip().splitlines() or ["no output"])[-1]
        raise Unanswered(f"the tool ended with {run.returncode}: {last[:160]}") from None
    return dependencies


def looked_up(advisories: Path, requirements: Path) -> Answer:
    """Return what a copy of PyPA's advisory database has on each requirement, in the tool's form. Raises
    Unanswered."""
    folder = advisories / "vulns"
    if not folder.is_dir():
        raise Unanswered("there is no folder vulns in it")
    pinned = [Requirement(line) for line in requirements.read_text().splitlines() if line and line[0] != "#"]
    answer = []
    for each in pinned:
        (specifier,) = each.specifier
        name, version = canonicalize_name(each.name), Version(specifier.version)
        files = sorted((folder / name).glob("*.yaml"))
        bad = [{"id": path.stem} for path in files if _affects(path, name, version)]
        answer.append({"name": each.name, "version": specifier.version, "vulns": bad})
    return answer


def _affects(path: Path, name: str, version: Version) -> bool:
    import yaml

    advisory = yaml.load(path.read_bytes(), Loader=yaml.BaseLoader)  # every value is text: 1.10 is a version
    return "withdrawn" not in advisory and any(
        any(_version(each) == version for each in affected.get("versions", ()))
        or any(_within(version, each) for each in _ranges(affected))
        for affected in advisory["affected"]
        if canonicalize_name(affected["package"]["name"]) == name
    )


def _version(text: str) -> Version | None:
    """Return the version; None for one of a form that no pin can have."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _ranges(affected: Mapping[str, Any]) -> Iterator[list[Mapping[str, str]]]:
    return (each["events"] for each in affected.get("ranges", ()) if each["type"] == "ECOSYSTEM")


def _within(version: Version, events: list[Mapping[str, str]]) -> bool:
    """Return whether the last event at or before this version is its introduction."""
    affected = False
    for event in events:
        ((kind, since),) = event.items()
        if since != "0" and (at := _version(since)) is not None and at > version:
            continue
        if kind == "introduced":
            affected = True
        elif kind == "fixed" or (kind == "last_affected" and _version(since) != version):
            affected = False
    return affected


def _as_of(advisories: Path) -> str:
    dates = [_MODIFIED.search(path.read_bytes()) for path in (advisories / "vulns").glob("*/*.yaml")]
    newest = max((match[1].decode() for match in dates if match), default="")
    return newest and f", last changed {newest}"


def vulnerable(dependencies: Answer) -> list[str]:
    """A line for each vulnerable requirement."""
    return [
        f"{each['name']} {each['version']}: {', '.join(bad['id'] for bad in each['vulns'])}"
        for each in dependencies
        if each.get("vulns")
    ]


if __name__ == "__main__":
    sys.exit(main(advisories=os.environ.get("ADVISORIES")))
