"""The programs in the pages of clients run as they stand there, against the demo model."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.settings import Settings
from tests.support.documents import Block, blocks_of, pages
from tests.support.serving import serving

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]
_ADDRESS = "http://127.0.0.1:8080"
BLOCKS = [block for page in pages() if page.startswith("docs/clients/") for block in blocks_of(page)]


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    with serving(Settings(store="memory://")) as base:
        yield base


def output_of(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


@pytest.mark.parametrize("block", of("python"), ids=lambda block: block.page)
def test_python(block: Block, demo: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(block.code.replace(_ADDRESS, demo))
    assert output_of([sys.executable, "program.py"], tmp_path).strip()


@pytest.mark.parametrize("block", of("js"), ids=lambda block: f"{block.page}-{len(block.code)}")
def test_javascript(block: Block, demo: str, node: Path) -> None:
    (node / "page.mjs").write_text(block.code.replace(_ADDRESS, demo))
    assert output_of(["node", "page.mjs"], node).strip()
