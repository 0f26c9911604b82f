"""`config check`: the settings that `serve` would use, and where each value comes from; `config schema`: what
they may be, for editors; `models sync`: a part of them from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from openresponses_bridge.text import printable
from openresponses_cli.commands.flags import (
    exit_unreadable,
    naming_flags,
    output_file,
    print_deprecated,
    write,
)
from openresponses_cli.commands.serve import check_settings, checked_settings, fields_of
from openresponses_cli.commands.serve import command as serve


@click.group()
def command() -> None:
    """Check the settings of `serve`, and print the schemas of its files."""


@command.command("check", params=list(serve.params))
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="[FILE]"
)
@click.option("--all", "everything", is_flag=True, help="Print the defaults too.")
@click.pass_context
def check(context: click.Context, /, file: Path | None, everything: bool, **flags: Any) -> None:
    """Check whether `serve` can run with these settings, and print those that differ from the defaults.

    They are printed as TOML, each with where it comes from: a line of FILE (or of --config), a flag, an
    environment variable or a profile. Secrets are not shown.

    The flags are those of `serve`; no connection is made. Exit code 0: the settings can be used, 1: they
    can't, and each mistake is named.
    """
    from openresponses_cli.commands.effective import ValueSources, shown
    from openresponses_server.settings import SettingsError

    config: Path | None = file or flags["config"]
    try:
        with naming_flags(config, fields := fields_of(**flags | {"config": config})):
            settings = checked_settings(config, fields)
            check_settings(settings)
    except SettingsError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    print_deprecated(config)
    places = ValueSources(config, _flags(context))
    rest = "" if everything else "; these differ from the defaults, which --all prints too"
    click.echo(f"# OK: serve can run with these settings{rest}")
    for line in shown(settings, places, everything=everything):
        click.echo(line)


@command.command("schema")
@click.argument("kind", type=click.Choice(["config", "profile", "models"]), default="config")
def schema(kind: Any) -> None:
    """Print the JSON Schema of a file, with which editors complete and check it.

    The file is the configuration of `serve` (config), one in the folder that the setting `profiles` names
    (profile), or the one that `models_file` names (models). A TOML file names its schema in its first line:
    `#:schema bridge.schema.json` in what `init` writes.
    """
    from openresponses_cli.commands.schemas import printed

    write(printed(kind))


def _flags(context: click.Context) -> dict[str, str]:
    """Return parameter → the flag or variable that gave it."""
    flags = {}
    for option in serve.params:
        source = context.get_parameter_source(str(option.name))
        if source is ParameterSource.COMMANDLINE:
            flags[str(option.name)] = option.opts[0]
        elif source is ParameterSource.ENVIRONMENT:
            flags[str(option.name)] = str(option.envvar)
    return flags


@click.group()
def models() -> None:
    """Update the server's facts about models."""


@models.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--into",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("models.toml"),
    help="The file to write. [default: models.toml]",
)
@click.option(
    "--provider",
    "providers",
    multiple=True,
    help="Take the models of this provider; the first that has a model counts. May be repeated. "
    "[default: the makers of models]",
)
def sync(file: Path, into: Path, providers: tuple[str, ...]) -> None:
    """Copy facts about models from FILE, an `api.json` of models.dev, and print what changes.

    Limits, abilities, levels of effort and prices are written into the file that the setting `models_file`
    names. Models that FILE does not have are kept. Prices of 0 are left out: they mean that a plan includes
    the model, or that its price is not known.

    Nothing is downloaded. Exit code 0: the file was written or is up to date, 2: a file can't be used.
    """
    from openresponses_server.settings import SettingsError
    from openresponses_server.upstreams import catalog

    try:
        before = catalog.read_models(into) if into.exists() else {}
        if not file.is_file():
            exit_unreadable(printable(f"{file} does not exist, or is not a regular file"))
        if file.stat().st_size > catalog.MOST_DUMP_BYTES:
            exit_unreadable(printable(f"{file} is larger than {catalog.MOST_DUMP_BYTES} bytes"))
        dump = catalog.dumped_models(file.read_bytes(), providers or catalog.MAKERS)
    except SettingsError as error:
        exit_unreadable(printable(str(error)))
    except catalog.UnusableDump as error:
        exit_unreadable(printable(f"{file}: {error}"))
    except OSError as error:
        exit_unreadable(printable(f"{file}: {error.strerror or error}"))
    after = before | dump
    if len(after) > catalog.MOST_DUMPED:
        exit_unreadable(printable(f"{into} would have more than {catalog.MOST_DUMPED} models"))
    changed = [name for name in sorted(dump) if before.get(name) != dump[name]]
    for name in changed:
        click.echo(printable(_change(name, before.get(name), dump[name])))
    if changed or not into.exists():
        with output_file(into, replace=True) as write_to:
            write_to(catalog.written_models(after))
    same = len(dump) - len(changed)
    click.echo(printable(f"{into}: {len(changed)} written, {same} as before, {len(after)} in all"))


def _change(name: str, before: Any, after: Any) -> str:
    now = _facts(after)
    if before is None:
        return f"+ {name}: {', '.join(f'{field} {fact}' for field, fact in now.items() if fact is not None)}"
    pairs = ((field, old, now[field]) for field, old in _facts(before).items())
    return f"~ {name}: {', '.join(f'{field} {old} → {new}' for field, old, new in pairs if old != new)}"


def _facts(model: Any) -> dict[str, Any]:
    from msgspec import to_builtins

    from openresponses_server.settings.files import as_toml

    facts = {field: getattr(model, field) for field in model.__struct_fields__}
    price = facts["price"]
    return facts | {"price": None if price is None else as_toml(to_builtins(price))}
