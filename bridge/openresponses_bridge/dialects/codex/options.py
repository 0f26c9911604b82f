"""What differs between installations of Codex."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class CodexOptions(Struct, frozen=True):
    """What one installation of Codex wants.

    `own_model`: the name under which the model of Codex's own configuration is asked for.
    """

    own_model: str = "codex"


DEFAULT_OPTIONS: Final = CodexOptions()
