"""The configurations of `serve` in the documentation, and the profiles that ship."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from openresponses_server.settings import Settings
from tests.support.documents import blocks_of, pages
from tests.support.shared import REPOSITORY

PROFILES = Path(str(resources.files("openresponses_server.upstreams.profiles")))


def configurations() -> Iterator[tuple[str, str]]:
    """The place and the text of each configuration in the documentation and in the files that deploy it."""
    for path in sorted((REPOSITORY / "docs").glob("deploy/*.toml")):
        yield path.name, path.read_text("utf-8")
    for page in pages():
        for number, block in enumerate(blocks_of(page)):
            if block.language == "toml" and tomllib.loads(block.code).keys() & {*Settings.__struct_fields__}:
                yield f"{page}:{number}", block.code
