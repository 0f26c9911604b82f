"""`Answer`: the bytes of the answer to one request. Sans-IO: it neither waits nor sends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypedDict

from msgspec import to_builtins
from msgspec.structs import replace

from openresponses_bridge.backend.outputs import UNENCODABLE, Output, OutputEmitter, ToolCall, place_of
from openresponses_bridge.calls.declarations import present_tools
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import pair
from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects import anthropic_messages, chat_completions
from openresponses_bridge.dialects.base import Outbound, active_tools, entries_of, views_of
from openresponses_bridge.dialects.chat_completions import to_chat
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.emitter.output import IdFactory
from openresponses_bridge.errors import BridgeError, HttpError, InvalidRequestError, LocalError, RemoteError
from openresponses_bridge.protocol.codec import decode_request, encode, encode_sse
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.input_items import items_of
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import ErrorBody, ErrorPayload, Response
from openresponses_bridge.seal import Sealer
from openresponses_bridge.sse import DONE, encode_comment
from openresponses_bridge.state import TERMINAL_PHASES, ResponseStreamPhase
from openresponses_bridge.wire import choose_wire, is_codex

Dialect = Literal["responses", "chat", "anthropic"]

KEEP_ALIVE: Final = encode_comment("keep-alive")


Streamed = Callable[[Sequence[Event], bool], bytes]


class AnswerForm(NamedTuple):
    """The encoding of one answer. `streamed` encodes events, its second argument says whether they are the
    last. `whole` encodes a response that has ended; None when there is only an error to report."""

    streamed: Streamed
    whole: Callable[[Response], bytes | None]


class Surface(NamedTuple):
    """One API. `read` decodes a body to the request and the form of its answer; it raises InvalidRequestError
    with `param`. `error` encodes a refusal. `keep_alive`: bytes that clients skip."""

    read: Callable[[bytes | str, ToolIdentityMap], tuple[CreateResponse, AnswerForm]]
    error: Callable[[BridgeError], bytes]
    keep_alive: bytes = KEEP_ALIVE


def _responses(body: bytes | str, _identities: ToolIdentityMap) -> tuple[CreateResponse, AnswerForm]:
    def streamed(events: Sequence[Event], last: bool) -> bytes:
        return encode_sse(events) + DONE if last else encode_sse(events)

    return decode_request(body), AnswerForm(streamed, encode)


def _chat(body: bytes | str, _identities: ToolIdentityMap) -> tuple[CreateResponse, AnswerForm]:
    request, _losses = chat_completions.from_chat(body)
    options = chat_completions.answer_options(body)
    if options.n > 1:
        what = "n: this backend gives one choice"
        raise InvalidRequestError(InvalidRequestError.UNSUPPORTED, what, param="n")

    def whole(response: Response) -> bytes | None:
        answer = chat_completions.completion(response, legacy_functions=options.legacy_functions)
        return encode(answer) if isinstance(answer, chat_completions.ChatCompletion) else None

    outbound = chat_completions.Outbound(
        include_usage=options.include_usage, legacy_functions=options.legacy_functions
    )
    return request, AnswerForm(_through(outbound, chat_completions.encode), whole)


def _anthropic(body: bytes | str, identities: ToolIdentityMap) -> tuple[CreateResponse, AnswerForm]:
    sealer = Sealer()
    request, _losses = anthropic_messages.from_messages(_as_bytes(body), sealer)

    def whole(response: Response) -> bytes | None:
        answer = anthropic_messages.message(response, sealer)
        return None if answer.get("type") == "error" else encode(answer)

    outbound = anthropic_messages.Outbound(sealer, identities)
    return request, AnswerForm(_through(outbound, anthropic_messages.encode_sse), whole)


def _as_bytes(body: bytes | str) -> bytes:
    return body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body


def _through(
    outbound: Outbound[Any], encode: Callable[[Any], bytes]
) -> Callable[[Sequence[Event], bool], bytes]:
    def streamed(events: Sequence[Event], last: bool) -> bytes:
        chunks = [chunk for event in events for chunk in outbound.feed(event)]
        return encode([*chunks, *outbound.close()] if last else chunks)

    return streamed


def _error(error: BridgeError) -> bytes:
    return encode(ErrorBody(ErrorPayload(error.error_type, error.code, error.message, error.param)))


def _anthropic_error(error: BridgeError) -> bytes:
    return encode(
        anthropic_messages.error_body(error.code, error.error_type, error.message, error.http_status)
    )


SURFACES: Final[dict[str, Surface]] = {
    "responses": Surface(_responses, _error),
    "chat": Surface(_chat, _error),
    "anthropic": Surface(_anthropic, _anthropic_error, b'event: ping\ndata: {"type": "ping"}\n\n'),
}


MAX_OUTPUT: Final = 64 * 1024 * 1024
KEEP_ALIVE_EVENT: Final = "openresponses-bridge:keepalive"

_log = logging.getLogger("openresponses_bridge.backend")
_EACH: Final = 64  # bytes for which an output or event without text counts
_UNNAMED: Final = "model"  # the response's model when neither side names one
_JSON: Final = {"content-type": "application/json"}
_STREAM: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # a buffering proxy would hold back the stream
}
# fields of a request that need a backend with a store
_NEED_A_STORE: Final = ("previous_response_id", "conversation", "background", "prompt")
_INTERNAL: Final = ("The server failed.", "internal_error")


class AnswerHead(NamedTuple):
    """Status and headers of an HTTP answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]


class AnswerOptions(TypedDict, total=False):
    """Options of `Answer`, which explains each."""

    dialect: Dialect
    request_headers: Mapping[str, str]
    model: str | None
    stateful: bool
    max_output: int
    ids: IdFactory | None
    clock: Callable[[], float] | None


def check_options(options: AnswerOptions) -> None:
    """Raises LocalError for an unknown option or dialect."""
    unknown = sorted(options.keys() - AnswerOptions.__annotations__.keys())
    if unknown:
        raise LocalError("bridge.backend.unknown_option", f"there is no option {unknown[0]!r}")
    dialect = options.get("dialect", "responses")
    if dialect not in SURFACES:
        what = f"the dialect is one of {', '.join(SURFACES)}, not {dialect!r}"
        raise LocalError("bridge.backend.unknown_dialect", what)


class Answer:
    """The answer to one request. `feed`, `end` and `fail` return the bytes to send next, with the beginning
    of the stream in the first ones. For an answer that is not streamed they return nothing; `whole` returns
    all of it at the end.

    `body`: the JSON of the request, as bytes, text or parsed. `dialect`: the API of the request, `responses`,
    `chat` or `anthropic`. `request_headers` decide which spelling of the protocol the client gets. `model`:
    the model's name in the response; by default the request's. `stateful`: the backend stores responses
    itself; otherwise a request that refers to an earlier one is refused. `max_output`: limit of the model's
    output, in bytes (approximate). `ids` and `clock` are those of the machine.

    Raises InvalidRequestError with `param` for a request that can't be read or fulfilled.
    """

    def __init__(
        self,
        body: Any,
        *,
        dialect: Dialect = "responses",
        request_headers: Mapping[str, str] | None = None,
        model: str | None = None,
        stateful: bool = False,
        max_output: int = MAX_OUTPUT,
        ids: IdFactory | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        check_options({"dialect": dialect})
        self._dialect: Dialect = dialect
        self._surface = SURFACES[dialect]
        self._identities = ToolIdentityMap()
        request, self._form = self._surface.read(_json(body), self._identities)
        entries = entries_of(request, ())
        present_tools(active_tools(request, entries), self._identities, Diagnostics())
        if not stateful:
            request = _without_store(request)
            pair(views_of(entries, self._identities), lambda index: entries[index].param)
        given = {name.lower(): value for name, value in (request_headers or {}).items()}
        self.request: CreateResponse = request
        self.streamed: bool = bool(request.stream)
        self._beats = dialect == "responses" and is_codex(given)
        self._left = max_output
        self._limit = max_output
        self._error: BridgeError | None = None
        self._unsent: list[Event] = []
        self._begun = False
        self._machine = ResponseStreamStateMachine(
            model or request.model or _UNNAMED,
            request,
            ids=ids,
            clock=clock,
            tool_identities=self._identities,
            wire=choose_wire(request, given),
        )
        self._emitter = OutputEmitter(self._machine)

    @property
    def head(self) -> AnswerHead:
        """Status and headers of a streamed answer."""
        return AnswerHead(200, dict(_STREAM))

    @property
    def response(self) -> Response:
        """The response so far."""
        return self._machine.snapshot

    @property
    def begun(self) -> bool:
        """Whether bytes to send were returned: from then on a failure is part of the stream."""
        return self._begun

    @property
    def ended(self) -> bool:
        return self._machine.phase in TERMINAL_PHASES

    def feed(self, output: Output, source: object = None) -> bytes:
        """Send one output of the model. `source` is the iterator that yielded it; an exception gets a note
        with its line. Raises BridgeError for a value that is not an output, an output with wrong fields, and
        output beyond `max_output`: then call `fail`."""
        try:
            if isinstance(output, ToolCall):
                output = output.written()
            self._spend(_EACH + _length(output))
            self._start()
            events = self._emitter.emit(output)
        except BridgeError as error:
            if source is not None:
                error.add_note(f"yielded at:\n{place_of(source)}")
            raise
        self._unsent += events
        self._spend(_EACH * len(events))
        return self._flush()

    def keep_alive(self) -> bytes:
        """A keep-alive for a waiting client; the beginning of the stream, if that was not sent."""
        if not self.streamed or self.ended:
            return b""
        if not self._begun:
            self._start()
            self._begun = True
            return self._flush() or self._surface.keep_alive
        if self._beats:
            self._unsent.append(self._machine.extension_event(KEEP_ALIVE_EVENT, {})[0])
            return self._flush()
        return self._surface.keep_alive

    def end(self) -> bytes:
        """The model has finished. Raises StreamStateError when a call never got a name."""
        self._start()
        self._unsent += self._machine.finish()
        for case in self._machine.diagnostics:
            _log.info("response %s: %s", self._machine.response_id, case)
        return self._flush(last=True)

    def fail(self, error: BaseException) -> bytes:
        """The model failed. The client gets the message of a RemoteError (`HttpError` is one); any other
        exception is only logged."""
        if self.ended:
            return b""
        self._error = self._reported(error)
        self._start()
        self._unsent += self._machine.fail(self._error)
        return self._flush(last=True)

    def refuse(self, error: BaseException) -> tuple[AnswerHead, bytes]:
        """The model failed before its first output: an HTTP error."""
        return refusal(self._reported(error), self._dialect)

    def whole(self) -> tuple[AnswerHead, bytes]:
        """The answer that is not streamed, when the response has ended. A failed response without output is
        an HTTP error; one with output is sent, if the API has a form for it."""
        own = self._dialect == "responses"
        response = self._machine.snapshot if own else self._machine.in_one_form
        body = None if self._error is not None and not response.output else self._form.whole(response)
        if body is not None:
            return AnswerHead(200, dict(_JSON)), body
        assert self._error is not None, "what did not fail has a form"
        return refusal(self._error, self._dialect)

    def _start(self) -> None:
        if self._machine.phase is ResponseStreamPhase.IDLE:
            self._unsent += self._machine.start()

    def _flush(self, last: bool = False) -> bytes:
        events, self._unsent = self._unsent, []
        if not self.streamed or not (events or last):
            return b""
        data = self._form.streamed(events, last)
        self._begun = self._begun or bool(data)
        return data

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            what = f"The model's output is longer than the limit of {self._limit} bytes."
            raise HttpError(502, what, code="output_too_long")

    def _reported(self, error: BaseException) -> BridgeError:
        where = f"response {self._machine.response_id}"
        if isinstance(error, RemoteError):
            _log.warning("%s failed: %s", where, error)
            return error
        _log.error("%s failed: %s", where, type(error).__name__, exc_info=error)
        return HttpError(500, _INTERNAL[0], code=_INTERNAL[1])


def refusal(error: BridgeError, dialect: Dialect = "responses") -> tuple[AnswerHead, bytes]:
    """The HTTP error for a request, in the format of its API."""
    status = error.http_status if 400 <= error.http_status <= 599 else 500
    headers = error.headers if isinstance(error, HttpError) else {}
    given = {name.lower(): value for name, value in headers.items()}
    return AnswerHead(status, {**given, **_JSON}), SURFACES[dialect].error(error)


def chat_request(request: CreateResponse) -> dict[str, Any]:
    """The request as a Chat Completions body, which most libraries for models accept: `messages`, `tools`
    under the names by which the model may call them, and the parameters that Chat has. `tool_choice` is
    applied: when no call is allowed there are no `tools`, and a tool that must be called is the only one.
    Without a model in the request there is none in the body.

    Raises InvalidRequestError with `param`; an iterator may let it through, and the client gets a 400.
    """
    body, _losses = to_chat(request, model=request.model or _UNNAMED)
    built: dict[str, Any] = to_builtins(body)
    if not request.model:
        del built["model"]
    choice = built.get("tool_choice")
    if choice == "none":
        for name in ("tool_choice", "tools", "parallel_tool_calls"):
            built.pop(name, None)
    elif isinstance(choice, dict):
        named = choice["function"]["name"]
        built["tools"] = [tool for tool in built["tools"] if tool["function"]["name"] == named]
    return built


def _json(body: Any) -> bytes | str:
    if isinstance(body, str):
        return body
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    try:
        return encode(body)
    except RecursionError:
        raise InvalidRequestError(InvalidRequestError.INVALID_JSON, "nested too deeply") from None
    except UNENCODABLE as error:
        raise LocalError("bridge.backend.invalid_body", f"the body of a request: {error}") from error


def _without_store(request: CreateResponse) -> CreateResponse:
    for name in _NEED_A_STORE:
        if getattr(request, name):
            what = f"{name}: this backend does not keep responses; send the whole conversation as `input`"
            raise InvalidRequestError(InvalidRequestError.UNSUPPORTED, what, param=name)
    for index, item in enumerate(items_of(request.input)):
        if item.type == "item_reference":
            what = f"input[{index}]: this backend does not keep items; send the item itself"
            raise InvalidRequestError(InvalidRequestError.UNSUPPORTED, what, param=f"input[{index}]")
    return replace(request, store=False)


def _length(output: Any) -> int:
    """Characters of all its texts."""
    if isinstance(output, str):
        return len(output)
    fields = getattr(output, "__struct_fields__", ())
    return sum(len(text) for name in fields if isinstance(text := getattr(output, name), str))
