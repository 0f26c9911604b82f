"""The audit of the pins: a vulnerability fails it; where one service is silent or ignorant the next is asked,
and where all are, the last line says so."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from tests.support.shared import REPOSITORY

_SPEC = spec_from_file_location("audit", REPOSITORY / ".ci/audit.py")
assert _SPEC is not None
assert _SPEC.loader is not None
audit: Any = module_from_spec(_SPEC)
_SPEC.loader.exec_module(audit)

BAD = {"name": "jinja2", "version": "2.4.1", "vulns": [{"id": "PYSEC-1"}, {"id": "CVE-2"}]}
GOOD = {"name": "anyio", "version": "4.0", "vulns": []}
SKIPPED = {"name": "jinja2", "skip_reason": "not found"}
TOOL = """\
import sys, json, time
file = sys.argv[sys.argv.index("--requirement") + 1]
service = sys.argv[sys.argv.index("--vulnerability-service") + 1]
answer = json.loads({answers!r})[service]["probe" if "known.txt" in file else "pins"]
if answer == "hang":
    time.sleep(60)
if answer == "fail":
    sys.exit("ConnectionError: no route")
print(json.dumps({{"dependencies": answer}}))
sys.exit(1 if any(each.get("vulns") for each in answer) else 0)
"""
UNKNOWN = "it does not know of jinja2==2.4.1, which is vulnerable"
FAILED = "the tool ended with 1: ConnectionError: no route"
ADVISORY = """\
id: PYSEC-1
affected:
- package: {{name: {name}, ecosystem: PyPI}}
  ranges:
  - {{type: GIT, events: [{{introduced: "0"}}, {{fixed: 8c74c2c8dba7}}]}}
  - {{type: ECOSYSTEM, events: {events}}}
  versions: {versions}
modified: "2026-01-{day}T00:00:00Z"
"""


def tool(folder: Path, **answers: object) -> tuple[str, str]:
    path = folder / "tool.py"
    path.write_text(TOOL.format(answers=json.dumps(answers)))
    return sys.executable, str(path)


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("probe", "pins", "code", "said"),
    [
        ([BAD], [GOOD], 0, "audit: 1 pins, 0 with known vulnerabilities (pypi)"),
        ([BAD], [GOOD, BAD], 1, "audit: 2 pins, 1 with known vulnerabilities (pypi)"),
        ([SKIPPED], [GOOD], 0, f"audit: nothing was checked: pypi: {UNKNOWN}; osv: {FAILED}"),
        ([], [BAD], 0, f"audit: nothing was checked: pypi: {UNKNOWN}; osv: {FAILED}"),
        ("fail", [BAD], 0, f"audit: nothing was checked: pypi: {FAILED}; osv: {FAILED}"),
        ([BAD], "fail", 0, f"audit: nothing was checked: pypi: {FAILED}; osv: {FAILED}"),
    ],
)
def test_one_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], probe: Any, pins: Any, code: int, said: str
) -> None:
    command = tool(tmp_path, pypi={"probe": probe, "pins": pins}, osv={"probe": "fail", "pins": "fail"})
    assert audit.main(command, tmp_path / "pins.txt") == code
    assert last_line(capsys) == said


def test_a_vulnerable_pin_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = tool(tmp_path, pypi={"probe": [BAD], "pins": [GOOD, BAD]})
    assert audit.main(command, tmp_path / "pins.txt") == 1
    assert "audit: jinja2 2.4.1: PYSEC-1, CVE-2\n" in capsys.readouterr().out


def test_no_answer_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silent = {"probe": "hang", "pins": []}
    assert audit.main(tool(tmp_path, pypi=silent, osv=silent), tmp_path / "pins.txt", 1.0) == 0
    assert (
        last_line(capsys)
        == "audit: nothing was checked: pypi: no answer within 1 s; osv: no answer within 1 s"
    )


def test_the_other_service_answers_where_the_first_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = tool(tmp_path, pypi={"probe": [SKIPPED], "pins": []}, osv={"probe": [BAD], "pins": [BAD]})
    assert audit.main(command, tmp_path / "pins.txt") == 1
    output = capsys.readouterr().out
    assert f"audit: no answer of pypi: {UNKNOWN}\n" in output
    assert output.endswith("audit: 1 pins, 1 with known vulnerabilities (osv)\n")


@pytest.mark.parametrize(
    ("events", "versions", "affected"),
    [
        ('[{introduced: "0"}]', "[]", True),
        ('[{introduced: "0"}, {fixed: 1.10.0}]', "[]", False),
        ('[{introduced: "0"}, {fixed: 1.10.1}]', "[]", True),
        ("[{introduced: 1.9}, {last_affected: 1.10.0}]", "[]", True),
        ("[{introduced: 1.9}, {last_affected: 1.9.9}]", "[]", False),
        ('[{introduced: "0"}, {fixed: 1.2}, {introduced: 1.10}, {fixed: "2"}]', "[]", True),
        ('[{introduced: "2"}]', "[]", False),
        ('[{introduced: "2"}]', "[1.10, 2004d]", True),
    ],
)
def test_a_copy_of_the_advisories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], events: str, versions: str, affected: bool
) -> None:
    rows = {"jinja2": ('[{introduced: "0"}]', "[]", 11), "any-io": (events, versions, 12)}
    for name, (known, listed, day) in rows.items():
        (tmp_path / "vulns" / name).mkdir(parents=True)
        (tmp_path / "vulns" / name / "PYSEC-1.yaml").write_text(
            ADVISORY.format(name=name, events=known, versions=listed, day=day)
        )
    pins = tmp_path / "pins.txt"
    pins.write_text("# a comment\nAny_IO==1.10.0\nother==1.0\n")
    assert audit.main(tool(tmp_path), pins, advisories=str(tmp_path)) == affected
    summary = f"audit: 2 pins, {int(affected)} with known vulnerabilities"
    assert last_line(capsys) == f"{summary} (advisories in {tmp_path}, last changed 2026-01-12)"


def test_a_folder_without_advisories_is_not_believed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = tool(tmp_path, pypi={"probe": [BAD], "pins": [GOOD]})
    for advisories, why in ((tmp_path, "there is no folder vulns in it"), (tmp_path / "copy", UNKNOWN)):
        (tmp_path / "copy/vulns").mkdir(parents=True, exist_ok=True)
        assert audit.main(command, tmp_path / "pins.txt", advisories=str(advisories)) == 0
        output = capsys.readouterr().out.splitlines()
        assert output == [
            f"audit: no answer of advisories in {advisories}: {why}",
            "audit: 1 pins, 0 with known vulnerabilities (pypi)",
        ]


def test_the_last_line_of_ci_is_that_of_the_audit() -> None:
    steps = (REPOSITORY / ".ci/run").read_text().splitlines()
    assert "audited=$(make audit | tee /dev/stderr | tail -n 1)" in steps
    assert steps[-1] == 'say "$audited"'
