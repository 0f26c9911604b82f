"""What the server runs with. The order of precedence is: flags, environment, the TOML file, defaults.

Times are seconds, sizes bytes. Keys of upstreams are never settings: a setting names the environment
variable that holds one, so that a settings object can be printed, stored and handed to workers; of the
keys that clients have to show only hashes are kept.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from server.config import ConfigError, expanded, hashed, read_config, substituted
from server.hosts import named_host

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}

# fields whose variables are looked up where they are used, so that no settings object holds a secret
_KEPT: Final = frozenset({"api_key", "headers"})

WORKER_SETTINGS: Final = "OPENRESPONSES_BRIDGE_SETTINGS"
"""The environment variable through which worker processes get their settings, as JSON."""


SettingsError = ConfigError
"""Settings that can't be used; the message names the file or flag and the field."""

EMBEDDED_STORE: Final = "sqlite:"
"""Where `serve` keeps responses unless `store` is set: a file in the user's data folder."""
# settings that hold keys → the variables that give them where the file has none
_KEYS_VARIABLES: Final = {
    "api_keys": "OPENRESPONSES_BRIDGE_API_KEYS",
    "operator_keys": "OPENRESPONSES_BRIDGE_OPERATOR_KEYS",
}


class Timeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait for an upstream: to be connected, for the first byte of its answer, between
    two reads, and for one whole response."""

    connect: Seconds = 10.0
    first_byte: Seconds = 300.0
    idle: Seconds = 300.0
    total: Seconds = 3600.0


class Retries(Struct, frozen=True, forbid_unknown_fields=True):
    """How often a request is made again at the same upstream before its first byte has come. The wait
    doubles from `first_wait`; an upstream's `retry-after` counts instead, and one beyond `longest_wait`
    is not waited for."""

    times: Annotated[int, Meta(ge=0, le=10)] = 0
    first_wait: Seconds = 0.5
    longest_wait: Seconds = 20.0


class UpstreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One upstream. A `profile` fills in what is not said here.

    `models` are the names it serves, with `*` and `?` as wildcards, none meaning every name; `model` is
    the name under which requests go out, none meaning the name that the client gave. `failover` names
    the upstreams that are asked when this one is down or busy, as `name` or `name/model`. `api_key` and
    the values of `headers` may hold `${VARIABLE}`. With `pass_through` the client's own key goes out.
    `options` are the dialect's, over those of the profile.
    """

    url: str | None = None
    profile: str | None = None
    name: str | None = None
    dialect: str | None = None
    model: str | None = None
    models: list[str] = []
    api_key_env: str | None = None
    api_key: str | None = None
    pass_through: bool = False
    headers: dict[str, str] = {}
    options: dict[str, Any] = {}
    timeouts: Timeouts | None = None
    retries: Retries = Retries()
    failover: list[str] = []


class Capabilities(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a model can do; None is not known. `context_window` and `max_output_tokens` are tokens."""

    context_window: Count | None = None
    max_output_tokens: Count | None = None
    tools: bool | None = None
    images: bool | None = None
    reasoning: bool | None = None


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """What one request, and what all together, may take (law S8). `depth` is the nesting of a request's
    JSON and `json_values` how many values it has, containers and what is in them; `items` are those of the
    input and of the turns that it continues, `tools` those that a request declares, in namespaces and in
    input items too. `output_bytes` is what an upstream may send for one response, `grace` how long running
    ones have when the server stops, `choices` the most that `n` of a Chat Completions request may be. A JSON
    schema for the answer has at most `schema_bytes` and `schema_nodes` values, and judging one answer by it
    takes at most `schema_seconds`.

    At once, of all keys and of each one: `concurrent` responses being made, `background` ones waiting for
    their turn, `readers` of stored responses, open WebSockets (`sockets`), `loaded_bytes` of conversations in
    memory. Without keys only the first of each pair counts. `conversation_bytes` bounds what
    `previous_response_id` stands for, `reference_bytes` what the `item_reference`s of one request bring in.

    Of a connection: its headers have to come within `header_seconds`; of a body or WebSocket message at least
    1 KB/s on average within each `body_seconds`. One whose client takes nothing for `write_seconds` is cut
    off, and one that is asked nothing for `idle_seconds` is closed. One process has at most `connections`."""

    header_bytes: Count = 64 * 1024
    tools: Count = 1024
    depth: Annotated[int, Meta(ge=8, le=500)] = 128
    json_values: Count = 500_000
    items: Count = 10_000
    output_bytes: Count = 256 * 1024 * 1024
    choices: Count = 8
    concurrent: Count = 2000
    concurrent_per_key: Count = 500
    background: Count = 5000
    background_per_key: Count = 1000
    readers: Count = 1000
    readers_per_key: Count = 200
    conversation_bytes: Count = 32 * 1024 * 1024
    reference_bytes: Count = 4 * 1024 * 1024
    loaded_bytes: Count = 512 * 1024 * 1024
    loaded_bytes_per_key: Count = 128 * 1024 * 1024
    schema_bytes: Count = 256 * 1024
    schema_nodes: Count = 10_000
    schema_seconds: Seconds = 5.0
    grace: Seconds = 10.0
    header_seconds: Seconds = 20.0
    body_seconds: Seconds = 30.0
    write_seconds: Seconds = 60.0
    idle_seconds: Seconds = 75.0
    connections: Count = 4000
    sockets: Count = 1000
    sockets_per_key: Count = 100


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of `serve`. Without upstreams the built-in demo model is served.

    `aliases` are further names of models, each for another name or `upstream/model`; `models` says what
    models (by name, with wildcards) can do. `api_keys` are what clients have to show: keys, `${VARIABLE}`
    or `sha256:…` in the file, hashes here; `operator_keys`, in the same way, what those have to show who read
    `/metrics`. `cors_origins` are the web pages that may ask, as `https://app.example`, or `*`;
    `allowed_hosts` the names under which the server is asked beside those of loopback, without ports: without
    keys no others are answered. `sealing_key_env` names the variable that holds the key for
    `encrypted_content`, 32 bytes in hex or base64; without, one is made and kept in the data folder.

    `stored_responses` bounds the store in memory. `retention` is how long responses are kept, as `90m`,
    `12h`, `30d` or `forever`. A running one is checkpointed every `checkpoint_interval`; a worker that gives
    renewal for as long as a `lease` counts as stopped.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    workers: Count = 1
    upstreams: list[UpstreamSettings] = []
    aliases: dict[str, str] = {}
    default_model: str | None = None
    models: dict[str, Capabilities] = {}
    api_keys: list[str] = []
    operator_keys: list[str] = []
    cors_origins: list[str] = []
    allowed_hosts: list[str] = []
    sealing_key_env: str | None = None
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    store: str = "memory://"
    event_log: str = "memory://"
    stored_responses: Count = 1000
    retention: Annotated[str, Meta(pattern=r"^(forever|[0-9]{1,6}[smhdw])$")] = "30d"
    checkpoint_interval: Seconds = 1.0
    lease: Annotated[float, Meta(ge=1)] = 10.0
    max_body_bytes: Count = 32 * 1024 * 1024
    keep_alive: Seconds = 15.0
    websocket_limit: Seconds = 3600.0


def load_settings(config: Path | None = None, **overrides: Any) -> Settings:
    """Settings from the file with `overrides` put over them; None among those means "not given".

    Raises SettingsError naming the file and the field.
    """
    fields = {"store": EMBEDDED_STORE} | (read_config(config) if config is not None else {})
    fields.update({name: value for name, value in overrides.items() if value is not None})
    where = f"{config}: " if config is not None else ""
    try:
        fields = substituted(fields, kept=_KEPT)
        settings = msgspec.convert(fields, Settings)
        for number, upstream in enumerate(settings.upstreams):
            if upstream.url is None and upstream.profile is None:
                raise SettingsError(f"neither url nor profile is given - at `$.upstreams[{number}]`")
            api_key(upstream)
        for number, host in enumerate(settings.allowed_hosts):
            if named_host(host) is None:
                what = f"{host[:80]!r} is not the name or address of a host"
                raise SettingsError(f"{what} - at `$.allowed_hosts[{number}]`")
    except (msgspec.ValidationError, SettingsError) as error:
        raise SettingsError(f"{where}{error}") from error
    keys = {name: _hashes(getattr(settings, name), variable) for name, variable in _KEYS_VARIABLES.items()}
    return msgspec.structs.replace(settings, **keys)


def _hashes(given: list[str], variable: str) -> list[str]:
    """These keys, else those of the variable, as they are kept."""
    keys = given or [key for key in os.environ.get(variable, "").split(",") if key.strip()]
    return [hashed(key.strip()) for key in keys]


def seconds_of(duration: str) -> float | None:
    """A duration as `retention` has it, in seconds; None for `forever`."""
    return None if duration == "forever" else int(duration[:-1]) * float(_UNITS[duration[-1]])


def api_key(upstream: UpstreamSettings) -> str | None:
    """The upstream's key out of the environment. Raises SettingsError when its variable is not set."""
    if upstream.api_key_env is None:
        return expanded(upstream.api_key) if upstream.api_key else None
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
