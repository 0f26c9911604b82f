"""Optional fields that an upstream refuses by their names: they are left out of the body that is sent, and of
those of later requests for a while."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

from openresponses_bridge.dialects.base import Cause
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_server.errors import UpstreamError
from openresponses_server.upstreams.refusals import OwnersModel, RecentRefusals, is_about

# without which a request asks something else, or another one
_NEEDED: Final = frozenset(
    {
        "arguments",
        "call_id",
        "container",
        "content",
        "contents",
        "conversation",
        "function",
        "id",
        "input",
        "instructions",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "name",
        "output",
        "output_config",
        "output_format",
        "parameters",
        "parts",
        "previous_response_id",
        "prompt",
        "response_format",
        "role",
        "stream",
        "system",
        "text",
        "tool_call_id",
        "tool_calls",
        "tool_choice",
        "tools",
        "type",
    }
)
_STEP: Final = re.compile(r"[^.\[\]]+")
_OF_TYPE: Final = "="  # before the type of the elements of a list that are left out
_MOST_STEPS: Final = 12
MOST_FIELDS: Final = 16
"""That are left out of one request."""


def _steps(name: str) -> list[str]:
    """The steps of a path as servers write it: `input[3].extra`, `body.messages.2.extra`."""
    steps = _STEP.findall(name)[:_MOST_STEPS]
    return steps[1:] if steps[:1] == ["body"] else steps


def _pop(value: Any, steps: list[str]) -> bool:
    """Leave out the field at this path, in each element of the lists on the way. Returns whether there was
    one. Steps that lead nowhere are skipped, such as the role that some servers put into a path."""
    if isinstance(value, list):
        if not steps:
            return False
        if steps[0].startswith(_OF_TYPE):
            remaining = [each for each in value if not _is_of(each, steps[0][1:])]
            is_found = len(remaining) < len(value)
            value[:] = remaining
            return is_found
        rest = steps[1:] if steps[0].isdecimal() else steps
        return sum(_pop(each, rest) for each in value) > 0
    if not isinstance(value, dict):
        return False
    for at, step in enumerate(steps):
        if step in value:
            if at < len(steps) - 1:
                return _pop(value[step], steps[at + 1 :])
            if step in _NEEDED:
                return False
            del value[step]
            return True
    return False


def _is_of(value: Any, kind: str) -> bool:
    return isinstance(value, dict) and value.get("type") == kind


def _pop_anywhere(body: dict[str, Any], name: str) -> bool:
    """Leave out a field that is named without its place: the one of the body, else those of the elements of
    its lists."""
    if name in body:
        return _pop(body, [name])
    return sum(_pop(value, [name]) for value in body.values() if isinstance(value, list)) > 0


def without_fields(body: bytes, names: Iterable[str]) -> tuple[bytes, list[str]]:
    """The body without these fields, and the names of those that it had. Takes time linear in the body."""
    value = _object(body)
    removed = _leave_out(value, names)
    return (encode(value), removed) if removed else (body, [])


def _object(body: bytes) -> dict[str, Any]:
    """The object that a body is; an empty one for any other."""
    try:
        value = decode_json(body)
    except WireError:
        return {}
    return value if isinstance(value, dict) else {}


def _leave_out(body: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Leave these fields out of the body; returns the names of those that it had."""
    removed = []
    for name in names:
        steps = _steps(name)
        had = _pop(body, steps) if len(steps) > 1 else bool(steps) and _pop_anywhere(body, steps[0])
        if had:
            removed.append(name)
    if body.get("tools") == []:
        body.pop("tools")
        body.pop("tool_choice", None)
    return removed


def named_fields(error: UpstreamError) -> list[str]:
    """The names by which the upstream refuses fields, whatever was sent to it."""
    refusal = is_about(Cause.FIELD, error)
    if refusal is None:
        return []
    param = error.reported.param if error.reported is not None else None
    return [*refusal.fields, *([param] if param else [])][:MOST_FIELDS]


def refused_fields(error: UpstreamError, sent: bytes) -> list[str]:
    """The optional fields of this body that the upstream has refused by name, and tools whose type it does
    not know, by that type. Takes time linear in the body."""
    body = _object(sent)
    return _leave_out(body, dict.fromkeys([_by_type(name, body) for name in named_fields(error)]))


def _by_type(name: str, body: dict[str, Any]) -> str:
    """The name, that of an element of a list by the type of this."""
    steps = _steps(name)
    if len(steps) == 2 and steps[1].isdecimal() and (kind := _type_at(body, steps)) is not None:
        return f"{steps[0]}.{_OF_TYPE}{kind}"
    return name


def _type_at(body: dict[str, Any], steps: list[str]) -> str | None:
    try:
        kind = body[steps[0]][int(steps[1])]["type"]
    except (LookupError, TypeError, ValueError):
        return None
    is_plain = isinstance(kind, str) and kind not in ("function", "message", "custom")
    return kind if is_plain and steps[0] == "tools" and _STEP.fullmatch(kind) else None


class FieldRefusals(RecentRefusals[OwnersModel, frozenset[str]]):
    """The fields that models have refused of a key lately, so that its later requests are not refused
    first."""

    def of(self, model: OwnersModel) -> frozenset[str]:
        """The fields that this model has refused in the last `REMEMBERED` seconds."""
        return self.find(model) or frozenset()

    def record(self, model: OwnersModel, fields: Collection[str]) -> None:
        """The model has accepted a request without these fields, which it had refused before."""
        both = self.of(model).union(fields)
        self.keep(model, both if len(both) <= MOST_FIELDS else frozenset(fields))
