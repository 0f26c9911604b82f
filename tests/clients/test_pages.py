"""The programs in the pages about clients run unchanged against the demo model."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openresponses_server.settings import Settings
from tests.support.document_blocks import commands
from tests.support.document_reader import Reader
from tests.support.documents import Block, blocks_of, pages
from tests.support.mcp_weather_options import MCP
from tests.support.serving import serving

pytestmark = [pytest.mark.clients, pytest.mark.timeout(700)]
_ADDRESS = "http://127.0.0.1:8080"
BLOCKS = [block for page in pages() if page.startswith("docs/clients/") for block in blocks_of(page)]


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    with serving(Settings(store="memory://")) as base:
        yield base


def output_of(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_codex_in_front_of_a_model_of_ones_own(node: Path, tmp_path: Path) -> None:
    """The README's model runs under the README's command: once without a tool, and once with a tool of an MCP
    server."""
    reader = Reader(Path(sys.executable), tmp_path)
    reader.files_of("README.md")
    _, serve, _, run_codex = commands("README.md", "Emit from your own model")
    variables = {"PATH": f"{node / 'node_modules' / '.bin'}:{reader.path}"}
    with reader.serving(serve):
        command = f"{run_codex} -- exec --skip-git-repo-check {{}} 'Weather?' < /dev/null"
        assert reader.run(command.format(""), **variables).startswith("You said: ")
        output = reader.run(
            command.format(shlex.join([*MCP, "-c", 'sandbox_mode="danger-full-access"'])), **variables
        )
    assert output.startswith("You said: ")
    assert "Rain in Paris tomorrow" in output


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def place_of(block: Block) -> str:
    """The page of a program, and the number of the block on the page."""
    return f"{block.page}-{[each for each in BLOCKS if each.page == block.page].index(block) + 1}"


@pytest.mark.parametrize("block", of("python"), ids=place_of)
def test_python(block: Block, demo: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(block.code.replace(_ADDRESS, demo))
    assert output_of([sys.executable, "program.py"], tmp_path).strip()


@pytest.mark.parametrize("block", of("js"), ids=place_of)
def test_javascript(block: Block, demo: str, node: Path) -> None:
    (node / "page.mjs").write_text(block.code.replace(_ADDRESS, demo))
    assert output_of(["node", "page.mjs"], node).strip()
