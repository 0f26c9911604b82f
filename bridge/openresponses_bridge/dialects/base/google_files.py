"""Files that Google keeps, for the two APIs of Google."""

from __future__ import annotations

from typing import Any, Final, Literal

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base.fields import invalid

_ADDRESSES: Final = ("https://", "gs://", "files/")


def google_file_of(
    part: Any, param: str, kept_files: Literal["send", "refuse"], diagnostics: Diagnostics
) -> str | None:
    """Return the address of the file that this part names; None, with a loss, for a file on another server.
    Raises InvalidRequestError if files that Google keeps are refused."""
    address: str = part.file_id or ""
    if not address.startswith(_ADDRESSES):
        diagnostics.loss(f"content.{part.type}.file_id", "a file of another server")
        return None
    if kept_files == "refuse":
        raise invalid(f"{param}.file_id", "files that Google keeps are not read here")
    return address
