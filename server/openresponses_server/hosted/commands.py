"""The commands of Codex's tool `web.run`, which Codex has the server run at `/v1/alpha/search`.

Nothing is kept between two requests: pages are named by their addresses, which is what results show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

import structlog

from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.request import (
    FindCommand,
    OpenCommand,
    SearchCommands,
    SearchQueryCommand,
    SearchRequest,
)
from openresponses_server.hosted.base import HostedToolError, bounded
from openresponses_server.hosted.html import Page
from openresponses_server.hosted.search import SearchHit
from openresponses_server.hosted.web import WebSearch, WebSearchTool, places, shown_hits
from openresponses_server.settings import HostedLimits
from openresponses_server.tasks import contained

_SIZES: Final = {"short": "low", "medium": "medium", "long": "high"}
_UNSERVED: Final = ("image_query", "click", "screenshot", "finance", "weather", "sports")
_AT_ONCE: Final = 4  # each may take as many bytes as a page
_BYTES_PER_TOKEN: Final = 4
_LEAST_BYTES: Final = 256  # of the text of one command
_LONGEST: Final = 200  # characters that are repeated from a command
_SPENT: Final = "The day's budget of tool calls is used up: this command was not run."
_BEYOND: Final = "One request runs {most} commands at most: {left} were not run."
_log = structlog.get_logger(__name__)


class _Command(NamedTuple):
    heading: str
    run: Callable[[int], Awaitable[str]]
    """Called with the limit in bytes of its text."""


class _Run:
    """The commands of one request, and what the searches among them have found."""

    def __init__(self, tool: WebSearchTool) -> None:
        self._tool = tool
        self.hits: list[SearchHit] = []

    def planned(self, commands: SearchCommands) -> list[_Command]:
        """Return the commands that use the network."""
        searches = [
            _Command(f"Search: {each.q[:_LONGEST]}", partial(self._search, each))
            for each in commands.search_query or ()
        ]
        opened = [
            _Command(f"Page: {each.ref_id[:_LONGEST]}", partial(self._open, each))
            for each in commands.open or ()
        ]
        looked = [
            _Command(f"{each.pattern[:_LONGEST]!r} in {each.ref_id[:_LONGEST]}", partial(self._find, each))
            for each in commands.find or ()
        ]
        return searches + opened + looked

    async def _search(self, command: SearchQueryCommand, most: int) -> str:
        hits = await self._tool.search(command.q, days=command.recency, domains=command.domains or ())
        self.hits += hits
        return bounded(shown_hits(hits), most)

    async def _open(self, command: OpenCommand, most: int) -> str:
        return _lines(await self._tool.page(_address(command.ref_id)), command.lineno or 1, most)

    async def _find(self, command: FindCommand, most: int) -> str:
        page = await self._tool.page(_address(command.ref_id))
        return bounded(places(page.text, command.pattern), most)


class WebCommands:
    """Runs the commands of requests, each within the limits of a call."""

    def __init__(self, search: WebSearch, limits: HostedLimits) -> None:
        self._search = search
        self._limits = limits

    async def run(self, request: SearchRequest, spend: Callable[[], Awaitable[bool]]) -> dict[str, Any]:
        """Run the commands and return the answer: `output`, text for a model, and `results`, the hits of the
        searches. `spend` counts a command and returns whether it may run; the message of a command that fails
        becomes its text. Raises InvalidRequestError with the path of a setting that can't be used."""
        commands, limits = request.commands or SearchCommands(), self._limits
        settings = request.settings or {}
        if commands.response_length is not None:
            settings = {**settings, "search_context_size": _SIZES[commands.response_length]}
        try:
            run = _Run(self._search.tool(settings, {}))
        except InvalidRequestError as error:
            raise InvalidRequestError(error.code, error.message, param=f"settings.{error.param}") from error
        requested = run.planned(commands)
        planned, left = requested[: limits.calls], len(requested) - limits.calls
        most = limits.result_bytes
        if request.max_output_tokens is not None and planned:
            share = request.max_output_tokens * _BYTES_PER_TOKEN // len(planned)
            most = min(most, max(share, _LEAST_BYTES))
        slots = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(_section(each, most, slots, limits.seconds, spend)) for each in planned
            ]
        sections = [each.result() for each in running]
        sections += [_time_at(each.utc_offset) for each in (commands.time or ())[: limits.calls]]
        if left > 0:
            sections.append(_BEYOND.format(most=limits.calls, left=left))
        if unserved := [name for name in _UNSERVED if getattr(commands, name)]:
            sections.append(f"Not available on this server: {', '.join(unserved)}.")
        answer: dict[str, Any] = {"output": "\n\n".join(sections) or "No command was given."}
        if commands.search_query is not None:
            answer["results"] = [_shown(hit) for hit in run.hits]
        return answer


def _shown(hit: SearchHit) -> dict[str, str]:
    return {"ref_id": hit.url, "url": hit.url, "title": hit.title, "snippet": hit.text}


async def _section(
    command: _Command,
    most: int,
    slots: asyncio.Semaphore,
    seconds: float,
    spend: Callable[[], Awaitable[bool]],
) -> str:
    async with slots:
        if not await spend():
            text = _SPENT
        else:
            try:
                async with asyncio.timeout(seconds):
                    with contained():
                        text = await command.run(most)
            except HostedToolError as error:
                text = error.message
            except TimeoutError:
                text = f"It did not arrive within {seconds:g} seconds."
            except Exception:
                _log.exception("hosted.failed", tool="web.run")
                text = "The command failed."
    return f"{command.heading}\n{text}"


def _address(reference: str) -> str:
    """Return the address that a command names. Raises HostedToolError for any other reference."""
    if "." not in reference and "://" not in reference:
        raise HostedToolError("Pages are named by their addresses here: give the page's URL.")
    return reference


def _lines(page: Page, first: int, most: int) -> str:
    """Return the lines of a page from line `first` on, up to `most` bytes, as text for a model."""
    lines = page.text.splitlines()
    end, size = first - 1, 0
    while end < len(lines) and (size := size + len(lines[end].encode(errors="replace")) + 1) <= most:
        end += 1
    if first > len(lines):
        parts = [f"The page has {len(lines)} lines." if lines else "The page has no text."]
    else:
        end = max(end, first)
        shown = bounded("\n".join(lines[first - 1 : end]), most)
        parts = [f"Lines {first} to {end} of {len(lines)}:", shown]
    return "\n".join(filter(None, [page.title[:_LONGEST], *parts]))


def _time_at(offset: str) -> str:
    try:
        zone = datetime.strptime(offset[:_LONGEST], "%z").tzinfo
    except ValueError:
        return f"Time: {offset[:_LONGEST]!r} is not an offset such as +03:00."
    return f"Time at {offset[:_LONGEST]}: {datetime.now(UTC).astimezone(zone):%Y-%m-%d %H:%M}"
