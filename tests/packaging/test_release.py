"""The changes as `make release-dry` writes them; `make workflows` runs the rest of it."""

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest

from tests.support.shared import REPOSITORY

_SPEC = spec_from_file_location("release", REPOSITORY / ".ci/release.py")
assert _SPEC is not None
assert _SPEC.loader is not None
release: Any = module_from_spec(_SPEC)
_SPEC.loader.exec_module(release)

CHANGES = """\
# Changelog

## [Unreleased]

- What comes.

## [1.2.0] - 2030-01-31

### Server

- What came.

## [1.1.0] - 2030-01-01

- What was.
"""


def test_the_notes_are_those_of_the_tag() -> None:
    assert release.notes_of(CHANGES, "1.2.0", "v1.2.0") == "### Server\n\n- What came.\n"


def test_without_a_tag_they_are_those_of_what_is_not_released() -> None:
    assert release.notes_of(CHANGES, "1.2.0", "") == "- What comes.\n"


@pytest.mark.parametrize(
    ("version", "tag", "said"),
    [
        ("1.2.0", "v1.2.1", "the tag is v1.2.1, and the version in bridge/pyproject.toml 1.2.0"),
        ("1.2.0", "1.2.0", "the tag is 1.2.0"),
        ("1.3.0", "v1.3.0", r"CHANGELOG.md has nothing under \[1.3.0\]"),
    ],
)
def test_what_does_not_fit_together_is_not_released(version: str, tag: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        release.notes_of(CHANGES, version, tag)


@pytest.mark.parametrize(
    ("variables", "tag"),
    [
        ({"GITHUB_REF_TYPE": "tag", "GITHUB_REF_NAME": "v1.2.0"}, "v1.2.0"),
        ({"GITHUB_REF_TYPE": "branch", "GITHUB_REF_NAME": "v1.2.0"}, ""),
        ({}, ""),
    ],
)
def test_a_tag_is_that_of_the_workflow(variables: dict[str, str], tag: str) -> None:
    assert release.tag_of(variables) == tag


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        (
            {"GITHUB_SERVER_URL": "https://code.example", "GITHUB_REPOSITORY": "people/bridge"},
            "https://code.example/people/bridge",
        ),
        ({}, ""),
    ],
)
def test_the_extension_names_the_repository_of_the_workflow(variables: dict[str, str], address: str) -> None:
    assert release.repository_of(variables) == address


def test_without_its_tokens_the_extension_is_not_published() -> None:
    done = subprocess.run(
        ["make", "extension-publish"],
        cwd=REPOSITORY,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "VSCE_PAT and OVSX_PAT are not both set" in done.stderr


def test_both_distributions_have_one_version() -> None:
    library = {"name": "l", "version": "1.2.0"}
    server = {"version": "1.2.0", "dependencies": ["l==1.2.0"]}
    assert release.version_of({"bridge": library, "server": server}) == "1.2.0"
    for other in ({"version": "1.2.1"}, {"dependencies": ["l==1.1.0"]}, {"dependencies": ["l>=1.2.0"]}):
        with pytest.raises(ValueError, match=r"the library is 1\.2\.0"):
            release.version_of({"bridge": library, "server": server | other})


@pytest.mark.deploy
@pytest.mark.timeout(900)
def test_all_that_is_published_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_REF_TYPE", "GITHUB_REF_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://code.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "people/bridge")
    done = subprocess.run(
        [sys.executable, ".ci/release.py"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    version = tomllib.loads((REPOSITORY / "bridge/pyproject.toml").read_text())["project"]["version"]
    files = sorted(re.findall(r"^ *[\d,]+ (\S+)$", done.stdout, re.MULTILINE))
    library, server = (f"dist/openresponses_{root}-{version}" for root in release.ROOTS)
    assert files == [
        "build/release/notes.md",
        f"build/release/openresponses-{version}.vsix",
        "build/release/sbom.cdx.json",
        f"{library}-py3-none-any.whl",
        f"{library}.tar.gz",
        f"{server}-py3-none-any.whl",
        f"{server}.tar.gz",
    ]
    assert "Left to a person" in done.stdout
    for stem, tests in ((library, "tests/bridge/test_sse.py"), (server, "tests/server/test_backend.py")):
        with tarfile.open(REPOSITORY / f"{stem}.tar.gz") as packed:
            names = {name.partition("/")[2] for name in packed.getnames()}
        snapshot = "snapshots/README.md"
        assert {"CHANGELOG.md", "LICENSE", "tests/conftest.py", tests, snapshot} <= names
        assert not any("__pycache__" in name for name in names)
    listed = json.loads((REPOSITORY / "build/release/sbom.cdx.json").read_text())
    pins = dict(
        line.lower().replace("_", "-").split("==")
        for line in (REPOSITORY / "constraints.txt").read_text().splitlines()
        if line[:1] != "#"
    )
    versions = {each["name"].lower().replace("_", "-"): each["version"] for each in listed["components"]}
    assert listed["bomFormat"] == "CycloneDX"
    assert {"msgspec", "starlette", "uvicorn"} <= versions.keys()
    of_others = {name: its for name, its in versions.items() if not name.startswith("openresponses-")}
    assert of_others.items() <= pins.items()
    assert len(versions) - len(of_others) in (1, 2)  # the server itself is the subject of the list
    with zipfile.ZipFile(REPOSITORY / f"build/release/openresponses-{version}.vsix") as extension:
        package = json.loads(extension.read("extension/package.json"))
    assert package["repository"]["url"] == "https://code.example/people/bridge.git"
