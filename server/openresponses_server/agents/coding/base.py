"""What every coding agent is made of: how it is found, and what it is started with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from openresponses_bridge.models.information import EnrichedModelData

KEY_VARIABLE: Final = "OPENRESPONSES_BRIDGE_KEY"
"""Where an agent that can choose the variable finds the server's key."""


class Target(Struct, frozen=True, kw_only=True):
    """What an agent is to use: a server (`base`, an address without `/v1`), its `key` (None where none is
    asked for) and one of its models. `model` has what is known of it; `catalog` are all models as Codex
    describes them. `home` is the agent's folder, which is kept, `scratch` a folder that lasts as long as the
    agent."""

    base: str
    key: str | None
    model: EnrichedModelData
    catalog: list[dict[str, Any]]
    home: Path
    scratch: Path


class Start(Struct, frozen=True):
    """`arguments` come before those of the user, `variables` over the environment."""

    arguments: list[str]
    variables: dict[str, str]


class CodingAgent(Struct, frozen=True, kw_only=True):
    """An agent that can be run.

    `name` is what `run` calls it and `program` what its package of npm, `package`, installs. `tried` are the
    versions that the tests run, `oldest` the one from which on it is known to work, as (major, minor).
    Environment variables whose names begin with one of `own_prefixes` configure it, and are not passed on.
    `start` makes its configuration; `shown` is the same as text to be put where the user's own is, for a
    server at an address, a model, and with a key or without."""

    name: str
    title: str
    program: str
    package: str
    oldest: tuple[int, int]
    tried: tuple[int, int]
    own_prefixes: tuple[str, ...]
    start: Callable[[Target], Start]
    shown: Callable[[str, str, bool], str]

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"npm install -g {self.package}"

    def environment(self, given: Mapping[str, str], secrets: frozenset[str], start: Start) -> dict[str, str]:
        """The environment that it gets: `given` without what configures it otherwise and without the
        variables that hold keys of upstreams, which it has no use for; with what `start` sets. Its requests
        to this machine go past any proxy."""
        kept = {
            name: value
            for name, value in given.items()
            if name not in secrets and not name.startswith(self.own_prefixes)
        }
        for name in ("NO_PROXY", "no_proxy"):
            past = [each for each in (kept.get(name) or "").split(",") if each]
            kept[name] = ",".join(dict.fromkeys([*past, "127.0.0.1", "localhost", "::1"]))
        return kept | start.variables
