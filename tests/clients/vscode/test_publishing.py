"""The extension as the tools of both marketplaces see it: Microsoft's vsce, and Open VSX's ovsx."""

from __future__ import annotations

import io
import os
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from openresponses_server.vscode.vsix import extension_files, published, vsix
from tests.clients.vscode.host import FOLDER, require_host
from tests.support.shared import REPOSITORY

PUBLISHED = published(extension_files(), "https://github.com/example/openresponses-bridge")
TOOLS = FOLDER.parent / ".vscode-tools"


@pytest.fixture(scope="module")
def tools() -> Path:
    """The folder with both, in the versions with which `make extension-publish` publishes."""
    require_host()
    words = (REPOSITORY / "Makefile").read_text().split()
    packages = sorted({word for word in words if word.startswith(("@vscode/vsce@", "ovsx@"))})
    assert len(packages) == 2
    mark = TOOLS / "installed"
    if not mark.exists() or mark.read_text() != " ".join(packages):
        TOOLS.mkdir(exist_ok=True)
        (TOOLS / "package.json").write_text('{"private": true}')
        options = ["--silent", "--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit"]
        try:
            _run(["npm", "install", *options, *packages], TOOLS)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"the tools of the marketplaces can't be installed: {error}")
        mark.write_text(" ".join(packages))
    return TOOLS / "node_modules" / ".bin"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("extension")
    for name, data in PUBLISHED.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(data)
    return path


@pytest.fixture(scope="module")
def packaged(tools: Path, folder: Path) -> tuple[str, zipfile.ZipFile]:
    """The output of vsce when it packages the extension, and its package."""
    out = folder.with_suffix(".vsix")
    done = _run([str(tools / "vsce"), "package", "--out", str(out)], folder)
    return done.stdout + done.stderr, zipfile.ZipFile(io.BytesIO(out.read_bytes()))


def test_the_marketplaces_tool_has_nothing_to_warn_of(packaged: tuple[str, zipfile.ZipFile]) -> None:
    output, _ = packaged
    assert "DONE" in output
    assert "WARNING" not in output
    assert "ERROR" not in output


def test_the_package_is_that_of_the_marketplaces_tool(packaged: tuple[str, zipfile.ZipFile]) -> None:
    """The files and the manifest are the same, except for the case of names."""
    theirs, ours = packaged[1], zipfile.ZipFile(io.BytesIO(vsix(PUBLISHED)))
    assert _by_name(ours) == _by_name(theirs)
    assert _facts(ours) == _facts(theirs)


def test_open_vsx_is_sent_the_package_as_it_is(tools: Path, tmp_path: Path) -> None:
    package = tmp_path / "openresponses.vsix"
    package.write_bytes(vsix(PUBLISHED))
    with _registry() as (address, got):
        command = [str(tools / "ovsx"), "publish", str(package), "--registryUrl", address, "--pat", "token"]
        done = _run(command, tmp_path)
    assert "Published openresponses-bridge.openresponses" in done.stdout
    assert got == [package.read_bytes()]


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(folder)}
    options: dict[str, Any] = {"cwd": folder, "env": environment, "stdin": subprocess.DEVNULL, "timeout": 300}
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)


def _by_name(archive: zipfile.ZipFile) -> dict[str, bytes]:
    generated = {"extension.vsixmanifest", "[Content_Types].xml"}
    return {name.lower(): archive.read(name) for name in archive.namelist() if name not in generated}


def _facts(archive: zipfile.ZipFile) -> list[tuple[str, str, dict[str, str]]]:
    """Each element of the manifest and of the list of media types: its name, text and attributes."""
    facts = []
    for name in ("extension.vsixmanifest", "[Content_Types].xml"):
        for each in ElementTree.fromstring(archive.read(name)).iter():
            attributes = {
                key: value.lower() if key == "Path" else value for key, value in each.attrib.items()
            }
            text = (each.text or "").strip()
            facts.append((each.tag, text.lower() if "/" in text else text, attributes))
    return sorted(facts, key=repr)


@contextmanager
def _registry() -> Iterator[tuple[str, list[bytes]]]:
    """A registry that accepts everything: its address, and the bodies that it received."""
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if self.headers.get("transfer-encoding") == "chunked":
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                body = self.rfile.read(int(self.headers["content-length"]))
            got.append(body)
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            data = b'{"namespace":"openresponses-bridge","name":"openresponses","version":"0.1.0"}'
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()
        thread.join(10)
