"""`db`: maintains the session store."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from openresponses_bridge.text import counted, printable
from openresponses_cli.commands.flags import SetOption, force_flag, input_file, output_file, with_flags
from openresponses_cli.commands.progress import CountedReader, progress

if TYPE_CHECKING:
    from sqlalchemy import URL

    from openresponses_server.errors import Outage
    from openresponses_server.store.base import ResponseStore

_path = click.Path(dir_okay=False, path_type=Path)


def _store_of(context: click.Context, option: click.Parameter, store: str) -> str:
    """Return the given store; else that of the config, if there is one."""
    config: Path | None = context.meta.get(_CONFIG)
    if config is None or context.get_parameter_source(str(option.name)) is not ParameterSource.DEFAULT:
        return store
    from openresponses_server.settings.files import ConfigError, expanded, located, read_config

    with reported_failures(), located(config):
        named = read_config(config).get("store", store)
        if not isinstance(named, str):
            raise ConfigError(f"Expected `str`, got `{type(named).__name__}`", "$.store")
        return expanded(named, "$.store")


def _keep_config(context: click.Context, _option: click.Parameter, config: Path | None) -> None:
    context.meta[_CONFIG] = config


_CONFIG: Final = "openresponses_bridge.config"
store_flag = with_flags(
    click.option(
        "--store",
        cls=SetOption,
        metavar="URL",
        envvar="OPENRESPONSES_BRIDGE_STORE",
        default="sqlite:",
        show_default=True,
        callback=_store_of,
        help="sqlite: (a file in your data folder), sqlite:///PATH or postgresql+psycopg://…",
    ),
    click.option(
        "--config",
        cls=SetOption,
        envvar="OPENRESPONSES_BRIDGE_CONFIG",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_keep_config,
        help="The TOML file of `serve`, whose store is used unless --store is given.",
    ),
)


@click.group()
def command() -> None:
    """Maintain the session store."""


@command.command("upgrade")
@store_flag
@click.option("--create", is_flag=True, help="Create the SQLite file if it does not exist.")
def upgrade_tables(store: str, create: bool) -> None:
    """Upgrade the tables of the database to this version. Servers can go on using it meanwhile.

    Secrets of tools that earlier versions stored are removed from responses that have ended. A SQLite file
    named with --store must exist, unless --create is given; the one in your data folder is created.
    """
    from openresponses_server.settings import SettingsError
    from openresponses_server.store.sql.locations import database_url, file_of, is_sqlite, shown
    from openresponses_server.store.sql.migrate import remove_secrets, upgrade
    from openresponses_server.store.sql.sqlite_file import default_file

    with reported_failures(store), progress("upgrading"):
        url = database_url(store)
        missing = is_sqlite(url) and not file_of(url).exists()
        if missing and not create and file_of(url) != default_file():
            raise SettingsError(f"no session store was found at {shown(url)}: --create makes one")
        before, after = upgrade(url)
        cleaned = remove_secrets(url)
    click.echo(f"at revision {after}" + ("" if before == after else f" (before: {before or 'empty'})"))
    if cleaned:
        click.echo(f"secrets of tools removed from {counted(cleaned, 'response')}")


@command.command()
@store_flag
def sweep(store: str) -> None:
    """Delete the responses and conversations whose retention has expired."""

    async def work(opened: ResponseStore) -> None:
        with progress("sweeping"):
            deleted = await opened.sweep(time.time())
        click.echo(f"{counted(deleted, 'response')} deleted")

    _run(store, work)


@command.command()
@store_flag
@click.argument("file", type=_path, required=False)
@force_flag
def export(store: str, file: Path | None, force: bool) -> None:
    """Write every stored response, conversation and key as lines of JSON, to FILE or standard output."""
    from openresponses_server.store.export_lines import is_record

    async def work(opened: ResponseStore) -> None:
        responses = size = 0
        with output_file(file, replace=force) as write_to, progress("exporting", unit="bytes") as advance:
            async for line in opened.export():
                write_to(line)
                advance(len(line))
                responses, size = responses + is_record(line), size + len(line)
        if file is not None:
            click.echo(f"{counted(responses, 'response')}, {size} bytes written to {file}")

    _run(store, work)


@command.command("import")
@store_flag
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), metavar="FILE|-")
def import_(store: str, file: str) -> None:
    """Import the responses, conversations and keys of an export that the store does not have yet. Lines
    that can't be imported are reported, and the exit code is then 1; all other lines are imported."""
    from openresponses_server.store.sql.locations import database_url
    from openresponses_server.store.sql.transfer import import_lines

    with (
        input_file(file) as source,
        reported_failures(store),
        progress("importing", _size(file), "bytes") as advance,
    ):
        done = import_lines(database_url(store), CountedReader(source, advance), _name_line)
    refused = f", {counted(done.refused, 'line')} refused" if done.refused else ""
    more = f" and {counted(done.conversations, 'conversation')}" if done.conversations else ""
    more += f" and {counted(done.keys, 'key')}" if done.keys else ""
    click.echo(f"{counted(done.new, 'response')}{more} imported, {done.present} already present{refused}")
    sys.exit(1 if done.refused else 0)


@command.command()
@store_flag
@click.argument("file", type=_path)
def backup(store: str, file: Path) -> None:
    """Copy a SQLite store to FILE while servers use it."""
    from openresponses_server.store.sql.transfer import back_up

    with reported_failures(store), progress("copying"):
        size = back_up(existing(store), file)
    click.echo(f"{size} bytes written to {file}")


def _run(store: str, work: Callable[[ResponseStore], Awaitable[None]]) -> None:
    import asyncio

    from openresponses_server.store.stores import open_store

    async def run() -> None:
        opened = open_store(store)
        try:
            await work(opened)
        finally:
            await opened.close()

    with reported_failures(store):
        existing(store)
        asyncio.run(run())


def existing(store: str) -> URL:
    """The URL of an existing database. Raises SettingsError and StoreError."""
    from openresponses_server.settings import SettingsError
    from openresponses_server.store.sql.locations import database_url, shown
    from openresponses_server.store.sql.migrate import is_set_up

    url = database_url(store)
    if not is_set_up(url):
        raise SettingsError(f"no session store was found at {shown(url)}: name it with --store or --config")
    return url


def _size(file: str) -> int | None:
    """Return the size of a file in bytes; None for a pipe."""
    path = Path(file)
    return path.stat().st_size if file != "-" and path.is_file() else None


def _name_line(number: int, why: str) -> None:
    click.echo(printable(f"line {number}: {why}"), err=True)


def outage_text(outage: Outage, store: str | None) -> str:
    """Return the text of an outage; if it is the store's, with its address."""
    from openresponses_server.store.base import StoreError
    from openresponses_server.store.stores import shown_store

    where = f" ({shown_store(store)})" if store is not None and isinstance(outage, StoreError) else ""
    return printable(outage.in_full + where)


@contextmanager
def reported_failures(store: str | None = None) -> Iterator[None]:
    """Exit with code 2 for a wrong store URL, 1 for a store that fails, which is named."""
    from openresponses_bridge.errors import BridgeError
    from openresponses_server.errors import Outage
    from openresponses_server.settings import SettingsError

    try:
        yield
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    except Outage as error:
        raise click.ClickException(outage_text(error, store)) from error
    except BridgeError as error:
        raise click.ClickException(error.message) from error
