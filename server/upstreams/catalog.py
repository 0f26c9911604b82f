"""What models can do: the config's word first, then a table that ships with the server."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Final

import msgspec

from server.settings import Capabilities

_FILE: Final = "models.toml"
_WILD: Final = "*?["
_NOTHING: Final = Capabilities()


def capabilities_of(model: str, configured: Mapping[str, Capabilities]) -> Capabilities:
    """What is known of a model, field by field. `vendor/model` and `model:tag` are known as `model` is."""
    names = dict.fromkeys((model, bare_name(model)))
    found = _NOTHING
    for table in (configured, _shipped()):
        for name in names:
            pattern = best_match(name, table)
            if pattern is not None:
                found = _filled(found, table[pattern])
    return found


def best_match(name: str, patterns: Iterable[str]) -> str | None:
    """The pattern for a name: itself, else the longest with wildcards that fits."""
    fitting = [pattern for pattern in patterns if pattern == name or _fits(name, pattern)]
    return max(fitting, key=lambda pattern: (pattern == name, len(pattern)), default=None)


def is_pattern(text: str) -> bool:
    """Whether it stands for more than one name."""
    return any(sign in text for sign in _WILD)


def bare_name(model: str) -> str:
    """A model's name without the vendor before it and the tag behind it."""
    return model.rpartition("/")[2].partition(":")[0]


def _fits(name: str, pattern: str) -> bool:
    return is_pattern(pattern) and fnmatchcase(name, pattern)


def _filled(known: Capabilities, more: Capabilities) -> Capabilities:
    """`known` with what `more` has beyond it."""
    names = Capabilities.__struct_fields__
    added = {name: getattr(more, name) for name in names if getattr(known, name) is None}
    return msgspec.structs.replace(known, **added)


@cache
def _shipped() -> dict[str, Capabilities]:
    text = resources.files(__package__).joinpath(_FILE).read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Capabilities])
