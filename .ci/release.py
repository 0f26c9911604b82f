"""Builds everything that a release publishes, without publishing it: `python .ci/release.py`.

It puts the packages of both distributions into dist/, checks them as an index does, and installs each into an
empty environment. The server's bill of materials (CycloneDX), the notes from CHANGELOG.md and the VS Code
extension go into build/release/. On a GitHub tag, the tag has to equal the version, and the changes have to
contain it; elsewhere the notes are those of the unreleased changes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from openresponses_server.vscode.vsix import extension_files, published, vsix

ROOT: Final = Path(__file__).parent.parent
DIST: Final = ROOT / "dist"
MADE: Final = ROOT / "build" / "release"
ROOTS: Final = ("bridge", "server")  # the folders of the distributions, the library first
SHARED: Final = {  # files that a source package gets in addition to its folder, so that it contains its tests
    "bridge": ("snapshots", "tests/conftest.py", "tests/support", "tests/agent", "tests/bridge"),
    "server": ("snapshots", "tests"),
}
PERSON: Final = """\
Left to a person: the names openresponses-bridge and openresponses-server on PyPI, the repository's
address that their pages name, the rights and tokens of docs/releasing.md, the number, and pushing the tag."""


def main() -> int:
    """Make all of it and print the sizes; return the exit code."""
    tag = tag_of(os.environ)
    try:
        version = version_of({root: _project(root) for root in ROOTS})
        notes = notes_of((ROOT / "CHANGELOG.md").read_text(), version, tag)
        notes_of(extension_files()["CHANGELOG.md"].decode(), version, tag)
    except ValueError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for folder in (DIST, MADE):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    (MADE / "notes.md").write_text(notes)
    for root in ROOTS:
        _build(root)
    packages = sorted(map(str, DIST.iterdir()))
    _run(_program("twine"), "check", "--strict", *packages)
    _run(_program("check-wheel-contents"), *(each for each in packages if each.endswith(".whl")))
    for each in packages:
        if each.endswith(".tar.gz"):
            _run(_program("pyroma"), "--skip-tests", "AuthorEmail", "--min", "10", each)  # nobody has one
    for kind in ("*.tar.gz", "*.whl"):
        _install(sorted(DIST.glob(kind)), bill=kind == "*.whl")
    extension = MADE / f"openresponses-{version}.vsix"
    files, repository = extension_files(), repository_of(os.environ)
    extension.write_bytes(vsix(published(files, repository) if repository else files))
    for path in sorted([*DIST.iterdir(), *MADE.iterdir()]):
        print(f"{path.stat().st_size:>11,} {path.relative_to(ROOT)}")
    print(PERSON)
    return 0


def version_of(projects: Mapping[str, Any]) -> str:
    """Return the version of both. Raises ValueError where they differ, or the server needs another one."""
    library, server = (projects[root] for root in ROOTS)
    version = str(library["version"])
    if server["version"] != version or f"{library['name']}=={version}" not in server["dependencies"]:
        raise ValueError(f"the library is {version}; the server is {server['version']}, or wants another one")
    return version


def tag_of(environment: os._Environ[str] | dict[str, str]) -> str:
    """Return the tag that a workflow runs for; empty elsewhere."""
    return environment.get("GITHUB_REF_NAME", "") if environment.get("GITHUB_REF_TYPE") == "tag" else ""


def repository_of(environment: os._Environ[str] | dict[str, str]) -> str:
    """Return the address of the repository that a workflow runs for; empty elsewhere."""
    name = environment.get("GITHUB_REPOSITORY")
    return f"{environment['GITHUB_SERVER_URL']}/{name}" if name else ""


def notes_of(changes: str, version: str, tag: str) -> str:
    """Return what the changes say of a version, or of what is not released where there is no tag. Raises
    ValueError for a tag of another version, and for changes that have nothing of it."""
    if tag and tag != f"v{version}":
        raise ValueError(f"the tag is {tag}, and the version in bridge/pyproject.toml {version}")
    named = version if tag else "Unreleased"
    sections = re.split(r"^## \[([^\]]+)\].*\n", changes, flags=re.MULTILINE)
    notes = dict(zip(sections[1::2], sections[2::2], strict=True)).get(named, "").strip()
    if not notes:
        raise ValueError(f"CHANGELOG.md has nothing under [{named}]")
    return f"{notes}\n"


def _project(root: str) -> Any:
    return tomllib.loads((ROOT / root / "pyproject.toml").read_text("utf-8"))["project"]


def _build(root: str) -> None:
    """Build a source package and, from that, a wheel: from a copy that has the tests too, and of which git
    knows each file."""
    source = MADE.parent / "release-source" / root
    shutil.rmtree(source, ignore_errors=True)
    names = ["git", "ls-files", "-z", root, *SHARED[root]]
    listed = subprocess.run(names, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        target = source / name.removeprefix(f"{root}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    _run(sys.executable, "-m", "build", "--outdir", str(DIST), str(source))
    shutil.rmtree(source.parent)


def _install(packages: list[Path], bill: bool) -> None:
    """Install both packages in an empty environment and try them; write the list of what is there then."""
    folder = MADE.parent / "release-environment"
    venv.create(folder, clear=True, with_pip=False)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    interpreter = str(programs / "python")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", interpreter]
    library, server = map(str, packages)
    pins = ["--constraint", str(ROOT / "constraints.txt")]
    _run(*pip, "install", *pins, library)
    _run(interpreter, "-c", "from openresponses_bridge import *")
    _run(*pip, "install", *pins, library, server)
    _run(*pip, "check")
    _run(str(programs / "openresponses-bridge"), "--version")
    if bill:
        options = ["--pyproject", str(ROOT / "server/pyproject.toml"), "--output-reproducible"]
        options += ["--output-format", "JSON", "--output-file", str(MADE / "sbom.cdx.json")]
        _run(_program("cyclonedx-py"), "environment", *options, interpreter)
    shutil.rmtree(folder)


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        done.check_returncode()


if __name__ == "__main__":
    sys.exit(main())
