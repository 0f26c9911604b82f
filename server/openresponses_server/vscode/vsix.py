"""The VS Code extension as a `.vsix`: a zip of its files, with a manifest and their media types (Open
Packaging Conventions), as VS Code installs it. The same files always give the same bytes."""

from __future__ import annotations

import io
import zipfile
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

import msgspec

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the first time that a zip can have
_MEDIA_TYPES: Final = {
    "js": "application/javascript",
    "json": "application/json",
    "md": "text/markdown",
    "png": "image/png",
    "txt": "text/plain",
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
{properties}
    </Properties>
{shown}
  </Metadata>
  <Installation>
    <InstallationTarget Id="Microsoft.VisualStudio.Code"/>
  </Installation>
  <Dependencies/>
  <Assets>
{assets}
  </Assets>
</PackageManifest>
"""
_ASSETS: Final = {
    "package.json": "Microsoft.VisualStudio.Code.Manifest",
    "README.md": "Microsoft.VisualStudio.Services.Content.Details",
    "CHANGELOG.md": "Microsoft.VisualStudio.Services.Content.Changelog",
    "LICENSE.txt": "Microsoft.VisualStudio.Services.Content.License",
    "icon.png": "Microsoft.VisualStudio.Services.Icons.Default",
}
_SHOWN: Final = {"LICENSE.txt": "License", "icon.png": "Icon"}


def extension_files() -> dict[str, bytes]:
    """Return the extension's files by their paths in it, in order."""
    return dict(sorted(_below(resources.files("openresponses_server.vscode") / "extension", "")))


def vsix_name(files: dict[str, bytes]) -> str:
    """Return the file's name: `NAME-VERSION.vsix`."""
    package = msgspec.json.decode(files["package.json"])
    return f"{package['name']}-{package['version']}.vsix"


def published(files: dict[str, bytes], repository: str) -> dict[str, bytes]:
    """Return the files, with the address of the repository in `package.json`, to which marketplaces link."""
    package = msgspec.json.decode(files["package.json"])
    package["repository"] = {"type": "git", "url": f"{repository}.git"}
    text = msgspec.json.format(msgspec.json.encode(package), indent=2) + b"\n"
    return {**files, "package.json": text}


def vsix(files: dict[str, bytes]) -> bytes:
    """Return the package of these files, which `package.json` describes."""
    package = msgspec.json.decode(files["package.json"])
    packed = {
        "extension.vsixmanifest": _manifest(package, files).encode(),
        "[Content_Types].xml": _content_types().encode(),
        **{f"extension/{path}": data for path, data in files.items()},
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in packed.items():
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.create_system = 3  # Unix, wherever it is made
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _below(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    files: list[tuple[str, bytes]] = []
    for each in folder.iterdir():
        path = f"{prefix}{each.name}"
        if each.is_dir():
            files += _below(each, f"{path}/")
        elif path.rpartition(".")[2] in _MEDIA_TYPES:
            files.append((path, each.read_bytes()))
    return files


def _manifest(package: dict[str, Any], files: dict[str, bytes]) -> str:
    there = [name for name in _ASSETS if name in files]
    return _MANIFEST.format(
        id=quoteattr(package["name"]),
        version=quoteattr(package["version"]),
        publisher=quoteattr(package["publisher"]),
        name=escape(package["displayName"]),
        description=escape(package["description"]),
        tags=escape(",".join(package["keywords"])),
        categories=escape(",".join(package["categories"])),
        properties="\n".join(
            f"      <Property Id={quoteattr(name)} Value={quoteattr(value)}/>"
            for name, value in _properties(package).items()
        ),
        shown="\n".join(
            f"    <{_SHOWN[name]}>extension/{name}</{_SHOWN[name]}>" for name in there if name in _SHOWN
        ),
        assets="\n".join(
            f'    <Asset Type="{_ASSETS[name]}" Path="extension/{name}" Addressable="true"/>'
            for name in there
        ),
    )


def _properties(package: dict[str, Any]) -> dict[str, str]:
    """Return what marketplaces read from `package.json`, under their names."""
    code, services = "Microsoft.VisualStudio.Code", "Microsoft.VisualStudio.Services"
    properties = {
        f"{code}.Engine": package["engines"]["vscode"],
        f"{code}.ExtensionDependencies": "",
        f"{code}.ExtensionPack": "",
        f"{code}.ExtensionKind": ",".join(package["extensionKind"]),
        f"{code}.LocalizedLanguages": "",
        f"{code}.EnabledApiProposals": "",
        f"{code}.ExecutesCode": "true",
        f"{services}.GitHubFlavoredMarkdown": "true",
    }
    if (repository := package.get("repository")) is not None:
        address = repository["url"].removesuffix(".git")
        source = dict.fromkeys(("Source", "Getstarted", "GitHub"), repository["url"])
        links = {**source, "Support": f"{address}/issues", "Learn": f"{address}#readme"}
        properties |= {f"{services}.Links.{name}": link for name, link in links.items()}
    if (banner := package.get("galleryBanner")) is not None:
        properties |= {f"{services}.Branding.{name.capitalize()}": value for name, value in banner.items()}
    if (pricing := package.get("pricing")) is not None:
        properties[f"{services}.Content.Pricing"] = pricing
    return properties


def _content_types() -> str:
    rows = (f'<Default Extension=".{ending}" ContentType="{kind}"/>' for ending, kind in _MEDIA_TYPES.items())
    head = '<?xml version="1.0" encoding="utf-8"?>\n'
    types = "http://schemas.openxmlformats.org/package/2006/content-types"
    return f'{head}<Types xmlns="{types}">{"".join(rows)}</Types>\n'
