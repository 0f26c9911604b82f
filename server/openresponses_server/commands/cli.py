"""The command line. Each command's module is imported when the command is called, so that `--help` is
fast."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

# name → its module, with the name of the command there if that has several, and its help text
_COMMANDS: Final = {
    "serve": (
        "openresponses_server.commands.serve",
        "Serve the Responses API over the demo model or an upstream.",
    ),
    "config": (
        "openresponses_server.commands.config",
        "Check what `serve` would run with, and where it comes from.",
    ),
    "models": (
        "openresponses_server.commands.config:models",
        "Write what is known of models, from a file, for `serve`.",
    ),
    "init": ("openresponses_server.commands.init", "Ask a few questions and write the config for `serve`."),
    "run": (
        "openresponses_server.commands.run",
        "Run Codex, Claude Code, Gemini CLI or opencode with any model.",
    ),
    "doctor": (
        "openresponses_server.commands.doctor",
        "Check what a server and an agent need, and name what is missing.",
    ),
    "record": ("openresponses_server.commands.record", "Ask a model and record what its server sends."),
    "replay": ("openresponses_server.commands.replay", "Translate a recorded stream."),
    "validate": (
        "openresponses_server.commands.validate",
        "Check a recorded Responses stream against the protocol.",
    ),
    "inspect": (
        "openresponses_server.commands.inspect",
        "Show a stream as a tree of its items, while it comes.",
    ),
    "conform": ("openresponses_server.commands.conform", "Check a running server against the protocol."),
    "agent": ("openresponses_server.commands.agent", "Have a model do a task with tools, in the terminal."),
    "chat": ("openresponses_server.commands.chat", "Talk with a model in the terminal."),
    "responses": (
        "openresponses_server.commands.responses",
        "Look at, delete and export what a server stores for your key.",
    ),
    "demo": ("openresponses_server.commands.demo", "Show a streamed round trip in the terminal."),
    "db": (
        "openresponses_server.commands.db",
        "Maintain the session store: upgrade, sweep, backup, export, import.",
    ),
    "keys": (
        "openresponses_server.commands.keys",
        "Manage keys of clients: add, list, revoke, limit.",
    ),
    "vscode": ("openresponses_server.commands.vscode", "Get the extension for VS Code."),
}


class _Commands(click.Group):
    """A group whose commands are in a table; each module has one as `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, named = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), named or "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from openresponses_server.settings.files import did_you_mean

            ctx.fail(f"No such command {name!r}{did_you_mean(name, _COMMANDS)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in _COMMANDS.items()])


def _print_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked:
        from importlib import metadata

        click.echo(f"openresponses-bridge {metadata.version('openresponses-bridge')}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version)
def main() -> None:
    """Emit OpenResponses from any model, decode it into any client."""
