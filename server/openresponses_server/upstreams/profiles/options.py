"""The options of a dialect as files give them: what one server wants where servers of a dialect differ."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from openresponses_server.settings import SettingsError
from openresponses_server.settings.suggestions import did_you_mean


def options_of(kind: type[Struct], fields: dict[str, Any], whose: str = "") -> Struct:
    """These options. Raises SettingsError about `.options` and the one that is wrong; its message begins with
    `whose`."""
    unknown = sorted(fields.keys() - set(kind.__struct_fields__))
    if unknown:
        known = ", ".join(kind.__struct_fields__) + did_you_mean(unknown[0], kind.__struct_fields__)
        raise SettingsError(f"{whose}options.{unknown[0]} is not one of: {known}", f".options.{unknown[0]}")
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        message, _, at = str(error).partition(" - at `$")
        raise SettingsError(f"{whose}options: {message}", f".options{at.removesuffix('`')}") from error
