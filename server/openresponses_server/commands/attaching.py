"""Files of the user's as parts of a message."""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

MOST_BYTES: Final = 20 * 1024 * 1024
_MOST_TEXT: Final = 1024 * 1024
_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_PDF: Final = b"%PDF-"


class Unattachable(ValueError):
    """A file that can't be sent; the message says why."""


def attached(path: Path) -> dict[str, Any]:
    """An image, a PDF or a text as a part of a message, by what is in it. Raises Unattachable."""
    data = _read(path)
    kind = next((kind for magic, kind in _IMAGES if data.startswith(magic)), None)
    if kind is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is not None:
        return {"type": "input_image", "image_url": _data_url(kind, data), "detail": "auto"}
    if data.startswith(_PDF):
        return {
            "type": "input_file",
            "filename": path.name,
            "file_data": _data_url("application/pdf", data),
        }
    if len(data) > _MOST_TEXT:
        raise Unattachable(f"{path}: a text may have {_MOST_TEXT >> 20} MiB at most")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Unattachable(f"{path}: neither an image, a PDF nor text in UTF-8") from error
    return {"type": "input_text", "text": f"{path.name}:\n{text}"}


def _read(path: Path) -> bytes:
    """The bytes of a regular file: a pipe or a device could have no end."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise Unattachable(f"{path}: not a regular file")
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise Unattachable(f"{path}: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise Unattachable(f"{path}: a file may have {MOST_BYTES >> 20} MiB at most")
    return data


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"
