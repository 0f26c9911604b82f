"""`db`: looking after the session store."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import click

from bridge.errors import BridgeError
from server.errors import Outage
from server.sessions.base import ResponseStore
from server.settings import SettingsError

_store = click.option(
    "--store",
    metavar="URL",
    envvar="OPENRESPONSES_BRIDGE_STORE",
    default="sqlite:",
    show_default=True,
    help="sqlite: (a file in your data folder), sqlite:///PATH or postgresql+psycopg://…",
)


@click.group()
def command() -> None:
    """Look after the session store."""


@command.command("upgrade")
@_store
def upgrade_tables(store: str) -> None:
    """Bring the database to the tables that this version needs."""
    from server.sessions.sql.locations import database_url
    from server.sessions.sql.migrate import upgrade

    with _failures_told():
        before, after = upgrade(database_url(store))
    click.echo(f"at revision {after}" + ("" if before == after else f" (before: {before or 'empty'})"))


@command.command()
@_store
def sweep(store: str) -> None:
    """Delete the responses whose retention is over."""

    async def work(opened: ResponseStore) -> None:
        click.echo(f"{await opened.sweep(time.time())} responses deleted")

    _run(store, work)


@command.command()
@_store
def export(store: str) -> None:
    """Write every stored response to standard output, one line of JSON each."""

    async def work(opened: ResponseStore) -> None:
        async for line in opened.export():
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    _run(store, work)


def _run(store: str, work: Callable[[ResponseStore], Awaitable[None]]) -> None:
    from server.sessions.sql.locations import database_url, shown
    from server.sessions.sql.migrate import is_set_up
    from server.sessions.stores import open_store

    async def run() -> None:
        opened = open_store(store)
        try:
            await work(opened)
        finally:
            await opened.close()

    with _failures_told():
        url = database_url(store)
        if not is_set_up(url):
            raise SettingsError(f"no session store was found at {shown(url)}")
        asyncio.run(run())


@contextmanager
def _failures_told() -> Iterator[None]:
    """Exit code 2 for a store that was named wrongly, 1 for one that fails."""
    try:
        yield
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    except Outage as error:
        raise click.ClickException(error.in_full) from error
    except BridgeError as error:
        raise click.ClickException(error.message) from error
