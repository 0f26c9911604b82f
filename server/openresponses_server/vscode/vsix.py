"""The VS Code extension as a `.vsix`: a zip of its files, with a manifest and their media types (Open
Packaging Conventions), as VS Code installs it. The same files make the same bytes."""

from __future__ import annotations

import io
import zipfile
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

import msgspec

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the first time that a zip can say
_MEDIA_TYPES: Final = {
    "js": "application/javascript",
    "json": "application/json",
    "md": "text/markdown",
    "vsixmanifest": "text/xml",
}
_MANIFEST: Final = """<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id={id} Version={version} Publisher={publisher}/>
    <DisplayName>{name}</DisplayName>
    <Description xml:space="preserve">{description}</Description>
    <Tags>{tags}</Tags>
    <Categories>{categories}</Categories>
    <GalleryFlags>Public</GalleryFlags>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value={engine}/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value={kind}/>
    </Properties>
  </Metadata>
  <Installation>
    <InstallationTarget Id="Microsoft.VisualStudio.Code"/>
  </Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.Details" Path="extension/README.md"
           Addressable="true"/>
  </Assets>
</PackageManifest>
"""


def extension_files() -> dict[str, bytes]:
    """The extension's files by their paths in it, in order."""
    return dict(sorted(_below(resources.files("openresponses_server.vscode") / "extension", "")))


def vsix_name(files: dict[str, bytes]) -> str:
    """Return the file's name: `NAME-VERSION.vsix`."""
    package = msgspec.json.decode(files["package.json"])
    return f"{package['name']}-{package['version']}.vsix"


def vsix(files: dict[str, bytes]) -> bytes:
    """The package of these files, of which `package.json` says what it is."""
    package = msgspec.json.decode(files["package.json"])
    packed = {
        "extension.vsixmanifest": _manifest(package).encode(),
        "[Content_Types].xml": _content_types().encode(),
        **{f"extension/{path}": data for path, data in files.items()},
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, data in packed.items():
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.create_system = 3  # Unix, wherever it is made
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _below(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for each in folder.iterdir():
        path = f"{prefix}{each.name}"
        if each.is_dir():
            found += _below(each, f"{path}/")
        elif path.rpartition(".")[2] in _MEDIA_TYPES:
            found.append((path, each.read_bytes()))
    return found


def _manifest(package: dict[str, Any]) -> str:
    return _MANIFEST.format(
        id=quoteattr(package["name"]),
        version=quoteattr(package["version"]),
        publisher=quoteattr(package["publisher"]),
        name=escape(package["displayName"]),
        description=escape(package["description"]),
        tags=escape(",".join(package["keywords"])),
        categories=escape(",".join(package["categories"])),
        engine=quoteattr(package["engines"]["vscode"]),
        kind=quoteattr(",".join(package["extensionKind"])),
    )


def _content_types() -> str:
    rows = (f'<Default Extension=".{ending}" ContentType="{kind}"/>' for ending, kind in _MEDIA_TYPES.items())
    head = '<?xml version="1.0" encoding="utf-8"?>\n'
    types = "http://schemas.openxmlformats.org/package/2006/content-types"
    return f'{head}<Types xmlns="{types}">{"".join(rows)}</Types>\n'
