"""`completion`: the script with which a shell completes commands and flags."""

from __future__ import annotations

import click

_PROGRAM = "openresponses-bridge"
_VARIABLE = "_OPENRESPONSES_BRIDGE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands, flags and their values.

    For bash put `eval "$(openresponses-bridge completion bash)"` into ~/.bashrc; for zsh put the same line,
    with zsh, into ~/.zshrc; for fish write the output to
    ~/.config/fish/completions/openresponses-bridge.fish.
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(context.find_root().command, {}, _PROGRAM, _VARIABLE).source(), nl=False)
