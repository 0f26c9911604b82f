"""The documented name of `openresponses_bridge.loop`, whose names are loaded when they are first used. Type
checkers read them in `loop.pyi`."""

from importlib import import_module
from typing import Any, Final

# The loop is a layer above the tools, which do not import it.
_HOME: Final = "openresponses_bridge.loop"


def __getattr__(name: str) -> Any:
    return getattr(import_module(_HOME), name)
