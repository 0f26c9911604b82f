"""`vscode package`: writes the VS Code extension as a file to install."""

from __future__ import annotations

from pathlib import Path

import click

from openresponses_cli.commands.flags import exit_unreadable


@click.group()
def command() -> None:
    """Get the extension that brings the models of this server into VS Code."""


@command.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path(),
    help="The file to write, or a folder for it. [default: this folder]",
)
def package(output: Path) -> None:
    """Write the extension as a .vsix. VS Code installs it with
    `code --install-extension FILE` or "Install from VSIX"."""
    from openresponses_server.vscode.vsix import extension_files, vsix, vsix_name

    files = extension_files()
    target = output / vsix_name(files) if output.is_dir() else output
    try:
        target.write_bytes(vsix(files))
    except OSError as error:
        exit_unreadable(f"{target}: {error.strerror or error}")
    click.echo(f"{target} is written. Install it with:\n  code --install-extension {target}")
