"""`init`: a few questions, and the config for `serve` that follows from the answers."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from openresponses_server.commands.flags import force_flag

if TYPE_CHECKING:
    from openresponses_server.upstreams.profiles import Profile

_OTHER = "other"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default=Path("bridge.toml"))
@force_flag
def command(file: Path, force: bool) -> None:
    """Ask which models to serve, and write a config for `serve --config FILE` (bridge.toml by default).

    Exit code 1: the file is not written, as the questions were not answered to their end."""
    try:
        _ask(file, force)
    except click.Abort:
        click.echo(f"\n{file} is not written.", err=True)
        sys.exit(1)


def _ask(file: Path, force: bool) -> None:
    from openresponses_server.settings import SettingsError, load_settings

    if file.exists() and not force:
        click.confirm(f"{file} already exists. Replace it?", abort=True)
    upstreams: list[dict[str, Any]] = []
    while not upstreams or click.confirm("Another upstream?", default=False):
        upstreams.append(_upstream({str(each["name"]) for each in upstreams}))
    host, keys_env = _reach()
    head = [("host", host), ("port", click.prompt("Port", type=click.IntRange(0, 65535), default=8080))]
    lines = [f"{name} = {_toml(value)}" for name, value in head]
    if keys_env:
        lines.append(f"api_keys = [{_toml('${' + keys_env + '}')}]")
    for upstream in upstreams:
        lines += ["", "[[upstreams]]", *(f"{name} = {_toml(value)}" for name, value in upstream.items())]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    click.echo(f"\n{file} is written. Start it with:\n  openresponses-bridge serve --config {file}")
    try:
        load_settings(file)
    except SettingsError as error:
        click.echo(f"Before that: {error}", err=True)


def _upstream(taken: set[str]) -> dict[str, Any]:
    """One upstream as the fields of its table."""
    from openresponses_server.upstreams.dialects import DEFAULT, DIALECTS, HttpDialect
    from openresponses_server.upstreams.profiles import names, profile

    choice = click.prompt("Upstream", type=click.Choice([*names(), _OTHER]), default="ollama")
    known = None if choice == _OTHER else profile(choice)
    fields: dict[str, Any] = {"name": _free_name(choice, taken)}
    if known is None:
        fields["url"] = click.prompt("Its address (https://…)", value_proc=_address)
        with_address = [name for name, row in DIALECTS.items() if isinstance(row, HttpDialect)]
        fields["dialect"] = click.prompt("What it speaks", type=click.Choice(with_address), default=DEFAULT)
        fields["api_key_env"] = _variable("Environment variable with its key (empty: none)", "")
    else:
        fields["profile"] = choice
        fields |= _of_profile(known)
    models = click.prompt(
        "Models it serves, with commas between (empty: all)", default="", show_default=False
    )
    fields["models"] = [name.strip() for name in models.split(",") if name.strip()]
    return {name: value for name, value in fields.items() if value}


def _of_profile(known: Profile) -> dict[str, Any]:
    """What a profile leaves open."""
    if known.api_key_env is None:
        address = known.dialects[known.dialect].url
        url = click.prompt("Its address", default=address, value_proc=_address)
        return {"url": url} if url != address else {}
    variable = _variable("Environment variable with its key", known.api_key_env)
    return {"api_key_env": variable} if variable != known.api_key_env else {}


def _reach() -> tuple[str, str]:
    """(host, variable with the key that clients have to show): beyond loopback there has to be one."""
    if not click.confirm("Accept requests from other machines?", default=False):
        return "127.0.0.1", ""
    return "0.0.0.0", _variable("Environment variable with the key that clients show", "BRIDGE_API_KEY")


def _variable(question: str, default: str) -> str:
    name: str = click.prompt(question, default=default, show_default=bool(default), value_proc=_variable_name)
    if name and not os.environ.get(name):
        click.echo(f"  {name} is not set yet.")
    return name


def _address(text: str) -> str:
    """An answer that is an address. Raises UsageError, upon which it is asked again."""
    from openresponses_server.upstreams.dialects import base_url

    try:
        base_url(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return text


def _variable_name(text: str) -> str:
    """The same of a variable's name, or nothing: a key that is typed here would be in the file."""
    if text and not _NAME.fullmatch(text):
        raise click.UsageError("this is not the name of a variable: letters, digits and _")
    return text


def _free_name(wanted: str, taken: set[str]) -> str:
    candidates = (wanted if number == 1 else f"{wanted}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in candidates if name not in taken)


def _toml(value: Any) -> str:
    import msgspec

    # what is asked here are strings, numbers and lists of strings, which TOML writes as JSON does
    return msgspec.json.encode(value).decode()
