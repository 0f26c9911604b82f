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
    """How long opening a connection may take."""
    first_byte: Seconds = 300.0
    """How long the upstream may take from a request to the first byte of its answer. Then another route is
    tried, or the request fails as `upstream_timeout`."""
    idle: Seconds = 300.0
    """How long the upstream may send nothing within an answer. Comments do not count. Then the response fails
    as `upstream_timeout`."""
    total: Seconds = 3600.0
    """How long a whole response may take. Then it fails as `upstream_timeout`."""


class Retries(Struct, frozen=True, forbid_unknown_fields=True):
    """Retries of a request at the same upstream, before the first byte of its answer has arrived."""

    times: Annotated[int, Meta(ge=0, le=10)] = 0
    """The maximum number of retries. 0: none."""
    first_wait: Seconds = 0.5
    """How long the server waits before the first retry. Each further wait is twice as long. An upstream's
    `retry-after` replaces it."""
    longest_wait: Seconds = 20.0
    """The longest wait that an upstream may ask for. If it asks for a longer one, the request is not
    retried."""


Cause = Literal["connection", "401", "402", "403", "404", "408", "429", "5xx"]
"""Why a request was refused, or had no answer, where another upstream may answer it."""
CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)


class CircuitSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """When a failing upstream is left out, if another one can be asked."""

    failures: Annotated[int, Meta(ge=1, le=1000)] = 5
    """The number of failures in a row, of a model with a key or of all connections, after which it is left
    out. A failure counts if another upstream has answered the same request."""
    seconds: Annotated[float, Meta(gt=0, le=600, extra={"unit": "seconds"})] = 30.0
    """How long it is left out. Then one request probes it. Each failed probe doubles the time, up to ten
    minutes."""


class Playback(Struct, frozen=True, forbid_unknown_fields=True):
    """How a recording answers (`url = "recording:FILE"`)."""

    speed: Annotated[float, Meta(gt=0, le=1e6)] | Literal["real", "max"] = "real"
    """`real` plays with the recorded pauses, `max` without any; a number is a factor."""
    match: Literal["request", "order"] = "request"
    """Which exchange answers a request: with `request` the next one of the same model and the same last
    input, with `order` the next one."""
    loop: bool = False
    """Whether the first exchange follows the last one."""


class SocketSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the WebSockets to an upstream. They apply to each worker."""

    connections: Count = 64
    """The maximum number of connections. Beyond it, the connection that was idle longest is closed; if none
    is idle, the request goes over HTTP."""
    idle: Seconds = 300.0
    """How long a connection without requests is kept open."""
    age: Seconds = 3300.0
    """How long a connection is given new requests after it was opened. OpenAI closes connections after 60
    minutes."""
    turns: Count = 1000
    """The maximum number of requests on one connection."""
    prewarmed: Annotated[int, Meta(ge=0)] = 8
    """The maximum number of connections that are opened in advance and have had no request yet. 0: none
    is."""
    prewarmed_per_key: Count = 2
    """The maximum number of those for one key. Without keys, only `prewarmed` applies."""
    prewarmed_idle: Seconds = 60.0
    """How long a connection that was opened in advance waits for its first request."""
    message_bytes: Annotated[int, Meta(ge=1024, le=256 * 1024 * 1024)] = 16 * 1024 * 1024
    """The maximum size of a message from the upstream, in bytes."""


class CodexSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Codex as an upstream: `codex app-server` as a process of the server. Clients can't change any of
    this."""

    path: str = "codex"
    """The program. A name without a folder is looked up in the server's `PATH`."""
    args: list[str] = []
    """Arguments after `app-server`, for example `["-c", "model_provider=local"]`."""
    env: dict[str, str] = {}
    """Additional environment variables of the process, for example its keys. Values may contain
    `${VARIABLE}`. The process does not inherit the server's own variables, except those that name folders and
    languages."""
    home: str | None = None
    """The folder with Codex's configuration and login (`CODEX_HOME`). Default: the user's own."""
    cwd: str | None = None
    """The working directory of Codex, for all keys. Default: an empty folder for each key, which is removed
    at the end."""
    sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = "read-only"
    """What Codex's commands may do: `read-only`, `workspace-write` or `danger-full-access`. None of them
    limits reading to `cwd`."""
    approvals: Literal["never", "auto", "ask"] = "never"
    """Who answers when Codex asks for approval: `never` refuses, `auto` accepts, `ask` asks the client."""
    approval_policy: Literal["untrusted", "on-request", "never"] | None = None
    """When Codex asks: `untrusted`, `on-request` or `never`. Default: `never` if `approvals` is `never`,
    otherwise `on-request`."""
    processes: Annotated[int, Meta(ge=1, le=64)] = 1
    """The maximum number of processes."""
    threads: Count = 64
    """The maximum number of conversations that are kept. One that was removed is rebuilt from its history."""
    turns: Count = 8
    """The maximum number of turns in progress."""
    turns_per_key: Count = 4
    """The maximum number of turns in progress for one key."""
    queue: Annotated[int, Meta(ge=0)] = 32
    """The maximum number of requests that wait for a turn. Further ones are refused."""
    queue_seconds: Seconds = 30.0
    """How long a request may wait for a turn. Then it is refused with 503."""
    start_seconds: Seconds = 30.0
    """How long the process may take until it is ready."""
    answer_seconds: Seconds = 30.0
    """How long Codex may take to answer a request of the server."""
    approval_seconds: Seconds = 300.0
    """How long a turn waits for its client to answer a request for approval. Then it is interrupted."""
    stop_seconds: Seconds = 5.0
    """How long an interrupted turn, or a process that is asked to stop, may take to end."""
    line_bytes: Count = 16 * 1024 * 1024
    """The maximum size of a line that Codex writes, in bytes."""
    turn_bytes: Count = 16 * 1024 * 1024
    """The maximum number of bytes of a turn that wait for a slow client. Beyond it, the turn fails."""


class Tracing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Traces of responses: everything that their clients and upstreams sent and received, for their
    owners."""

    folder: str | None = None
    """The folder for the traces, relative to the config's folder. Default: no traces."""
    when: Literal["always", "asked"] = "always"
    """Which requests are traced: `always` all of them, `asked` only those with the header
    `openresponses-trace: 1`."""
    keys: list[str] = []
    """The keys whose requests may be traced, in the form of `api_keys`. Default: all."""
    retention: Annotated[str, Meta(pattern=r"^(forever|[0-9]{1,6}[smhdw])\Z")] = "1d"
    """How long traces are kept: for example `90m`, `12h`, `30d`, or `forever`."""
    bytes: Annotated[int, Meta(ge=128 * 1024)] = 64 * 1024 * 1024
    """The maximum size of a trace, in bytes. What exceeds it is left out."""
    total_bytes: Annotated[int, Meta(ge=1024 * 1024)] = 1 << 30
    """The maximum size of all traces, in bytes. Beyond it, the oldest traces of the key that uses the most
    are removed."""


class WireKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The wire that clients read, by their keys, in the form of `api_keys`. A key is in at most one of these
    lists."""

    openai: list[str] = []
    """The keys of clients that read OpenAI's names."""
    openresponses: list[str] = []
    """The keys of clients that read the names of the published specification."""
    auto: list[str] = []
    """The keys whose wire is chosen for each request, by its fields and its client's name."""


Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


class OidcSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An identity provider (OpenID Connect) whose tokens clients may send as keys."""

    issuer: Annotated[str, Meta(min_length=1)]
    """The `iss` of its tokens, exactly as they have it."""
    audience: Annotated[list[str], Meta(min_length=1)]
    """The accepted values of `aud`. A token must have one of them."""
    jwks: str
    """The address of its keys (JWKS), with https://, or http:// on this machine. It is never read from a
    token."""
    algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1)] = ("RS256", "ES256")
    """The accepted signature algorithms."""
    leeway: Annotated[float, Meta(ge=0, le=300, extra={"unit": "seconds"})] = 30.0
    """How far the provider's clock may differ from this one, either way."""
    refresh: Annotated[float, Meta(ge=1, extra={"unit": "seconds"})] = 300.0
    """How often its keys are read again. For a token of an unknown key they are read at once, but at most
    every ten seconds."""
    owner_claim: str = "sub"
    """The claim that identifies the owner of what a token's client stores."""
    models: list[str] = []
    """The names of models that its tokens may use, with `*` and `?` as wildcards. Default: all."""
    models_claim: str | None = None
    """The claim with those names, used instead of `models`: a list, or a string with spaces between the
    names. A token without it may use no model."""
    limits_claims: dict[
        Literal["requests_per_minute", "tokens_per_minute", "concurrent", "calls_per_day", "usd_per_day"], str
    ] = {}
    """The claims that have limits of a token's owner, by limit. Default: the limits in `limits`."""


class AwsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The credentials with which requests to Amazon's services are signed (extra `[bedrock]`)."""

    profile: str | None = None
    """The profile in Amazon's own config and credentials files. Default: the credentials of the environment,
    which are `AWS_ACCESS_KEY_ID` and its companions, `AWS_PROFILE`, a web identity or a container's
    endpoint."""
    region: str | None = None
    """The region in the signature. Default: the one in the address, else the one of the environment or the
    profile."""


class UpstreamSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One upstream: a server with models. It must have a `url` or a `profile`."""

    url: str | None = None
    """The address, with or without `/v1`. `recording:FILE` answers from a recording instead."""
    profile: str | None = None
    """A known provider, which supplies everything that is not set here."""
    name: str | None = None
    """The name by which other settings, `upstream/model` and messages refer to it. Default: the profile's
    name."""
    dialect: str | None = None
    """The API that it speaks: `chat`, `responses`, `anthropic`, `gemini`, `interactions`, `bedrock` or
    `codex`. Default: the profile's, else `chat`."""
    model: str | None = None
    """The model's name in requests to the upstream. Default: the name in the client's request."""
    models: list[str] = []
    """The names of models that it serves, with `*` and `?` as wildcards. Default: all."""
    api_key_env: str | None = None
    """The environment variable with its key. Default: the profile's."""
    api_key: str | None = None
    """Its key, as `${VARIABLE}`."""
    api_keys: list[str | list[str]] = []
    """Several keys, instead of `api_key`: each as `${VARIABLE}`, or as a program and its arguments that print
    it, as in `api_key_command`. When one is refused or limited, the next one is used."""
    api_key_command: list[str] = []
    """A program and its arguments that print its key, for keys that expire. It prints only the key, or a JSON
    object with the key and its expiry. It is run again shortly before the expiry, and once when the key is
    refused. Arguments may contain `${VARIABLE}`."""
    api_key_seconds: Seconds = 300.0
    """How long a key that a program prints is used if it does not have an expiry."""
    api_key_header: str | None = None
    """The header whose value is the key alone, such as `api-key`. Default: the dialect's."""
    query: dict[str, str] = {}
    """Query parameters that are added to the address of every request, such as `api-version`."""
    pass_through: bool = False
    """Whether the client's key is sent to it, if the client has one, instead of its own. Then `api_keys`
    can't be set, and the server's other upstreams can be used only from this machine, directly, not through a
    proxy."""
    headers: dict[str, str] = {}
    """Additional headers of every request. Values may contain `${VARIABLE}`."""
    session_headers: dict[str, str] = {}
    """Headers with an id of the session, for example `x-session-id = "ses_{session}"`. They replace the
    profile's."""
    proxy: str | None = None
    """The proxy for its requests, as `http://user:${PASSWORD}@host:port`, or `none`. Default: the one that
    `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` name. They do not apply to addresses on this
    machine."""
    socket: str | None = None
    """A Unix socket to connect to, instead of the address's host and port. `url = "unix:/path"` names one
    too."""
    verify: bool | Literal["system"] = True
    """The trusted certificate authorities: `true` for those of OpenSSL, which `SSL_CERT_FILE` replaces,
    `"system"` for those of the operating system. With `false` the certificate is not checked, so that anybody
    on the network path can read everything."""
    ca_file: str | None = None
    """A PEM file with the trusted certificate authorities, instead of those of `verify`."""
    client_cert: str | None = None
    """A PEM file with the client certificate and its key."""
    client_key: str | None = None
    """A PEM file with that key, if it is in a file of its own."""
    options: dict[str, Any] = {}
    """Options of the dialect, for differences between its servers. They replace the profile's."""
    model_options: dict[str, dict[str, Any]] = {}
    """Options of the dialect for individual models, by name in lower case, with `*` and `?` as wildcards."""
    fetch: list[Literal["files", "images"]] = []
    """What this server fetches from the addresses in requests, for an upstream that does not: `files`
    (`file_url`) and `images` (`image_url`). It fetches from the public internet only. Default: nothing."""
    reasoning_as: Literal["raw", "summary", "both"] = "raw"
    """How clients get raw reasoning: as it is (`raw`), as a `summary`, for clients that show only summaries,
    or as `both`. The header `openresponses-reasoning-as` of a request takes precedence."""
    timeouts: Timeouts | None = None
    """The upstream's own timeouts, used instead of those of the top level."""
    retries: Retries = Retries()
    """The upstream's retries."""
    text_after_tools: bool | None = None
    """Whether clients of Chat Completions get text that follows a tool call. Default: yes, except from the
    dialect `codex`."""
    failover: list[str] = []
    """The upstreams that are tried when this one is down or busy, as `name` or `name/model`."""
    failover_on: list[Cause] = msgspec.field(default_factory=lambda: list(CAUSES))
    """The failures after which another upstream, or another key, is tried if nothing of the answer was sent:
    `connection` (the upstream can't be reached, or the connection is lost) or a status, where `403` is about
    the key, the region or the plan, `404` about the model, and `5xx` any server error. Default: all of
    them."""
    weight: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    """Its share of the requests for models that other upstreams serve too, relative to their weights, if
    `balance` is not `order`."""
    circuit: CircuitSettings = CircuitSettings()
    """When the upstream is left out because it fails."""
    playback: Playback = Playback()
    """How the upstream answers if it is a recording."""
    trace_context: bool = False
    """Whether requests have their span in the header `traceparent` (OpenTelemetry, extra `[otel]`)."""
    codex: CodexSettings | None = None
    """The process of Codex, for the dialect `codex`."""
    aws: AwsSettings | None = None
    """The credentials, for the dialect `bedrock` without a key."""
    websocket: bool | None = None
    """Whether streamed requests go over WebSockets, for the dialect `responses`. Each conversation has its
    own, on which a request has only what is new since the last one. A request goes over HTTP if no WebSocket
    can be opened. Default: the profile's, if the address is the profile's own; else `false`."""
    websockets: SocketSettings = SocketSettings()
    """The limits of these WebSockets."""


class HostedLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the tools that this server runs itself."""

    rounds: Count = 16
    """The maximum number of the model's answers in one response. In the last one it can't call these
    tools."""
    calls: Count = 32
    """The maximum number of calls in one response. A request's `max_tool_calls` can lower it."""
    calls_per_day_per_key: Count | None = None
    """The maximum number of calls of one key in a day (UTC), counted across all workers with Redis, else by
    each worker separately. Without keys, all clients count as one. Default: unlimited."""
    seconds: Seconds = 60.0
    """How long one call may take. Then it fails, and the model gets the error."""
    result_bytes: Annotated[int, Meta(ge=256, le=1024 * 1024)] = 32 * 1024
    """The maximum size of a result, in bytes. The model gets, and the response keeps, only that much of
    it."""


class WebSearchSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Web search that this server runs for models (`web_search`, `web_search_preview`)."""

    provider: Literal["searxng", "brave", "tavily", "exa", "duckduckgo"]
    """The search provider. `duckduckgo` is searched through the page of its site for browsers without
    scripts."""
    url: str | None = None
    """The provider's address. `searxng` needs the address of an instance that answers in JSON. Default: the
    provider's own."""
    api_key: str | None = None
    """The provider's key, as `${VARIABLE}`. `brave`, `tavily` and `exa` need one."""
    results: Annotated[int, Meta(ge=1, le=20)] = 8
    """The number of results of a search. A request's `search_context_size` halves or doubles it."""
    seconds: Seconds = 15.0
    """How long a search, or opening a page, may take."""
    when: Literal["missing", "always"] = "missing"
    """For which upstreams the server searches: `missing` for those without a search of their own, `always`
    for all."""
    pages: bool = True
    """Whether the model may open pages and find text in them. Only public addresses are opened."""
    page_bytes: Annotated[int, Meta(ge=1024, le=64 * 1024 * 1024)] = 4 * 1024 * 1024
    """The maximum size of a page, in bytes. All pages of one request may have four times as many, and only
    the first million characters of a page's text are read."""
    private_hosts: list[str] = []
    """Hosts whose pages may be at private addresses, such as `wiki.internal`. Default: none."""


class FunctionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Functions of a Python module that this server runs for models. The module runs in the server's own
    process."""

    module: str
    """The module: the path of its file, relative to the config's folder, or its import name."""
    registry: str = "registry"
    """The name of the `ToolRegistry` in the module."""
    label: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")] = "functions"
    """The `server_label` of the `mcp_call` items that clients see for calls of these functions."""
    models: list[str] = []
    """The names of models that are offered the functions, with `*` and `?` as wildcards. Default: all."""


class McpServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MCP server whose tools this server runs for models. It has a `command` or a `url`. All keys share
    one connection to it in each worker."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
    """The name by which requests refer to it: `server_label` without a `server_url`, or `connector_id`."""
    command: str | None = None
    """The program of an MCP server on stdio. It is started when it is first used."""
    args: list[str] = []
    """The program's arguments."""
    env: dict[str, str] = {}
    """Additional environment variables of the program. Values may contain `${VARIABLE}`. The program does not
    inherit the server's own variables, except those that name folders and languages."""
    cwd: str | None = None
    """The working directory of the program, relative to the config's folder. Default: the server's."""
    url: str | None = None
    """The address of an MCP server over streamable HTTP."""
    headers: dict[str, str] = {}
    """Headers of every request to this address. Values may contain `${VARIABLE}`."""
    api_key_env: str | None = None
    """The environment variable with the key that is sent to this address as `authorization: Bearer`."""
    description: str | None = None
    """What its tools are for. The model gets it before the description of each tool. Default: the request's
    `server_description`."""
    allowed_tools: list[str] | None = None
    """The tools that requests may use. Default: all."""
    require_approval: Literal["always", "never"] | list[str] = "never"
    """The tools whose calls always need a client's approval: `always` for all, `never` for none, or their
    names. A request can require approval for more tools, not for fewer."""
    start_seconds: Seconds = 30.0
    """How long it may take until it is ready and has sent its list of tools."""
    call_seconds: Seconds = 60.0
    """How long a call may take. Then it fails, and the model gets the error."""
    list_seconds: Seconds = 300.0
    """How long its list of tools is kept, unless it reports a change earlier."""


Forwarded = Literal["audio", "completions", "embeddings", "images", "moderations", "rerank"]
"""The endpoints whose bodies go on as they are, by the names of the setting `forwarding`."""

LogLevel = Literal["debug", "info"]
"""The lowest level of lines in the log."""


Dollars = Annotated[float, Meta(ge=0, le=1e6)]


class TokenPrice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The price of tokens, in US dollars per million."""

    input: Dollars | None = None
    """Input tokens."""
    cached_input: Dollars | None = None
    """Input tokens read from the upstream's cache. Default: the price of `input`."""
    cache_write: Dollars | None = None
    """Input tokens written to the upstream's cache. Default: the price of `input`."""
    output: Dollars | None = None
    """Output tokens."""
    reasoning: Dollars | None = None
    """Reasoning tokens. Default: the price of `output`."""


class PriceTier(TokenPrice, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The price of tokens in requests with long input, in US dollars per million."""

    above: Count
    """The number of input tokens above which these prices apply to all tokens of a request."""
    # a tier must name these
    input: Dollars
    output: Dollars


class Price(TokenPrice, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The price of a model: tokens in US dollars per million, everything else in US dollars."""

    tiers: Annotated[tuple[PriceTier, ...], Meta(max_length=8)] = ()
    """Other prices of tokens for requests with long input."""
    per_image: Dollars | None = None
    """One image of `/v1/images/…`. It applies if the answer reports no tokens, or tokens have no price."""
    per_character: Dollars | None = None
    """One character of the `input` of `/v1/audio/speech`. It applies if the answer reports no tokens, or
    tokens have no price."""
    per_second: Dollars | None = None
    """One second of a recording for `/v1/audio/transcriptions` or `…/translations`. It applies if the answer
    reports no tokens, or tokens have no price."""
    unreported_seconds: Annotated[int, Meta(ge=0, le=10_000_000)] | None = None
    """The length, in seconds, that counts for a recording if the answer does not report one. Default: the
    cost of such a recording is unknown."""
    per_request: Dollars | None = None
    """One request, in addition to its other costs."""


class Capabilities(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The capabilities of a model. Those that are not set are unknown."""

    context_window: Count | None = None
    """The maximum number of tokens, input and output together."""
    max_input_tokens: Count | None = None
    """The maximum number of input tokens. Default: the context window minus the output."""
    max_output_tokens: Count | None = None
    """The maximum number of tokens in an answer."""
    tools: bool | None = None
    """Whether it can call tools."""
    max_tools: Count | None = None
    """The maximum number of tools in a request. If there are more, the agent in the terminal offers the first
    ones."""
    streaming_tool_calls: bool | None = None
    """Whether it can call tools in a stream. If not, requests with tools ask the upstream for whole
    answers."""
    images: bool | None = None
    """Whether it accepts images."""
    reasoning: bool | None = None
    """Whether it can reason before it answers."""
    efforts: list[Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]] | None = None
    """The levels of `reasoning.effort` that it accepts, with `none` if reasoning can be turned off. Any other
    level is replaced by the nearest one, with a loss. An upstream's option `efforts` takes precedence."""


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one request, and of all requests together. Beyond a limit, the error names it."""

    header_bytes: Count = 64 * 1024
    """The maximum size of the request line and the headers, in bytes."""
    tools: Count = 1024
    """The maximum number of tools that a request declares, including those in namespaces and in input
    items."""
    depth: Annotated[int, Meta(ge=8, le=500)] = 128
    """The maximum nesting of a request's JSON."""
    json_values: Count = 500_000
    """The maximum number of values in a request's JSON. Objects and arrays count, and so do the values in
    them."""
    items: Count = 10_000
    """The maximum number of items: of a request's input together with the turns that it continues, and of a
    conversation."""
    output_bytes: Count = 256 * 1024 * 1024
    """The maximum number of bytes that an upstream sends for one response. Beyond it, the response fails. A
    comment, or a frame without an event, counts 128 bytes more."""
    choices: Count = 8
    """The maximum number of choices (`n` of Chat Completions, `candidateCount` of Gemini) in a request."""
    concurrent: Count = 2000
    """The maximum number of responses in progress, of all keys together. Without keys, only this one of the
    two applies."""
    concurrent_per_key: Count = 500
    """The maximum number of responses in progress, of one key."""
    background: Count = 5000
    """The maximum number of background responses that wait, of all keys together. Without keys, only this one
    of the two applies."""
    background_per_key: Count = 1000
    """The maximum number of background responses that wait, of one key."""
    readers: Count = 1000
    """The maximum number of readers of stored responses (streams, whole responses and pages of input), of all
    keys together. Without keys, only this one of the two applies."""
    readers_per_key: Count = 200
    """The maximum number of readers of stored responses, of one key."""
    conversation_bytes: Count = 32 * 1024 * 1024
    """The maximum size, in bytes, of the conversation that a request continues with `previous_response_id` or
    `conversation`."""
    conversations_per_key: Annotated[int, Meta(ge=1, le=10**9)] = 10_000
    """The maximum number of stored conversations of one key. Without keys, of all clients."""
    reference_bytes: Count = 4 * 1024 * 1024
    """The maximum size, in bytes, of all items that a request names by `item_reference`."""
    stored_reference_bytes: Count = 64 * 1024
    """The size, in bytes, that the items which a request names by `item_reference` may have if the request is
    stored, since they are stored with it. It is added to 32 times the size of the request's own input."""
    loaded_bytes: Count = 512 * 1024 * 1024
    """The maximum number of bytes of conversations and bodies in memory, uncompressed, including bodies that
    are still being received, of all keys together. Without keys, only this one of the two applies."""
    loaded_bytes_per_key: Count = 128 * 1024 * 1024
    """The maximum number of bytes of conversations and bodies in memory, of one key."""
    fetched_files: Count = 16
    """The maximum number of files that are fetched for a request, including those of the turns that it
    continues."""
    fetched_bytes: Count = 16 * 1024 * 1024
    """The maximum size of all these files together, in bytes."""
    fetch_seconds: Seconds = 20.0
    """How long fetching one file may take."""
    mcp_tools: Count = 128
    """The maximum number of tools of one MCP server. If it has more, its list fails."""
    mcp_message_bytes: Annotated[int, Meta(ge=1024, le=64 * 1024 * 1024)] = 1024 * 1024
    """The maximum size, in bytes, of a message of an MCP server, such as a result, and of its whole list of
    tools."""
    mcp_calls_per_key: Count = 16
    """The maximum number of calls of MCP tools in progress, of one key. Without keys, of all clients. Further
    calls fail."""
    mcp_connections: Count = 256
    """The maximum number of connections to MCP servers that requests have named, of all keys together. Beyond
    it, an unused one is closed; if all are in use, the new one fails."""
    mcp_connections_per_key: Count = 16
    """The maximum number of connections to MCP servers that requests have named, of one key."""
    schema_bytes: Count = 256 * 1024
    """The maximum size of a JSON schema for the answer, in bytes."""
    schema_nodes: Count = 10_000
    """The maximum number of values in a JSON schema for the answer."""
    schema_seconds: Seconds = 5.0
    """How long validating an answer against its schema may take."""
    grace: Seconds = 10.0
    """How long responses in progress may continue after Ctrl-C or a second signal."""
    header_seconds: Seconds = 20.0
    """How long the headers of a request may take to arrive. Then it is refused with 408."""
    body_seconds: Seconds = 30.0
    """The interval in which a body or WebSocket message must arrive at 1 KB/s on average, or end. Otherwise
    it is refused with 408."""
    body_total_seconds: Seconds = 600.0
    """How long a whole body or WebSocket message may take to arrive. Then it is refused with 408."""
    write_seconds: Seconds = 60.0
    """How long a client may read nothing before it is disconnected."""
    idle_seconds: Seconds = 75.0
    """How long a connection is kept open for its next request."""
    connections: Count = 4000
    """The maximum number of open connections of one process. Beyond it, idle connections are closed first."""
    sockets: Count = 1000
    """The maximum number of open WebSockets, of all keys together. Without keys, only this one of the two
    applies."""
    sockets_per_key: Count = 100
    """The maximum number of open WebSockets, of one key."""
    requests_per_minute_per_key: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    """The maximum number of requests for a response in a minute, of one key. Default: unlimited."""
    tokens_per_minute_per_key: Annotated[int, Meta(ge=1, le=10**12)] | None = None
    """The maximum number of input and output tokens in a minute, of one key. They count when a response has
    ended. Default: unlimited."""
    usd_per_day_per_key: Dollars | None = None
    """The maximum cost of the responses of one key in a day (UTC), in US dollars, by `prices` and
    `models_file`. It counts when a response has ended. Requests for a model without a price are refused.
    Default: unlimited."""
    stored_bytes_per_key: Count | None = None
    """The maximum number of stored bytes of one key: responses with their input and events, and
    conversations. Default: unlimited."""


_RECORDING: Final = "recording:"
SOCKET: Final = "unix:"
"""The prefix of an address that is the path of a Unix socket."""
_FILES: Final = ("socket", "ca_file", "client_cert", "client_key")  # fields of an upstream that are paths
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}

# fields whose variables are expanded where they are used, so that settings contain no secrets
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
    """The address to listen on. An address other than loopback needs `api_keys`, `managed_keys` or `oidc`."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    """The port to listen on. 0: any free one."""
    workers: Count = 1
    """The number of worker processes."""
    upstreams: list[UpstreamSettings] = []
    """The upstreams, a table for each."""
    balance: Literal["order", "round_robin", "least_busy"] = "order"
    """How an upstream is chosen if several name the requested model: `order` for the first one in the file,
    `round_robin` for each in turn, `least_busy` for the one with the fewest requests in progress. Those that
    are left out are skipped. A session stays at the upstream that has its prompt cache."""
    aliases: dict[str, str] = {}
    """Additional names of models. Each stands for another name or for `upstream/model`."""
    profiles: str | None = None
    """A folder with profiles of your own, one `NAME.toml` each, relative to the config's folder. They replace
    known ones of the same name."""
    prompts: str | None = None
    """A folder with the prompts that requests name as `prompt`, one `ID.toml` each, relative to the config's
    folder. It is read when the server starts. Default: no prompts."""
    default_model: str | None = None
    """The model for requests that name none."""
    models: dict[str, Capabilities] = {}
    """The capabilities of models, by name, with `*` and `?` as wildcards."""
    prices: dict[str, Price] = {}
    """The prices of models, by the names that clients use, with `*` and `?` as wildcards. They take
    precedence over those of `models_file`. The cost of a model without a price is unknown."""
    models_file: str | None = None
    """A file with further models, as `openresponses-bridge models sync` writes it, relative to the config's
    folder. It is read when the server starts. `[models]` and the upstreams' own lists take precedence over
    it, and it takes precedence over the table that is part of the server. Its prices are by the names that
    upstreams use."""
    tokenizers: dict[str, str] = {}
    """The tokenizers of models, by name, with `*` and `?` as wildcards: the path of a `tokenizer.json`, or an
    encoding such as `tiktoken:o200k_base`. They need the extra `[tokenizers]`. Nothing is downloaded. For
    other models, tokens are estimated."""
    discovery: Seconds = 60.0
    """How long the upstreams' lists of models are kept."""
    api_keys: list[str] = []
    """The keys of clients, each as the key itself, as `${VARIABLE}` or as its hash, `sha256:…`. The server
    keeps only hashes."""
    managed_keys: bool = False
    """Whether keys that `openresponses-bridge keys` manages in the store are accepted too. If so, each
    request needs a key, even while there are none."""
    oidc: list[OidcSettings] = []
    """Identity providers whose tokens are accepted too, a table for each. They need the extra `[oidc]`."""
    operator_keys: list[str] = []
    """The keys for `/metrics` and `/v1/routes`, in the forms of `api_keys`. Default: only direct requests
    from this machine may read them."""
    tools: HostedLimits = HostedLimits()
    """Limits of the tools that this server runs itself."""
    web_search: WebSearchSettings | None = None
    """Web search that this server runs for models. Default: none."""
    functions: list[FunctionSettings] = []
    """Functions of Python modules that this server runs for models, a table for each module."""
    mcp_servers: list[McpServerSettings] = []
    """MCP servers whose tools this server runs for models, a table for each. They need the extra `[mcp]`."""
    mcp_hosts: list[str] = []
    """The hosts of MCP servers that requests may name in `server_url`: `mcp.example.com`, with a port other
    than 443 as `mcp.example.com:8443`, `*.example.com` for all names below it, or `*` for any. They are
    reached only with https:// and at public addresses. Default: none."""
    mcp_private_hosts: list[str] = []
    """Further hosts of that kind, in the same forms but without `*`, that may be at private addresses or use
    http://, such as `127.0.0.1:9000`."""
    wire: Literal["auto", "openai", "openresponses"] = "auto"
    """The spelling of the protocol that clients read: `openai`, `openresponses`, or `auto`, which chooses by
    the fields of a request and its client's name. The header `openresponses-wire` takes precedence, then
    `wire_keys`."""
    wire_keys: WireKeys | None = None
    """The wire for single keys."""
    forwarding: list[Forwarded] = msgspec.field(default_factory=lambda: list(_FORWARDED))
    """The endpoints whose requests are forwarded to the model's upstream unchanged: `completions`,
    `embeddings`, `moderations`, `rerank`, `images`, `audio`. Providers bill the last two by image and minute,
    which limits of tokens do not cover."""
    cors_origins: list[str] = []
    """The origins of web pages that may make requests, such as `https://app.example`, or `*` for any."""
    allowed_hosts: list[str] = []
    """The host names of the server, without ports, in addition to those of loopback. Without keys, requests
    to any other host name are refused."""
    sealing_key_env: str | None = None
    """The environment variable with the key for `encrypted_content`: 32 bytes in hex or base64, or several
    keys with commas between them, of which the first encrypts and all decrypt. Default: a key that the server
    generates and keeps in the data folder."""
    limits: Limits = Limits()
    """Limits of requests and connections."""
    timeouts: Timeouts = Timeouts()
    """Timeouts of upstreams."""
    store: str = "memory://"
    """Where responses are stored: `sqlite:` (a file in the data folder), `sqlite:///FILE`,
    `postgresql+psycopg://…` or `memory://`."""
    event_log: str | None = None
    """Where the events of responses in progress are logged: `file:` (beside the store) or `file:///FOLDER`,
    either with `?fsync=SECONDS`; `redis://…`, for workers on several machines; or `memory://`. Default:
    `file:`, but `memory://` if the store is in memory."""
    stored_responses: Count = 1000
    """The maximum number of responses in a store in memory. Beyond it, the oldest ones are removed."""
    retention: Annotated[str, Meta(pattern=r"^(forever|[0-9]{1,6}[smhdw])\Z")] = "30d"
    """How long responses are kept: for example `90m`, `12h`, `30d`, or `forever`."""
    usage_retention: Annotated[str, Meta(pattern=r"^(forever|[0-9]{1,6}[smhdw])\Z")] = "400d"
    """How long the totals of each key's usage are kept, in the form of `retention`."""
    checkpoint_interval: Seconds = 1.0
    """The time between two checkpoints of a response in progress, in seconds."""
    lease: Annotated[float, Meta(ge=1)] = 10.0
    """The number of seconds without a renewal after which a worker counts as stopped."""
    background_restart: Restart = "unseen"
    """Which background responses are started again after a crash: `unseen` for those whose output nobody can
    have seen, `always` for all. With `always`, the output of background responses is sent only when they have
    ended."""
    log_level: LogLevel = "info"
    """The lowest level of the lines in the log. `debug` adds what each event became in an answer for VS Code,
    without its content."""
    drain: Annotated[str, Meta(pattern=r"^[0-9]{1,6}[smhdw]\Z")] = "10m"
    """How long responses in progress may continue when the server is stopped, such as `30s`, `10m` or
    `1h`."""
    max_body_bytes: Count = 32 * 1024 * 1024
    """The maximum size of a request's body, both compressed and uncompressed, and of an uncompressed
    WebSocket message, in bytes."""
    record: str | None = None
    """A folder for recordings of what each upstream gets and answers, a file for each, relative to the
    config's folder. Default: no recordings."""
    record_bytes: Annotated[int, Meta(ge=128 * 1024)] = 1 << 30
    """The maximum size of a recording, in bytes. What exceeds it is left out."""
    trace: Tracing = Tracing()
    """Traces of responses."""
    span_content: bool = False
    """Whether spans contain the texts of requests, answers and tools, with secrets masked as in traces
    (OpenTelemetry, extra `[otel]`)."""
    keep_alive: Seconds = 15.0
    """The number of seconds without an event after which a comment is sent in a stream."""
    websocket_limit: Seconds = 3600.0
    """How long a WebSocket of a client may be open. Then turns in progress are finished, further messages get
    the error `websocket_connection_limit_reached`, and it is closed."""

    @property
    def redis(self) -> str | None:
        """The address of the Redis that workers share; None without one."""
        return self.event_log if self.event_log is not None and self.event_log.startswith("redis") else None

    @property
    def asks_for_keys(self) -> bool:
        """True if each request needs a key of this server."""
        return bool(self.api_keys or self.managed_keys or self.oidc)


def load_settings(config: Path | None = None, **overrides: Any) -> Settings:
    """Return the settings in a file, with `overrides`; None among those means "not given". Raises
    SettingsError with everything that is wrong, each with the file, its line and the field."""
    options = {name: value for name, value in overrides.items() if value is not None}
    mistakes = Mistakes()
    with located(config, options):
        read = read_config(config) if config is not None else {}
        fields = {"store": EMBEDDED_STORE} | read | options
        if isinstance(read.get("trace"), dict) and "trace" in options:
            fields["trace"] = read["trace"] | options["trace"]
        replaced = fields
        with mistakes.kept():
            replaced = substituted(fields, kept=_UNEXPANDED)
        if "api_keys" in fields:  # those of clients; only their hashes are kept
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
                changes[name] = place(settings, None if name in options else config)
        for name, variable in KEYS_VARIABLES.items():
            with mistakes.kept():
                changes[name] = _hashes(getattr(settings, name), variable, f"$.{name}")
        where = Path() if "upstreams" in options or config is None else config.parent
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
    """Return a line for each deprecated setting in a file that `load_settings` accepts: its place, and what
    replaces it. A field is deprecated by `Meta(extra={"deprecated": "use limits.other"})` in its type."""
    if config is None:
        return []
    return [
        f"{place_in(config, path)}: {path.removeprefix('$.')} is deprecated: {replacement}"
        for path, replacement in deprecated_in(read_config(config), msgspec.inspect.type_info(Settings))
    ]


def _hashed_wire_keys(wire_keys: WireKeys | None) -> WireKeys | None:
    """Return the lists with hashes instead of keys. Raises SettingsError for a key in two lists."""
    if wire_keys is None:
        return None
    wires: dict[str, str] = {}
    for wire in wire_keys.__struct_fields__:
        for number, key in enumerate(getattr(wire_keys, wire)):
            place = f"$.wire_keys.{wire}[{number}]"
            if wires.setdefault(_hash(key, place), wire) != wire:
                raise SettingsError("the key is in another list too", place)
    lists = {wire: [key for key, of in wires.items() if of == wire] for wire in wire_keys.__struct_fields__}
    return WireKeys(**lists)


def _trace(settings: Settings, config: Path | None) -> Tracing:
    folder = _written_folder(settings.trace.folder, config, "$.trace.folder")
    keys = [_hash(key, f"$.trace.keys[{index}]") for index, key in enumerate(settings.trace.keys)]
    return msgspec.structs.replace(settings.trace, folder=folder, keys=keys)


def _written_folder(named: str | None, config: Path | None, at: str) -> str | None:
    """Return the absolute path of this folder. Raises SettingsError if it can't be written, or made later."""
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
    """Return the absolute path of the file of models, which must exist."""
    if named is None:
        return None
    file = (config.parent if config is not None else Path()).joinpath(Path(named).expanduser()).absolute()
    if not file.is_file():
        raise SettingsError(f"{named!r} is not a file", "$.models_file")
    return str(file)


def recording_path(url: str | None) -> Path | None:
    """Return the file of an upstream that is a recording, else None."""
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


def _with_absolute_module(function: FunctionSettings, config: Path | None) -> FunctionSettings:
    """Return the function with the absolute path of its file, if it names one."""
    if not function.module.endswith(".py"):
        return function
    folder = config.parent if config is not None else Path()
    path = folder.joinpath(Path(function.module).expanduser()).absolute()
    return msgspec.structs.replace(function, module=str(path))


def _with_absolute_folder(server: McpServerSettings, config: Path | None) -> McpServerSettings:
    if server.cwd is None:
        return server
    folder = Path() if config is None else config.parent
    return msgspec.structs.replace(server, cwd=str(folder.joinpath(Path(server.cwd).expanduser()).absolute()))


def _check(settings: Settings, mistakes: Mistakes) -> None:
    """Check what the types of the fields do not say; each mistake is collected."""
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
    """Return the absolute path of this folder: workers may run in another one."""
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


def _hashes(entries: list[str], variable: str, place: str) -> list[str]:
    """Return the hashes of these keys or, without any, of those in the variable. Raises SettingsError."""
    keys = entries or [key for key in os.environ.get(variable, "").split(",") if key.strip()]
    return [_hash(key, f"{place}[{index}]") for index, key in enumerate(keys)]


def _hash(key: str, place: str) -> str:
    if not key.strip():  # no client can send it, such as that of an empty variable
        raise SettingsError("the key is empty", place)
    return hashed(key.strip())


def seconds_of(duration: str) -> float | None:
    """Return the seconds of a duration in the form of `retention`; None for `forever`."""
    return None if duration == "forever" else int(duration[:-1]) * float(_UNITS[duration[-1]])


def api_key(upstream: UpstreamSettings) -> str | None:
    """Return the upstream's key from the environment. Raises SettingsError if its variable is not set."""
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
    """Return the settings from the parent process."""
    return msgspec.json.decode(os.environ[WORKER_SETTINGS], type=Settings)
