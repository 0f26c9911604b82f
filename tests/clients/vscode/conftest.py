"""The extension, installed from its .vsix into a real extension host, together with an extension that uses
it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from openresponses_server.settings import Capabilities, Price, Settings, UpstreamSettings
from openresponses_server.settings.files import hashed
from openresponses_server.vscode.vsix import vsix
from tests.clients.vscode.choosing import choose_and_ask
from tests.clients.vscode.host import HERE, Host, require_host
from tests.clients.vscode.hostile import ADDRESSES, ANSWERS, LISTS, Hostile
from tests.clients.vscode.page import Page
from tests.clients.vscode.results import Attacked, Played
from tests.clients.vscode.scripts import scripts
from tests.support.serving import serving
from tests.support.shared import REPOSITORY
from tests.support.upstream import ScriptedUpstream

SCRIPTS = HERE / "js"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow a long timeout: the first test waits for the installation."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.vscode)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    installed = require_host()
    folder = tmp_path_factory.mktemp("vscode")
    command = [
        sys.executable,
        "-m",
        "openresponses_server",
        "vscode",
        "package",
        "-o",
        str(folder / "ours.vsix"),
    ]
    subprocess.run(command, check=True, cwd=REPOSITORY, capture_output=True, timeout=60)
    files = {path.name: path.read_bytes() for path in sorted((HERE / "consumer").iterdir())}
    (folder / "consumer.vsix").write_bytes(vsix({**files, "README.md": b"A test."}))
    return Host(installed, [folder / "ours.vsix", folder / "consumer.vsix"], folder)


@pytest.fixture(scope="session")
def demo(host: Host) -> dict[str, Any]:
    """The results of another extension with the demo model, by check; `page` is the text of the status
    bar."""
    with serving(Settings(store="memory://")) as address:
        return host.run(SCRIPTS / "demo.js", {"address": address}, look=lambda page: page.text(".statusbar"))


@pytest.fixture(scope="session", params=["chat", "anthropic"])
def played(request: pytest.FixtureRequest, host: Host) -> Iterator[Played]:
    """The results over Chat Completions, or over Messages, which a second server speaks to the first one."""
    with ExitStack() as stack:
        upstream = stack.enter_context(ScriptedUpstream(scripts()))
        upstream.models = list(upstream.scripts)
        address = stack.enter_context(_server(f"{upstream.url}", "chat"))
        if request.param == "anthropic":
            address = stack.enter_context(_server(f"{address}/v1", "anthropic"))
        results = host.run(SCRIPTS / "upstream.js", {"address": address})
        yield Played(results, upstream)


def _server(url: str, dialect: str) -> Any:
    upstream = UpstreamSettings(url=url, name="scripted", dialect=dialect)
    known = {"text": Capabilities(max_input_tokens=4321, max_output_tokens=99)} if dialect == "chat" else {}
    return serving(Settings(store="memory://", upstreams=[upstream], models=known, keep_alive=0.7))


@pytest.fixture(scope="session")
def chosen(host: Host) -> Iterator[Played]:
    """The results of efforts that are chosen in the chat's picker, and of one in the settings."""
    with ScriptedUpstream(scripts()) as upstream:
        upstream.models = ["text", "thinking"]
        known = {
            "text": Capabilities(reasoning=True, efforts=["none", "low", "high"]),
            "thinking": Capabilities(reasoning=False),
        }
        settings = Settings(
            store="memory://",
            upstreams=[UpstreamSettings(url=upstream.url, name="scripted", dialect="chat")],
            models=known,
            prices={"text": Price(input=3.0, cached_input=0.3, output=15.0)},
        )
        with serving(settings) as address:
            options = {"address": address}

            def look(page: Page) -> dict[str, Any]:
                return choose_and_ask(page, upstream)

            yield Played(host.run(SCRIPTS / "choices.js", options, look=look), upstream)


@pytest.fixture(scope="session")
def attacked(host: Host) -> Iterator[Attacked]:
    """The results over a server whose answers are wrong or hostile."""
    with Hostile() as stranger, Hostile(stranger.url) as hostile:
        options = {"hostile": hostile.url, "lists": LISTS, "addresses": ADDRESSES, "answers": ANSWERS}
        yield Attacked(host.run(SCRIPTS / "hostile.js", options), hostile, stranger)


@pytest.fixture(scope="session")
def keyed(host: Host) -> Iterator[Attacked]:
    """The results with keys and addresses. The open folder names the stranger's address, and later the remote
    machine does."""
    own = serving(Settings(store="memory://", api_keys=[hashed("swordfish")]))
    with Hostile() as stranger, Hostile(stranger.url) as other, own as address:
        theirs = {"openresponses.address": stranger.url, "openresponses.modelOptions": {"systemPrompt": "!"}}
        options = {"own": address, "other": other.url, "settings": theirs}
        results = host.run(
            SCRIPTS / "keys.js",
            options,
            workspace=theirs,
            look=lambda page: page.text(".quick-input-widget"),
        )
        yield Attacked(results, other, stranger)
