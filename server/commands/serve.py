"""`serve`: the HTTP server."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from server.hosts import is_loopback
from server.settings import Settings, SettingsError, load_settings, to_workers
from server.upstreams.catalog import is_pattern

if TYPE_CHECKING:
    from uvicorn import Config

_LAST_SECONDS = 3  # for connections that are still open when all responses have ended
_OTHER_FILES = 256  # that the process has open beside connections
_OWN_STORE = "Each worker keeps its own store: a response is found by the worker that made it."
_OWN_LOG = (
    "Each worker keeps its own event log: a response can be cancelled, and followed word by word, only at "
    "the worker that makes it. With --event-log redis://… at any."
)


def _variable(name: str) -> str:
    return f"OPENRESPONSES_BRIDGE_{name}"


def _listed(given: Iterable[str]) -> list[str] | None:
    """The names given one by one, or in an environment variable with commas or spaces between them."""
    return [name for each in given for name in each.replace(",", " ").split()] or None


@click.command()
@click.option("--host", envvar=_variable("HOST"), help="Address to bind (default 127.0.0.1).")
@click.option("--port", envvar=_variable("PORT"), type=int, help="Port (default 8080; 0 takes a free one).")
@click.option(
    "--config",
    envvar=_variable("CONFIG"),
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with these settings and more.",
)
@click.option(
    "--upstream",
    metavar="URL|NAME",
    help="Send every model to this server, or to a known one: ollama, openai, … (without: the demo model).",
)
@click.option("--dialect", help="What the upstream speaks (default chat).")
@click.option("--model", help="Model name under which requests go to the upstream.")
@click.option("--api-key-env", metavar="VAR", help="Environment variable that holds the upstream's key.")
@click.option(
    "--store",
    envvar=_variable("STORE"),
    metavar="URL",
    help="Where responses are stored: sqlite:///FILE, postgresql+psycopg://… or memory:// "
    "(default sqlite:, a file in your data folder).",
)
@click.option(
    "--event-log",
    envvar=_variable("EVENT_LOG"),
    metavar="URL",
    help="Where running streams are logged: redis://… for several workers (default memory://).",
)
@click.option(
    "--retention",
    envvar=_variable("RETENTION"),
    metavar="TIME",
    help="How long responses are kept: 30d, 12h, 90m (default 30d), or `forever`.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    envvar=_variable("ALLOWED_HOSTS"),
    multiple=True,
    callback=lambda _context, _option, given: _listed(given),
    help="Another name under which the server is asked, beside localhost; may be given several times.",
)
@click.option("--workers", type=int, help="Number of processes (default 1).")
def command(
    upstream: str | None,
    dialect: str | None,
    model: str | None,
    api_key_env: str | None,
    **flags: Any,
) -> None:
    """Serve the Responses API, over the built-in demo model or any upstream."""
    try:
        if upstream is not None:
            known = "url" if "://" in upstream else "profile"
            given = {known: upstream, "dialect": dialect, "model": model, "api_key_env": api_key_env}
            flags["upstreams"] = [{name: value for name, value in given.items() if value is not None}]
        elif dialect or model or api_key_env:
            raise SettingsError("--dialect, --model and --api-key-env say how to use an --upstream")
        _serve(load_settings(**flags))
    except SettingsError as error:
        raise click.UsageError(str(error)) from error


def _serve(settings: Settings) -> None:
    from uvicorn import Server
    from uvicorn.supervisors import Multiprocess

    from server.app import create_app

    _check_reach(settings)
    app = create_app(settings)  # in the parent too, so that bad settings are reported at once
    _check_foundations(settings)
    listener = _listen(settings.host, settings.port)
    to_workers(settings)
    if settings.workers == 1:
        config = _config(app, settings)
    else:
        worker_app = "server.app:create_worker_app"
        config = _config(worker_app, settings, factory=True, workers=settings.workers)
    _greet(settings, listener)
    _allow_files(settings.limits.connections)
    if settings.workers == 1:
        from server.logs import configure_logs

        configure_logs()
        Server(config).run(sockets=[listener])
    else:
        Multiprocess(config, sockets=[listener]).run()


def _config(app: Any, settings: Settings, **more: Any) -> Config:
    from uvicorn import Config

    from server.connections import http_protocol

    return Config(
        app,
        http=http_protocol(settings),
        loop="auto",  # uvloop wherever there is one
        lifespan="on",
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # they would replace the peer's address, and any client can send them
        server_header=False,
        timeout_graceful_shutdown=_LAST_SECONDS,
        **more,
    )


def _check_reach(settings: Settings) -> None:
    """Law S7: without keys only loopback is bound."""
    host = settings.host
    if not settings.api_keys and not is_loopback(host):
        raise SettingsError(
            f"host {host}: without API keys only a loopback address can be bound; set api_keys in the "
            "config or OPENRESPONSES_BRIDGE_API_KEYS"
        )


def _check_foundations(settings: Settings) -> None:
    """A failure that waiting can't mend ends the command with exit code 1; one that may pass is reported."""
    from server.errors import Outage
    from server.readiness import check_before_start

    try:
        outages = asyncio.run(check_before_start(settings))
    except Outage as error:
        raise click.ClickException(error.in_full) from error
    for outage in outages:
        click.echo(f"{outage.in_full} (`/readyz` shows when this is over)", err=True)


def _a_model(settings: Settings) -> str:
    """A name that a request may ask for."""
    first = settings.upstreams[0] if settings.upstreams else None
    if first is None:
        return settings.default_model or "demo"
    named = [name for name in first.models if not is_pattern(name)]
    return settings.default_model or first.model or (named[0] if named else "MODEL")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise SettingsError(f"can't listen on {host}:{port}: {error.strerror}") from error
    listener.set_inheritable(True)
    return listener


def _allow_files(connections: int) -> None:
    """Raise what the system allows this process to have open, as far as it may be raised: each client's
    connection may need one to an upstream."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _greet(settings: Settings, listener: socket.socket) -> None:
    """Where it listens, and a line to try it with."""
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    model = _a_model(settings)
    click.echo(f"openresponses-bridge is listening on {address}")
    for kept_in, warning in ((settings.store, _OWN_STORE), (settings.event_log, _OWN_LOG)):
        if settings.workers > 1 and kept_in.startswith("memory"):
            click.echo(warning, err=True)
    click.echo(
        f"  curl -N {address}/v1/responses -H 'content-type: application/json' "
        f'-d \'{{"model": "{model}", "input": "Hello", "stream": true}}\''
    )
