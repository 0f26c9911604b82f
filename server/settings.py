"""What the server runs with. The order of precedence is: flags, environment, the TOML file, defaults.

Times are seconds, sizes bytes. Keys are never settings: a setting names the environment variable that
holds one, so that a settings object can be printed, stored and handed to workers.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]

WORKER_SETTINGS: Final = "OPENRESPONSES_BRIDGE_SETTINGS"
"""The environment variable through which worker processes get their settings, as JSON."""


class SettingsError(ValueError):
    """Settings that can't be used; the message names the file or flag and the field."""


class Timeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait for an upstream: to be connected, for the first byte of its answer, between
    two reads, and for one whole response."""

    connect: Seconds = 10.0
    first_byte: Seconds = 300.0
    idle: Seconds = 300.0
    total: Seconds = 3600.0


class UpstreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One upstream. `models` are the names it serves, none meaning every name; `model` is the name
    under which requests go out, none meaning the name that the client gave."""

    url: str
    name: str = "upstream"
    dialect: str = "chat"
    model: str | None = None
    models: list[str] = []
    api_key_env: str | None = None


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything `serve` can be told. Without upstreams the built-in demo model is served."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    workers: Count = 1
    upstreams: list[UpstreamSettings] = []
    timeouts: Timeouts = Timeouts()
    store: str = "memory://"
    event_log: str = "memory://"
    stored_responses: Count = 1000
    max_body_bytes: Count = 32 * 1024 * 1024
    keep_alive: Seconds = 15.0


def load_settings(config: Path | None = None, **overrides: Any) -> Settings:
    """Settings from the file with `overrides` put over them; None among those means "not given".

    Raises SettingsError naming the file and the field.
    """
    fields = _read(config) if config is not None else {}
    fields.update({name: value for name, value in overrides.items() if value is not None})
    where = f"{config}: " if config is not None else ""
    try:
        settings = msgspec.convert(fields, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}{error}") from error
    for upstream in settings.upstreams:
        api_key(upstream)
    return settings


def api_key(upstream: UpstreamSettings) -> str | None:
    """The upstream's key out of the environment. Raises SettingsError when its variable is not set."""
    if upstream.api_key_env is None:
        return None
    key = os.environ.get(upstream.api_key_env)
    if not key:
        raise SettingsError(f"the environment variable {upstream.api_key_env} is not set")
    return key


def to_workers(settings: Settings) -> None:
    """Leave the settings where worker processes find them."""
    os.environ[WORKER_SETTINGS] = msgspec.json.encode(settings).decode()


def of_worker() -> Settings:
    """The settings that the parent process left."""
    return msgspec.json.decode(os.environ[WORKER_SETTINGS], type=Settings)


def _read(config: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(config.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{config}: {error}") from error
