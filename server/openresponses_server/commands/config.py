"""`config check`: the settings that `serve` would use, and where each value comes from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from openresponses_bridge.text import printable
from openresponses_server.commands.flags import naming_flags
from openresponses_server.commands.serve import check_settings, fields_of
from openresponses_server.commands.serve import command as serve


@click.group()
def command() -> None:
    """Look at what `serve` would run with."""


@command.command("check", params=list(serve.params))
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="[FILE]"
)
@click.option("--all", "everything", is_flag=True, help="Print the defaults too.")
@click.pass_context
def check(context: click.Context, /, file: Path | None, everything: bool, **flags: Any) -> None:
    """Say whether `serve` can run with these settings, and print those that are not defaults, as TOML, with
    the place that each comes from: a line of FILE (or of --config), a flag, an environment variable or a
    profile. Secrets are not shown.

    It takes the flags of `serve`. It connects to nothing. Exit code 0: these settings can be used, 1: they
    can't, and what is wrong is named.
    """
    from openresponses_server.commands.effective import ValueSources, shown
    from openresponses_server.settings import SettingsError, load_settings

    config: Path | None = file or flags["config"]
    try:
        with naming_flags(config, fields := fields_of(**flags | {"config": config})):
            settings = load_settings(config, **fields)
            check_settings(settings)
    except SettingsError as error:
        click.echo(printable(str(error)), err=True)
        sys.exit(1)
    places = ValueSources(config, _flags(context))
    rest = "" if everything else "; what follows differs from the defaults, --all prints those too"
    click.echo(f"# OK: serve can run with these settings{rest}")
    for line in shown(settings, places, everything=everything):
        click.echo(line)


def _flags(context: click.Context) -> dict[str, str]:
    """Parameter → the flag or variable that gave it."""
    found = {}
    for option in serve.params:
        source = context.get_parameter_source(str(option.name))
        if source is ParameterSource.COMMANDLINE:
            found[str(option.name)] = option.opts[0]
        elif source is ParameterSource.ENVIRONMENT:
            found[str(option.name)] = str(option.envvar)
    return found
