"""The tables of the config: what is set for one upstream, for a model, for requests and times.

docs/settings.md is drawn from these classes and from `Settings`: their docstrings say of each field, as
`` `name`: … ``, what it is.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

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
