"""The names that the APIs have for a call's arguments, each of which servers of the others use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics

ARGUMENT_NAMES: Final = ("arguments", "input", "args", "parameters")
_NOTHING: Final[tuple[Any, ...]] = (None, "", "{}", {}, [])


def name_of_arguments(call: Mapping[str, Any], own: str, diagnostics: Diagnostics) -> str:
    """Return the name of the field that has the arguments of a call: `own`, the API's, unless that says
    nothing and one of another API has an object or a text. That is a repair."""
    if call.get(own) in _NOTHING:
        for name in ARGUMENT_NAMES:
            found = call.get(name)
            if isinstance(found, dict | str) and found not in _NOTHING:
                diagnostics.repair(f"tool_call.{own}", f"came as {name}")
                return name
    return own
