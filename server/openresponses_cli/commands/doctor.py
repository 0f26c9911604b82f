"""`doctor`: names what a server or an agent still needs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import click

from openresponses_bridge.text import printable
from openresponses_cli.commands.flags import naming_flags
from openresponses_cli.commands.serve import check_settings, checked_settings, fields_of
from openresponses_cli.commands.serve import command as serve

_MARKS: Final = {"ok": "ok", "note": "note", "missing": "MISSING"}
_USABLE: Final = "settings that can be used"
# without the flags for `serve`'s shutdown and for the clients that it accepts
_FLAGS: Final = (
    "host",
    "port",
    "config",
    "upstream",
    "dialect",
    "model",
    "api_key_env",
    "store",
    "event_log",
)


@click.command(params=[each for each in serve.params if each.name in _FLAGS])
@click.argument("agents", nargs=-1, metavar="[codex|claude|gemini|opencode]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(agents: tuple[str, ...], as_json: bool, config: Path | None, **flags: Any) -> None:
    """Check what a server and an agent need, and name what is missing.

    The upstreams are asked for their models, the store is opened, and the coding agents are looked for: those
    that you name must be installed. The flags are some of those of `serve`. Nothing is changed. Exit code 0:
    nothing is missing, 1: something is, 2: an argument can't be used."""
    import asyncio

    from openresponses_cli.agents.coding.agents import AGENTS, agent_named
    from openresponses_cli.commands.checks import CheckResult, agent_check, service_checks
    from openresponses_server.settings import SettingsError

    try:
        requested = [agent_named(name) for name in agents]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    findings: list[CheckResult]
    try:
        fields = fields_of(**flags, config=config)
        with naming_flags(config, fields):
            settings = checked_settings(config, fields)
            check_settings(settings)
    except SettingsError as error:
        findings = [CheckResult("settings", "missing", each.line, _USABLE) for each in error.all]
    else:
        findings = asyncio.run(service_checks(settings, config))
    findings += [agent_check(agent, needed=agent in requested) for agent in AGENTS.values()]
    ready = all(finding.state != "missing" for finding in findings)
    if as_json:
        rows = [
            {"check": each.what, "state": each.state, "message": printable(each.message)} for each in findings
        ]
        click.echo(json.dumps({"ready": ready, "checks": rows}))
    else:
        for each in findings:
            what = (each.state == "missing" and each.missing) or each.what
            click.echo(f"{_MARKS[each.state]:9}{what}: {printable(each.message)}")
    sys.exit(0 if ready else 1)
