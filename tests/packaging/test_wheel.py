"""The wheel in an environment of its own, with every version of Python that this machine has.

The library alone, and with the service; `make packages` runs these.
"""

import json
import os
import re
import subprocess
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from openresponses_server.vscode.vsix import extension_files, vsix
from tests.support.document_blocks import blocks
from tests.support.shared import REPOSITORY
from tests.support.wheel import RUNNING, VERSIONS, Wheel, clean_environment, run

pytestmark = pytest.mark.packages
INSTALL = "pip install 'openresponses-bridge[server]'"
# what msgspec imports of others where it finds it, and the names of namespaces
THIRD_PARTY = (
    "import sys; {}; print(*sorted({{n.partition('.')[0] for n in sys.modules}} - sys.stdlib_module_names))"
)


def program(interpreter: Path) -> Path:
    return interpreter.with_name("openresponses-bridge")


def classified() -> Sequence[str]:
    text = (REPOSITORY / "pyproject.toml").read_text()
    return re.findall(r"Programming Language :: Python :: (3\.\d+)", text)


def test_the_wheel_has_the_packages_with_their_data_and_nothing_else(wheel: Wheel) -> None:
    with zipfile.ZipFile(wheel.path()) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    folders = [
        path.parent for part in ("bridge", "server") for path in (REPOSITORY / part).glob("*/py.typed")
    ]
    kept = {
        str(path.relative_to(folder.parent))
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == kept


@pytest.mark.parametrize("version", VERSIONS)
def test_the_library_alone(wheel: Wheel, tmp_path: Path, version: str) -> None:
    interpreter = wheel.environment(python=version)
    found = run(
        interpreter, "-c", THIRD_PARTY.format("from openresponses_bridge import *"), folder=tmp_path
    ).stdout.split()
    assert set(found) - {"__main__", "__mp_main__"} == {"openresponses_bridge", "msgspec"}
    for title, code in blocks("docs/library.md", "python"):
        assert run(interpreter, "-W", "error", "-c", code, folder=tmp_path).stderr == "", title


@pytest.mark.parametrize("version", VERSIONS)
def test_the_command_of_the_library_alone_says_what_to_install(
    wheel: Wheel, tmp_path: Path, version: str
) -> None:
    interpreter = wheel.environment(python=version)
    for done in (
        run(program(interpreter), "serve", folder=tmp_path, code=2),
        run(interpreter, "-m", "openresponses_server", "serve", folder=tmp_path, code=2),
    ):
        assert done.stderr == f"openresponses-bridge serve needs click, which is not installed: {INSTALL}\n"


def test_validate_and_replay_need_click_alone(wheel: Wheel, tmp_path: Path) -> None:
    interpreter = wheel.environment("click")
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    capture = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"
    stream = run(program(interpreter), "replay", folder=tmp_path, stdin=capture).stdout
    assert run(program(interpreter), "validate", folder=tmp_path, stdin=stream).stdout == ""
    missing = run(program(interpreter), "conform", "http://127.0.0.1:1", folder=tmp_path, code=2).stderr
    assert missing == f"openresponses-bridge conform needs websockets, which is not installed: {INSTALL}\n"


def test_a_backend_of_ones_own_needs_starlette_alone(wheel: Wheel, tmp_path: Path) -> None:
    code = (
        "import openresponses_server.backend, sys; print(*sorted({n.partition('.')[0] for n in sys.modules}))"
    )
    found = set(
        run(wheel.environment("starlette"), "-W", "error", "-c", code, folder=tmp_path).stdout.split()
    )
    assert {"openresponses_bridge", "msgspec", "starlette"} <= found


def test_a_key_without_cryptography_says_what_to_install(wheel: Wheel, tmp_path: Path) -> None:
    code = """if True:
        from openresponses_bridge.seal import Sealer
        from openresponses_bridge.errors import LocalError
        assert Sealer().open(Sealer().seal(b"x", "kind")).payload == b"x"
        try:
            Sealer(b"k" * 32)
        except LocalError as error:
            print(error)
    """
    said = run(wheel.environment(), "-c", code, folder=tmp_path).stdout
    install = "pip install 'openresponses-bridge[seal]'"
    assert said == f"bridge.seal.cryptography: a sealing key needs cryptography: {install}\n"
    assert run(wheel.environment(extras="seal"), "-c", code, folder=tmp_path).stdout == ""


def test_pytest_has_the_fixtures_with_the_library_alone(wheel: Wheel, tmp_path: Path) -> None:
    interpreter = wheel.environment("pytest")
    (_, example), *_ = blocks("docs/testing.md", "python")
    (tmp_path / "test_mine.py").write_text(
        example
        + "\n\ndef test_a_server(openresponses_conform):\n    openresponses_conform('http://127.0.0.1:1')\n"
    )
    said = run(interpreter, "-m", "pytest", "-W", "error", folder=tmp_path, code=1).stdout
    assert "1 failed, 1 passed" in said
    assert f"openresponses_conform needs websockets, which is not installed: {INSTALL}" in said


@pytest.mark.parametrize("version", VERSIONS)
def test_the_service(wheel: Wheel, tmp_path: Path, version: str) -> None:
    interpreter = wheel.environment(extras="server", python=version)
    assert "response.completed" in run(program(interpreter), "demo", folder=tmp_path).stdout
    assert ".vsix is written" in run(program(interpreter), "vscode", "package", folder=tmp_path).stdout
    (package,) = tmp_path.glob("*.vsix")
    assert package.read_bytes() == vsix(extension_files())
    process = subprocess.Popen(
        [str(program(interpreter)), "serve", "--port", "0"],
        cwd=tmp_path,
        env=clean_environment() | {"XDG_DATA_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://[\d.:]+", process.stdout.readline())
            assert address is not None
            body = {"model": "demo", "input": "Hello", "background": False}
            asked = urllib.request.Request(
                f"{address[0]}/v1/responses", json.dumps(body).encode(), {"content-type": "application/json"}
            )
            with urllib.request.urlopen(asked) as answered:
                made = json.load(answered)
            with urllib.request.urlopen(f"{address[0]}/v1/responses/{made['id']}") as again:
                assert json.load(again) == made
            assert made["status"] == "completed"
        finally:
            process.terminate()
            process.wait(60)
    assert list(tmp_path.rglob("*.sqlite3"))


def test_every_version_that_is_named_can_be_tried() -> None:
    assert set(classified()) <= set(VERSIONS)
    assert RUNNING in VERSIONS or "CI" not in os.environ
