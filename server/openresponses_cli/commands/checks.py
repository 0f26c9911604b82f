"""The checks of `doctor`: upstreams and their models, stores and folders, agents."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from openresponses_bridge.text import printable
from openresponses_cli.agents.coding.agents import CodingAgent, LaunchOptions, find_installed
from openresponses_cli.agents.coding.discovery import (
    UnusableServer,
    is_listening,
    models_of,
    routes_left_out,
)
from openresponses_cli.commands.engines import recognised
from openresponses_cli.commands.startup import (
    KeyCheck,
    UpstreamCheck,
    check_keys,
    check_of,
    is_key_refused,
    is_same,
    missing_models,
    upstream_line,
)
from openresponses_server.errors import Outage, UpstreamError
from openresponses_server.settings import Settings, deprecated_settings
from openresponses_server.settings.data_folder import check_writable, data_folder
from openresponses_server.store.base import NO_ID, ResponseStore
from openresponses_server.store.logs.file import FileLog
from openresponses_server.store.stores import build_store, open_event_log, shown_store
from openresponses_server.upstreams.base import UpstreamWrapper, called
from openresponses_server.upstreams.dialects import without_password
from openresponses_server.upstreams.http import HttpUpstream

_TIMEOUT: Final = 5.0  # seconds for a store
_FIRST_LINE: Final = 200
_PORT: Final = "a port to listen on"
_TAKEN: Final = "`run` uses it, another `serve` needs another --port"
State = Literal["ok", "note", "missing"]


class CheckResult(Struct, frozen=True):
    """The result of a check. `note` is not an error. `missing` is what is missing, if that is not the checked
    thing itself: settings may exist that can't be used."""

    what: str
    state: State
    message: str
    missing: str = ""


async def service_checks(settings: Settings, config: Path | None) -> list[CheckResult]:
    """Check everything that `serve` needs with these settings; `config` is their file, if there is one."""
    deprecated = deprecated_settings(config)
    usable = "; ".join([f"{config or 'flags and defaults'} can be used", *deprecated])
    return [
        CheckResult("settings", "note" if deprecated else "ok", usable),
        await _port(settings),
        *await _upstreams(settings),
        *[_one_key(each) for each in await check_keys(settings)],
        *await _check_storage(settings),
        _check_folder(),
    ]


def _address(settings: Settings) -> str:
    host = settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


async def _port(settings: Settings) -> CheckResult:
    what, address = "port", _address(settings)
    if not settings.port:
        return CheckResult(what, "ok", "a free one will be taken")
    if not is_listening(settings.host, settings.port):
        refusal = _refusal_of(settings.host, settings.port)
        if refusal:
            return CheckResult(what, "missing", f"a server can't listen on {address}: {refusal}", _PORT)
        return CheckResult(what, "ok", f"{address} is free")
    try:
        count = len((await models_of(address, None)).listed)
    except UnusableServer as error:
        if error.is_ours:
            return CheckResult(what, "note", f"a server that asks for a key runs at {address}: {_TAKEN}")
        usual = settings.port == Settings().port  # `run` does without this port
        other = f"something else listens at {address}; `--port 0` takes a free port"
        return CheckResult(what, "note" if usual else "missing", other, _PORT)
    running = f"a server runs at {address}, with {count} models: {_TAKEN}"
    outs = await routes_left_out(address)
    return CheckResult(what, "note", f"{running}; it leaves out: {'; '.join(outs)}" if outs else running)


def _refusal_of(host: str, port: int) -> str:
    """Return why a server can't listen on this address, as far as trying shows; "" if it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


async def _upstreams(settings: Settings) -> list[CheckResult]:
    if not settings.upstreams:
        demo = "only the built-in demo model, which answers by rule: --upstream ollama for a real one"
        return [CheckResult("upstream", "note", demo)]
    results = []
    for each in await check_of(settings):
        line = upstream_line(each, _address(settings), "it")
        state = _state(each, settings)
        results += [_key(each), CheckResult(called(each.upstream.name), state, line)]
        if state != "missing" and isinstance(each.answer, list):
            results += await _engine(each)
    return results


def _one_key(check: KeyCheck) -> CheckResult:
    ending = f", which ends in {check.end}," if check.end else ""
    what = f"key {check.number} for {called(check.upstream)}"
    if isinstance(check.answer, list):
        return CheckResult(what, "ok", f"the key{ending} is accepted")
    refused = is_key_refused(check.answer)
    return CheckResult(what, "missing" if refused else "note", f"the key{ending}: {check.answer.message}")


async def _engine(check: UpstreamCheck) -> list[CheckResult]:
    """Return the engine's name and what it lacks; none for a provider, whose profile names a key."""
    upstream, known = check.upstream, check.profile
    while isinstance(upstream, UpstreamWrapper):
        upstream = upstream.inner
    if not isinstance(upstream, HttpUpstream) or (known is not None and known.api_key_env):
        return []
    try:
        engine = await recognised(upstream, check.settings.model)
    finally:
        await upstream.close()
    if engine is None:
        return []
    advice = [*engine.advice]
    if check.settings.profile != engine.profile:
        advice.append(f"there is a profile for it: --upstream {engine.profile}")
    what = f"engine of {called(upstream.name)}"
    if not advice:
        return [CheckResult(what, "ok", engine.described)]
    return [CheckResult(what, "note", f"{engine.described}: {'; '.join(advice)}")]


def _state(check: UpstreamCheck, settings: Settings) -> State:
    answer = check.answer
    if settings.port and is_same(check.upstream.address, _address(settings)):
        return "missing"
    if isinstance(answer, list):
        return "missing" if not answer or missing_models(check.settings, answer) else "ok"
    silent = answer.code in (UpstreamError.UNREACHABLE, UpstreamError.TIMEOUT)
    return "missing" if silent or is_key_refused(answer) else "note"


def _key(check: UpstreamCheck) -> CheckResult:
    settings, known = check.settings, check.profile
    what = f"key for {called(check.upstream.name)}"
    usual = known.api_key_env if known is not None and settings.url is None else None
    printing = settings.api_key_command or (known.api_key_command if known is not None and not usual else [])
    if settings.pass_through:
        return CheckResult(what, "ok", "the clients' own are passed on")
    if settings.api_keys:
        return CheckResult(what, "ok", f"{len(settings.api_keys)} are in the config")
    if settings.api_key_env or usual:
        return CheckResult(what, "ok", f"{settings.api_key_env or usual} is set")
    if printing and not settings.api_key:
        return CheckResult(what, "ok", f"{printable(printing[0])} prints it")
    if settings.api_key or settings.headers:
        return CheckResult(what, "ok", "it is in the config")
    return CheckResult(what, "ok", "not set; requests are sent without a key")


async def _check_storage(settings: Settings) -> list[CheckResult]:
    """Check that the store can be written to and that the event log answers."""
    store = build_store(settings)
    log = open_event_log(settings.event_log, store.folder)
    shown = str(log.folder) if isinstance(log, FileLog) else without_password(settings.event_log or "memory:")
    try:
        return [
            await _probe("store", shown_store(settings.store), _probe_store(store)),
            await _probe("event log", shown, log.check()),
        ]
    finally:
        await store.close()
        await log.shutdown()


async def _probe_store(store: ResponseStore) -> None:
    await store.get(NO_ID)  # makes missing tables, which may take long
    async with asyncio.timeout(_TIMEOUT):
        await store.probe()


async def _probe(what: str, shown: str, check: Awaitable[None]) -> CheckResult:
    try:
        await check
    except Outage as outage:
        return CheckResult(what, "missing", f"{shown}: {outage.in_full}")
    except TimeoutError:
        return CheckResult(what, "missing", f"{shown} does not answer within {_TIMEOUT:g} seconds")
    return CheckResult(what, "ok", f"{shown} can be used")


def _check_folder() -> CheckResult:
    """Check the data folder, where the sealing key and the agents' configurations are."""
    folder = data_folder()
    try:
        check_writable(folder)
    except OSError as error:
        return CheckResult("data folder", "missing", f"{folder}: {error.strerror or error}")
    if os.name == "posix" and folder.stat().st_mode & 0o077:
        return CheckResult("data folder", "note", f"{folder} is open to other users: chmod 700 closes it")
    return CheckResult("data folder", "ok", f"{folder} can be written to")


_HOMES: Final = ("HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME")


def agent_check(agent: CodingAgent, *, needed: bool) -> CheckResult:
    """Check that the agent is installed, can be started, and has a version that was tested."""
    what = f"agent {agent.name}"
    absent: State = "missing" if needed else "note"
    with tempfile.TemporaryDirectory(prefix="openresponses-bridge-") as empty:
        own = dict.fromkeys(
            (*_HOMES, *(f"XDG_{name}_HOME" for name in ("CONFIG", "DATA", "STATE", "CACHE"))), empty
        )
        program = find_installed(agent, agent.environment(os.environ, frozenset(), LaunchOptions([], own)))
    if program is None:
        return CheckResult(
            what, absent, f"{agent.program} was not found; to install {agent.title}: {agent.install}"
        )
    if program.version is None:
        node = ": it is a program for Node.js, which was not found" if _lacks_node(program.path) else ""
        return CheckResult(what, absent, f"{program.path} does not say its version{node}")
    tried = "to".join(f" {major}.{minor} " for major, minor in (agent.minimum, agent.tested)).strip()
    if program.version < agent.minimum:
        return CheckResult(
            what,
            absent,
            f"{agent.title} {program.version_text} is too old, {tried} work; to update it: {agent.install}",
        )
    here = f"{agent.title} {program.version_text} at {program.path}"
    if program.version > agent.tested:
        return CheckResult(what, "note", f"{here} is newer than what was tried ({tried})")
    return CheckResult(what, "ok", here)


def _lacks_node(path: str) -> bool:
    try:
        with Path(path).open("rb") as opened:
            first = opened.read(_FIRST_LINE).split(b"\n")[0]
    except OSError:
        return False
    return first.startswith(b"#!") and b"node" in first and shutil.which("node") is None
