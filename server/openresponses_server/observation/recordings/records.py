"""The lines of a recording, as docs/recording.md describes them.

A recording is JSON lines, of which the first has the type `recording`. An exchange is one request and its
answer; its lines have its number, so that a file may have concurrent exchanges. `at` is in seconds since the
recording began. Lines of unknown types are ignored: a later version may have them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Meta, Raw, Struct

from openresponses_bridge.protocol.codec import with_whole_characters

VERSION: Final = 1
TYPE: Final = "recording"
LONGEST_LINE: Final = 64 * 1024 * 1024
"""The most bytes of one line."""

Number = Annotated[int, Meta(ge=0, lt=2**53)]
Moment = Annotated[float, Meta(ge=0, lt=2**53)]
Leg = Literal["upstream", "client"]
How = Literal["finished", "cut", "left", "failed", "unrecorded"]


class RecordError(ValueError):
    """A line that is not one of a recording."""


class RecordingStart(Struct, frozen=True, tag=TYPE):
    """The first line. `created_at` is the time at which `at` is 0, in RFC 3339; `generator` is the program
    that wrote it."""

    version: int
    created_at: str = ""
    generator: str = ""


class RecordedRequest(Struct, frozen=True, omit_defaults=True, tag="exchange"):
    """A request. `leg` is `upstream` if it was sent to one, which is named, or `client` if a client has sent
    it. A body in JSON is in `body`, any other in `text` or `base64`. `run` joins the exchanges that belong to
    one response. Headers are in lower case."""

    exchange: Number
    at: Moment
    dialect: str = ""
    leg: Leg = "upstream"
    upstream: str = ""
    address: str = ""
    method: str = "POST"
    path: str = ""
    headers: dict[str, str] = {}
    model: str = ""
    body: Raw = Raw(b"null")
    text: str | None = None
    base64: str | None = None
    request_id: str = ""
    run: str = ""


class RecordedStatus(Struct, frozen=True, omit_defaults=True, tag="answer"):
    """The status of the answer, and the headers that are needed to read it."""

    exchange: Number
    at: Moment
    status: Annotated[int, Meta(ge=100, le=999)]
    headers: dict[str, str] = {}


class Chunk(Struct, frozen=True, omit_defaults=True, tag="chunk"):
    """Bytes of the answer's body that were read at once, as `text` if they are valid UTF-8."""

    exchange: Number
    at: Moment
    text: str | None = None
    base64: str | None = None

    @property
    def data(self) -> bytes:
        return (self.text or "").encode() if self.base64 is None else b64decode(self.base64, validate=True)


class RecordedEnd(Struct, frozen=True, omit_defaults=True, tag="end"):
    """The end of the exchange: `finished`; `cut` during the body; `left` by the client; `failed` before there
    was a status; `unrecorded` from here on, because it could not be written. `code` is that of the error."""

    exchange: Number
    at: Moment
    how: How
    code: str = ""
    reason: str = ""


class Note(Struct, frozen=True, omit_defaults=True, tag="note"):
    """Something about a response besides its exchanges: a `repair`, `loss`, `ignored` or `warning`; a `retry`
    or `failover` of an upstream (`where`); a `round`, one of several answers, with its number in `where` and
    its tokens; its `end`, with its status in `where`, and the code and cause of a failure in `what`. `times`:
    how often it has occurred so far."""

    at: Moment
    kind: str
    where: str = ""
    what: str = ""
    times: int = 1
    run: str = ""


Record = RecordingStart | RecordedRequest | RecordedStatus | Chunk | RecordedEnd | Note
_decoder: Final = msgspec.json.Decoder(Record)
_TAGS: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Record))


class _Typed(Struct):
    type: str


_typed: Final = msgspec.json.Decoder(_Typed)


def chunk(exchange: int, at: float, data: bytes) -> Chunk:
    """The chunk with these bytes."""
    try:
        return Chunk(exchange, at, text=data.decode())
    except UnicodeDecodeError:
        return Chunk(exchange, at, base64=b64encode(data).decode())


def encode_record(record: Record) -> bytes:
    """Encode a record as a line, with its line feed. Lone surrogates, which clients can send in any name, are
    replaced: a line with one can't be read."""
    try:
        return msgspec.json.encode(record) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(with_whole_characters(record)) + b"\n"


def decode_record(line: bytes) -> Record | None:
    """Decode a line; None for an unknown type. Raises RecordError with the reason."""
    try:
        record: Record = _decoder.decode(line)
        if isinstance(record, Chunk):
            _ = record.data  # raises for invalid base64
        return record
    except (msgspec.MsgspecError, UnicodeError, RecursionError, Base64Error) as error:
        if _type_of(line) not in (None, *_TAGS):
            return None
        raise RecordError(str(error) or type(error).__name__) from error


def is_recording(line: bytes) -> bool:
    """Return True if a file that begins with this line is a recording."""
    return len(line) < 4096 and _type_of(line) == TYPE


def _type_of(line: bytes) -> str | None:
    try:
        return _typed.decode(line).type
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def body_of(request: RecordedRequest) -> Any:
    """Return the request's body, decoded; None if it is not JSON."""
    try:
        return msgspec.json.decode(request.body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
