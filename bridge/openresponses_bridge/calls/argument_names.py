"""Where a call has its name and arguments in the APIs; servers of each API also use those of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from openresponses_bridge.diagnostics import Diagnostics

ARGUMENT_NAMES: Final = ("arguments", "input", "args", "parameters")
_NOTHING: Final[tuple[Any, ...]] = (None, "", "{}", {}, [])


def name_of_arguments(call: Mapping[str, Any], own: str, diagnostics: Diagnostics) -> str:
    """Return the name of the field with the arguments of a call. It is `own`, the API's name, unless that
    field is empty and one with another API's name has an object or a text, which is a repair."""
    if call.get(own) in _NOTHING:
        for name in ARGUMENT_NAMES:
            arguments = call.get(name)
            if isinstance(arguments, dict | str) and arguments not in _NOTHING:
                diagnostics.repair(f"tool_call.{own}", f"came as {name}")
                return name
    return own


def without_function(call: dict[str, Any], diagnostics: Diagnostics) -> dict[str, Any]:
    """Return a call that has its name within an object `function`, as in Chat Completions, with the fields of
    that object in the place of its own empty ones, which is a repair; any other call unchanged."""
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if call.get("name") or not isinstance(name, str) or not name or not isinstance(function, dict):
        return call
    diagnostics.repair("tool_call.name", "came within function")
    own = {field: value for field, value in call.items() if field != "function" and value not in _NOTHING}
    return function | own
