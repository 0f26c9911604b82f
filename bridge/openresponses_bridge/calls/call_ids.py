"""Call ids in the form that a server accepts, for calls and their outputs alike."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Final

from openresponses_bridge.diagnostics import Diagnostics
from openresponses_bridge.protocol.ids import LONGEST_ID, TOO_LONG, accepted_call_id

_FORM: Final = re.compile(r"\[(?P<characters>[!-Z_-~]+)\]\{(?P<length>[1-9]\d?)\}")


class CallIdForm:
    """The form of all call ids of a server: their characters and length, such as `[a-zA-Z0-9]{9}`. Raises
    ValueError for another text."""

    def __init__(self, form: str) -> None:
        match = _FORM.fullmatch(form)
        if match is None or not (alphabet := _expanded(match["characters"])):
            raise ValueError(f"{form[:64]!r} is not of the form [a-zA-Z0-9]{{9}}")
        self._alphabet = alphabet
        self._characters = frozenset(alphabet)
        self._length = int(match["length"])

    def accepted(self, call_id: str) -> str:
        """Return the id if it has this form, else one that is always the same for it."""
        if len(call_id) == self._length and self._characters.issuperset(call_id):
            return call_id
        rest = int.from_bytes(sha256(call_id.encode("utf-8", "surrogatepass")).digest())
        new_id = ""
        for _ in range(self._length):
            rest, index = divmod(rest, len(self._alphabet))
            new_id += self._alphabet[index]
        return new_id


def _expanded(characters: str) -> str:
    """Return the characters of a class such as `a-zA-Z0-9_`."""
    result, at = "", 0
    while at < len(characters):
        if characters[at + 1 : at + 2] == "-" and at + 2 < len(characters):
            result += "".join(map(chr, range(ord(characters[at]), ord(characters[at + 2]) + 1)))
            at += 3
        else:
            result += characters[at]
            at += 1
    return result


@lru_cache(maxsize=64)
def call_id_form(form: str) -> CallIdForm:
    """Return the `CallIdForm` of this text, made once for each. Raises ValueError."""
    return CallIdForm(form)


def sent_call_id(call_id: str, form: CallIdForm | None, diagnostics: Diagnostics, where: str) -> str:
    """Return the id for a server that accepts this form, or any short id if there is none; a change is a
    repair."""
    sent = accepted_call_id(call_id) if form is None else form.accepted(call_id)
    if sent != call_id:
        why = TOO_LONG if len(call_id) > LONGEST_ID else "not of the form that the upstream accepts, replaced"
        diagnostics.repair(f"{where}.call_id", why)
    return sent
