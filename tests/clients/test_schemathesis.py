"""schemathesis over `/openapi.json`: no status 5xx, every answer as documented, and within half a minute.

Each phase is a test, so that the phases run in parallel: 14,600 requests in all, which take the server 20 s
and schemathesis 40 s, and several times that on a busy machine.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from openresponses_server.settings import Settings
from tests.support.serving import serving

pytest.importorskip("schemathesis")
pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
CONFIG = '[parameters]\n"path.model" = "demo"\n'
"""Of the listed responses, some fail or take minutes, because the requests ask for that."""
OPTIONS = ("--no-shrink", "--max-failures", "5", "--generation-database", "none", "--request-timeout", "30")
"""A failure is reported as it was found, and nothing is kept for the next run."""


@pytest.mark.parametrize("phase", ["examples", "coverage", "fuzzing", "stateful"])
def test_no_failure_and_no_undocumented_answer(phase: str, tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    with serving(Settings(store="memory://")) as base:
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
        options = [
            f"{base}/openapi.json",
            "--phases",
            phase,
            "--checks",
            ",".join(CHECKS),
            "--max-examples",
            "25",
            "--seed",
            "1",
            "--no-color",
            *OPTIONS,
        ]
        try:
            done = subprocess.run(
                [*command, *options], capture_output=True, text=True, timeout=550, check=False
            )
        except subprocess.TimeoutExpired as late:
            pytest.fail(f"not done after {late.timeout} s: {str(late.stdout)[-2000:]}")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
