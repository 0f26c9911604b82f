"""Law S8: what one request may take."""

from __future__ import annotations

import re
from typing import Any, Final

from bridge.errors import InvalidRequestError
from server.errors import HttpError

_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def check_depth(body: bytes, deepest: int) -> None:
    """Raises InvalidRequestError when a JSON text is nested deeper than that. What is no JSON passes:
    others say so, and better."""
    if body.count(b"[") + body.count(b"{") <= deepest:
        return
    brackets = _STRINGS.sub(b"", body).translate(_ALIKE, _NOT_BRACKETS)
    for _ in range(deepest):
        inner = brackets.replace(b"[]", b"")
        if len(inner) == len(brackets):
            return
        brackets = inner
    if brackets:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE, f"The JSON is nested deeper than the limit of {deepest}."
        )


def check_tools(tools: list[Any] | None, most: int) -> None:
    """Raises InvalidRequestError when a request declares more tools than that."""
    if tools is not None and len(tools) > most:
        raise InvalidRequestError(
            InvalidRequestError.INVALID_VALUE,
            f"The request declares {len(tools)} tools; the limit is {most}.",
            param="tools",
        )


def check_headers(headers: list[tuple[bytes, bytes]], most: int) -> None:
    """Raises HttpError 431 when they are larger than that together, in bytes."""
    if sum(len(name) + len(value) for name, value in headers) > most:
        raise HttpError(431, f"The headers are larger than the limit of {most} bytes.")
