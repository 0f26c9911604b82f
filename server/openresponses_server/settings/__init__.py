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
from typing import Annotated, Any, Final, Literal

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

# The tables of the config: what is set for one upstream, for a model, for requests and times.
#
# docs/settings.md is drawn from these classes and from `Settings`: their docstrings say of each field, as
# `` `name`: … ``, what it is.

Seconds = Annotated[float, Meta(gt=0, extra={"unit": "seconds"})]
Count = Annotated[int, Meta(ge=1)]


class Timeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait for an upstream. Without a table of its own an upstream has that of the top level.

    `connect`: for the connection.
    `first_byte`: for the first byte of its answer.
    `idle`: between two reads of an answer.
    `total`: for one whole response.
    """

    connect: Seconds = 10.0
    first_byte: Seconds = 300.0
    idle: Seconds = 300.0
    total: Seconds = 3600.0


class Retries(Struct, frozen=True, forbid_unknown_fields=True):
    """How a request is made again at the same upstream, before the first byte of its answer has come.

    `times`: how often.
    `first_wait`: before the first repetition; each further wait is twice the last one. What an upstream
    says in `retry-after` counts instead.
    `longest_wait`: an upstream that asks for a longer one is not waited for.
    """

    times: Annotated[int, Meta(ge=0, le=10)] = 0
    first_wait: Seconds = 0.5
    longest_wait: Seconds = 20.0


class Playback(Struct, frozen=True, forbid_unknown_fields=True):
    """How a recording answers (`url = "recording:FILE"`).

    `speed`: `real`, `max` (without waiting) or how many times as fast.
    `match`: `request` answers with the next exchange of the same model and the same last input, `order` with
    the next one, whatever is asked.
    `loop`: when all that would answer have been played, it begins again with the first of them.
    """

    speed: Annotated[float, Meta(gt=0, le=1e6)] | Literal["real", "max"] = "real"
    match: Literal["request", "order"] = "request"
    loop: bool = False


class CodexSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Codex as an upstream: `codex app-server` as the server's own process. No client can change any of this.

    `path`: the program; a name is looked for in the server's `PATH`.
    `args`: what follows `app-server`, as `["-c", "model_provider=local"]`.
    `env`: further environment variables of the process, where its keys belong; values may hold `${VARIABLE}`.
    Of the server's own it gets the names of folders and languages only.
    `home`: the folder with Codex's configuration and login (`CODEX_HOME`); without, the user's own.
    `cwd`: the folder that it works in, whoever asks; without, an empty one for each key, removed in the end.
    `sandbox`: what its commands may do: `read-only`, `workspace-write` or `danger-full-access`. Reading is
    not held to `cwd` in any of them.
    `approvals`: who answers when it asks for leave: `never` refuses, `auto` accepts, `ask` asks the client.
    `approval_policy`: when it asks: `untrusted`, `on-request` or `never`; without, `never` where `approvals`
    is that, else `on-request`.
    `processes`: how many run at most.
    `threads`: conversations that are kept at most; one that is continued later is made anew from its history.
    `turns`, `turns_per_key`: turns at once.
    `queue`: requests that wait for a turn; more are refused.
    `queue_seconds`: how long they wait.
    `start_seconds`: in which it has to be ready.
    `answer_seconds`: in which it has to answer a request of ours.
    `approval_seconds`: how long a turn waits for its client's answer.
    `stop_seconds`: in which an interrupted turn, and a process that is stopped, have to end.
    `line_bytes`: one line that it writes.
    `turn_bytes`: what it may have said of one turn that the client has not taken.
    """

    path: str = "codex"
    args: list[str] = []
    env: dict[str, str] = {}
    home: str | None = None
    cwd: str | None = None
    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = "read-only"
    approvals: Literal["never", "auto", "ask"] = "never"
    approval_policy: Literal["untrusted", "on-request", "never"] | None = None
    processes: Annotated[int, Meta(ge=1, le=64)] = 1
    threads: Count = 64
    turns: Count = 8
    turns_per_key: Count = 4
    queue: Annotated[int, Meta(ge=0)] = 32
    queue_seconds: Seconds = 30.0
    start_seconds: Seconds = 30.0
    answer_seconds: Seconds = 30.0
    approval_seconds: Seconds = 300.0
    stop_seconds: Seconds = 5.0
    line_bytes: Count = 16 * 1024 * 1024
    turn_bytes: Count = 16 * 1024 * 1024


class Tracing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traces of responses: all that their clients and upstreams sent and were sent, for whoever owns them.

    `folder`: where they are kept; without, there are none. Relative to the folder of the file.
    `when`: `always`, or `asked`: for requests with the header `openresponses-trace: 1`.
    `keys`: the keys whose requests may be traced, as `api_keys` has them; without, everybody's.
    `retention`: how long they are kept, as `90m`, `12h`, `30d` or `forever`.
    `bytes`: of one trace; what comes when it is full is not in it.
    `total_bytes`: of all of them; beyond, the oldest of the key that has most go.
    """

    folder: str | None = None
    when: Literal["always", "asked"] = "always"
    keys: list[str] = []
    retention: Annotated[str, Meta(pattern=r"^(forever|[0-9]{1,6}[smhdw])$")] = "1d"
    bytes: Annotated[int, Meta(ge=128 * 1024)] = 64 * 1024 * 1024
    total_bytes: Annotated[int, Meta(ge=1024 * 1024)] = 1 << 30


class UpstreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One upstream: a server that has models. `url` or `profile` has to be there.

    `url`: its address, with or without `/v1`, or `recording:FILE`, a recording that answers in its place.
    `profile`: a known provider, which fills in what is not said here.
    `name`: how other settings, `upstream/model` and messages name it; without, the profile's name.
    `dialect`: what it speaks: `chat`, `anthropic`, `responses` or `codex`; without, the profile's, else
    `chat`.
    `model`: the name under which requests go out; without, the name that the client gave.
    `models`: the names that it serves, with `*` and `?` as wildcards; without, every name.
    `api_key_env`: the environment variable that holds its key; a profile knows the usual one.
    `api_key`: its key, as `${VARIABLE}`.
    `pass_through`: the key that the client shows goes out; `api_keys` are not allowed then.
    `headers`: further headers of each request; values may hold `${VARIABLE}`.
    `proxy`: the proxy that it is reached through, as `http://user:${PASSWORD}@host:port`, or `none`; without,
    what `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` say, which never count for this machine.
    `socket`: a Unix socket that stands for the address's host and port; `url = "unix:/path"` names one too.
    `verify`: which authorities its certificate is checked by: `true` for those of OpenSSL, which
    `SSL_CERT_FILE` replaces, `"system"` for those of the system's own store. With `false` it is not checked,
    and whoever is in between reads all.
    `ca_file`: a file in PEM with the authorities that are trusted instead of those.
    `client_cert`: a file in PEM with the certificate that is shown to it, and its key.
    `client_key`: the file of that key, where it has one of its own.
    `options`: what it wants where servers of its dialect differ, over those of the profile.
    `reasoning_as`: how its raw reasoning is shown: `raw`, as a `summary`, which some clients show alone, or
    as `both`. A request's header `openresponses-reasoning-as` counts before it.
    `timeouts`: how long to wait for it, instead of those of the top level.
    `retries`: how often it is asked again.
    `text_after_tools`: whether clients of Chat Completions get what its models say after a tool call;
    without, from every dialect but `codex`.
    `failover`: upstreams that are asked when this one is down or busy, as `name` or `name/model`.
    `playback`: how it answers when it is a recording.
    `trace_context`: requests name their span in `traceparent` (OpenTelemetry, extra `[otel]`).
    `codex`: the process, where the dialect is `codex`.
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
    proxy: str | None = None
    socket: str | None = None
    verify: bool | Literal["system"] = True
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    options: dict[str, Any] = {}
    reasoning_as: Literal["raw", "summary", "both"] = "raw"
    timeouts: Timeouts | None = None
    retries: Retries = Retries()
    text_after_tools: bool | None = None
    failover: list[str] = []
    playback: Playback = Playback()
    trace_context: bool = False
    codex: CodexSettings | None = None


LogLevel = Literal["debug", "info"]
"""The least level of the lines that are logged."""


class Capabilities(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a model can do; what is left out is not known.

    `context_window`: tokens of input and output together.
    `max_input_tokens`: tokens of input; without, what the window has beside the output.
    `max_output_tokens`: tokens of one answer.
    `tools`: it calls tools.
    `max_tools`: how many it takes in one request; the agent in the terminal offers the first of more.
    `streaming_tool_calls`: it calls them in streams too; a model that does not is asked for whole answers
    where there are tools.
    `images`: it takes images.
    `reasoning`: it reasons before it answers.
    """

    context_window: Count | None = None
    max_input_tokens: Count | None = None
    max_output_tokens: Count | None = None
    tools: bool | None = None
    max_tools: Count | None = None
    streaming_tool_calls: bool | None = None
    images: bool | None = None
    reasoning: bool | None = None


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """What one request, and what all together, may take. What is beyond is refused by name.

    `header_bytes`: a request's line and headers.
    `tools`: those that a request declares, in namespaces and in input items too.
    `depth`: the nesting of a request's JSON.
    `json_values`: how many values it has, containers and what is in them.
    `items`: those of the input and of the turns that it continues.
    `output_bytes`: what an upstream may send for one response; frames without an event count for more.
    `choices`: the most that `n` of a Chat Completions request may be.
    `concurrent`, `concurrent_per_key`: responses being made, of all keys and of each one. Without keys only
    the first of such a pair counts.
    `background`, `background_per_key`: background responses that wait for their turn.
    `readers`, `readers_per_key`: readers of stored responses: streams, whole ones and pages of input.
    `conversation_bytes`: what `previous_response_id` stands for.
    `reference_bytes`: what the `item_reference`s of one request bring in.
    `stored_reference_bytes`: the same of a request that is stored, which stores it too, beside 32 times its
    own input.
    `loaded_bytes`, `loaded_bytes_per_key`: conversations and bodies in memory at once, also those of which a
    part has come: as much as it is uncompressed.
    `schema_bytes`, `schema_nodes`: a JSON schema for the answer: its size, and how many values it has.
    `schema_seconds`: judging one answer by its schema.
    `grace`: how long running responses have when the server is stopped by Ctrl-C or a second signal.
    `header_seconds`: in which the headers of a request have to be complete.
    `body_seconds`: in each of which a body or WebSocket message has to bring 1 KB/s on average, or its end.
    `body_total_seconds`: in which a body or WebSocket message has to have come.
    `write_seconds`: after which a client is cut off that takes nothing of what is sent to it.
    `idle_seconds`: for which a connection is kept for the next request.
    `connections`: open ones of one process.
    `sockets`, `sockets_per_key`: open WebSockets.
    `requests_per_minute_per_key`: requests for a response of each key; without, any number.
    `tokens_per_minute_per_key`: tokens in and out of each key, counted when a response has ended; without,
    any number.
    `stored_bytes_per_key`: stored responses of each key, with their input and events; without, any number.
    """

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
    stored_reference_bytes: Count = 64 * 1024
    loaded_bytes: Count = 512 * 1024 * 1024
    loaded_bytes_per_key: Count = 128 * 1024 * 1024
    schema_bytes: Count = 256 * 1024
    schema_nodes: Count = 10_000
    schema_seconds: Seconds = 5.0
    grace: Seconds = 10.0
    header_seconds: Seconds = 20.0
    body_seconds: Seconds = 30.0
    body_total_seconds: Seconds = 600.0
    write_seconds: Seconds = 60.0
    idle_seconds: Seconds = 75.0
    connections: Count = 4000
    sockets: Count = 1000
    sockets_per_key: Count = 100
    requests_per_minute_per_key: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    tokens_per_minute_per_key: Annotated[int, Meta(ge=1, le=10**12)] | None = None
    stored_bytes_per_key: Count | None = None


_RECORDING: Final = "recording:"
SOCKET: Final = "unix:"
"""What begins an address that is the path of a Unix socket."""
_FILES: Final = ("socket", "ca_file", "client_cert", "client_key")  # paths among the fields of an upstream
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}

# fields whose variables are looked up where they are used, so that no settings object holds a secret
_UNEXPANDED: Final = frozenset({"api_key", "env", "headers", "proxy"})

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
        settings = _validated(substituted(fields, kept=_UNEXPANDED))
        profiles = _folder(settings.profiles, config)
        record = _absolute_folder(settings.record, None if "record" in given else config, "$.record")
        traces = _absolute_folder(
            settings.trace.folder, None if "trace" in given else config, "$.trace.folder"
        )
    keys = {name: _hashes(getattr(settings, name), variable) for name, variable in KEYS_VARIABLES.items()}
    where = Path() if "upstreams" in given or config is None else config.parent
    return msgspec.structs.replace(
        settings,
        profiles=profiles,
        record=record,
        trace=msgspec.structs.replace(
            settings.trace, folder=traces, keys=[hashed(key.strip()) for key in settings.trace.keys]
        ),
        upstreams=[_with_absolute_paths(each, where) for each in settings.upstreams],
        **keys,
    )


def _absolute_folder(named: str | None, config: Path | None, at: str) -> str | None:
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


def _with_absolute_paths(upstream: UpstreamSettings, folder: Path) -> UpstreamSettings:
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


def _validated(fields: dict[str, Any]) -> Settings:
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
