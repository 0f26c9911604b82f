"""The inspector's page: its files and their security headers."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources
from typing import Final

from msgspec import Struct

from openresponses_bridge.dialects.table import TABLE
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.secrets import SECRET_WORDS

HOME: Final = "/"
ROOT: Final = "/inspector"
INDEX: Final = "index.html"
DATA: Final = f"{ROOT}/v1/"
"""The prefix of the inspector's API, which requires a key; the page does not."""

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class PageFile(Struct, frozen=True):
    """A file of the page; `tag` identifies its content."""

    data: bytes
    kind: str
    tag: str


@cache
def files() -> dict[str, PageFile]:
    """Return all files of the page, by their names below `/inspector/`. Nothing else is served."""
    page_files = {"dialects.js": _file(_dialects(), ".js"), "secrets.js": _file(_secrets(), ".js")}
    waiting = [("", resources.files(__name__))]
    while waiting:
        path, folder = waiting.pop()
        for each in folder.iterdir():
            name = path + each.name
            suffix = "." + each.name.rpartition(".")[2]
            if each.is_dir():
                waiting.append((f"{name}/", each))
            elif suffix in _TYPES:
                page_files[name] = _file(each.read_bytes(), suffix)
    return page_files


def _file(data: bytes, suffix: str) -> PageFile:
    return PageFile(data, _TYPES[suffix], f'"{hashlib.sha256(data).hexdigest()[:32]}"')


def _dialects() -> bytes:
    """Return the script with the dialects of captures, for the page's list."""
    names = encode(["auto", *(each.name for each in TABLE)])
    return b"// What a capture may be in.\n\nexport const DIALECTS = %b;\n" % names


def _secrets() -> bytes:
    """Return the script with the words in names of secret fields, which the page masks in what it exports."""
    return (
        b"// What the name of a secret has in it.\n\nexport const SECRET_NAME = /%b/;\n"
        % SECRET_WORDS.encode()
    )


is_page: Final = re.compile(rf"{HOME}|(?!{DATA}){ROOT}(/.*)?", re.DOTALL).fullmatch
"""Matches the paths of the page, which everyone may read; `/` redirects to it."""
