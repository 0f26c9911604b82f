"""`vscode package`: the extension as VS Code installs it. That it works is shown by `make vscode`."""

import io
import json
import re
import struct
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from openresponses_cli.commands.cli import main
from openresponses_server.vscode.vsix import extension_files, published, vsix
from tests.support.document_blocks import commands
from tests.support.shared import REPOSITORY

IN_MANIFEST = "{http://schemas.microsoft.com/developer/vsx-schema/2011}"
IN_TYPES = "{http://schemas.openxmlformats.org/package/2006/content-types}"
FOLDER = REPOSITORY / "server" / "openresponses_server" / "vscode" / "extension"
PACKAGE: dict[str, Any] = json.loads((FOLDER / "package.json").read_text())
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "server/pyproject.toml").read_text())["project"]
SOURCES = sorted(FOLDER.rglob("*.js"))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["vscode", "package", *arguments])


@pytest.fixture(scope="module")
def packed() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(vsix(extension_files())))


def test_the_command_writes_the_file_that_it_names(tmp_path: Path) -> None:
    result = run("--output", str(tmp_path))
    path = tmp_path / f"openresponses-{metadata.version('openresponses-bridge')}.vsix"
    assert result.exit_code == 0
    assert f"code --install-extension {path}" in result.output
    assert path.read_bytes() == vsix(extension_files())
    assert run("-o", str(tmp_path / "mine.vsix")).exit_code == 0
    assert (tmp_path / "mine.vsix").read_bytes() == path.read_bytes()


def test_without_an_output_it_is_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run().exit_code == 0
    assert [path.suffix for path in tmp_path.iterdir()] == [".vsix"]


def test_the_page_installs_the_file_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    package, install = commands("docs/clients/vscode.md", "The extension")
    program, *words = package.split()
    assert program == "openresponses-bridge"
    assert CliRunner().invoke(main, words).exit_code == 0
    assert zipfile.is_zipfile(install.removeprefix("code --install-extension "))


def test_a_place_that_can_t_be_written_is_named(tmp_path: Path) -> None:
    result = run("-o", str(tmp_path / "missing" / "x.vsix"))
    assert result.exit_code == 2
    assert "x.vsix: No such file or directory" in result.output


def test_every_file_of_the_extension_is_in_it(packed: zipfile.ZipFile) -> None:
    files = {str(path.relative_to(FOLDER)): path for path in FOLDER.rglob("*") if path.is_file()}
    names = {f"extension/{name}" for name in files}
    assert set(packed.namelist()) == {"extension.vsixmanifest", "[Content_Types].xml", *names}
    for name, path in files.items():
        assert packed.read(f"extension/{name}") == path.read_bytes()


def test_the_manifest_says_what_package_json_does(packed: zipfile.ZipFile) -> None:
    manifest = ElementTree.fromstring(packed.read("extension.vsixmanifest"))
    identity = manifest.find(f"{IN_MANIFEST}Metadata/{IN_MANIFEST}Identity")
    assert identity is not None
    expected = {"Id": PACKAGE["name"], "Version": PACKAGE["version"], "Publisher": PACKAGE["publisher"]}
    assert identity.attrib == {"Language": "en-US", **expected}
    properties = {each.get("Id"): each.get("Value") for each in manifest.iter(f"{IN_MANIFEST}Property")}
    assert properties["Microsoft.VisualStudio.Code.Engine"] == PACKAGE["engines"]["vscode"]
    for asset in manifest.iter(f"{IN_MANIFEST}Asset"):
        assert asset.get("Path") in packed.namelist()


def test_every_kind_of_file_has_a_media_type(packed: zipfile.ZipFile) -> None:
    types = ElementTree.fromstring(packed.read("[Content_Types].xml"))
    known = {each.get("Extension") for each in types.iter(f"{IN_TYPES}Default")}
    assert {f".{name.rpartition('.')[2]}" for name in packed.namelist() if name[0] != "["} <= known


def test_the_package_has_what_a_marketplace_shows() -> None:
    """`make vscode` holds the manifest to that of the marketplace's own tool."""
    assert PACKAGE["license"] == PROJECT["license"]
    assert PACKAGE["engines"] == {"vscode": "^1.104.0"}
    assert set(PACKAGE["categories"]) <= {"AI", "Chat"}
    assert 5 <= len(PACKAGE["keywords"]) == len(set(PACKAGE["keywords"])) <= 30
    assert len(PACKAGE["description"]) <= 200
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", PACKAGE["publisher"])
    assert PACKAGE["pricing"] == "Free"
    assert "enabledApiProposals" not in PACKAGE


def test_the_icon_is_a_square_that_is_large_enough() -> None:
    data = (FOLDER / PACKAGE["icon"]).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width == height >= 128
    assert len(data) < 20_000


def test_the_license_is_that_of_the_project() -> None:
    assert (FOLDER / "LICENSE.txt").read_bytes() == (REPOSITORY / "LICENSE").read_bytes()


def test_the_changes_have_this_version_or_what_comes() -> None:
    headings = re.findall(r"^## \[([^\]]+)\]", (FOLDER / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in ("Unreleased", PACKAGE["version"])


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md"])
def test_pages_have_no_relative_links_and_pictures(name: str) -> None:
    """A marketplace shows them elsewhere, and takes no pictures from everywhere."""
    text = (FOLDER / name).read_text()
    assert all(link.startswith("https://") for link in re.findall(r"\]\(([^)]+)\)", text))
    assert "![" not in text
    assert "<img" not in text


def test_the_files_are_those_that_package_json_lists() -> None:
    listed = {path for pattern in PACKAGE["files"] for path in FOLDER.glob(pattern) if path.is_file()}
    assert {FOLDER / name for name in extension_files()} == {*listed, FOLDER / "package.json"}


def test_a_repository_is_named_where_it_is_published() -> None:
    files = published(extension_files(), "https://code.example/people/bridge")
    package = json.loads(files.pop("package.json"))
    assert package.pop("repository") == {"type": "git", "url": "https://code.example/people/bridge.git"}
    assert package == PACKAGE
    assert files == {name: data for name, data in extension_files().items() if name != "package.json"}


def test_what_package_json_says_is_written_as_xml() -> None:
    odd = {**PACKAGE, "description": 'a < b & "c"', "publisher": 'd"<'}
    package = vsix({"package.json": json.dumps(odd).encode()})
    manifest = ElementTree.fromstring(zipfile.ZipFile(io.BytesIO(package)).read("extension.vsixmanifest"))
    description = manifest.find(f"{IN_MANIFEST}Metadata/{IN_MANIFEST}Description")
    assert description is not None
    assert description.text == 'a < b & "c"'


def test_the_extension_has_the_version_of_the_project() -> None:
    assert PACKAGE["version"] == metadata.version("openresponses-bridge")


def test_the_docs_folder_has_the_same_files() -> None:
    assert (REPOSITORY / "docs" / "vscode" / "extension").resolve() == FOLDER.resolve()


def test_no_workspace_may_set_anything() -> None:
    """The address decides who gets the key, options what is sent: both are the user's alone."""
    settings = PACKAGE["contributes"]["configuration"]["properties"]
    assert {each["scope"] for each in settings.values()} == {"application"}


def test_commands_and_settings_are_those_of_the_code() -> None:
    text = "".join(path.read_text() for path in SOURCES)
    commands = {each["command"].partition(".")[2] for each in PACKAGE["contributes"]["commands"]}
    assert set(re.findall(r"command\('(\w+)'", text)) == commands
    settings = {name.partition(".")[2] for name in PACKAGE["contributes"]["configuration"]["properties"]}
    assert set(re.findall(r"setting\('(\w+)'", text)) == settings


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_sources_are_small_and_name_no_other_package(source: Path) -> None:
    text = source.read_text()
    assert len(text.splitlines()) <= 300
    needed = re.findall(r"require\('([^']+)'\)", text)
    assert all(name == "vscode" or (source.parent / f"{name}.js").is_file() for name in needed), needed
