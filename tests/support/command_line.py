"""The commands of `openresponses-bridge`."""

from collections.abc import Iterator

import click

from openresponses_cli.commands.cli import main


def commands(command: click.Command = main, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command by its path below the program; the program itself is ""."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from commands(subcommand, f"{path} {name}".strip())
