"""Captures in other formats: compressed with gzip, in UTF-16, in the archive of a browser (HAR), in the
report of `curl -v`, in rows copied from a browser's tools, in a string of JSON.

For the commands, which read files of their user. Unpacked data are limited, by their size and by that of the
file.
"""

from __future__ import annotations

import io
import re
import zlib
from base64 import b64decode
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from openresponses_server.observation.recordings.captures import UnreadableCapture, payload_of
from openresponses_server.observation.recordings.dialects import dialect_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOST_BYTES: Final = 1 << 30
"""The most bytes that a packed capture may unpack to."""
MOST_RATIO: Final = 200
"""The most that a packed capture may grow: this many times its size, beyond the first 16 MiB."""
_MOST_WHOLE: Final = 256 << 20  # bytes of a file that is read at once
_FREE: Final = 16 << 20
_PIECE: Final = 64 * 1024
_HEAD: Final = 64 * 1024  # bytes of a line that are examined
_MOST_HEAD_LINES: Final = 16
_GZIP: Final = b"\x1f\x8b"
_GZIP_BITS: Final = 31  # of zlib: with the header of gzip
_UTF_16: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_BOM: Final = b"\xef\xbb\xbf"
_HAR: Final = re.compile(rb'\s*\{\s*"log"\s*:')
_OF_CURL: Final = re.compile(rb"[*<>] |[*<>]\r?\n|[{}] \[\d+ bytes data\]|  % Total |  +Dload ")
_METER: Final = re.compile(rb"\r[ 0-9.kMGTP:-]{60,80}")
_LAST_WORDS: Final = (b"* Connection #", b"* Closing connection", b"* shutting down connection")
_CLOCK: Final = re.compile(r"\d{1,2}:\d\d:\d\d(?:[.,]\d+)?(?: [AP]M)?\Z")
_HEADINGS: Final = frozenset({"id", "type", "data", "time", "length"})


def unpacked(file: BinaryIO) -> Iterator[BinaryIO]:
    """Yield the captures in a file, each as a file: the file itself unless it is packed. Raises
    UnreadableCapture if it can't be unpacked."""
    head, opened = _peeked(file)
    if head.startswith(_GZIP):
        head, opened = _peeked(_of_pieces(_decompressed(opened)))
    if (encoding := _UTF_16.get(head[:2])) is not None:
        head, opened = _peeked(_of_pieces(_transcoded(opened, encoding)))
    text = head.removeprefix(_BOM)
    if _HAR.match(text):
        yield from _entries(_whole(opened, "an archive (HAR)"))
    elif text.lstrip().startswith(b'"'):
        yield io.BytesIO(_string(_whole(opened, "a string of JSON")))
    elif _OF_CURL.match(text.lstrip(b"\r\n")):
        yield _of_pieces(_without_report(opened))
    elif _row(text) is not None or _is_heading(text):
        yield _of_pieces(_from_rows(opened))
    else:
        yield opened


class _Pieces(io.RawIOBase):
    """A file with the data that an iterator yields."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        target = memoryview(buffer)
        size = min(len(target), len(self._rest))
        target[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _of_pieces(pieces: Iterable[bytes]) -> BinaryIO:
    return io.BufferedReader(_Pieces(pieces), _PIECE)


def _peeked(file: BinaryIO) -> tuple[bytes, BinaryIO]:
    """Return the beginning of a file, as far as it shows what the file is, and the file from its beginning
    on. A pipe is not read further than the lines of that beginning."""
    start = file.tell() if file.seekable() else None
    head = b""
    for _ in range(_MOST_HEAD_LINES):
        line = file.readline(_HEAD)
        head += line
        if not line or head.removeprefix(_BOM).strip() not in (b"", b"{"):
            break
    if start is None:
        return head, _of_pieces(_continued(head, file))
    file.seek(start)
    return head, file


def _continued(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    yield head
    yield from file  # in lines, so that a pipe can be read while it is written


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(_PIECE), b"")


def _whole(file: BinaryIO, what: str) -> bytes:
    data = file.read(_MOST_WHOLE + 1)
    if len(data) > _MOST_WHOLE:
        raise UnreadableCapture(0, f"{what} may have {_MOST_WHOLE >> 20} MiB at most")
    return data.removeprefix(_BOM)


def _decompressed(file: BinaryIO) -> Iterator[bytes]:
    """Yield the data that gzip has compressed, in one member or several."""
    unpacking = zlib.decompressobj(_GZIP_BITS)
    read = size = 0
    for block in _blocks(file):
        read += len(block)
        while block:
            if unpacking.eof:
                if not block.startswith(_GZIP):
                    return  # padding
                unpacking = zlib.decompressobj(_GZIP_BITS)
            try:
                piece = unpacking.decompress(block, _PIECE)
            except zlib.error as error:
                raise UnreadableCapture(0, f"it begins like gzip, but can't be unpacked: {error}") from error
            size += len(piece)
            if size > MOST_BYTES or size > _FREE + MOST_RATIO * read:
                raise UnreadableCapture(
                    0,
                    f"what gzip has compressed is too large: more than {size >> 20} MiB of {read} bytes; "
                    "unpack it yourself (`gunzip`) if it is right",
                )
            if piece:
                yield piece
            block = unpacking.unused_data if unpacking.eof else unpacking.unconsumed_tail
    if not unpacking.eof:
        raise UnreadableCapture(0, "what gzip has compressed ends early: the file was cut off")


def _transcoded(file: BinaryIO, encoding: str) -> Iterator[bytes]:
    """Yield the text in UTF-8, without its byte order mark."""
    decoder = getincrementaldecoder(encoding)()
    try:
        for block in _blocks(file):
            yield decoder.decode(block).removeprefix("\ufeff").encode()
        yield decoder.decode(b"", True).encode()
    except UnicodeError as error:
        raise UnreadableCapture(0, f"it begins like UTF-16, but is not: {error}") from error


class _Content(Struct, rename="camel"):
    mime_type: str = ""
    text: str = ""
    encoding: str = ""


class _Answered(Struct):
    status: int = 0
    content: _Content = msgspec.field(default_factory=_Content)


class _Message(Struct):
    data: str = ""
    type: str = ""


class _Entry(Struct):
    response: _Answered = msgspec.field(default_factory=_Answered)
    messages: list[_Message] | UnsetType = msgspec.field(default=UNSET, name="_webSocketMessages")


class _Log(Struct):
    entries: list[_Entry]


class _Archive(Struct):
    log: _Log


def _entries(data: bytes) -> Iterator[BinaryIO]:
    """Yield those streams, answers and WebSockets of an archive (HAR) that have the form of a dialect."""
    try:
        entries = msgspec.json.decode(data, type=_Archive).log.entries
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UnreadableCapture(0, f"it looks like an HTTP archive (HAR), but is not: {error}") from error
    count = 0
    for body in filter(None, map(_body_of, entries)):
        count += 1
        yield io.BytesIO(body)
    if not count:
        raise UnreadableCapture(
            0,
            f"none of the {len(entries)} entries of this HTTP archive (HAR) has a stream or answer of a "
            "model; save it with its contents (`Save all as HAR with content`)",
        )


def _body_of(entry: _Entry) -> bytes | None:
    if entry.messages is not UNSET and entry.messages:
        received = [each.data for each in entry.messages if each.type != "send"]
        return "".join(f"{text}\n" for text in received).encode("utf-8", "replace")
    content = entry.response.content
    if not 200 <= entry.response.status < 300 or not content.text:
        return None
    try:
        body = b64decode(content.text) if content.encoding == "base64" else content.text.encode()
        known = content.mime_type.startswith("text/event-stream") or (
            "json" in content.mime_type and dialect_of(payload_of(1, None, body)) is not None
        )
    except (ValueError, UnreadableCapture):
        return None
    return body if known else None


def _string(data: bytes) -> bytes:
    """Return the text in a string of JSON."""
    try:
        return msgspec.json.decode(data, type=str).encode()
    except (msgspec.MsgspecError, UnicodeError):
        return data  # later reported as neither frames nor objects


def _without_report(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the body from the report of `curl -v`, without what that says of the connection, the request and
    the progress."""
    for line in lines:
        if b"\r" in line:
            line = _METER.sub(b"", line)
        if _OF_CURL.match(line):
            continue
        for words in _LAST_WORDS:  # they follow a body without a line end at once
            at = line.rfind(words)
            if at > 0:
                line = line[:at] + b"\n"
        yield line


def _from_rows(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield frames for rows that were copied from a browser's table of events or messages."""
    for line in lines:
        row = _row(line)
        if row is not None:
            yield row
        elif line.strip() and not _is_heading(line):
            yield line


def _row(line: bytes) -> bytes | None:
    """Return the data of a row: an object between tabs, next to a time; None for any other line."""
    if b"\t" not in line:
        return None
    cells = [cell.strip() for cell in line.decode("utf-8", "replace").split("\t")]
    if not any(map(_CLOCK.match, cells)):
        return None
    data = [cell for cell in cells if cell == "[DONE]" or (cell[:1] == "{" and cell[-1:] == "}")]
    return f"data: {data[0]}\n\n".encode() if len(data) == 1 else None


def _is_heading(line: bytes) -> bool:
    cells = [cell.strip().lower() for cell in line.decode("utf-8", "replace").split("\t")]
    return len(cells) > 1 and _HEADINGS.issuperset(cells)
