"""Pages of the web as text, under law S10: an address that a model or a page names is fetched only if it is
public, unless the operator allows its host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from openresponses_server.hosted.base import HostedToolError
from openresponses_server.hosted.html import Page, page_of
from openresponses_server.http.client.connect_options import ConnectOptions
from openresponses_server.http.client.connection import Origin
from openresponses_server.http.client.fetching import (
    FetchedFile,
    FetchError,
    PublicConnector,
    fetch_file,
)
from openresponses_server.http.client.pool import AnyProtocol, Connector
from openresponses_server.settings import WebSearchSettings
from openresponses_server.tasks import on_thread

_TEXTS: Final = frozenset(
    {"application/json", "application/xml", "application/xhtml+xml", "application/javascript"}
)
_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
_AROUND: Final = 300  # characters around each match
_MOST_FOUND: Final = 20
_MOST_TEXT: Final = 1_000_000  # of the size limit of a page: the bytes that one request may read in all
_PAGES: Final = 4  # as large as a page may be, whose bytes one request may have read
_AT_ONCE: Final = 4


class _Allowed(PublicConnector):
    """Connects to hosts that the operator allows at any address, and to others only at public addresses."""

    def __init__(self, options: ConnectOptions, hosts: Collection[str]) -> None:
        super().__init__(options)
        self._hosts = hosts
        self._plain = Connector(options)

    async def connect(
        self, origin: Origin, factory: Callable[[], AnyProtocol], *, is_tunnelled: bool = False
    ) -> AnyProtocol:
        if origin.host.lower() in self._hosts:
            return await self._plain.connect(origin, factory, is_tunnelled=is_tunnelled)
        return await super().connect(origin, factory, is_tunnelled=is_tunnelled)

    def close(self) -> None:
        super().close()
        self._plain.close()


class PageBudget:
    """The bytes of pages that one request may still read, of any number of pages. A few are opened at a
    time."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self.slots = asyncio.Semaphore(_AT_ONCE)

    def check(self) -> None:
        """Raises HostedToolError if no bytes are left."""
        if self._left <= 0:
            raise self._spent()

    def spend(self, size: int) -> None:
        """Count `size` bytes. Raises HostedToolError if fewer are left."""
        self._left -= size
        if self._left < 0:
            raise self._spent()

    def _spent(self) -> HostedToolError:
        what = f"The pages of this request may have {self._most} bytes together"
        return HostedToolError(f"{what}, and these are spent. Answer with what is known.")


class Pages:
    """Opens pages within the limits of the settings."""

    def __init__(self, settings: WebSearchSettings) -> None:
        self._settings = settings
        self._hosts = frozenset(each.lower() for each in settings.private_hosts)

    def budget(self) -> PageBudget:
        """Return the budget of one request."""
        return PageBudget(_PAGES * self._settings.page_bytes)

    async def open(self, url: str, admits: Callable[[str], bool], budget: PageBudget) -> Page:
        """Return the page at this address. `admits` returns whether an address may be fetched, and is also
        called for each redirect. Raises HostedToolError."""
        settings = self._settings
        async with budget.slots:
            budget.check()
            try:
                file = await fetch_file(
                    url,
                    _is_text,
                    most=settings.page_bytes,
                    seconds=settings.seconds,
                    connector=lambda options: _Allowed(options, self._hosts),
                    admits=admits,
                )
            except FetchError as error:
                raise HostedToolError(f"The page can't be opened: {error}.") from error
            budget.spend(len(file.data))
            # in the turn of its key, which has one thread at a time
            return await on_thread(partial(_page_of, file, url), begun=True)


def _page_of(file: FetchedFile, url: str) -> Page:
    if file.media_type in _HTML:
        return page_of(file.data.decode(errors="replace"))
    text = file.data[:_MOST_TEXT].decode(errors="replace")
    lines = (line.rstrip() for line in text.splitlines())
    return Page(urlsplit(url).path.rpartition("/")[2], "\n".join(lines))


def with_scheme(url: str) -> str:
    """Return an address with a scheme, as a browser would add it."""
    return url if "://" in url else f"https://{url}"


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in _TEXTS


def found_in(text: str, pattern: str) -> str:
    """Return the places in a text that contain this pattern, ignoring case, with the text around them."""
    lowered, needle = text.lower(), pattern.lower()
    if len(lowered) != len(text):  # a few characters are longer in lower case
        lowered, needle = text, pattern
    places: list[str] = []
    at, end = lowered.find(needle) if needle else -1, 0
    while at >= 0 and len(places) < _MOST_FOUND:
        begin = max(at - _AROUND, end)
        end = min(at + len(needle) + _AROUND, len(text))
        places.append(text[begin:end])
        at = lowered.find(needle, end)
    return "\n[…]\n".join(places)
