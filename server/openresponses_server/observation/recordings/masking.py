"""What a recording must not show: credentials in headers, addresses and bodies, and keys that an upstream
repeats, also where one is cut by the end of a chunk.

What people wrote and models answered is what a recording is of, and stays.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol
from urllib.parse import unquote

import msgspec

from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode

MASK: Final = "[masked]"
_KEY: Final = "[key]"
_SHOWN_HEADERS: Final = frozenset(
    {
        *("accept", "accept-language", "content-length", "content-type", "user-agent"),
        *("http-referer", "x-title", "x-request-id", "request-id"),
        *("anthropic-beta", "anthropic-version", "openai-beta"),
        *("openresponses-losses", "retry-after", "retry-after-ms"),
    }
)
_RATE_LIMITS: Final = re.compile("(x|anthropic)-ratelimit-[a-z-]+")
_SECRET_NAME: Final = re.compile(
    "api_?key|auth(orization|_token)|password|passwd|secret|credential|cookie|bearer|access_?token"
    "|refresh_token|private_key"
)
_SECRET_PARAMETER: Final = re.compile("key|token|sig|auth|pass|secret|cred|code")
_ADDRESS: Final = ("http://", "https://", "ws://", "wss://")
_PATIENCE: Final = 4096  # bytes that are held together before they are looked through


class Finds(Protocol):
    """Finds secrets in a text: where each begins and ends, in order. None is longer than `longest`."""

    @property
    def longest(self) -> int: ...

    def spans(self, text: str) -> list[tuple[int, int]]: ...


def masked_headers(headers: Mapping[str, str], *, drop: bool = False) -> dict[str, str]:
    """All headers with the values of those masked, or dropped, that are not known to be harmless."""
    found = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower in _SHOWN_HEADERS or _RATE_LIMITS.fullmatch(lower):
            found[lower] = value
        elif not drop:
            found[lower] = MASK
    return found


def masked_body(body: bytes, finds: Finds) -> msgspec.Raw | None:
    """A JSON body with its secrets masked: in fields that are named for them, in addresses, and those that
    `finds` knows. None for one that is not JSON."""
    try:
        shown = encode(masked_value(decode_json(body))).decode()
    except (WireError, RecursionError, UnicodeError, msgspec.MsgspecError):
        return None
    return msgspec.Raw(without(shown, finds).encode())


def masked_value(value: Any, name: str = "") -> Any:
    """A JSON value, which stands under this name, with what is secret by its name masked."""
    return _masked(value, _Named(name))


def _masked(value: Any, named: _Named) -> Any:
    if isinstance(value, str):
        if named.secret:
            return MASK
        return masked_address(value) if value.startswith(_ADDRESS) else value
    if isinstance(value, list):
        return [_masked(each, named) for each in value]
    if not isinstance(value, dict):
        return value
    if named.headers:
        return {key: MASK if isinstance(each, str) else each for key, each in value.items()}
    return {key: _masked(each, _Named(key)) for key, each in value.items()}


def hidden_in(value: Any, name: str = "") -> Iterator[str]:
    """What `masked_value` masks of a JSON value that stands under this name."""
    return _hidden(value, _Named(name))


def _hidden(value: Any, named: _Named) -> Iterator[str]:
    if isinstance(value, str):
        if named.headers or named.secret:
            yield value.partition(" ")[2] or value  # a key behind its scheme
        elif value.startswith(_ADDRESS):
            yield from _hidden_in_address(value)
    elif isinstance(value, list):
        for each in value:
            yield from _hidden(each, named)
    elif isinstance(value, dict):
        for key, each in value.items():
            under = named if named.headers and isinstance(each, str) else _Named(key)
            yield from _hidden(each, under)


class _Named:
    """The name under which values stand, looked at once however many there are."""

    __slots__ = ("headers", "secret")

    def __init__(self, name: str) -> None:
        self.headers = name == "headers"
        self.secret = _SECRET_NAME.search(name.lower().replace("-", "_")) is not None


def _hidden_in_address(url: str) -> Iterator[str]:
    address, _, query = url.partition("?")
    host = address.partition("://")[2].partition("/")[0]
    if "@" in host:
        yield host.rpartition("@")[0].partition(":")[2] or host.rpartition("@")[0]
    for parameter in query.split("&"):
        if _masked_parameter(parameter) != parameter:
            yield parameter.partition("=")[2]


def masked_address(url: str) -> str:
    """An address without a password in it, and without what is secret in its query."""
    before, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    if "@" in host:
        host = f"{MASK}@{host.rpartition('@')[2]}"
    shown = f"{before}{separator}{host}{slash}{path}"
    address, question, query = shown.partition("?")
    return address if not question else f"{address}?{'&'.join(map(_masked_parameter, query.split('&')))}"


def _masked_parameter(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    return f"{name}={MASK}" if equals and _SECRET_PARAMETER.search(unquote(name).lower()) else parameter


def without(text: str, finds: Finds) -> str:
    """The text with `[key]` for each secret in it."""
    pieces, done = [], 0
    for begin, end in finds.spans(text):
        pieces += [text[done:begin], _KEY]
        done = end
    return "".join([*pieces, text[done:]])


class StreamMask:
    """Takes secrets out of a stream and keeps the ends of its chunks: a secret over several of them is put as
    `[key]` into the one where it begins. Chunks are held until it is clear that none begins in them; no byte
    is looked at more than a few times."""

    def __init__(self, finds: Finds) -> None:
        self._finds = finds
        self._held: list[tuple[float, bytes]] = []
        self.held = 0
        """How many bytes are held."""
        self._look_at = finds.longest + _PATIENCE
        self._hidden = 0
        """How many bytes of what is held belong to a secret whose beginning has been released."""

    def feed(self, at: float, data: bytes) -> list[tuple[float, bytes]]:
        """The chunks that are clear now, each with its time."""
        if not self._finds.longest:
            return [(at, data)]
        self._held.append((at, data))
        self.held += len(data)
        return self._clear(self.held - self._finds.longest) if self.held >= self._look_at else []

    def close(self) -> list[tuple[float, bytes]]:
        """Those that are left."""
        return self._clear(self.held) if self._held else []

    def _clear(self, until: int) -> list[tuple[float, bytes]]:
        """Release the chunks that end here or before. A secret that begins there is whole in what is held."""
        text = b"".join(data for _, data in self._held).decode("latin-1")
        spans = self._finds.spans(text)
        if self._hidden:
            spans = _with_rest(spans, self._hidden)
        released, begin, number = list[tuple[float, bytes]](), 0, 0
        waiting = deque(spans)
        for at, data in self._held:
            end = begin + len(data)
            if end > until:
                break
            inside = list[tuple[int, int]]()
            while waiting and waiting[0][0] < end:
                inside.append(waiting[0])
                if waiting[0][1] > end:
                    break  # it goes on in the next chunk
                waiting.popleft()
            if shown := _without(text, begin, end, inside) if inside else data:
                released.append((at, shown))
            begin, number = end, number + 1
        self._hidden = waiting[0][1] - begin if waiting and waiting[0][0] < begin else 0
        del self._held[:number]
        self.held -= begin
        self._look_at = self.held + self._finds.longest + _PATIENCE
        return released


def _with_rest(spans: list[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """The spans behind one that began before the text and ends here; what overlaps it is part of it."""
    following = deque(spans)
    while following and following[0][0] < end:
        end = max(end, following.popleft()[1])
    return [(-1, end), *following]


def _without(text: str, begin: int, end: int, spans: list[tuple[int, int]]) -> bytes:
    """The part of the text between these places, `[key]` where a secret begins in it."""
    pieces, done = [], begin
    for first, last in spans:
        pieces.append(text[done : max(done, first)])
        pieces.append(_KEY if first >= begin else "")
        done = min(max(done, last), end)
    return "".join([*pieces, text[done:end]]).encode("latin-1")
