"""`chat`: a conversation with a model in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from openresponses_bridge.text import printable
from openresponses_cli.commands.flags import (
    REACHED,
    config_flag,
    exit_unreadable,
    upstream_flags,
    usage_error,
    write_json,
)
from openresponses_cli.commands.terminal import console_options, end_with_reader

if TYPE_CHECKING:
    import asyncio

    from rich.console import Console

    from openresponses_bridge.protocol.response import Response
    from openresponses_cli.agents.coding.running import ReachableServer
    from openresponses_server.client import OpenResponsesError

_ANSWERED, _NOT_ANSWERED, _CANCELLED = 0, 1, 130
_HELP: Final = (
    ("/attach FILE", "send an image, a PDF or a text with the next message"),
    ("/model NAME", "use another model from now on; without NAME, list the models"),
    ("/clear", "start a new conversation"),
    ("/help", "this"),
    ("/quit", "end (also Ctrl-D); Ctrl-C stops an answer"),
)
_MOST_MODELS: Final = 50
_MOST_BYTES: Final = 4 * 1024 * 1024
_NAME: Final = 100


@click.command()
@click.argument("message", required=False)
@upstream_flags(REACHED)
@config_flag
@click.option("--server", metavar="URL", help="Use the server that runs at this URL.")
@click.option("--key-env", metavar="VAR", help="Environment variable that holds the key for this server.")
@click.option(
    "--attach",
    "attachments",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Send an image, a PDF or a text with the first message (repeatable).",
)
@click.option("--instructions", metavar="TEXT", help="Instructions for the model.")
@click.option("--json", "as_json", is_flag=True, help="Print each response as one JSON object instead.")
def command(
    message: str | None,
    attachments: tuple[Path, ...],
    instructions: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Send a model MESSAGE and print its answer, or hold a conversation at the terminal.

    Without MESSAGE, standard input is the message if it is not a terminal. Nothing is stored, and no tools
    are offered. Without --server and --upstream, the server at the default address is asked if one runs
    there, else the demo model. Exit code 0: the model answered, 1: it did not, 2: an argument, a setting or a
    file can't be used, 130: the answer was cancelled.
    """
    from openresponses_cli.agents.coding.discovery import UnusableServer
    from openresponses_cli.commands.run import server_to_use
    from openresponses_server.settings import SettingsError

    try:
        with server_to_use(**flags) as (reached, _hidden):
            ended = _talk(reached, message, list(attachments), instructions, as_json, flags["model"])
    except (ValueError, UnusableServer, SettingsError) as error:
        raise usage_error(error) from error
    except KeyboardInterrupt:
        ended = _CANCELLED
    sys.exit(ended)


def _talk(
    reached: ReachableServer,
    message: str | None,
    attachments: list[Path],
    instructions: str | None,
    as_json: bool,
    model: str | None,
) -> int:
    import asyncio

    from rich.console import Console

    from openresponses_cli.commands.chatting import ChatSession, attachment_part

    conversation = ChatSession(instructions)
    conversation.attachments = [attachment_part(path) for path in attachments]
    end_with_reader()
    console = Console(**console_options(stderr=as_json))
    chat = _Chat(reached, conversation, console, _model(reached, model), as_json)
    with asyncio.Runner() as runner:
        try:
            if message is None and sys.stdin.isatty():
                return chat.run_interactive(runner)
            text = message if message is not None else _piped()
            if not text.strip():
                exit_unreadable("the message is empty: give MESSAGE, or write it to standard input")
            return chat.once(runner, text.strip())
        finally:
            runner.run(chat.close())


def _piped() -> str:
    """Return the message on standard input."""
    try:
        return sys.stdin.buffer.read(_MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the message on standard input is not text in UTF-8 (byte {error.start})"
        ) from error


def _model(reached: ReachableServer, requested_model: str | None) -> str:
    listed = [each["id"] for each in reached.models.listed if isinstance(each.get("id"), str)]
    model = requested_model or reached.default or next(iter(listed), None)
    if model is None:
        raise ValueError("no model was found: name one with --model")
    return model


class _Chat:
    def __init__(
        self, reached: ReachableServer, conversation: Any, console: Console, model: str, as_json: bool
    ) -> None:
        from openresponses_server.client import OpenResponsesClient

        self._server = reached
        self._conversation = conversation
        self._console = console
        self._model = model
        self._as_json = as_json
        self._client = OpenResponsesClient(reached.base, reached.key, on_wait=self._show_retry)

    async def close(self) -> None:
        await self._client.close()

    def once(self, runner: asyncio.Runner, text: str) -> int:
        """Send one message and show the answer. Returns the exit code."""
        response = self._ask(runner, text)
        return _ANSWERED if response is not None and response.status == "completed" else _NOT_ANSWERED

    def run_interactive(self, runner: asyncio.Runner) -> int:
        """Send messages as they are typed, until the end of input. Returns the exit code."""
        import readline  # noqa: F401 - editing and history at the prompt

        self._print(f"{_shown(self._model)} at {self._server.base}. /help lists the commands.")
        for line in _lines():
            if line.startswith("/"):
                word, _, rest = line.partition(" ")
                does = _COMMANDS.get(word)
                if word == "/quit":
                    break
                if does is None:
                    self._print(f"{_shown(word)} is not a command; /help lists the commands", "yellow")
                else:
                    does(self, rest.strip())
                continue
            try:
                self._ask(runner, line)
            except KeyboardInterrupt:
                self._console.print()
                self._print("stopped; the message is not kept", "yellow")
        return _ANSWERED

    def _ask(self, runner: asyncio.Runner, text: str) -> Response | None:
        """Send a message and show the answer while it arrives."""
        from openresponses_bridge.errors import BridgeError
        from openresponses_cli.commands.chatting import AnswerView

        view = AnswerView(self._console, quiet=self._as_json)
        try:
            runner.run(self._stream(text, view.feed))
        except BridgeError as error:
            self._print(f"✗ {printable(error.message)} [{printable(str(error.code))}]", "red")
            return None
        response = view.response
        view.show_end()
        if response is not None:
            self._conversation.add_response(response)
            if self._as_json:
                write_json(response)
        return response

    async def _stream(self, text: str, feed: Callable[[Any], None]) -> None:
        async for event in self._client.stream(self._conversation.request(self._model, text)):
            feed(event)

    def _show_retry(self, seconds: float, error: OpenResponsesError) -> None:
        self._print(
            f"{printable(error.message)} [{printable(str(error.code))}]: asked again in {seconds:.0f} s"
        )

    def attach(self, name: str) -> None:
        from openresponses_cli.commands.chatting import AttachmentError, attachment_part

        try:
            self._conversation.attachments.append(attachment_part(Path(name).expanduser()))
        except AttachmentError as error:
            self._print(printable(str(error)), "yellow")
        else:
            self._print(f"{_shown(name)} goes with the next message")

    def change_model(self, name: str) -> None:
        listed = [each["id"] for each in self._server.models.listed if isinstance(each.get("id"), str)]
        if not name:
            self._print(", ".join(_shown(each) for each in listed[:_MOST_MODELS]) or "the server lists none")
            return
        self._model = name
        note = "" if name in listed else ", which the server does not list"
        self._print(f"{_shown(name)} answers from now on{note}")

    def clear(self, _rest: str) -> None:
        self._conversation.clear()
        self._print("a new conversation")

    def help(self, _rest: str) -> None:
        for words, what in _HELP:
            self._print(f"{words:14}{what}")

    def _print(self, text: str, style: str = "dim") -> None:
        from rich.text import Text

        self._console.print(Text(text, style), soft_wrap=True)


_COMMANDS: Final[dict[str, Callable[[_Chat, str], None]]] = {
    "/attach": _Chat.attach,
    "/model": _Chat.change_model,
    "/clear": _Chat.clear,
    "/help": _Chat.help,
}


def _lines() -> Iterator[str]:
    """Yield the messages that are typed: a line that ends with a backslash is continued by the next."""
    begun: list[str] = []
    while True:
        try:
            line = input("… " if begun else "❯ ")
        except EOFError:
            click.echo()
            return
        if line.endswith("\\"):
            begun.append(line[:-1])
            continue
        text = "\n".join([*begun, line]).strip()
        begun = []
        if text:
            yield text


def _shown(text: str) -> str:
    return printable(text[:_NAME])
