"""Law S8: how many items and tools one request may have, whatever it looks like on the wire, and how large
its headers may be. What its JSON may be is in `bodies`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.input_items import (
    FunctionCallOutputParam,
    FunctionCallParam,
    MessageParam,
    ReasoningParam,
)
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.tools import FunctionToolParam
from openresponses_bridge.protocol.unknown import Unknown
from openresponses_server.errors import HttpError
from openresponses_server.settings import Limits

_LONGEST_NAME: Final = 1024
"""Characters of the name of a model or tool, or of an id."""
_NONE: Final[list[Any]] = []
_NAMING: Final = ("id", "call_id", "name")
# what almost all items and tools are: there is nothing within them
_WITHOUT: Final = frozenset(
    {MessageParam, ReasoningParam, FunctionCallParam, FunctionCallOutputParam, FunctionToolParam}
)


def check_headers(headers: list[tuple[bytes, bytes]], most: int) -> None:
    """Raises HttpError 431 when they are larger than that together, in bytes."""
    if sum(map(len, chain.from_iterable(headers))) > most:
        raise HttpError(431, f"The headers are larger than the limit of {most} bytes.")


def check_request(request: CreateResponse, limits: Limits, *, place: str = "input") -> None:
    """Raises InvalidRequestError with `param` when a request has more items, declares more tools or names
    something at greater length than the limits say. `place` is what the surface calls the input."""
    own = request.input if isinstance(request.input, list) else []
    check_name(request.model or "", "model")
    check_name(request.previous_response_id or "", "previous_response_id")
    for where, named in ((place, own), ("tools", request.tools or _NONE)):
        for index, each in enumerate(named):
            for field in _NAMING:
                name = getattr(each, field, None)
                if isinstance(name, str) and len(name) > _LONGEST_NAME:
                    check_name(name, f"{where}[{index}].{field}")
    if len(own) > limits.items:
        raise _refused(f"The request has {len(own)} items; the limit is {limits.items}.", place)
    declared = _count(request.tools) if request.tools else 0
    declared += sum(map(_count, filter(None, map(_nested, own))))
    if declared > limits.tools:
        raise _refused(f"The request declares {declared} tools; the limit is {limits.tools}.", "tools")


def check_choices(n: int, owner: str, limits: Limits) -> None:
    """Raises InvalidRequestError (`n`) for more choices than one answer may have, or than could ever be made
    at once for this owner."""
    at_once = min(limits.concurrent, limits.concurrent_per_key) if owner else limits.concurrent
    most = min(limits.choices, at_once)
    if n > most:
        raise _refused(f"n: {n} choices were asked for; the limit is {most}.", "n")


def check_conversation(request: CreateResponse, earlier: int, limits: Limits) -> None:
    """The same for the request's items with those of the turns that it continues, of which there are
    `earlier`."""
    items = earlier + (len(request.input) if isinstance(request.input, list) else 1)
    if earlier and items > limits.items:
        what = f"The conversation has {items} items with this request; the limit is {limits.items}."
        raise _refused(what, "previous_response_id")


def check_name(name: str, param: str) -> None:
    """Raises InvalidRequestError when the name of a model or tool, or an id, is longer than any is: they are
    looked for, compared, logged and stored in many places."""
    if len(name) > _LONGEST_NAME:
        what = f"{param} has {len(name)} characters; the limit is {_LONGEST_NAME}."
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what, param=param)


def _count(tools: Iterable[Any]) -> int:
    """A namespace counts, and so does each tool in it."""
    return sum(1 + len(_nested(tool)) for tool in tools)


def _nested(value: Any) -> list[Any]:
    """The tools within an item or a tool, of a type that is known or not."""
    if type(value) in _WITHOUT:
        return _NONE
    if isinstance(value, Unknown):
        value = value.raw
    tools = value.get("tools") if isinstance(value, dict) else getattr(value, "tools", None)
    return tools if isinstance(tools, list) else []


def _refused(message: str, param: str) -> InvalidRequestError:
    return InvalidRequestError(InvalidRequestError.INVALID_VALUE, message, param=param)
