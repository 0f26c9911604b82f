"""Code blocks of the project's own documents, for the tests that run them."""

from __future__ import annotations

import re

from tests.support.shared import REPOSITORY

_FILE = re.compile(r"^```\w+ (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(path: str, language: str) -> list[tuple[str, str]]:
    """(nearest heading, code) of every block in this language. Raises LookupError if there is none."""
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    pairs = []
    for match in _BLOCK.finditer(text):
        if match.group(1) == language:
            headings = re.findall(r"^#+ (.*)$", text[: match.start()], re.MULTILINE)
            pairs.append((headings[-1] if headings else path, match.group(2)))
    if not pairs:
        raise LookupError(f"{path} has no {language} block")
    return pairs


def files(path: str) -> dict[str, str]:
    """The blocks that name a file behind their language, by that name. Raises when there is none."""
    contents = dict(_FILE.findall((REPOSITORY / path).read_text(encoding="utf-8")))
    if not contents:
        raise LookupError(f"{path} has no block with the name of a file")
    return contents


def commands(path: str, heading: str) -> list[str]:
    """The commands of the shell blocks under this heading, without comments; a command that continues after a
    backslash is one line."""
    text = "".join(code for title, code in blocks(path, "sh") if title == heading).replace("\\\n", " ")
    return [command for line in text.splitlines() if (command := line.partition(" # ")[0].strip())]
