"""`/inspector/v1/`: lists of stored responses, their requests and contexts, observed streams; and the
page."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.dialects.base import invalid
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import decode_request, encode, encode_sse
from openresponses_bridge.protocol.events import Event
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.usage import (
    COUNTS,
    RoundUsage,
    Usage,
    nearest_count,
    sum_of,
    within_bounds,
)
from openresponses_bridge.sse import DONE, SSEDecoder
from openresponses_server.api.inspector import HEADERS, INDEX, ROOT, files
from openresponses_server.api.parameters import limit_of, starting_after_of, time_of
from openresponses_server.errors import HttpError
from openresponses_server.http.access import check_access
from openresponses_server.http.headers import fields_of
from openresponses_server.limits.requests import check_conversation, check_json, check_request
from openresponses_server.observation.recordings.captures import UnreadableCapture
from openresponses_server.observation.recordings.dialects import DIALECTS
from openresponses_server.observation.recordings.observing import Observer, observed_file
from openresponses_server.observation.recordings.playing import AUTO
from openresponses_server.requests.assembly import RunAssembly
from openresponses_server.requests.background import enqueue
from openresponses_server.requests.bodies import read_bytes, read_json
from openresponses_server.requests.outgoing import open_sealed_items
from openresponses_server.requests.prepare import prepare
from openresponses_server.requests.prepared import Received
from openresponses_server.requests.service import Service, service_of, target_of
from openresponses_server.runs.run import Run
from openresponses_server.settings import Limits
from openresponses_server.store.history import continued, own_input
from openresponses_server.store.listing import ListedPage, ListFilter, conversation_of, page_of
from openresponses_server.surfaces.responder import KeepAlive, StreamResponder
from openresponses_server.surfaces.stored import count_reader, found_stream, unknown_response
from openresponses_server.surfaces.stored_stream import StoredStream
from openresponses_server.tasks import on_thread
from openresponses_server.upstreams.prices import CostShown

_ECHOED: Final = (
    "model",
    "previous_response_id",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
    "temperature",
    "top_p",
    "max_output_tokens",
    "max_tool_calls",
    "truncation",
    "metadata",
    "store",
    "background",
)
"""The fields of a request that its response repeats."""
_LONGEST_FILTER: Final = 200  # characters of a filter
_MOST_ROWS: Final = 100
_DEFAULT_ROWS: Final = 50
_LONGEST_LABEL: Final = 120  # characters


async def listed(request: Request) -> Response:
    """The key's own responses, the newest first: `status`, `model`, `search`, `since` and `until` (in Unix
    seconds) select some of them, `after` continues the list; `conversation` lists the turns up to that
    response instead."""
    service, owner, query = service_of(request), request.state.owner, request.query_params
    for name, value in query.items():
        if len(value) > _LONGEST_FILTER:
            raise invalid(name[:40], f"it has at most {_LONGEST_FILTER} characters")
    listing = service.store.listing
    if query.get("conversation"):
        page = ListedPage(await conversation_of(listing, owner, query["conversation"], _MOST_ROWS), None)
    else:
        list_filter = ListFilter(
            status=query.get("status", ""),
            model=query.get("model", ""),
            search=query.get("search", ""),
            since=time_of(query, "since"),
            until=time_of(query, "until"),
        )
        limit = limit_of(query, _DEFAULT_ROWS, _MOST_ROWS)
        page = await page_of(listing, owner, list_filter, query.get("after") or None, limit)
    body = {"object": "list", "data": page.rows, "next": page.next}
    return Response(encode(body), media_type="application/json")


async def request_of(request: Request) -> Response:
    """The request of a stored response, reconstructed from the response and its input."""
    response_id = request.path_params["id"]
    record = await service_of(request).store.get(response_id, request.state.owner)
    if record is None:
        raise unknown_response(response_id)
    shown = {name: getattr(record.response, name) for name in _ECHOED}
    fields = {
        name: value for name, value in shown.items() if value is not UNSET and value not in (None, [], {})
    }
    return Response(encode({**fields, "input": record.input}), media_type="application/json")


async def context(request: Request) -> Response:
    """The context of a request, entry by entry: bytes of JSON and tokens, estimated as for
    `/v1/responses/input_tokens`."""
    service = service_of(request)
    body = await read_json(request, service, decode_request)
    target = target_of(service, body.model, request.state.owner)
    check_request(body, service.settings.limits)
    body, before, reservation = await continued(service.store, body, request.state.owner, service.available)
    check_conversation(body, len(before.items), service.settings.limits)
    earlier, own = open_sealed_items(target, before.items, own_input(body), {})

    counter = service.meters.counter(request.state.owner)

    def measure() -> list[dict[str, Any]]:
        entries = _request_entries(body, counter.request, target.model)
        for items, origin in ((earlier, "earlier"), (own, "")):
            for item in items:
                entries.append(_item_entry(origin, item, counter.item(item, target.model)))
        return entries

    try:
        entries = await on_thread(measure)
    finally:
        reservation.release()
    totals = {name: sum(entry[name] for entry in entries) for name in ("bytes", "tokens")}
    return Response(
        encode({"object": "context", **totals, "entries": entries}), media_type="application/json"
    )


class CostRequest(Struct, frozen=True):
    """The reported usage of a response, and its model."""

    model: str
    usage: Usage


async def cost(request: Request) -> Response:
    """The cost of a response by the prices of now, and that of each of its rounds; null if it is not known. A
    count that is out of range is replaced by the nearest one within it."""
    service = service_of(request)
    payload = await read_json(request, service, _decode_cost)
    check_access(payload.model)
    costs, prices, names = CostShown(), service.prices, _names_upstream(service, payload.model)
    if prices is not None:
        costs = await on_thread(lambda: prices.shown(payload.model, names, _usage_of(payload)))
    body = {"object": "cost", "cost_usd": costs.usd, "rounds": costs.rounds}
    return Response(encode(body), media_type="application/json")


def _usage_of(request: CostRequest) -> Usage:
    rounds = [_nearest(each) for each in request.usage.rounds or ()]
    if len(rounds) > 1:
        return sum_of(rounds)
    return within_bounds(replace(request.usage, rounds=UNSET), Diagnostics())


def _nearest(usage: RoundUsage) -> Usage:
    counts: dict[str, Any] = {name: nearest_count(getattr(usage, name)) for name in COUNTS}
    return Usage.of(**counts)


def _decode_cost(body: bytes) -> CostRequest:
    try:
        return msgspec.json.decode(body, type=CostRequest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise invalid("usage", f"it is not the usage of a response: {str(error)[:200]}") from error


def _names_upstream(service: Service, model: str) -> list[str]:
    """Return the names that a model may have upstream; its own if it is not served any more."""
    try:
        target = service.router.resolve(model)
    except (HttpError, InvalidRequestError):
        return [model]
    return [target.model, *(each.model for each in target.fallbacks)]


def _request_entries(request: CreateResponse, count: Any, model: str) -> list[dict[str, Any]]:
    """Return the entries for the instructions and tools of the request."""
    nothing = CreateResponse()
    frame = count(nothing, [], model)
    entries = []
    if request.instructions:
        tokens = count(replace(nothing, instructions=request.instructions), [], model) - frame
        entries.append(_context_entry("", "instructions", request.instructions, request.instructions, tokens))
    for tool in request.tools or ():
        tokens = count(replace(nothing, tools=[tool]), [], model) - frame
        entries.append(
            _context_entry("", "tool", str(getattr(tool, "name", None) or tool.type), tool, tokens)
        )
    return entries


def _item_entry(origin: str, item: Any, tokens: int) -> dict[str, Any]:
    kind = str(getattr(item, "type", "") or "item")
    text = (
        getattr(item, "name", None) or getattr(item, "content", None) or getattr(item, "output", None) or ""
    )
    if isinstance(text, list):
        text = next((part.text for part in text if isinstance(getattr(part, "text", None), str)), "")
    role = getattr(item, "role", None)
    return _context_entry(
        origin, f"{kind} · {role}" if isinstance(role, str) else kind, str(text), item, tokens
    )


def _context_entry(origin: str, kind: str, label: str, value: Any, tokens: int) -> dict[str, Any]:
    shown = label[:_LONGEST_LABEL].encode("utf-8", "replace").decode()
    return {
        "from": origin,
        "kind": kind,
        "label": shown,
        "bytes": len(encode(value)),
        "tokens": max(tokens, 0),
    }


# A stream as lines of JSON for the inspector, each event with the findings about it (see
# `observation/recordings/observing.py`).

LINES_TYPE = b"application/x-ndjson"
LINE_KEEP_ALIVE = b"\n"


class ObservedForm:
    """The form of an observed response. `began` is when the request was received (`time.perf_counter`);
    `report` has the diagnostics of its translation."""

    stream_type = LINES_TYPE
    is_protocol = False

    def __init__(self, report: Diagnostics, began: float) -> None:
        self._lines = lines = ObservedFrames(report, began=began)

        def observed(events: Sequence[Event]) -> bytes:
            return lines.feed(encode_sse(events))

        self.encoders = (observed,)

    def end(self) -> bytes:
        """Return the last lines."""
        return self._lines.feed(DONE) + self._lines.close()


class ObservedFrames:
    """Converts chunks of server-sent events to observed lines, each with the time of its chunk since `began`,
    or since the first chunk."""

    def __init__(self, *reports: Diagnostics, began: float | None = None) -> None:
        self._frames = SSEDecoder()
        self._observer = Observer("auto", *reports)
        self._began = began

    def feed(self, data: bytes) -> bytes:
        """Return the lines of the frames that are complete."""
        at = self._elapsed()
        return b"".join([self._observer.frame(frame, at) for frame in self._frames.feed(data)])

    def close(self) -> bytes:
        """Return the last line."""
        return self._observer.close(self._elapsed())

    def _elapsed(self) -> float:
        now = time.perf_counter()
        self._began = now if self._began is None else self._began
        return round(now - self._began, 6)


async def observed_frames(
    pieces: AsyncIterator[bytes], after: int, began: float | None = None
) -> AsyncIterator[bytes]:
    """Yield the lines of a stored stream whose events have a number above `after`. Earlier events are read as
    well, since the findings about an event depend on them."""
    lines, left = ObservedFrames(began=began), after + 1
    async for piece in pieces:
        chunk, start = lines.feed(piece), 0
        while left > 0 and start < len(chunk):
            start, left = chunk.index(b"\n", start) + 1, left - 1
        if start < len(chunk):
            yield chunk[start:]
    yield lines.close()


# `/inspector/v1/`: what the inspector's page shows, as lines of JSON, for its user's key.

_CAPTURE_TYPE: Final = "application/octet-stream"
_CHUNK_SIZE: Final = 64 * 1024  # bytes of lines that are made in one step
_EXPANDS: Final = 24  # times; each byte of a capture takes at least 0.5 µs, even if sent compressed
_PAYLOAD_VALUES: Final = 50_000  # as many as in an event of a response with thousands of items


async def create(request: Request) -> ASGIApp:
    """`POST /inspector/v1/responses`: as `/v1/responses`, always streamed. Times are since the request was
    received."""
    began = time.perf_counter()
    service = service_of(request)
    body = replace(await read_json(request, service, decode_request), stream=True)
    owner = request.state.owner
    received = Received(body, fields_of(request.scope), request.state.request_id, owner)
    prepared = await prepare(received, service)
    run = RunAssembly(prepared, service).run()
    headers = prepared.answer_headers
    if body.background:
        return count_reader(service, owner, partial(_stream_run, service, run, headers, began))
    keep_alive = KeepAlive(service.settings.keep_alive, LINE_KEEP_ALIVE)
    make_form = partial(ObservedForm, run.translation.diagnostics, began)
    return StreamResponder([run], headers, keep_alive, make_form)


async def _stream_run(service: Service, run: Run, headers: dict[str, str], began: float) -> Response:
    queued = await enqueue(service, run)
    return await _stream_stored(service, queued.id, run.owner, -1, headers, began)


async def stored(request: Request) -> ASGIApp:
    """`GET /inspector/v1/responses/{id}`: the stream of a stored response, `starting_after` a number."""
    service, owner = service_of(request), request.state.owner
    after = starting_after_of(request.query_params)
    return count_reader(
        service, owner, partial(_stream_stored, service, request.path_params["id"], owner, after, {})
    )


async def _stream_stored(
    service: Service,
    response_id: str,
    owner: str,
    after: int,
    headers: dict[str, str],
    began: float | None = None,
) -> Response:
    progress = await found_stream(service, response_id, owner, after)
    lines = observed_frames(service.runs.follower.follow(progress, -1), after, began)
    return StoredStream(lines, headers, service.settings.keep_alive, LINES_TYPE, LINE_KEEP_ALIVE, b"\n")


async def capture(request: Request) -> Response:
    """`POST /inspector/v1/captures`: a capture of any dialect or a recording, `?dialect=` one of those that
    `replay` reads. 400 for what can't be read from its beginning; after that the last line has an `error`."""
    service = service_of(request)
    dialect = request.query_params.get("dialect", AUTO)
    if dialect not in (AUTO, *DIALECTS):
        raise invalid("dialect", f"expected one of: {', '.join((AUTO, *DIALECTS))}")
    kind = fields_of(request.scope).get("content-type", "").partition(";")[0].strip().lower()
    if kind != _CAPTURE_TYPE:
        raise HttpError(415, f"The content type must be {_CAPTURE_TYPE}.")
    data = await read_bytes(request, service, expands=_EXPANDS)
    check = partial(check_json, limits=_payload_limits(service.settings.limits))
    lines = _with_failure(observed_file(data, dialect, check))
    first, ended = b"", False
    try:
        while not first and not ended:
            if await request.is_disconnected():
                raise ClientDisconnect
            first, ended = await on_thread(partial(_next_chunk, lines))
    except UnreadableCapture as error:
        raise invalid("capture", str(error)) from error
    pieces = _chunks(first, ended, lines)
    return StoredStream(pieces, {}, service.settings.keep_alive, LINES_TYPE, LINE_KEEP_ALIVE, b"\n")


def _payload_limits(limits: Limits) -> Limits:
    """The limits of one payload, which is translated in one step."""
    return replace(limits, json_values=min(limits.json_values, _PAYLOAD_VALUES))


async def _chunks(first: bytes, ended: bool, lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks, each made when it is requested, so that nothing is done for a client that has
    disconnected."""
    yield first
    while not ended:
        piece, ended = await on_thread(partial(_next_chunk, lines), begun=True)
        if piece:
            yield piece


def _with_failure(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines; an error becomes the last one. Raises UnreadableCapture if there is no line before the
    error."""
    begun = False
    try:
        for line in lines:
            begun = begun or line != b""
            yield line
    except UnreadableCapture as error:
        if not begun:
            raise
        yield encode({"error": str(error)}) + b"\n"


def _next_chunk(lines: Iterator[bytes]) -> tuple[bytes, bool]:
    """Return some lines as one chunk, and whether they are the last."""
    parts: list[bytes] = []
    size = 0
    for each in lines:
        parts.append(each)
        size += len(each)
        if not each or size > _CHUNK_SIZE:
            return b"".join(parts), False
    return b"".join(parts), True


# `GET /inspector`: the page that shows streams, to which `/` redirects browsers. It contains no data: it
# requests them with its user's key.


async def page(_request: Request) -> Response:
    """Redirect to the page's folder, so that its files have relative names."""
    return RedirectResponse(f"{ROOT}/{INDEX}", 307, HEADERS)


async def home(request: Request) -> Response:
    """Redirect browsers to the page. Others get 404; but 200 for `HEAD`, by which clients check whether a
    server is here."""
    headers = {**HEADERS, "vary": "accept"}
    if request.method == "HEAD" and not _wants_html(request):
        return Response(None, 200, headers)
    if _wants_html(request):
        return RedirectResponse(f"{ROOT}/{INDEX}", 307, headers)
    raise HttpError(404, "Not Found: GET /", headers={"vary": "accept"})


def _wants_html(request: Request) -> bool:
    kinds = (kind.partition(";")[0].strip() for kind in request.headers.get("accept", "").split(","))
    return any(kind.lower() == "text/html" for kind in kinds)


async def file(request: Request) -> Response:
    """One file of the page; 304 if the browser has it. The folder's own path redirects to the page."""
    if not request.path_params["file"]:
        return await page(request)
    page_file = files().get(request.path_params["file"])
    if page_file is None:
        raise HttpError(404, f"Not Found: GET {request.url.path[:200]}")
    headers = {**HEADERS, "etag": page_file.tag}
    if page_file.tag in request.headers.get("if-none-match", "").split(", "):
        return Response(status_code=304, headers=headers)
    return Response(page_file.data, headers=headers, media_type=page_file.kind)
