"""Code blocks of the project's own documents, for the tests that run them."""

from __future__ import annotations

import re

from tests.support.shared import REPOSITORY

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(path: str, language: str) -> list[tuple[str, str]]:
    """(nearest heading, code) of every block in this language. Raises when there is none."""
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        if match.group(1) == language:
            headings = re.findall(r"^#+ (.*)$", text[: match.start()], re.MULTILINE)
            found.append((headings[-1] if headings else path, match.group(2)))
    if not found:
        raise LookupError(f"{path} has no {language} block")
    return found
