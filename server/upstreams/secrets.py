"""What an upstream says, without the keys that it was sent: servers quote them in their errors.

This is against carelessness. An upstream that means to give its key away can write it in any form, and the
text of an answer is the model's: neither is looked at here.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

from server.config import expanded

_SIGN: Final = "[key]"
_SHORTEST: Final = 4  # characters: a shorter one is not secret and is part of many words
LONG: Final = 16  # from this length on, its other forms and large pieces of it are unmistakable
_LONGEST: Final = 1024  # the beginning of a longer one is looked for
_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_URL_SAFE: Final = str.maketrans("+/", "-_")
SECRET_NAMES: Final = ("auth", "key", "token", "secret", "cookie", "password", "credential")


class Secrets:
    """The secrets that a request carries. One of 16 characters or more is also found percent-encoded, in
    base64, in other letter case, and cut to two thirds."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        found = {secret[:_LONGEST] for secret in secrets if secret and len(secret) >= _SHORTEST}
        forms = {form for secret in found for form in _forms(secret)}
        self._forms = sorted(forms, key=lambda form: (-len(form), form))

    @property
    def longest(self) -> int:
        """The length of the longest form of one; 0 without secrets."""
        return max(map(len, self._forms), default=0)

    def out_of(self, text: str) -> str:
        """The text with `[key]` in their place."""
        for form in self._forms:
            text = text.replace(form, _SIGN) if len(form) < LONG else _without(text, form)
        return text

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where they are in the text, in order: those that overlap are one."""
        found: list[tuple[int, int]] = []
        for begin, end in sorted(span for form in self._forms for span in _spans(text, form)):
            if found and begin < found[-1][1]:
                found[-1] = found[-1][0], max(end, found[-1][1])
            else:
                found.append((begin, end))
        return found


def header_secrets(headers: Mapping[str, str]) -> list[str]:
    """What is secret in the configured headers: the values of those that are named for it or that hold a
    variable, whole and word by word (`Bearer …`)."""
    secret = [
        expanded(value)
        for name, value in headers.items()
        if "${" in value or any(word in name.lower() for word in SECRET_NAMES)
    ]
    return [*secret, *(word for value in secret for word in value.split() if len(word) >= LONG)]


def _forms(secret: str) -> list[str]:
    if len(secret) < LONG:
        return [secret]
    data = secret.encode("utf-8", "surrogateescape")
    encoded = [_in_base64(data, before) for before in range(3)]
    return [
        secret,
        quote(data),
        quote(data, safe=""),
        *encoded,
        *(each.translate(_URL_SAFE) for each in encoded),
    ]


def _in_base64(data: bytes, before: int) -> str:
    """The part of its base64 that is the same whatever stands around it, with `before` bytes of a group of
    three before it."""
    text = b64encode(bytes(before) + data).decode()
    return text[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]


def _spans(text: str, form: str) -> Iterator[tuple[int, int]]:
    if len(form) >= LONG:
        yield from _pieces(text, form)
        return
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + len(form))


def _without(text: str, secret: str) -> str:
    pieces, done = [], 0
    for begin, end in _pieces(text, secret):
        pieces += [text[done:begin], _SIGN]
        done = end
    return "".join([*pieces, text[done:]])


def _pieces(text: str, secret: str) -> Iterator[tuple[int, int]]:
    """Every piece of two thirds or more: each holds the middle third."""
    lowered, sought = text.translate(_LOWER), secret.translate(_LOWER)
    third, size = len(sought) // 3, len(sought)
    middle = sought[third : size - third]
    done = 0
    at = lowered.find(middle)
    while at >= 0:
        begin, end = at, at + len(middle)
        while begin > done and begin > at - third and lowered[begin - 1] == sought[third - 1 - (at - begin)]:
            begin -= 1
        while end < len(lowered) and end - at < size - third and lowered[end] == sought[third + end - at]:
            end += 1
        if end - begin >= size - third:
            yield begin, end
            done = end
        at = lowered.find(middle, max(done, at + 1))
