"""Known providers and local servers, one file of data each, so that `--upstream ollama` is enough.

A profile has what users would otherwise have to find out: the address, the variable of the key, the dialect
and its options. A quirk of a provider becomes an option of the dialect, never a branch here. Users may have a
folder with more profiles; one that is used is checked whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from openresponses_server.settings import SettingsError
from openresponses_server.settings.files import about, converted, did_you_mean, located, read_config
from openresponses_server.upstreams.catalog import bare_name, best_match
from openresponses_server.upstreams.dialects import DIALECTS, HttpDialect, has_sockets, without_password


def options_of(kind: type[Struct], fields: dict[str, Any], whose: str = "") -> Struct:
    """Convert a dialect's options from a file. Raises SettingsError about the wrong option, with a message
    that begins with `whose`."""
    unknown = sorted(fields.keys() - set(kind.__struct_fields__))
    if unknown:
        known = ", ".join(kind.__struct_fields__) + did_you_mean(unknown[0], kind.__struct_fields__)
        raise SettingsError(f"{whose}options.{unknown[0]} is not one of: {known}", f".options.{unknown[0]}")
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        message, _, at = str(error).partition(" - at `$")
        raise SettingsError(f"{whose}options: {message}", f".options{at.removesuffix('`')}") from error


class DialectOptions(NamedTuple):
    """The options of one upstream. `layers` are pairs of options for all models and options by pattern of a
    model's name, such as `qwen3*`; what comes later goes before."""

    kind: type[Struct]
    layers: Sequence[tuple[dict[str, Any], dict[str, dict[str, Any]]]] = ()

    def of(self, model: str, whose: str = "") -> Struct:
        """The options for this model. Raises SettingsError as `options_of` does."""
        names = dict.fromkeys((model.lower(), bare_name(model.lower())))
        fields: dict[str, Any] = {}
        for general, by_model in self.layers:
            fields |= general
            pattern = next(filter(None, (best_match(name, by_model) for name in names)), None)
            if pattern is not None:
                fields |= by_model[pattern]
        return options_of(self.kind, fields, whose)

    def check(self, whose: str) -> None:
        """Raises SettingsError for options that are wrong, of whatever model."""
        self.of("", whose)
        for _, by_model in self.layers:
            check_model_options(self.kind, by_model, whose)


def check_model_options(kind: type[Struct], by_model: dict[str, dict[str, Any]], whose: str = "") -> None:
    """Raises SettingsError about `.model_options` and the one that is wrong."""
    for pattern, fields in by_model.items():
        try:
            options_of(kind, fields)
        except SettingsError as error:
            at = error.at.removeprefix("$").replace(".options", f".model_options.{pattern}", 1)
            raise SettingsError(f"{whose}model_options.{pattern}: {error.message}", at) from error


_SUFFIX: Final = ".toml"
_NAME: Final = re.compile(r"\w+")
_MOST_BYTES: Final = 64 * 1024


class ProfileDialect(Struct, frozen=True, forbid_unknown_fields=True):
    """One dialect of a provider."""

    url: str | None = None
    """The provider's address for this dialect, with or without `/v1`. A dialect that runs a process has none.
    It may contain `${VARIABLE}`."""
    options: dict[str, Any] = {}
    """The dialect's options for this provider."""
    model_options: dict[str, dict[str, Any]] = {}
    """The same for individual models, by name in lower case, with `*` and `?` as wildcards."""
    websocket: bool = False
    """Whether the provider has WebSockets at its address, over which streamed requests go."""


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """One provider."""

    title: str
    """The provider's name, in its own spelling."""
    dialect: str
    """The default dialect, one of `dialects`."""
    dialects: dict[str, ProfileDialect]
    """The provider's dialects, by name, a table for each."""
    api_key_env: str | None = None
    """The environment variable that usually has the key."""
    api_key_command: list[str] = []
    """The program and its arguments that usually print the key. If neither this nor `api_key_env` is set, no
    key is needed."""
    api_key_header: str | None = None
    """The header whose value is the key of the variable alone. Default: the dialect's."""
    session_headers: dict[str, str] = {}
    """The headers in which the provider expects an id of the session, each with `{session}`."""
    start: str | None = None
    """The command that starts a local server, or that must have been run before a program is used."""
    tried: str | None = None
    """What was tried with the provider, and with which version: a sentence for its users."""
    advice: list[str] = []
    """What the provider's users should set, a sentence each."""


def names(folder: Path | None = None) -> list[str]:
    """The names of all profiles: those of the folder and those of this package."""
    return sorted({*_files(folder), *_shipped_names()})


def profile(name: str, folder: Path | None = None) -> Profile:
    """The profile of this name; one of the folder replaces one of this package. Raises SettingsError if it is
    unknown, or with its file and line if it can't be used."""
    own = _files(folder).get(name)
    if own is not None:
        return _read(name, own)
    if name not in _shipped_names():
        if _looks_like_address(name):
            raise SettingsError(
                f"{without_password(name)!r} is not a known provider; if it is an address, add its scheme: "
                f"http://{without_password(name)} or https://…",
                ".profile",
            )
        among = names(folder)
        close = did_you_mean(name, among)
        raise SettingsError(f"{name!r} is not one of: {', '.join(among)}{close}", ".profile")
    return _shipped_profile(name)


def _looks_like_address(name: str) -> bool:
    """Return True if the text looks like an address without a scheme: a host with a port, a domain with a
    path or with several parts, localhost, or an IPv6 address."""
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


def _shipped_names() -> list[str]:
    return [_name(each) for each in resources.files(__name__).iterdir() if each.name.endswith(_SUFFIX)]


@cache
def _shipped_profile(name: str) -> Profile:
    with resources.as_file(resources.files(__name__).joinpath(name + _SUFFIX)) as path:
        return _read(name, path)


def _name(file: Traversable) -> str:
    return file.name.removesuffix(_SUFFIX)


def _files(folder: Path | None) -> dict[str, Path]:
    """Names → files of the folder, without hidden files and links to outside."""
    if folder is None:
        return {}
    try:
        home, entries = os.path.realpath(folder), sorted(folder.iterdir())
    except OSError as error:
        raise SettingsError(f"profiles {folder}: {error.strerror}") from error
    candidates = (each for each in entries if each.name.endswith(_SUFFIX) and not each.name.startswith("."))
    return {
        _name(each): each for each in candidates if each.is_file() and each.resolve().is_relative_to(home)
    }


def _read(name: str, path: Path) -> Profile:
    try:
        with located(path):
            if path.stat().st_size > _MOST_BYTES:
                raise SettingsError(f"a profile may have at most {_MOST_BYTES} bytes", place=str(path))
            return _checked(read_config(path))
    except SettingsError as error:
        wrong = "; ".join(f"{each.place or path}: {each.message}" for each in error.all)
        raise SettingsError(f"{name!r} can't be used: {wrong}", ".profile") from error


def _checked(fields: dict[str, Any]) -> Profile:
    dialects = fields.get("dialects")
    for spoken, table in dialects.items() if isinstance(dialects, dict) else ():
        # each alone, so that an error names its table
        converted(table, ProfileDialect, f"$.dialects.{spoken}")
    result = converted(fields, Profile)
    if result.dialect not in result.dialects:
        raise SettingsError(
            f"dialect {result.dialect!r} has no table [dialects.{result.dialect}]", "$.dialect"
        )
    for spoken, each in result.dialects.items():
        with about(f"$.dialects.{spoken}"):
            if spoken not in DIALECTS:
                close = did_you_mean(spoken, DIALECTS)
                raise SettingsError(f"dialect {spoken!r} is not one of: {', '.join(DIALECTS)}{close}")
            options_of(DIALECTS[spoken].side.options, each.options)
            check_model_options(DIALECTS[spoken].side.options, each.model_options)
            if each.websocket and not has_sockets(DIALECTS[spoken]):
                raise SettingsError(f"dialect {spoken!r} has no WebSockets", ".websocket")
            if each.url is None and isinstance(DIALECTS[spoken], HttpDialect):
                raise SettingsError("Object missing required field `url`")
            try:
                DIALECTS[spoken].address(each.url or "")
            except ValueError as error:
                raise SettingsError(str(error), ".url") from error
    return result
