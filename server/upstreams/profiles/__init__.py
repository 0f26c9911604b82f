"""Known providers and local servers, one file of data each, so that `--upstream ollama` is enough.

A profile is what a user would else have to find out: the address, the variable of the key, the dialect and
its options. A quirk that no option of a dialect names gets an option there, never a branch here.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec
from msgspec import Struct

from server.settings import SettingsError

_SUFFIX: Final = ".toml"


class Spoken(Struct, frozen=True, forbid_unknown_fields=True):
    """One dialect of a provider: its address, and the dialect's options."""

    url: str
    options: dict[str, Any] = {}


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """One provider. `dialect` is the one to use unless settings name another; without `api_key_env` no key
    is needed."""

    title: str
    dialect: str
    dialects: dict[str, Spoken]
    api_key_env: str | None = None


def names() -> list[str]:
    """All profiles, by name."""
    files = (entry.name for entry in resources.files(__name__).iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))


@cache
def profile(name: str) -> Profile:
    """The profile of this name. Raises SettingsError when it is unknown."""
    if name not in names():
        raise SettingsError(f"profile {name!r} is not one of: {', '.join(names())}")
    text = resources.files(__name__).joinpath(name + _SUFFIX).read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), Profile)
