"""`corpus`: streams with what a reader should make of them, for the authors of decoders and clients."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from openresponses_cli.commands.flags import exit_unreadable, with_flags, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from openresponses_bridge.corpus import CaseWire

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])
_WIRES: Final[dict[str, tuple[CaseWire, ...]]] = {
    "both": ("openresponses", "openai"),
    "openresponses": ("openresponses",),
    "openai": ("openai",),
}
_HOST: Final = "127.0.0.1"
_PORT: Final = 8090

_wire_flag = click.option(
    "--wire",
    type=click.Choice(list(_WIRES)),
    default="both",
    show_default=True,
    help="Only cases in this spelling of the protocol.",
)
_json_flag = click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of text.")


def _chosen(names: Sequence[str], wire: str) -> list[str]:
    """Return the ids of the cases with these names. Ends the command with exit code 2 for a name that no case
    has."""
    from openresponses_bridge.corpus import chosen_ids
    from openresponses_bridge.errors import LocalError

    try:
        ids = chosen_ids(names, _WIRES[wire])
    except LocalError as error:
        exit_unreadable(f"{error.message}; `corpus list` shows all")
    if not ids:
        exit_unreadable(f"none of these is on the wire {wire}")
    return ids


@click.group()
def command() -> None:
    """Streams with what a reader should make of them: every event and item, and the faults of servers.

    A case is a script on a wire (`openai/text`), or a variant of it (`openai/text/crlf`).
    """


@command.command("list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@with_flags(_wire_flag, _json_flag)
def list_cases(names: tuple[str, ...], wire: str, as_json: bool) -> None:
    """List all cases, or those with a NAME: an id, a script or a variant.

    Each line has the id of a case and what a reader has to do. Exit code 2: no case has such a name.
    """
    from openresponses_bridge.corpus import case
    from openresponses_cli.commands.flags import write_json

    for id in _chosen(names, wire):
        each = case(id)
        if as_json:
            write_json({"id": id, "asks": each.asks, "broken_rules": each.broken_rules})
        else:
            write(f"{id:52} {each.asks}\n".encode())


@command.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@with_flags(
    _wire_flag,
    click.option("--sse", is_flag=True, help="Print only the bytes of the stream of one case."),
    click.option("--schema", is_flag=True, help="Print only the JSON Schema of these lines."),
)
def show(names: tuple[str, ...], wire: str, sse: bool, schema: bool) -> None:
    """Show cases as JSON lines: the events, the stream's text, and what is expected.

    NAME is an id, a script or a variant; without one, all cases are shown. Exit code 2: no case has such a
    name.
    """
    from openresponses_bridge import corpus
    from openresponses_cli.commands.flags import write_json

    if schema:
        write_json(corpus.schema())
        return
    ids = _chosen(names, wire)
    if sse and len(ids) > 1:
        raise click.UsageError(
            f"--sse prints one case, but {len(ids)} have such a name: {ids[0]}, {ids[1]}, …"
        )
    for id in ids:
        each = corpus.case(id)
        write(each.body if sse else each.document + b"\n")


@command.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-", metavar="[FILE|-]")
@click.option(
    "--only", metavar="NAME", multiple=True, help="Check only this id, script or variant (repeatable)."
)
@with_flags(_wire_flag, _json_flag)
@click.option(
    "--junit", metavar="FILE", type=click.Path(dir_okay=False), help="Also write a JUnit report to this file."
)
def check(file: str, only: tuple[str, ...], wire: str, as_json: bool, junit: str | None) -> None:
    """Check what a client made of the cases.

    A line of FILE is the client's report of a case: `{"id": …, "status": …, "text": …, "calls": [{"call_id",
    "name", "arguments"}]}`, where `status` is completed, incomplete, failed, cancelled or cut; also
    `refusal`, `reasoning`, `summary`, `citations`, `usage`, `error`, `incomplete_reason`, or a whole
    `response`. What a report leaves out is not checked; a case without one differs. Differences are listed by
    what the client does wrong: a case that builds on one that differs is not a fault of its own.

    Exit code 0: nothing differs, 1: something does, 2: the file can't be read; the message names the line.
    """
    from openresponses_cli.commands.corpus_checking import check_reports

    sys.exit(check_reports(file, _chosen(only, wire), as_json=as_json, junit=junit))


@command.command()
@click.option("--host", default=_HOST, show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_PORT,
    show_default=True,
    help="The port to listen on; 0: any free port.",
)
def serve(host: str, port: int) -> None:
    """Serve the cases to a client under test: each is a model, named by the id of the case.

    `POST /v1/responses` streams the case as server-sent events or, without `stream`, answers with the
    response; `GET /v1/responses` opens a WebSocket, which streams one for each `response.create`;
    `GET /v1/models` lists the ids. Other fields of a request are ignored. Exit code 2: the address can't be
    used.
    """
    from openresponses_cli.commands.corpus_serving import serve_cases

    try:
        serve_cases(host, port)
    except OSError as error:
        exit_unreadable(f"can't listen on {host}:{port}: {error.strerror or error}")
