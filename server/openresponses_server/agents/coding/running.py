"""An agent over a server, from its configuration to its exit code."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from msgspec import Struct

from openresponses_bridge.models.information import EnrichedModelData
from openresponses_server.agents.coding.base import CodingAgent, Target
from openresponses_server.agents.coding.process import run_agent
from openresponses_server.agents.coding.reaching import Models, Unusable, models_of
from openresponses_server.settings import KEYS_VARIABLES, Capabilities, Settings
from openresponses_server.settings.data_folder import data_folder, make_private
from openresponses_server.upstreams.catalog import capabilities_of
from openresponses_server.upstreams.codex_models import codex_model
from openresponses_server.upstreams.listing import first_choice

_FOLDER: Final = "agents"
_LOGS: Final = "logs"
_LOGS_KEPT: Final = 10
_SOMEWHERE: Final = "the server"
_LIMITS: Final = ("context_window", "max_input_tokens", "max_output_tokens")
_ABILITIES: Final = ("tools", "images", "reasoning")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")


class Reached(Struct, frozen=True):
    """A server that answers: its address, the key to show, its models, where it logs ("" when that is its own
    matter), and the model that its settings name, if they do."""

    base: str
    key: str | None
    models: Models
    log: str = ""
    default: str | None = None


def run(
    agent: CodingAgent,
    program: str,
    arguments: Sequence[str],
    server: Reached,
    model: str | None,
    hidden: frozenset[str],
    *,
    report: Callable[[str], None],
) -> int:
    """Run it to its end; returns its exit code. `hidden` are variables that it is not to see, `report` gets
    what a person wants to know first. Raises OSError when it can't be started, Unusable when there is no
    model to use."""
    entry = _chosen(server, model)
    home = folder_of(agent.name)
    with tempfile.TemporaryDirectory(prefix="openresponses-bridge-") as scratch:
        target = Target(
            base=server.base,
            key=server.key,
            model=entry,
            catalog=_catalog(server.models.catalog, entry),
            home=home,
            scratch=Path(scratch),
        )
        start = agent.start(target)
        log = f", its log is {server.log}" if server.log else ""
        report(f"{agent.title} with {entry.id} ({entry.upstream}) through {server.base}{log}")
        return run_agent(
            [program, *start.arguments, *arguments], agent.environment(os.environ, hidden, start)
        )


def folder_of(agent: str) -> Path:
    """Where this agent has its configuration and its conversations when it is run here; made if there is
    none."""
    return make_private(data_folder() / _FOLDER / agent)


def served_at(address: str, key: str | None) -> Reached:
    """A server that runs. Raises Unusable."""
    base = address.rstrip("/").removesuffix("/v1")
    return Reached(base, key, models_of(base, key))


@contextmanager
def own_server(settings: Settings, model: str | None = None) -> Iterator[Reached]:
    """One that is started for this, and ends with the context; `model` is the one that its settings name, if
    they do. Raises SettingsError."""
    from openresponses_server.agents.coding.hosting import for_one_agent, hosted
    from openresponses_server.observation.logs import configure_logs

    key = secrets.token_urlsafe(32)
    settings = for_one_agent(settings, key)
    with _log_file() as log:
        configure_logs(log)
        with hosted(settings) as base:
            yield Reached(base, key, models_of(base, key), log.name, model)


def secrets_of(settings: Settings) -> frozenset[str]:
    """The environment variables that hold keys of upstreams or of this server."""
    found = set(KEYS_VARIABLES.values()) | {settings.sealing_key_env or ""}
    for each in settings.upstreams:
        for text in (each.api_key or "", *each.headers.values()):
            found.update(_VARIABLE.findall(text))
        found.add(each.api_key_env or "")
        if each.profile is not None:
            from openresponses_server.upstreams.profiles import profile

            folder = None if settings.profiles is None else Path(settings.profiles)
            found.add(profile(each.profile, folder).api_key_env or "")
    return frozenset(found - {""})


@contextmanager
def _log_file() -> Iterator[TextIO]:
    """The log of one run in the data folder; the newest are kept."""
    folder = folder_of(_LOGS)
    for old in sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)[: 1 - _LOGS_KEPT]:
        old.unlink(missing_ok=True)
    path = folder / f"{os.getpid()}.log"
    path.unlink(missing_ok=True)
    with open(path, "w", encoding="utf-8", opener=_private) as opened:
        yield opened


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)


def _chosen(server: Reached, wanted: str | None) -> EnrichedModelData:
    """What is known of the model: the wanted one, else the server's own choice, else the first that calls
    tools. Raises Unusable without one."""
    listed = {each["id"]: each for each in server.models.listed if isinstance(each.get("id"), str)}
    name = wanted or server.default or first_choice(server.models.listed)
    if name is None:
        raise Unusable("no model was found: name one with --model")
    entry = listed.get(name)
    known = capabilities_of(name, {}) if entry is None else _known(entry)
    return EnrichedModelData.of(
        name,
        str((entry or {}).get("owned_by") or _SOMEWHERE),
        context_window=known.context_window,
        max_input_tokens=known.max_input_tokens,
        max_output_tokens=known.max_output_tokens,
        tools=known.tools,
        images=known.images,
        reasoning=known.reasoning,
    )


def _known(entry: Mapping[str, Any]) -> Capabilities:
    """What an entry of `/v1/models` says, as far as it is of the type that it should be."""
    known: dict[str, Any] = {
        name: value for name in _LIMITS if type(value := entry.get(name)) is int and value > 0
    }
    able = _capabilities(entry)
    known |= {name: value for name in _ABILITIES if isinstance(value := able.get(name), bool)}
    return Capabilities(**known)


def _capabilities(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    given = entry.get("capabilities")
    return given if isinstance(given, dict) else {}


def _catalog(catalog: list[dict[str, Any]], model: EnrichedModelData) -> list[dict[str, Any]]:
    """With the model in it, which may be one that the server takes and does not list."""
    if any(each.get("slug") == model.id for each in catalog):
        return catalog
    return [codex_model(model, 0), *catalog]
