"""Turns the settings of an upstream and its profile into the target of requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.dialects.base import History, Outgoing, RequestContext, Traits
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.seal import Sealer
from openresponses_server.observation.recordings.masking import header_secrets
from openresponses_server.observation.recordings.writer import Tap
from openresponses_server.observation.tracing import is_installed
from openresponses_server.settings import (
    SOCKET,
    AwsSettings,
    Capabilities,
    CodexSettings,
    Retries,
    Settings,
    SettingsError,
    Timeouts,
    UpstreamSettings,
    api_key,
    recording_path,
)
from openresponses_server.settings.data_folder import ServerSealer
from openresponses_server.settings.files import did_you_mean, expanded
from openresponses_server.upstreams.base import UNNAMED, HttpClientFactory, SocketCounts, Upstream, called
from openresponses_server.upstreams.choices import SharedUpstream
from openresponses_server.upstreams.demo.upstream import MODELS, DemoUpstream
from openresponses_server.upstreams.dialects import (
    CHAT,
    DEFAULT,
    DIALECTS,
    HttpDialect,
    UpstreamDialect,
    has_sockets,
    without_password,
)
from openresponses_server.upstreams.profiles import DialectOptions, Profile, ProfileDialect, profile
from openresponses_server.upstreams.routing.states import Candidate, Route
from openresponses_server.upstreams.sessions import PURPOSE, SessionHeaders, checked_templates

if TYPE_CHECKING:
    from openresponses_server.http.client.pool import ConnectionPool
    from openresponses_server.upstreams.aws_signing import AwsSigner
    from openresponses_server.upstreams.http import AddressOptions, HttpUpstream, UpstreamKey
    from openresponses_server.upstreams.key_command import KeyCommand
    from openresponses_server.upstreams.recording.played import PlayedUpstream

_PART_FOR_OUTPUT: Final = 4  # of a context window, where nobody says how long an answer may be
_OF_ADDRESSES: Final = (
    *(
        "url",
        "api_key",
        "api_key_env",
        "api_keys",
        "api_key_command",
        "api_key_header",
        "headers",
        "query",
        "pass_through",
        "aws",
    ),
    *("proxy", "socket", "verify", "ca_file", "client_cert", "client_key", "websocket", "websockets"),
)
"""Fields that don't apply to an upstream without an address."""


class Target(NamedTuple):
    """The upstream and the model for a request, with what requests to them need."""

    upstream: Upstream
    dialect: UpstreamDialect
    model: str
    """As in the request to the upstream."""
    options: Struct
    """The upstream's options, of its dialect's type."""
    traits: Traits
    """The abilities of a server with these options."""
    sealer: Sealer
    """Seals opaque reasoning."""
    retries: Retries = Retries()
    fallbacks: tuple[Target, ...] = ()
    """The other routes of a request for this model."""
    has_equals: bool = False
    """True if several of the routes are of one tier: turns, or the session, decide between them."""
    candidate: Candidate = Candidate(Route(""))
    """Its route, for the choice among them."""
    failover_on: frozenset[str] = frozenset()
    """The causes for which another route is asked instead."""
    shared: SharedUpstream | None = None
    """The upstream for several runs that share one request."""
    choice: int | None = None
    """The index of the choice that a run reads."""
    able: Capabilities = Capabilities()
    fetches: Sequence[str] = ()
    """The addresses that are fetched for it: `files`, `images`."""
    reasoning_as: str = "raw"
    """The form in which raw reasoning is shown."""
    text_after_tools: bool = True
    """As in `Dialect`."""
    counts: bool = True
    """Whether reported input tokens are those of the request, by the model's tokenizer."""
    passes_key: bool = False
    """True if the upstream is sent the client's key, where it has one."""
    has_own_key: bool = False
    """True if it is sent a key of the settings where the client has none."""
    session_headers: SessionHeaders | None = None
    """The headers that name the session, if the upstream wants any."""
    prewarms: bool = False
    """Whether connections to it are opened ahead."""

    def checks_key_of(self, owner: str) -> bool:
        """Return True if requests to the upstream carry only the key of this owner."""
        return self.passes_key and (bool(owner) or not self.has_own_key)

    def bound(self, owner: str) -> Target:
        """Return the target for requests of this owner: its seals can be opened by this owner only."""
        fallbacks = tuple(each.bound(owner) for each in self.fallbacks)
        return self._replace(sealer=self.sealer.bound(owner), fallbacks=fallbacks)

    def for_choices(self, n: int) -> Target:
        """Return the target for a request for this many choices; their runs share it if the upstream supports
        `n`."""
        return self._replace(
            shared=SharedUpstream(self.upstream, n) if self.traits.takes_choices else None,
            fallbacks=tuple(each.for_choices(n) for each in self.fallbacks),
        )

    def of_choice(self, number: int) -> Target:
        """Return the target for the run of this choice."""
        mine = self._replace(fallbacks=tuple(each.of_choice(number) for each in self.fallbacks))
        if self.shared is None:
            return mine
        return mine._replace(upstream=self.shared.choice_upstream(number), choice=number)

    @property
    def alone(self) -> Target:
        """The target for a request that no other run shares."""
        if self.shared is None:
            return self
        return self._replace(upstream=self.shared.upstream, shared=None, choice=None)

    @property
    def all_shared(self) -> list[SharedUpstream]:
        """The shared upstreams of this one and its fallbacks."""
        return [each.shared for each in (self, *self.fallbacks) if each.shared is not None]

    def end_choice(self, number: int) -> None:
        """Detach this choice, whose run has ended, from the upstreams that the choices share."""
        for shared in self.all_shared:
            shared.leave(number)

    def prepare(
        self,
        request: CreateResponse,
        history: History,
        identities: ToolIdentityMap,
        *,
        stream: bool = True,
    ) -> Outgoing:
        """The request to send; without `stream` it asks for a whole answer. Raises InvalidRequestError for a
        request that the upstream can't express."""
        choices = 1 if self.shared is None else self.shared.readers
        reasons = self.able.reasoning is not False
        efforts = None if self.able.efforts is None else frozenset(self.able.efforts)
        able = self.able
        room = _output_room(able) if able.context_window or able.max_output_tokens else None
        context = RequestContext(
            history,
            self.model,
            self.options,
            self.sealer,
            identities,
            choices,
            stream,
            reasons,
            efforts,
            room,
        )
        return self.dialect.side.request(request, context)


def _output_room(able: Capabilities) -> int | None:
    """Return how many tokens an answer may have, most of the window left to its input; None if no limit is
    known."""
    window = able.context_window
    limits = [able.max_output_tokens, None if window is None else max(window // _PART_FOR_OUTPUT, 1)]
    return min((limit for limit in limits if limit), default=None)


class Configured(NamedTuple):
    """One upstream of the settings. `counts` is as in `Target`."""

    settings: UpstreamSettings
    name: str
    upstream: Upstream
    dialect: UpstreamDialect
    options: DialectOptions
    sealer: Sealer
    counts: bool = True
    others: tuple[Upstream, ...] = ()
    """The same upstream with its other keys."""
    key_ends: tuple[Callable[[], str], ...] = ()
    """Give the last characters of each of its keys."""
    has_own_key: bool = False
    """As in `Target`."""
    sockets: SocketCounts | None = None
    """Counts its WebSockets, if it has any."""
    session_headers: SessionHeaders | None = None
    """As in `Target`."""

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """One upstream for each key."""
        return self.upstream, *self.others

    def wrapped(self, wrap: Callable[[Upstream], Upstream]) -> Configured:
        """Return this with another upstream around each of its upstreams."""
        return self._replace(upstream=wrap(self.upstream), others=tuple(map(wrap, self.others)))

    def targets(self, model: str, tier: int = 0) -> tuple[Target, ...]:
        """The targets of a request for this name, one for each key."""
        outgoing = self.settings.model or model
        first = self._target(outgoing)
        return tuple(
            first._replace(
                upstream=upstream,
                candidate=Candidate(Route(self.name, number, outgoing), tier, self.settings.weight),
            )
            for number, upstream in enumerate(self.upstreams)
        )

    def _target(self, outgoing: str) -> Target:
        options = self.options.of(outgoing)
        return Target(
            self.upstream,
            self.dialect,
            outgoing,
            options,
            self.dialect.side.traits(options),
            self.sealer,
            self.settings.retries,
            failover_on=frozenset(self.settings.failover_on),
            fetches=self.settings.fetch,
            reasoning_as=self.settings.reasoning_as,
            text_after_tools=self.dialect.dialect.text_after_tools
            if self.settings.text_after_tools is None
            else self.settings.text_after_tools,
            counts=self.counts,
            passes_key=self.settings.pass_through,
            has_own_key=self.has_own_key,
            session_headers=self.session_headers,
            prewarms=self.sockets is not None and self.settings.websockets.prewarmed > 0,
        )


def demo(sealer: Sealer, taps: Sequence[Tap] = ()) -> Configured:
    """The built-in model."""
    model = _tapped(DemoUpstream(), CHAT.dialect.name, taps)
    settings = UpstreamSettings(models=list(MODELS))
    options = DialectOptions(CHAT.side.options)
    return Configured(settings, model.name, model, CHAT, options, sealer, counts=False)  # it counts words


def configured(
    upstream: UpstreamSettings, settings: Settings, sealer: Sealer, taps: Sequence[Tap] = ()
) -> Configured:
    """The upstream of these settings, whose exchanges each of the `taps` records. Raises SettingsError with
    its name and what is wrong."""
    folder = None if settings.profiles is None else Path(settings.profiles)
    known = None if upstream.profile is None else profile(upstream.profile, folder)
    name = upstream.name or upstream.profile or UNNAMED
    _check_keys(upstream, settings, name)
    source = _played(upstream, name)
    spoken = upstream.dialect or (source and source.dialect) or (known.dialect if known else DEFAULT)
    dialect = DIALECTS.get(spoken)
    if dialect is None:
        what = f"dialect {spoken!r} is not one of: {', '.join(DIALECTS)}{did_you_mean(spoken, DIALECTS)}"
        raise SettingsError(f"{called(name)}: {what}", ".dialect")
    at = known.dialects.get(spoken) if known else None
    layers = [(at.options, at.model_options)] if at else []
    options = DialectOptions(dialect.side.options, [*layers, (upstream.options, upstream.model_options)])
    options.check(f"{called(name)}: ")
    if not isinstance(dialect, HttpDialect):
        if upstream.session_headers:
            what = f"session_headers are for HTTP, not for the dialect {spoken}"
            raise SettingsError(f"{called(name)}: {what}", ".session_headers")
        process = _process(upstream, settings, name, taps, spoken)
        return Configured(upstream, name, process, dialect, options, sealer, counts=False)  # the agent's, too
    if upstream.codex is not None:
        raise SettingsError(f"{called(name)}: codex is for the dialect codex", ".codex")
    url = upstream.url or (expanded(at.url, ".profile") if at and at.url else None)
    if url is None:
        raise SettingsError(
            f"{called(name)}: profile {upstream.profile} has no address for dialect {spoken!r}"
        )
    sockets = _sockets(upstream, at, name, dialect, source)
    client, others, has_own_key = _client(
        upstream, settings, known, name, url, dialect, source, taps, sockets
    )
    key_ends = tuple(each.key_end for each in (client, *others))
    sessions = _session_headers(upstream, settings, known, name, dialect)
    return Configured(
        upstream,
        name,
        client,
        dialect,
        options,
        sealer,
        source is None,
        others,
        key_ends,
        has_own_key,
        sockets,
        sessions,
    )


def _session_headers(
    upstream: UpstreamSettings, settings: Settings, known: Profile | None, name: str, dialect: HttpDialect
) -> SessionHeaders | None:
    """Return the headers that name the session; None if there are none. Raises SettingsError."""
    templates = upstream.session_headers or (known.session_headers if known else {})
    if not templates:
        return None
    key_header = upstream.api_key_header or (known and known.api_key_header) or dialect.key_header.name
    taken = {**dialect.headers, **upstream.headers}
    checked = checked_templates(templates, called(name), taken, key_header)
    return SessionHeaders(
        name, checked, partial(ServerSealer(settings.sealing_key_env).derived_keys, PURPOSE)
    )


def _sockets(
    upstream: UpstreamSettings,
    at: ProfileDialect | None,
    name: str,
    dialect: HttpDialect,
    source: PlayedUpstream | None,
) -> SocketCounts | None:
    """The counts of the upstream's WebSockets; None if its requests go over HTTP alone. Raises
    SettingsError."""
    # what a profile says of its own address says nothing of another
    usual = at is not None and at.websocket and upstream.url is None
    if source is not None or not (usual if upstream.websocket is None else upstream.websocket):
        return None
    if not has_sockets(dialect):
        what = f"dialect {dialect.dialect.name!r} has no WebSockets"
        raise SettingsError(f"{called(name)}: {what}", ".websocket")
    return SocketCounts()


def _client(
    upstream: UpstreamSettings,
    settings: Settings,
    known: Profile | None,
    name: str,
    url: str,
    dialect: HttpDialect,
    source: PlayedUpstream | None,
    taps: Sequence[Tap],
    sockets: SocketCounts | None,
) -> tuple[HttpUpstream, tuple[HttpUpstream, ...], bool]:
    """Return the upstream at this address, the same with each other key, and True if it has a key or another
    secret of its own. Raises SettingsError."""
    from openresponses_server.upstreams.http import HttpUpstream  # the demo model and `--help` don't need it

    keys = _keys(upstream, known, name)
    secrets = [*header_secrets(upstream.headers), *(each for each in keys[1:] if isinstance(each, str))]
    key, key_command = _split(keys[0])
    signer = None if source is not None else _signer(upstream, known, name, url, dialect)
    address = None
    try:
        if source is not None:
            dialect = dialect._replace(address=str)  # the name of a file
            connect = source.connect(upstream.playback)
        else:
            url, socket = _place(upstream, url, dialect)
            connect, hidden = _connecting(upstream, name, dialect.address(url), socket)
            secrets = [*secrets, *hidden]
            address = None if socket is None else f"{SOCKET}{socket}"
            if sockets is not None:
                connect = _over_sockets(connect, dialect, upstream, sockets)
        for tap in taps:
            from openresponses_server.upstreams.recording.played import recorded_connect

            connect = recorded_connect(tap, dialect, url, secrets, connect)
        if upstream.trace_context and is_installed():
            from openresponses_server.upstreams.spans import propagating

            connect = propagating(connect)
        client = HttpUpstream(
            name,
            url,
            dialect,
            upstream.timeouts or settings.timeouts,
            _key_of(upstream, known, key, key_command, signer),
            _address_options(upstream, secrets, address, plays=source is not None),
            connect,
        )
    except SettingsError:
        raise  # the error names its field
    except ValueError as error:
        raise SettingsError(f"{called(name)}: {error}", ".url") from error
    others = tuple(client.with_key(*_split(each)) for each in keys[1:])
    client.share_secrets(others)
    return client, others, key is not None or signer is not None or bool(secrets)


def _address_options(
    upstream: UpstreamSettings, secrets: Sequence[str], shown_as: str | None, *, plays: bool
) -> AddressOptions:
    from openresponses_server.upstreams.http import AddressOptions

    return AddressOptions(
        headers={name.lower(): expanded(value) for name, value in upstream.headers.items()},
        query={name: expanded(value) for name, value in upstream.query.items()},
        secrets=secrets,
        shown_as=shown_as,
        plays=plays,
    )


def _signer(
    upstream: UpstreamSettings, known: Profile | None, name: str, url: str, dialect: HttpDialect
) -> AwsSigner | None:
    """Return what signs the requests of an upstream without a key, None if nothing does. Raises
    SettingsError."""
    signature = dialect.endpoint.signature
    if not signature or not _is_signed(upstream, known):
        if upstream.aws is not None:
            why = (
                "it has a key" if signature else f"requests of dialect {dialect.dialect.name} are not signed"
            )
            raise SettingsError(f"{called(name)}: {why}", ".aws")
        return None
    from openresponses_server.upstreams.aws_signing import signer_of

    return signer_of(signature, name, url, upstream.aws or AwsSettings())


def _is_signed(upstream: UpstreamSettings, known: Profile | None) -> bool:
    """Return True if requests of an upstream whose dialect has a signature are signed: it has no key."""
    has_key = (
        upstream.api_key
        or upstream.api_keys
        or upstream.api_key_env
        or upstream.api_key_command
        or upstream.pass_through
    )
    if has_key or any(header.lower() == "authorization" for header in upstream.headers):
        return False
    usual = known.api_key_env if known is not None and upstream.url is None else None
    return upstream.aws is not None or usual is None or not os.environ.get(usual)


def _over_sockets(
    connect: Callable[[str, Timeouts], ConnectionPool],
    dialect: HttpDialect,
    upstream: UpstreamSettings,
    counts: SocketCounts,
) -> HttpClientFactory:
    from openresponses_server.upstreams.sockets import over_sockets

    framing = dialect.endpoint.socket
    assert framing is not None
    return over_sockets(connect, dialect.endpoint.path, framing, upstream.websockets, counts)


def _key_of(
    upstream: UpstreamSettings,
    known: Profile | None,
    value: str | None,
    command: KeyCommand | None,
    signer: AwsSigner | None,
) -> UpstreamKey:
    from openresponses_server.upstreams.http import UpstreamKey

    usual = known.api_key_header if known is not None and command is None else None
    header = upstream.api_key_header or usual
    return UpstreamKey(
        value=value, command=command, header=header, signer=signer, pass_through=upstream.pass_through
    )


def _check_keys(upstream: UpstreamSettings, settings: Settings, name: str) -> None:
    """Raises SettingsError for keys that are mutually exclusive."""
    if upstream.pass_through and upstream.api_key_command:
        raise SettingsError(
            f"{called(name)}: pass_through and api_key_command are mutually exclusive", ".api_key_command"
        )
    if upstream.api_key_command and (upstream.api_key or upstream.api_key_env):
        raise SettingsError(f"{called(name)}: it already has a key", ".api_key_command")
    if upstream.api_keys and (
        upstream.api_key or upstream.api_key_env or upstream.api_key_command or upstream.pass_through
    ):
        raise SettingsError(f"{called(name)}: api_keys can't be combined with another key", ".api_keys")
    if upstream.pass_through and settings.asks_for_keys:
        raise SettingsError(
            f"{called(name)}: pass_through and api_keys are mutually exclusive: clients have one key"
        )


def _played(upstream: UpstreamSettings, name: str) -> PlayedUpstream | None:
    """Return the recording that these settings name in the place of an address. Raises SettingsError."""
    if (path := recording_path(upstream.url)) is None:
        return None
    from openresponses_server.upstreams.recording.played import PlayedUpstream

    try:
        return PlayedUpstream(path, upstream.dialect)
    except SettingsError as error:
        raise SettingsError(f"{called(name)}: {error.message}", ".url") from error


def _place(upstream: UpstreamSettings, url: str, dialect: HttpDialect) -> tuple[str, str | None]:
    """The address without the dialect's own path, which people copy with it, and the socket if the address
    names one. Raises SettingsError."""
    socket = upstream.socket
    if url.startswith(SOCKET):
        if socket is not None:
            raise SettingsError("the address is already a socket", ".socket")
        return "http://localhost", url.removeprefix(SOCKET)
    bare = url.rstrip("/")
    for other in DIALECTS.values():
        if isinstance(other, HttpDialect) and bare.endswith(other.endpoint.path):
            base = bare.removesuffix(other.endpoint.path)
            if other.endpoint.path == dialect.endpoint.path:
                return base, socket
            raise SettingsError(
                f"{without_password(url)} is an address of the dialect {other.dialect.name}: set that "
                f"dialect, and {without_password(base)} as the address",
                ".url",
            )
    return url, socket


def _connecting(
    upstream: UpstreamSettings, name: str, base: str, socket: str | None
) -> tuple[Callable[[str, Timeouts], ConnectionPool], Sequence[str]]:
    """The factory of the HTTP client of an upstream at this address, and the secrets that its proxy gets.
    Raises SettingsError for settings that don't allow connections, ValueError for the address."""
    from openresponses_server.http.client.connect_options import (
        ConnectOptions,
        ConnectOptionsError,
        TlsOptions,
    )
    from openresponses_server.http.client.connection import request_target_of
    from openresponses_server.http.client.pool import ConnectionPool

    try:
        origin = request_target_of(base).origin
    except OSError as error:
        raise ValueError(str(error)) from error
    try:
        proxy = None if upstream.proxy is None else expanded(upstream.proxy, ".proxy")
        tls_options = TlsOptions(upstream.verify, upstream.ca_file, upstream.client_cert, upstream.client_key)
        connect_options = ConnectOptions(tls_options, proxy, socket)
        used_proxy = connect_options.check(origin)
    except ConnectOptionsError as error:
        at = f".{error.field}" if error.field else ""
        raise SettingsError(f"{called(name)}: {error}", at) from error
    return partial(ConnectionPool, options=connect_options), () if used_proxy is None else used_proxy.secrets


def _process(
    upstream_settings: UpstreamSettings, settings: Settings, name: str, taps: Sequence[Tap], dialect: str
) -> Upstream:
    from openresponses_server.upstreams.codex.upstream import CodexUpstream

    unused = UpstreamSettings()
    for field in _OF_ADDRESSES:
        if getattr(upstream_settings, field) != getattr(unused, field):
            what = f"{field} is for upstreams with an address; what Codex needs is in [upstreams.codex]"
            raise SettingsError(f"{called(name)}: {what}", f".{field}")
    codex = upstream_settings.codex or CodexSettings()
    for field in ("cwd", "home"):
        folder = getattr(codex, field)
        if folder is not None and not Path(folder).expanduser().is_dir():
            raise SettingsError(f"{called(name)}: {folder!r} is not a folder", f".codex.{field}")
    upstream = CodexUpstream(name, codex, upstream_settings.timeouts or settings.timeouts)
    return _tapped(upstream, dialect, taps)


def _tapped(upstream: Upstream, dialect: str, taps: Sequence[Tap]) -> Upstream:
    """Records the exchanges of an upstream that is not reached over HTTP."""
    for tap in taps:
        from openresponses_server.upstreams.recording.recorded import RecordedUpstream

        upstream = RecordedUpstream(upstream, tap(upstream.name), dialect)
    return upstream


def secrets_of(settings: Settings) -> list[str]:
    """The secrets that requests to the upstreams of these settings carry."""
    folder = None if settings.profiles is None else Path(settings.profiles)
    secrets: list[str | None] = []
    for upstream in settings.upstreams:
        known = None if upstream.profile is None else profile(upstream.profile, folder)
        password = urlsplit(upstream.url or "").password or ""
        keys = [_split(each)[0] for each in _keys(upstream, known, "")]
        secrets += [*keys, *header_secrets(upstream.headers), password, unquote(password)]
        secrets += _proxy_secrets(upstream)
    return [secret for secret in secrets if secret]


def _proxy_secrets(upstream: UpstreamSettings) -> Sequence[str]:
    if upstream.proxy is None:
        return ()
    from openresponses_server.http.client.proxies import Proxy

    try:
        return Proxy(expanded(upstream.proxy)).secrets
    except ValueError:
        return ()  # its error is reported elsewhere


def _keys(upstream: UpstreamSettings, known: Profile | None, name: str) -> list[str | KeyCommand | None]:
    """The upstream's keys, at least one, which may be none."""
    if not upstream.api_keys:
        command = _key_command(upstream, known, name)
        return [_key(upstream, known) if command is None else command]
    keys: dict[str, str | KeyCommand | None] = {}
    for number, each in enumerate(upstream.api_keys):
        at = f".api_keys[{number}]"
        if isinstance(each, str):
            key = expanded(each, at)
            if not key:
                raise SettingsError("it is empty", at)
            keys.setdefault(key, key)
            continue
        from openresponses_server.upstreams.key_command import KeyCommand

        argv = [expanded(part, at) for part in each]
        if not argv:
            raise SettingsError("it names no program", at)
        keys.setdefault("\0".join(argv), KeyCommand(name, argv, upstream.api_key_seconds))
    return list(keys.values())


def _split(key: str | KeyCommand | None) -> tuple[str | None, KeyCommand | None]:
    """Return (key, command): one of them is None."""
    return (key, None) if key is None or isinstance(key, str) else (None, key)


def _key(upstream: UpstreamSettings, known: Profile | None) -> str | None:
    """The upstream's key. A profile's variable applies only to the profile's own address, so that no other
    server gets the key."""
    own = api_key(upstream)
    if (
        upstream.api_keys
        or own is not None
        or known is None
        or known.api_key_env is None
        or upstream.url is not None
    ):
        return own
    if upstream.api_key_command:
        return None
    if upstream.pass_through or (_has_signature(upstream, known) and _is_signed(upstream, known)):
        return None
    return api_key(msgspec.structs.replace(upstream, api_key_env=known.api_key_env))


def _has_signature(upstream: UpstreamSettings, known: Profile) -> bool:
    """Return True if requests without a key can be signed."""
    dialect = DIALECTS.get(upstream.dialect or known.dialect)
    return isinstance(dialect, HttpDialect) and bool(dialect.endpoint.signature)


def _key_command(upstream: UpstreamSettings, known: Profile | None, name: str) -> KeyCommand | None:
    """The command that prints the upstream's key. A profile's applies as its variable does, unless that is
    named."""
    argv = [expanded(each, ".api_key_command") for each in upstream.api_key_command]
    has_key = upstream.api_key or upstream.api_keys or upstream.api_key_env or upstream.pass_through
    if not argv and not has_key and known is not None and not known.api_key_env and upstream.url is None:
        argv = known.api_key_command
    if not argv:
        return None
    from openresponses_server.upstreams.key_command import KeyCommand

    return KeyCommand(name, argv, upstream.api_key_seconds)
