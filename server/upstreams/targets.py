"""Settings of an upstream and its profile → where requests go, and how it wants them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from bridge.dialects.base import History, Outgoing, RequestContext
from bridge.dialects.chat_completions import ChatOptions
from bridge.protocol.request import CreateResponse
from bridge.seal import Sealer
from bridge.tools.identity import ToolIdentityMap
from server.config import expanded
from server.settings import Retries, Settings, SettingsError, UpstreamSettings, api_key
from server.upstreams.base import UNNAMED, Upstream, called
from server.upstreams.demo.upstream import MODELS, DemoUpstream
from server.upstreams.dialects import CHAT, DEFAULT, DIALECTS, HttpDialect
from server.upstreams.http import HttpUpstream
from server.upstreams.profiles import Profile, profile
from server.upstreams.secrets import header_secrets
from server.upstreams.shared import SharedUpstream


class Target(NamedTuple):
    """Where a request goes: `model` is the name that goes out; `options` are what this upstream wants, of the
    type that its dialect says; `sealer` is what seals opaque reasoning; `fallbacks` are asked in their order
    when this one is down or busy. `shared` is the upstream for several runs that share one request, `choice`
    which of its choices a run reads."""

    upstream: Upstream
    dialect: HttpDialect
    model: str
    options: Struct
    sealer: Sealer
    retries: Retries = Retries()
    fallbacks: tuple[Target, ...] = ()
    shared: SharedUpstream | None = None
    choice: int | None = None

    def bound(self, owner: str) -> Target:
        """The same for requests of this owner: what it seals opens for them alone."""
        fallbacks = tuple(each.bound(owner) for each in self.fallbacks)
        return self._replace(sealer=self.sealer.bound(owner), fallbacks=fallbacks)

    def for_choices(self, n: int) -> Target:
        """The same for a request for so many choices, shared by their runs where the upstream takes `n`."""
        takes_n = isinstance(self.options, ChatOptions) and self.options.takes_n
        return self._replace(
            shared=SharedUpstream(self.upstream, n) if takes_n else None,
            fallbacks=tuple(each.for_choices(n) for each in self.fallbacks),
        )

    def of_choice(self, number: int) -> Target:
        """The same for the run that makes this choice."""
        mine = self._replace(fallbacks=tuple(each.of_choice(number) for each in self.fallbacks))
        if self.shared is None:
            return mine
        return mine._replace(upstream=self.shared.reader(number), choice=number)

    @property
    def all_shared(self) -> list[SharedUpstream]:
        """The shared upstreams of this one and its fallbacks."""
        return [each.shared for each in (self, *self.fallbacks) if each.shared is not None]

    def prepare(self, request: CreateResponse, history: History, identities: ToolIdentityMap) -> Outgoing:
        """The request as it goes out. Raises InvalidRequestError for what can't be sent there."""
        choices = 1 if self.shared is None else self.shared.readers
        context = RequestContext(history, self.model, self.options, self.sealer, identities, choices)
        return self.dialect.side.request(request, context)


class Configured(NamedTuple):
    """One upstream of the settings, ready to be used; `settings` has its name."""

    settings: UpstreamSettings
    name: str
    upstream: Upstream
    dialect: HttpDialect
    options: Struct
    sealer: Sealer

    def target(self, model: str, fallbacks: tuple[Target, ...] = ()) -> Target:
        """For a request under this name."""
        outgoing = self.settings.model or model
        return Target(
            self.upstream,
            self.dialect,
            outgoing,
            self.options,
            self.sealer,
            self.settings.retries,
            fallbacks,
        )


def demo(sealer: Sealer) -> Configured:
    """The built-in model."""
    settings = UpstreamSettings(models=list(MODELS))
    return Configured(settings, DemoUpstream.name, DemoUpstream(), CHAT, CHAT.side.options(), sealer)


def configured(given: UpstreamSettings, settings: Settings, sealer: Sealer) -> Configured:
    """The upstream of these settings. Raises SettingsError naming it and what is wrong."""
    known = None if given.profile is None else profile(given.profile)
    name = given.name or given.profile or UNNAMED
    if given.pass_through and settings.api_keys:
        raise SettingsError(
            f"{called(name)}: pass_through and api_keys exclude each other: clients have one key"
        )
    spoken = given.dialect or (known.dialect if known else DEFAULT)
    dialect = DIALECTS.get(spoken)
    if dialect is None:
        raise SettingsError(f"{called(name)}: dialect {spoken!r} is not one of: {', '.join(DIALECTS)}")
    at = known.dialects.get(spoken) if known else None
    url = given.url or (at.url if at else None)
    if url is None:
        raise SettingsError(f"{called(name)}: profile {given.profile} has no address for dialect {spoken!r}")
    options = _options(dialect.side.options, {**(at.options if at else {}), **given.options}, name)
    try:
        client = HttpUpstream(
            name,
            url,
            dialect,
            given.timeouts or settings.timeouts,
            api_key=_key(given, known),
            pass_through=given.pass_through,
            headers={header.lower(): expanded(value) for header, value in given.headers.items()},
            secrets=header_secrets(given.headers),
        )
    except ValueError as error:
        raise SettingsError(f"{called(name)}: {error}") from error
    return Configured(given, name, client, dialect, options, sealer)


def _key(given: UpstreamSettings, known: Profile | None) -> str | None:
    """The upstream's key; a profile's variable counts at the profile's own address only, so that a key is not
    sent to another server."""
    own = api_key(given)
    if own is not None or known is None or known.api_key_env is None or given.url is not None:
        return own
    if given.pass_through:
        return None
    return api_key(msgspec.structs.replace(given, api_key_env=known.api_key_env))


def _options(kind: type[Struct], fields: dict[str, Any], name: str) -> Struct:
    unknown = sorted(fields.keys() - set(kind.__struct_fields__))
    if unknown:
        known = ", ".join(kind.__struct_fields__)
        raise SettingsError(f"{called(name)}: options.{unknown[0]} is not one of: {known}")
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{called(name)}: options: {error}") from error
