"""The command line. Each command's module is loaded when it is called, so that `--help` is quick."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Final

import click

_COMMANDS: Final = {
    "serve": "server.commands.serve",
    "replay": "server.commands.replay",
    "validate": "server.commands.validate",
    "demo": "server.commands.demo",
}


class _Commands(click.Group):
    """A group whose members are named in a table; the command of a module is called `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = import_module(module).command
        return command


def _print_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"openresponses-bridge {metadata.version('openresponses-bridge')}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version)
def main() -> None:
    """Emit OpenResponses from any model, decode it into any client."""
