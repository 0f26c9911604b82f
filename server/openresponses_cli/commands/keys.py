"""`keys`: manages keys of clients in the session store, while servers run."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from openresponses_bridge.text import printable
from openresponses_cli.commands.db import existing, reported_failures, store_flag
from openresponses_cli.commands.flags import Form, with_flags, write_json

if TYPE_CHECKING:
    from openresponses_server.http.managed_keys import KeyChange, ManagedKey
    from openresponses_server.store.keys import KeyStore

T = TypeVar("T")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_NUMBER: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?", re.ASCII)
_AGE: Final = re.compile(r"[0-9]{1,6}[smhdw]")
_DEFAULT: Final = "default"
_LATEST: Final = 253_402_300_799  # Unix seconds: the end of the year 9999, the last that has a date
_LONGEST: Final = 200  # characters of a name or pattern
_FLAGS: Final = {
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    "concurrent": "concurrent",
    "calls": "calls_per_day",
    "usd_per_day": "usd_per_day",
}


class _Limit(Form[Any]):
    name = "NUMBER|default"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value)
        if text == _DEFAULT:
            return text
        if not (text.isascii() and text.isdecimal() and 0 < len(text) < 13):
            self.fail(f"{text!r} is neither a number nor {_DEFAULT!r}", param, ctx)
        if int(text) == 0:
            self.fail("a limit is at least 1; `keys revoke` ends a key", param, ctx)
        return int(text)


class _Dollars(Form[Any]):
    name = "DOLLARS|default"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        from openresponses_server.limits.owners import LEAST_USD, MOST_USD, is_limit

        text = str(value)
        if text == _DEFAULT:
            return text
        if not _NUMBER.fullmatch(text):
            self.fail(f"{text!r} is neither a number of dollars nor {_DEFAULT!r}", param, ctx)
        if not is_limit("usd_per_day", float(text)):
            self.fail(f"a limit is {LEAST_USD} to {MOST_USD:.0f}; `keys revoke` ends a key", param, ctx)
        return float(text)


class _Expiry(Form[Any]):
    name = "30d|DATE|never"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        text = str(value)
        if text == "never":
            return text
        if _AGE.fullmatch(text):
            at = time.time() + int(text[:-1]) * _UNITS[text[-1]]
        else:
            try:
                moment = datetime.fromisoformat(text)
            except ValueError:
                self.fail(f"{text!r} is not a time such as 30d, 2030-01-31 or never", param, ctx)
            at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if not 0 <= at <= _LATEST:
            self.fail(
                f"{text!r} is not between the years 1970 and 9999; `never` is for a key that does not expire",
                param,
                ctx,
            )
        return at


class _Text(Form[str]):
    name = "TEXT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        if not text or len(text) > _LONGEST or not text.isprintable():
            self.fail(f"expected 1 to {_LONGEST} printable characters", param, ctx)
        return text


_limits = [
    click.option("--requests", type=_Limit(), help="Requests a minute."),
    click.option("--tokens", type=_Limit(), help="Tokens a minute."),
    click.option("--concurrent", type=_Limit(), help="Responses in progress at once."),
    click.option("--calls", type=_Limit(), help="Calls of the server's own tools per day (UTC)."),
    click.option(
        "--usd-per-day",
        type=_Dollars(),
        help="US dollars per day (UTC), by the server's prices; models without a price are then refused.",
    ),
    click.option(
        "--model",
        "models",
        type=_Text(),
        multiple=True,
        metavar="NAME",
        help="A model that the key may use; * and ? are wildcards. May be repeated. [default: all]",
    ),
    click.option(
        "--expires", type=_Expiry(), help="When the key expires: after a time, on a date (UTC), or never."
    ),
]


@click.group()
def command() -> None:
    """Manage the keys of clients in the session store. Servers with `managed_keys = true` accept new keys,
    and refuse revoked ones, within a second."""


@command.command()
@store_flag
@click.option("--name", type=_Text(), default="key", show_default=True, help="What the key is for.")
@click.option(
    "--owner",
    type=_Text(),
    help="Whom it is for: keys of one owner share responses, usage and limits. [default: the key's id]",
)
@with_flags(*_limits)
def add(store: str, name: str, owner: str | None, **flags: Any) -> None:
    """Create a key and print it, this once: only its hash is stored."""
    from openresponses_server.http.managed_keys import ManagedKey, new_key
    from openresponses_server.store.sql.locations import database_url, shown

    key, key_id, hashed = new_key()
    managed_key = ManagedKey(key_id, hashed, key[-4:], name, owner or key_id, time.time())
    managed_key = _change_of(managed_key, flags).applied(managed_key)
    _run(store, lambda keys: keys.add(managed_key), create=True)
    whose = "" if managed_key.owner == key_id else f" for {printable(managed_key.owner)}"
    where = shown(database_url(store))
    click.echo(f"{key_id}{whose} is added to {where}. This is the key, which is shown only once:", err=True)
    click.echo(key)


@command.command("list")
@store_flag
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_(store: str, as_json: bool) -> None:
    """List the keys, oldest first. Only the last four characters of each are shown."""
    now = time.time()
    for key in _run(store, lambda keys: keys.all()):
        if as_json:
            shown = {field: getattr(key, field) for field in key.__struct_fields__ if field != "hash"}
            write_json({**shown, "state": _state(key, now)})
        else:
            click.echo(printable("  ".join(_columns(key, now))))


@command.command()
@store_flag
@click.argument("key_ids", metavar="ID…", nargs=-1, required=True)
def revoke(store: str, key_ids: tuple[str, ...]) -> None:
    """Revoke keys. Servers refuse them within a second; responses that are in progress continue to their
    end."""
    from openresponses_server.http.managed_keys import KeyChange

    now = time.time()

    def revoked(key: ManagedKey) -> KeyChange:
        return KeyChange(revoked_at=key.revoked_at or now)

    for key in _run(store, lambda keys: _change(keys, key_ids, revoked)):
        click.echo(f"{key.id} revoked")


@command.command()
@store_flag
@click.argument("key_ids", metavar="ID…", nargs=-1, required=True)
@with_flags(*_limits)
@click.option("--all-models", is_flag=True, help="The key may use all models.")
def limit(store: str, key_ids: tuple[str, ...], all_models: bool, **flags: Any) -> None:
    """Change the limits of keys. Those not given stay; `default` stands for the limit in the settings."""
    if all_models and flags["models"]:
        raise click.UsageError("--model and --all-models can't be combined")

    def limited(key: ManagedKey) -> KeyChange:
        return _change_of(key, {**flags, "all_models": all_models})

    for key in _run(store, lambda keys: _change(keys, key_ids, limited)):
        click.echo(printable("  ".join(_columns(key, time.time()))))


def _change_of(key: ManagedKey, flags: dict[str, Any]) -> KeyChange:
    """Return the change to the limits, models and expiry that the flags name."""
    from msgspec.structs import replace

    from openresponses_server.http.managed_keys import KeyChange

    fields = {field: flags[flag] for flag, field in _FLAGS.items() if flags[flag] is not None}
    limits = {field: None if value == _DEFAULT else value for field, value in fields.items()}
    changes: dict[str, Any] = {"limits": replace(key.limits, **limits)} if limits else {}
    if flags["models"] or flags.get("all_models"):
        changes["models"] = tuple(flags["models"]) or None
    if (expires := flags["expires"]) is not None:
        changes["expires_at"] = None if expires == "never" else expires
    return KeyChange(**changes)


async def _change(
    keys: KeyStore, key_ids: Iterable[str], change: Callable[[ManagedKey], KeyChange]
) -> list[ManagedKey]:
    """Change all of these keys, or none if one does not exist. Returns the keys after the change."""
    there = {key.id: key for key in await keys.all()}
    unique_ids = list(dict.fromkeys(key_ids))
    if missing := [key_id for key_id in unique_ids if key_id not in there]:
        raise click.ClickException(printable(f"no key has the id {missing[0]!r}"))
    for key_id in unique_ids:
        await keys.change(key_id, change(there[key_id]))
    return [key for key in await keys.all() if key.id in unique_ids]


def _columns(key: ManagedKey, now: float) -> Iterable[str]:
    from openresponses_server.limits.money import plain
    from openresponses_server.limits.owners import LIMIT_NAMES

    yield key.id
    yield f"…{key.last_four}"
    yield _state(key, now)
    yield key.name if key.owner == key.id else f"{key.name} for {key.owner}"
    for name in LIMIT_NAMES:
        if (value := getattr(key.limits, name)) is not None:
            yield f"{name}={plain(value) if isinstance(value, float) else value}"
    if key.models is not None:
        yield f"models={','.join(key.models)}"
    if key.expires_at is not None:
        at = datetime.fromtimestamp(min(key.expires_at, _LATEST), UTC)  # an imported one may be later
        yield f"expires={at:%Y-%m-%dT%H:%MZ}"


def _state(key: ManagedKey, now: float) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "live" if key.is_live(now) else "expired"


def _run(store: str, work: Callable[[KeyStore], Awaitable[T]], *, create: bool = False) -> T:
    """Return the result of the work on the keys of a store, which must exist unless `create`."""
    import asyncio

    from openresponses_server.settings import SettingsError
    from openresponses_server.store.stores import open_store

    async def run() -> T:
        opened = open_store(store)
        try:
            if opened.keys is None:
                raise SettingsError(
                    "no server would see keys in memory: name a sqlite: or postgresql store", "$.store"
                )
            if not create:
                existing(store)
            return await work(opened.keys)
        finally:
            await opened.close()

    with reported_failures(store):
        return asyncio.run(run())
