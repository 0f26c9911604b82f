"""Runs a coding agent with a server, from its configuration to its exit code."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, TextIO

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.models.information import EnrichedModelData
from openresponses_cli.agents.coding.agents import AgentTarget, CodingAgent
from openresponses_cli.agents.coding.discovery import (
    ServerModels,
    UnusableServer,
    models_of,
    refusal_of,
)
from openresponses_server.api.app import create_app
from openresponses_server.errors import UpstreamError
from openresponses_server.serving.listening import listen, raise_file_limit
from openresponses_server.serving.server import Server
from openresponses_server.serving.shutdown import ShutdownMode
from openresponses_server.settings import KEYS_VARIABLES, Capabilities, Settings, SettingsError
from openresponses_server.settings.data_folder import data_folder, make_private
from openresponses_server.settings.files import did_you_mean, hashed
from openresponses_server.upstreams.catalog import capabilities_of
from openresponses_server.upstreams.listing import codex_model, first_choice

# A server for one agent runs on a thread of this process, on a free port of this machine, with a key of its
# own.

_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.01


def for_one_agent(settings: Settings, key: str) -> Settings:
    """Return these settings for a server that accepts this key only and stores nothing: the agent keeps its
    conversations itself. Raises SettingsError for an upstream that needs the clients' own keys."""
    for number, each in enumerate(settings.upstreams):
        if each.pass_through:
            what = "an agent has no key of its own to pass on: name a variable with api_key_env"
            raise SettingsError(what, f"$.upstreams[{number}].pass_through")
    return replace(
        settings,
        host=_HOST,
        port=0,
        workers=1,
        api_keys=[hashed(key)],
        operator_keys=[],
        cors_origins=[],
        allowed_hosts=[],
        store="memory://",
        event_log="memory://",
    )


@contextmanager
def hosted(settings: Settings) -> Iterator[str]:
    """Serve with these settings while the context lasts; yields the address. Raises SettingsError if the
    server can't be started."""
    app = create_app(settings)
    listener, settings = listen(settings)
    raise_file_limit(settings.limits.connections)
    server = Server(app, settings, shared=False)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener.socket]}, name="server", daemon=True
    )
    thread.start()
    try:
        _wait_until_started(server, thread)
        host, port = listener.socket.getsockname()[:2]
        yield f"http://{host}:{port}"
    finally:
        server.shutdown_deadline.request(ShutdownMode.CUT, time.monotonic())
        thread.join(_STOP_SECONDS)
        listener.socket.close()


def _wait_until_started(server: Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise SettingsError("the server did not start; its log says why")
        time.sleep(_POLL_SECONDS)


# The agent's process has the terminal; signals are forwarded to it, and its exit code is returned.

_TERMINAL_SIGNALS: Final = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends these to its whole foreground process group, so the agent receives them itself."""
_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_SIGNAL_EXIT_BASE: Final = (
    128  # plus the signal's number: a shell's exit code for a process that was ended by a signal
)


def run_agent(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command in this process's terminal. Returns the exit code as a shell would. Raises OSError if
    it can't be started."""
    with _forward_signals() as children, subprocess.Popen(command, env=environment) as child:
        children.append(child)
        code = child.wait()
    return code if code >= 0 else _SIGNAL_EXIT_BASE - code


@contextmanager
def _forward_signals() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Forward signals to the processes in the yielded list, including those that are added later."""
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if number in _TERMINAL_SIGNALS and _in_foreground():
            return
        for child in children:
            child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (*_TERMINAL_SIGNALS, *_FORWARDED)}
    try:
        yield children
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Return True if this process's group is the terminal's foreground process group."""
    with suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False


_FOLDER: Final = "agents"
_LOGS: Final = "logs"
_LOGS_KEPT: Final = 10
_UNKNOWN_OWNER: Final = "the server"
_LIMITS: Final = ("context_window", "max_input_tokens", "max_output_tokens")
_REMEDY_OF_CODE: Final = {
    UpstreamError.AUTHENTICATION: "set the upstream's key in the settings of the server (--api-key-env)",
    UpstreamError.UNREACHABLE: "start the upstream, or correct its address in the settings of the server",
}
_OTHER_KEY: Final = "name the variable of a key that may use it with --key-env"
_REMEDY_OF_STATUS: Final = {
    401: _OTHER_KEY,
    403: _OTHER_KEY,
    404: "name another model with --model, or correct the upstream's address in the settings of the server",
}
_ABILITIES: Final = ("tools", "images", "reasoning")
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")


class ReachableServer(Struct, frozen=True):
    """A server that answers: its address, the key to send, its models, the path of its log ("" if it was not
    started here), the model in its settings, if any, and whether it is known to search the web."""

    base: str
    key: str | None
    models: ServerModels
    log: str = ""
    default: str | None = None
    searches: bool = False


def run(
    agent: CodingAgent,
    program: str,
    arguments: Sequence[str],
    server: ReachableServer,
    model: str | None,
    hidden: frozenset[str],
    *,
    probe: bool,
    report: Callable[[str], None],
) -> int:
    """Run the agent. Returns its exit code. `hidden` are variables that it must not see; `report` is called
    with a line for the user before the start. With `probe`, the model is asked for the beginning of an answer
    first. Raises OSError if it can't be started, UnusableServer if there is no model or the probe shows that
    it can't be asked."""
    entry = _choose_model(server, model)
    home = folder_of(agent.name)
    with tempfile.TemporaryDirectory(prefix="openresponses-bridge-") as scratch:
        target = AgentTarget(
            base=server.base,
            key=server.key,
            model=entry,
            catalog=_catalog(server.models.catalog, entry),
            searches=server.searches,
            home=home,
            scratch=Path(scratch),
        )
        options = agent.configure(target)
        log = f", its log is {server.log}" if server.log else ""
        report(f"{agent.title} with {entry.id} ({entry.upstream}) through {server.base}{log}")
        names = [str(each.get("id")) for each in server.models.listed]
        if names and entry.id not in names:
            meant = did_you_mean(entry.id, names)
            report(f"warning: the server does not list the model {entry.id!r}{meant}; it is asked anyway")
        if probe:
            _probe(server, entry, report)
        return run_agent(
            [program, *options.arguments, *arguments], agent.environment(os.environ, hidden, options)
        )


def _probe(server: ReachableServer, model: EnrichedModelData, report: Callable[[str], None]) -> None:
    """Ask the model for the beginning of an answer. Raises UnusableServer if its upstream refuses the key or
    the model or can't be reached; any other refusal may be temporary, and is reported."""
    refused = asyncio.run(refusal_of(server.base, server.key, model.id))
    if refused is None:
        return
    what = f"the model {model.id!r} ({model.upstream}) does not answer through {server.base}: "
    what += refused.message.rstrip(".")
    # no agent can recover from these, however often it asks
    remedy = _REMEDY_OF_CODE.get(refused.code) or _REMEDY_OF_STATUS.get(refused.http_status)
    if remedy is None:
        report(f"warning: {what}")
        return
    log = f"; the log {server.log} has the cause" if server.log else ""
    raise UnusableServer(f"{what}; {remedy}{log}; --no-probe starts the agent anyway")


def folder_of(agent: str) -> Path:
    """Return the folder of this agent's configuration and conversations, which is created if it does not
    exist."""
    return make_private(data_folder() / _FOLDER / agent)


def server_at(address: str, key: str | None) -> ReachableServer:
    """Return the server at this address. Raises UnusableServer."""
    base = address.rstrip("/").removesuffix("/v1")
    return ReachableServer(base, key, asyncio.run(models_of(base, key)))


@contextmanager
def private_server(settings: Settings, model: str | None = None) -> Iterator[ReachableServer]:
    """A server that is started for one agent, while the context lasts; `model` is the one in its settings, if
    any. Raises SettingsError."""
    from openresponses_server.observation.logs import configure_logs

    key = secrets.token_urlsafe(32)
    settings = for_one_agent(settings, key)
    with _log_file() as log:
        configure_logs(log)
        with hosted(settings) as base:
            models = asyncio.run(models_of(base, key))
            yield ReachableServer(base, key, models, log.name, model, settings.web_search is not None)


def secret_variables(settings: Settings) -> frozenset[str]:
    """Return the environment variables with keys of upstreams, of the search, of MCP servers or of this
    server."""
    names = set(KEYS_VARIABLES.values()) | {settings.sealing_key_env or ""}
    search = settings.web_search
    names.update(_VARIABLE.findall((search and search.api_key) or ""))
    for server in settings.mcp_servers:
        for text in (*server.headers.values(), *server.env.values()):
            names.update(_VARIABLE.findall(text))
        names.add(server.api_key_env or "")
    for each in settings.upstreams:
        for text in (each.api_key or "", *each.api_key_command, *each.headers.values()):
            names.update(_VARIABLE.findall(text))
        names.add(each.api_key_env or "")
        if each.profile is not None:
            from openresponses_server.upstreams.profiles import profile

            folder = None if settings.profiles is None else Path(settings.profiles)
            names.add(profile(each.profile, folder).api_key_env or "")
    return frozenset(names - {""})


@contextmanager
def _log_file() -> Iterator[TextIO]:
    """A log file for one run in the data folder, where the newest logs are kept."""
    folder = folder_of(_LOGS)
    for old in sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)[: 1 - _LOGS_KEPT]:
        old.unlink(missing_ok=True)
    path = folder / f"{os.getpid()}.log"
    path.unlink(missing_ok=True)
    with open(path, "w", encoding="utf-8", opener=_private) as opened:
        yield opened


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)


def _choose_model(server: ReachableServer, model: str | None) -> EnrichedModelData:
    """Return the requested model, else the server's default, else the first that calls tools. Raises
    UnusableServer if there is none."""
    listed = {each["id"]: each for each in server.models.listed if isinstance(each.get("id"), str)}
    name = model or server.default or first_choice(server.models.listed)
    if name is None:
        raise UnusableServer("no model was found: name one with --model")
    entry = listed.get(name)
    known = capabilities_of(name, {}) if entry is None else _capabilities_of_entry(entry)
    return EnrichedModelData.of(
        name,
        str((entry or {}).get("owned_by") or _UNKNOWN_OWNER),
        context_window=known.context_window,
        max_input_tokens=known.max_input_tokens,
        max_output_tokens=known.max_output_tokens,
        tools=known.tools,
        images=known.images,
        reasoning=known.reasoning,
    )


def _capabilities_of_entry(entry: Mapping[str, Any]) -> Capabilities:
    """Return the capabilities in an entry of `/v1/models`; values of wrong types are ignored."""
    known: dict[str, Any] = {
        name: value for name in _LIMITS if type(value := entry.get(name)) is int and value > 0
    }
    able = _capabilities(entry)
    known |= {name: value for name in _ABILITIES if isinstance(value := able.get(name), bool)}
    return Capabilities(**known)


def _capabilities(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    capabilities = entry.get("capabilities")
    return capabilities if isinstance(capabilities, dict) else {}


def _catalog(catalog: list[dict[str, Any]], model: EnrichedModelData) -> list[dict[str, Any]]:
    """Return the catalog with this model, which the server may accept without listing it."""
    if any(each.get("slug") == model.id for each in catalog):
        return catalog
    return [codex_model(model, 0), *catalog]
