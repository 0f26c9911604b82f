"""`record`: asks a model and records the bytes that its server sends."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from openresponses_bridge.text import counted, printable
from openresponses_cli.commands.flags import (
    ASKED,
    config_flag,
    exit_unreadable,
    naming_flags,
    upstream_flags,
)
from openresponses_cli.commands.serve import fields_of

if TYPE_CHECKING:
    from openresponses_server.settings import Settings
    from openresponses_server.upstreams.targets import Target

_MOST_REQUEST: Final = 32 * 1024 * 1024  # bytes
_FINISHED, _NOT_FINISHED, _CANCELLED = 0, 1, 130


@click.command()
@click.argument("prompts", nargs=-1, metavar="[PROMPT]...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The recording, which must not exist yet.",
)
@click.option(
    "--request",
    "requests",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Send the request body in this file, in the upstream's dialect, as it is (repeatable).",
)
@config_flag
@upstream_flags(ASKED)
def command(
    prompts: tuple[str, ...],
    requests: tuple[Path, ...],
    output: Path,
    config: Path | None,
    model: str | None,
    **flags: Any,
) -> None:
    """Ask a model each PROMPT and record what its server sends, byte by byte, with times and without keys.

    `replay` plays the recording, and `serve --upstream recording:FILE` answers with it. `serve --record`
    records what a client of your own asks. Exit code 0: all answers were recorded in full, 1: one was refused
    or broke off (it is recorded as well), or the server did not answer at all (no file is left), 2: an
    argument, a setting or a file can't be used.
    """
    import asyncio

    if not prompts and not requests:
        raise click.UsageError("nothing to ask: give a PROMPT or --request FILE")
    if output.exists():
        exit_unreadable(f"{output} already exists")
    settings, target_model = _settings(config, model, flags)
    bodies = [_body(path) for path in requests]
    try:
        finished = asyncio.run(_record(settings, target_model, prompts, bodies, output))
    except KeyboardInterrupt:
        sys.exit(_CANCELLED)
    sys.exit(_FINISHED if finished else _NOT_FINISHED)


def _settings(config: Path | None, model: str | None, flags: dict[str, Any]) -> tuple[Settings, str | None]:
    """Return the settings and the model; None if each request names its own."""
    from openresponses_cli.commands.startup import example_model
    from openresponses_server.settings import SettingsError, load_settings

    named = (
        model if flags["upstream"] is not None else None
    )  # else it is a model of the config, or the demo model
    try:
        fields = fields_of(model=named, config=config, **flags)
        with naming_flags(config, fields):
            settings = load_settings(config, **fields, store="memory://", event_log="memory://")
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    return settings, model or example_model(settings)


class _Body(NamedTuple):
    """The request in a file, and the model that it names."""

    data: bytes
    model: str | None


def _body(path: Path) -> _Body:
    from openresponses_bridge.errors import WireError
    from openresponses_bridge.protocol.codec import decode_json

    if path.stat().st_size > _MOST_REQUEST:
        exit_unreadable(f"{path}: a request may have at most {_MOST_REQUEST >> 20} MiB")
    data = path.read_bytes()
    try:
        fields = decode_json(data)
    except WireError as error:
        exit_unreadable(f"{path}: {error.message}")
    if not isinstance(fields, dict):
        exit_unreadable(f"{path}: a request must be a JSON object")
    model = fields.get("model")
    return _Body(data, model if isinstance(model, str) else None)


async def _record(
    settings: Settings, model: str | None, prompts: Iterable[str], bodies: Iterable[_Body], output: Path
) -> bool:
    """Send all requests, one after the other. Returns whether every answer was complete."""
    from openresponses_bridge.errors import BridgeError
    from openresponses_server.observation.recordings.writer import RecordingFile
    from openresponses_server.settings import SettingsError
    from openresponses_server.settings.data_folder import ServerSealer
    from openresponses_server.upstreams.routing.models import build_router

    file = RecordingFile(output, settings.record_bytes)
    finished = True
    try:
        router = build_router(settings, ServerSealer(settings.sealing_key_env), lambda _upstream: file)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    try:
        requests = [
            *(_of_prompt(router.resolve(model), prompt) for prompt in prompts),
            *((router.resolve(model or body.model), body.data) for body in bodies),
        ]
        file.create()  # before paying for an answer that can't be recorded
        for target, body in requests if not file.failure else ():
            finished = await _ask(target, body) and finished
    except BridgeError as error:
        raise click.UsageError(printable(error.message)) from error
    finally:
        await router.close()
        if not file.answered and not file.failure:
            file.discard()
    if file.failure:
        exit_unreadable(f"{output}: {file.failure}")
    return finished


def _of_prompt(target: Target, prompt: str) -> tuple[Target, bytes]:
    from openresponses_bridge.calls.identity import ToolIdentityMap
    from openresponses_bridge.protocol.request import CreateResponse

    request = CreateResponse(model=target.model, input=prompt, stream=True)
    return target, target.prepare(request, [], ToolIdentityMap()).body


async def _ask(target: Target, body: bytes) -> bool:
    """Send one request and read its answer. Returns whether it was complete."""
    from secrets import token_hex

    from openresponses_server.errors import UpstreamError
    from openresponses_server.http.flow import BodyReader
    from openresponses_server.upstreams.base import UpstreamRequest

    request = UpstreamRequest(target.dialect.path(target.model), body, f"req_{token_hex(12)}")
    size = reads = 0
    try:
        async with target.upstream.open(request) as reply:
            reader = BodyReader(reply)
            while data := await reader.read():
                size, reads = size + len(data), reads + 1
    except UpstreamError as error:
        click.echo(printable(f"{target.upstream.name}: {error.message}"), err=True)
        return False
    click.echo(f"{target.upstream.name}: {size} bytes in {counted(reads, 'chunk')}", err=True)
    return True
