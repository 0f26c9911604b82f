"""The settings that `serve` would use, as TOML, and where each value comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins

from openresponses_bridge.text import printable
from openresponses_cli.commands.flags import parameter_of
from openresponses_server.settings import EMBEDDED_STORE, KEYS_VARIABLES, Settings, WireKeys
from openresponses_server.settings.files import as_toml, lines_of, masked, text_of, toml_key
from openresponses_server.store.stores import shown_store
from openresponses_server.upstreams.dialects import without_password
from openresponses_server.upstreams.profiles import profile

_DEFAULT: Final = "default"
_MASKED: Final = "***"
# these values may be secret
_SECRET: Final = frozenset({"api_key", "api_keys", "api_key_command", "args", "env", "headers", "query"})
_KEYS: Final = frozenset(
    {
        "$.trace.keys",
        *(f"$.wire_keys.{wire}" for wire in WireKeys.__struct_fields__),
        *(f"$.{name}" for name in KEYS_VARIABLES),
    }
)
_ADDRESSES: Final = frozenset({"url", "store", "event_log", "proxy"})


class ValueSources:
    """Finds the source of a setting's value."""

    def __init__(self, config: Path | None, flags: Mapping[str, str]) -> None:
        self._config = config
        self._flags = flags
        self._lines = {} if config is None else lines_of(text_of(config))

    def of(self, path: str) -> str:
        names = path.removeprefix("$.").replace("[", ".").split(".")
        first = names[0]
        if first == "upstreams" and "upstream" in self._flags:
            return self._flags.get(parameter_of(path), _DEFAULT)
        if (parameter := parameter_of(path)) in self._flags:
            return self._flags[parameter]
        if path in self._lines:
            return f"{self._config}:{self._lines[path]}"
        variable = KEYS_VARIABLES.get(first, "")
        return variable if os.environ.get(variable) else _DEFAULT


def shown(settings: Settings, places: ValueSources, *, everything: bool) -> Iterator[str]:
    """Yield the lines of TOML: settings, then tables, then lists of tables, upstreams last. With
    `everything`, defaults too."""
    fields = {name: getattr(settings, name) for name in settings.__struct_fields__}
    upstreams = fields.pop("upstreams")
    lists = {name: fields.pop(name) for name, value in list(fields.items()) if _is_list_of_tables(value)}
    tables = {name: value for name, value in fields.items() if _is_table(value)}
    yield from _lines({name: fields[name] for name in fields if name not in tables}, "$", places, everything)
    for name, table in tables.items():
        if lines := list(_lines(_as_dict(table), f"$.{name}", places, everything)):
            yield from ("", f"[{name}]", *lines)
    for name, members in lists.items():
        for number, member in enumerate(members):
            yield from ("", f"[[{name}]]")
            yield from _lines(_as_dict(member), f"$.{name}[{number}]", places, everything)
    for number, upstream in enumerate(upstreams):
        yield from ("", "[[upstreams]]")
        values = _as_dict(upstream)
        yield from _lines(values, f"$.upstreams[{number}]", places, everything)
        if upstream.profile is not None:
            yield from _of_profile(settings, values, upstream.profile)


def _of_profile(settings: Settings, values: dict[str, Any], name: str) -> Iterator[str]:
    """Yield the values that come from a profile."""
    known = profile(name, None if settings.profiles is None else Path(settings.profiles))
    spoken = values["dialect"] or known.dialect
    at = known.dialects.get(spoken)
    filled: dict[str, Any] = {"dialect": known.dialect}
    if at is not None:
        filled["url"] = at.url
        filled["options"] = {key: value for key, value in at.options.items() if key not in values["options"]}
        filled["model_options"] = at.model_options
    if (
        values["url"] is None
        and values["api_key"] is None
        and not (values["api_keys"] or values["pass_through"])
    ):
        filled["api_key_env"] = known.api_key_env
    for path, key, value in _leaves(filled, "$", ""):
        if not values.get(key):
            yield f"{key} = {_toml(value, path)}  # profile {name}"


def _lines(fields: Mapping[str, Any], path: str, places: ValueSources, everything: bool) -> Iterator[str]:
    for where, key, value in _leaves(fields, path, ""):
        place = places.of(where)
        if place == _DEFAULT and (not everything or value in ([], (), {})):
            continue
        if where == "$.store" and value == EMBEDDED_STORE:
            place = f"{place}: {shown_store(value)}"
        yield f"{key} = {_toml(value, where)}  # {printable(place)}"


def _leaves(fields: Mapping[str, Any], path: str, key: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (path, dotted key, value) of each setting, including those in tables."""
    for name, value in fields.items():
        where, dotted = f"{path}.{name}", f"{key}.{toml_key(name)}".removeprefix(".")
        if _is_table(value) and (inner := _as_dict(value)):
            yield from _leaves(inner, where, dotted)
        elif value is not None and not _is_table(value):
            yield where, dotted, value


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or hasattr(value, "__struct_fields__")


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_table, value))


def _as_dict(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _toml(value: Any, path: str) -> str:
    """Return the value as TOML, with secrets masked."""
    names = path.removeprefix("$.").replace("[", ".").split(".")
    if path in _KEYS:
        value = [_MASKED] * len(value)
    elif _SECRET.intersection(names) and isinstance(value, str | list):
        value = _masked(value)
    elif names[-1] in _ADDRESSES:
        value = without_password(value)
    return as_toml(to_builtins(value))


def _masked(value: Any) -> Any:
    return masked(value) if isinstance(value, str) else [_masked(each) for each in value]
