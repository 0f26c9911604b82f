"""Known providers and local servers, one file of data each, so that `--upstream ollama` is enough.

A profile is what a user would else have to find out: the address, the variable of the key, the dialect and
its options. A quirk that no option of a dialect names gets an option there, never a branch here. A folder of
the user's may hold more of them, read from this machine only; what is in one that is used is judged whole.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from openresponses_server.settings import SettingsError
from openresponses_server.settings.files import about, did_you_mean, located, read_config, wrong_fields
from openresponses_server.upstreams.dialects import DIALECTS, HttpDialect, without_password

# The options of a dialect as files give them: what one server wants where servers of a dialect differ.


def options_of(kind: type[Struct], fields: dict[str, Any], whose: str = "") -> Struct:
    """These options. Raises SettingsError about `.options` and the one that is wrong; its message begins with
    `whose`."""
    unknown = sorted(fields.keys() - set(kind.__struct_fields__))
    if unknown:
        known = ", ".join(kind.__struct_fields__) + did_you_mean(unknown[0], kind.__struct_fields__)
        raise SettingsError(f"{whose}options.{unknown[0]} is not one of: {known}", f".options.{unknown[0]}")
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        message, _, at = str(error).partition(" - at `$")
        raise SettingsError(f"{whose}options: {message}", f".options{at.removesuffix('`')}") from error


Table = TypeVar("Table", bound=Struct)
_SUFFIX: Final = ".toml"
_NAME: Final = re.compile(r"\w+")
_MOST_BYTES: Final = 64 * 1024


class Spoken(Struct, frozen=True, forbid_unknown_fields=True):
    """One dialect of a provider.

    `url`: its address there, with or without `/v1`; a process has none.
    `options`: what it wants where servers of the dialect differ.
    """

    url: str | None = None
    options: dict[str, Any] = {}


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """One provider.

    `title`: its name, as it writes it.
    `dialect`: the one of `dialects` to use unless settings name another.
    `dialects`: what it speaks, each a table of its own.
    `api_key_env`: the environment variable that usually holds its key; without, no key is needed.
    `start`: the command that starts a server on one's own machine; of a program that is run by this server,
    the one that has to be run before.
    """

    title: str
    dialect: str
    dialects: dict[str, Spoken]
    api_key_env: str | None = None
    start: str | None = None


def names(folder: Path | None = None) -> list[str]:
    """All profiles, by name: those of the folder and those that are known anyway."""
    return sorted({*_files(folder), *_known()})


def profile(name: str, folder: Path | None = None) -> Profile:
    """The profile of this name; one of the folder counts before a known one. Raises SettingsError when it is
    unknown, and naming its file and line when it can't be used."""
    own = _files(folder).get(name)
    if own is not None:
        return _read(name, own)
    if name not in _known():
        if _is_place(name):
            raise SettingsError(
                f"{without_password(name)!r} is not a known provider; as an address it has its scheme: "
                f"http://{without_password(name)}, or https://",
                ".profile",
            )
        among = names(folder)
        close = did_you_mean(name, among)
        raise SettingsError(f"profile {name!r} is not one of: {', '.join(among)}{close}", ".profile")
    return _shipped(name)


def _is_place(name: str) -> bool:
    """Whether it looks like an address without a scheme: a host with a port, one of a domain with a path, one
    of a domain with several parts; this machine, or an IPv6 address."""
    if name.startswith(("localhost", "[")):
        return True
    host, slash, _ = name.partition("/")
    if not _NAME.match(host):
        return False
    port = host.rpartition(":")[2] if ":" in host else ""
    domain, dot, last = host.rpartition(".")
    if port.isascii() and port.isdigit():
        return True
    return bool(dot and last) if slash else "." in domain[:-1] and _NAME.fullmatch(last) is not None


def _known() -> list[str]:
    return [_name(each) for each in resources.files(__name__).iterdir() if each.name.endswith(_SUFFIX)]


@cache
def _shipped(name: str) -> Profile:
    with resources.as_file(resources.files(__name__).joinpath(name + _SUFFIX)) as path:
        return _read(name, path)


def _name(file: Traversable) -> str:
    return file.name.removesuffix(_SUFFIX)


def _files(folder: Path | None) -> dict[str, Path]:
    """Name → file of the folder. Links that lead out of it do not count, nor what is hidden."""
    if folder is None:
        return {}
    try:
        home, entries = folder.resolve(), sorted(folder.iterdir())
    except OSError as error:
        raise SettingsError(f"profiles {folder}: {error.strerror}") from error
    found = (each for each in entries if each.name.endswith(_SUFFIX) and not each.name.startswith("."))
    return {_name(each): each for each in found if each.is_file() and each.resolve().is_relative_to(home)}


def _read(name: str, path: Path) -> Profile:
    try:
        with located(path):
            if path.stat().st_size > _MOST_BYTES:
                raise SettingsError(f"a profile has at most {_MOST_BYTES} bytes", place=str(path))
            return _checked(read_config(path))
    except SettingsError as error:
        where = f"{error.place or path}: {error.message}"
        raise SettingsError(f"profile {name!r}: {where}", ".profile") from error


def _converted(fields: Any, kind: type[Table], at: str = "$") -> Table:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        wrong = wrong_fields(error, kind)
        wrong.at = at + wrong.at.removeprefix("$")
        raise wrong from error


def _checked(fields: dict[str, Any]) -> Profile:
    dialects = fields.get("dialects")
    for spoken, table in dialects.items() if isinstance(dialects, dict) else ():
        _converted(table, Spoken, f"$.dialects.{spoken}")  # alone, so that what is wrong names its table
    found = _converted(fields, Profile)
    if found.dialect not in found.dialects:
        raise SettingsError(f"dialect {found.dialect!r} has no table [dialects.{found.dialect}]", "$.dialect")
    for spoken, each in found.dialects.items():
        with about(f"$.dialects.{spoken}"):
            if spoken not in DIALECTS:
                close = did_you_mean(spoken, DIALECTS)
                raise SettingsError(f"dialect {spoken!r} is not one of: {', '.join(DIALECTS)}{close}")
            options_of(DIALECTS[spoken].side.options, each.options)
            if each.url is None and isinstance(DIALECTS[spoken], HttpDialect):
                raise SettingsError("Object missing required field `url`")
            try:
                DIALECTS[spoken].address(each.url or "")
            except ValueError as error:
                raise SettingsError(str(error), ".url") from error
    return found
