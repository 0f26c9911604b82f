"""Masks secrets in recordings: credentials in headers, addresses and bodies, and keys that an upstream
repeats, even if they are split between chunks. The texts of users and models are kept, since a recording is
for them.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import accumulate, chain, islice
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote, urlsplit

import msgspec

from openresponses_bridge.dialects.anthropic_messages.carried import carried_by
from openresponses_bridge.errors import WireError
from openresponses_bridge.protocol.codec import decode_json, encode, with_whole_characters
from openresponses_bridge.protocol.input_items import AdditionalTools, ToolSearchOutputParam
from openresponses_bridge.protocol.request import CreateResponse
from openresponses_bridge.protocol.secrets import (
    SECRET_WORDS,
    NamedField,
    origin_of,
    request_without_secrets,
)
from openresponses_server.settings.files import expanded

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
# words for fields without other texts: in a body, a `key` or a `token` is often something else
_HEADER_WORDS: Final = f"{SECRET_WORDS}|key|token|auth"
_PARAMETER_WORDS: Final = f"{_HEADER_WORDS}|sig|pass|cred|code"
_SECRET_HEADER: Final = re.compile(_HEADER_WORDS)
_SECRET_PARAMETER: Final = re.compile(_PARAMETER_WORDS)
_ADDRESS: Final = ("http://", "https://", "ws://", "wss://")
_LONGEST_SCHEME: Final = 8  # characters, including what follows the scheme
MOST_SECRETS: Final = 256
"""The most secrets of one request that are searched for in its traffic."""
MOST_CHARACTERS: Final = 8192
"""The most characters of all of them: the automaton needs some kilobytes for each."""
_HELD_BYTES: Final = 4096  # bytes that are held and searched together


class Finds(Protocol):
    """Finds secrets in a text: the start and end of each, in order. None is longer than `longest`."""

    @property
    def longest(self) -> int: ...

    def spans(self, text: str) -> list[tuple[int, int]]: ...


def masked_headers(headers: Mapping[str, str], *, drop: bool = False) -> dict[str, str]:
    """Return the headers; those that are not known to be harmless are masked, or dropped."""
    result = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower in _SHOWN_HEADERS or _RATE_LIMITS.fullmatch(lower):
            result[lower] = value
        elif not drop:
            result[lower] = MASK
    return result


def masked_body(body: bytes, finds: Finds) -> msgspec.Raw | None:
    """Return a JSON body without its secrets: the values of fields with names of secrets, secrets in
    addresses, and those that `finds` knows. Lone surrogates are replaced, since no reader of records accepts
    them. None if the body is not JSON."""
    try:
        shown = encode(with_whole_characters(masked_value(decode_json(body)))).decode()
    except (WireError, RecursionError, UnicodeError, msgspec.MsgspecError):
        return None
    return msgspec.Raw(without(shown, finds).encode())


def masked_value(value: Any, name: str = "") -> Any:
    """Return the JSON value of the field of this name, with the values of fields with secret names masked."""
    return _masked(value, NamedField(name, value))


def _masked(value: Any, named: NamedField) -> Any:
    if isinstance(value, str):
        if named.secret:
            return MASK
        if named.server:
            return _masked_server(value)
        return masked_address(value) if _is_address(value) else value
    if isinstance(value, list):
        return [_masked(each, named) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _masked(each, named.under(key, each, value)) for key, each in value.items()}


def hidden_in(value: Any, name: str = "") -> Iterator[str]:
    """Yield the texts that `masked_value` masks in the JSON value of the field of this name."""
    return _hidden(value, NamedField(name, value))


def hidden_in_body(body: bytes, most: int) -> list[str]:
    """Return the first texts that `masked_body` masks in a JSON body; none if it is not JSON."""
    try:
        return list(islice(hidden_in(decode_json(body)), most))
    except (WireError, RecursionError):
        return []


def searched(hidden: Iterable[str]) -> list[str]:
    """Return the first of these texts: as many as are searched for in the traffic of a request."""
    texts = list(dict.fromkeys(hidden))[:MOST_SECRETS]
    sizes = accumulate(min(len(each), _LONGEST) for each in texts)
    return [each for each, size in zip(texts, sizes, strict=True) if size <= MOST_CHARACTERS]


def without_secrets_of(request: CreateResponse, text: str) -> str:
    """Return an upstream's text, with `[key]` for each secret that the client gave with its tools. They are
    found as they are and as JSON, in linear time. If there are too many, nothing of the text is shown."""
    own = carried_by(request).body
    if request_without_secrets(request) is request and not own:
        return text
    items = request.input if isinstance(request.input, list) else ()
    brought = (item.tools for item in items if isinstance(item, AdditionalTools | ToolSearchOutputParam))
    tools = decode_json(encode([*(request.tools or ()), *chain.from_iterable(brought)]))
    more = [own, *(each.fields for each in request.beyond or ())]
    secrets = set(islice(hidden_in([*tools, *more]), MOST_SECRETS + 1))
    if len(secrets) > MOST_SECRETS:
        return MASK
    spelt = {form for secret in secrets if len(secret) >= _SHORTEST for form in _spellings(secret)}
    for secret in sorted(spelt, key=len, reverse=True):
        text = text.replace(secret, _KEY)
    return text


def _hidden(value: Any, named: NamedField) -> Iterator[str]:
    if isinstance(value, str):
        if named.secret:
            yield value.partition(" ")[2] or value  # a key after its scheme
        elif named.server:
            yield from _hidden_in_server(value)
        elif _is_address(value):
            yield from _hidden_in_address(value)
    elif isinstance(value, list):
        for each in value:
            yield from _hidden(each, named)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _hidden(each, named.under(key, each, value))


def _is_address(text: str) -> bool:
    return text[:_LONGEST_SCHEME].lower().startswith(_ADDRESS)


def _masked_server(url: str) -> str:
    """Return only the origin of the address of an MCP server."""
    origin = origin_of(url)
    if origin is None:
        return MASK
    parts = urlsplit(url)
    scheme, separator, host = origin.partition("://")
    user = f"{MASK}@" if "@" in parts.netloc else ""
    is_origin = parts.path in ("", "/") and not parts.query and not parts.fragment
    return f"{scheme}{separator}{user}{host}{parts.path if is_origin else f'/{MASK}'}"


def _hidden_in_server(url: str) -> Iterator[str]:
    """Yield the secrets in the address of an MCP server; a short part of its path is a word."""
    yield from _hidden_in_address(url)
    if origin_of(url) is None:
        yield url
        return
    parts = urlsplit(url)
    values = (parameter.partition("=")[2] for parameter in parts.query.split("&"))
    yield from (each for each in (*parts.path.split("/"), *values, parts.fragment) if len(each) >= LONG)


def _names(pattern: re.Pattern[str], name: str) -> bool:
    return pattern.search(name.lower().replace("-", "_")) is not None


def _hidden_in_address(url: str) -> Iterator[str]:
    address, _, query = url.partition("?")
    host = address.partition("://")[2].partition("/")[0]
    if "@" in host:
        yield host.rpartition("@")[0].partition(":")[2] or host.rpartition("@")[0]
    for parameter in query.split("&"):
        if _masked_parameter(parameter) != parameter:
            yield parameter.partition("=")[2]


def masked_address(url: str) -> str:
    """Return the address without its password and the secrets in its query."""
    before, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    if "@" in host:
        host = f"{MASK}@{host.rpartition('@')[2]}"
    shown = f"{before}{separator}{host}{slash}{path}"
    address, question, query = shown.partition("?")
    return address if not question else f"{address}?{'&'.join(map(_masked_parameter, query.split('&')))}"


def _masked_parameter(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    return f"{name}={MASK}" if equals and _names(_SECRET_PARAMETER, unquote(name)) else parameter


def without(text: str, finds: Finds) -> str:
    """Return the text with `[key]` for each secret in it."""
    pieces, done = [], 0
    for begin, end in finds.spans(text):
        pieces += [text[done:begin], _KEY]
        done = end
    return "".join([*pieces, text[done:]])


class StreamMask:
    """Masks secrets in a stream and keeps its division into chunks. A secret over several chunks becomes
    `[key]` in the first of them. Chunks are held until no secret can begin in them. Each byte is read only a
    few times."""

    def __init__(self, finds: Finds) -> None:
        self._finds = finds
        self._held: list[tuple[float, bytes]] = []
        self.held = 0
        """The number of held bytes."""
        self._look_at = finds.longest + _HELD_BYTES
        self._hidden = 0
        """The number of held bytes that belong to a secret whose beginning was released."""

    def feed(self, at: float, data: bytes) -> list[tuple[float, bytes]]:
        """Add a chunk. Returns the chunks that can be released, each with its time."""
        if not self._finds.longest:
            return [(at, data)]
        self._held.append((at, data))
        self.held += len(data)
        return self._clear(self.held - self._finds.longest) if self.held >= self._look_at else []

    def close(self) -> list[tuple[float, bytes]]:
        """Return the remaining chunks."""
        return self._clear(self.held) if self._held else []

    def _clear(self, until: int) -> list[tuple[float, bytes]]:
        """Release the chunks that end at this position or before it. Every secret that begins in them is
        complete in the held bytes."""
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
                    break  # it continues in the next chunk
                waiting.popleft()
            if shown := _without(text, begin, end, inside) if inside else data:
                released.append((at, shown))
            begin, number = end, number + 1
        self._hidden = waiting[0][1] - begin if waiting and waiting[0][0] < begin else 0
        del self._held[:number]
        self.held -= begin
        self._look_at = self.held + self._finds.longest + _HELD_BYTES
        return released


def _with_rest(spans: list[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """Return the spans after one that began before the text and ends at this position; spans that overlap it
    become part of it."""
    following = deque(spans)
    while following and following[0][0] < end:
        end = max(end, following.popleft()[1])
    return [(-1, end), *following]


def _without(text: str, begin: int, end: int, spans: list[tuple[int, int]]) -> bytes:
    """Return the text between these places with `[key]` for each secret that begins in it."""
    pieces, done = [], begin
    for first, last in spans:
        pieces.append(text[done : max(done, first)])
        pieces.append(_KEY if first >= begin else "")
        done = min(max(done, last), end)
    return "".join([*pieces, text[done:end]]).encode("latin-1")


# Finds large pieces of many strings in a text, in linear time whatever the strings are. An Aho-Corasick
# automaton in C searches for six characters from the middle of each string, which almost no text contains.
# Where it finds them, a suffix automaton of all strings (Blumer et al., 1985) returns for each character the
# longest piece of any string that ends there. It reads a character once, however many hits are near.

_ANCHOR: Final = 6  # characters: the middle third of the shortest string that is found in pieces
_BLOCK: Final = 64 * 1024  # characters after which other threads get their turn
Span = tuple[int, int]


class Pieces:
    """Finds pieces of `strings`, each of at least 16 characters. A piece has at least two thirds of its
    string's length."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = strings
        self._anchors = Automaton({each[len(each) // 3 :][:_ANCHOR] for each in strings})
        self._reach = max(len(each) // 3 for each in strings)
        """How far before its middle third a piece may begin, in characters."""
        self._suffixes: _Suffixes | None = None
        self.read = 0
        """The number of characters that the suffix automaton has read."""

    def make_ready(self) -> None:
        """Build the suffix automaton now instead of at the first hit. This takes some microseconds per
        character."""
        self._suffixes = self._suffixes or _Suffixes(self._strings)

    def spans(self, text: str) -> list[Span]:
        """Return the spans of all pieces in the text, in order; overlapping ones are merged."""
        matches: list[Span] = []
        at = 0
        for end, _ in self._anchors.hits(text):
            if end <= at:
                continue  # no piece that includes this hit ends after what was read
            self.make_ready()
            assert self._suffixes is not None
            if (begin := end - _ANCHOR - self._reach) > at:
                self._suffixes.reset()
                at = begin
            began, at = at, self._suffixes.read(text, at, end, matches)
            self.read += at - began
        return matches


class Automaton:
    """Finds strings in a text."""

    def __init__(self, strings: Iterable[str]) -> None:
        import ahocorasick  # so that a server that never searches does not load it

        self._made: Any = ahocorasick.Automaton()
        self._longest = 0
        for each in strings:
            self._made.add_word(each, len(each))
            self._longest = max(self._longest, len(each))
        self._made.make_automaton()

    def hits(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the end and size of each hit, in order; of several with the same end, the longest."""
        for start in range(0, len(text), _BLOCK):
            # An iterator for each block, which begins with the end of the previous one: if `set` gives an
            # iterator another text, it frees memory that is not its own when a character is beyond U+FFFF.
            begin, previous = max(0, start - self._longest), start
            for last, size in self._made.iter(text[begin : start + _BLOCK]):
                end = begin + last + 1
                if end > previous:
                    previous = end
                    yield end, size


def add(spans: list[Span], begin: int, end: int) -> None:
    """Add a span that ends after all others; overlapping spans are merged."""
    while spans and spans[-1][1] > begin:
        begin = min(begin, spans.pop()[0])
    spans.append((begin, end))


class _Suffixes:
    """Finds large pieces of the strings in a text, character by character."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._next: list[dict[str | int, int]] = [{}]
        self._link = [-1]
        self._size = [0]
        self._least = [_NONE]
        """For each state: the minimum size of a piece, two thirds of the shortest string that has the state's
        pieces."""
        last = 0
        for number, each in enumerate(strings):
            last = self._append(number, last)  # no text has it, so that no piece spans two strings
            for character in each:
                last = self._append(character, last)
                self._least[last] = len(each) - len(each) // 3
        self._beyond = [0] * len(self._size)
        """For each state: the size of the longest large piece that is a suffix of the state's pieces."""
        by_size = sorted(range(1, len(self._size)), key=self._size.__getitem__)
        for state in reversed(by_size):
            link = self._link[state]
            self._least[link] = min(self._least[link], self._least[state])
        self._least[0] = _NONE
        for state in by_size:
            link = self._link[state]
            is_large = self._least[link] <= self._size[link]
            self._beyond[state] = self._size[link] if is_large else self._beyond[link]
        self.reset()

    def reset(self) -> None:
        """Begin again: the next character is the first."""
        self._state = self._matched = 0

    def read(self, text: str, at: int, end: int, spans: list[Span]) -> int:
        """Read up to `end`, and further while a piece may continue. Returns the end. The pieces are added to
        `spans`."""
        state, matched = self._state, self._matched
        while at < len(text) and (at < end or matched >= _ANCHOR):
            character = text[at]
            at += 1
            following = self._next[state].get(character)
            while following is None and state:
                state = self._link[state]
                matched = self._size[state]
                following = self._next[state].get(character)
            if following is None:
                continue  # no string contains it
            state, matched = following, matched + 1
            if size := matched if matched >= self._least[state] else self._beyond[state]:
                add(spans, at - size, at)
        self._state, self._matched = state, matched
        return at

    def _append(self, character: str | int, last: int) -> int:
        new = self._state_of({}, self._size[last] + 1)
        before = last
        while before >= 0 and character not in self._next[before]:
            self._next[before][character] = new
            before = self._link[before]
        if before < 0:
            self._link[new] = 0
            return new
        following = self._next[before][character]
        if self._size[following] == self._size[before] + 1:
            self._link[new] = following
            return new
        copy = self._state_of(dict(self._next[following]), self._size[before] + 1)
        self._link[copy] = self._link[following]
        self._link[new] = self._link[following] = copy
        while before >= 0 and self._next[before].get(character) == following:
            self._next[before][character] = copy
            before = self._link[before]
        return new

    def _state_of(self, following: dict[str | int, int], size: int) -> int:
        self._next.append(following)
        self._link.append(0)
        self._size.append(size)
        self._least.append(_NONE)
        return len(self._size) - 1


_NONE: Final = 1 << 60


# Removes the keys that an upstream was sent from what it says: servers quote them in their errors. This is
# against carelessness. An upstream that means to reveal its key can write it in any form, and the text of an
# answer is the model's: neither is searched here.

_SHORTEST: Final = 4  # characters; a shorter one is not secret, and is part of many words
LONG: Final = 16  # from this length on, its other forms and large pieces of it can't be confused
_LONGEST: Final = 1024  # only the beginning of a longer one is searched for
# in any letter case, and in either alphabet of base64
_ALIKE: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)} | str.maketrans("-_", "+/")
_MANY: Final = 512  # characters of all secrets


class Secrets:
    """The secrets of a request. Those of 16 characters or more are also found percent-encoded, in base64, in
    other letter case, and cut to two thirds. A search takes linear time, however many secrets there are."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        eligible = {secret[:_LONGEST] for secret in secrets if secret and len(secret) >= _SHORTEST}
        short = {secret for secret in eligible if len(secret) < LONG}
        self._short = {form for secret in short for form in _spellings(secret)}
        self._long = {form.translate(_ALIKE) for secret in eligible - short for form in _forms(secret)}
        self.longest = max(map(len, self._short | self._long), default=0)
        """The length of the longest form of a secret; 0 if there are none."""
        self.size = sum(map(len, eligible))
        """The total number of characters."""
        self._whole: Automaton | None = None
        self._pieces: Pieces | None = None

    @property
    def are_many(self) -> bool:
        """True if building their automata takes longer than the event loop should wait."""
        return self.size > _MANY

    def make_ready(self) -> None:
        """Build the automata, on a thread if there are many secrets; for few, this is done at the first
        search."""
        if self.are_many and self._long:
            self._in_pieces().make_ready()

    def _in_pieces(self) -> Pieces:
        self._pieces = self._pieces or Pieces(sorted(self._long))
        return self._pieces

    def out_of(self, text: str) -> str:
        """The text with `[key]` for each secret in it."""
        return without(text, self)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of the secrets in the text, in order; overlapping ones are merged."""
        short = list[tuple[int, int]]()
        if self._short and text:
            self._whole = self._whole or Automaton(self._short)
            for end, size in self._whole.hits(text):
                add(short, end - size, end)
        long = self._in_pieces().spans(_alike(text)) if self._long and text else []
        if not short or not long:
            return short or long
        merged = list[tuple[int, int]]()
        for begin, end in merge(short, long):
            if merged and begin < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((begin, end))
        return merged


def _alike(text: str) -> str:
    starts = range(0, len(text), _BLOCK)
    return "".join(text[start : start + _BLOCK].translate(_ALIKE) for start in starts)


def header_secrets(headers: Mapping[str, str]) -> list[str]:
    """Return the secrets in the configured headers: values of headers that are named for secrets or that
    contain a variable, complete and word by word (`Bearer …`)."""
    secret = [
        expanded(value) for name, value in headers.items() if "${" in value or _names(_SECRET_HEADER, name)
    ]
    return [*secret, *(word for value in secret for word in value.split() if len(word) >= LONG)]


def _spellings(secret: str) -> list[str]:
    """Return the spellings of the secret in a text, in bytes that are read as Latin-1, and in JSON."""
    if secret.isascii() and secret.isalnum():
        return [secret]
    data = secret.encode("utf-8", "surrogateescape")
    return [secret, data.decode("latin-1"), json.dumps(secret)[1:-1]]


def _forms(secret: str) -> list[str]:
    data = secret.encode("utf-8", "surrogateescape")
    return [
        *_spellings(secret),
        quote(data),
        quote(data, safe=""),
        *(_in_base64(data, before) for before in range(3)),
    ]


def _in_base64(data: bytes, before: int) -> str:
    """Return the part of its base64 that does not depend on the text around it, if `before` bytes of its
    first group of three come before it."""
    text = b64encode(bytes(before) + data).decode()
    return text[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]


_SCHEMES: Final = frozenset({"bearer", "basic"})


def model_of(body: bytes) -> str:
    """The model that a request names, "" when it names none."""
    try:
        fields = decode_json(body)
    except WireError:
        return ""
    model = fields.get("model") if isinstance(fields, dict) else None
    return model if isinstance(model, str) else ""


def secrets_in(headers: Mapping[str, str]) -> list[str]:
    """Return the values of the headers that are not shown; keys without their scheme. A short value is a
    secret only in a header that is named for one, because it could be a word of the answer."""
    hidden = [
        headers[name]
        for name, shown in masked_headers(headers).items()
        if shown == MASK and (len(headers[name]) >= LONG or _names(_SECRET_HEADER, name))
    ]
    parts = (value.partition(" ") for value in hidden)
    return [key if scheme.lower() in _SCHEMES else scheme + space + key for scheme, space, key in parts]
