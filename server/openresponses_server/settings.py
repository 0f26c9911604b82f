"""What the server runs with. The order of precedence is: flags, environment, the TOML file, defaults.

Times are seconds, sizes bytes. Keys of upstreams are never settings: a setting names the environment
variable that holds one, so that a settings object can be printed, stored and handed to workers; of the
keys that clients have to show only hashes are kept.

docs/settings.md is drawn from `Settings` and the tables in it: a docstring says of each field, as
`` `name`: … ``, what it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from openresponses_bridge.protocol.request import Restart
from openresponses_server.settings.files import (
    ConfigError,
    about,
    expanded,
    hashed,
    located,
    read_config,
    substituted,
    wrong_fields,
)
from openresponses_server.settings.hosts import named_host
from openresponses_server.settings.setting_tables import (
    Capabilities,
    CodexSettings,
    Count,
    Limits,
    LogLevel,
    Playback,
    Retries,
    Seconds,
    Timeouts,
    Tracing,
    UpstreamSettings,
)

__all__ = [
    "EMBEDDED_STORE",
    "KEYS_VARIABLES",
    "SOCKET",
    "WORKER_SETTINGS",
    "Capabilities",
    "CodexSettings",
    "Limits",
    "LogLevel",
    "Playback",
    "Retries",
    "Settings",
    "SettingsError",
    "Timeouts",
    "Tracing",
    "UpstreamSettings",
    "api_key",
    "is_address",
    "load_settings",
    "of_worker",
    "recording_path",
    "seconds_of",
    "to_workers",
]

_RECORDING: Final = "recording:"
SOCKET: Final = "unix:"
"""What begins an address that is the path of a Unix socket."""
_FILES: Final = ("socket", "ca_file", "client_cert", "client_key")  # paths among the fields of an upstream
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}

# fields whose variables are looked up where they are used, so that no settings object holds a secret
_KEPT: Final = frozenset({"api_key", "env", "headers", "proxy"})

WORKER_SETTINGS: Final = "OPENRESPONSES_BRIDGE_SETTINGS"
"""The environment variable through which worker processes get their settings, as JSON."""


SettingsError = ConfigError
"""Settings that can't be used; the message names the file or flag and the field."""

EMBEDDED_STORE: Final = "sqlite:"
"""Where `serve` keeps responses unless `store` is set: a file in the user's data folder."""
KEYS_VARIABLES: Final = {
    "api_keys": "OPENRESPONSES_BRIDGE_API_KEYS",
    "operator_keys": "OPENRESPONSES_BRIDGE_OPERATOR_KEYS",
}
"""Settings that hold keys → the variables that give them, with commas between, where the file has none."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of `serve`. Without upstreams the built-in demo model is served.

    `host`: the address to listen on; beyond loopback `api_keys` have to be set.
    `port`: the port to listen on; 0 takes a free one.
    `workers`: number of processes.
    `upstreams`: where models are reached, one table each.
    `aliases`: further names of models, each for another name or `upstream/model`.
    `profiles`: a folder with profiles of your own, one `NAME.toml` each, from the folder of the file; they
    count before the known ones of the same name.
    `default_model`: the model of a request that names none.
    `models`: what models can do, by their names, with `*` and `?` as wildcards.
    `tokenizers`: of models, by their names with `*` and `?`: a `tokenizer.json` by its path or, as
    `tiktoken:o200k_base`, an encoding. With the extra `[tokenizers]`; without, and for other models, tokens
    are estimated. Nothing is fetched.
    `discovery`: for which what upstreams list of their models counts.
    `api_keys`: what clients have to show: keys, `${VARIABLE}` or `sha256:…`; only hashes are kept.
    `operator_keys`: what those have to show who read `/metrics`, in the same forms.
    `cors_origins`: web pages that may ask, as `https://app.example`, or `*`.
    `allowed_hosts`: names under which the server is asked beside those of loopback, without ports. Without
    keys no others are answered.
    `sealing_key_env`: the variable that holds the key for `encrypted_content`, 32 bytes in hex or base64;
    without, one is made and kept in the data folder.
    `limits`: what requests may take.
    `timeouts`: how long to wait for upstreams.
    `store`: where responses are kept: `sqlite:` (a file in the data folder), `sqlite:///FILE`,
    `postgresql+psycopg://…` or `memory://`.
    `event_log`: where running streams are logged: `memory://`, or `redis://…` for several workers.
    `stored_responses`: how many a store in memory keeps.
    `retention`: how long responses are kept, as `90m`, `12h`, `30d` or `forever`.
    `usage_retention`: how long the sums of what keys spent are kept, in the same way.
    `checkpoint_interval`: between two checkpoints of a running response.
    `lease`: seconds without renewal after which a worker counts as stopped.
    `background_restart`: which background responses are made again after a crash: `unseen`, of whose output
    nobody can have seen anything, or `always`; their output is shown when they have ended.
    `log_level`: from which level on lines are logged; `debug` adds what each event of an answer for VS Code
    became, without content.
    `drain`: how long responses that have begun may take when the server is stopped, as `30s`, `10m` or `1h`.
    `max_body_bytes`: a body as it comes and uncompressed, and a WebSocket message inflated.
    `record`: a folder in which what each upstream is asked and sends is recorded, one file each; without,
    nothing is. Relative to the folder of the file.
    `record_bytes`: of one recording; what comes when it is full is not recorded.
    `trace`: traces of single responses.
    `keep_alive`: seconds without an event after which a stream gets a comment.
    `websocket_limit`: how long a WebSocket may be open.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    workers: Count = 1
    upstreams: list[UpstreamSettings] = []
    aliases: dict[str, str] = {}
    profiles: str | None = None
    default_model: str | None = None
    models: dict[str, Capabilities] = {}
    tokenizers: dict[str, str] = {}
    discovery: Seconds = 60.0
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
    usage_retention: Annotated[str, Meta(pattern=r"^(forever|[0-9]{1,6}[smhdw])$")] = "400d"
    checkpoint_interval: Seconds = 1.0
    lease: Annotated[float, Meta(ge=1)] = 10.0
    background_restart: Restart = "unseen"
    log_level: LogLevel = "info"
    drain: Annotated[str, Meta(pattern=r"^[0-9]{1,6}[smhdw]$")] = "10m"
    max_body_bytes: Count = 32 * 1024 * 1024
    record: str | None = None
    record_bytes: Annotated[int, Meta(ge=128 * 1024)] = 1 << 30
    trace: Tracing = Tracing()
    keep_alive: Seconds = 15.0
    websocket_limit: Seconds = 3600.0


def load_settings(config: Path | None = None, **overrides: Any) -> Settings:
    """Settings from the file with `overrides` put over them; None among those means "not given".

    Raises SettingsError naming the file and its line, and the field.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    with located(config, given):
        read = read_config(config) if config is not None else {}
        fields = {"store": EMBEDDED_STORE} | read | given
        if isinstance(read.get("trace"), dict) and "trace" in given:
            fields["trace"] = read["trace"] | given["trace"]
        settings = _checked(substituted(fields, kept=_KEPT))
        profiles = _folder(settings.profiles, config)
        record = _made_folder(settings.record, None if "record" in given else config, "$.record")
        traces = _made_folder(settings.trace.folder, None if "trace" in given else config, "$.trace.folder")
    keys = {name: _hashes(getattr(settings, name), variable) for name, variable in KEYS_VARIABLES.items()}
    where = Path() if "upstreams" in given or config is None else config.parent
    return msgspec.structs.replace(
        settings,
        profiles=profiles,
        record=record,
        trace=msgspec.structs.replace(
            settings.trace, folder=traces, keys=[hashed(key.strip()) for key in settings.trace.keys]
        ),
        upstreams=[_placed(each, where) for each in settings.upstreams],
        **keys,
    )


def _made_folder(named: str | None, config: Path | None, at: str) -> str | None:
    """This folder with its whole path; it is made when it is needed."""
    if named is None:
        return None
    folder = (config.parent if config is not None else Path()).joinpath(named).absolute()
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"{named!r} is not a folder", at)
    return str(folder)


def recording_path(url: str | None) -> Path | None:
    """The file of an upstream that is a recording, None for any other."""
    return Path(url.removeprefix(_RECORDING)) if url is not None and url.startswith(_RECORDING) else None


def is_address(text: str) -> bool:
    """Whether this says where an upstream is; else it is the name of a profile."""
    return "://" in text or text.startswith((_RECORDING, SOCKET))


def _placed(upstream: UpstreamSettings, folder: Path) -> UpstreamSettings:
    """The same with the whole paths of its files: workers may run elsewhere."""
    placed = {
        field: str(folder.joinpath(Path(named).expanduser()).absolute())
        for field in _FILES
        if (named := getattr(upstream, field)) is not None
    }
    for prefix in (_RECORDING, SOCKET):
        if (url := upstream.url) is not None and url.startswith(prefix):
            path = Path(url.removeprefix(prefix)).expanduser()
            placed["url"] = f"{prefix}{folder.joinpath(path).absolute()}"
    return msgspec.structs.replace(upstream, **placed)


def _checked(fields: dict[str, Any]) -> Settings:
    try:
        settings = msgspec.convert(fields, Settings)
    except msgspec.ValidationError as error:
        raise wrong_fields(error, Settings) from error
    for number, upstream in enumerate(settings.upstreams):
        with about(f"$.upstreams[{number}]"):
            if upstream.url is None and upstream.profile is None:
                raise SettingsError("neither url nor profile is given")
            api_key(upstream)
    for number, host in enumerate(settings.allowed_hosts):
        if named_host(host) is None:
            what = f"{host[:80]!r} is not the name or address of a host"
            raise SettingsError(what, f"$.allowed_hosts[{number}]")
    return settings


def _folder(named: str | None, config: Path | None) -> str | None:
    """This folder with its whole path: workers may run elsewhere."""
    if named is None:
        return None
    folder = (config.parent if config is not None else Path()).joinpath(named).absolute()
    if not folder.is_dir():
        raise SettingsError(f"{named!r} is not a folder", "$.profiles")
    return str(folder)


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
        return expanded(upstream.api_key, ".api_key") if upstream.api_key else None
    key = os.environ.get(upstream.api_key_env)
    if not key:
        raise SettingsError(f"the environment variable {upstream.api_key_env} is not set", ".api_key_env")
    return key


def to_workers(settings: Settings) -> None:
    """Leave the settings where worker processes find them."""
    os.environ[WORKER_SETTINGS] = msgspec.json.encode(settings).decode()


def of_worker() -> Settings:
    """The settings that the parent process left."""
    return msgspec.json.decode(os.environ[WORKER_SETTINGS], type=Settings)
