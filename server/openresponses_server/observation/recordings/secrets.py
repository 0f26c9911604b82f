"""What an upstream says, without the keys that it was sent: servers quote them in their errors.

This is against carelessness. An upstream that means to give its key away can write it in any form, and the
text of an answer is the model's: neither is looked at here.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from heapq import merge
from typing import Any, Final
from urllib.parse import quote

from openresponses_server.observation.recordings.secret_pieces import Pieces, add, automaton, hits
from openresponses_server.settings.files import expanded

_SIGN: Final = "[key]"
_SHORTEST: Final = 4  # characters: a shorter one is not secret and is part of many words
LONG: Final = 16  # from this length on, its other forms and large pieces of it are unmistakable
_LONGEST: Final = 1024  # the beginning of a longer one is looked for
# letter case does not count, nor which of its two alphabets base64 is in
_ALIKE: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)} | str.maketrans("-_", "+/")
_MANY: Final = 512  # characters of all
_BLOCK: Final = 64 * 1024  # characters between which other threads have their turn
SECRET_NAMES: Final = ("auth", "key", "token", "secret", "cookie", "password", "credential")


class Secrets:
    """The secrets that a request carries. One of 16 characters or more is also found percent-encoded, in
    base64, in other letter case, and cut to two thirds. Looking for them takes time that is linear in the
    text, however many there are."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        found = {secret[:_LONGEST] for secret in secrets if secret and len(secret) >= _SHORTEST}
        self._short = {secret for secret in found if len(secret) < LONG}
        self._long = {form.translate(_ALIKE) for secret in found - self._short for form in _forms(secret)}
        self.longest = max(map(len, self._short | self._long), default=0)
        """The length of the longest form of one; 0 without secrets."""
        self.size = sum(map(len, found))
        """How many characters they have."""
        self._whole: Any = None
        self._pieces: Pieces | None = None

    @property
    def are_many(self) -> bool:
        """What they are found with takes longer to make than the event loop should wait."""
        return self.size > _MANY

    def make_ready(self) -> None:
        """Make what they are found with: many are made ready on a thread, few when the first shows."""
        if self.are_many and self._long:
            self._in_pieces().make_ready()

    def _in_pieces(self) -> Pieces:
        self._pieces = self._pieces or Pieces(sorted(self._long))
        return self._pieces

    def out_of(self, text: str) -> str:
        """The text with `[key]` in their place."""
        pieces, done = [], 0
        for begin, end in self.spans(text):
            pieces += [text[done:begin], _SIGN]
            done = end
        return "".join([*pieces, text[done:]])

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where they are in the text, in order: those that overlap are one."""
        short = list[tuple[int, int]]()
        if self._short and text:
            self._whole = self._whole or automaton(self._short)
            for end, size in hits(self._whole, text):
                add(short, end - size, end)
        long = self._in_pieces().spans(_alike(text)) if self._long and text else []
        if not short or not long:
            return short or long
        found = list[tuple[int, int]]()
        for begin, end in merge(short, long):
            if found and begin < found[-1][1]:
                found[-1] = found[-1][0], max(end, found[-1][1])
            else:
                found.append((begin, end))
        return found


def _alike(text: str) -> str:
    starts = range(0, len(text), _BLOCK)
    return "".join(text[start : start + _BLOCK].translate(_ALIKE) for start in starts)


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
    data = secret.encode("utf-8", "surrogateescape")
    return [
        secret,
        quote(data),
        quote(data, safe=""),
        *(_in_base64(data, before) for before in range(3)),
    ]


def _in_base64(data: bytes, before: int) -> str:
    """The part of its base64 that is the same whatever stands around it, with `before` bytes of a group of
    three before it."""
    text = b64encode(bytes(before) + data).decode()
    return text[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
