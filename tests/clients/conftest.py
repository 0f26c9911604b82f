"""Real clients in front of a scripted Chat upstream whose model has only functions.

Python clients are installed by the extra `clients`; clients on Node.js are installed here, once, into a
folder that git ignores.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.settings import Settings, UpstreamSettings
from tests.clients.seen import INSTALLED, pinned
from tests.support.serving import serving
from tests.support.upstream import ScriptedUpstream

HERE = Path(__file__).parent
PACKAGES = (
    "@openai/codex",
    "@anthropic-ai/claude-code",
    "@anthropic-ai/sdk",
    "@openai/agents",
    "openai",
    "zod",
    "ai",
    "@ai-sdk/open-responses",
    "@ai-sdk/openai",
    "@ai-sdk/google",
    "@google/genai",
    "typescript",
)
INSTALL_SECONDS = 600
CHROMIUM_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
)
Run = Callable[[str, str], Any]


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream() as scripted:
        yield scripted


@pytest.fixture(params=["chat", "anthropic"])
def base(request: pytest.FixtureRequest, upstream: ScriptedUpstream) -> Iterator[str]:
    """The base URL of the bridge with /v1; the parameter is the upstream's dialect. For Anthropic's, a second
    bridge speaks it, over the same scripts."""
    with ExitStack() as bridges:
        address = bridges.enter_context(_bridge(upstream.url, "chat"))
        if request.param == "anthropic":
            address = bridges.enter_context(_bridge(f"{address}/v1", "anthropic"))
        yield f"{address}/v1"


def _bridge(url: str, dialect: str) -> AbstractContextManager[str]:
    upstream = UpstreamSettings(url=url, name="scripted", dialect=dialect)
    return serving(Settings(store="memory://", upstreams=[upstream]))


def _is_installed(folder: Path, name: str) -> bool:
    """Whether the package is installed in the pinned version."""
    manifest = folder / "node_modules" / name / "package.json"
    version = INSTALLED.get(f"npm:{name}")
    return manifest.exists() and version in (None, json.loads(manifest.read_text())["version"])


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """The folder for packages that npm installs."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    return HERE / ".node"


@pytest.fixture(scope="session")
def node(node_folder: Path) -> Path:
    """A folder whose node_modules contain the clients."""
    folder = node_folder
    if any(not _is_installed(folder, name) for name in PACKAGES):
        folder.mkdir(exist_ok=True)
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        command = ["npm", "install", "--no-fund", "--no-audit", "--no-package-lock", *map(pinned, PACKAGES)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    return folder


@pytest.fixture(scope="session")
def npm(node_folder: Path) -> Callable[..., Path]:
    """Returns a function that installs a package with its additional packages in a folder of their own,
    unless they are there, and returns the folder of their programs. It skips the test if that fails."""

    def install(package: str, *beside: str) -> Path:
        folder = node_folder / "apart" / package.replace("/", "-")
        programs = folder / "node_modules" / ".bin"
        if not _is_installed(folder, package):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text('{"private": true}')
            command = [
                "npm",
                "install",
                "--no-fund",
                "--no-audit",
                "--no-package-lock",
                pinned(package),
                *beside,
            ]
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
            )
            if done.returncode:
                shutil.rmtree(folder)
                pytest.skip(f"{package} could not be installed: {done.stderr[-300:]}")
        return programs

    return install


@pytest.fixture
def run_js(node: Path, base: str) -> Run:
    """Returns a function that runs a case of a program in `js/`, and returns its output as JSON."""

    def run(program: str, case: str) -> Any:
        shutil.copy(HERE / "js" / program, node / program)
        command = ["node", program, base, case]
        done = subprocess.run(command, cwd=node, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium without a window, controlled by Playwright."""
    sync_api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs Chromium (apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=CHROMIUM_FLAGS.split())
        yield running
        running.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core's script, which checks a page for accessibility."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm")
    folder = tmp_path_factory.mktemp("axe")
    command = ["npm", "install", "--silent", "--no-save", "--prefix", str(folder), "axe-core@4.14.1"]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()
