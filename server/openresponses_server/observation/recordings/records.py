"""The lines of a recording, as docs/recording.md describes them.

A recording is JSON lines, the first a `recording`. An exchange is one request and its answer; its lines have
its number, so that exchanges that happen at once may stand in one file. `at` is seconds since the recording
began. Lines of a type that is not known here are passed over: a later version may have more of them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Meta, Raw, Struct

VERSION: Final = 1
TYPE: Final = "recording"
LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes of one line."""

Number = Annotated[int, Meta(ge=0, lt=2**53)]
Moment = Annotated[float, Meta(ge=0, lt=2**53)]
Leg = Literal["upstream", "client"]
How = Literal["finished", "cut", "left", "failed", "unrecorded"]


class RecordError(ValueError):
    """A line that is not one of a recording."""


class Begun(Struct, frozen=True, tag=TYPE):
    """The first line. `created_at` is when `at` is 0, in RFC 3339; `generator` is what wrote it."""

    version: int
    created_at: str = ""
    generator: str = ""


class Asked(Struct, frozen=True, omit_defaults=True, tag="exchange"):
    """A request. `leg` says between whom: this server and an `upstream` (by its name), or a `client` and this
    server. `body` is its JSON; `text` or `base64` one that is not JSON. `run` joins the exchanges that
    belong to one response. Headers are in lower case."""

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


class Answered(Struct, frozen=True, omit_defaults=True, tag="answer"):
    """The status of its answer, and those headers that say how to read it."""

    exchange: Number
    at: Moment
    status: Annotated[int, Meta(ge=100, le=999)]
    headers: dict[str, str] = {}


class Chunk(Struct, frozen=True, omit_defaults=True, tag="chunk"):
    """Bytes of the answer's body, as they were read in one go: `text` where they are UTF-8 by themselves."""

    exchange: Number
    at: Moment
    text: str | None = None
    base64: str | None = None

    @property
    def data(self) -> bytes:
        return (self.text or "").encode() if self.base64 is None else b64decode(self.base64, validate=True)


class Ended(Struct, frozen=True, omit_defaults=True, tag="end"):
    """How it ended: `finished`; `cut` while the body came; `left` by who asked; `failed` before a status was
    there; `unrecorded` from here on, since it could not be written. `code` is that of an error."""

    exchange: Number
    at: Moment
    how: How
    code: str = ""
    reason: str = ""


class Noted(Struct, frozen=True, omit_defaults=True, tag="note"):
    """What happened beside the exchanges of a response: `repair`, `loss`, `ignored`, `warning` about it;
    `retry` and `failover` of an upstream (`where`); `end` with the response's status in `where`, and the code
    and the cause of a failure in `what`. It has happened so many `times` until now."""

    at: Moment
    kind: str
    where: str = ""
    what: str = ""
    times: int = 1
    run: str = ""


Record = Begun | Asked | Answered | Chunk | Ended | Noted
_decoder: Final = msgspec.json.Decoder(Record)
_TAGS: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Record))


class _Typed(Struct):
    type: str


def chunk(exchange: int, at: float, data: bytes) -> Chunk:
    """A chunk of these bytes."""
    try:
        return Chunk(exchange, at, text=data.decode())
    except UnicodeDecodeError:
        return Chunk(exchange, at, base64=b64encode(data).decode())


def encode_record(record: Record) -> bytes:
    """The record as a line, with its end."""
    return msgspec.json.encode(record) + b"\n"


def decode_record(line: bytes) -> Record | None:
    """The record in a line; None for one of an unknown type. Raises RecordError saying what is wrong."""
    try:
        record: Record = _decoder.decode(line)
        if isinstance(record, Chunk):
            _ = record.data  # what is not base64 shows now
        return record
    except (msgspec.MsgspecError, UnicodeError, RecursionError, Base64Error) as error:
        if _type_of(line) not in (None, *_TAGS):
            return None
        raise RecordError(str(error) or type(error).__name__) from error


def is_recording(line: bytes) -> bool:
    """Whether a file that begins with this line is a recording."""
    return len(line) < 4096 and _type_of(line) == TYPE


def _type_of(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=_Typed).type
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def body_of(asked: Asked) -> Any:
    """The request's body as plain values; None when it is not JSON."""
    try:
        return msgspec.json.decode(asked.body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
