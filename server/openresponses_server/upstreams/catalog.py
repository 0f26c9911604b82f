"""The capabilities of models: from the config, else from upstreams' lists, else from a table that ships with
the server."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from openresponses_bridge.dialects.base import LEVELS
from openresponses_bridge.errors import WireError
from openresponses_bridge.models.identity import model_identity, nearest_model
from openresponses_bridge.protocol.codec import decode_json
from openresponses_server.settings import Capabilities, Price, SettingsError
from openresponses_server.settings.files import as_toml, converted, did_you_mean, located, read_config

# Servers' lists agree on `data[].id` and on little else: each has its own names for limits and abilities.
# Lists are untrusted, so values of unexpected types are ignored.

MOST_MODELS: Final = 10_000
"""The largest number of models read from one list."""
_LONGEST: Final = 200  # characters of a name
_MOST_TOKENS: Final = 10**9

_Path = tuple[str, ...]

# the fields of limits; the first that is a number of tokens counts
_LIMITS: Final[dict[str, tuple[_Path, ...]]] = {
    "context_window": (
        ("context_window",),  # ours, Groq, Vercel's gateway
        ("context_length",),  # OpenRouter, Together, Fireworks, SambaNova
        ("max_context_length",),  # Mistral, LM Studio
        ("max_model_len",),  # vLLM
        ("metadata", "context_length"),  # DeepInfra
        ("capabilities", "limits", "max_context_window_tokens"),  # Copilot
        ("top_provider", "context_length"),  # OpenRouter
        ("meta", "n_ctx"),  # llama.cpp, before what the model was trained with
        ("meta", "n_ctx_train"),
        ("max_input_tokens",),  # Anthropic: its window
        ("inputTokenLimit",),  # Gemini
    ),
    "max_input_tokens": (
        ("max_input_tokens",),
        ("inputTokenLimit",),
        ("capabilities", "limits", "max_prompt_tokens"),
    ),
    "max_output_tokens": (
        ("max_output_tokens",),
        ("max_completion_tokens",),
        ("top_provider", "max_completion_tokens"),
        ("capabilities", "limits", "max_output_tokens"),
        ("metadata", "max_tokens"),
        ("max_tokens",),
        ("outputTokenLimit",),
    ),
}
# the fields of abilities, true or false, or an object with such a field
_FLAGS: Final[dict[str, tuple[_Path, ...]]] = {
    "tools": (
        ("capabilities", "tools"),
        ("capabilities", "function_calling"),
        ("capabilities", "supports", "tool_calls"),
        ("supports_tools",),
    ),
    "streaming_tool_calls": (("capabilities", "streaming_tool_calls"),),  # ours
    "images": (
        ("capabilities", "images"),
        ("capabilities", "vision"),
        ("capabilities", "supports", "vision"),
        ("capabilities", "image_input", "supported"),
        ("supports_image_input",),
    ),
    "reasoning": (
        ("capabilities", "reasoning"),
        ("capabilities", "thinking", "supported"),
        ("capabilities", "supports", "thinking"),
    ),
}
# lists of words, each ability's words in them, and whether a list without those words denies the ability
_WORDS: Final[tuple[tuple[_Path, str, frozenset[str], bool], ...]] = (
    (("supported_parameters",), "tools", frozenset({"tools"}), True),
    (("supported_parameters",), "reasoning", frozenset({"reasoning", "include_reasoning"}), True),
    (("architecture", "input_modalities"), "images", frozenset({"image"}), True),
    (("input_modalities",), "images", frozenset({"image"}), True),
    (("modalities", "input"), "images", frozenset({"image"}), True),
    (("capabilities",), "tools", frozenset({"tool_use", "tools", "function_calling"}), False),
    (("capabilities",), "images", frozenset({"vision", "multimodal", "image"}), False),
    (("tags",), "tools", frozenset({"tool-use", "tools"}), False),
    (("tags",), "images", frozenset({"vision"}), False),
    (("tags",), "reasoning", frozenset({"reasoning"}), False),
    (("metadata", "tags"), "images", frozenset({"vision"}), False),
)
_TITLES: Final = ("display_name", "displayName", "name")


class ReportedModel(NamedTuple):
    """A model in an upstream's list: its name there, its display name (or ""), and its reported
    capabilities."""

    id: str
    title: str = ""
    known: Capabilities = Capabilities()


def reported_models(body: bytes) -> list[ReportedModel]:
    """The models of a list in any known format; empty for anything else."""
    try:
        listed: Any = decode_json(body)
    except WireError:
        return []
    entries = listed.get("data") or listed.get("models") if isinstance(listed, dict) else listed
    if not isinstance(entries, list):
        return []
    models: dict[str, ReportedModel] = {}
    for entry in entries[:MOST_MODELS]:
        model = _reported(entry) if isinstance(entry, dict) else None
        if model is not None:
            models.setdefault(model.id, model)
    return list(models.values())


def _reported(entry: Mapping[str, Any]) -> ReportedModel | None:
    name = str(entry.get("id") or entry.get("name") or "")
    if not name or len(name) > _LONGEST:
        return None
    titles = (entry[field] for field in _TITLES if isinstance(entry.get(field), str))
    title = next(titles, "")
    facts: dict[str, Any] = dict(_first(entry, _LIMITS, _tokens))
    facts |= dict(_listed(entry))
    facts |= dict(_first(entry, _FLAGS, lambda value: value if isinstance(value, bool) else None))
    return ReportedModel(name, "" if title == name else title[:_LONGEST], Capabilities(**facts))


def _first(
    entry: Mapping[str, Any], places: Mapping[str, Iterable[_Path]], read: Callable[[Any], Any]
) -> Iterator[tuple[str, Any]]:
    for fact, paths in places.items():
        values = (read(_at(entry, path)) for path in paths)
        value = next((each for each in values if each is not None), None)
        if value is not None:
            yield fact, value


def _listed(entry: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Abilities from lists of words; denials come first, so that another list may override them."""
    facts = {True: list[str](), False: list[str]()}
    for path, fact, words, denies in _WORDS:
        values = _at(entry, path)
        if isinstance(values, list) and values:
            has = any(isinstance(word, str) and word in words for word in values)
            if has or denies:
                facts[has].append(fact)
    for has in (False, True):
        yield from ((fact, has) for fact in facts[has])


def _tokens(value: Any) -> int | None:
    """A number of tokens, or None; some servers send 0 or null for an unknown one."""
    return value if type(value) is int and 0 < value <= _MOST_TOKENS else None


def _at(entry: Mapping[str, Any], path: _Path) -> Any:
    value: Any = entry
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


# A dump of models.dev (`api.json`): provider → `models` → name → facts. It may be from anybody.

MAKERS: Final = (
    *("openai", "anthropic", "google", "xai", "mistral", "deepseek", "moonshotai", "zai", "minimax"),
    *("xiaomi", "alibaba", "stepfun"),
)
"""The providers of a dump whose models are their own; their facts take precedence over those of others."""
MOST_DUMPED: Final = 5_000
"""The most models that a file of them has."""
MOST_DUMP_BYTES: Final = 64 * 1024 * 1024
_MOST_FILE_BYTES: Final = 4 * 1024 * 1024
_DUMPED_NAME: Final = re.compile(r"[A-Za-z0-9][\w.:/@+-]{0,199}", re.ASCII)
_DUMPED_LIMITS: Final = {
    "context_window": ("limit", "context"),
    "max_input_tokens": ("limit", "input"),
    "max_output_tokens": ("limit", "output"),
}
_DUMPED_FLAGS: Final = {"tools": ("tool_call",), "reasoning": ("reasoning",)}


_LEAST_DOLLARS: Final = 1e-6  # less, for a million tokens, would be nothing for one
_OLD_TIER: Final = 200_000  # tokens
_PRICES: Final = {
    "input": "input",
    "cached_input": "cache_read",
    "cache_write": "cache_write",
    "output": "output",
    "reasoning": "reasoning",
}


class FiledModel(Capabilities, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model in a file of them: its capabilities and its price."""

    price: Price | None = None
    """Its price."""


class UnusableDump(ValueError):
    """A dump that can't be read; the message says why."""


def dumped_models(body: bytes, providers: Sequence[str]) -> dict[str, FiledModel]:
    """The text models of these providers of a dump, by name; of one name's facts those of the first provider
    count. Names that can't be one and values of other types are left out. Raises UnusableDump."""
    try:
        dump: Any = decode_json(body)
    except (WireError, RecursionError) as error:
        raise UnusableDump("it is not JSON, or nested too deeply") from error
    if not isinstance(dump, dict) or not all(isinstance(each, dict) for each in dump.values()):
        raise UnusableDump("it is not a dump of models.dev: an object of providers is expected")
    missing = [name for name in providers if name not in dump]
    if len(missing) == len(providers):
        close = did_you_mean(missing[0], map(str, islice(dump, MOST_MODELS)))
        raise UnusableDump(f"it has no provider {', '.join(map(repr, missing))}{close}")
    by_name: dict[str, FiledModel] = {}
    for provider in providers:
        models = dump.get(provider, {}).get("models")
        for name, entry in models.items() if isinstance(models, dict) else ():
            facts = _dumped(entry) if _DUMPED_NAME.fullmatch(name) else _UNKNOWN
            if facts != _UNKNOWN:
                by_name.setdefault(name, facts)
            if len(by_name) > MOST_DUMPED:
                raise UnusableDump(f"it has more than {MOST_DUMPED} models: name fewer providers")
    return by_name


def _dumped(entry: Any) -> FiledModel:
    if not isinstance(entry, dict):
        return _UNKNOWN
    price = _dumped_price(entry.get("cost"))
    written, read = (_at(entry, ("modalities", which)) for which in ("output", "input"))
    if isinstance(written, list) and "text" not in written:
        return FiledModel(price=price)
    facts: dict[str, Any] = {name: _tokens(_at(entry, path)) for name, path in _DUMPED_LIMITS.items()}
    for name, path in _DUMPED_FLAGS.items():
        value = _at(entry, path)
        facts[name] = value if isinstance(value, bool) else None
    facts["images"] = "image" in read if isinstance(read, list) else None
    facts["efforts"] = _dumped_efforts(entry.get("reasoning_options"))
    return FiledModel(**facts, price=price)


def _dumped_price(cost: Any) -> Price | None:
    """The price of tokens; None if one of its numbers is not a price, or if all of them are 0. That means
    that a plan includes the model, or that its price is unknown, and would make a budget void."""
    tiers = _dumped_tiers(cost) if isinstance(cost, dict) else None
    if tiers is None:
        return None
    try:
        price = msgspec.convert({**_dumped_rates(cost), "tiers": tiers}, Price)
    except msgspec.ValidationError:
        return None
    kinds = (price, *price.tiers)
    prices = [getattr(each, name) for each in kinds for name in _PRICES]
    if price.input is None or price.output is None or any(each and each < _LEAST_DOLLARS for each in prices):
        return None
    return price if any(each.input or each.output for each in kinds) else None


def _dumped_rates(cost: Mapping[str, Any]) -> dict[str, Any]:
    return {name: cost[field] for name, field in _PRICES.items() if cost.get(field) is not None}


def _dumped_tiers(cost: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The prices of long requests, from the newer of the two fields that dumps have for them; None if one of
    them can't be used, since the others would be too low."""
    listed = cost.get("tiers")
    if listed is None:
        old = cost.get("context_over_200k")
        listed = [] if old is None else [{**old, "tier": _TIER}] if isinstance(old, dict) else None
    if not isinstance(listed, list):
        return None
    tiers: dict[int, dict[str, Any]] = {}
    for each in listed:
        size = _tokens(_at(each, ("tier", "size"))) if isinstance(each, dict) else None
        if size is None or size in tiers or _at(each, ("tier", "type")) != "context":
            return None
        tiers[size] = {"above": size, **_dumped_rates(each)}
    return [tiers[size] for size in sorted(tiers)]


def _dumped_efforts(options: Any) -> list[Any] | None:
    """The levels of effort, `none` among them where thinking can be turned off; None if it says neither."""
    efforts: set[str] = set()
    for option in options if isinstance(options, list) else ():
        kind = option.get("type") if isinstance(option, dict) else None
        values = option.get("values") if kind == "effort" else None
        efforts |= {"none"} if kind == "toggle" else set()
        efforts |= {each for each in values if isinstance(each, str)} if isinstance(values, list) else set()
    levels = [level for level in LEVELS if level in efforts]
    return levels or None


def read_models(path: Path) -> dict[str, FiledModel]:
    """The models of a file as `written_models` writes it. Raises SettingsError with the file and the line."""
    try:
        if path.stat().st_size > _MOST_FILE_BYTES:
            raise SettingsError(
                f"a file of models may have at most {_MOST_FILE_BYTES} bytes", place=str(path)
            )
    except OSError as error:
        raise SettingsError(error.strerror or str(error), place=str(path)) from error
    with located(path):
        models = {name: _filed(name, fields) for name, fields in read_config(path).items()}
    if len(models) > MOST_DUMPED:
        raise SettingsError(f"a file of models may have at most {MOST_DUMPED} models", place=str(path))
    return models


def _filed(name: str, fields: Any) -> FiledModel:
    return converted(fields, FiledModel, f"$.{name}")


def written_models(models: Mapping[str, FiledModel]) -> bytes:
    """A file of models, in the order of their names."""
    lines = ["# Written by `openresponses-bridge models sync`, which replaces the models of its dump here."]
    for name in sorted(models):
        lines += ["", f"[{as_toml(name)}]"]
        facts = msgspec.to_builtins(models[name])
        lines += [f"{field} = {as_toml(value)}" for field, value in facts.items() if value is not None]
    return ("\n".join(lines) + "\n").encode()


_FILE: Final = "models.toml"
_WILD: Final = "*?["
_NOTHING: Final = Capabilities()
_UNKNOWN: Final = FiledModel()
_TIER: Final = {"type": "context", "size": _OLD_TIER}
_MOST_NAMES: Final = 4096  # whose capabilities are kept


class Catalog:
    """The capabilities of all models. `report` adds an upstream's list, by the upstream's name."""

    def __init__(
        self, configured: Mapping[str, Capabilities], filed: Mapping[str, FiledModel] | None = None
    ) -> None:
        """`configured`: the config's entries. `filed`: those of the operator's file of models."""
        self._configured = configured
        self.filed_prices = {
            name: each.price for name, each in (filed or {}).items() if each.price is not None
        }
        """The prices of the operator's file, by the names that upstreams give models."""
        self._filed = FiledModels(filed or {})
        self._reported: dict[str, dict[str, ReportedModel]] = {}
        self._found: dict[tuple[str, str], Capabilities] = {}
        self.version = 0
        """Rises with each change."""

    def report(self, upstream: str, models: Iterable[ReportedModel]) -> None:
        """Replace this upstream's list."""
        self._reported[upstream] = {model.id: model for model in models}
        self._found.clear()
        self.version += 1

    def listed(self, upstream: str) -> Mapping[str, ReportedModel]:
        """The upstream's last list, by name."""
        return self._reported.get(upstream, {})

    def capabilities(self, upstream: str, model: str) -> Capabilities:
        """The capabilities of a model of this upstream, field by field; `model` is the name in requests to
        it."""
        able = self._found.get((upstream, model))
        if able is None:
            reported = self.listed(upstream).get(model)
            known = _NOTHING if reported is None else reported.known
            able = capabilities_of(model, self._configured, known, self._filed)
            if len(self._found) >= _MOST_NAMES:
                self._found.clear()
            self._found[upstream, model] = able
        return able


class FiledModels:
    """The models of a file, to be found by the family of their names."""

    def __init__(self, models: Mapping[str, FiledModel]) -> None:
        self._models = {name: each for name, each in models.items() if each != FiledModel(price=each.price)}
        self._of_family: dict[str, list[str]] = {}
        for name in self._models:
            self._of_family.setdefault(model_identity(name).family, []).append(name)

    def facts_of(self, model: str) -> Capabilities:
        """The facts about exactly this model, from any server, and not about others of its family."""
        near = nearest_model(model, self._of_family.get(model_identity(model).family, ()))
        return self._models[near] if near is not None and _same_version(near, model) else _NOTHING


def _same_version(one: str, other: str) -> bool:
    return model_identity(one).version == model_identity(other).version


_NOBODY: Final = FiledModels({})


def capabilities_of(
    model: str,
    configured: Mapping[str, Capabilities],
    reported: Capabilities = _NOTHING,
    filed: FiledModels = _NOBODY,
) -> Capabilities:
    """The capabilities of a model, field by field.

    The config's entry for `model` also applies to `vendor/model` and `model:tag`. The table that ships with
    the server knows models by every spelling (see `openresponses_bridge.models.identity`), and a new one as
    the newest of its family.
    """
    capabilities = _NOTHING
    for name in dict.fromkeys((model, bare_name(model))):
        pattern = best_match(name, configured)
        if pattern is not None:
            capabilities = _filled(capabilities, configured[pattern])
    of_file = filed.facts_of(model)
    capabilities = _filled(_filled(capabilities, reported), of_file)
    shipped = _shipped()
    known = nearest_model(model, shipped)
    # a file that knows the model is not completed with what an older one of its family can
    if known is not None and (of_file is _NOTHING or _same_version(known, model)):
        capabilities = _filled(capabilities, shipped[known])
    return capabilities


def best_match(name: str, patterns: Iterable[str]) -> str | None:
    """The pattern for a name: the name itself, else the longest matching pattern with wildcards."""
    fitting = [pattern for pattern in patterns if pattern == name or _fits(name, pattern)]
    return max(fitting, key=lambda pattern: (pattern == name, len(pattern)), default=None)


def is_pattern(text: str) -> bool:
    """Return True if the pattern matches more than one name."""
    return any(sign in text for sign in _WILD)


def bare_name(model: str) -> str:
    """A model's name without its vendor prefix and its tag."""
    return model.rpartition("/")[2].partition(":")[0]


def _fits(name: str, pattern: str) -> bool:
    return is_pattern(pattern) and fnmatchcase(name, pattern)


def _filled(known: Capabilities, more: Capabilities) -> Capabilities:
    """`known`, with missing fields from `more`."""
    names = Capabilities.__struct_fields__
    added = {name: getattr(more, name) for name in names if getattr(known, name) is None}
    return msgspec.structs.replace(known, **added)


@cache
def _shipped() -> dict[str, Capabilities]:
    text = resources.files(__package__).joinpath(_FILE).read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Capabilities])
