"""Captures as users have them: packed by gzip, saved by a browser, between what curl says of a connection."""

import gzip
import io
import json
import zlib
from typing import Any

import pytest

from openresponses_bridge.protocol.codec import encode_sse
from openresponses_server.observation.recordings.captures import UnreadableCapture, read_capture
from openresponses_server.observation.recordings.playing import open_capture
from openresponses_server.observation.recordings.reader import Clock
from tests.support.model_scripts import SCRIPTS, played

EVENTS = played(SCRIPTS["text"]).events
STREAM = encode_sse(EVENTS) + b"data: [DONE]\n\n"
WHOLE = json.dumps(json.loads(STREAM.split(b"data: ")[-2].split(b"\n")[0])["response"]).encode()
FRAMES = [part.partition(b"data: ")[2] for part in STREAM.split(b"\n\n")[:-2]]


class Pipe(io.BytesIO):
    """A file that has no position."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError("a pipe")


def read(data: bytes, kind: type[io.BytesIO] = io.BytesIO) -> list[list[bytes]]:
    """The payloads of each answer in a file."""
    answers = open_capture(kind(data)).answers(Clock(None))
    return [[each.data for each in read_capture(answer.lines)] for answer in answers if answer is not None]


def report(body: bytes, *, meter: bool, end: bytes = b"") -> bytes:
    """A body between what `curl -v` writes to standard error, as both look in one file."""
    progress = b"  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0"
    head = (
        b"  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current\n"
        b"                                 Dload  Upload   Total   Spent    Left  Speed\n\r" + progress
        if meter
        else b""
    )
    return (
        head
        + b"*   Trying 127.0.0.1:8080...\n* Connected to 127.0.0.1\n> POST /v1/responses HTTP/1.1\r\n"
        + b"> Host: x\r\n> \r\n} [46 bytes data]\n< HTTP/1.1 200 OK\r\n< \r\n{ [4554 bytes data]\n"
        + body
        + (b"\r" + progress if meter else b"")
        + end
        + b"* Connection #0 to host 127.0.0.1 left intact\n"
    )


def entry(text: str, mime: str = "text/event-stream; charset=utf-8", **more: Any) -> dict[str, Any]:
    return {
        "request": {"url": "x"},
        "response": {"status": 200, "content": {"mimeType": mime, "text": text}},
    } | more


def archive(*entries: dict[str, Any], indent: int | None = None) -> bytes:
    return json.dumps({"log": {"version": "1.2", "entries": entries}}, indent=indent).encode()


def row(frame: bytes, before: str = "\tmessage\t") -> bytes:
    return f"{before}{frame.decode()}\t12:34:56.789\n".encode()


WRAPPED = {
    "plain": STREAM,
    "gzip": gzip.compress(STREAM),
    "two members of gzip": gzip.compress(STREAM[:100]) + gzip.compress(STREAM[100:]) + b"\0" * 8,
    "UTF-16": STREAM.decode().encode("utf-16"),
    "UTF-16, the other way round": b"\xfe\xff" + STREAM.decode().encode("utf-16-be"),
    "UTF-16 in gzip": gzip.compress(STREAM.decode().encode("utf-16")),
    "curl -v": report(STREAM, meter=False),
    "curl -v in a pipe": report(STREAM, meter=True, end=b"\n"),
    "a string of JSON": json.dumps(STREAM.decode()).encode(),
    "an archive": archive(entry("<p>", "text/html"), entry(STREAM.decode())),
    "an archive in lines": archive(entry(STREAM.decode()), indent=2),
    "an archive in gzip": gzip.compress(archive(entry(STREAM.decode()))),
    "rows": b"Id\tType\tData\tTime\n" + b"".join(map(row, [*FRAMES, b"[DONE]"])),
    "rows without a heading": b"".join(map(row, [*FRAMES, b"[DONE]"])),
}


@pytest.mark.parametrize("kind", [io.BytesIO, Pipe], ids=["file", "pipe"])
@pytest.mark.parametrize("wrapped", WRAPPED)
def test_what_wraps_a_stream_is_taken_off(wrapped: str, kind: type[io.BytesIO]) -> None:
    assert read(WRAPPED[wrapped], kind) == [[*FRAMES, b"[DONE]"]]


@pytest.mark.parametrize("meter", [True, False])
def test_a_body_without_a_line_end_is_told_from_what_curl_says_after_it(meter: bool) -> None:
    assert read(report(WHOLE, meter=meter)) == [[WHOLE]]


def test_an_archive_has_each_of_its_streams_answers_and_sockets() -> None:
    sent = [{"type": "send", "data": "{}"}, *({"type": "receive", "data": each.decode()} for each in FRAMES)]
    refused = {"response": {"status": 500, "content": {"mimeType": "text/event-stream", "text": "x"}}}
    packed = entry("eyJ9")
    packed["response"]["content"]["encoding"] = "base64"
    streams = read(
        archive(
            refused,
            entry(STREAM.decode()),
            entry(WHOLE.decode(), "application/json"),
            entry('{"some": "settings"}', "application/json"),
            entry("", "text/plain", _webSocketMessages=sent),
            {},
        )
    )
    assert streams == [[*FRAMES, b"[DONE]"], [WHOLE], FRAMES]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x1f\x8b\x08 no gzip", "begins like gzip"),
        (gzip.compress(STREAM)[:-200], "ends early"),
        (b"\xff\xfe\x00\xd8\x00\xd8", "begins like UTF-16"),
        (b'{"log": {"entries": 1}}', "looks like an HTTP archive"),
        (archive(entry("<p>", "text/html")), "none of the 1 entries"),
        (b"<!DOCTYPE html>\n<p>", "it looks like HTML"),
        (b"PK\x03\x04", "it is a zip file"),
        (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
        (b"\0\1\2", "not a text in UTF-8"),
        (b"curl: (7) Failed to connect", "an error message of curl"),
        (b"hello there", "it begins with 'hello there'"),
        (b'"just words"', "neither server-sent events nor JSON objects"),
        (b"* Trying\n", "it is empty"),
    ],
)
def test_what_can_not_be_read_is_called_by_what_it_looks_like(data: bytes, says: str) -> None:
    with pytest.raises(UnreadableCapture, match=says):
        read(data)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    packing = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packing.compress(b"x" * (1 << 20)) for _ in range(100)) + packing.flush()
    with pytest.raises(UnreadableCapture, match="too large: more than"):
        read(bomb)


def test_an_honest_file_that_packs_well_is_read() -> None:
    assert read(gzip.compress(b": still here\n\n" * 10_000 + STREAM)) == [[*FRAMES, b"[DONE]"]]
