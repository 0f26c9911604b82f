"""Law S8: what one request and all together may take, and how the server stops taking requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bridge.errors import InvalidRequestError
from server.errors import HttpError, shutting_down
from server.settings import Limits

_STRINGS: Final = re.compile(rb'"(?:[^"\\]+|\\.)*"', re.DOTALL)
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class Gate:
    """Counts the responses that are being made, and closes when the server stops."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._deadlines: set[asyncio.Timeout] = set()
        self.closing = False
        """The server takes no more requests."""
        self.cut = False
        """What still ran at the end of the grace was cut off."""

    @property
    def running(self) -> int:
        return len(self._deadlines)

    @property
    def full(self) -> bool:
        """As many responses are being made as may be."""
        return self.running >= self._limits.concurrent

    @contextmanager
    def held(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """One more response is being made; `deadline` is moved when it has to end at once.

        Raises HttpError 429 when there are as many as there may be.
        """
        if self.full:
            raise HttpError(
                429,
                f"The server makes {self._limits.concurrent} responses at once and no more; try again.",
                code="too_many_concurrent_requests",
                headers={"retry-after": "1"},
            )
        self._deadlines.add(deadline)
        try:
            yield
        finally:
            self._deadlines.discard(deadline)

    def close(self) -> None:
        """No more requests."""
        self.closing = True

    def cut_off(self) -> None:
        """End what still runs."""
        self.cut = True
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            deadline.reschedule(now)

    def check_open(self) -> None:
        """Raises HttpError 503 when the server stops."""
        if self.closing:
            raise shutting_down()


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
