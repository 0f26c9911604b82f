"""`responses`: the stored responses of a key on a server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from openresponses_bridge.text import counted, on_one_line, printable
from openresponses_cli.commands.flags import (
    Form,
    exit_unreadable,
    force_flag,
    output_file,
    server_key_flag,
    with_flags,
    write_json,
)
from openresponses_cli.commands.progress import progress
from openresponses_cli.commands.terminal import console_options

if TYPE_CHECKING:
    from openresponses_cli.commands.server_client import ServerClient

T = TypeVar("T")
_LISTED: Final = "/inspector/v1/responses"
_PAGE: Final = 100
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FORMATS: Final = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")
_LONGEST_QUESTION: Final = 200  # characters
_LEAST_QUESTION: Final = 20  # columns of a terminal; with fewer the question gets a line of its own
_HEADINGS: Final = ("id", "made (UTC)", "status", "model", "asked")
_COLOURS: Final = {"completed": "green", "failed": "red", "incomplete": "yellow", "cancelled": "yellow"}


class _When(Form[int]):
    """A time in Unix seconds, given as an age or as a date and time in UTC."""

    name = "30m|2h|7d|DATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if text[:-1].isascii() and text[:-1].isdecimal() and len(text) < 8 and text[-1:] in _UNITS:
            age = timedelta(seconds=int(text[:-1]) * _UNITS[text[-1]])
            return int((datetime.now(UTC) - age).timestamp())
        for form in _FORMATS:
            try:
                return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp())
            except ValueError:
                continue
        self.fail(f"{text!r} is not an age such as 2h or a date such as 2026-01-31T18:00", param, ctx)


_server_flags = [
    click.option("--server", metavar="URL", help="The server [default: the local one]."),
    server_key_flag,
]
_filters = [
    click.option(
        "--status", help="Only responses with this status: completed, failed, incomplete, in_progress …"
    ),
    click.option("--failed", is_flag=True, help="The same as --status failed."),
    click.option("--model", help="Only responses of this model."),
    click.option("--since", type=_When(), help="Only responses created since then."),
    click.option("--until", type=_When(), help="Only responses created before then."),
]


@click.group()
def command() -> None:
    """Show, delete and export the responses that a server stores for your key."""


@command.command("list")
@with_flags(*_server_flags, *_filters)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most this many.")
@click.option("--after", metavar="ID", help="Start after the response with this ID.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_(server: str | None, api_key_env: str | None, **flags: Any) -> None:
    """List stored responses, the newest first."""
    _print_list(server, api_key_env, "", **flags)


@command.command()
@click.argument("text")
@with_flags(*_server_flags, *_filters)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most this many.")
@click.option("--after", metavar="ID", help="Start after the response with this ID.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def search(text: str, server: str | None, api_key_env: str | None, **flags: Any) -> None:
    """List the stored responses with TEXT in their id or in their input."""
    _print_list(server, api_key_env, text, **flags)


@command.command()
@click.argument("response_id", metavar="ID")
@with_flags(*_server_flags)
@click.option("--full", is_flag=True, help="Show texts in full.")
@click.option("--json", "as_json", is_flag=True, help="Print the response as the server returns it.")
def show(response_id: str, server: str | None, api_key_env: str | None, full: bool, as_json: bool) -> None:
    """Show a stored response as a tree of its items (`inspect ID` shows its stream)."""
    from openresponses_bridge.protocol.codec import decode_response, encode

    response = _run(server, api_key_env, lambda at: at.json("GET", _path(response_id)))
    if as_json:
        write_json(response)
        return
    from rich.console import Console

    from openresponses_cli.commands.tree import FINAL, WHOLE, WatchedResponse, tree

    watched = WatchedResponse()
    watched.whole(decode_response(encode(response)))
    Console(**console_options()).print(tree(watched, WHOLE if full else FINAL, judged=False))


@command.command()
@click.argument("response_ids", metavar="ID…", nargs=-1, required=True)
@with_flags(*_server_flags)
def delete(response_ids: tuple[str, ...], server: str | None, api_key_env: str | None) -> None:
    """Delete the responses with these IDs. Later responses that continue them keep what they need."""

    async def work(at: ServerClient) -> None:
        for each in response_ids:
            await at.json("DELETE", _path(each))
            click.echo(f"{printable(each)} deleted")

    _run(server, api_key_env, work)


@command.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@force_flag
@with_flags(*_server_flags, *_filters)
def export(
    file: Path | None, force: bool, server: str | None, api_key_env: str | None, **filters: Any
) -> None:
    """Write stored responses to FILE or standard output: lines of JSON, each a response and its input.

    These lines are for reading and for other programs; `db import` reads what `db export` writes.
    """
    from openresponses_bridge.protocol.codec import encode

    async def work(at: ServerClient) -> None:
        responses = 0
        with output_file(file, replace=force) as write_to, progress("exporting") as advance:
            async for row in _rows(at, "", None, **filters):
                path = _path(row["id"])
                line = {"response": await at.json("GET", path), "input": await _input(at, path)}
                write_to(encode(line) + b"\n")
                advance(1)
                responses += 1
        if file is not None:
            click.echo(f"{counted(responses, 'response')} written to {file}")

    _run(server, api_key_env, work)


def _print_list(
    server: str | None, api_key_env: str | None, text: str, limit: int, as_json: bool, **filters: Any
) -> None:
    async def work(at: ServerClient) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        async for row in _rows(at, text, filters.pop("after", None), **filters):
            rows.append(row)
            if len(rows) == limit:
                break
        return rows

    rows = _run(server, api_key_env, work)
    if as_json:
        for row in rows:
            write_json(row)
    elif sys.stdout.isatty():
        _table(rows)
    else:
        for row in rows:
            click.echo("\t".join(_columns(row)))
    if len(rows) == limit:
        click.echo(f"there may be more: --after {printable(str(rows[-1]['id']))}", err=True)


def _table(rows: list[dict[str, Any]]) -> None:
    """Print a line for each row, or two if the terminal is narrow: ids and statuses are never cut."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    console = Console(**console_options(), soft_wrap=True)
    shown = [_HEADINGS, *map(_columns, rows)]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    on_one = sum(widths[:4]) + 2 * 4 + _LEAST_QUESTION <= console.width
    for number, texts in enumerate(shown):
        styles = ("", "dim", _COLOURS.get(texts[2], "cyan")) if number else ("bold",) * 3
        head, rest = Text(), Text("" if on_one else "    ")
        for text, style, width in zip(texts, styles, widths, strict=False):
            head.append(text + " " * (width - cell_len(text) + 2), style)
        model = texts[3] + " " * (widths[3] - cell_len(texts[3]) + 2)
        rest.append(model + texts[4], "" if number else "bold")
        lines = [head + rest] if on_one else [head, rest]
        lines[-1].truncate(console.width, overflow="ellipsis")
        for line in lines:
            line.rstrip()
            console.print(line)


def _columns(row: dict[str, Any]) -> tuple[str, ...]:
    created_at = row.get("created_at")
    shown = "?"
    if isinstance(created_at, int | float) and 0 <= created_at < 1e11:
        shown = datetime.fromtimestamp(created_at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    texts = [
        on_one_line(str(row.get(name) or ""), _LONGEST_QUESTION)
        for name in ("id", "status", "model", "asked")
    ]
    return texts[0], shown, *texts[1:]


async def _rows(
    at: ServerClient, text: str, after: str | None, status: str | None, failed: bool, **other_filters: Any
) -> AsyncIterator[dict[str, Any]]:
    """Yield the rows of all pages after this id."""
    filters = {"status": "failed" if failed else status, "search": text, **other_filters}
    query = {name: str(value) for name, value in filters.items() if value not in (None, "")}
    while True:
        going_on = {"after": after} if after else {}
        page = await at.json(
            "GET", at.url_outside_api(_LISTED), query={**query, **going_on, "limit": str(_PAGE)}
        )
        rows = page.get("data") if isinstance(page, dict) else None
        if not isinstance(rows, list):
            raise ValueError(f"{at.base} did not answer with a list")
        for row in rows:
            if isinstance(row, dict) and isinstance(row.get("id"), str):
                yield row
        following = page.get("next")
        if not isinstance(following, str) or following == after:
            return
        after = following


async def _input(at: ServerClient, path: str) -> list[Any]:
    """Return the input items of a request, in order."""
    items: list[Any] = []
    query = {"order": "asc", "limit": str(_PAGE)}
    while True:
        page = await at.json("GET", f"{path}/input_items", query=query)
        data = page.get("data") if isinstance(page, dict) else None
        items += data if isinstance(data, list) else []
        last = page.get("last_id") if isinstance(page, dict) else None
        if not data or not page.get("has_more") or last in (None, query.get("after")):
            return items
        query["after"] = str(last)


def _path(response_id: str) -> str:
    from openresponses_server.client import is_plain_id

    if not is_plain_id(response_id):
        raise click.UsageError(f"{printable(response_id[:100])!r} is not the id of a response")
    return f"/responses/{response_id}"


def _run(server: str | None, variable: str | None, work: Callable[[ServerClient], Awaitable[T]]) -> T:
    """Return the result of `work`. Exits with code 2 if the server can't be reached, 1 if it refuses."""
    import asyncio

    from openresponses_cli.commands.server_client import ServerClient, key_from
    from openresponses_server.client import OpenResponsesError
    from openresponses_server.errors import UpstreamError

    async def run() -> T:
        async with ServerClient(server, key_from(variable)) as at:
            return await work(at)

    try:
        return asyncio.run(run())
    except OpenResponsesError as error:
        if error.code == UpstreamError.UNREACHABLE:
            exit_unreadable(printable(error.message))
        raise click.ClickException(printable(f"{error.message} [{error.code}]")) from error
    except ValueError as error:
        exit_unreadable(printable(str(error)))
    except KeyboardInterrupt:
        sys.exit(130)
