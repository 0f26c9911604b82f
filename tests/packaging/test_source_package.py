"""The source package contains the manual, as `make packages` builds it: it needs nothing but the files that
git has."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path

import pytest

from tests.support.shared import REPOSITORY

pytestmark = pytest.mark.packages
PROGRAM = "openresponses-bridge"


def test_it_has_a_page_for_each_command(tmp_path: Path) -> None:
    projects = [REPOSITORY / "pyproject.toml", *REPOSITORY.glob("*/pyproject.toml")]
    by_folder = {path.parent: tomllib.loads(path.read_text()) for path in projects}
    (root,) = [
        each for each, read in by_folder.items() if PROGRAM in read.get("project", {}).get("scripts", {})
    ]
    listed = subprocess.run(
        ["git", "ls-files", "-z", "."], cwd=root, check=True, capture_output=True, text=True
    ).stdout
    source = tmp_path / "source"
    for name in filter(None, listed.split("\0")):
        if not name.startswith(("tests/", "docs/", "snapshots/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, source / name)
    needs = by_folder[root]["build-system"]["requires"]
    venv.create(tmp_path / "venv", with_pip=False)
    interpreter = str(tmp_path / "venv" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", interpreter]
    subprocess.run([*pip, "install", *needs], check=True)
    code = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([interpreter, "-c", code, str(tmp_path)], cwd=source, check=True, capture_output=True)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as opened:
        pages = {Path(name).name for name in opened.getnames() if name.endswith(".1")}
    assert pages == {path.name for path in (REPOSITORY / "server" / "man").iterdir()}
    assert f"{PROGRAM}-serve.1" in pages
