"""`Answer`: the bytes of the answer to one request. Sans-IO: it neither waits nor sends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from string import ascii_letters, digits
from typing import Any, Final, NamedTuple, TypedDict
from urllib.parse import parse_qsl, unquote
from weakref import WeakValueDictionary

from msgspec.structs import replace

from openresponses_bridge.backend.outputs import UNENCODABLE, Output, OutputEmitter, ToolCall, place_of
from openresponses_bridge.calls.declarations import present_tools
from openresponses_bridge.calls.identity import ToolIdentityMap
from openresponses_bridge.calls.presentation import pair
from openresponses_bridge.diagnostics import Diagnostics, loss_header
from openresponses_bridge.dialects.base import (
    KEEP_ALIVE_EVENT,
    Asked,
    Asks,
    FormContext,
    RequestHead,
    Surface,
    SurfacePath,
    active_tools,
    entries_of,
    views_of,
)
from openresponses_bridge.dialects.chat_completions import to_chat
from openresponses_bridge.dialects.table import surfaces
from openresponses_bridge.emitter.machine import ResponseStreamStateMachine
from openresponses_bridge.emitter.output import IdFactory
from openresponses_bridge.errors import BridgeError, HttpError, InvalidRequestError, LocalError, RemoteError
from openresponses_bridge.protocol.codec import encode, plain
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.input_items import items_of
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.response import Response
from openresponses_bridge.seal import Sealer
from openresponses_bridge.state import TERMINAL_PHASES, ResponseStreamPhase
from openresponses_bridge.text import printable
from openresponses_bridge.wire import choose_wire, is_codex

MAX_OUTPUT: Final = 64 * 1024 * 1024

_log = logging.getLogger("openresponses_bridge.backend")
_EACH: Final = 64  # bytes that an output or event counts besides its text
_UNNAMED: Final = "model"  # the response's model when neither side names one
_JSON: Final = {"content-type": "application/json"}
_STREAM: Final = {
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # a buffering proxy would hold back the stream
}
# fields of a request that need a backend that stores responses
_NEED_A_STORE: Final = ("previous_response_id", "conversation", "background", "prompt")
_INTERNAL: Final = ("The server failed.", "internal_error")
# the characters of a header field's name, and of its value, which is sent as latin-1 (RFC 9110, 5.1 and 5.5)
_IN_NAMES: Final = frozenset(f"!#$%&'*+-.^_`|~{digits}{ascii_letters}")
_IN_VALUES: Final = frozenset(map(chr, (9, *range(0x20, 0x7F), *range(0x80, 0x100))))


_answers: Final[WeakValueDictionary[int, Answer]] = WeakValueDictionary()
"""`id(request)` → the answer. The id stays valid because the answer keeps its request."""


class AnswerHead(NamedTuple):
    """Status and headers of an HTTP answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]


class AnswerOptions(TypedDict, total=False):
    """Options of `Answer`, which explains each."""

    dialect: str
    target: str
    request_headers: Mapping[str, str]
    model: str | None
    stateful: bool
    max_output: int
    ids: IdFactory | None
    clock: Callable[[], float] | None


def _is_headers(headers: object) -> bool:
    return isinstance(headers, Mapping) and all(
        isinstance(name, str) and isinstance(value, str) for name, value in headers.items()
    )


# each option but `dialect` → whether a value is allowed, and which values are
_OPTIONS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "target": (lambda given: isinstance(given, str), "a str"),
    "request_headers": (lambda given: given is None or _is_headers(given), "a mapping of str to str"),
    "model": (lambda given: given is None or isinstance(given, str), "a str"),
    "stateful": (lambda given: isinstance(given, bool), "a bool"),
    "max_output": (lambda given: type(given) is int and given > 0, "a number of bytes above 0"),
    "ids": (lambda given: given is None or callable(given), "a callable"),
    "clock": (lambda given: given is None or callable(given), "a callable"),
}


def check_options(options: AnswerOptions) -> None:
    """Raises LocalError for an unknown option or dialect, and for an option of a wrong type."""
    unknown = sorted(options.keys() - AnswerOptions.__annotations__.keys())
    if unknown:
        raise LocalError("bridge.backend.unknown_option", f"there is no option {unknown[0]!r}")
    dialect = options.get("dialect", "responses")
    if dialect not in surfaces():
        what = f"the dialect must be one of {', '.join(surfaces())}, not {dialect!r}"
        raise LocalError("bridge.backend.unknown_dialect", what)
    others: Mapping[str, Any] = options
    for name, (fits, kind) in _OPTIONS.items():
        if name in others and not fits(value := others[name]):
            raise LocalError("bridge.backend.invalid_option", f"{name} must be {kind}, not {value!r:.100}")


def head_of(surface: Surface, target: str, headers: Mapping[str, str]) -> RequestHead:
    """Return what the target of a request (its path and query) says in addition to the body. A prefix before
    the API's path is ignored; a target without such a path says nothing. Raises HttpError 404 for a path of
    the API that does not ask for an answer."""
    path, _, query = target.partition("?")
    route, fields = next(_places(surface, unquote(path)), (None, {}))
    if route is not None and route.asks is not Asks.ANSWER:
        raise HttpError(404, f"This backend only gives answers, not {route.asks}.")
    return RequestHead(
        stream=None if route is None else route.stream,
        fields=fields,
        query=dict(parse_qsl(query)),
        headers=headers,
        sealer=Sealer(),
        is_model=lambda _name: True,
    )


def _places(surface: Surface, path: str) -> Iterator[tuple[SurfacePath, dict[str, str]]]:
    for at in surface.paths:
        start = path.find(at.path.partition("{")[0])
        match = at.pattern.fullmatch(path, start) if start >= 0 else None
        if match is not None:
            yield at, match.groupdict()


class Answer:
    """The answer to one request. `feed`, `end` and `fail` return the bytes to send next, with the beginning
    of the stream in the first ones. For an answer that is not streamed they return nothing; `whole` returns
    all of it at the end.

    `body`: the JSON of the request, as bytes, text or parsed. `dialect`: the API of the request, `responses`,
    `chat`, `anthropic`, `gemini`, `interactions`, `bedrock`, `bedrock-invoke` or `vscode`. `target`: the
    request's path and query, which in the APIs of Gemini and Bedrock have the model and say whether to
    stream. `request_headers` decide which spelling of the protocol the client gets. `model`: the model's name
    in the response; by default the one in the request. `stateful`: the backend stores responses itself;
    otherwise a request that refers to an earlier response is refused. `max_output`: limit of the model's
    output, in bytes (approximate). `ids` makes an id from a prefix, `clock` gives Unix seconds.

    Raises InvalidRequestError with `param` for a request that can't be read or fulfilled, and LocalError for
    a wrong option.
    """

    def __init__(
        self,
        body: Any,
        *,
        dialect: str = "responses",
        target: str = "",
        request_headers: Mapping[str, str] | None = None,
        model: str | None = None,
        stateful: bool = False,
        max_output: int = MAX_OUTPUT,
        ids: IdFactory | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        check_options(
            {
                "dialect": dialect,
                "target": target,
                "request_headers": request_headers or {},
                "model": model,
                "stateful": stateful,
                "max_output": max_output,
                "ids": ids,
                "clock": clock,
            }
        )
        self._dialect = dialect
        self._surface = surface = surfaces()[dialect]
        self._identities = ToolIdentityMap()
        headers = {name.lower(): value for name, value in (request_headers or {}).items()}
        head = head_of(surface, target, headers)
        client_request = surface.read(_json(body), head)
        self._lost = client_request.losses or Diagnostics()
        request = _request_of(client_request, self._identities, stateful=stateful)
        self.request: CreateResponse = request
        self.streamed: bool = bool(request.stream)
        self._left = max_output
        self._limit = max_output
        self._error: BridgeError | None = None
        self._unsent: list[Event] = []
        self._begun = False
        self._machine = machine = ResponseStreamStateMachine(
            model or request.model or _UNNAMED,
            request,
            ids=ids,
            clock=clock,
            tool_identities=self._identities,
            wire=choose_wire(request, headers),
        )
        self._emitter = OutputEmitter(machine)
        self._form = client_request.form(
            FormContext(so_far=lambda: machine.snapshot, sealer=head.sealer, identities=self._identities)
        )
        self._beats = self._form.is_protocol and is_codex(headers)
        _answers[id(request)] = self

    @property
    def head(self) -> AnswerHead:
        """Status and headers of a streamed answer. The header `openresponses-losses` lists the parts of the
        request that could not be expressed so far, when the client's dialect was read and in
        `chat_request`."""
        content_type = {"content-type": self._form.stream_type.decode()}
        return AnswerHead(200, content_type | _STREAM | self._loss_header())

    @property
    def response(self) -> Response:
        """The response so far."""
        return self._machine.snapshot

    @property
    def begun(self) -> bool:
        """True once bytes to send were returned: a failure is then part of the stream."""
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
        """Return the bytes of a keep-alive for a waiting client, or the beginning of the stream if that was
        not sent yet. Empty for an answer that is not streamed or has ended."""
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
        """End the answer, since the model has finished. Raises StreamStateError if a call never got a
        name."""
        self._start()
        self._unsent += self._machine.finish()
        self._log_cases()
        return self._flush(last=True)

    def fail(self, error: BaseException) -> bytes:
        """End the answer, since the model failed. The client gets the message of a RemoteError (`HttpError`
        is one); any other exception is only logged. Returns nothing if the answer has ended."""
        if self.ended:
            return b""
        self._error = self._reported(error)
        self._start()
        self._unsent += self._machine.fail(self._error)
        self._log_cases()
        return self._flush(last=True)

    def refuse(self, error: BaseException) -> tuple[AnswerHead, bytes]:
        """Return the HTTP error of a model that failed before its first output."""
        return refusal(self._reported(error), self._dialect)

    def whole(self) -> tuple[AnswerHead, bytes]:
        """Return the answer that is not streamed, after the response has ended. A failed response without
        output is an HTTP error; one with output is sent if the API has a form for it."""
        in_one_form = self._form.single_reasoning_form
        response = self._machine.in_one_form if in_one_form else self._machine.snapshot
        body = None if self._error is not None and not response.output else self._form.whole(response)
        if body is not None:
            return AnswerHead(200, _JSON | self._loss_header()), body
        assert self._error is not None, "what did not fail has a form"
        return refusal(self._error, self._dialect)

    def _loss_header(self) -> dict[str, str]:
        return loss_header(f"{loss.where}: {loss.what}" for loss in self._lost.of("loss"))

    def _start(self) -> None:
        if self._machine.phase is ResponseStreamPhase.IDLE:
            self._unsent += self._machine.start()

    def _flush(self, last: bool = False) -> bytes:
        events, self._unsent = self._unsent, []
        if not self.streamed or not (events or last):
            return b""
        data = self._form.encoders[0](events)
        if last:
            data += self._form.end()
        self._begun = self._begun or bool(data)
        return data

    def _log_cases(self) -> None:
        """Log the diagnostics: losses and repairs with level INFO, warnings with level WARNING, since they
        may show a fault of the model."""
        for case in (*self._lost, *self._machine.diagnostics):
            level = logging.WARNING if case.kind == "warning" else logging.INFO
            _log.log(level, "response %s: %s", self._machine.response_id, printable(str(case)))

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            what = f"The model's output is longer than the limit of {self._limit} bytes."
            raise HttpError(502, what, code="output_too_long")

    def _reported(self, error: BaseException) -> BridgeError:
        where = f"response {self._machine.response_id}"
        if isinstance(error, RemoteError):
            if not (wrong := _unsendable(error)):
                _log.warning("%s failed: %s", where, printable(str(error)))
                return error
            error.add_note(f"can't be sent: {wrong}")
        _log.error("%s failed: %s", where, type(error).__name__, exc_info=error)
        return HttpError(500, _INTERNAL[0], code=_INTERNAL[1])


def _unsendable(error: RemoteError) -> str:
    """Return why this error can't be sent; empty if it can. A backend's author made it, and its types may be
    unchecked."""
    message: Any = error.message
    if not isinstance(message, str):
        return f"the message must be a str, not {message!r:.100}"
    headers: Any = error.headers if isinstance(error, HttpError) else {}
    if not _is_headers(headers):
        return f"headers must be a mapping of str to str, not {headers!r:.100}"
    for name, value in headers.items():
        if not name or not _IN_NAMES.issuperset(name) or not _IN_VALUES.issuperset(value):
            return f"no header field (RFC 9110, 5.5) is {name!r:.100}: {value!r:.100}"
    return ""


def refusal(error: BridgeError, dialect: str = "responses") -> tuple[AnswerHead, bytes]:
    """Return the HTTP error for a request, in the format of its API."""
    status = error.http_status if 400 <= error.http_status <= 599 else 500
    headers = error.headers if isinstance(error, HttpError) else {}
    own_headers = {name.lower(): value for name, value in headers.items()}
    surface = surfaces()[dialect]
    return AnswerHead(status, {**own_headers, **surface.error_headers(error), **_JSON}), surface.error(error)


def chat_request(request: CreateResponse) -> dict[str, Any]:
    """Return the request as a Chat Completions body, which most libraries for models accept: `messages`,
    `tools` under the names by which the model may call them, and the parameters that Chat has. `tool_choice`
    is applied: when no call is allowed there are no `tools`, and a tool that must be called is the only one.
    Without a model in the request there is none in the body. What Chat can't express is logged as a loss, and
    listed in the answer's header `openresponses-losses` if nothing was sent yet.

    Raises InvalidRequestError with `param`; an iterator need not catch it, and the client gets a 400.
    """
    body, lost = to_chat(request, model=request.model or _UNNAMED)
    answer = _answers.get(id(request))
    if answer is not None and answer.request is request:
        answer._lost.extend(lost)
    else:  # a request of the caller's own
        for case in lost:
            _log.info("chat_request: %s", case)
    built: dict[str, Any] = plain(body)
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


def _json(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    try:
        return encode(body)
    except RecursionError:
        raise InvalidRequestError(InvalidRequestError.INVALID_JSON, "nested too deeply") from None
    except UNENCODABLE as error:
        raise LocalError("bridge.backend.invalid_body", f"the body of a request: {error}") from error


def _request_of(client_request: Asked, identities: ToolIdentityMap, *, stateful: bool) -> CreateResponse:
    """Return the request to answer. Adds the names of its tools to `identities`. Raises InvalidRequestError
    for more than one choice and, unless the backend is stateful, for what needs stored responses."""
    if client_request.choices > 1:
        what = "n: this backend gives one choice"
        raise InvalidRequestError(InvalidRequestError.UNSUPPORTED, what, param="n")
    request = client_request.request
    entries = entries_of(request, ())
    present_tools(active_tools(request, entries), identities, Diagnostics())
    if stateful:
        return request
    request = _without_store(request)
    pair(views_of(entries, identities), lambda index: entries[index].param)
    return request


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
    """Return the number of characters of all its texts."""
    if isinstance(output, str):
        return len(output)
    fields = getattr(output, "__struct_fields__", ())
    return sum(len(text) for name in fields if isinstance(text := getattr(output, name), str))
