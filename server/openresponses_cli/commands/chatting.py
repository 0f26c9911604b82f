"""The parts of `chat`: the view of an answer, attachments, and the conversation."""

from __future__ import annotations

import os
import stat
import time
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from openresponses_agent.loop import ToolResultElement
from openresponses_bridge.decoder import ResponseAccumulator
from openresponses_bridge.protocol import events as ev
from openresponses_bridge.protocol.codec import decode_json, encode
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.items import Message, ReasoningItem
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.text import on_one_line
from openresponses_cli.agents.screen import AnswerLines, tokens_of

_THOUGHTS: Final = (
    ev.ReasoningDelta,
    ev.ReasoningTextDelta,
    ev.ReasoningSummaryTextDelta,
)
_MESSAGE: Final = 1_000  # characters


class AnswerView:
    """Shows the events of one response."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._fold = ResponseAccumulator()
        self._lines = AnswerLines(console)
        self._begun = time.monotonic()

    @property
    def response(self) -> Response | None:
        """The response so far."""
        return self._fold.response

    def feed(self, event: Event) -> None:
        """Show the next event."""
        self._fold.feed(event)
        if self._quiet:
            return
        if isinstance(event, _THOUGHTS):
            self._lines.add_thinking(event.delta)
        elif isinstance(event, ev.OutputTextDelta | ev.RefusalDelta):
            self._lines.print_text(event.delta)
        elif isinstance(event, ev.OutputItemDone) and event.item is not None:
            self._show_call(event.item)

    def show_end(self) -> None:
        """Show how the response ended, its time and its usage."""
        response = self.response
        if self._quiet or response is None:
            return
        self._lines.print_thinking()
        self._lines.end_line()
        if response.error is not None:
            what = f"{response.error.code}: {response.error.message}"
            self._console.print(Text(f"✗ {on_one_line(what, _MESSAGE)}", "red"), soft_wrap=True)
        elif response.status != "completed":
            why = response.incomplete_details.reason if response.incomplete_details else "cut short"
            what = f"{response.status}: {why}"
            self._console.print(Text(f"… {on_one_line(what, _MESSAGE)}", "yellow"), soft_wrap=True)
        counts = f"{time.monotonic() - self._begun:.1f} s"
        if response.usage is not None:
            counts = f"{tokens_of(response.usage)} · {counts}"
        self._console.print(Text(counts, "dim"), soft_wrap=True)

    def _show_call(self, item: object) -> None:
        arguments = getattr(item, "arguments", None) or getattr(item, "input", None)
        if isinstance(arguments, str) and isinstance(name := getattr(item, "name", None), str):
            call = ToolResultElement(name=name, call_id="", input=arguments)
            self._lines.print_call(call, is_run=False)


# The user's files as parts of a message.

MOST_BYTES: Final = 20 * 1024 * 1024
_MOST_TEXT: Final = 1024 * 1024
_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_PDF: Final = b"%PDF-"


class AttachmentError(ValueError):
    """A file that can't be sent, with the reason."""


def attachment_part(path: Path) -> dict[str, Any]:
    """Return a file as a part of a message: an image, a PDF or a text, by its content. Raises
    AttachmentError."""
    data = _read(path)
    kind = next((kind for magic, kind in _IMAGES if data.startswith(magic)), None)
    if kind is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is not None:
        return {"type": "input_image", "image_url": _data_url(kind, data), "detail": "auto"}
    if data.startswith(_PDF):
        return {
            "type": "input_file",
            "filename": path.name,
            "file_data": _data_url("application/pdf", data),
        }
    if len(data) > _MOST_TEXT:
        raise AttachmentError(f"{path}: a text may have {_MOST_TEXT >> 20} MiB at most")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise AttachmentError(f"{path}: neither an image, a PDF nor text in UTF-8") from error
    return {"type": "input_text", "text": f"{path.name}:\n{text}"}


def _read(path: Path) -> bytes:
    """Read a regular file, since reading a pipe or a device may never end."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise AttachmentError(f"{path}: not a regular file")
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise AttachmentError(f"{path}: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise AttachmentError(f"{path}: a file may have {MOST_BYTES >> 20} MiB at most")
    return data


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"


# A conversation that is kept here and sent with each request.

Item = dict[str, Any]


class ChatSession:
    """The messages so far. Nothing is stored on the server."""

    def __init__(self, instructions: str | None = None) -> None:
        self._instructions = instructions
        self._items: list[Item] = []
        self._asked: Item | None = None
        self.attachments: list[Item] = []
        """Parts to send with the next message."""

    def __len__(self) -> int:
        return len(self._items)

    def request(self, model: str, text: str) -> dict[str, Any]:
        """Return the request for this message."""
        parts = [*self.attachments, {"type": "input_text", "text": text}]
        self._asked = {"type": "message", "role": "user", "content": parts}
        request: dict[str, Any] = {
            "model": model,
            "input": [*self._items, self._asked],
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        return request if self._instructions is None else {**request, "instructions": self._instructions}

    def add_response(self, response: Response) -> None:
        """Keep the message and its answer. After a failure neither is kept, so that the message can be sent
        again."""
        if self._asked is None or response.status == "failed":
            return
        self._items += [self._asked, *_items_to_send(response)]
        self._asked = None
        self.attachments = []

    def clear(self) -> None:
        """Start a new conversation."""
        self._items.clear()
        self.attachments = []


def _items_to_send(response: Response) -> list[Item]:
    """Return the items of an answer that the next request may contain. A server refuses calls without their
    outputs, the reasoning before them, and reasoning that only the server itself could have kept."""
    calls = any(not isinstance(item, Message | ReasoningItem) for item in response.output)
    items: list[Item] = []
    for item in response.output:
        sealed = isinstance(item, ReasoningItem) and isinstance(item.encrypted_content, str)
        if isinstance(item, Message) or (sealed and not calls):
            items.append(decode_json(encode(item)))
    return items
