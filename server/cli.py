"""The command line. Each command's module is loaded when it is called, so that `--help` is quick."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Final

import click

# name → the module that holds it, and what it does in a line
_COMMANDS: Final = {
    "serve": ("server.commands.serve", "Serve the Responses API over the demo model or an upstream."),
    "init": ("server.commands.init", "Ask a few questions and write the config for `serve`."),
    "replay": ("server.commands.replay", "Translate a recorded stream."),
    "validate": ("server.commands.validate", "Hold a recorded Responses stream to the protocol."),
    "conform": ("server.commands.conform", "Hold a live server to the protocol."),
    "demo": ("server.commands.demo", "Show a streamed round trip in the terminal."),
    "db": ("server.commands.db", "Look after the session store: upgrade, sweep, export."),
}


class _Commands(click.Group):
    """A group whose members are named in a table; the command of a module is called `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _ = _COMMANDS[cmd_name]
        command: click.Command = import_module(module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in _COMMANDS.items()])


def _print_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"openresponses-bridge {metadata.version('openresponses-bridge')}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version)
def main() -> None:
    """Emit OpenResponses from any model, decode it into any client."""
