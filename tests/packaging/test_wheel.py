"""The library alone and the server in environments of their own, with every installed version of Python.

`make packages` runs these.
"""

import json
import os
import re
import shlex
import subprocess
import tomllib
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from openresponses_server.vscode.vsix import extension_files, vsix
from tests.support.document_blocks import blocks, commands
from tests.support.shared import REPOSITORY
from tests.support.wheel import (
    ROOTS,
    RUNNING,
    VERSIONS,
    WITHOUT_LOCK,
    Dependencies,
    Wheels,
    clean_environment,
    run,
    uninstall,
)

pytestmark = pytest.mark.packages
LIBRARY, SERVER = "openresponses-bridge", "openresponses-server"
# modules that msgspec imports if they are installed, and the names of namespaces
THIRD_PARTY = (
    "import sys; {}; print(*sorted({{n.partition('.')[0] for n in sys.modules}} - sys.stdlib_module_names))"
)


def program(interpreter: Path) -> Path:
    return interpreter.with_name("openresponses-bridge")


def project(root: str) -> Any:
    return tomllib.loads((REPOSITORY / root / "pyproject.toml").read_text())["project"]


def classified(root: str) -> Sequence[str]:
    text = (REPOSITORY / root / "pyproject.toml").read_text()
    return re.findall(r"Programming Language :: Python :: (3\.\d+)", text)


@pytest.mark.parametrize("root", ROOTS)
def test_a_wheel_has_the_packages_with_their_data_and_nothing_else(wheels: Wheels, root: str) -> None:
    with zipfile.ZipFile(wheels.path(root)) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
        licences = [name for name in opened.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
        assert [opened.read(name) for name in licences] == [(REPOSITORY / "LICENSE").read_bytes()]
    folders = [path.parent for path in (REPOSITORY / root).glob("*/py.typed")]
    expected = {
        str(path.relative_to(folder.parent))
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == expected


@pytest.mark.parametrize("version", [*VERSIONS, WITHOUT_LOCK])
@pytest.mark.parametrize("dependencies", ["pinned", "newest"])
def test_the_library_alone(wheels: Wheels, tmp_path: Path, version: str, dependencies: Dependencies) -> None:
    interpreter = wheels.environment(LIBRARY, python=version, dependencies=dependencies)
    modules = run(
        interpreter, "-c", THIRD_PARTY.format("from openresponses_bridge import *"), folder=tmp_path
    ).stdout.split()
    assert set(modules) - {"__main__", "__mp_main__"} == {"openresponses_bridge", "msgspec"}
    for title, code in [*blocks("docs/library.md", "python"), *blocks("bridge/README.md", "python")]:
        assert run(interpreter, "-W", "error", "-c", code, folder=tmp_path).stderr == "", title
    assert not program(interpreter).exists()


def test_a_backend_of_ones_own_loads_nothing_of_the_service(wheels: Wheels, tmp_path: Path) -> None:
    code = (
        "import openresponses_server.backend, sys; print(*sorted({n.partition('.')[0] for n in sys.modules}))"
    )
    modules = set(run(wheels.environment(SERVER), "-W", "error", "-c", code, folder=tmp_path).stdout.split())
    assert {"openresponses_bridge", "msgspec", "starlette"} <= modules
    assert modules.isdisjoint(
        {"alembic", "click", "httptools", "sqlalchemy", "structlog", "uvicorn", "websockets"}
    )


def test_a_key_without_cryptography_says_what_to_install(wheels: Wheels, tmp_path: Path) -> None:
    code = """if True:
        from openresponses_bridge.seal import Sealer
        from openresponses_bridge.errors import LocalError
        assert Sealer().open(Sealer().seal(b"x", "kind")).payload == b"x"
        try:
            Sealer(b"k" * 32)
        except LocalError as error:
            print(error)
    """
    output = run(wheels.environment(LIBRARY), "-c", code, folder=tmp_path).stdout
    install = "pip install 'openresponses-bridge[seal]'"
    assert output == f"bridge.seal.cryptography: a sealing key needs cryptography: {install}\n"
    assert run(wheels.environment(f"{LIBRARY}[seal]"), "-c", code, folder=tmp_path).stdout == ""


def test_pytest_has_the_fixtures(wheels: Wheels, tmp_path: Path) -> None:
    interpreter = wheels.environment(SERVER, "pytest")
    (_, example), *_ = blocks("docs/testing.md", "python")
    (tmp_path / "test_mine.py").write_text(example)
    assert "1 passed" in run(interpreter, "-m", "pytest", "-W", "error", folder=tmp_path).stdout


def test_the_first_command_of_the_readme_is_the_one_that_is_tried() -> None:
    (first, *_), (of_its_own, *_) = commands("README.md", LIBRARY), commands("server/README.md", SERVER)
    assert shlex.split(first, comments=True) == shlex.split(of_its_own) == ["pip", "install", SERVER]
    assert commands("bridge/README.md", LIBRARY) == [f"pip install {LIBRARY}"]


def test_the_server_brings_the_library_in_its_version() -> None:
    library, server = map(project, ROOTS)
    assert (library["name"], server["name"]) == (LIBRARY, SERVER)
    assert library["version"] == server["version"]
    assert [each for each in server["dependencies"] if each.startswith("openresponses")] == [
        f"{LIBRARY}=={library['version']}"
    ]


@pytest.mark.parametrize(
    ("version", "dependencies"),
    [
        *((version, which) for version in VERSIONS for which in ("pinned", "newest")),
        (VERSIONS[0], "oldest"),  # old versions have no wheels for a new Python
    ],
)
def test_the_service(wheels: Wheels, tmp_path: Path, version: str, dependencies: Dependencies) -> None:
    interpreter = wheels.environment(SERVER, python=version, dependencies=dependencies)
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
            request = urllib.request.Request(
                f"{address[0]}/v1/responses", json.dumps(body).encode(), {"content-type": "application/json"}
            )
            with urllib.request.urlopen(request) as answered:
                response = json.load(answered)
            with urllib.request.urlopen(f"{address[0]}/v1/responses/{response['id']}") as again:
                assert json.load(again) == response
            assert response["status"] == "completed"
        finally:
            process.terminate()
            process.wait(60)
    assert list(tmp_path.rglob("*.sqlite3"))


@pytest.mark.parametrize("dependencies", ["newest", "oldest"])
def test_every_module_can_be_imported_with_all_extras(
    wheels: Wheels, tmp_path: Path, dependencies: Dependencies
) -> None:
    extras = ",".join(project("server")["optional-dependencies"])
    interpreter = wheels.environment(
        f"{SERVER}[{extras}]", f"{LIBRARY}[testing]", "pytest>=9", dependencies=dependencies
    )
    code = """if True:
        import pkgutil, sys, importlib
        for root in ("agent", "bridge", "cli", "server"):
            package = importlib.import_module(f"openresponses_{root}")
            for each in pkgutil.walk_packages(package.__path__, f"openresponses_{root}."):
                if not each.name.endswith("__main__") and ".migrations." not in each.name:
                    importlib.import_module(each.name)
        print(len([name for name in sys.modules if name.startswith("openresponses_")]))
    """
    assert int(run(interpreter, "-W", "error", "-c", code, folder=tmp_path).stdout) > 300


def test_a_checkout_installs_both_with_their_extras_and_all_of_it_is_removed(
    wheels: Wheels, tmp_path: Path
) -> None:
    interpreter = wheels.checkout("otel")
    offered = """if True:
        from importlib.metadata import metadata
        print(*metadata("openresponses-workspace").get_all("Provides-Extra"))
    """
    extras = {extra for root in ROOTS for extra in project(root)["optional-dependencies"]}
    assert set(run(interpreter, "-c", offered, folder=tmp_path).stdout.split()) == extras
    listed = """if True:
        from importlib.metadata import distributions
        print(*(each.name for each in distributions()))
    """
    names = run(interpreter, "-c", listed, folder=tmp_path).stdout.split()
    assert {LIBRARY, SERVER, "opentelemetry-api"} <= set(names)
    assert "response.completed" in run(program(interpreter), "demo", folder=tmp_path).stdout
    page = (REPOSITORY / "docs/uninstalling.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| the Python environment ")]
    uninstall(interpreter, *re.findall(r"openresponses-\w+", row))
    left = run(interpreter, "-c", listed, folder=tmp_path).stdout.split()
    assert [name for name in left if name.startswith("openresponses")] == []
    assert not program(interpreter).exists()


@pytest.mark.parametrize("root", ROOTS)
def test_every_version_that_is_named_can_be_tried(root: str) -> None:
    assert set(classified(root)) == set(VERSIONS)
    assert RUNNING in VERSIONS or "CI" not in os.environ
