"""Reads a client's JSON; errors name the field that is missing or has another type."""

from __future__ import annotations

import re
from collections.abc import Iterator, KeysView, Mapping
from typing import Any, Final, TypeVar

from openresponses_bridge.dialects.base.failures import LONGEST_NAME
from openresponses_bridge.errors import InvalidRequestError
from openresponses_bridge.protocol.codec import request_object

T = TypeVar("T")

_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.:-]")
_HEAD: Final = re.compile(r"data:(?P<media>[\w.+/-]*)(?:;[^,;]*)*?(?P<base64>;base64)?")
"""Matches what is before the comma of a data URL."""
_LONGEST_HEAD: Final = 1024
_MEDIA_TYPE: Final = re.compile(r"[\w.+/-]*(?:;[^,;]*)*")
_SOUND: Final = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")
_SAME_MEDIA: Final = {"image/jpg": "image/jpeg"}
_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
    list: "an array",
    dict: "an object",
}


DIALECT_SLUGS: Final = ("anthropic:", "bedrock:", "codex:", "gemini:", "interactions:")
"""The prefixes in the types of items and tools that only the servers of one dialect know."""


def invalid(param: str, message: str, code: str = InvalidRequestError.INVALID_VALUE) -> InvalidRequestError:
    """Return the error for a field of the request."""
    return InvalidRequestError(code, f"{param}: {message}", param=param)


def data_of(url: str, param: str) -> tuple[str, str]:
    """Return (media type, data in base64) of a data URL; the media type is "" if it names none. Raises
    InvalidRequestError for a URL without data in base64."""
    head, _, data = url.partition(",")
    match = _HEAD.fullmatch(head) if len(head) <= _LONGEST_HEAD else None
    if match is None or not match["base64"] or not data:
        raise invalid(param, "not a data URL with base64 data")
    media = match["media"].lower()
    return _SAME_MEDIA.get(media, media), data


def data_url(media: str, data: str, media_param: str, data_param: str) -> str:
    """Return the data URL of this data in base64. Raises InvalidRequestError, with one of the paths, for a
    media type that a URL can't have, and for empty data."""
    if len(media) > _LONGEST_HEAD - len("data:;base64") or not _MEDIA_TYPE.fullmatch(media):
        raise invalid(media_param, "is not a media type")
    if not data:
        raise invalid(data_param, "is empty")
    return f"data:{media};base64,{data}"


def extension(slug: str, name: str) -> str:
    """Return `slug:name`, the type of an extension's item. Characters that a type must not have become `_`,
    since an upstream's words can be anything."""
    return f"{slug}{_NOT_IN_A_NAME.sub('_', name) or 'unknown'}"


def typed(value: Any, param: str, *kinds: type[T]) -> T | None:
    """Return a field's value, which must be of one of these types; None if it is null or absent."""
    if float in kinds and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            raise invalid(param, "the number is too large") from None
    if value is None or (isinstance(value, kinds) and (type(value) is not bool or bool in kinds)):
        return value
    raise invalid(param, f"expected {' or '.join(_NAMES[kind] for kind in kinds)}")


def number_of(value: Any) -> float | None:
    """Return a foreign number as a number; None for anything else, and for one with too many digits."""
    if type(value) not in (int, float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def object_of(body: bytes | str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a request as an object. Raises InvalidRequestError (`invalid_json`)."""
    return dict(body) if isinstance(body, Mapping) else request_object(body)


class Fields:
    """One object and its path. Fields that were not read are listed in `unread`."""

    def __init__(self, value: Mapping[str, Any], param: str = "") -> None:
        self._value = value
        self._read: set[str] = set()
        self._within: list[Fields] = []
        self.param = param

    def __contains__(self, name: str) -> bool:
        return self._value.get(name) is not None

    def equals(self, name: str, value: object) -> bool:
        """Return True if the field has exactly this value. Does not count as reading it."""
        return bool(self._value.get(name) == value)

    def at(self, name: str) -> str:
        """Return the path of a field, such as `messages[0].role`."""
        return f"{self.param}.{name}" if self.param else name

    @property
    def names(self) -> KeysView[str]:
        """The names of all fields, null or not. They do not count as read."""
        return self._value.keys()

    def raw(self, name: str) -> Any:
        """Return a field as it was received, of any type; None if it is absent."""
        self._read.add(name)
        return self._value.get(name)

    def get(self, name: str, kind: type[T]) -> T | None:
        """Return a field that may be absent or null."""
        self._read.add(name)
        value = self._value.get(name)
        if value is None or type(value) is kind:
            return value
        return typed(value, self.at(name), kind)

    def need(self, name: str, kind: type[T]) -> T:
        """Return a field that must exist."""
        value = self.get(name, kind)
        if value is None:
            raise invalid(self.at(name), "is required")
        return value

    def either(self, name: str, *kinds: type[Any]) -> Any:
        """Return a field of one of several types; None if it is absent."""
        self._read.add(name)
        value = self._value.get(name)
        return value if value is None else typed(value, self.at(name), *kinds)

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """Return a field that is one of these texts; None if it is absent."""
        value = self.get(name, str)
        if value is None or value in allowed:
            return value
        raise invalid(self.at(name), f"expected one of {', '.join(allowed)}")

    def inner(self, name: str) -> Fields:
        """Return an object that must exist."""
        return self._child(self.need(name, dict), self.at(name))

    def maybe_inner(self, name: str) -> Fields | None:
        """Return an object that may be absent."""
        return self.inner(name) if name in self else None

    def each(self, name: str) -> Iterator[Fields]:
        """Yield the objects of an array; none if it is absent."""
        place = self.at(name)
        for index, value in enumerate(self.get(name, list) or ()):
            where = f"{place}[{index}]"
            if not isinstance(value, dict):
                raise invalid(where, "expected an object")
            yield self._child(value, where)

    def _child(self, value: dict[str, Any], where: str) -> Fields:
        child = Fields(value, where)
        self._within.append(child)
        return child

    def whole(self) -> dict[str, Any]:
        """Return all fields as they were received. They count as read."""
        self._read.update(self._value)
        return dict(self._value)

    def skip(self, *names: str) -> None:
        """Count fields as read that mean nothing here."""
        self._read.update(names)

    def rest(self) -> dict[str, Any]:
        """Return the fields that were not read and are not empty. They count as read from now on."""
        silent: tuple[Any, ...] = (None, [], {})
        left = {name: value for name, value in self._value.items() if name not in self._read}
        self._read.update(left)
        return {name: value for name, value in left.items() if value not in silent}

    @property
    def unread_here(self) -> list[str]:
        """The paths of this object's fields that were not read and are not empty."""
        silent: tuple[Any, ...] = (None, [], {})
        names = (name for name in self._value if name not in self._read)
        return [self.at(name[:LONGEST_NAME]) for name in names if self._value[name] not in silent]

    @property
    def unread(self) -> list[str]:
        """The paths of the fields of this object, and of the objects within it, that were not read and are
        not empty."""
        return [*self.unread_here, *(where for child in self._within for where in child.unread)]


def sound_format(sound: Fields) -> str:
    """Return the `format` of a sound, a subtype of `audio/`, in lower case; `wav` if it has none. Raises
    InvalidRequestError with its path for a format that is not a subtype."""
    kind = (sound.get("format", str) or "wav").lower()
    if not _SOUND.fullmatch(kind):
        raise invalid(sound.at("format"), "expected a format as wav or mp3")
    return kind


def body_of(body: bytes | str | Mapping[str, Any]) -> Fields:
    """The body of a request. Raises InvalidRequestError (`invalid_json`, `invalid_value`)."""
    return Fields(object_of(body))
