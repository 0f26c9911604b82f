"""`agent`: a model does a task with tools in one folder, in the terminal."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from openresponses_bridge.text import printable
from openresponses_cli.commands.flags import (
    ASKED,
    config_flag,
    exit_unreadable,
    naming_flags,
    upstream_flags,
    usage_error,
    write_json,
)
from openresponses_cli.commands.serve import fields_of
from openresponses_cli.commands.terminal import console_options, end_with_reader

if TYPE_CHECKING:
    from openresponses_agent.tools.registry import ToolRegistry
    from openresponses_cli.agents.call_log import CallLog
    from openresponses_cli.agents.running import JournalFile, TaskResult
    from openresponses_cli.agents.tools.folder import Folder
    from openresponses_server.settings import Settings

_ANSWERED, _NOT_ANSWERED, _CANCELLED = 0, 1, 130


@click.command()
@click.argument("task", required=False, default="")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="The folder to which the built-in tools are confined (default: the current one).",
)
@click.option(
    "--tools",
    metavar="MODULE:REGISTRY",
    help="Offer the tools of this ToolRegistry instead of the built-in ones.",
)
@click.option(
    "--without",
    "disabled",
    multiple=True,
    metavar="NAME|TAG",
    help="Neither offer nor run this tool, or the tools with this tag (read, edit, shell).",
)
@click.option(
    "--attach",
    "attach",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Show the model this file or image; TASK can name one in the folder as #file:PATH.",
)
@click.option(
    "--open",
    "open_files",
    multiple=True,
    metavar="FILE",
    help="Say in the system text that this file is open.",
)
@click.option(
    "--modified", multiple=True, metavar="FILE", help="Say in the system text that this file was changed."
)
@click.option(
    "--system",
    type=click.File(encoding="utf-8", errors="replace"),
    metavar="FILE",
    help="Read the system text from this file (default: that of a coding assistant).",
)
@click.option("--note", "notes", multiple=True, metavar="TEXT", help="Add this line to the system text.")
@click.option(
    "--web-search",
    is_flag=True,
    help="Let the model search the web, through its upstream or the search that the config sets up.",
)
@click.option(
    "--mcp",
    "mcp_servers",
    multiple=True,
    metavar="NAME",
    help="Offer the tools of this MCP server of the config; each call asks you first.",
)
@click.option(
    "--max-tool-calls",
    type=click.IntRange(min=1),
    metavar="N",
    help="At most this many calls of web search and MCP servers for each answer (default: as in the config).",
)
@config_flag
@upstream_flags(ASKED)
@click.option("--yes", is_flag=True, help="Allow every call without asking.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=25,
    show_default=True,
    metavar="ROUNDS",
    help="Rounds of tool calls after which you are asked whether to continue.",
)
@click.option("--stop", is_flag=True, help="Stop at the limit instead of asking.")
@click.option(
    "--max-prompt-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="Summarise the conversation to keep prompts within this many tokens (default: the model's limit).",
)
@click.option(
    "--condense", is_flag=True, help="Summarise without the model, by keeping the beginning of each message."
)
@click.option(
    "--repair/--no-repair",
    default=True,
    help="Repair tool arguments that are not valid JSON (default: yes).",
)
@click.option(
    "--log-calls",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append a line of JSON to this file when a tool call begins and when it ends.",
)
@click.option(
    "--resume",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Record the run in this file, or resume the run that it has; without TASK, resume its last task.",
)
@click.option(
    "--stateful",
    is_flag=True,
    help="Store each round's response (in the config's store, else in memory), and let the next round "
    "continue it.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print rounds and results as one JSON object at the end."
)
def command(
    task: str, folder: Path, tools: str | None, resume: Path | None, as_json: bool, **flags: Any
) -> None:
    """Have a model do TASK with tools that read, change and search files and run commands.

    A command is run, or an existing file changed, only after you have allowed it. Exit code 0: the model
    answered, 1: it did not (a limit was reached, it failed, its answer was cut off), 2: an argument, a
    setting or a file can't be used, 130: the run was cancelled.
    """
    from openresponses_bridge.errors import BridgeError
    from openresponses_server.settings import SettingsError

    if not task.strip() and resume is None:
        raise click.UsageError("TASK is missing")
    try:
        settings, fields = _settings(**flags)
        with naming_flags(flags["config"], fields), ExitStack() as open_until_the_end:
            inside = _folder(open_until_the_end, folder)
            registry = _tools(tools, inside)
            _check_names(registry, flags["disabled"])
            _check_servers(settings, flags["mcp_servers"])
            journal = _journal(open_until_the_end, resume)
            if not task.strip() and journal is not None and not journal.entries:
                exit_unreadable(f"{resume} has no task to resume: give a TASK")
            call_log = _call_log(open_until_the_end, flags["log_calls"])
            for log in (journal, call_log):
                if log is not None:
                    inside.hide(log.fileno())
            done = _run(task.strip(), settings, registry, inside, journal, call_log, as_json, flags)
    except SettingsError as error:
        raise usage_error(error) from error
    except BridgeError as error:
        exit_unreadable(printable(error.message))
    except OSError as error:
        exit_unreadable(f"{error.filename or resume}: {error.strerror or error}")
    except KeyboardInterrupt:
        sys.exit(_CANCELLED)
    if as_json:
        write_json(done.as_json())
    sys.exit({"done": _ANSWERED, "cancelled": _CANCELLED}.get(done.result.end, _NOT_ANSWERED))


def _run(
    query: str,
    settings: Settings,
    registry: ToolRegistry,
    folder: Folder,
    journal: JournalFile | None,
    call_log: CallLog | None,
    as_json: bool,
    flags: dict[str, Any],
) -> TaskResult:
    import asyncio

    import structlog

    from openresponses_agent.loop import ToolCallLimitBehavior
    from openresponses_cli.agents.running import Task, run_task
    from openresponses_cli.agents.screen import OutputStream, Screen
    from openresponses_cli.agents.task_context import attachments_of, global_context

    # failures are shown as the run's end, and a log line would break the display
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    task = Task(
        query,
        flags["model"],
        registry,
        folder.shown_as,
        journal,
        yes=flags["yes"],
        limit=flags["limit"],
        limit_behavior=ToolCallLimitBehavior.STOP if flags["stop"] else ToolCallLimitBehavior.CONFIRM,
        max_prompt_tokens=flags["max_prompt_tokens"],
        stateful=flags["stateful"],
        disabled=flags["disabled"],
        system=None if flags["system"] is None else flags["system"].read(),
        repair=flags["repair"],
        model_summaries=not flags["condense"],
        attachments=attachments_of(query, folder, flags["attach"]),
        global_context=global_context(
            folder,
            folder.shown_as,
            open_files=flags["open_files"],
            modified_files=flags["modified"],
            notes=flags["notes"],
        ),
        call_log=call_log,
        hosted_tools=_hosted_tools(flags["web_search"], flags["mcp_servers"]),
        max_tool_calls=flags["max_tool_calls"],
    )
    end_with_reader()
    screen = Screen(OutputStream(**console_options(stderr=as_json)), quiet=as_json)
    return asyncio.run(run_task(task, settings, screen))


def _settings(
    config: Path | None,
    upstream: str | None,
    dialect: str | None,
    model: str | None,
    api_key_env: str | None,
    stateful: bool,
    **_others: Any,
) -> tuple[Settings, dict[str, Any]]:
    """Return the settings, with those from flags. Nothing is stored unless `stateful`."""
    from openresponses_cli.commands.startup import check_upstreams
    from openresponses_server.settings import load_settings

    named = model if upstream is not None else None  # else it is a model of the config, or the demo model
    fields = fields_of(upstream, dialect, named, api_key_env, config)
    overrides = {} if stateful else {"store": "memory://"}
    with naming_flags(config, fields):
        settings = load_settings(config, **fields, **overrides, event_log="memory://")
        check_upstreams(settings, model)
    return settings, fields


def _folder(opened: ExitStack, path: Path) -> Folder:
    from openresponses_cli.agents.tools.folder import Folder

    inside = Folder(path)
    opened.callback(inside.close)
    return inside


def _tools(tools: str | None, inside: Folder) -> ToolRegistry:
    from openresponses_cli.agents.running import load_registry
    from openresponses_cli.agents.tools import sample_tools

    if tools is None:
        return sample_tools(inside)
    here = str(Path.cwd())
    sys.path.append(here)  # at the end: a file in the folder must not shadow a module
    try:
        return load_registry(tools)
    except ValueError as error:
        raise click.UsageError(f"--tools: {error}") from error
    finally:
        sys.path.remove(here)  # the model can write to the folder


def _check_names(registry: ToolRegistry, disabled: tuple[str, ...]) -> None:
    known = {name for tool in registry for name in (tool.name, *tool.tags)}
    for name in disabled:
        if name not in known:
            raise click.UsageError(f"--without: {name!r} is neither a tool nor a tag")


def _check_servers(settings: Settings, names: tuple[str, ...]) -> None:
    known = [each.name for each in settings.mcp_servers]
    for name in names:
        if name not in known:
            listed = ", ".join(map(repr, known)) or "none"
            raise click.UsageError(f"--mcp: the config has no MCP server {name!r} (it has: {listed})")


def _hosted_tools(web_search: bool, mcp_servers: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    """Return the declarations. That of an MCP server has nothing about approvals, so that all calls need
    one."""
    declarations: list[dict[str, Any]] = [{"type": "web_search"}] if web_search else []
    declarations += [{"type": "mcp", "server_label": name} for name in dict.fromkeys(mcp_servers)]
    return tuple(declarations)


def _call_log(opened: ExitStack, path: Path | None) -> CallLog | None:
    from openresponses_cli.agents.call_log import CallLog

    return None if path is None else opened.enter_context(CallLog(path))


def _journal(opened: ExitStack, resume: Path | None) -> JournalFile | None:
    from openresponses_cli.agents.running import JournalFile

    return None if resume is None else opened.enter_context(JournalFile(resume))
