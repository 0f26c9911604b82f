"""The audit of the pins: a vulnerability fails it, silence or ignorance of the service skips it aloud."""

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
answers = json.loads({answers!r})
answer = answers["probe" if "known.txt" in file else "pins"]
if answer == "hang":
    time.sleep(60)
if answer == "fail":
    sys.exit("ConnectionError: no route")
print(json.dumps({{"dependencies": answer}}))
sys.exit(1 if any(each.get("vulns") for each in answer) else 0)
"""


@pytest.mark.parametrize(
    ("probe", "pins", "code", "said"),
    [
        ([BAD], [GOOD], 0, "1 pins, 0 with known vulnerabilities"),
        ([BAD], [GOOD, BAD], 1, "jinja2 2.4.1: PYSEC-1, CVE-2"),
        ([SKIPPED], [GOOD], 0, "skipped, the service does not know of jinja2==2.4.1"),
        ([], [BAD], 0, "skipped, the service does not know"),
        ("fail", [BAD], 0, "skipped, the tool ended with 1: ConnectionError: no route"),
        ([BAD], "fail", 0, "skipped, the tool ended with 1"),
        ("hang", [BAD], 0, "skipped, no answer within 1 s"),
    ],
)
def test_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], probe: Any, pins: Any, code: int, said: str
) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text(TOOL.format(answers=json.dumps({"probe": probe, "pins": pins})))
    seconds = 1.0 if probe == "hang" else 20.0
    assert audit.main((sys.executable, str(tool)), tmp_path / "pins.txt", seconds) == code
    assert said in capsys.readouterr().out
