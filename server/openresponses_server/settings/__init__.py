"""The settings of the server. The order of precedence is: flags, environment, the TOML file, defaults.

Times are seconds, sizes bytes. Keys of upstreams are never settings: a setting names the environment variable
with the key, so that settings can be printed, stored and passed to workers. Of clients' keys only hashes are
kept.

docs/settings.md is generated from these classes and the docstrings below their fields.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from openresponses_bridge.protocol.request import Restart
from openresponses_server.settings.files import (
    ConfigError,
    Mistakes,
    about,
    converted,
    deprecated_in,
    expanded,
    hashed,
    located,
    place_in,
    read_config,
    substituted,
)
from openresponses_server.settings.hosts import authority_of, host_name, is_loopback

__all__ = [
    "CAUSES",
    "EMBEDDED_STORE",
    "KEYS_VARIABLES",
    "SOCKET",
    "WORKER_SETTINGS",
    "Capabilities",
    "Cause",
    "CircuitSettings",
    "CodexSettings",
    "Forwarded",
    "FunctionSettings",
    "HostedLimits",
    "Limits",
    "LogLevel",
    "McpServerSettings",
    "OidcSettings",
    "Playback",
    "Price",
    "PriceTier",
    "Retries",
    "Settings",
    "SettingsError",
    "Timeouts",
    "TokenPrice",
    "Tracing",
    "UpstreamSettings",
    "WebSearchSettings",
    "WireKeys",
    "api_key",
    "deprecated_settings",
    "is_address",
    "load_settings",
    "of_worker",
    "recording_path",
    "seconds_of",
    "to_workers",
]


Seconds = Annotated[float, Meta(gt=0, extra={"unit": "seconds"})]
Count = Annotated[int, Meta(ge=1)]


class Timeouts(Struct, frozen=True, forbid_unknown_fields=True):
    """Timeouts of an upstream. An upstream without a table of its own has those of the top level."""

    connect: Seconds = 10.0
    """For opening the connection."""
    first_byte: Seconds = 300.0
    """For the first byte of an answer."""
    idle: Seconds = 300.0
    """Between two reads of an answer; comments do not count."""
    total: Seconds = 3600.0
    """For a whole response."""


class Retries(Struct, frozen=True, forbid_unknown_fields=True):
    """Retries of a request at the same upstream, before the first byte of its answer has arrived."""

    times: Annotated[int, Meta(ge=0, le=10)] = 0
    """The number of retries."""
    first_wait: Seconds = 0.5
    """The wait before the first retry. Each further wait is twice as long. An upstream's `retry-after`
    replaces it."""
    longest_wait: Seconds = 20.0
    """An upstream that asks for a longer wait is not retried."""


Cause = Literal["connection", "401", "402", "403", "404", "408", "429", "5xx"]
"""Why a request was refused, or had no answer, where another upstream may answer it."""
CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)


class CircuitSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits beyond which a failing upstream is left out, where another one can be asked."""

    failures: Annotated[int, Meta(ge=1, le=1000)] = 5
    """The failures in a row, of a model with a key or of all connections, after which it is left out. A
    failure counts if another upstream has answered the same request."""
    seconds: Annotated[float, Meta(gt=0, le=600, extra={"unit": "seconds"})] = 30.0
    """For how long it is left out. Then one request probes it, and each time that fails it is left out for
    twice as long, at most for ten minutes."""


class Playback(Struct, frozen=True, forbid_unknown_fields=True):
    """The way a recording answers (`url = "recording:FILE"`)."""

    speed: Annotated[float, Meta(gt=0, le=1e6)] | Literal["real", "max"] = "real"
    """`real`, `max` (without waiting), or a factor."""
    match: Literal["request", "order"] = "request"
    """`request` answers with the next exchange of the same model and the same last input, `order` with the
    next one."""
    loop: bool = False
    """Whether playing begins again with the first exchange after the last one."""


class SocketSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the WebSockets to an upstream, of each worker."""

    connections: Count = 64
    """The most connections. The one that was idle longest is closed for a new one; if all are busy, a request
    goes over HTTP."""
    idle: Seconds = 300.0
    """How long a connection is kept without a request."""
    age: Seconds = 3300.0
    """How long a connection has new requests. OpenAI ends it after 60 minutes."""
    turns: Count = 1000
    """The most requests of a connection."""
    prewarmed: Annotated[int, Meta(ge=0)] = 8
    """The most connections that were opened ahead and have had no request yet. 0: none is opened ahead."""
    prewarmed_per_key: Count = 2
    """Of these, of one key. Without keys only the first of the two counts."""
    prewarmed_idle: Seconds = 60.0
    """How long such a connection is kept without a request."""
    message_bytes: Annotated[int, Meta(ge=1024, le=256 * 1024 * 1024)] = 16 * 1024 * 1024
    """The most bytes of a message of the upstream."""


class CodexSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Codex as an upstream: `codex app-server` as a process of the server. Clients can't change any of
    this."""

    path: str = "codex"
    """The program. A name is searched in the server's `PATH`."""
    args: list[str] = []
    """Arguments after `app-server`, for example `["-c", "model_provider=local"]`."""
    env: dict[str, str] = {}
    """Additional environment variables of the process, for example its keys. Values may contain
    `${VARIABLE}`. Of the server's own environment the process gets only variables that name folders and
    languages."""
    home: str | None = None
    """The folder with Codex's configuration and login (`CODEX_HOME`). Default: the user's own."""
    cwd: str | None = None
    """The folder that Codex works in, for all keys. Default: an empty folder for each key, removed at the
    end."""
    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = "read-only"
    """What Codex's commands may do: `read-only`, `workspace-write` or `danger-full-access`. None of them
    limits reading to `cwd`."""
    approvals: Literal["never", "auto", "ask"] = "never"
    """Who answers when Codex asks for approval: `never` refuses, `auto` accepts, `ask` asks the client."""
    approval_policy: Literal["untrusted", "on-request", "never"] | None = None
    """When Codex asks: `untrusted`, `on-request` or `never`. Default: `never` if `approvals` is `never`,
    otherwise `on-request`."""
    processes: Annotated[int, Meta(ge=1, le=64)] = 1
    """The most processes."""
    threads: Count = 64
    """The most conversations that are kept. One that was removed is made again from its history."""
    turns: Count = 8
    """The most turns at once."""
    turns_per_key: Count = 4
    """The most turns at once of one key."""
    queue: Annotated[int, Meta(ge=0)] = 32
    """The most requests that wait for a turn. Further ones are refused."""
    queue_seconds: Seconds = 30.0
    """The most time that a request waits for a turn."""
    start_seconds: Seconds = 30.0
    """The time in which the process must be ready."""
    answer_seconds: Seconds = 30.0
    """The time in which Codex must answer a request of the server."""
    approval_seconds: Seconds = 300.0
    """The time that a turn waits for its client's answer."""
    stop_seconds: Seconds = 5.0
    """The time in which an interrupted turn, or a stopped process, must end."""
    line_bytes: Count = 16 * 1024 * 1024
    """The most bytes of a line that Codex writes."""
    turn_bytes: Count = 16 * 1024 * 1024
    """The most bytes of a turn that wait for a slow client."""


class Tracing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traces of responses: everything that their clients and upstreams sent and received, for their
    owners."""

    folder: str | None = None
    """The folder for the traces, relative to the file's folder. Default: no traces."""
    when: Literal["always", "asked"] = "always"
    """`always`, or `asked`: only for requests with the header `openresponses-trace: 1`."""
    keys: list[str] = []
    """The keys whose requests may be traced, in the form of `api_keys`. Default: all."""
    retention: Annotated[str, Meta(pattern=r"^(forever|[0-9]{1,6}[smhdw])\Z")] = "1d"
    """How long traces are kept: for example `90m`, `12h`, `30d`, or `forever`."""
    bytes: Annotated[int, Meta(ge=128 * 1024)] = 64 * 1024 * 1024
    """The most bytes of a trace. The rest is left out."""
    total_bytes: Annotated[int, Meta(ge=1024 * 1024)] = 1 << 30
    """The most bytes of all traces. Beyond that, the oldest ones of the key with the most bytes are
    removed."""


class WireKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys whose clients read one wire, in the form of `api_keys`. A key is in one of the lists."""

    openai: list[str] = []
    """The keys of clients that read OpenAI's names."""
    openresponses: list[str] = []
    """The keys of clients that read the published names."""
    auto: list[str] = []
    """The keys whose wire is chosen by each request and its client."""


Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


class OidcSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An identity provider (OpenID Connect) whose tokens clients may send as keys."""

    issuer: Annotated[str, Meta(min_length=1)]
    """What its tokens have as `iss`, exactly."""
    audience: Annotated[list[str], Meta(min_length=1)]
    """What they have one of as `aud`."""
    jwks: str
    """The https:// address of its keys (JWKS), or an http:// one on this machine. It is never read from a
    token."""
    algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1)] = ("RS256", "ES256")
    """The algorithms of signatures that are accepted."""
    leeway: Annotated[float, Meta(ge=0, le=300, extra={"unit": "seconds"})] = 30.0
    """How far its clock may be from this one."""
    refresh: Annotated[float, Meta(ge=1, extra={"unit": "seconds"})] = 300.0
    """How often its keys are read again. A token of an unknown key has them read at once, at most every ten
    seconds."""
    owner_claim: str = "sub"
    """The claim with the owner of what a token's client stores."""
    models: list[str] = []
    """The names of models that its tokens are for, with `*` and `?` as wildcards. Default: all."""
    models_claim: str | None = None
    """The claim with those names instead, a list or separated by spaces. A token without it is for none."""
    limits_claims: dict[
        Literal["requests_per_minute", "tokens_per_minute", "concurrent", "calls_per_day", "usd_per_day"], str
    ] = {}
    """Limits of a token's owner, each with the claim that has it. Default: those of `limits`."""


class AwsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The credentials with which requests to Amazon's services are signed (extra `[bedrock]`)."""

    profile: str | None = None
    """The profile of Amazon's own config and credentials files. Default: what the environment names:
    `AWS_ACCESS_KEY_ID` and its kin, `AWS_PROFILE`, a web identity, a container's endpoint."""
    region: str | None = None
    """The region in the signature. Default: the one in the address, else the environment's or the
    profile's."""


class UpstreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One upstream: a server with models. It must have a `url` or a `profile`."""

    url: str | None = None
    """The address, with or without `/v1`, or `recording:FILE` for a recording that answers instead of a
    server."""
    profile: str | None = None
    """A known provider, for everything that is not set here."""
    name: str | None = None
    """The name in other settings, in `upstream/model` and in messages. Default: the profile's name."""
    dialect: str | None = None
    """`chat`, `responses`, `anthropic`, `gemini`, `bedrock` or `codex`. Default: the profile's, else
    `chat`."""
    model: str | None = None
    """The name of the model in requests to the upstream. Default: the name that the client gives."""
    models: list[str] = []
    """The names of models that it serves, with `*` and `?` as wildcards. Default: all."""
    api_key_env: str | None = None
    """The environment variable with its key. A profile has the usual one."""
    api_key: str | None = None
    """Its key, as `${VARIABLE}`."""
    api_keys: list[str | list[str]] = []
    """Several keys of it, instead of `api_key`: each as `${VARIABLE}`, or as a program and its arguments that
    print it, as in `api_key_command`. When one is refused or limited, the next one is used."""
    api_key_command: list[str] = []
    """A program and its arguments that print its key, for keys that expire: the key alone, or a JSON object
    with it and the time at which it expires. It is run again shortly before that time, and once when the key
    is refused. Arguments may contain `${VARIABLE}`."""
    api_key_seconds: Seconds = 300.0
    """How long a key that a program prints is used if it does not say when it expires."""
    api_key_header: str | None = None
    """The header that has its key and nothing else, such as `api-key`. Default: the dialect's."""
    query: dict[str, str] = {}
    """Parameters in the address of all requests, such as `api-version`."""
    pass_through: bool = False
    """Whether the client's key is sent to it, instead of its own if it has one. `api_keys` are not allowed
    then, and other upstreams can be used directly from this machine alone, not through a proxy."""
    headers: dict[str, str] = {}
    """Additional headers of all requests. Values may contain `${VARIABLE}`."""
    session_headers: dict[str, str] = {}
    """Headers with an id of the session, such as `x-session-id = "ses_{session}"`. They replace the
    profile's."""
    proxy: str | None = None
    """The proxy, as `http://user:${PASSWORD}@host:port`, or `none`. Default: the one of `HTTPS_PROXY`,
    `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, which do not apply to this machine."""
    socket: str | None = None
    """A Unix socket that is used instead of the address's host and port. `url = "unix:/path"` names one
    too."""
    verify: bool | Literal["system"] = True
    """Which authorities may sign its certificate: `true` for those of OpenSSL, which `SSL_CERT_FILE`
    replaces, `"system"` for those of the operating system. With `false` the certificate is not checked, so
    that anybody on the network path can read everything."""
    ca_file: str | None = None
    """A file in PEM with the authorities that are trusted instead."""
    client_cert: str | None = None
    """A file in PEM with the client certificate and its key."""
    client_key: str | None = None
    """The file with that key, if it is separate."""
    options: dict[str, Any] = {}
    """Options of the dialect, for what differs between its servers. They replace the profile's."""
    model_options: dict[str, dict[str, Any]] = {}
    """The same for single models, by name in lower case, with `*` and `?` as wildcards."""
    fetch: list[Literal["files", "images"]] = []
    """The addresses in requests that this server fetches, for an upstream that does not: `files`
    (`file_url`) and `images` (`image_url`). They lead to the public internet alone. Default: none."""
    reasoning_as: Literal["raw", "summary", "both"] = "raw"
    """How raw reasoning is shown: `raw`, as a `summary`, because some clients show only summaries, or as
    `both`. A request's header `openresponses-reasoning-as` takes precedence."""
    timeouts: Timeouts | None = None
    """Its timeouts, instead of those of the top level."""
    retries: Retries = Retries()
    """Its retries."""
    text_after_tools: bool | None = None
    """Whether clients of Chat Completions get the text after a tool call. Default: yes, except from the
    dialect `codex`."""
    failover: list[str] = []
    """The upstreams that are asked when this one is down or busy, as `name` or `name/model`."""
    failover_on: list[Cause] = msgspec.field(default_factory=lambda: list(CAUSES))
    """The causes for which another upstream, or another key, is asked before anything of an answer was sent:
    `connection` (it can't be reached, or the connection is lost), a status, where `403` means the key, the
    region or the plan and `404` the model, and `5xx`. Default: all of them."""
    weight: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    """Its share of the requests for models that other upstreams name too, if `balance` is not `order`."""
    circuit: CircuitSettings = CircuitSettings()
    """When it is left out."""
    playback: Playback = Playback()
    """How it answers if it is a recording."""
    trace_context: bool = False
    """Whether requests carry their span in `traceparent` (OpenTelemetry, extra `[otel]`)."""
    codex: CodexSettings | None = None
    """The process, for the dialect `codex`."""
    aws: AwsSettings | None = None
    """The credentials, for the dialect `bedrock` without a key."""
    websocket: bool | None = None
    """Whether streamed requests go over WebSockets, for the dialect `responses`: one for each conversation,
    on which each request is sent as the difference to the last one. A request goes over HTTP if no WebSocket
    can be opened. Default: as the profile says, if the address is the profile's own; else `false`."""
    websockets: SocketSettings = SocketSettings()
    """The limits of these."""


class HostedLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the tools that this server runs itself in a response."""

    rounds: Count = 16
    """The answers of the model in one response. In the last one it can't call these tools."""
    calls: Count = 32
    """The calls in one response. A request's `max_tool_calls` can lower it."""
    calls_per_day_per_key: Count | None = None
    """The calls of one key in a day (UTC), counted over all workers with Redis, else by each for itself.
    Without keys it is that of all. Default: any number."""
    seconds: Seconds = 60.0
    """The time for one call."""
    result_bytes: Annotated[int, Meta(ge=256, le=1024 * 1024)] = 32 * 1024
    """The bytes of a result that the model is sent, and that are kept with the response. The rest is cut."""


class WebSearchSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Web search that this server runs for models (`web_search`, `web_search_preview`)."""

    provider: Literal["searxng", "brave", "tavily", "exa", "duckduckgo"]
    """Whose search it is. `duckduckgo` reads the page that its site has for browsers without scripts."""
    url: str | None = None
    """The provider's address. `searxng` needs one, of an instance that answers in JSON. Default: the
    provider's own."""
    api_key: str | None = None
    """Its key, as `${VARIABLE}`. `brave`, `tavily` and `exa` need one."""
    results: Annotated[int, Meta(ge=1, le=20)] = 8
    """The results of a search. A request's `search_context_size` halves or doubles them."""
    seconds: Seconds = 15.0
    """The time for a search, and for a page."""
    when: Literal["missing", "always"] = "missing"
    """`missing`: for upstreams that do not search themselves; `always`: for all."""
    pages: bool = True
    """Whether the model may open pages and look for text in them. They are at public addresses."""
    page_bytes: Annotated[int, Meta(ge=1024, le=64 * 1024 * 1024)] = 4 * 1024 * 1024
    """The bytes of a page. All pages of one request may have four times as many; of each, a million
    characters of text are read."""
    private_hosts: list[str] = []
    """Hosts of pages that may be at private addresses, such as `wiki.internal`. Default: none."""


class FunctionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Functions of a Python module that this server runs for models. The module runs in the server's own
    process."""

    module: str
    """The file of the module, relative to the file's folder, or its import name."""
    registry: str = "registry"
    """The name of the `ToolRegistry` in it."""
    label: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")] = "functions"
    """What clients see their calls under, as `server_label` of `mcp_call` items."""
    models: list[str] = []
    """The names of models whose requests are offered them, with `*` and `?` as wildcards. Default: all."""


class McpServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MCP server whose tools this server runs for models. It has a `command` or a `url`. All keys may use
    it, over one connection for each worker."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
    """Its name, which requests give as `server_label`, without a `server_url`, or as `connector_id`."""
    command: str | None = None
    """The program of a server on stdio, which is started when it is first used."""
    args: list[str] = []
    """The program's arguments."""
    env: dict[str, str] = {}
    """Additional environment variables of the program. Values may contain `${VARIABLE}`. Of the server's own
    environment it gets only variables that name folders and languages."""
    cwd: str | None = None
    """The folder that the program works in, relative to the file's folder. Default: that of the server."""
    url: str | None = None
    """The address of a server over streamable HTTP."""
    headers: dict[str, str] = {}
    """Headers of each request to this address. Values may contain `${VARIABLE}`."""
    api_key_env: str | None = None
    """The environment variable with the key that goes to this address as `authorization: Bearer`."""
    description: str | None = None
    """What its tools are for, which goes before the description of each. Default: the request's
    `server_description`."""
    allowed_tools: list[str] | None = None
    """The tools that requests may use. Default: all."""
    require_approval: Literal["always", "never"] | list[str] = "never"
    """The tools whose calls need a client's approval whatever the request says: `always` for all, `never`
    for none, or their names. A request can require more."""
    start_seconds: Seconds = 30.0
    """The time in which it must be ready, and must answer with its list of tools."""
    call_seconds: Seconds = 60.0
    """The time in which a call must have ended."""
    list_seconds: Seconds = 300.0
    """How long its list of tools is valid, unless it says earlier that the list has changed."""


Forwarded = Literal["audio", "completions", "embeddings", "images", "moderations", "rerank"]
"""The endpoints whose bodies go on as they are, by the names of the setting `forwarding`."""

LogLevel = Literal["debug", "info"]
"""The lowest level of lines in the log."""


Dollars = Annotated[float, Meta(ge=0, le=1e6)]


class TokenPrice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The price of tokens, in US dollars for a million."""

    input: Dollars | None = None
    """Input tokens."""
    cached_input: Dollars | None = None
    """Input from the upstream's cache. Default: as input."""
    cache_write: Dollars | None = None
    """Input that the upstream put into its cache. Default: as input."""
    output: Dollars | None = None
    """Output tokens."""
    reasoning: Dollars | None = None
    """Reasoning. Default: as output."""


class PriceTier(TokenPrice, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The price of tokens in requests with long input, in US dollars for a million."""

    above: Count
    """The input tokens beyond which all tokens of a request cost this."""
    # which a tier has to name
    input: Dollars
    output: Dollars


class Price(TokenPrice, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The price of a model: its tokens in US dollars for a million, the rest in US dollars."""

    tiers: Annotated[tuple[PriceTier, ...], Meta(max_length=8)] = ()
    """Other prices of tokens, for requests with long input."""
    per_image: Dollars | None = None
    """An image of `/v1/images/…`, where the answer does not count tokens or tokens have no price."""
    per_character: Dollars | None = None
    """A character of the `input` of `/v1/audio/speech`, in the same cases."""
    per_second: Dollars | None = None
    """A second of a recording for `/v1/audio/transcriptions` and `…/translations`, in the same cases."""
    unreported_seconds: Annotated[int, Meta(ge=0, le=10_000_000)] | None = None
    """The seconds that count for a recording whose answer does not say how long it was. Default: what it
    costs is not known."""
    per_request: Dollars | None = None
    """Each request, beside what it is counted in."""


class Capabilities(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The capabilities of a model. One that is not set is unknown."""

    context_window: Count | None = None
    """The most tokens of input and output together."""
    max_input_tokens: Count | None = None
    """The most tokens of the input. Default: the window without the output."""
    max_output_tokens: Count | None = None
    """The most tokens of an answer."""
    tools: bool | None = None
    """Whether it calls tools."""
    max_tools: Count | None = None
    """The most tools of a request. If there are more, the agent in the terminal offers the first ones."""
    streaming_tool_calls: bool | None = None
    """Whether it calls tools in streams too. If not, requests with tools ask for whole answers."""
    images: bool | None = None
    """Whether it accepts images."""
    reasoning: bool | None = None
    """Whether it reasons before it answers."""
    efforts: list[Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]] | None = None
    """The levels of `reasoning.effort` that it has, with `none` if its reasoning can be turned off. For
    another one the nearest goes out, with a loss. An upstream's option `efforts` goes before this."""


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a request, and of all together. The refusal of what is beyond names the limit."""

    header_bytes: Count = 64 * 1024
    """A request's line and headers."""
    tools: Count = 1024
    """The tools that a request declares, including those in namespaces and in input items."""
    depth: Annotated[int, Meta(ge=8, le=500)] = 128
    """The nesting of a request's JSON."""
    json_values: Count = 500_000
    """The values in a request's JSON, including containers and their values."""
    items: Count = 10_000
    """The items of the input and of the turns that it continues, and of a conversation."""
    output_bytes: Count = 256 * 1024 * 1024
    """The bytes that an upstream sends for a response. Frames without an event count more."""
    choices: Count = 8
    """The greatest `n` of a Chat Completions request."""
    concurrent: Count = 2000
    """Responses in progress, of all keys. Without keys only this one of the two counts."""
    concurrent_per_key: Count = 500
    """Responses in progress, of one key."""
    background: Count = 5000
    """Background responses that wait, of all keys. Without keys only this one of the two counts."""
    background_per_key: Count = 1000
    """Background responses that wait, of one key."""
    readers: Count = 1000
    """Readers of stored responses (streams, whole responses and pages of input), of all keys. Without keys
    only this one of the two counts."""
    readers_per_key: Count = 200
    """Readers of stored responses, of one key."""
    conversation_bytes: Count = 32 * 1024 * 1024
    """The conversation that `previous_response_id` or `conversation` names."""
    conversations_per_key: Annotated[int, Meta(ge=1, le=10**9)] = 10_000
    """Stored conversations of one key or, without keys, of all."""
    reference_bytes: Count = 4 * 1024 * 1024
    """The items that the `item_reference`s of a request name."""
    stored_reference_bytes: Count = 64 * 1024
    """The same for a request that is stored, because they are stored with it, in addition to 32 times its own
    input."""
    loaded_bytes: Count = 512 * 1024 * 1024
    """Conversations and bodies in memory at once, uncompressed, including bodies that have arrived in part,
    of all keys. Without keys only this one of the two counts."""
    loaded_bytes_per_key: Count = 128 * 1024 * 1024
    """Conversations and bodies in memory at once, of one key."""
    fetched_files: Count = 16
    """The files that are fetched for a request, with those of the turns that it continues."""
    fetched_bytes: Count = 16 * 1024 * 1024
    """The bytes of these files."""
    fetch_seconds: Seconds = 20.0
    """The time for fetching a file."""
    mcp_tools: Count = 128
    """The tools of an MCP server that a request may use."""
    mcp_message_bytes: Annotated[int, Meta(ge=1024, le=64 * 1024 * 1024)] = 1024 * 1024
    """A message of an MCP server, such as a result, and its whole list of tools."""
    mcp_calls_per_key: Count = 16
    """Calls of tools of MCP servers at once, of one key; without keys, of all."""
    mcp_connections: Count = 256
    """Connections to MCP servers that requests named, of all keys."""
    mcp_connections_per_key: Count = 16
    """Connections to MCP servers that requests named, of one key."""
    schema_bytes: Count = 256 * 1024
    """A JSON schema for the answer."""
    schema_nodes: Count = 10_000
    """The values in a JSON schema for the answer."""
    schema_seconds: Seconds = 5.0
    """The time for validating an answer against its schema."""
    grace: Seconds = 10.0
    """The time that responses in progress have after Ctrl-C or a second signal."""
    header_seconds: Seconds = 20.0
    """The time in which the headers of a request must arrive."""
    body_seconds: Seconds = 30.0
    """The interval in each of which a body or WebSocket message must bring 1 KB/s on average, or its end."""
    body_total_seconds: Seconds = 600.0
    """The time in which a body or WebSocket message must arrive."""
    write_seconds: Seconds = 60.0
    """The time after which a client that reads nothing is disconnected."""
    idle_seconds: Seconds = 75.0
    """The time that a connection is kept open for the next request."""
    connections: Count = 4000
    """Open connections of a process."""
    sockets: Count = 1000
    """Open WebSockets, of all keys. Without keys only this one of the two counts."""
    sockets_per_key: Count = 100
    """Open WebSockets, of one key."""
    requests_per_minute_per_key: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    """Requests for a response, of one key. Default: any number."""
    tokens_per_minute_per_key: Annotated[int, Meta(ge=1, le=10**12)] | None = None
    """Tokens in and out, of one key, counted when a response has ended. Default: any number."""
    usd_per_day_per_key: Dollars | None = None
    """US dollars that the responses of one key cost in a day (UTC) by `prices` and `models_file`, counted
    when a response has ended. A model without a price is refused. Default: any number."""
    stored_bytes_per_key: Count | None = None
    """Stored responses with their input and events, and conversations, of one key. Default: any number."""


_RECORDING: Final = "recording:"
SOCKET: Final = "unix:"
"""The prefix of an address that is the path of a Unix socket."""
_FILES: Final = ("socket", "ca_file", "client_cert", "client_key")  # fields of an upstream that are paths
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}

# fields whose variables are expanded where they are used, so that settings do not contain secrets
_UNEXPANDED: Final = frozenset({"api_key", "api_keys", "api_key_command", "env", "headers", "proxy"})

WORKER_SETTINGS: Final = "OPENRESPONSES_BRIDGE_SETTINGS"
"""The environment variable with which worker processes get their settings, as JSON."""

SettingsError = ConfigError
"""Settings that can't be used; the message names the file or flag and the field."""

EMBEDDED_STORE: Final = "sqlite:"
"""The default `store` of `serve`: a file in the user's data folder."""
KEYS_VARIABLES: Final = {
    "api_keys": "OPENRESPONSES_BRIDGE_API_KEYS",
    "operator_keys": "OPENRESPONSES_BRIDGE_OPERATOR_KEYS",
}
"""Settings of keys → the variables with keys, separated by commas, that are used if the file has none."""

_FORWARDED: Final[tuple[Forwarded, ...]] = ("completions", "embeddings", "moderations", "rerank")


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of `serve`. Without upstreams the built-in demo model is served."""

    host: str = "127.0.0.1"
    """The address to listen on. Beyond loopback `api_keys` are required."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    """The port to listen on; 0 for any free one."""
    workers: Count = 1
    """The number of worker processes."""
    upstreams: list[UpstreamSettings] = []
    """The upstreams, each a table of its own."""
    balance: Literal["order", "round_robin", "least_busy"] = "order"
    """Which of the upstreams that name the same model is asked: the first one in the `order` of the file that
    is not left out, each in turn (`round_robin`), or the one with the fewest requests in progress. A session
    stays where its prompt cache is."""
    aliases: dict[str, str] = {}
    """Additional names of models, each for another name or for `upstream/model`."""
    profiles: str | None = None
    """A folder with profiles of your own, one `NAME.toml` each, relative to the file's folder. They replace
    known ones of the same name."""
    prompts: str | None = None
    """A folder with prompts that requests name as `prompt`, one `ID.toml` each, relative to the file's
    folder. It is read at the start. Default: no prompts."""
    default_model: str | None = None
    """The model of requests that name none."""
    models: dict[str, Capabilities] = {}
    """The capabilities of models, by their names, with `*` and `?` as wildcards."""
    prices: dict[str, Price] = {}
    """The prices of models, by the names that clients give them, with `*` and `?` as wildcards, before those
    of `models_file`. What a model without one costs is not known."""
    models_file: str | None = None
    """A file of more models, as `openresponses-bridge models sync` writes it, relative to the file's folder.
    It is read at the start. `[models]` and what upstreams report go before it, the table that ships with the
    server behind it. Its prices are by the names that upstreams give models."""
    tokenizers: dict[str, str] = {}
    """The tokenizers of models, by their names, with `*` and `?` as wildcards: the path of a
    `tokenizer.json`, or an encoding as `tiktoken:o200k_base`. They need the extra `[tokenizers]`. Nothing is
    downloaded. For other models tokens are estimated."""
    discovery: Seconds = 60.0
    """How long the lists of models of the upstreams are valid."""
    api_keys: list[str] = []
    """The keys of clients: keys, `${VARIABLE}` or `sha256:…`. Only hashes are kept."""
    managed_keys: bool = False
    """Whether keys that `openresponses-bridge keys` manages in the store are accepted too. Then each request
    needs a key, also while there are none."""
    oidc: list[OidcSettings] = []
    """Identity providers whose tokens are accepted too, each a table of its own. They need the extra
    `[oidc]`."""
    operator_keys: list[str] = []
    """The keys for `/metrics`, in the same forms."""
    tools: HostedLimits = HostedLimits()
    """Limits of the tools that this server runs itself."""
    web_search: WebSearchSettings | None = None
    """Web search that this server runs for models. Default: none."""
    functions: list[FunctionSettings] = []
    """Functions of Python modules that this server runs for models, each a table of its own."""
    mcp_servers: list[McpServerSettings] = []
    """MCP servers whose tools this server runs, each a table of its own. They need the extra `[mcp]`."""
    mcp_hosts: list[str] = []
    """The hosts of MCP servers that requests may name in `server_url`: `mcp.example.com`, with a port other
    than 443 as `mcp.example.com:8443`, `*.example.com` for all names below it, or `*` for any. Only https://
    addresses of the public internet are reached. Default: none."""
    mcp_private_hosts: list[str] = []
    """More of them, in the same forms but without `*`, which may be at private addresses and at http://
    ones, such as `127.0.0.1:9000`."""
    wire: Literal["auto", "openai", "openresponses"] = "auto"
    """The spelling of the protocol that clients read: `openai`, `openresponses`, or `auto`, by what a request
    carries and by its client's name. The header `openresponses-wire` takes precedence, then `wire_keys`."""
    wire_keys: WireKeys | None = None
    """The wire by the client's key."""
    forwarding: list[Forwarded] = msgspec.field(default_factory=lambda: list(_FORWARDED))
    """The endpoints whose requests go on to the model's upstream as they are: `completions`, `embeddings`,
    `moderations`, `rerank`, `images`, `audio`. Providers bill the last two by picture and minute, which
    limits of tokens do not count."""
    cors_origins: list[str] = []
    """Origins of web pages that may make requests, as `https://app.example`, or `*`."""
    allowed_hosts: list[str] = []
    """The names of the server in addition to those of loopback, without ports. Without keys, requests with
    other names are refused."""
    sealing_key_env: str | None = None
    """The variable with the key for `encrypted_content`, 32 bytes in hex or base64, or several with commas
    between them: the first seals, all open. Default: a key that is made and kept in the data folder."""
    limits: Limits = Limits()
    """Limits of requests."""
    timeouts: Timeouts = Timeouts()
    """Timeouts of upstreams."""
    store: str = "memory://"
    """Where responses are stored: `sqlite:` (a file in the data folder), `sqlite:///FILE`,
    `postgresql+psycopg://…` or `memory://`."""
    event_log: str | None = None
    """Where the events of responses in progress are logged: `file:` (beside the store) or `file:///FOLDER`,
    also with `?fsync=SECONDS`, `redis://…` for workers of several machines, or `memory://`. Default: `file:`,
    with a store in memory `memory://`."""
    stored_responses: Count = 1000
    """The most responses of a store in memory."""
    retention: Annotated[str, Meta(pattern=r"^(forever|[0-9]{1,6}[smhdw])\Z")] = "30d"
    """How long responses are kept: for example `90m`, `12h`, `30d`, or `forever`."""
    usage_retention: Annotated[str, Meta(pattern=r"^(forever|[0-9]{1,6}[smhdw])\Z")] = "400d"
    """How long the sums of the usage of keys are kept, in the same form."""
    checkpoint_interval: Seconds = 1.0
    """The time between two checkpoints of a response in progress."""
    lease: Annotated[float, Meta(ge=1)] = 10.0
    """The seconds without renewal after which a worker counts as stopped."""
    background_restart: Restart = "unseen"
    """Which background responses are made again after a crash: `unseen`, those whose output nobody can have
    seen, or `always`; then their output is sent only when they have ended."""
    log_level: LogLevel = "info"
    """The lowest level of lines in the log. `debug` adds what each event of an answer for VS Code became,
    without content."""
    drain: Annotated[str, Meta(pattern=r"^[0-9]{1,6}[smhdw]\Z")] = "10m"
    """The time that responses in progress have when the server is stopped, as `30s`, `10m` or `1h`."""
    max_body_bytes: Count = 32 * 1024 * 1024
    """The most bytes of a body, compressed and uncompressed, and of an inflated WebSocket message."""
    record: str | None = None
    """A folder for recordings of what each upstream is sent and answers, one file each, relative to the
    file's folder. Default: no recordings."""
    record_bytes: Annotated[int, Meta(ge=128 * 1024)] = 1 << 30
    """The most bytes of a recording. The rest is left out."""
    trace: Tracing = Tracing()
    """Traces of responses."""
    span_content: bool = False
    """Whether spans have the texts of requests, answers and tools, masked as traces are (OpenTelemetry, extra
    `[otel]`)."""
    keep_alive: Seconds = 15.0
    """The seconds without an event after which a stream gets a comment."""
    websocket_limit: Seconds = 3600.0
    """The time that a WebSocket may be open."""

    @property
    def redis(self) -> str | None:
        """The address of the Redis that workers share; None without one."""
        return self.event_log if self.event_log is not None and self.event_log.startswith("redis") else None

    @property
    def asks_for_keys(self) -> bool:
        """True if each request needs a key of this server."""
        return bool(self.api_keys or self.managed_keys or self.oidc)


def load_settings(config: Path | None = None, **overrides: Any) -> Settings:
    """The settings of a file, with `overrides`; None among those means "not given". Raises SettingsError with
    all that is wrong, each with the file, its line and the field."""
    given = {name: value for name, value in overrides.items() if value is not None}
    mistakes = Mistakes()
    with located(config, given):
        read = read_config(config) if config is not None else {}
        fields = {"store": EMBEDDED_STORE} | read | given
        if isinstance(read.get("trace"), dict) and "trace" in given:
            fields["trace"] = read["trace"] | given["trace"]
        replaced = fields
        with mistakes.kept():
            replaced = substituted(fields, kept=_UNEXPANDED)
        if "api_keys" in fields:  # those of clients, of which only hashes are kept
            with mistakes.kept():
                replaced["api_keys"] = substituted(fields["api_keys"], where="$.api_keys")
        try:
            settings = converted(replaced, Settings)
        except SettingsError as error:
            mistakes.extend(error)
            if error.usable is None:
                mistakes.check()
            settings = error.usable
        _check(settings, mistakes)
        changes: dict[str, Any] = {}
        for name, place in _PLACED.items():
            with mistakes.kept():
                changes[name] = place(settings, None if name in given else config)
        for name, variable in KEYS_VARIABLES.items():
            with mistakes.kept():
                changes[name] = _hashes(getattr(settings, name), variable, f"$.{name}")
        where = Path() if "upstreams" in given or config is None else config.parent
        settings = msgspec.structs.replace(
            settings,
            upstreams=[_with_absolute_paths(each, where) for each in settings.upstreams],
            functions=[_with_absolute_module(each, config) for each in settings.functions],
            mcp_servers=[_with_absolute_folder(each, config) for each in settings.mcp_servers],
            **changes,
        )
        mistakes.check(settings)
    return settings


def deprecated_settings(config: Path | None) -> list[str]:
    """A line for each deprecated setting of a file that `load_settings` accepts: its place, and what replaces
    it. A field is deprecated by `Meta(extra={"deprecated": "use limits.other"})` in its type."""
    if config is None:
        return []
    return [
        f"{place_in(config, path)}: {path.removeprefix('$.')} is deprecated: {replacement}"
        for path, replacement in deprecated_in(read_config(config), msgspec.inspect.type_info(Settings))
    ]


def _hashed_wire_keys(given: WireKeys | None) -> WireKeys | None:
    """Return the lists with hashes in the place of keys. Raises SettingsError for a key in two lists."""
    if given is None:
        return None
    found: dict[str, str] = {}
    for wire in given.__struct_fields__:
        for number, key in enumerate(getattr(given, wire)):
            place = f"$.wire_keys.{wire}[{number}]"
            if found.setdefault(_hash(key, place), wire) != wire:
                raise SettingsError("the key is in another list too", place)
    lists = {wire: [key for key, of in found.items() if of == wire] for wire in given.__struct_fields__}
    return WireKeys(**lists)


def _trace(settings: Settings, config: Path | None) -> Tracing:
    folder = _written_folder(settings.trace.folder, config, "$.trace.folder")
    keys = [_hash(key, f"$.trace.keys[{index}]") for index, key in enumerate(settings.trace.keys)]
    return msgspec.structs.replace(settings.trace, folder=folder, keys=keys)


def _written_folder(named: str | None, config: Path | None, at: str) -> str | None:
    """The absolute path of this folder, which is written to and made when it is not there."""
    if named is None:
        return None
    folder = (config.parent if config is not None else Path()).joinpath(Path(named).expanduser()).absolute()
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"{named!r} is not a folder", at)
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        inside = (
            "" if nearest == folder else f", since {str(nearest)!r} is not a folder that can be written to"
        )
        raise SettingsError(f"the folder {named!r} can't be written to{inside}", at)
    return str(folder)


def _absolute_file(named: str | None, config: Path | None) -> str | None:
    """The absolute path of the file of models, which must exist."""
    if named is None:
        return None
    file = (config.parent if config is not None else Path()).joinpath(Path(named).expanduser()).absolute()
    if not file.is_file():
        raise SettingsError(f"{named!r} is not a file", "$.models_file")
    return str(file)


def recording_path(url: str | None) -> Path | None:
    """The file of an upstream that is a recording, else None."""
    return Path(url.removeprefix(_RECORDING)) if url is not None and url.startswith(_RECORDING) else None


def is_address(text: str) -> bool:
    """Return True if this is an upstream's address, not the name of a profile."""
    return "://" in text or text.startswith((_RECORDING, SOCKET))


def _with_absolute_paths(upstream: UpstreamSettings, folder: Path) -> UpstreamSettings:
    """Return the upstream with the absolute paths of its files: workers may run in another folder."""
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


def _with_absolute_module(given: FunctionSettings, config: Path | None) -> FunctionSettings:
    """Return the function with the absolute path of its file, if it names one."""
    if not given.module.endswith(".py"):
        return given
    folder = config.parent if config is not None else Path()
    path = folder.joinpath(Path(given.module).expanduser()).absolute()
    return msgspec.structs.replace(given, module=str(path))


def _with_absolute_folder(server: McpServerSettings, config: Path | None) -> McpServerSettings:
    if server.cwd is None:
        return server
    folder = Path() if config is None else config.parent
    return msgspec.structs.replace(server, cwd=str(folder.joinpath(Path(server.cwd).expanduser()).absolute()))


def _check(settings: Settings, mistakes: Mistakes) -> None:
    """Check what the types of the fields don't say; each mistake is kept."""
    for number, upstream in enumerate(settings.upstreams):
        with mistakes.kept(), about(f"$.upstreams[{number}]"):
            if upstream.url is None and upstream.profile is None:
                raise SettingsError("neither url nor profile is given")
            api_key(upstream)
    for number, provider in enumerate(settings.oidc):
        with mistakes.kept(), about(f"$.oidc[{number}]"):
            parts = urlsplit(provider.jwks)
            if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
                raise SettingsError("it is not an https:// address", ".jwks")
            if provider.issuer in [each.issuer for each in settings.oidc[:number]]:
                raise SettingsError("this issuer is given twice", ".issuer")
    for number, host in enumerate(settings.allowed_hosts):
        if host_name(host) is None:
            mistakes.add(_no_host(host, f"$.allowed_hosts[{number}]"))
    for setting in ("mcp_hosts", "mcp_private_hosts"):
        for number, host in enumerate(getattr(settings, setting)):
            is_any = host == "*" and setting == "mcp_hosts"
            if not is_any and authority_of(host.removeprefix("*.")) is None:
                mistakes.add(_no_host(host, f"$.{setting}[{number}]"))


def _no_host(host: str, at: str) -> SettingsError:
    return SettingsError(f"{host[:80]!r} is not the name or address of a host", at)


def _folder(named: str | None, config: Path | None, at: str) -> str | None:
    """The absolute path of this folder: workers may run in another one."""
    if named is None:
        return None
    folder = (config.parent if config is not None else Path()).joinpath(named).absolute()
    if not folder.is_dir():
        raise SettingsError(f"{named!r} is not a folder", at)
    return str(folder)


_PLACED: Final[dict[str, Callable[[Settings, Path | None], Any]]] = {
    "wire_keys": lambda settings, _config: _hashed_wire_keys(settings.wire_keys),
    "profiles": lambda settings, config: _folder(settings.profiles, config, "$.profiles"),
    "prompts": lambda settings, config: _folder(settings.prompts, config, "$.prompts"),
    "models_file": lambda settings, config: _absolute_file(settings.models_file, config),
    "record": lambda settings, config: _written_folder(settings.record, config, "$.record"),
    "trace": _trace,
}
"""Settings that name places or keys → what they become; a path is relative to the file that has it."""


def _hashes(given: list[str], variable: str, place: str) -> list[str]:
    """The hashes of these keys, or else of those in the variable. Raises SettingsError."""
    keys = given or [key for key in os.environ.get(variable, "").split(",") if key.strip()]
    return [_hash(key, f"{place}[{index}]") for index, key in enumerate(keys)]


def _hash(key: str, place: str) -> str:
    if not key.strip():  # which no client can send, as of a variable that is empty
        raise SettingsError("the key is empty", place)
    return hashed(key.strip())


def seconds_of(duration: str) -> float | None:
    """A duration in the form of `retention` in seconds; None for `forever`."""
    return None if duration == "forever" else int(duration[:-1]) * float(_UNITS[duration[-1]])


def api_key(upstream: UpstreamSettings) -> str | None:
    """The upstream's key from the environment. Raises SettingsError if its variable is not set."""
    if upstream.api_key_env is None:
        return expanded(upstream.api_key, ".api_key") if upstream.api_key else None
    key = os.environ.get(upstream.api_key_env)
    if not key:
        raise SettingsError(f"the environment variable {upstream.api_key_env} is not set", ".api_key_env")
    return key


def to_workers(settings: Settings) -> None:
    """Put the settings into the environment of worker processes."""
    os.environ[WORKER_SETTINGS] = msgspec.json.encode(settings).decode()


def of_worker() -> Settings:
    """The settings from the parent process."""
    return msgspec.json.decode(os.environ[WORKER_SETTINGS], type=Settings)
