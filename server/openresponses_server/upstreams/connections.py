"""What makes the requests of an upstream over HTTP: its connections, or what stands before or instead of
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from openresponses_server.http.flow import Content
from openresponses_server.settings import Timeouts

FAILURES: Final = (OSError,)
"""What asking an upstream, and reading from one, raises."""


class HttpResponse(Protocol):
    """`headers` have names in lower case."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def content(self) -> Content: ...

    def close(self) -> None: ...


class Requests(Protocol):
    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], data: bytes = b""
    ) -> HttpResponse:
        """The answer, when its head is here, however long its body takes. Redirects are not followed. Raises
        OSError, as TimeoutError when it takes too long."""
        ...

    async def close(self) -> None: ...


Connect = Callable[[str, Timeouts], Requests]
"""What makes the requests of an upstream with this name."""
