"""Requests whose end a server and the proxy in front of it may see in different places, and the requests that
are hidden in them."""

from __future__ import annotations

from typing import Final, NamedTuple

STOLEN: Final = "stolen"
"""A text that is in the answer to the hidden request, and in no other answer."""
HIDDEN: Final = f"GET /v1/models/{STOLEN} HTTP/1.1\r\nHost: localhost\r\n"
WHOLE: Final = HIDDEN.encode() + b"\r\n"
OPEN: Final = HIDDEN.encode() + b"X-Swallowed: "
"""A request without its end: the next bytes on the connection would belong to it."""
_KEY: Final = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
_HANDSHAKE: Final = ("Upgrade: websocket", "Connection: Upgrade", _KEY, "Sec-WebSocket-Version: 13")
_UPGRADE: Final = ("Upgrade: x", "Connection: upgrade")
_H2C: Final = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
_CHUNKED: Final = "Transfer-Encoding: chunked"
_POST: Final = "POST /v1/responses/input_tokens HTTP/1.1"
_HEALTH: Final = "GET /healthz HTTP/1.1"


class Shape(NamedTuple):
    """One request: its head up to the blank line, and the bytes after it."""

    name: str
    head: bytes
    body: bytes

    @property
    def data(self) -> bytes:
        """The bytes of the whole request."""
        return self.head + self.body


def shapes(hidden: bytes, key: str = "") -> list[Shape]:
    """Requests with `hidden` somewhere in the body; their own heads have `key`."""
    sized, chunks = f"Content-Length: {len(hidden)}", b"%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden)
    shown = [f"Authorization: Bearer {key}"] if key else []
    requests: list[Shape] = []

    def add(name: str, line: str, *fields: str, body: bytes = hidden, host: str = "Host: localhost") -> None:
        head = "\r\n".join(
            [line, *([host] if host else []), "Content-Type: application/json", *shown, *fields]
        )
        requests.append(Shape(name, head.encode("latin-1") + b"\r\n\r\n", body))

    for asks, fields in (("an unknown protocol", _UPGRADE), ("h2c", _H2C), ("a socket", _HANDSHAKE)):
        for line in (_POST, _HEALTH, "GET /v1/responses HTTP/1.1", _POST.replace("1.1", "1.0")):
            add(f"{line} that asks for {asks}", line, *fields, sized)
        add(f"chunks and {asks}", _POST, *fields, _CHUNKED, body=chunks)
        add(
            f"chunks within the handshake for {asks}",
            "GET /v1/responses HTTP/1.1",
            *fields,
            _CHUNKED,
            body=chunks,
        )
        add(f"{asks}, expecting", _POST, *fields, sized, "Expect: 100-continue")
    add("two upgrades", _POST, *_HANDSHAKE, "Upgrade: x", sized)
    add("an upgrade that Connection does not name", _POST, "Upgrade: x", sized)
    add("an upgrade in two Connection fields", _POST, "Connection: keep-alive", *_UPGRADE, sized)
    add("an upgrade in a spelling", _POST, "uPgRaDe: X", "cOnNeCtIoN: KEEP-ALIVE, UPGRADE", sized)
    add("what follows a handshake", "GET /v1/responses HTTP/1.1", *_HANDSHAKE)
    for name, spelling in {
        "as usual": _CHUNKED,
        "in capitals": "TRANSFER-ENCODING: CHUNKED",
        "behind a tab": "Transfer-Encoding:\tchunked",
        "before a space": "Transfer-Encoding: chunked ",
        "behind a vertical tab": "Transfer-Encoding: \x0bchunked",
        "with a space before the colon": "Transfer-Encoding : chunked",
        "in quotes": 'Transfer-Encoding: "chunked"',
        "with a parameter": "Transfer-Encoding: chunked;q=1",
        "twice": f"{_CHUNKED}\r\n{_CHUNKED}",
        "twice in a line": "Transfer-Encoding: chunked, chunked",
        "behind gzip": "Transfer-Encoding: gzip, chunked",
        "before identity": "Transfer-Encoding: chunked, identity",
        "and identity": f"{_CHUNKED}\r\nTransfer-Encoding: identity",
        "not at all": "Transfer-Encoding: identity",
        "misspelt": "Transfer-Encoding: xchunked",
        "folded": "Transfer-Encoding:\r\n chunked",
        "in a folded line": "X-Folded: a\r\n Transfer-Encoding: chunked",
        "behind a line feed": "X-Fed: a\nTransfer-Encoding: chunked",
        "behind a carriage return": "X-Returned: a\rTransfer-Encoding: chunked",
        "behind a null": "X-Null: a\0\r\nTransfer-Encoding: chunked",
        "with an underscore": "Transfer_Encoding: chunked",
    }.items():
        add(f"chunks {name}", _POST, spelling, body=chunks)
        add(f"chunks {name}, and a length", _POST, spelling, sized, body=b"0\r\n\r\n" + hidden)
        add(f"a length, and chunks {name}", _POST, "Content-Length: 4", spelling, body=chunks)
        add(f"chunks {name} in HTTP/1.0", _POST.replace("1.1", "1.0"), spelling, body=chunks)
    for name, spelling in {
        "with a sign": f"Content-Length: +{len(hidden)}",
        "in hex": f"Content-Length: 0x{len(hidden):x}",
        "with zeros": f"Content-Length: 000{len(hidden)}",
        "as a list": f"Content-Length: {len(hidden)}, {len(hidden)}",
        "twice": f"{sized}\r\n{sized}",
        "twice, other": f"Content-Length: 0\r\n{sized}",
        "negative": "Content-Length: -1",
        "empty": "Content-Length: ",
        "beyond 64 bits": "Content-Length: 18446744073709551616",
        "with a space before the colon": f"Content-Length : {len(hidden)}",
        "folded": f"Content-Length:\r\n {len(hidden)}",
        "of 0, folded": f"Content-Length: 0\r\n {len(hidden)}",
        "with an underscore": f"Content_Length: {len(hidden)}",
    }.items():
        add(f"a length {name}", _POST, spelling)
    for line in (_HEALTH, "HEAD /healthz HTTP/1.1", "OPTIONS * HTTP/1.1", "DELETE /v1/responses/x HTTP/1.1"):
        add(f"{line} with a body", line, sized)
    add("an early answer", "POST /nowhere HTTP/1.1", sized)
    add("an early answer to what expects", "POST /nowhere HTTP/1.1", sized, "Expect: 100-continue")
    add(
        "an early answer instead of a body",
        "POST /nowhere HTTP/1.1",
        "Content-Length: 9999",
        "Expect: 100-continue",
    )
    add("an expectation in HTTP/1.0", _POST.replace("1.1", "1.0"), sized, "Expect: 100-continue")
    add("a connection that is to close", _POST, sized, "Connection: close")
    for name, body in {
        "ends of lines that are line feeds": b"%x\n%b\n0\n\n" % (len(hidden), hidden),
        "an extension": b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden),
        "an extension that ends in a line feed": b"2;a\n{}\r\n0\r\n\r\n" + hidden,
        "a size in another form": b"0x%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden),
        "a size with zeros": b"0000%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden),
        "a size that overflows": b"1" + b"0" * 16 + b"\r\n" + hidden,
        "a size of nothing": b"\r\n%b" % hidden,
        "no end of a chunk": b"2\r\n{}xx0\r\n\r\n" + hidden,
        "a last chunk without its line": b"2\r\n{}\r\n0\r\n" + hidden,
        "a length in the trailers": b"2\r\n{}\r\n0\r\nContent-Length: %d\r\n\r\n" % len(hidden) + hidden,
        "an upgrade in the trailers": b"2\r\n{}\r\n0\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "a folded trailer": b"2\r\n{}\r\n0\r\nX: a\r\n b\r\n\r\n",
    }.items():
        add(f"chunks with {name}", _POST, _CHUNKED, body=body)
    for target in (
        *("http://other/healthz", "http://localhost/healthz", "http://localhost", "http://localhost?a"),
        *("http://user@localhost/healthz", "ftp://localhost/healthz", "//localhost/healthz", "*"),
        *("localhost:80", "/healthz#a", "/%2e%2e/healthz", "/healthz HTTP/1.1 /x", "\\healthz"),
    ):
        add(f"the target {target}", f"GET {target} HTTP/1.1", sized)
    add("a tunnel", "CONNECT localhost:80 HTTP/1.1", sized)
    add("a tunnel to a path", "CONNECT /healthz HTTP/1.1", sized)
    add("two hosts", _HEALTH, "Host: other", sized)
    add("no host", _HEALTH, sized, host="")
    add("a folded host", _HEALTH, sized, host="Host: localhost\r\n x")
    add("a folded first field", _HEALTH, sized, host=" Host: localhost\r\nHost: localhost")
    add("a later version", "GET /healthz HTTP/2.0", sized)
    add("no version", "GET /healthz", sized)
    return requests
