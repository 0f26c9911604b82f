"""`init`: asks a few questions and writes the config for `serve`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from openresponses_cli.commands.flags import force_flag, output_file

if TYPE_CHECKING:
    from openresponses_server.upstreams.profiles import Profile

_OTHER = "other"
_SCHEMA: Final = "bridge.schema.json"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class _Flags(NamedTuple):
    """The flags that replace answers."""

    upstream: str | None
    dialect: str | None
    models: tuple[str, ...]
    api_key_env: str | None
    host: str | None
    port: int | None
    key_env: str | None


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default=Path("bridge.toml"))
@click.option(
    "--upstream", metavar="NAME|URL", help="A known upstream or an address; no questions are asked."
)
@click.option("--dialect", help="The API that the address speaks (default chat).")
@click.option("--model", "models", multiple=True, help="A model of the upstream (repeatable; default: all).")
@click.option("--api-key-env", metavar="VAR", help="Environment variable that holds the upstream's key.")
@click.option("--host", help="Address to listen on (default 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on (default 8080).")
@click.option(
    "--key-env", metavar="VAR", help="Environment variable that holds the key that clients must send."
)
@force_flag
def command(file: Path, force: bool, **options: Any) -> None:
    """Ask which models to serve, and write the config for `serve --config FILE` (bridge.toml by default).

    Beside it bridge.schema.json is written, with which editors complete and check the config. Exit code 1:
    not all questions were answered, and no file was written."""
    flags = _Flags(**options)
    try:
        if flags.upstream is not None:
            _write(file, *_given(file, force, flags, flags.upstream))
        elif any(value not in (None, ()) for value in flags):
            raise click.UsageError("the other flags need --upstream")
        else:
            _write(file, *_asked(file, force))
    except click.Abort:
        click.echo(f"\n{file} is not written.", err=True)
        sys.exit(1)


def _given(
    file: Path, force: bool, flags: _Flags, upstream: str
) -> tuple[list[dict[str, Any]], str, int, str]:
    """Return the arguments of `_write`, from the flags only. Raises UsageError."""
    from openresponses_server.settings.hosts import is_loopback
    from openresponses_server.upstreams.dialects import DEFAULT, DIALECTS, HttpDialect
    from openresponses_server.upstreams.profiles import names

    if file.exists() and not force:
        raise click.UsageError(f"{file} already exists: --force replaces it")
    for variable in (flags.api_key_env, flags.key_env):
        _variable_name(variable or "")
    fields: dict[str, Any] = {"name": upstream, "profile": upstream}
    if upstream not in names():
        if "://" not in upstream:
            raise click.UsageError(
                f"--upstream: {upstream!r} is not an address, nor one of {', '.join(names())}"
            )
        dialect = flags.dialect or DEFAULT
        if not isinstance(DIALECTS.get(dialect), HttpDialect):
            raise click.UsageError(f"--dialect: {dialect!r} is not a dialect of an address")
        fields = {"name": _OTHER, "url": _address(upstream), "dialect": dialect}
    elif flags.dialect is not None:
        raise click.UsageError("--dialect belongs to an address: a known upstream has its own")
    fields |= {"api_key_env": flags.api_key_env, "models": list(flags.models)}
    host = flags.host or "127.0.0.1"
    if not is_loopback(host) and not flags.key_env:
        raise click.UsageError(f"--host {host} accepts requests from other machines: give --key-env as well")
    table = {name: value for name, value in fields.items() if value}
    return [table], host, 8080 if flags.port is None else flags.port, flags.key_env or ""


def _asked(file: Path, force: bool) -> tuple[list[dict[str, Any]], str, int, str]:
    """Return the arguments of `_write` from what the user answers."""
    if file.exists() and not force:
        click.confirm(f"{file} already exists. Replace it?", abort=True)
    upstreams: list[dict[str, Any]] = []
    while not upstreams or click.confirm("Another upstream?", default=False):
        upstreams.append(_upstream({str(each["name"]) for each in upstreams}))
    host, key_env = _reach()
    return upstreams, host, click.prompt("Port", type=click.IntRange(0, 65535), default=8080), key_env


def _write(file: Path, upstreams: list[dict[str, Any]], host: str, port: int, key_env: str) -> None:
    from openresponses_server.settings import SettingsError, load_settings
    from openresponses_server.settings.files import as_toml

    directive = [f"#:schema {_SCHEMA}", ""] if _write_schema(file.with_name(_SCHEMA)) else []
    lines = [*directive, f"host = {as_toml(host)}", f"port = {as_toml(port)}"]
    if key_env:
        lines.append(f"api_keys = [{as_toml('${' + key_env + '}')}]")
    for upstream in upstreams:
        lines += ["", "[[upstreams]]", *(f"{name} = {as_toml(value)}" for name, value in upstream.items())]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    click.echo(f"\n{file} is written. Start it with:\n  openresponses-bridge serve --config {file}")
    try:
        load_settings(file)
    except SettingsError as error:
        click.echo(f"Before that: {error}", err=True)


def _write_schema(file: Path) -> bool:
    """Write the schema of the config beside it, which the config names for editors. Returns False, without a
    change, if another file has that name."""
    from openresponses_cli.commands.schemas import is_printed, printed

    if os.path.lexists(file) and not (file.is_file() and is_printed("config", file)):
        return False
    with output_file(file, replace=True) as write_to:
        write_to(printed("config"))
    return True


def _upstream(taken: set[str]) -> dict[str, Any]:
    """Ask for one upstream. Returns its fields in the config."""
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
    """Ask for the fields that a profile does not set."""
    if known.api_key_env is None:
        address = known.dialects[known.dialect].url
        url = click.prompt("Its address", default=address, value_proc=_address)
        return {"url": url} if url != address else {}
    variable = _variable("Environment variable with its key", known.api_key_env)
    return {"api_key_env": variable} if variable != known.api_key_env else {}


def _reach() -> tuple[str, str]:
    """Ask for the host, and for the variable with the clients' key, which is required beyond loopback."""
    if not click.confirm("Accept requests from other machines?", default=False):
        return "127.0.0.1", ""
    return "0.0.0.0", _variable("Environment variable with the key that clients must send", "BRIDGE_API_KEY")


def _variable(question: str, default: str) -> str:
    name: str = click.prompt(question, default=default, show_default=bool(default), value_proc=_variable_name)
    if name and not os.environ.get(name):
        click.echo(f"  {name} is not set yet.")
    return name


def _address(text: str) -> str:
    """Check an address. Raises UsageError, and then the question is asked again."""
    from openresponses_server.upstreams.dialects import base_url

    try:
        base_url(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return text


def _variable_name(text: str) -> str:
    """Check the name of a variable, or "": a key that is typed here by mistake would be written to the
    file."""
    if text and not _NAME.fullmatch(text):
        raise click.UsageError("this is not the name of a variable: it may have letters, digits and _")
    return text


def _free_name(base: str, taken: set[str]) -> str:
    candidates = (base if number == 1 else f"{base}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in candidates if name not in taken)
