"""What models can do: the config's word first, then what upstreams report, then a table that ships with the
server."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Final

import msgspec

from openresponses_bridge.models.identity import nearest_model
from openresponses_server.settings import Capabilities
from openresponses_server.upstreams.reported import ReportedModel

_FILE: Final = "models.toml"
_WILD: Final = "*?["
_NOTHING: Final = Capabilities()
_MOST_NAMES: Final = 4096  # whose capabilities are kept


class Catalog:
    """The capabilities of all models. `report` brings in what an upstream lists, by its name."""

    def __init__(self, configured: Mapping[str, Capabilities]) -> None:
        self._configured = configured
        self._reported: dict[str, dict[str, ReportedModel]] = {}
        self._found: dict[tuple[str, str], Capabilities] = {}
        self.version = 0
        """Rises when something else is known."""

    def report(self, upstream: str, models: Iterable[ReportedModel]) -> None:
        """All models that this upstream lists now."""
        self._reported[upstream] = {model.id: model for model in models}
        self._found.clear()
        self.version += 1

    def listed(self, upstream: str) -> Mapping[str, ReportedModel]:
        """What it listed last, by name."""
        return self._reported.get(upstream, {})

    def capabilities(self, upstream: str, model: str) -> Capabilities:
        """What is known of a model of this upstream, field by field; `model` is the name that goes out."""
        found = self._found.get((upstream, model))
        if found is None:
            reported = self.listed(upstream).get(model)
            found = capabilities_of(model, self._configured, _NOTHING if reported is None else reported.known)
            if len(self._found) >= _MOST_NAMES:
                self._found.clear()
            self._found[upstream, model] = found
        return found


def capabilities_of(
    model: str, configured: Mapping[str, Capabilities], reported: Capabilities = _NOTHING
) -> Capabilities:
    """What is known of a model, field by field. In the config `vendor/model` and `model:tag` are known as
    `model` is; in the table that ships with the server models are known by any name (see
    `openresponses_bridge.models.identity`), a new one as the newest of its family."""
    found = _NOTHING
    for name in dict.fromkeys((model, bare_name(model))):
        pattern = best_match(name, configured)
        if pattern is not None:
            found = _filled(found, configured[pattern])
    found = _filled(found, reported)
    shipped = _shipped()
    known = nearest_model(model, shipped)
    if known is not None:
        found = _filled(found, shipped[known])
    return found


def best_match(name: str, patterns: Iterable[str]) -> str | None:
    """The pattern for a name: itself, else the longest with wildcards that fits."""
    fitting = [pattern for pattern in patterns if pattern == name or _fits(name, pattern)]
    return max(fitting, key=lambda pattern: (pattern == name, len(pattern)), default=None)


def is_pattern(text: str) -> bool:
    """Whether it stands for more than one name."""
    return any(sign in text for sign in _WILD)


def bare_name(model: str) -> str:
    """A model's name without the vendor before it and the tag behind it."""
    return model.rpartition("/")[2].partition(":")[0]


def _fits(name: str, pattern: str) -> bool:
    return is_pattern(pattern) and fnmatchcase(name, pattern)


def _filled(known: Capabilities, more: Capabilities) -> Capabilities:
    """`known` with what `more` has beyond it."""
    names = Capabilities.__struct_fields__
    added = {name: getattr(more, name) for name in names if getattr(known, name) is None}
    return msgspec.structs.replace(known, **added)


@cache
def _shipped() -> dict[str, Capabilities]:
    text = resources.files(__package__).joinpath(_FILE).read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Capabilities])
