"""schemathesis over `/openapi.json`: no status 5xx, and every answer as documented."""

import subprocess
import sys

import pytest

from server.settings import Settings
from tests.support.serving import serving

pytest.importorskip("schemathesis")
pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


def test_no_failure_and_no_undocumented_answer() -> None:
    with serving(Settings(store="memory://")) as base:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{base}/openapi.json"]
        options = ["--checks", ",".join(CHECKS), "--max-examples", "25", "--seed", "1", "--no-color"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=550, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
