"""Changes to an input that keep most of its form, so that it passes the first checks.

The caller makes the random choices: Hypothesis draws (and shrinks) them, the guided fuzzer uses random
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tests.fuzz.core import MAX_BYTES, Target

Pick = Callable[[int], int]
"""Returns a number from 0 up to, but not including, the given one."""

JSON_WORDS: Final = (
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1e999",
    b"1" + b"0" * 400,
    b"9223372036854775808",
    b"1.5",
    b"NaN",
    b"[]",
    b"{}",
    b'""',
    b'"\\ud83d"',
    b'"\\u0000"',
    b'"\xff"',
    b'"' + b"9" * 5_000 + b'"',
    b'"' + b" " * 300 + b'"',
    b"[" * 600,
    b'{"a":' * 600,
    b'{"type":"text","text":"x"}',
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\n\n",
)
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?[0-9][0-9.eE+-]*|true|false|null|[\[\]{}:,]|\n+|[^\s"]')
_TIMES: Final = (2, 3, 50, 400)


KINDS: Final = (
    None,
    True,
    -1,
    1.5,
    "",
    "x",
    [],
    {},
    [[]],
    [{}],
    [1],
    {"x": []},
    {"type": []},
    {"type": "x", "name": []},
)
"""A value of each kind, to replace a value of another kind."""


def of_wrong_kinds(value: Any) -> Iterator[Any]:
    """Yield a JSON value once for each of its fields or entries, with that one left out or replaced by
    another kind."""
    if isinstance(value, dict):
        for name, each in value.items():
            rest = {key: other for key, other in value.items() if key != name}
            yield rest
            for changed in (*KINDS, *of_wrong_kinds(each)):
                yield {**rest, name: changed}
    elif isinstance(value, list):
        for at, each in enumerate(value):
            for changed in (*KINDS, *of_wrong_kinds(each)):
                yield [*value[:at], changed, *value[at + 1 :]]


def mutated(data: bytes, target: Target, pick: Pick) -> bytes:
    """The input after one change."""
    words = (*JSON_WORDS, *target.words)
    return _EDITS[pick(len(_EDITS))](data, pick, words, target.seeds)[:MAX_BYTES]


def _put_in(data: bytes, pick: Pick, words: Sequence[bytes], seeds: Sequence[bytes]) -> bytes:
    at = pick(len(data) + 1)
    return data[:at] + words[pick(len(words))] + data[at:]


def _overwrite(data: bytes, pick: Pick, words: Sequence[bytes], seeds: Sequence[bytes]) -> bytes:
    at = pick(len(data) + 1)
    return data[:at] + bytes([pick(256)]) + data[at + 1 :]


def _cut_out(data: bytes, pick: Pick, words: Sequence[bytes], seeds: Sequence[bytes]) -> bytes:
    first, last = sorted((pick(len(data) + 1), pick(len(data) + 1)))
    return data[:first] + data[last:]


def _repeat(data: bytes, pick: Pick, words: Sequence[bytes], seeds: Sequence[bytes]) -> bytes:
    """Repeat a stretch of lines, tokens or bytes many times, which reveals work that is not linear."""
    first, last = sorted((pick(len(data) + 1), pick(len(data) + 1)))
    if pick(2):  # whole lines
        first, last = data.rfind(b"\n", 0, first) + 1, data.find(b"\n", last) + 1 or len(data)
    piece = data[first:last]
    return data[:first] + piece * min(_TIMES[pick(len(_TIMES))], MAX_BYTES // (len(piece) or 1)) + data[last:]


def _end_here(data: bytes, pick: Pick, words: Sequence[bytes], seeds: Sequence[bytes]) -> bytes:
    return data[: pick(len(data) + 1)]


def _another_token(data: bytes, pick: Pick, words: Sequence[bytes], seeds: Sequence[bytes]) -> bytes:
    """Replace one of JSON's tokens by a word."""
    tokens = list(_TOKEN.finditer(data))
    if not tokens:
        return _put_in(data, pick, words, seeds)
    token = tokens[pick(len(tokens))]
    return data[: token.start()] + words[pick(len(words))] + data[token.end() :]


def _swap_tokens(data: bytes, pick: Pick, words: Sequence[bytes], seeds: Sequence[bytes]) -> bytes:
    """Replace one token, or one whole value, by another one."""
    tokens = list(_TOKEN.finditer(data))
    if not tokens:
        return data
    one, other = tokens[pick(len(tokens))], tokens[pick(len(tokens))]
    return data[: one.start()] + other.group() + data[one.end() :]


def _swap_lines(data: bytes, pick: Pick, words: Sequence[bytes], seeds: Sequence[bytes]) -> bytes:
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    one, other = pick(len(lines)), pick(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def _splice(data: bytes, pick: Pick, words: Sequence[bytes], seeds: Sequence[bytes]) -> bytes:
    other = seeds[pick(len(seeds))]
    return data[: pick(len(data) + 1)] + other[pick(len(other) + 1) :]


_EDITS: Final = (
    _another_token,
    _swap_tokens,
    _repeat,
    _swap_lines,
    _splice,
    _put_in,
    _cut_out,
    _end_here,
    _overwrite,
)
