"""The interface of tools that the server runs itself: the functions that the model gets for a tool, the items
that its calls are in a response, and how they are run.

A `HostedProvider` stands for one kind of tools, one per application. For each tool of a request that it runs
it makes a `HostedTool`, whose functions the model gets instead of the tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from msgspec import Struct, field

from openresponses_bridge.protocol.request import CreateResponse


class HostedFunction(Struct, frozen=True):
    """A function that the model gets. `name` has at most 64 characters of `[A-Za-z0-9_-]`; if a client's
    function has that name it keeps it, and this one gets another. `parameters` is JSON Schema of type
    object."""

    name: str
    description: str
    parameters: dict[str, Any]


class HostedCall(Struct, frozen=True):
    """A call that the model made. `name` is the `HostedFunction`'s own; `arguments` is JSON as the model
    wrote it, which may be malformed; `approval_id` is the id of the request for approval that was granted."""

    call_id: str
    name: str
    arguments: str
    approval_id: str | None = None


TOOL_ERROR: Final = "tool_error"
"""The `error.type` of a call whose tool reports that it has failed, in OpenTelemetry's names."""
TIMEOUT: Final = "timeout"
"""The `error.type` of a call that took too long."""


class HostedResult(Struct, frozen=True):
    """The result of a call. `output` is sent to the model; `item` has the fields of the finished item, in
    addition to or instead of those with which it was announced; `pages` are the addresses and titles of the
    pages that it found, which the answer may cite. `error_type` is the kind of a failure, in OpenTelemetry's
    names."""

    output: str
    item: dict[str, Any]
    failed: bool = False
    pages: Sequence[tuple[str, str]] = ()
    error_type: str = TOOL_ERROR


class Recalled(Struct, frozen=True):
    """An item of an earlier response as a call and its output; `name` is the `HostedFunction`'s own."""

    name: str
    arguments: str
    output: str


NOTHING: Final = Recalled("", "", "")
"""Stands for an item that means nothing to a model and is left out."""


class HostedContext(Struct, frozen=True):
    """The limits of the tools of one request: the `owner` of its key, `most_bytes` of the output of one call,
    `seconds` for one call; and `shared`, what the tools of one kind have in common, by a name that they
    choose."""

    owner: str
    most_bytes: int
    seconds: float
    shared: dict[str, Any] = field(default_factory=dict)


class HostedToolError(Exception):
    """A call that failed. `message` is for the model and the client."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class HostedTool(Protocol):
    """A tool of one request, ready to be called."""

    kind: str
    """The tool's type in OpenTelemetry's conventions: a `function` of this process, or an `extension`, which
    sends requests to another server."""

    @property
    def functions(self) -> Sequence[HostedFunction]:
        """The functions that the model may call."""
        ...

    @property
    def preface(self) -> Sequence[dict[str, Any]]:
        """Whole items, without ids, that come before all output."""
        ...

    def announce(self, call: HostedCall) -> dict[str, Any]:
        """Return the item of the call while it runs, without an id."""
        ...

    def progress(self, call: HostedCall) -> Sequence[tuple[str, dict[str, Any]]]:
        """Return events that follow the announced item: their OpenAI types and their own fields."""
        ...

    def ending(self, result: HostedResult) -> str | None:
        """Return the type of the event before the finished item; None if there is no event."""
        ...

    def is_repeatable(self, call: HostedCall) -> bool:
        """Return True if the call may run twice, because it only reads."""
        ...

    def approval(self, call: HostedCall) -> dict[str, Any] | None:
        """Return the item, without an id, that asks the user to approve the call; None if the call may
        run."""
        ...

    def released(self, items: Sequence[Any]) -> Sequence[HostedCall]:
        """Return the calls in a conversation that were approved and have not run. They run before the model
        is asked."""
        ...

    async def run(self, call: HostedCall) -> HostedResult:
        """Run the call. Raises HostedToolError. The call is cancelled when the response is, or when its time
        is over."""
        ...


class HostedProvider(Protocol):
    """A kind of tools."""

    def takes(self, tool: Any, *, upstream_has: bool) -> bool:
        """Return True if the server runs this tool of a request. `upstream_has` is True if the upstream
        itself runs tools of this type."""
        ...

    async def open(self, tool: Any, context: HostedContext) -> HostedTool:
        """Return the tool for a request. Raises HttpError, and InvalidRequestError with a `param` within the
        tool."""
        ...

    def offered(self, request: CreateResponse, context: HostedContext) -> HostedTool | None:
        """Return the tool that is offered to a request which does not name it; None for none."""
        ...

    def recall(self, item: Any, *, upstream_has: bool) -> Recalled | None:
        """Return the text of a conversation's item for a model; None if it is of another kind or has no
        text."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


def bounded(text: str, most: int) -> str:
    """Return the text cut to this number of bytes in UTF-8, with a note where it was cut."""
    data = text[: most + 1].encode(errors="replace")  # more of it can't count
    if len(data) <= most:
        return text
    note = "\n[cut]"
    return data[: most - len(note)].decode(errors="ignore") + note
