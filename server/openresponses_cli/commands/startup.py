"""The lines that `serve` prints when it starts: its address, a command to try, its stores and keys, and the
upstreams that answer.

The models of upstreams are listed on a separate thread, so that the server does not wait for them. The
requests go to the same addresses as clients' requests.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import shlex
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import click

from openresponses_bridge.text import counted, printable
from openresponses_server.api.inspector import ROOT
from openresponses_server.errors import UpstreamError
from openresponses_server.settings import Settings, SettingsError, UpstreamSettings
from openresponses_server.settings.data_folder import ServerSealer
from openresponses_server.settings.files import did_you_mean
from openresponses_server.settings.hosts import is_loopback
from openresponses_server.store.stores import shown_store
from openresponses_server.upstreams.base import Upstream
from openresponses_server.upstreams.catalog import capabilities_of, is_pattern
from openresponses_server.upstreams.dialects import DIALECTS, ProcessDialect, without_password
from openresponses_server.upstreams.profiles import Profile, profile
from openresponses_server.upstreams.routing.models import Router, build_router

TIMEOUT: Final = 3.0
"""Seconds in which an upstream must list its models."""
_SHOWN: Final = 5  # models of an upstream
_LONGEST: Final = 60  # characters of a model's name
_JOIN_SECONDS: Final = 1.0  # seconds that the process waits for the thread at exit
_PLACEHOLDER: Final = "MODEL"
_NOWHERE: Final = "http://127.0.0.1:0"  # the address of a command, which is never an upstream's

CheckResult = list[str] | UpstreamError
"""The models that an upstream lists, or the error."""


class UpstreamCheck(NamedTuple):
    """An upstream, its settings and profile, and the result of listing its models."""

    upstream: Upstream
    settings: UpstreamSettings
    profile: Profile | None
    answer: CheckResult


def print_startup(settings: Settings, host: str, port: int) -> threading.Thread | None:
    """Print the lines; those about upstreams follow when these have answered. Returns the thread that asks
    them; None if there is none."""
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    click.echo(f"openresponses-bridge is listening on {address}")
    model = example_model(settings)
    if model is not None:
        click.echo(curl_line(address, model, keys=settings.asks_for_keys))
    click.echo(f"  inspector: {address}{ROOT}, which shows streams event by event")
    for line in settings_lines(settings):
        click.echo(line)
    if not settings.upstreams:
        click.echo(
            "  upstream: the built-in demo model, which answers by rule (--upstream ollama for a real one)"
        )
        return None
    return _UpstreamChecks(settings, address, shown_curl=model is not None).start()


def example_model(settings: Settings) -> str | None:
    """Return a model that requests can name; None if the settings name none."""
    first = settings.upstreams[0] if settings.upstreams else None
    if first is None:
        return settings.default_model or "demo"
    named = [name for name in first.models if not is_pattern(name)]
    return settings.default_model or first.model or (named[0] if named else None)


def curl_line(address: str, model: str, *, keys: bool) -> str:
    """Return a shell command for a request, quoted for any model name."""
    body = json.dumps({"model": model, "input": "Hello", "stream": True})
    key = " -H 'authorization: Bearer YOUR_KEY'" if keys else ""
    return f"  curl -N {address}/v1/responses -H 'content-type: application/json'{key} -d {shlex.quote(body)}"


def settings_lines(settings: Settings) -> list[str]:
    """Return the lines about the store, the folders that are written to, and the keys."""
    lines = [
        f"  store: {shown_store(settings.store)}, responses are kept {_retention_text(settings.retention)}"
    ]
    if settings.event_log is not None and not settings.event_log.startswith("memory"):
        lines.append(f"  event log: {without_password(settings.event_log)}")
    if settings.record is not None:
        lines.append(f"  record: {printable(settings.record)}, what upstreams are sent and answer")
    if (traced := settings.trace).folder is not None:
        which = "each response" if traced.when == "always" else "responses that ask for it"
        retention = f"kept for {traced.retention}" if traced.retention != "forever" else "kept forever"
        lines.append(f"  trace: {printable(traced.folder)}, all that {which} sends and gets, {retention}")
    if settings.api_keys:
        count = len(settings.api_keys)
        lines.append(f"  keys: {count}; each request must send {'it' if count == 1 else 'one of them'}")
    elif settings.asks_for_keys:
        where = ["`openresponses-bridge keys`"] if settings.managed_keys else []
        where += [each.issuer for each in settings.oidc]
        lines.append(f"  keys: those of {', '.join(where)}; each request must send one")
    elif any(each.pass_through for each in settings.upstreams):
        lines.append("  keys: the clients' own, which are passed on to the upstream")
    else:
        lines.append("  keys: none; only requests from this machine are served")
    return lines


def _retention_text(retention: str) -> str:
    return retention if retention == "forever" else f"for {retention}"


class _UpstreamChecks:
    """Lists the models of upstreams on a thread, which ends with the process, and prints the results."""

    def __init__(self, settings: Settings, address: str, *, shown_curl: bool) -> None:
        self._settings = settings
        self._address = address
        self._shown_curl = shown_curl
        self._thread = threading.Thread(target=self._run, name="startup", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> threading.Thread:
        atexit.register(self._stop)
        self._thread.start()
        return self._thread

    def _run(self) -> None:
        self._task = self._loop.create_task(self._report())
        with suppress(asyncio.CancelledError, OSError):  # stdout may be closed
            self._loop.run_until_complete(self._task)
        self._loop.close()
        atexit.unregister(self._stop)

    def _stop(self) -> None:
        """Stop at exit: the interpreter can't end while a thread prints."""
        with suppress(RuntimeError):  # the loop may just have been closed
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        self._thread.join(_JOIN_SECONDS)

    async def _report(self) -> None:
        router = build_router(self._settings, ServerSealer(self._settings.sealing_key_env))
        try:
            checks = await check_all(router, self._settings)
        finally:
            await router.close()
        lines = [f"  {upstream_line(each, self._address)}" for each in checks]
        if not self._shown_curl:
            model = found_model(router, checks, self._settings)
            lines.append(curl_line(self._address, model or _PLACEHOLDER, keys=self._settings.asks_for_keys))
        click.echo("\n".join(lines))


async def check_all(router: Router, settings: Settings) -> list[UpstreamCheck]:
    """Check all upstreams concurrently. The results are in the order of the settings."""
    upstreams = list(router.upstreams())
    folder = None if settings.profiles is None else Path(settings.profiles)
    answers = await asyncio.gather(*map(_list_models, upstreams))
    return [
        UpstreamCheck(upstream, entry, profile(entry.profile, folder) if entry.profile else None, answer)
        for upstream, entry, answer in zip(upstreams, settings.upstreams, answers, strict=True)
    ]


async def _list_models(upstream: Upstream) -> CheckResult:
    try:
        async with asyncio.timeout(TIMEOUT):
            return [model.id for model in await upstream.models()]
    except TimeoutError:
        late = f"it did not answer within {TIMEOUT:g} seconds"
        return UpstreamError(504, late, code=UpstreamError.TIMEOUT, cause=late)
    except UpstreamError as error:
        return error
    except Exception as error:  # an unforeseen error must not print a traceback while the server works
        return UpstreamError(502, "", code=UpstreamError.UNREACHABLE, cause=type(error).__name__)


def check_upstreams(settings: Settings, model: str | None) -> None:
    """Check the upstreams before a command uses them, and warn of models that they don't list. Raises
    SettingsError, with the lines that `serve` prints, if all are unreachable or refuse the key, or if there
    is no `model` and none lists one."""
    keyless = any(each.pass_through for each in settings.upstreams)  # there is no key to ask with
    if settings.upstreams and not keyless:
        checks = asyncio.run(check_of(settings))
        listed = any(isinstance(each.answer, list) and each.answer for each in checks)
        model = model or example_model(settings)
        if all(map(_is_unusable, checks)) or not (model or listed):
            name = "" if all(map(_is_unusable, checks)) else "; name a model with --model"
            raise SettingsError("; ".join(upstream_line(each, _NOWHERE) for each in checks) + name)
        for each in checks:
            if isinstance(each.answer, list) and missing_models(each.settings, each.answer):
                click.echo(f"warning: {upstream_line(each, _NOWHERE)}", err=True)


async def check_of(settings: Settings) -> list[UpstreamCheck]:
    """Check all upstreams of these settings."""
    router = build_router(settings, ServerSealer(settings.sealing_key_env))
    try:
        return await check_all(router, settings)
    finally:
        await router.close()


class KeyCheck(NamedTuple):
    """One of several keys of an upstream, and the result of listing its models with it. `number` counts from
    1, `end` are its last characters."""

    upstream: str
    number: int
    end: str
    answer: CheckResult


async def check_keys(settings: Settings) -> list[KeyCheck]:
    """Check the keys of upstreams that have several."""
    router = build_router(settings, ServerSealer(settings.sealing_key_env))
    try:
        keyed = [each for each in router.configured() if each.others]
        checks = []
        for each in keyed:
            answers = await asyncio.gather(*map(_list_models, each.upstreams))
            ends = [end() for end in each.key_ends]
            checks += [
                KeyCheck(each.name, number, end, answer)
                for number, (end, answer) in enumerate(zip(ends, answers, strict=True), 1)
            ]
        return checks
    finally:
        await router.close()


def _is_unusable(check: UpstreamCheck) -> bool:
    """Return True if the upstream would not answer other requests either."""
    answer = check.answer
    lost = (UpstreamError.UNREACHABLE, UpstreamError.AUTHENTICATION)
    return isinstance(answer, UpstreamError) and answer.code in lost


def found_model(router: Router, checks: Sequence[UpstreamCheck], settings: Settings) -> str | None:
    """Return a model that an upstream lists and that requests are routed to. One with known capabilities is
    preferred, because lists also contain models that do not generate text."""
    served = [
        name
        for each in checks
        if isinstance(each.answer, list)
        for name in each.answer
        if router.serves(each.upstream, name)
    ]
    known = (name for name in served if capabilities_of(name, settings.models).tools)
    return next(known, served[0] if served else None)


def upstream_line(check: UpstreamCheck, own: str, unnamed: str | None = None) -> str:
    """Return the state of an upstream for the operator, and what to do about it. The line begins with the
    title of its profile; without a profile with `unnamed`, or with its name if that is None."""
    unchecked = "" if check.settings.verify else "; its certificate is not checked (verify = false)"
    return f"{_state_line(check, own, unnamed)}{unchecked}"


def _state_line(check: UpstreamCheck, own: str, unnamed: str | None) -> str:
    upstream, answer = check.upstream, check.answer
    title = check.profile.title if check.profile else upstream.name if unnamed is None else unnamed
    where = upstream.address
    if is_same(where, own):
        return (
            f"{title} is configured at {where}, which is this server itself: give one of the two another port"
        )
    if isinstance(answer, list):
        return f"{title} answers at {where} with {_models(answer)}{missing_models(check.settings, answer)}"
    if is_key_refused(answer):
        refused = "refuses the key" if _has_key(check) else "does not list its models without a key"
        return f"{title} {refused} at {where}: {answer.cause}"
    if answer.code not in (UpstreamError.UNREACHABLE, UpstreamError.TIMEOUT):
        return f"{title} answers at {where}, but does not list its models: {answer.cause}"
    start = check.profile.start if check.profile else None
    dialect = check.settings.dialect or (check.profile.dialect if check.profile else None)
    if isinstance(DIALECTS.get(dialect or ""), ProcessDialect):
        hint = f", and was `{start}` run?" if start else "?"
        return f"{title} can't be started as {printable(where)} ({answer.cause}): is it installed{hint}"
    hint = f": is `{start}` running?" if start else ""
    return f"{title} isn't answering at {where} ({answer.cause}){hint}"


def is_key_refused(error: UpstreamError) -> bool:
    """Return True if the upstream needs a key, or another one."""
    return error.code == UpstreamError.AUTHENTICATION or error.http_status in (401, 403)


def _models(listed: Sequence[str]) -> str:
    names = ", ".join(printable(name[:_LONGEST]) for name in listed[:_SHOWN])
    more = ", …" if len(listed) > _SHOWN else ""
    count = counted(len(listed), "model")
    return f"{count}: {names}{more}" if listed else "no models"


def missing_models(settings: UpstreamSettings, listed: Sequence[str]) -> str:
    """Return the end of a line with the configured models that the upstream does not list; "" if it lists
    all. Ollama accepts `name` for `name:latest`."""
    models = (
        [settings.model] if settings.model else [name for name in settings.models if not is_pattern(name)]
    )
    known = {*listed, *(name.removesuffix(":latest") for name in listed)}
    missing = [f"{name!r}{did_you_mean(name, listed)}" for name in models if name not in known]
    return f"; not among them: {', '.join(map(printable, missing))}" if listed and missing else ""


def _has_key(check: UpstreamCheck) -> bool:
    settings = check.settings
    known = check.profile
    from_profile = known is not None and bool(known.api_key_env or known.api_key_command)
    own = settings.api_key or settings.api_key_env or settings.api_key_command
    return bool(own or (from_profile and not settings.pass_through))


def is_same(address: str, own: str) -> bool:
    """Return True if this address is the server's own."""
    theirs, ours = urlsplit(address), urlsplit(own)
    same_host = theirs.hostname == ours.hostname or (
        is_loopback(theirs.hostname or "") and (is_loopback(ours.hostname or ""))
    )
    return same_host and theirs.port == ours.port
