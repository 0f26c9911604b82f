"""The command line. Each command's module is imported when the command is called, so that `--help` is
fast."""

from __future__ import annotations

import errno
import sys
from importlib import import_module
from typing import Any, Final

import click

from openresponses_bridge.text import printable
from openresponses_cli.commands.terminal import drop_output, drop_unwritten, is_coloured

# name → its module, with the name of the command there if the module has several, and its help text
_COMMANDS: Final = {
    "serve": (
        "openresponses_cli.commands.serve",
        "Serve the Responses API over the demo model or an upstream.",
    ),
    "config": (
        "openresponses_cli.commands.config",
        "Check the settings of `serve`, and show where each comes from.",
    ),
    "models": (
        "openresponses_cli.commands.config:models",
        "Update the facts about models that `serve` uses, from a file.",
    ),
    "init": ("openresponses_cli.commands.init", "Ask a few questions and write the config for `serve`."),
    "run": (
        "openresponses_cli.commands.run",
        "Run Codex, Claude Code, Gemini CLI or opencode with any model.",
    ),
    "doctor": (
        "openresponses_cli.commands.doctor",
        "Check what a server and an agent need, and name what is missing.",
    ),
    "record": ("openresponses_cli.commands.record", "Ask a model and record what its server sends."),
    "replay": ("openresponses_cli.commands.replay", "Translate a recorded stream."),
    "validate": (
        "openresponses_cli.commands.validate",
        "Check a recorded Responses stream against the protocol.",
    ),
    "inspect": (
        "openresponses_cli.commands.inspect",
        "Show a stream as a tree of its items, as it arrives.",
    ),
    "conform": ("openresponses_cli.commands.conform", "Check a running server against the protocol."),
    "corpus": (
        "openresponses_cli.commands.corpus",
        "Test a decoder or client with streams whose meaning is known.",
    ),
    "agent": ("openresponses_cli.commands.agent", "Have a model do a task with tools, in the terminal."),
    "chat": ("openresponses_cli.commands.chat", "Talk with a model in the terminal."),
    "responses": (
        "openresponses_cli.commands.responses",
        "Show, delete and export what a server stores for your key.",
    ),
    "demo": ("openresponses_cli.commands.demo", "Show a streamed round trip in the terminal."),
    "db": (
        "openresponses_cli.commands.db",
        "Maintain the session store: upgrade, sweep, backup, export, import.",
    ),
    "keys": (
        "openresponses_cli.commands.keys",
        "Manage keys of clients: add, list, revoke, limit.",
    ),
    "vscode": ("openresponses_cli.commands.vscode", "Get the extension for VS Code."),
    "completion": (
        "openresponses_cli.commands.completion",
        "Print the completion script for bash, zsh or fish.",
    ),
}

_NOT_WRITTEN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


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

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. It ends when nothing more can be written: silently if the reader of standard
        output has left, like other programs before `head`; else with a message and exit code 1."""
        ctx.color = is_coloured(sys.stdout)  # of what `click.style` has styled
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            drop_output()
            ctx.exit(0)
        except OSError as error:
            if error.errno not in _NOT_WRITTEN:
                raise
            drop_unwritten()
            what = error.filename or "standard output"
            raise click.ClickException(printable(f"{what}: {error.strerror}")) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in _COMMANDS.items()])


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        from importlib import metadata

        from openresponses_cli.commands.commit import commit_of

        # the second is what pip writes if it is given the whole repository
        commit = commit_of("openresponses-server") or commit_of("openresponses-workspace")
        made_of = f" ({commit[:12]})" if commit else ""
        click.echo(f"openresponses-bridge {metadata.version('openresponses-bridge')}{made_of}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version)
def main() -> None:
    """Emit OpenResponses from any model, decode it into any client."""
