"""What the site has beside the pages in docs/: those that stand elsewhere in the repository, the programs in
docs/examples, the reference of the API, and mermaid for the diagrams. Links are those of the repository; here
they become the site's."""

from __future__ import annotations

import hashlib
import logging
import os
import posixpath
import re
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from pymdownx.slugs import slugify
from pymdownx.superfences import fence_code_format

LOG = logging.getLogger("mkdocs.hooks.openresponses")
REPOSITORY = Path(__file__).parents[2]
# where a page of the site stands in the repository, when that is not docs/
ELSEWHERE = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "conduct.md": "CODE_OF_CONDUCT.md",
    "reporting.md": "SECURITY.md",
    "snapshots.md": "snapshots/README.md",
    "clients/vscode-extension.md": "server/openresponses_server/vscode/extension/README.md",
}
EXAMPLES = "examples.md"
API: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("api.toml").read_text("utf-8"))
MERMAID = "11.16.0"
MERMAID_SHA256 = "74d7c46dabca328c2294733910a8aa1ed0c37451776e8d5295da38a2b758fb9b"
MERMAID_FILE = "assets/mermaid.min.js"
_LINK = re.compile(r"\[([^][\n]+)\]\(([^()\s:#]+)(#[^()\s]+)?\)")
_LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")
_SEARCH = 'data-md-component="search" role="dialog"'
_HEADING = re.compile(r"^#+ (.+?) *$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_NAMED_FENCE = re.compile(r"^```(\w+) (\S+)$")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Settings that are objects, and the pages that the navigation does not name."""
    if "MIKE_DOCS_VERSION" in os.environ:  # one of several versions: its pages have a choice of them
        config.extra["version"] = {"provider": "mike"}
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")  # as GitHub does
    if mermaid() is not None:
        fence = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}
        config.mdx_configs.setdefault("pymdownx.superfences", {})["custom_fences"] = [fence]
    assert config.nav is not None
    named = set(_named(config.nav))
    docs = Path(config.docs_dir)
    pages = sorted(
        path.relative_to(docs).as_posix() for path in [*docs.glob("*.md"), *docs.glob("clients/*.md")]
    )
    more: list[Any] = [name for name in pages if name not in named]
    if more:
        config.nav.append({"More": more})
    return config


def _named(nav: Any) -> Iterator[str]:
    for entry in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        if isinstance(entry, str):
            yield entry
        else:
            yield from _named(entry)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    for name, source in ELSEWHERE.items():
        text = (REPOSITORY / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, EXAMPLES, content=_examples(Path(config.docs_dir) / "examples")))
    for name, page in API.items():
        listed = "\n\n".join(f"::: {module}" for module in page["modules"])
        files.append(File.generated(config, f"api/{name}.md", content=f"# {page['title']}\n\n{listed}\n"))
    style = Path(__file__).with_name("site.css")
    files.append(File.generated(config, "assets/site.css", abs_src_path=str(style)))
    script = mermaid()
    if script is not None:
        files.append(File.generated(config, MERMAID_FILE, abs_src_path=str(script)))
    return files


def _examples(folder: Path) -> str:
    programs = [
        f"## {path.name}\n\n```python\n{path.read_text()}```\n" for path in sorted(folder.glob("*.py"))
    ]
    return "# Programs\n\nWhole programs; tests run them.\n\n" + "\n".join(programs)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they lead from this page of the site, outside of code."""
    name = page.file.src_uri
    source = ELSEWHERE.get(name, f"docs/{name}")
    lines, within = [], False
    for line in markdown.split("\n"):
        if line.startswith("```"):
            within = not within
            line = _NAMED_FENCE.sub(r'```\1 title="\2"', line)
        elif not within:
            line = _LINK.sub(lambda match: _led(match, name, source, files), line)
        lines.append(line)
    return "\n".join(lines)


def _led(match: re.Match[str], name: str, source: str, files: Files) -> str:
    """A link that leads to a page leads there, under the page's title where its text is the name of the file;
    one into the code names the file."""
    text, target, anchor = match.groups(default="")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if not (REPOSITORY / path).exists():
        return match.group()  # the check of links reports it
    page = next((page for page, stands in ELSEWHERE.items() if stands == path), path.removeprefix("docs/"))
    page = EXAMPLES if path == "docs/examples" else page
    file = files.get_file_from_path(page)
    if file is None:
        return text if path in text else f"{text} (`{path}`)"
    if _is_file_name(text, path):
        text = _title(file.content_string, anchor.removeprefix("#")) or text
    return f"[{text}]({posixpath.relpath(page, posixpath.dirname(name) or '.')}{anchor})"


def _is_file_name(text: str, path: str) -> bool:
    plain = text.strip("`/")
    return bool({".", "/"} & set(text)) and f"/{plain}/" in f"/{path}/"


def _title(markdown: str, anchor: str) -> str:
    """The heading that an anchor leads to, else the first one; "" for a page without headings."""
    headings = _HEADING.findall(_CODE.sub("", markdown))
    slug = slugify(case="lower")
    heading = next((each for each in headings if slug(each, "-") == anchor), "".join(headings[:1]))
    return re.sub(r"([][])", r"\\\1", heading)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The search with a name, which the theme leaves out, and the script of the diagrams on the pages that
    have one: the theme would ask another address for it. Raises PluginError for a page that loads anything
    from another address."""
    if match := _LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads {match[1]} from another address")
    output = output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')
    if '<pre class="mermaid">' not in output:
        return output
    script = f'<script src="{get_relative_url(MERMAID_FILE, page.url)}"></script>'
    return output.replace("</head>", f"{script}</head>", 1)


def mermaid() -> Path | None:
    """mermaid's script, from npm's registry once and as it was then; None without npm, and then diagrams are
    shown as their text."""
    path = REPOSITORY / "build" / f"mermaid-{MERMAID}.min.js"
    if path.exists():
        return path
    if shutil.which("npm") is None:
        LOG.info("npm is not installed: diagrams are shown as text")
        return None
    with tempfile.TemporaryDirectory() as folder:
        pack = ["npm", "pack", "--silent", "--pack-destination", folder, f"mermaid@{MERMAID}"]
        done = subprocess.run(pack, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            LOG.info("npm's registry can't be reached: diagrams are shown as text")
            return None
        with tarfile.open(Path(folder) / f"mermaid-{MERMAID}.tgz") as archive:
            member = archive.extractfile("package/dist/mermaid.min.js")
            assert member is not None
            script = member.read()
    if (digest := hashlib.sha256(script).hexdigest()) != MERMAID_SHA256:
        raise ValueError(f"mermaid {MERMAID} from npm has sha256 {digest}, not {MERMAID_SHA256}")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(script)
    return path
