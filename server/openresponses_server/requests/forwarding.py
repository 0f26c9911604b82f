"""Requests that go on to an upstream as they are: embeddings, completions, images, audio, rerank and
moderations.

The server reads the field `model`, which chooses the upstream and is replaced by the model's name there, and
the fields that determine the cost: `n` images, the characters of a speech's `input`. A JSON body is decoded
one level deep and encoded again, so that a field that is given twice is sent once. A form is scanned as it
arrives: a small one is kept, a large one is streamed once its model is known.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace
from starlette.requests import Request

from openresponses_bridge.diagnostics import Diagnostic, Diagnostics
from openresponses_bridge.errors import BridgeError, InvalidRequestError
from openresponses_bridge.protocol.codec import encode
from openresponses_bridge.protocol.response import RESPONSE_DEFAULTS, Response
from openresponses_bridge.protocol.usage import Usage, counts_in, nearest_count, within_bounds
from openresponses_server.errors import HttpError, without_frames
from openresponses_server.http.auth import client_key
from openresponses_server.http.client.upload import Upload
from openresponses_server.http.headers import HeaderFields, fields_of
from openresponses_server.http.multipart import MultipartScanner, boundary_of, content_type_of, model_part
from openresponses_server.limits.memory import RECEIVED, Reservation
from openresponses_server.limits.money import Counted, without_price
from openresponses_server.observation.responses import EndedRun, LoggedEnd, TokenTiming, Watch
from openresponses_server.requests.bodies import ArrivingBody, CompressedBody, arriving_body, read_json
from openresponses_server.requests.passed_fields import check_name, check_names, priced_apart
from openresponses_server.requests.service import Service, target_of
from openresponses_server.runs.metering import plausible
from openresponses_server.runs.outcome import LogLine, RunOutcome
from openresponses_server.settings import Forwarded, Retries
from openresponses_server.upstreams.base import UpstreamReply, UpstreamRequest, called
from openresponses_server.upstreams.prices import Prices
from openresponses_server.upstreams.routing.attempts import Attempt, Attempts
from openresponses_server.upstreams.routing.routes import RouteChoice, Tried
from openresponses_server.upstreams.targets import Target

_BYTES_PER_TOKEN: Final = 4
_FORM: Final = "multipart/form-data"
_MODEL: Final = "model"
_NUMBER: Final = "n"
_INPUT: Final = "input"
_MOST_IMAGES: Final = 1000  # that one request can ask for
_LONGEST_NUMBER: Final = 32  # bytes
_LONGEST_VALUE: Final = 64  # bytes of one that asks for what is usual
_MOST_SECONDS: Final = 10**9  # that an answer can say
_MOST_KEPT: Final = 256 * 1024  # bytes of a form that is kept, to be sent again if its upstream is down


class Endpoint(NamedTuple):
    """One kind of request. `setting` is its name in the settings, `path` that below an upstream's address,
    `operation` that in OpenTelemetry. `counted`: what its answers are billed by where they count no tokens;
    tokens are estimated then. `forms`: a body may be a form."""

    setting: Forwarded
    path: str
    operation: str
    counted: Counted
    forms: bool = False


ENDPOINTS: Final = {
    "/v1/completions": Endpoint("completions", "/completions", "text_completion", "tokens"),
    "/v1/embeddings": Endpoint("embeddings", "/embeddings", "embeddings", "tokens"),
    "/v1/moderations": Endpoint("moderations", "/moderations", "moderation", "requests"),
    "/v1/rerank": Endpoint("rerank", "/rerank", "rerank", "tokens"),
    "/v2/rerank": Endpoint("rerank", "/rerank", "rerank", "tokens"),
    "/v1/images/generations": Endpoint("images", "/images/generations", "image_generation", "images"),
    "/v1/images/edits": Endpoint("images", "/images/edits", "image_edit", "images", forms=True),
    "/v1/images/variations": Endpoint(
        "images", "/images/variations", "image_variation", "images", forms=True
    ),
    "/v1/audio/speech": Endpoint("audio", "/audio/speech", "speech", "characters"),
    "/v1/audio/transcriptions": Endpoint(
        "audio", "/audio/transcriptions", "transcription", "seconds", forms=True
    ),
    "/v1/audio/translations": Endpoint("audio", "/audio/translations", "translation", "seconds", forms=True),
}
"""By path."""


class ForwardedBody(Protocol):
    """A body whose model is known."""

    model: str | None
    """As the client named it; None if it named none."""
    can_be_repeated: bool
    text_bytes: int
    """The text from which tokens are estimated."""
    received: asyncio.Event
    """Set when no more of it is read."""

    def values(self, name: str) -> list[bytes]:
        """Return the values that have arrived of the fields with this name; of a form's fields only `n` is
        known."""
        ...

    def apart(self) -> str | None:
        """As `priced_apart`, where no name was checked when it arrived."""
        ...

    def upload(self, model: str) -> Upload:
        """The body with this model in place of its own."""
        ...


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


class _JsonBody(Struct):
    """An object, whose values stay as they are."""

    fields: dict[str, Raw]
    model: str | None
    text_bytes: int
    can_be_repeated: bool = True
    received: asyncio.Event = field(default_factory=_set)

    def values(self, name: str) -> list[bytes]:
        return [bytes(self.fields[name])] if name in self.fields else []

    def apart(self) -> str | None:
        return priced_apart({name: _short_value(bytes(value)) for name, value in self.fields.items()})

    def upload(self, model: str) -> Upload:
        return Upload("application/json", whole=encode({**self.fields, _MODEL: model}))


def _short_value(value: bytes) -> Any:
    """The value; True for a long one, and for one that servers read differently, such as a number that is
    too large."""
    try:
        return msgspec.json.decode(value) if len(value) < _LONGEST_VALUE else True
    except (msgspec.MsgspecError, UnicodeError):
        return True


class _Form(Struct):
    """A form that has arrived."""

    boundary: str
    data: bytes
    scanner: MultipartScanner
    model: str | None
    text_bytes: int = 0
    can_be_repeated: bool = True
    received: asyncio.Event = field(default_factory=_set)

    def values(self, name: str) -> list[bytes]:
        return self.scanner.numbers if name == _NUMBER else []

    def apart(self) -> str | None:
        return None  # each name was checked when it arrived

    def renamed(self, model: str) -> bytes:
        """Return the form with this model."""
        if self.model is None:
            return model_part(self.boundary, model) + self.data
        start, end = self.scanner.model_at
        return self.data[:start] + model.encode() + self.data[end:]

    def upload(self, model: str) -> Upload:
        return Upload(content_type_of(self.boundary), whole=self.renamed(model))


class _ArrivingForm(Struct):
    """A form of which the rest is still to arrive."""

    begun: _Form
    rest: ArrivingBody | CompressedBody
    length: int | None
    """The bytes of all of it, if the client said so."""
    model: str | None
    text_bytes: int = 0
    can_be_repeated: bool = False
    received: asyncio.Event = field(default_factory=asyncio.Event)

    def values(self, name: str) -> list[bytes]:
        return self.begun.values(name)

    def apart(self) -> str | None:
        return None

    def upload(self, model: str) -> Upload:
        begun, more = self.begun.renamed(model), len(self.begun.data)
        length = None if self.length is None else self.length - more + len(begun)
        return Upload(content_type_of(self.begun.boundary), read=partial(self._read, [begun]), length=length)

    async def _read(self, begun: list[bytes]) -> bytes:
        if begun:
            self.begun = replace(self.begun, data=b"")  # what is sent need not be kept
            return begun.pop()
        while piece := await self.rest.read():
            if data := self.begun.scanner.feed(piece):
                return data
        self.received.set()
        return self.begun.scanner.close()


async def read_body(request: Request, service: Service, endpoint: Endpoint) -> ForwardedBody:
    """Read as much of the body as its model needs. Raises as `read_json`, and InvalidRequestError for a model
    that is given twice or is not a name."""
    headers = fields_of(request.scope)
    content_type = headers.get("content-type", "")
    if endpoint.forms and content_type.partition(";")[0].strip().lower() == _FORM:
        return await _read_form(request, headers, service, boundary_of(content_type))
    return await read_json(request, service, _decoded)


def _decoded(body: bytes) -> _JsonBody:
    try:
        fields = msgspec.json.decode(body, type=dict[str, Raw])
        model = msgspec.json.decode(fields.get(_MODEL, b"null"), type=str | None)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        what = f"The body is not a JSON object with a text as its model: {str(error)[:200]}"
        raise InvalidRequestError(InvalidRequestError.INVALID_VALUE, what) from error
    check_names(fields)
    return _JsonBody(fields, model, len(body))


def _images_of(body: ForwardedBody) -> int:
    """Return how many images a body asks for, as far as it has arrived: servers differ in which of several
    values they use and in what they read as a number."""
    return max(map(_number, body.values(_NUMBER)), default=1)


def _number(value: bytes) -> int:
    if len(value) > _LONGEST_NUMBER:
        return _MOST_IMAGES
    try:
        number = float(value.strip(b'"'))
    except ValueError:
        return 1
    return int(min(number, _MOST_IMAGES)) if number >= 1 else 1


def _characters_of(body: ForwardedBody) -> int:
    """Return how many characters of the body are spoken; if a server may read something else as the text, the
    number of bytes of the whole body."""
    try:
        (text,) = (msgspec.json.decode(each, type=str) for each in body.values(_INPUT))
    except ValueError:  # of msgspec and UTF-8, too
        return body.text_bytes
    return len(text)


async def _read_form(
    request: Request, headers: HeaderFields, service: Service, boundary: str
) -> ForwardedBody:
    reservation = Reservation(service.available.budget, request.state.owner)
    RECEIVED.set(reservation)
    has_budget = service.quotas.has_budget(request.state.owner)

    def check(name: str) -> None:
        check_name(name)
        if has_budget and priced_apart({name: True}) is not None:
            raise without_price(name[:80])

    scanner = MultipartScanner(boundary, check)
    buffer = bytearray()
    body = arriving_body(request, headers, service)
    while piece := await body.read():
        buffer += scanner.feed(piece)
        reservation.resize(len(buffer) + len(piece))
        if scanner.model is not None and len(buffer) > _MOST_KEPT and not body.ended:
            begun = _Form(boundary, bytes(buffer), scanner, scanner.model)
            length = headers.get("content-length", "")
            known = length.isascii() and length.isdigit() and "content-encoding" not in headers
            return _ArrivingForm(begun, body, int(length) if known else None, scanner.model)
    buffer += scanner.close()
    return _Form(boundary, bytes(buffer), scanner, scanner.model)


# The usage that an answer reports: only the beginning and the end of the answer are kept, which may be
# gigabytes of pictures or a stream. Within a string of JSON the pattern has its quotes escaped; an object
# that an answer repeats, as rerank may repeat documents, can have anything, but never both before and behind
# the answer's own usage.

_KEPT: Final = 64 * 1024  # bytes
_LONGEST_USAGE: Final = 4 * 1024  # bytes
_MOST_TRIED: Final = 4
_USAGE: Final = re.compile(rb'"usage"[ \t\r\n]{0,8}:[ \t\r\n]{0,8}(?=\{)')
_JSON: Final = json.JSONDecoder()
_FRAME: Final = b"data:"
_COUNTING: Final = re.compile(r"application/(?:[\w.-]+\+)?json\b|text/event-stream\b", re.IGNORECASE)
# the images of an answer, each by its key or address; of a stream also those that are not finished
_IMAGE: Final = re.compile(
    rb'"(?:(b64_json)|(url)|type)"[ \t\r\n]{0,8}:[ \t\r\n]{0,8}"(image_\w{1,20}\.partial_image")?'
)
_LONGEST_IMAGE: Final = 80  # bytes of what is looked for


# the seconds of a transcription, whose list of words may be long: behind fields of the answer itself
_CHARACTERS: Final = rb'(?>(?:[^"\\]|\\.)*)'
_DURATION: Final = re.compile(
    rb'\s*+\{(?>(?:\s*+"(?!duration")%b"\s*+:\s*+(?:"%b"|[\w.+-]++)\s*+,)*)'
    rb'\s*+"duration"\s*+:\s*+([0-9.eE+-]{1,40})\s*+,' % (_CHARACTERS, _CHARACTERS)
)


class _Answer(Struct):
    """The fields of a whole answer that count tokens, which Cohere has in `meta`, or seconds."""

    usage: Any = None
    meta: Any = None
    duration: Any = None


class ImageCounter:
    """Counts the images of an answer as it passes."""

    def __init__(self) -> None:
        self._end = b""
        self._found = [0, 0, 0]

    def feed(self, data: bytes) -> None:
        """The next bytes of the answer."""
        data = self._end + data
        for match in _IMAGE.finditer(data):
            if match.end() > len(self._end):
                for number, group in enumerate(match.groups()):
                    self._found[number] += group is not None
        self._end = data[-_LONGEST_IMAGE:]

    @property
    def images(self) -> int:
        """The number of images so far."""
        inline, linked, partial = self._found
        return max(inline - partial, linked)


class UsageFinder:
    """Reads the usage of an answer as it passes."""

    def __init__(self) -> None:
        self._first = bytearray()
        self._last = bytearray()
        self.frames = 0
        """The approximate number of server-sent events."""

    def feed(self, data: bytes) -> None:
        """The next bytes of the answer."""
        self.frames += data.count(_FRAME)
        room = _KEPT - len(self._first)
        self._first += data[:room]
        self._last += data[room:][-_KEPT:]
        if len(self._last) > 2 * _KEPT:
            del self._last[:-_KEPT]

    def usage(self) -> Usage | None:
        """The usage, None if none was found."""
        raw = self._found()
        if raw is None:
            return None
        counts: dict[str, Any] = {name: nearest_count(number or 0) for name, number in counts_in(raw).items()}
        if not counts["input_tokens"] and not counts["output_tokens"]:
            counts["input_tokens"] = counts["total_tokens"]  # rerank says no more
        return within_bounds(Usage.of(**counts), Diagnostics())

    def seconds(self) -> Fraction | None:
        """Return the length of a recording in seconds, None if the answer does not say it: in its usage, else
        as `duration`."""
        candidates = [(self._found() or {}).get("seconds"), self._duration()]
        known = (each for each in candidates if type(each) in (int, float) and each > 0)
        return next((Fraction(str(min(each, _MOST_SECONDS))) for each in known), None)

    def _found(self) -> dict[str, Any] | None:
        whole = self._whole()
        if whole is None:
            return _outer_usage(bytes(self._first + self._last))
        tokens = whole.meta.get("tokens") if isinstance(whole.meta, dict) else None
        return next((each for each in (whole.usage, tokens) if isinstance(each, dict) and each), None)

    def _duration(self) -> Any:
        if (whole := self._whole()) is not None and whole.duration is not None:
            return whole.duration
        begun = _DURATION.match(self._first)
        try:
            return None if begun is None else float(begun[1])
        except ValueError:
            return None

    def _whole(self) -> _Answer | None:
        """Return the JSON object; None for anything else, or if it is too long."""
        try:
            return None if self._last else msgspec.json.decode(self._first, type=_Answer)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None


def _outer_usage(data: bytes) -> dict[str, Any] | None:
    """The first usage or the last one, whichever has counted more."""
    places = [match.end() for match in _USAGE.finditer(data)]
    outer = _first_usage(data, places[:_MOST_TRIED]), _first_usage(data, places[: -_MOST_TRIED - 1 : -1])
    return max(filter(None, outer), key=_counted, default=None)


def _first_usage(data: bytes, places: Iterable[int]) -> dict[str, Any] | None:
    for place in places:
        try:
            value, _ = _JSON.raw_decode(data[place : place + _LONGEST_USAGE].decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value:
            return value
    return None


def _counted(usage: dict[str, Any]) -> int:
    counts = {name: nearest_count(number or 0) for name, number in counts_in(usage).items()}
    return max(counts["total_tokens"], counts["input_tokens"] + counts["output_tokens"])


class ForwardedAnswer:
    """The answer as its outcome sees it: a response without output."""

    def __init__(self, request_id: str, model: str) -> None:
        self.snapshot = Response(
            id=request_id,
            created_at=int(time.time()),
            model=model,
            status="in_progress",
            **RESPONSE_DEFAULTS,
        )
        self.diagnostics: Iterable[Diagnostic] = ()
        self.ended = False
        self.failure: BridgeError | None = None

    def end(self, usage: Usage | None, failure: BridgeError | None = None) -> None:
        """The answer has ended, with a failure if it is not complete."""
        self.ended, self.failure = True, failure
        if failure is not None:
            without_frames(failure)
        status = "completed" if failure is None else "failed"
        self.snapshot = replace(self.snapshot, status=status, usage=usage)


class _Count(Watch, Struct):
    """Counts a forwarded request against the quotas of its key, and for `/v1/usage`."""

    service: Service
    owner: str
    model: str
    used: Callable[[], Usage | None]
    """What it has used so far."""

    def end(self, ended: EndedRun, logged_end: LoggedEnd) -> None:
        usage, failed = ended.response.usage, not ended.has_end or ended.response.status == "failed"
        self.service.meters.book.add(self.owner, "", self.model, usage, failed=failed, cost=ended.cost)
        if ended.counts:
            self.service.quotas.ended(
                self.owner,
                ended.response,
                lambda: self.used() or Usage.of(0, 0),
                stored=False,
                cost=ended.cost,
            )


class ForwardedUsage:
    """What one answer has used, and what it costs."""

    def __init__(self, endpoint: Endpoint, body: ForwardedBody) -> None:
        self._found = UsageFinder()
        self._images = ImageCounter() if endpoint.counted == "images" else None
        self._body = body
        self._counts = True
        self._endpoint = endpoint

    def begin(self, content_type: str) -> None:
        """The answer begins. What looks like a count in a transcription that is plain text was spoken."""
        if self._endpoint.counted == "seconds":
            self._counts = _COUNTING.match(content_type) is not None

    def feed(self, data: bytes) -> None:
        """The next bytes of the answer."""
        if self._counts:
            self._found.feed(data)
        if self._images is not None:
            self._images.feed(data)

    def used(self) -> Usage | None:
        """The tokens of the answer so far; those that the upstream did not count are estimated, or None where
        it need not count any."""
        usage = self._found.usage()
        if usage is not None:
            usage = plausible(usage)
        if usage is not None and usage.total_tokens:
            return usage
        if self._endpoint.counted != "tokens":
            return None
        return Usage.of(self._body.text_bytes // _BYTES_PER_TOKEN, self._found.frames, estimated=True)

    def cost(self, prices: Prices, upstream_model: str, response: Response) -> int | None:
        """What the answer costs, in picodollars; None if that is not known."""
        usage, counted = response.usage or self.used(), self._endpoint.counted
        number = self._number(completed=response.status == "completed")
        return prices.cost(response.model, upstream_model, usage, counted, number)

    def _number(self, *, completed: bool) -> int | Fraction | None:
        """The number of what is counted beside tokens, None if it is not known; of images that were not all
        sent, that of those that were asked for."""
        if self._images is not None:
            minimum = 1 if completed else _images_of(self._body)
            return max(self._images.images, minimum)
        match self._endpoint.counted:
            case "characters":
                return _characters_of(self._body)
            case "seconds":
                return self._found.seconds()
        return None


class ForwardedRequest:
    """One request, ready to be sent."""

    def __init__(
        self,
        endpoint: Endpoint,
        body: ForwardedBody,
        target: Target,
        request: Request,
        service: Service,
        headers: dict[str, str],
    ) -> None:
        """`headers`: of the answer."""
        self.headers = headers
        self.received = body.received
        self.owner: str = request.state.owner
        self.answer = ForwardedAnswer(request.state.request_id, body.model or target.model)
        self.usage = usage = ForwardedUsage(endpoint, body)  # of its own: the outcome refers to it
        self.timing = TokenTiming()
        self.attempts = _attempts(endpoint, body, target, request, service)
        watches: list[Watch] = []
        if service.spans is not None:
            parent = service.spans.parent(fields_of(request.scope))
            model, request_id = self.answer.snapshot.model, request.state.request_id
            watches.append(service.spans.response(parent, model, request_id, endpoint.operation))
        line = LogLine(request.state.request_id, self.attempts, request.scope["path"])
        count = _Count(service, self.owner, self.answer.snapshot.model, usage.used)
        self.outcome = RunOutcome(
            self.answer,
            self.attempts,
            [*watches, line, count, service.metrics.responses],
            self.timing,
            ended_elsewhere=False,
            losses=[],
            cost_of=None if service.prices is None else partial(usage.cost, service.prices),
        )

    def end(self, failure: BridgeError | None = None) -> None:
        """The answer has ended, with a failure if it is not complete."""
        self.answer.end(self.usage.used(), failure)


def _attempts(
    endpoint: Endpoint, body: ForwardedBody, target: Target, request: Request, service: Service
) -> Attempts:
    key = client_key(fields_of(request.scope))

    async def attempt(each: Target) -> Attempt:
        upstream_request = UpstreamRequest(
            endpoint.path,
            b"",
            request.state.request_id,
            key,
            stream=False,
            owner=request.state.owner,
            upload=body.upload(each.model),
            operation=endpoint.operation,
            model=each.model,
        )
        return Attempt(each, upstream_request, [])

    def accepted(_attempt: Attempt, _reply: UpstreamReply, _tried: Sequence[Tried]) -> None:
        return None

    choice = RouteChoice(service.routes, (target, *target.fallbacks))
    return Attempts(target, attempt, accepted, service.metrics.asked, choice)


async def prepare_forwarding(request: Request, service: Service, endpoint: Endpoint) -> ForwardedRequest:
    """Read the request and choose its upstream. Raises HttpError 404 for an endpoint that is off and for an
    upstream without it, what `read_body` and `check_access` raise, and HttpError 429."""
    if endpoint.setting not in service.settings.forwarding:
        what = f"{request.scope['path']} is off: the setting `forwarding` does not name {endpoint.setting}."
        raise HttpError(404, what, code="endpoint_off")
    body = await read_body(request, service, endpoint)
    owner = request.state.owner
    target = target_of(service, body.model, owner)
    if not target.upstream.forwards:
        name, dialect = target.upstream.name, target.dialect.dialect.name
        what = (
            f"The {called(name)} serves this model and has no {endpoint.path}: it speaks {dialect}, and only "
            "servers of OpenAI's API have this endpoint."
        )
        raise HttpError(
            404, what, code="endpoint_not_served", error_type="invalid_request_error", param=_MODEL
        )
    able = [target, *(each for each in target.fallbacks if each.upstream.forwards)]
    first = RouteChoice(service.routes, able).peek() or target if len(able) > 1 else target
    if body.can_be_repeated:
        target = first._replace(fallbacks=tuple(each for each in able if each is not first))
    else:
        target = first._replace(fallbacks=(), retries=Retries())
    headers = await service.quotas.accept(
        owner,
        model=body.model or target.model,
        target=target,
        counted=endpoint.counted,
        apart=body.apart,
    )
    return ForwardedRequest(endpoint, body, target, request, service, headers)
