"""`serve`: the HTTP server."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from openresponses_bridge.text import printable
from openresponses_cli.commands.flags import (
    SPEED,
    Duration,
    SetOption,
    dialect_flag,
    naming_flags,
    print_deprecated,
    upstream_key_flag,
)

if TYPE_CHECKING:
    import socket

    from openresponses_server.settings import Settings

_OWN_STORE = "Each worker keeps its own store: a response is found by the worker that made it."
_OWN_LOG = (
    "Each worker keeps its own event log: a response can be cancelled, and followed word by word, only at "
    "the worker that makes it. With --event-log file: any worker can do both."
)
_OWN_COUNTS = (
    "Each worker counts the limits per key for itself, so that N workers let through up to N times as much. "
    "With --event-log redis://… they count together."
)

_MAY_FOLLOW = ("$.host", "$.default_model")
"""The paths of mistakes that may follow from others, since keys or upstreams are missing then."""


def _variable(name: str) -> str:
    return f"OPENRESPONSES_BRIDGE_{name}"


def _split_names(values: Iterable[str]) -> list[str] | None:
    """Return the names given by repeated flags, or in an environment variable separated by commas or
    spaces."""
    return [name for each in values for name in each.replace(",", " ").split()] or None


@click.command()
@click.option(
    "--host", cls=SetOption, envvar=_variable("HOST"), help="Address to listen on (default 127.0.0.1)."
)
@click.option(
    "--port",
    cls=SetOption,
    envvar=_variable("PORT"),
    type=click.IntRange(0, 65535),
    help="Port to listen on (default 8080; 0: any free port).",
)
@click.option(
    "--config",
    cls=SetOption,
    envvar=_variable("CONFIG"),
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with these settings and others.",
)
@click.option(
    "--upstream",
    metavar="URL|NAME",
    help="Send every model to this server, or to a known one: ollama, openai, … (without: the demo model); "
    "recording:FILE answers as recorded.",
)
@dialect_flag
@click.option(
    "--codex-path",
    metavar="PROGRAM",
    help="The program that the dialect codex runs (default `codex`, found on PATH).",
)
@click.option("--model", help="Model name under which requests go to the upstream.")
@upstream_key_flag
@click.option(
    "--store",
    cls=SetOption,
    envvar=_variable("STORE"),
    metavar="URL",
    help="Where responses are stored: sqlite:///FILE, postgresql+psycopg://… or memory:// "
    "(default sqlite:, a file in your data folder).",
)
@click.option(
    "--event-log",
    cls=SetOption,
    envvar=_variable("EVENT_LOG"),
    metavar="URL",
    help="Where running streams are logged: file:///FOLDER, redis://… for workers on several machines, "
    "memory:// (default file:, beside the store).",
)
@click.option(
    "--retention",
    cls=SetOption,
    envvar=_variable("RETENTION"),
    type=Duration(endless=True),
    help="How long responses are kept: 30d, 12h, 90m (default 30d), or `forever`.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    cls=SetOption,
    envvar=_variable("ALLOWED_HOSTS"),
    multiple=True,
    callback=lambda _context, _option, value: _split_names(value),
    help="Another host name of the server, in addition to localhost; may be repeated.",
)
@click.option(
    "--speed", type=SPEED, help="With --upstream recording:FILE: the speed of playback (default real)."
)
@click.option(
    "--loop", is_flag=True, default=None, help="With --upstream recording:FILE: start again at its end."
)
@click.option(
    "--record",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Record each request to an upstream and its answer, in a file of its own and without keys.",
)
@click.option(
    "--trace",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Record everything sent and received for each response, without keys, and keep it for a day.",
)
@click.option("--workers", type=click.IntRange(1), help="Number of processes (default 1).")
@click.option(
    "--drain",
    cls=SetOption,
    envvar=_variable("DRAIN"),
    type=Duration(),
    help="How long responses in progress may take to end when the server is stopped: 30s, 10m (default 10m).",
)
def command(**flags: Any) -> None:
    """Serve the Responses API, over the built-in demo model or any upstream."""
    from openresponses_server.settings import SettingsError

    try:
        with naming_flags(flags["config"], fields := fields_of(**flags)):
            settings = checked_settings(flags["config"], fields)
            print_deprecated(flags["config"])
            _serve(settings)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    except KeyboardInterrupt:
        return  # Ctrl-C is the usual way to stop it, also during the start


def fields_of(
    upstream: str | None,
    dialect: str | None,
    model: str | None,
    api_key_env: str | None,
    config: Path | None,
    speed: float | str | None = None,
    loop: bool | None = None,
    codex_path: str | None = None,
    trace: str | None = None,
    **flags: Any,
) -> dict[str, Any]:
    """Return the settings from flags and their environment variables. Raises SettingsError."""
    from openresponses_server.settings import SettingsError, is_address, recording_path

    playback = {name: value for name, value in (("speed", speed), ("loop", loop)) if value is not None}
    if playback and recording_path(upstream) is None:
        raise SettingsError("--speed and --loop need --upstream recording:FILE")
    if upstream is None and dialect is not None and _is_process(dialect):
        upstream = dialect
    if upstream is not None:
        known = "url" if is_address(upstream) else "profile"
        upstream_fields: dict[str, Any] = {
            known: upstream,
            "dialect": dialect,
            "model": model,
            "api_key_env": api_key_env,
            "playback": playback or None,
            "codex": None if codex_path is None else {"path": codex_path},
        }
        flags["upstreams"] = [{name: value for name, value in upstream_fields.items() if value is not None}]
    elif dialect or model or api_key_env or codex_path:
        raise SettingsError("--dialect, --model, --api-key-env and --codex-path need an --upstream")
    flags["trace"] = None if trace is None else {"folder": trace}
    return {name: value for name, value in flags.items() if value is not None}


def _is_process(dialect: str) -> bool:
    """Return True if this dialect's upstream is a process that is started here, so that no `--upstream` is
    needed."""
    from openresponses_server.upstreams.dialects import DIALECTS, ProcessDialect

    return isinstance(DIALECTS.get(dialect), ProcessDialect)


def checked_settings(config: Path | None, fields: dict[str, Any]) -> Settings:
    """Return the settings from a file and from flags. Raises SettingsError with everything that is wrong in
    them, and then also with what would be wrong at the start."""
    from openresponses_server.settings import SettingsError, load_settings
    from openresponses_server.settings.files import Mistakes

    try:
        return load_settings(config, **fields)
    except SettingsError as error:
        mistakes = Mistakes()
        mistakes.extend(error)
        try:
            if error.usable is not None:
                check_settings(error.usable)
        except SettingsError as later:
            for each in later.all:
                if each.path not in _MAY_FOLLOW:
                    mistakes.add(each)
        mistakes.check()
        raise


def check_settings(settings: Settings) -> Any:
    """Return the application with these settings. Raises SettingsError if they can't be used."""
    from openresponses_server.api.app import create_app
    from openresponses_server.settings.files import Mistakes

    mistakes = Mistakes()
    with mistakes.kept():
        _check_bind(settings)
    with mistakes.kept():
        app = create_app(settings)
    mistakes.check()
    return app


def _serve(settings: Settings) -> None:
    from openresponses_server.serving.preload import gc_paused, import_structlog

    with gc_paused():
        import_structlog()
        from openresponses_server.observation.logs import configure_logs
        from openresponses_server.serving.listening import listen, raise_file_limit
        from openresponses_server.serving.server import Server, held_signals

        app = check_settings(settings)  # in the parent process too, so that errors are reported at once
        configure_logs(level=settings.log_level)
        _check_foundations(settings)
    listener, settings = listen(settings)
    if listener.shared:
        app = check_settings(settings)  # the same rules apply to an inherited socket's address
    raise_file_limit(settings.limits.connections)
    if settings.workers == 1:
        from openresponses_server.serving.memory import fix_malloc_thresholds

        fix_malloc_thresholds()
        with held_signals() as release_signals:  # a reader of the address may send one
            _print_startup(settings, listener.socket)
            server = Server(app, settings, shared=listener.shared, release_signals=release_signals)
            server.run(sockets=[listener.socket])
    else:
        from openresponses_server.observation.metric_values import share_metrics
        from openresponses_server.serving.supervisor import supervise
        from openresponses_server.settings import to_workers

        _print_startup(settings, listener.socket)
        to_workers(settings)
        share_metrics(settings.workers)
        sys.exit(supervise(listener.socket, settings, shared=listener.shared))


def _check_bind(settings: Settings) -> None:
    """Law S7: without keys only loopback is bound."""
    from openresponses_server.settings import SettingsError
    from openresponses_server.settings.hosts import is_loopback

    host = settings.host
    if not settings.asks_for_keys and not is_loopback(host):
        raise SettingsError(
            f"without API keys only a loopback address can be bound, not {host}: set api_keys or "
            "managed_keys in the config, or OPENRESPONSES_BRIDGE_API_KEYS",
            "$.host",
        )


def _check_foundations(settings: Settings) -> None:
    """Check the folders that are written to, the store and the log. A permanent failure ends the command with
    exit code 1; one that may be temporary is reported."""
    import asyncio

    from openresponses_cli.commands.db import outage_text
    from openresponses_server.errors import Outage
    from openresponses_server.settings.data_folder import check_writable
    from openresponses_server.store.readiness import check_before_start

    for flag, folder in (("record", settings.record), ("trace", settings.trace.folder)):
        try:
            if folder is not None:
                check_writable(Path(folder))
        except OSError as error:
            why = f"the folder of --{flag} can't be written to: {error.strerror or error}"
            raise click.ClickException(printable(f"{folder}: {why}")) from error
    try:
        outages = asyncio.run(check_before_start(settings))
    except Outage as error:
        raise click.ClickException(outage_text(error, settings.store)) from error
    for outage in outages:
        click.echo(f"{outage.in_full} (`/readyz` shows when this is over)", err=True)


def _print_startup(settings: Settings, listener: socket.socket) -> None:
    """Print the startup lines, and a warning for each thing that several workers do not share."""
    from openresponses_cli.commands.startup import print_startup
    from openresponses_server.limits.rates import rates_of

    host, port = listener.getsockname()[:2]
    print_startup(settings, host, port)
    if settings.workers == 1:
        return
    for kept_in, warning in ((settings.store, _OWN_STORE), (settings.event_log, _OWN_LOG)):
        if kept_in is not None and kept_in.startswith("memory"):
            click.echo(warning, err=True)
    if settings.redis is None and any(rates_of(settings.limits)):
        click.echo(_OWN_COUNTS, err=True)
