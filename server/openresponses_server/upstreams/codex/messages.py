"""Messages over the pipes: one JSON object a line, without the field `jsonrpc`. Only the parts that say where
a received message belongs are decoded."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from openresponses_server.errors import FailureFacts, UpstreamError
from openresponses_server.upstreams.base import called

METHOD_NOT_FOUND: Final = -32601  # JSON-RPC 2.0, "Error object"


class ObjectWithId(Struct):
    """An object of which only the id is read."""

    id: str = ""


class TurnState(ObjectWithId):
    """A turn and its status."""

    status: str = ""


class Params(Struct, rename="camel"):
    """The thread and turn of a notification or request."""

    thread_id: str = ""
    turn_id: str = ""
    turn: TurnState | None = None


class RpcFailure(Struct):
    """The `error` of an answer."""

    code: int = 0
    message: str = ""


class Incoming(Struct):
    """One line: an answer (`id`), a notification (`method`) or a request (both)."""

    id: int | str | None = None
    method: str = ""
    params: Params | None = None
    result: Raw = Raw(b"null")
    error: RpcFailure | None = None

    @property
    def thread_id(self) -> str:
        return "" if self.params is None else self.params.thread_id

    @property
    def turn_id(self) -> str:
        if self.params is None:
            return ""
        return self.params.turn_id or ("" if self.params.turn is None else self.params.turn.id)

    @property
    def status(self) -> str:
        """The status of the turn in this message."""
        turn = None if self.params is None else self.params.turn
        return "" if turn is None else turn.status


class AgentItem(Struct):
    """The item of an `item/completed`, as far as it is a message."""

    type: str = ""
    text: str = ""


class _ItemParams(Struct):
    item: AgentItem


class _ItemCompleted(Struct):
    params: _ItemParams


_incoming: Final = msgspec.json.Decoder(Incoming)
_completed: Final = msgspec.json.Decoder(_ItemCompleted)


def incoming(line: bytes) -> Incoming | None:
    """The message in a line; None if it is not a message."""
    try:
        return _incoming.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def said_in(line: bytes) -> str:
    """The text of the message that an `item/completed` reports; empty for other items."""
    try:
        item = _completed.decode(line).params.item
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""
    return item.text if item.type == "agentMessage" else ""


def params_of(line: bytes) -> dict[str, Any]:
    """The parameters of a request, whole."""
    try:
        params = msgspec.json.decode(line)["params"]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, LookupError, TypeError):
        return {}
    return params if isinstance(params, dict) else {}


_SOON: Final = "1"  # seconds
_MOST_MESSAGE: Final = 500  # characters of Codex's text of an error


class UndeliveredError(UpstreamError):
    """A request did not reach Codex: it can be sent to another of its processes."""


class RefusedError(UpstreamError):
    """Codex answered a request with an error."""


def undelivered(name: str, cause: str) -> UndeliveredError:
    """The process has ended before the request, or reads nothing."""
    message = f"the {called(name)} did not accept the request"
    return UndeliveredError(503, message, code=UpstreamError.UNREACHABLE, cause=cause)


def unknown(error: UpstreamError) -> UpstreamError:
    """Return this failure for a request that may have been acted on and is not sent again."""
    facts = FailureFacts(permanent=True, failover="")
    return UpstreamError(error.http_status, error.message, code=error.code, cause=error.cause, facts=facts)


def _error(status: int, code: str, name: str, what: str, cause: str = "") -> UpstreamError:
    return UpstreamError(status, f"the {called(name)} {what}", code=code, cause=cause or f"it {what}")


def not_started(name: str, cause: str, retry_after: float | None = None) -> UpstreamError:
    """The process can't be started, or was not ready in time."""
    error = _error(503, UpstreamError.UNREACHABLE, name, "can't be started", cause)
    if retry_after is not None:
        error.headers["retry-after"] = str(max(1, round(retry_after)))
    return error


def ended(name: str, cause: str) -> UpstreamError:
    """The process has ended."""
    return _error(502, UpstreamError.DISCONNECTED, name, "has stopped in the middle of the answer", cause)


def silent(name: str, what: str) -> UpstreamError:
    """Return the error for a Codex that does not answer."""
    return _error(504, UpstreamError.TIMEOUT, name, "went silent", f"it did not {what} in time")


def invalid(name: str, what: str) -> UpstreamError:
    """Return the error for an unexpected answer of Codex."""
    return _error(502, UpstreamError.INVALID_RESPONSE, name, "answered with something else", what)


def refused(name: str, method: str, message: str) -> RefusedError:
    """Return the error for a request that Codex refuses."""
    what = f"the {called(name)} refused the turn: {message[:_MOST_MESSAGE] or 'it does not say why'}"
    return RefusedError(502, what, code=UpstreamError.INVALID_RESPONSE, cause=f"it refused {method}")


def slow_client(name: str, most: int) -> UpstreamError:
    """The client does not read the output."""
    what = f"sent more than {most} bytes that the client did not read"
    return _error(502, UpstreamError.TOO_LONG, name, what)


def not_asked(what: str) -> UpstreamError:
    """An answer to an approval that was not requested."""
    return UpstreamError(
        400, what, code="invalid_value", error_type="invalid_request_error", param="input", cause=what
    )


def busy(name: str, *, key: bool) -> UpstreamError:
    """Return the error for turns that are all in use, or all that one key may have."""
    status = 429 if key else 503
    whose = " of this key" if key else ""
    error = UpstreamError(
        status,
        f"the {called(name)} has too many turns{whose} at once; try again later",
        code="rate_limit_exceeded" if key else "service_unavailable",
        cause=f"its queue{whose} is full",
    )
    error.headers["retry-after"] = _SOON
    return error


class QuestionKind(NamedTuple):
    """A kind of question that Codex sends. `accept` and `refuse` are the answers; `asks`: it is a request for
    permission, which can be passed to a client."""

    kind: str
    accept: dict[str, Any]
    refuse: dict[str, Any]
    asks: bool = True


# refused and not cancelled: Codex then goes on without it and says so, where a cancelled turn has no answer
_DECISIONS: Final = ({"decision": "accept"}, {"decision": "decline"})
_NO_FORM: Final = {"content": None, "_meta": None}
QUESTIONS: Final = {
    "item/commandExecution/requestApproval": QuestionKind("command_execution", *_DECISIONS),
    "item/fileChange/requestApproval": QuestionKind("file_change", *_DECISIONS),
    "item/permissions/requestApproval": QuestionKind(
        "permissions", {"permissions": {}, "scope": "turn"}, {"permissions": {}, "scope": "turn"}
    ),
    "mcpServer/elicitation/request": QuestionKind(
        "mcp_elicitation", {"action": "accept", **_NO_FORM}, {"action": "decline", **_NO_FORM}
    ),
    "item/tool/requestUserInput": QuestionKind("user_input", {"answers": {}}, {"answers": {}}, asks=False),
    "item/tool/call": QuestionKind(
        "tool_call",
        {"contentItems": [], "success": False},
        {"contentItems": [], "success": False},
        asks=False,
    ),
}


def answer(method: str, params: dict[str, Any], *, accept: bool) -> dict[str, Any] | None:
    """The answer; None for a question of an unknown kind."""
    question = QUESTIONS.get(method)
    if question is None:
        return None
    if accept and question.kind == "permissions":
        permissions = params.get("permissions")
        return {**question.accept, "permissions": permissions if isinstance(permissions, dict) else {}}
    return question.accept if accept else question.refuse
