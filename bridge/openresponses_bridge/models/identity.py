"""Reads a model's name: its provider, family, version and date.

Names come as `anthropic:claude-sonnet-4`, `openai/gpt-5.1-codex`, `us.anthropic.claude-3-5-sonnet-
20241022-v2:0`, `llama3.1:8b-instruct-q4_K_M`, `accounts/fireworks/models/deepseek-v3`, `Qwen/Qwen3.5-35B-
A3B-FP8`. Clients group models by family and show versions (VS Code's model information wants both).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

_PROVIDERS = frozenset(
    """
    ai21 alibaba amazon anthropic arcee azure bedrock cerebras cohere copilot databricks deepinfra
    deepseek deepseek-ai fireworks github google groq huggingface inception lmstudio meta meta-llama
    microsoft minimax minimaxai mistral mistralai moonshot moonshotai nvidia ollama openai openrouter
    perplexity qwen sambanova sglang siliconflow stepfun together vercel vertex vllm volcengine voyage xai
    x-ai xiaomi xiaomimimo z-ai zai zai-org zhipu zhipuai
    """.split()  # noqa: SIM905 - a list that is read and added to by word
)
# what may be between a provider and the model without a meaning
_FILLERS = frozenset({"accounts", "models", "publishers", "us", "eu", "apac", "global", "jp", "au"})
_DATE = re.compile(
    r"-(?P<date>20\d{2}-?[01]\d-?[0-3]\d|20\d{2}-?[01]\d|2\d[01]\d[0-3]\d|[0-2]\d[0-3]\d|[01]\d-[0-3]\d)"
    r"(?=-|$)"
)
# Bedrock's own version of how it serves a model, a file's name, the window that Claude Code asks for
_SERVING = re.compile(r"((-v\d+)?:\d+|(?<=\d)-v1|\.gguf|\[1m\])$", re.IGNORECASE)
_VARIANTS = frozenset(
    """
    preview latest default beta exp experimental instruct chat it thinking free online extended stable
    """.split()  # noqa: SIM905 - a list that is read and added to by word
)
_SIZE = re.compile(r"((\d+x)?\d+(\.\d+)?b|a\d+(\.\d+)?b)$")  # `a3b`: the number of active parameters
# how the weights of the same model are stored or served
_WEIGHTS = re.compile(
    r"(i?q\d(_\w+)?|(mx|nv)?fp\d+|b?f16|f32|int\d|w\d+a\d+|\d+bit|awq|gptq|gguf|mlx|exl\d|ud|hf|maas)$"
)
_VERSION = re.compile(r"v?(?P<version>\d+(\.\d+)*)$")
_GLUED = re.compile(r"(?P<name>[a-z]{3,})(?P<version>\d+(\.\d+)*)$")
_SINGLE = re.compile(r"v?\d$")
_POINT = re.compile(r"(?<=\d)p(?=\d)")  # Fireworks writes 3p1
# spellings of clouds: Vertex's dates, Azure's version, the makers that Groq, Together and Cerebras add
_SPELLINGS = (("@", "-"), ("gpt-35", "gpt-3.5"), ("meta-llama-", "llama-"), ("zai-glm", "glm"))


class ModelIdentity(Struct, frozen=True):
    """A model's name in parts; each is "" if the name does not have it.

    `name` is the name without provider and tag; `family` is the name without version, date, variant and the
    format of the weights (`fp8`); `variant` has sizes and states (`70b-instruct`, `preview`); `tag` is the
    part after a colon (`8b-instruct-q4_K_M`); `date` is `2024-07-18` or as short as it was given.
    """

    id: str
    provider: str
    name: str
    family: str
    version: str
    date: str
    variant: str
    tag: str


@lru_cache(maxsize=1024)
def model_identity(model_id: str) -> ModelIdentity:
    """Read a name. Never raises; what it can't split is the family."""
    provider, rest = _provider(model_id.strip())
    rest = _SERVING.sub("", rest)
    name, _, tag = rest.partition(":")
    bare, date = _dated(_plainly(name.lower()))
    words = [word for word in bare.split("-") if word and not _WEIGHTS.match(word)]
    variants = [word for word in words if word in _VARIANTS or _SIZE.match(word)]
    family, version = _versioned([word for word in words if word not in variants])
    return ModelIdentity(model_id, provider, name, family or bare, version, date, "-".join(variants), tag)


def nearest_model(model_id: str, known: Iterable[str]) -> str | None:
    """Return the model of `known` whose facts apply to this one, whoever serves it. In this order: the same
    name; the same version, with the same date, else without a date, else the latest; else the newest of its
    family that is not newer than this one, or the newest of all for a name without a version. Among equals,
    the same variant takes precedence, then no variant. A longer name with the same beginning is another model
    and inherits nothing."""
    identity = model_identity(model_id)
    if not identity.name:
        return None
    family = [(each, other) for each in known if (other := model_identity(each)).family == identity.family]
    exact = next((each for each, other in family if other.name.lower() == identity.name.lower()), None)
    if exact is not None or not family:
        return exact
    version = _numbers(identity.version)
    same = [(each, other) for each, other in family if _numbers(other.version) == version]
    if same:
        return max(same, key=lambda one: _similarity(one[1], identity))[0]
    if version:
        family = [one for one in family if _numbers(one[1].version) < version]
    if not family:
        return None
    return max(family, key=lambda one: (_numbers(one[1].version), *_similarity(one[1], identity)))[0]


def _similarity(one: ModelIdentity, target: ModelIdentity) -> tuple[bool, bool, bool, bool, str]:
    return (
        one.date == target.date,
        one.variant == target.variant,
        not one.variant,
        not one.date,
        one.date,
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version for comparison: `4` is `4.0`, and numbers longer than those of any version count as no
    version."""
    parts = [int(part) if len(part) < 7 else 0 for part in version.split(".") if part]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def _plainly(name: str) -> str:
    for theirs, plain in _SPELLINGS:
        name = name.replace(theirs, plain)
    return _POINT.sub(".", name)


def _provider(name: str) -> tuple[str, str]:
    """Return (provider, the rest). The last of several providers counts: it made the model, the others pass
    it on."""
    *path, rest = name.split("/")
    providers = [part.lower() for part in path if part.lower() not in _FILLERS]
    head, colon, tail = rest.partition(":")
    if colon and head.lower() in _PROVIDERS:
        return head.lower(), tail
    dotted = rest.split(".")
    while len(dotted) > 1 and dotted[0].lower() in _PROVIDERS | _FILLERS:
        word = dotted.pop(0).lower()
        providers += [] if word in _FILLERS else [word]
    return (providers[-1] if providers else ""), ".".join(dotted)


def _dated(name: str) -> tuple[str, str]:
    match = _DATE.search(name)
    if match is None:
        return name, ""
    date = match.group("date")
    if len(date) == 8 and "-" not in date:
        date = f"{date[:4]}-{date[4:6]}-{date[6:]}"
    return name[: match.start()] + name[match.end() :], date


def _versioned(words: list[str]) -> tuple[str, str]:
    """Return (family, version) of a name's words. Two digits in a row are one version:
    `claude-3-5-sonnet`."""
    family: list[str] = []
    version: list[str] = []
    for position, word in enumerate(words):
        match, glued = _VERSION.match(word), _GLUED.match(word)
        goes_on = version and position and _SINGLE.match(word) and _SINGLE.match(words[position - 1])
        if match is not None and (not version or goes_on):
            version.append(match.group("version"))
        elif glued is not None and not version:
            family.append(glued.group("name"))
            version.append(glued.group("version"))
        else:
            family.append(word)
    return "-".join(family), ".".join(version)
