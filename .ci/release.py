"""Makes all that a release publishes, and publishes nothing: `python .ci/release.py`, as `make release-dry`.

The packages come into dist/; the list of what they bring along (CycloneDX), the notes of CHANGELOG.md and the
extension of VS Code into build/release/. On a tag of GitHub the tag has to be the version, and the changes
have to have it; elsewhere the notes are those of what is not released.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Final

from openresponses_server.vscode.vsix import extension_files, published, vsix

ROOT: Final = Path(__file__).parent.parent
DIST: Final = ROOT / "dist"
MADE: Final = ROOT / "build" / "release"


def main() -> int:
    """Make all of it and print the sizes; return the exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tag = tag_of(os.environ)
    try:
        notes = notes_of((ROOT / "CHANGELOG.md").read_text(), project["version"], tag)
        notes_of(extension_files()["CHANGELOG.md"].decode(), project["version"], tag)
    except ValueError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for folder in (DIST, MADE):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    (MADE / "notes.md").write_text(notes)
    _run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    (wheel,) = DIST.glob("*.whl")
    _list_contents(f"{wheel}[server]")
    extension = MADE / f"openresponses-{project['version']}.vsix"
    files, repository = extension_files(), repository_of(os.environ)
    extension.write_bytes(vsix(published(files, repository) if repository else files))
    for path in sorted([*DIST.iterdir(), *MADE.iterdir()]):
        print(f"{path.stat().st_size:>11,} {path.relative_to(ROOT)}")
    return 0


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
        raise ValueError(f"the tag is {tag}, and the version in pyproject.toml {version}")
    named = version if tag else "Unreleased"
    sections = re.split(r"^## \[([^\]]+)\].*\n", changes, flags=re.MULTILINE)
    found = dict(zip(sections[1::2], sections[2::2], strict=True)).get(named, "").strip()
    if not found:
        raise ValueError(f"CHANGELOG.md has nothing under [{named}]")
    return f"{found}\n"


def _list_contents(wheel: str) -> None:
    """Write which packages an empty environment has with this wheel."""
    folder = MADE.parent / "release-environment"
    venv.create(folder, clear=True, with_pip=False)
    interpreter = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", interpreter]
    _run(*pip, "install", "--constraint", str(ROOT / "constraints.txt"), wheel)
    program = str(Path(sys.executable).with_name("cyclonedx-py"))
    options = [
        "--pyproject",
        str(ROOT / "pyproject.toml"),
        "--output-reproducible",
        "--output-format",
        "JSON",
    ]
    _run(program, "environment", *options, "--output-file", str(MADE / "sbom.cdx.json"), interpreter)
    shutil.rmtree(folder)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
