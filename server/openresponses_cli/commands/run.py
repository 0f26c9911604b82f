"""`run`: runs a coding agent with any model, configured in a folder of its own."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from openresponses_bridge.text import printable
from openresponses_cli.commands.flags import (
    REACHED,
    SetOption,
    config_flag,
    naming_flags,
    upstream_flags,
    usage_error,
)
from openresponses_cli.commands.serve import fields_of

if TYPE_CHECKING:
    from openresponses_cli.agents.coding.agents import CodingAgent
    from openresponses_cli.agents.coding.running import ReachableServer
    from openresponses_server.settings import Settings

_HOST: Final = "127.0.0.1"
_PORT: Final = 8080
_DEFAULT: Final = f"http://{_HOST}:{_PORT}"
_PROGRAM: Final = "openresponses-bridge"
_NO_CONVERSATION: Final = frozenset(
    {"--help", "-h", "--version", "-V", "-v", "mcp", "login", "logout", "auth", "models", "doctor", "update"}
)
"""The first arguments with which an agent has no conversation to continue."""
_INTERRUPTED, _NOT_STARTED, _NOT_FOUND = 130, 126, 127  # as in shells


@click.command()
@click.argument("agent", metavar="codex|claude|gemini|opencode")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS...]")
@upstream_flags(REACHED, "The model (default: the first one found that calls tools).")
@config_flag
@click.option(
    "--server",
    cls=SetOption,
    envvar="OPENRESPONSES_BRIDGE_SERVER",
    metavar="URL",
    help=f"Use the server at this URL (without this and --upstream: the one at {_DEFAULT}, if it runs).",
)
@click.option("--key-env", metavar="VAR", help="Environment variable that holds the key for this server.")
@click.option(
    "--program", metavar="PATH", help="The agent's program (default: its name, as the shell finds it)."
)
@click.option(
    "--probe/--no-probe",
    default=True,
    show_default=True,
    help="Ask the model for a few tokens first, and do not start the agent if that fails.",
)
@click.option(
    "--print-config",
    is_flag=True,
    help="Print what to add to the agent's own configuration instead of running it.",
)
def command(
    agent: str,
    arguments: tuple[str, ...],
    program: str | None,
    probe: bool,
    print_config: bool,
    **flags: Any,
) -> None:
    """Run Codex, Claude Code, Gemini CLI or opencode with any model; ARGUMENTS are passed to the agent.

    The agent gets a configuration of its own, in the data folder; the one in your home is neither read nor
    changed. Unless it uses a server that already runs, one is started for it alone, on a free port of this
    machine and with a key of its own, and stopped when the agent ends. The exit code is the agent's."""
    from openresponses_cli.agents.coding.agents import agent_named
    from openresponses_cli.agents.coding.discovery import UnusableServer

    try:
        coding_agent = agent_named(agent)
        if print_config:
            _print_config(coding_agent, **flags)
            return
        code = _run(coding_agent, program, arguments, probe, **flags)
    except (ValueError, UnusableServer) as error:
        raise usage_error(error) from error
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _run(
    agent: CodingAgent, program: str | None, arguments: tuple[str, ...], probe: bool, **flags: Any
) -> int:
    from openresponses_cli.agents.coding.agents import program_of
    from openresponses_cli.agents.coding.running import run

    path = program_of(agent, program)
    if path is None:
        click.echo(
            f"{program or agent.program} was not found; to install {agent.title}: {agent.install}", err=True
        )
        return _NOT_FOUND
    converses = not _NO_CONVERSATION.intersection(arguments[:1])
    asks = probe and converses
    try:
        with server_to_use(**flags) as (reached, secrets):
            code = run(agent, path, arguments, reached, flags["model"], secrets, probe=asks, report=_report)
    except OSError as error:
        click.echo(f"{error.filename or path}: {error.strerror or error}", err=True)
        return _NOT_STARTED
    if converses:
        options = {name: value for name, value in {**flags, "program": program}.items() if value is not None}
        words = [
            word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", _shown(value))
        ]
        words += [] if probe else ["--no-probe"]
        _report(f"to go on: {shlex.join([_PROGRAM, 'run', agent.name, *words, '--', *agent.resume])}")
    return code


def _shown(value: Any) -> str:
    """Return the value of a flag, an address without its password, since what is printed may be kept."""
    from openresponses_server.upstreams.dialects import without_password

    text = str(value)
    return without_password(text) if "://" in text else text


def _report(line: str) -> None:
    click.echo(f"openresponses-bridge: {printable(line)}", err=True)


@contextmanager
def server_to_use(
    server: str | None, key_env: str | None, **flags: Any
) -> Iterator[tuple[ReachableServer, frozenset[str]]]:
    """The server to use, and the variables that the agent must not see. A running server is used if it is
    named, or if no upstream is given and one runs at the default address; otherwise one is started."""
    from openresponses_cli.agents.coding.running import private_server, secret_variables, server_at
    from openresponses_cli.commands.startup import check_upstreams, example_model

    if server is not None and (flags["upstream"] or flags["config"]):
        raise click.UsageError(
            "--server names one that runs; --upstream and --config are for one that is started"
        )
    named = frozenset({key_env} if key_env else ())
    if server is not None:
        yield server_at(server, _key(key_env)), named
        return
    if not (flags["upstream"] or flags["config"]):
        running_server = _find_running(_key(key_env))
        if running_server is not None:
            yield running_server, named
            return
    if key_env is not None:
        raise click.UsageError(
            "--key-env is for a --server that runs; --api-key-env names the upstream's key"
        )
    settings = _settings(**flags)
    check_upstreams(settings, flags["model"])
    with private_server(settings, example_model(settings)) as reached:
        yield reached, secret_variables(settings)


def _find_running(key: str | None) -> ReachableServer | None:
    """Return the server at the default port, if it belongs to this user or to root. Raises UnusableServer if
    it refuses the key; other programs that listen there are ignored."""
    from openresponses_cli.agents.coding.discovery import UnusableServer, is_listening, is_of_this_user
    from openresponses_cli.agents.coding.running import server_at

    if not is_listening(_HOST, _PORT) or not is_of_this_user(_PORT):
        return None
    try:
        return server_at(_DEFAULT, key)
    except UnusableServer as error:
        if error.is_ours:
            raise
        return None


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise click.UsageError(f"the environment variable {variable} is not set")
    return key


def _settings(
    upstream: str | None,
    dialect: str | None,
    model: str | None,
    api_key_env: str | None,
    config: Path | None,
) -> Settings:
    from openresponses_server.settings import load_settings

    named = model if upstream is not None else None  # else it is a model of the config, or the demo model
    fields = fields_of(upstream, dialect, named, api_key_env, config)
    with naming_flags(config, fields):
        return load_settings(config, **fields)


def _print_config(agent: CodingAgent, server: str | None, key_env: str | None, **flags: Any) -> None:
    """Print how to use the agent without this command: the server's command line and the agent's
    configuration."""
    settings = None if server else _settings(**flags)
    model, address = flags["model"], (server or "").rstrip("/").removesuffix("/v1")
    if settings is not None:
        from openresponses_cli.commands.startup import example_model

        options = {name.replace("_", "-"): value for name, value in flags.items() if value}
        words = ["openresponses-bridge", "serve"]
        words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        click.echo(f"# The server:\n{shlex.join(words)}\n")
        model = model or example_model(settings)
        address = f"http://{_HOST}:{settings.port}"
    keys = bool(key_env or (settings is not None and settings.asks_for_keys))
    searches = settings is not None and settings.web_search is not None
    click.echo(agent.config_text(address, model or "MODEL", keys, searches), nl=False)
